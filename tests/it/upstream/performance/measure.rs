//! Measurements of reads of the most recent state, directly and through kubefan in one run. They
//! print tables and assert nothing about time, so they are run by hand:
//!
//! ```sh
//! KUBEFAN_TEST_BINARY=target/dist/kubefan \
//!     cargo test --test it measure -- --ignored --nocapture --test-threads=1
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::json;
use tokio::time::Instant;

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::{Event, Format};
use crate::support::faulty::next;
use crate::support::pods;
use crate::support::poll::within;
use crate::support::programs::apiserver::{ApiServer, private_with};
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::kubefan::Kubefan;
use crate::support::settings::setting as environment;

/// Flags of the API server. Many concurrent readers may need longer than the default request
/// timeout of one minute.
const FLAGS: [&str; 2] = ["--allow-privileged=true", "--request-timeout=15m"];
const BETWEEN_WRITES: Duration = Duration::from_millis(10);
const WATCH_LIST: &str =
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// Returns the number of pods in a large LIST: `KUBEFAN_PODS`, or 5,000.
pub(super) fn many() -> usize {
    environment("KUBEFAN_PODS", 5_000)
}

/// The writes that run during a measurement: `to_pods` to one of the pods that are read,
/// `to_secrets` to a Secret.
#[derive(Clone, Copy)]
struct Writes {
    to_pods: bool,
    to_secrets: bool,
}

/// All combinations of writes. The one without writes is first, because a quiet resource must not
/// have changed shortly before.
const WRITES: [Writes; 4] = [
    Writes {
        to_pods: false,
        to_secrets: false,
    },
    Writes {
        to_pods: false,
        to_secrets: true,
    },
    Writes {
        to_pods: true,
        to_secrets: false,
    },
    Writes {
        to_pods: true,
        to_secrets: true,
    },
];

pub(super) struct Setting {
    server: ApiServer,
    kubefan: Kubefan,
    pub(super) direct: Client,
    pub(super) through: Client,
}

impl Setting {
    pub(super) async fn start() -> Self {
        let server = private_with(&FLAGS).await;
        let kubefan = Kubefan::start(&server, &[]).await;
        Self {
            direct: server.client(),
            through: kubefan.client(),
            kubefan,
            server,
        }
    }

    async fn path(&self, resource: &str) -> String {
        let namespace = self.server.namespace("measure").await;
        format!("/api/v1/namespaces/{namespace}/{resource}")
    }

    /// Creates `count` pods in a new namespace and has kubefan cache them; returns their path.
    pub(super) async fn pods(&self, count: usize) -> String {
        let path = self.path("pods").await;
        pods::create(&self.direct, &path, count).await;
        let cached = format!("{path}?resourceVersion=0");
        let (_, bytes) = self.through.drain(&cached).await;
        println!("{count} pods of {} bytes each in JSON", bytes / count);
        path
    }

    /// Sends the writes, about eighty per second, until `done` is true.
    async fn write(&self, path: &str, writes: Writes, done: &AtomicBool) {
        let secrets = self.path("secrets").await;
        let object = json!({ "metadata": { "name": "one" } });
        self.direct.create(&secrets, &object).await.ok();
        for number in 0.. {
            if done.load(Ordering::Relaxed) {
                return;
            }
            let change = json!({ "metadata": { "annotations": { "n": number.to_string() } } });
            if writes.to_pods {
                let pod = format!("{path}/pod-0");
                self.direct.merge(&pod, &change).await.ok();
            }
            if writes.to_secrets {
                let secret = format!("{secrets}/one");
                self.direct.merge(&secret, &change).await.ok();
            }
            tokio::time::sleep(BETWEEN_WRITES).await;
        }
    }

    /// Reads `path` `rounds` times directly and through kubefan, alternating, and returns the
    /// latencies in milliseconds. Both ways are equally often first, because a read makes the API
    /// server's cache fresher for the next one.
    async fn read(&self, path: &str, rounds: usize) -> [Vec<f64>; 2] {
        let mut took = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            for way in [round % 2, 1 - round % 2] {
                let client = [&self.direct, &self.through][way];
                let began = Instant::now();
                let (status, _) = client.drain(path).await;
                assert_eq!(status, 200, "{path}");
                took[way].push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
        took
    }

    /// Returns a kubectl for the API server, and one for kubefan.
    pub(super) fn kubectls(&self) -> [Kubectl; 2] {
        let through = self.kubefan.kubeconfig(&User::Anonymous);
        [self.server.kubeconfig("admin"), through]
            .map(|kubeconfig| Kubectl::new(self.server.assets(), &kubeconfig, "default"))
    }

    /// Returns the CPU time that the API server and kubefan have used so far, in seconds.
    pub(super) async fn cpu(&self) -> [f64; 2] {
        let server = self.server.metric("process_cpu_seconds_total", &[]).await;
        [server, self.kubefan.cpu()]
    }

    async fn requests(&self, resource: &str, verb: &str) -> f64 {
        let labels = [("resource", resource), ("verb", verb)];
        self.server.metric("apiserver_request_total", &labels).await
    }
}

/// Returns the value that the share `of` of all values does not exceed.
pub(super) fn percentile(sorted: &[f64], of: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * of) as usize]
}

fn header() {
    println!(
        "| read | pods change | others change | p50 direct | p50 kubefan | ratio | p99 direct | p99 kubefan | ratio |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
}

fn row(what: &str, writes: Writes, [mut direct, mut through]: [Vec<f64>; 2]) {
    direct.sort_by(f64::total_cmp);
    through.sort_by(f64::total_cmp);
    let yes_no = |change| if change { "yes" } else { "no" };
    let (to_pods, to_secrets) = (yes_no(writes.to_pods), yes_no(writes.to_secrets));
    let columns = [0.5, 0.99].map(|of| {
        let (direct, through) = (percentile(&direct, of), percentile(&through, of));
        format!("{direct:.1} ms | {through:.1} ms | {:.2}", through / direct)
    });
    println!(
        "| {what} | {to_pods} | {to_secrets} | {} |",
        columns.join(" | ")
    );
}

/// `KUBEFAN_PODS` sets the size of the large LIST (5,000), and `KUBEFAN_READS` the number of reads
/// of each kind (200).
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_latency_of_consistent_reads() {
    let setting = Setting::start().await;
    let reads: usize = environment("KUBEFAN_READS", 200);
    let mut measured = Vec::new();
    for (count, rounds) in [(1, reads), (100, reads), (many(), reads.div_ceil(4))] {
        let path = setting.pods(count).await;
        measured.push((
            format!("LIST of {count}"),
            path.clone(),
            path.clone(),
            rounds,
        ));
        if count == 100 {
            let pod = format!("{path}/pod-7");
            measured.push(("GET".to_owned(), pod, path, rounds));
        }
    }
    header();
    for (what, read, collection, rounds) in measured {
        for writes in WRITES {
            let done = AtomicBool::new(false);
            let reading = async {
                row(&what, writes, setting.read(&read, rounds).await);
                done.store(true, Ordering::Relaxed);
            };
            tokio::join!(reading, setting.write(&collection, writes, &done));
        }
    }
}

/// Measures LISTs of all pods by `KUBEFAN_READERS` concurrent clients (100).
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_processor_time_of_consistent_reads() {
    let setting = Setting::start().await;
    let readers = environment("KUBEFAN_READERS", 100);
    let path = setting.pods(many()).await;
    let mut each = Vec::new();
    println!(
        "| {readers} concurrent readers of {} pods | kube-apiserver's CPU per read | kubefan's CPU per read | all done after |",
        many()
    );
    println!("|---|---|---|---|");
    for (name, client) in [
        ("directly", &setting.direct),
        ("through kubefan", &setting.through),
    ] {
        let (before, began) = (setting.cpu().await, Instant::now());
        let reads = (0..readers).map(|_| async {
            let (status, bytes) = client.drain(&path).await;
            assert!(
                status == 200 && bytes > 1_000 * many(),
                "{status}, {bytes} bytes"
            );
        });
        join_all(reads).await;
        let (after, took) = (setting.cpu().await, began.elapsed());
        let [server, kubefan] = [0, 1].map(|of| (after[of] - before[of]) * 1e3 / readers as f64);
        println!(
            "| {name} | {server:.1} ms | {kubefan:.1} ms | {:.1} s |",
            took.as_secs_f64()
        );
        each.push(server);
    }
    println!("kube-apiserver: 1/{:.0} of direct", each[0] / each[1]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_what_consistent_reads_cost_upstream() {
    let setting = Setting::start().await;
    let path = setting.pods(many()).await;
    let h2 = Client::http2(setting.kubefan.url(), Connector::plain());

    let before = setting.requests("pods", "LIST").await;
    let lists = (0..1_000).map(|number| {
        let path = format!("{path}?labelSelector=side%20in%20(b,x{number})");
        let h2 = &h2;
        async move { drop(h2.get(&path).await.ok()) }
    });
    join_all(lists).await;
    let sent = setting.requests("pods", "LIST").await - before;
    println!("1,000 concurrent lists, distinct selectors: {sent} upstream");

    let before = setting.requests("pods", "GET").await;
    let object = format!("{path}/pod-7");
    join_all((0..1_000).map(|_| async { drop(h2.get(&object).await.ok()) })).await;
    let sent = setting.requests("pods", "GET").await - before;
    println!("1,000 concurrent GETs of one object: {sent} upstream");

    let few = setting.path("configmaps").await;
    for number in 0..20 {
        let object = json!({ "metadata": { "name": format!("object-{number}") } });
        setting.direct.create(&few, &object).await.ok();
    }
    setting
        .through
        .get(&format!("{few}?resourceVersion=0"))
        .await
        .ok();
    let before = setting.requests("configmaps", "LIST").await;
    let began = Instant::now();
    let watches = (0..500).map(|_| {
        let (h2, path) = (&h2, format!("{few}?{WATCH_LIST}"));
        async move {
            let mut stream = h2.watch(&path, Format::Json).await.expect("a stream");
            while !matches!(next(&mut stream).await, Event::Bookmark { .. }) {}
        }
    });
    within(
        "500 watch lists",
        Duration::from_secs(60),
        join_all(watches),
    )
    .await;
    let (sent, took) = (
        setting.requests("configmaps", "LIST").await - before,
        began.elapsed(),
    );
    println!("500 concurrent watch lists: {sent} LISTs upstream, all synced after {took:?}");
}

/// Opens a watch-list and reads it up to the bookmark that ends the initial events. Returns the
/// milliseconds.
async fn open_watch_list(client: &Client, path: &str) -> f64 {
    let began = Instant::now();
    let path = format!("{path}?{WATCH_LIST}");
    let mut stream = client.watch(&path, Format::Json).await.expect("a stream");
    while !matches!(next(&mut stream).await, Event::Bookmark { .. }) {}
    began.elapsed().as_secs_f64() * 1e3
}

/// Measures watch-lists that `KUBEFAN_CLIENTS` clients (1) open, each one after another.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_watch_lists_opened_one_after_another() {
    let setting = Setting::start().await;
    let clients: usize = environment("KUBEFAN_CLIENTS", 1);
    let path = setting.pods(20).await;
    println!("| pods change | others change | way | p50 | p90 | longest |");
    println!("|---|---|---|---|---|---|");
    for writes in WRITES {
        let done = AtomicBool::new(false);
        let opening = async {
            for (way, client) in [("direct", &setting.direct), ("kubefan", &setting.through)] {
                let all = (0..clients).map(|_| async {
                    let mut took = Vec::new();
                    for _ in 0..50 {
                        took.push(open_watch_list(client, &path).await);
                    }
                    took
                });
                let mut took = join_all(all).await.concat();
                took.sort_by(f64::total_cmp);
                let [p50, p90, longest] = [0.5, 0.9, 1.0].map(|of| percentile(&took, of));
                println!(
                    "| {} | {} | {way} | {p50:.1} ms | {p90:.1} ms | {longest:.1} ms |",
                    writes.to_pods, writes.to_secrets
                );
            }
            done.store(true, Ordering::Relaxed);
        };
        tokio::join!(opening, setting.write(&path, writes, &done));
    }
}

/// Resources that kube-state-metrics watches, except those that the test's API server lacks.
const STARTING: [&str; 28] = [
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/apis/autoscaling/v2/horizontalpodautoscalers",
    "/apis/batch/v1/cronjobs",
    "/apis/batch/v1/jobs",
    "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/networking.k8s.io/v1/ingresses",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/api/v1/configmaps",
    "/api/v1/endpoints",
    "/api/v1/limitranges",
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
    "/api/v1/pods",
    "/api/v1/replicationcontrollers",
    "/api/v1/resourcequotas",
    "/api/v1/secrets",
    "/api/v1/services",
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_what_two_starting_clients_cost_upstream() {
    let setting = Setting::start().await;
    let requests = async || {
        let mut sums = [0.0; 2];
        for path in STARTING {
            let resource = path.rsplit('/').next().expect("a resource");
            for (sum, verb) in sums.iter_mut().zip(["LIST", "WATCH"]) {
                *sum += setting.requests(resource, verb).await;
            }
        }
        sums
    };
    for (name, client) in [
        ("directly", &setting.direct),
        ("through kubefan", &setting.through),
    ] {
        let before = requests().await;
        // The API server counts a watch when it ends, so the streams are dropped at the bookmark.
        let opened = STARTING
            .iter()
            .flat_map(|path| [0, 1].map(|_| async move { open_watch_list(client, path).await }));
        join_all(opened).await;
        let after = requests().await;
        let mut open = 0.0;
        for path in STARTING {
            let resource = path.rsplit('/').next().expect("a resource");
            open += setting.server.open_watches(resource).await;
        }
        println!(
            "two clients of {} resources {name}: {} LISTs, {} WATCHes that ended, {open} open",
            STARTING.len(),
            after[0] - before[0],
            after[1] - before[1],
        );
    }
}

/// Sends `KUBEFAN_ROUNDS` writes (2,000), and checks that LIST, GET and watch list show each.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_reading_own_writes() {
    let setting = Setting::start().await;
    let rounds: u32 = environment("KUBEFAN_ROUNDS", 2_000);
    let path = setting.path("configmaps").await;
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

/// Measures what `KUBEFAN_CLIENTS` watch-lists (200) of all pods cost kubefan that start together,
/// with and without gzip, and what the events of `KUBEFAN_WRITES` changes (200) cost after that.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_watch_lists_with_gzip() {
    let setting = Setting::start().await;
    let clients: usize = environment("KUBEFAN_CLIENTS", 200);
    let writes: usize = environment("KUBEFAN_WRITES", 200);
    let path = setting.pods(many()).await;
    let watch = format!("{path}?{WATCH_LIST}");
    println!(
        "| {clients} watch-lists of {} pods | kubefan's CPU per watch-list | bytes each | all \
         synced after | kubefan's CPU per change |",
        many()
    );
    println!("|---|---|---|---|---|");
    for encoding in ["identity", "gzip", "identity", "gzip"] {
        let client = setting.through.with("accept-encoding", encoding);
        let (before, began) = (setting.kubefan.cpu(), Instant::now());
        let streams = (0..clients).map(|_| LengthReader::open(&client, &watch));
        let mut streams = join_all(streams).await;
        // The events of a compressed watch end when nothing comes any more.
        let quiet = Duration::from_secs(2);
        join_all(streams.iter_mut().map(|stream| stream.read_until(quiet))).await;
        let took = began.elapsed().saturating_sub(quiet);
        let opened = (setting.kubefan.cpu() - before) * 1e3 / clients as f64;
        let bytes = streams.iter().map(|stream| stream.length).sum::<usize>() / clients;
        let before = setting.kubefan.cpu();
        let change = async {
            for number in 0..writes {
                let change = json!({ "metadata": { "annotations": { "n": number.to_string() } } });
                let pod = format!("{path}/pod-0");
                setting.direct.merge(&pod, &change).await.ok();
            }
        };
        let reading = join_all(streams.iter_mut().map(|stream| stream.read_until(quiet)));
        tokio::join!(change, reading);
        let changed = (setting.kubefan.cpu() - before) * 1e3 / writes as f64;
        println!(
            "| {encoding} | {opened:.2} ms | {bytes} | {:.1} s | {changed:.2} ms |",
            took.as_secs_f64()
        );
    }
}

/// Counts the bytes of a stream.
struct LengthReader {
    body: Incoming,
    length: usize,
}

impl LengthReader {
    async fn open(client: &Client, path: &str) -> Self {
        let none = HeaderMap::new();
        let response = client.open(Method::GET, path, &none, Bytes::new()).await;
        let response = response.expect("an answer");
        assert_eq!(response.status(), 200);
        Self {
            body: response.into_body(),
            length: 0,
        }
    }

    /// Reads until nothing has come for the time `quiet`.
    async fn read_until(&mut self, quiet: Duration) {
        while let Ok(frame) = tokio::time::timeout(quiet, self.body.frame()).await {
            let frame = frame.expect("an open stream").expect("no failure");
            self.length += frame.data_ref().map_or(0, Bytes::len);
        }
    }
}
