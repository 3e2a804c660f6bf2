//! What new objects cost while many watches of them are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use memchr::memchr_iter;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::scene::{KINDS, Kind, PODS, Scene};
use crate::support::clients::client::Client;
use crate::support::settings::setting as environment;

/// New objects per second.
const RATE: f64 = 500.0;
/// How long the watches are open before something is measured.
const WARM_UP: Duration = Duration::from_secs(2);
/// Watches that get nothing for this time are taken to have all that they will get.
const QUIET: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

const COLUMNS: [&str; 11] = [
    "resource",
    "watches",
    "created/s",
    "received",
    "all received after the last write",
    "kube-apiserver's CPU per new object",
    "etcd's",
    "kubefan's",
    "the clients'",
    "the watched server's CPU per received event",
    "watches that ended",
];

/// The watches of a row.
struct Watches {
    what: &'static str,
    is_through: bool,
    /// The number of watches of all objects.
    of_all: usize,
    /// The number of watches of the objects of one pod, each of another pod.
    of_pods: usize,
}

/// What all watches have received so far.
#[derive(Default)]
struct Received {
    events: AtomicU64,
    ended: AtomicU64,
}

/// Returns the watches of each row.
fn rows() -> [Watches; 4] {
    let count = environment("KUBEFAN_WATCHERS", 100);
    let row = |what, is_through, of_all, of_pods| Watches {
        what,
        is_through,
        of_all,
        of_pods,
    };
    [
        row("none", false, 0, 0),
        row("directly", false, count, count),
        row("kubefan, one", true, 1, 0),
        row("kubefan", true, count, count),
    ]
}

/// Prints the table. The objects exist already, so the resources are as large as elsewhere.
pub(super) async fn measure(scene: &Scene) {
    println!("| {} |", COLUMNS.join(" | "));
    println!("|{}", "---|".repeat(COLUMNS.len()));
    for kind in KINDS {
        for watches in rows() {
            watches.measure(scene, kind).await;
        }
    }
}

impl Watches {
    async fn measure(&self, scene: &Scene, kind: Kind) {
        let time = Duration::from_secs(environment("KUBEFAN_SECONDS", 10));
        let started = match self.is_through {
            true => Some(scene.kubefan_with(kind).await),
            false => None,
        };
        let client = started.as_ref().map_or(&scene.direct, |(_, client)| client);
        let kubefan = started.as_ref().map(|(kubefan, _)| kubefan);
        let received = Arc::new(Received::default());
        let _tasks = self.open(client, kind, &received).await;
        sleep(WARM_UP).await;
        let initial = received.events.load(Ordering::Relaxed);
        let (before, began) = (scene.cpu(kubefan), Instant::now());
        let numbers = scene.write(kind, RATE, time).await;
        let (created, written) = (numbers.len() as f64, began.elapsed());
        let of_pods = numbers.filter(|number| number % PODS < self.of_pods);
        let expected = created * self.of_all as f64 + of_pods.count() as f64;
        let last = received.wait_for(initial + expected as u64).await;
        let cpu = scene.cpu_since(before, kubefan);
        let events = (received.events.load(Ordering::Relaxed) - initial) as f64;
        let [server, etcd, own, clients] = cpu.map(|cpu| cpu * 1e6 / created);
        let watched = if self.is_through { cpu[2] } else { cpu[0] };
        let each = match events > 0.0 {
            true => format!("{:.1} us", watched * 1e6 / events),
            false => "–".to_owned(),
        };
        println!(
            "| {} | {} | {:.0} | {events:.0} of {expected:.0} | {:.2} s | {server:.0} us | \
             {etcd:.0} us | {own:.0} us | {clients:.0} us | {each} | {} |",
            kind.resource(),
            self.what,
            created / written.as_secs_f64(),
            (last - began).saturating_sub(written).as_secs_f64(),
            received.ended.load(Ordering::Relaxed),
        );
    }

    /// Opens the watches, from the current version. They end when the tasks are dropped.
    async fn open(&self, client: &Client, kind: Kind, received: &Arc<Received>) -> JoinSet<()> {
        let version = kind.version(client).await.expect("a version");
        let of_all = (0..self.of_all).map(|_| String::new());
        let of_pods = (0..self.of_pods).map(|pod| format!("&{}", kind.of_pod(pod)));
        let mut tasks = JoinSet::new();
        for selector in of_all.chain(of_pods) {
            let resource = kind.resource();
            let path = format!("/api/v1/{resource}?watch=1&resourceVersion={version}{selector}");
            let none = HeaderMap::new();
            let opened = client.open(Method::GET, &path, &none, Bytes::new());
            let response = opened.await.expect("an answer");
            assert_eq!(response.status(), 200, "{path}");
            tasks.spawn(Arc::clone(received).read(response.into_body()));
        }
        tasks
    }
}

impl Received {
    /// Counts the events of a watch. Each event is a line.
    async fn read(self: Arc<Self>, mut body: Incoming) {
        while let Some(Ok(frame)) = body.frame().await {
            let lines = frame
                .data_ref()
                .map_or(0, |data| memchr_iter(b'\n', data).count());
            self.events.fetch_add(lines as u64, Ordering::Relaxed);
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until `wanted` events have come, or none for a while. Returns when the last one came.
    async fn wait_for(&self, wanted: u64) -> Instant {
        let (mut events, mut last) = (self.events.load(Ordering::Relaxed), Instant::now());
        while events < wanted && last.elapsed() < QUIET {
            sleep(PAUSE).await;
            let now = self.events.load(Ordering::Relaxed);
            if now > events {
                (events, last) = (now, Instant::now());
            }
        }
        last
    }
}
