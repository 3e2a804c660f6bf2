//! Measurements of consistent reads, directly and through kubefan in the same run. They print
//! tables and assert nothing about time, so they are run by hand:
//!
//! ```sh
//! KUBEFAN_TEST_BINARY=target/release/kubefan cargo test --test it measure -- --ignored --nocapture
//! ```

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream;
use serde_json::json;
use tokio::time::Instant;

use crate::support::apiserver::ApiServer;
use crate::support::apiserver::private;
use crate::support::client::Client;
use crate::support::connector::Connector;
use crate::support::frames::Event;
use crate::support::frames::Format;
use crate::support::kubefan::Kubefan;
use crate::support::poll::within;
use crate::upstream::faulty::next;

const MANY: usize = 5_000;
const WATCH_LIST: &str =
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// Who writes while it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writes {
    Nobody,
    Elsewhere,
    Here,
}

struct Setting {
    server: ApiServer,
    kubefan: Kubefan,
    direct: Client,
    through: Client,
    namespace: String,
}

impl Setting {
    async fn start() -> Option<Self> {
        let server = private().await?;
        let kubefan = Kubefan::start(&server, &[]).await;
        Some(Self {
            direct: server.client(),
            through: kubefan.client(),
            namespace: server.namespace("measure").await,
            kubefan,
            server,
        })
    }

    fn path(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace)
    }

    /// `count` config maps of 6 KiB in a namespace of their own, and what their path is.
    async fn filled(&self, count: usize) -> String {
        let namespace = self.server.namespace(&format!("with-{count}")).await;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let text = "x".repeat(6 << 10);
        let made = (0..count).map(|number| {
            let object = json!({
                "metadata": { "name": format!("object-{number}"), "labels": { "side": "a" } },
                "data": { "text": text },
            });
            let (client, path) = (&self.direct, &path);
            async move { drop(client.create(path, &object).await.ok()) }
        });
        stream::iter(made)
            .buffer_unordered(16)
            .collect::<()>()
            .await;
        path
    }

    /// Changes something twenty times a second until `done`.
    async fn write(&self, path: &str, writes: Writes, done: &AtomicBool) {
        let path = match writes {
            Writes::Nobody => return,
            Writes::Elsewhere => self.path("secrets"),
            Writes::Here => path.to_owned(),
        };
        let object = json!({ "metadata": { "name": "object-0" } });
        self.direct.create(&path, &object).await;
        for number in 0.. {
            if done.load(Ordering::Relaxed) {
                return;
            }
            let change = json!({ "metadata": { "annotations": { "n": number.to_string() } } });
            self.direct
                .merge(&format!("{path}/object-0"), &change)
                .await
                .ok();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Milliseconds of `rounds` reads each way, in turn.
    async fn read(&self, path: &str, rounds: usize) -> [Vec<f64>; 2] {
        let mut took = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (client, took) in [&self.direct, &self.through].into_iter().zip(&mut took) {
                let began = Instant::now();
                client.get(path).await.ok();
                took.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
        took
    }

    async fn cpu(&self) -> f64 {
        self.server.metric("process_cpu_seconds_total", &[]).await
    }

    async fn requests(&self, verb: &str) -> f64 {
        let labels = [("resource", "configmaps"), ("verb", verb)];
        self.server.metric("apiserver_request_total", &labels).await
    }
}

fn percentile(sorted: &[f64], of: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * of) as usize]
}

fn row(what: &str, [mut direct, mut through]: [Vec<f64>; 2]) {
    direct.sort_by(f64::total_cmp);
    through.sort_by(f64::total_cmp);
    let pair = |of| (percentile(&direct, of), percentile(&through, of));
    let ((d50, t50), (d99, t99)) = (pair(0.5), pair(0.99));
    println!(
        "{what:<34} p50 {d50:7.1} ms direct {t50:7.1} ms kubefan {:5.2}x   p99 {d99:7.1} {t99:7.1} {:5.2}x",
        t50 / d50,
        t99 / d99
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_latency_of_consistent_reads() {
    let Some(setting) = Setting::start().await else {
        return;
    };
    for count in [1, 100, MANY] {
        let path = setting.filled(count).await;
        setting
            .through
            .get(&format!("{path}?resourceVersion=0"))
            .await
            .ok();
        for writes in [Writes::Nobody, Writes::Elsewhere, Writes::Here] {
            let done = AtomicBool::new(false);
            let rounds = if count == MANY { 30 } else { 200 };
            let reading = async {
                let lists = setting.read(&path, rounds).await;
                row(&format!("LIST of {count}, writes: {writes:?}"), lists);
                if count == 100 {
                    let gets = setting.read(&format!("{path}/object-7"), rounds).await;
                    row(&format!("GET, writes: {writes:?}"), gets);
                }
                done.store(true, Ordering::Relaxed);
            };
            tokio::join!(reading, setting.write(&path, writes, &done));
        }
    }
    drop(setting.kubefan);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_what_consistent_reads_cost_upstream() {
    let Some(setting) = Setting::start().await else {
        return;
    };
    let path = setting.filled(MANY).await;
    let h2 = Client::http2(setting.kubefan.url(), Connector::plain());
    setting
        .through
        .get(&format!("{path}?resourceVersion=0"))
        .await
        .ok();

    let before = setting.requests("LIST").await;
    let lists = (0..1_000).map(|number| {
        let path = format!("{path}?labelSelector=side%20in%20(b,x{number})");
        let h2 = &h2;
        async move { drop(h2.get(&path).await.ok()) }
    });
    join_all(lists).await;
    let asked = setting.requests("LIST").await - before;
    println!("1,000 lists at a time, distinct selectors: {asked} upstream");

    let before = setting.requests("GET").await;
    let object = format!("{path}/object-7");
    join_all((0..1_000).map(|_| async { drop(h2.get(&object).await.ok()) })).await;
    let asked = setting.requests("GET").await - before;
    println!("1,000 GETs of one object at a time: {asked} upstream");

    let few = setting.filled(20).await;
    let before = setting.requests("LIST").await;
    let began = Instant::now();
    let watches = (0..500).map(|_| {
        let (h2, path) = (&h2, format!("{few}?{WATCH_LIST}"));
        async move {
            let mut stream = h2.watch(&path, Format::Json).await.expect("a stream");
            while !matches!(next(&mut stream).await, Event::Bookmark { .. }) {}
        }
    });
    within(
        "500 watch-lists",
        Duration::from_secs(60),
        join_all(watches),
    )
    .await;
    let (asked, took) = (setting.requests("LIST").await - before, began.elapsed());
    println!("500 watch-lists at a time: {asked} LISTs upstream, all synced after {took:?}");

    for (name, client) in [
        ("directly", &setting.direct),
        ("through kubefan", &setting.through),
    ] {
        let before = setting.cpu().await;
        let reads = (0..100).map(|_| async { drop(client.get(&path).await.ok()) });
        join_all(reads).await;
        let cpu = setting.cpu().await - before;
        println!("100 readers of {MANY} at a time {name}: {cpu:.2} s of the API server's CPU");
    }
}

/// `KUBEFAN_ROUNDS` writes, each read back at once in every way.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_reading_own_writes() {
    let Some(setting) = Setting::start().await else {
        return;
    };
    let rounds = std::env::var("KUBEFAN_ROUNDS").ok();
    let rounds: u32 = rounds
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(2_000);
    let path = setting.path("configmaps");
    setting
        .direct
        .create(&path, &json!({ "metadata": { "name": "w" } }))
        .await
        .ok();
    for round in 0..rounds {
        let n = round.to_string();
        let change = json!({ "metadata": { "annotations": { "n": n } } });
        setting
            .direct
            .merge(&format!("{path}/w"), &change)
            .await
            .ok();
        let wanted = format!("\"n\":\"{n}\"");
        let list = setting.through.get(&path).await.ok().to_string();
        let object = setting
            .through
            .get(&format!("{path}/w"))
            .await
            .ok()
            .to_string();
        assert!(
            list.contains(&wanted) && object.contains(&wanted),
            "round {round}: {list}"
        );
        let list = setting
            .through
            .get_as(&path, Format::Protobuf)
            .await
            .ok()
            .to_string();
        assert!(list.contains(&n), "round {round} in protobuf");
        let watch = format!("{path}?{WATCH_LIST}");
        let mut stream = setting
            .through
            .watch(&watch, Format::Json)
            .await
            .expect("a stream");
        let first = stream
            .next_frame()
            .await
            .expect("a frame")
            .expect("an event");
        assert!(
            format!("{first:?}").contains(&n),
            "round {round}: {first:?}"
        );
    }
    let metrics = setting.kubefan.metrics().await;
    let lists = metrics
        .lines()
        .filter(|line| line.starts_with("kubefan_requests_total"));
    lists
        .filter(|line| line.contains("configmaps"))
        .for_each(|line| println!("{line}"));
}
