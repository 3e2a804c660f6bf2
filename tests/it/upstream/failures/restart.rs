//! kubefan is killed and started again while objects change. Clients resume their watches at the
//! versions that they have: none gets 410, and none lists again.

use std::time::{Duration, SystemTime};

use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, sleep};

use crate::support::clients::client::Client;
use crate::support::clients::frames::{Event, Format};
use crate::support::clients::watcher::{Start, Watcher};
use crate::support::faulty::next;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, free_port, private, shared};
use crate::support::programs::informers::Informers;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;

const LIMIT: Duration = Duration::from_secs(30);
/// The pause between two writes: 40 writes a second.
const WRITE_PAUSE: Duration = Duration::from_millis(25);
const FORMATS: [Format; 2] = [Format::Json, Format::Protobuf];
/// Some select objects that enter and leave the selection while kubefan is down.
pub(super) const SELECTORS: [&str; 4] = [
    "",
    "labelSelector=side%3Da",
    "labelSelector=side%21%3Da",
    "fieldSelector=metadata.name%3Dobject-3",
];
const WATCHERS: usize = 200;

/// A kubefan with an address that never changes.
pub(super) struct Restartable {
    port: u16,
    pub(super) kubefan: Kubefan,
}

impl Restartable {
    pub(super) async fn start(server: &ApiServer) -> Self {
        let port = free_port();
        let kubefan = Kubefan::start(server, &["--listen", &format!("127.0.0.1:{port}")]).await;
        Self { port, kubefan }
    }

    pub(super) async fn kill_and_start(self, server: &ApiServer, pause: Duration) -> Self {
        self.kubefan.kill();
        sleep(pause).await;
        let listen = format!("127.0.0.1:{}", self.port);
        let kubefan = Kubefan::start(server, &["--listen", &listen]).await;
        Self {
            port: self.port,
            kubefan,
        }
    }
}

/// Writes to ConfigMaps of another namespace, so that the API server sends bookmarks for the
/// resource.
pub(super) async fn write_elsewhere(server: &ApiServer) -> JoinHandle<()> {
    let elsewhere = server.namespace("elsewhere").await;
    let path = format!("/api/v1/namespaces/{elsewhere}/configmaps");
    write(server.client(), path)
}

/// Changes, deletes and creates ten objects until the task is aborted.
pub(super) fn write(client: Client, path: String) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut ticks = interval(WRITE_PAUSE);
        for round in 0_u64.. {
            ticks.tick().await;
            let name = format!("object-{}", round % 10);
            let side = ["a", "b", "a"][(round / 10 % 3) as usize];
            let object = json!({
                "metadata": {
                    "name": name,
                    "labels": { "side": side },
                    "annotations": { "kubefan.test/sent": milliseconds() },
                },
                "data": { "round": round.to_string() },
            });
            // An existing object is changed or deleted. The answers to the
            // other requests do not matter.
            if round % 7 == 3 {
                client.delete(&format!("{path}/{name}")).await;
            } else if client.create(&path, &object).await.status != 201 {
                client.merge(&format!("{path}/{name}"), &object).await;
            }
        }
    })
}

/// Returns the milliseconds since 1970, as text.
fn milliseconds() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.expect("a time after 1970").as_millis().to_string()
}

/// Sums up the samples of a metric that have `label` in their line.
pub(super) async fn metric(kubefan: &Kubefan, name: &str, label: &str) -> f64 {
    let text = kubefan.metrics().await;
    let lines = text
        .lines()
        .filter(|line| line.starts_with(name) && line.contains(label));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn watches_resume_after_a_restart_without_410() {
    let server = shared();
    let namespace = server.namespace("restart").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let running = Restartable::start(server).await;
    let writer = write(server.client(), path.clone());
    let elsewhere = write_elsewhere(server).await;
    let client = running.kubefan.client();
    let kinds = FORMATS
        .into_iter()
        .flat_map(|format| SELECTORS.map(|selector| (format, selector)));
    let watchers: Vec<_> = kinds
        .cycle()
        .take(WATCHERS)
        .map(|(format, selector)| {
            let watcher = Watcher::start(&client, &path, selector, format, Start::Zero);
            (format, selector, watcher)
        })
        .collect();
    for (_, _, watcher) in &watchers {
        watcher.synced().await;
    }
    let streams: u32 = watchers
        .iter()
        .map(|(_, _, watcher)| watcher.counts().streams)
        .sum();
    let running = running.kill_and_start(server, Duration::ZERO).await;
    let ready = Instant::now();
    eventually("every client has a stream again", LIMIT, async || {
        let now: u32 = watchers
            .iter()
            .map(|(_, _, watcher)| watcher.counts().streams)
            .sum();
        match now as usize >= streams as usize + WATCHERS {
            true => Ok(()),
            false => Err(format!("{now} streams")),
        }
    })
    .await;
    writer.abort();
    for format in FORMATS {
        for wanted in SELECTORS {
            let list = server
                .client()
                .list(&format!("{path}?{wanted}"), format)
                .await;
            for (kind, selector, watcher) in &watchers {
                if (*kind, *selector) == (format, wanted) {
                    watcher
                        .reaches(&format!("{format:?} {selector}"), &list, LIMIT)
                        .await;
                    let errors = watcher.fold().errors;
                    assert_eq!(
                        watcher.counts().relists,
                        0,
                        "{format:?} {selector} {errors:?}"
                    );
                }
            }
        }
    }
    elsewhere.abort();
    eprintln!(
        "all watchers were current {:?} after kubefan was ready",
        ready.elapsed()
    );
    let bridges = metric(
        &running.kubefan,
        "kubefan_bridge_upstream_watches_total",
        "",
    )
    .await;
    let kinds = (FORMATS.len() * SELECTORS.len()) as f64;
    // A bridge may need a second watch, and a late client with an old version a second bridge.
    assert!(
        bridges >= kinds && bridges <= 3.0 * kinds,
        "{bridges} upstream watches"
    );
    // The last bridge closes after its clients have what they need.
    eventually("no bridge", LIMIT, async || {
        match metric(&running.kubefan, "kubefan_bridges", "").await {
            0.0 => Ok(()),
            open => Err(format!("{open} bridges")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn informers_resume_after_a_restart_without_a_list() {
    let server = shared();
    let namespace = server.namespace("restart-informers").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let running = Restartable::start(server).await;
    let through = running.kubefan.kubeconfig(&User::Anonymous);
    let mut programs = Vec::new();
    for mode in ["rv0", "watchlist"] {
        let flags = [
            "--namespace",
            &namespace,
            "--mode",
            mode,
            "--resources",
            "configmaps",
        ];
        // Without client-go's detector, because its LISTs would be counted below.
        let program = Informers::start_plainly(server.assets(), &through, &flags).await;
        programs.push((mode, program));
    }
    let writer = write(server.client(), path.clone());
    // client-go lists again if a watch ends in its first second without an item.
    for (mode, program) in &mut programs {
        eventually(mode, LIMIT, async || {
            let report = program.send_command("errors").await;
            match report["events"]["configmaps:typed"]["updated"].as_u64() {
                Some(1..) => Ok(()),
                _ => Err(report),
            }
        })
        .await;
    }
    let running = running.kill_and_start(server, Duration::ZERO).await;
    let ready = Instant::now();
    let last = format!("last-{}", rand::random::<u32>());
    let object = json!({ "metadata": { "name": last } });
    server.client().create(&path, &object).await.ok();
    for (mode, program) in &mut programs {
        eventually(mode, LIMIT, async || {
            let dump = program.send_command("dump").await.to_string();
            match dump.contains(&last) {
                true => Ok(()),
                false => Err(format!("{last} is missing")),
            }
        })
        .await;
        eprintln!(
            "{mode} was current {:?} after kubefan was ready",
            ready.elapsed()
        );
        let errors = program.send_command("errors").await;
        for text in ["xpired", "too old"] {
            assert!(!errors.to_string().contains(text), "{mode}: {errors}");
        }
    }
    let bridged =
        async |result| metric(&running.kubefan, "kubefan_bridged_watches_total", result).await;
    assert_eq!(bridged("expired").await, 0.0);
    let lists = metric(&running.kubefan, "kubefan_requests_total", "verb=\"list\"").await;
    assert_eq!(lists, 0.0, "{lists} lists");
    for (mode, program) in &mut programs {
        let requests = &program.send_command("errors").await["requests"]["configmaps:typed"];
        // Each informer has one list or watch-list: its first one.
        let first = [&requests["lists"], &requests["watchLists"]];
        let wanted = [*mode == "rv0", *mode == "watchlist"].map(usize::from);
        assert_eq!(
            first.map(|count| count.as_u64()),
            wanted.map(|count| Some(count as u64)),
            "{mode}: {requests}"
        );
    }
    let metrics = running.kubefan.metrics().await;
    let watches = metrics
        .lines()
        .filter(|line| line.contains("bridge") || line.contains("watch\""));
    let watches: Vec<_> = watches.collect();
    eventually("bridges that have reached the log", LIMIT, async || match (
        bridged("joined").await,
        bridged("expired").await,
    ) {
        (joined, 0.0) if joined > 0.0 => Ok(()),
        (joined, expired) => Err(format!("{joined} joined, {expired} expired: {watches:#?}")),
    })
    .await;
    writer.abort();
}

/// The API server sends no bookmark while its cache of the resource is at the resource's last
/// event, and that cache advances only by events of the resource and by consistent reads.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_quiet_resource_is_bridged() {
    let server = private().await;
    let namespace = server.namespace("quiet").await;
    let elsewhere = server.namespace("elsewhere").await;
    let path =
        |namespace: &str, resource: &str| format!("/api/v1/namespaces/{namespace}/{resource}");
    let configmaps = path(&namespace, "configmaps");
    let client = server.client();
    let object = json!({ "metadata": { "name": "one" } });
    let created = client.create(&configmaps, &object).await.ok().json();
    let version = created["metadata"]["resourceVersion"]
        .as_str()
        .expect("a version");
    let kubefan = Kubefan::start(&server, &[]).await;
    // The last event of the resource is as new as kubefan's list, which the watch below causes.
    client
        .create(&path(&elsewhere, "configmaps"), &object)
        .await
        .ok();
    let watch = format!("{configmaps}?watch=1&allowWatchBookmarks=true&resourceVersion={version}");
    let mut stream = kubefan
        .client()
        .watch(&watch, Format::Json)
        .await
        .expect("a stream");
    // Only other resources change from now on.
    let secrets = path(&elsewhere, "secrets");
    client.create(&secrets, &object).await.ok();
    let writer = tokio::spawn(async move {
        let mut ticks = interval(WRITE_PAUSE);
        for round in 0_u64.. {
            ticks.tick().await;
            let change = json!({ "metadata": { "annotations": { "n": round.to_string() } } });
            client.merge(&format!("{secrets}/one"), &change).await.ok();
        }
    });
    let event = next(&mut stream).await;
    writer.abort();
    assert!(matches!(event, Event::Bookmark { .. }), "{event:?}");
}
