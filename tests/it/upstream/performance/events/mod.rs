//! Measures how Events are cached, beside ConfigMaps of the same number and size, and beside direct
//! reads. It prints tables and asserts nothing about time, so it is run by hand. With 100,000
//! Events this takes about half an hour, most of it in kubectl.
//!
//! ```sh
//! KUBEFAN_TEST_BINARY=target/dist/kubefan cargo test --profile dist --package kubefan-cli \
//!     --test it upstream::performance::events -- --ignored --nocapture --test-threads=1
//! ```
//!
//! All clients have a bearer token and HTTP/1.1 over TLS, for kubefan too, which runs with `--auth
//! caller`. The clients are in this process, so it is built in the profile `dist`, too.

mod kubectl;
mod scene;
mod strict_lists;
mod watchers;

use std::time::Duration;

use scene::{KINDS, Kind, Scene};
use tokio::time::{Instant, sleep};

use crate::limits::resident;
use crate::support::settings::setting as environment;

/// The allocator gives memory back within about ten seconds.
const SETTLED: Duration = Duration::from_secs(15);
/// The size of the page that shows how long the objects are.
const PAGE: usize = 500;

/// Prints the table of the memory of the caches, each in a kubefan of its own.
async fn measure_memory(scene: &Scene) {
    println!(
        "| cached objects | bytes of each in JSON | cached after | kubefan's CPU per object | \
         memory before | memory after | memory per object |"
    );
    println!("|---|---|---|---|---|---|---|");
    for kind in KINDS {
        let page = format!("/api/v1/{}?limit={PAGE}", kind.resource());
        let (_, bytes) = scene.direct.drain(&page).await;
        let (kubefan, through) = scene.kubefan().await;
        let (before, cpu, began) = (resident(&kubefan), kubefan.cpu(), Instant::now());
        scene.fill(&kubefan, &through, kind).await;
        let (took, cpu) = (began.elapsed().as_secs_f64(), kubefan.cpu() - cpu);
        sleep(SETTLED).await;
        let (after, count) = (resident(&kubefan), scene.objects as f64);
        let mebibytes = [before, after].map(|bytes| bytes as f64 / 1024.0 / 1024.0);
        println!(
            "| {count} {} | {} | {took:.1} s | {:.0} us | {:.0} MiB | {:.0} MiB | {:.0} bytes |",
            kind.resource(),
            bytes / PAGE.min(scene.objects),
            cpu * 1e6 / count,
            mebibytes[0],
            mebibytes[1],
            (after as f64 - before as f64) / count,
        );
    }
}

/// `KUBEFAN_EVENTS` sets the number of objects of each kind (100,000), `KUBEFAN_SECONDS` the time
/// of the writes of each row (10), `KUBEFAN_WATCHERS` the number of watches of each sort (100), and
/// `KUBEFAN_READS` how often each command of kubectl is run (5). `KUBEFAN_ROWS` selects the tables
/// with names that contain its value: `memory`, `watchers`, `strict lists` and `kubectl`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_events() {
    let part: String = environment("KUBEFAN_ROWS", String::new());
    let is_chosen = |name: &str| name.contains(&part);
    let scene = Scene::start().await;
    scene.create_all(Kind::Events).await;
    if is_chosen("memory") || is_chosen("watchers") {
        scene.create_all(Kind::ConfigMaps).await;
    }
    if is_chosen("memory") {
        measure_memory(&scene).await;
    }
    // Before the rows with watches, which add Events.
    if is_chosen("kubectl") {
        kubectl::measure(&scene).await;
    }
    if is_chosen("strict lists") {
        strict_lists::measure(&scene).await;
    }
    if is_chosen("watchers") {
        watchers::measure(&scene).await;
    }
}
