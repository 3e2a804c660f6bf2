//! Measures how long readers of the library wait after a relist of 100,000 changed pods, if an
//! informer stores decoded objects: `cargo bench --bench lister_pause`. The bench fails if a reader
//! waits for longer than [`LIMIT`].
//!
//! The times of a handler are CPU times of the thread that polls it, so other programs on the
//! machine do not count. The times of a lister are real times, because it waits for a lock.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cpu_time::ThreadTime;
use k8s_openapi::api::core::v1::Pod;
use kubefan::api::{GroupVersionResource, Object, ObjectKey, ObjectValues, ResourceVersion};
use kubefan::cache::Writer;
use kubefan::shared_informer::{Config, SharedInformer, Storage};
use kubefan::shutdown::Shutdown;
use kubefan::{api, cache, shutdown};
use serde_json::json;
use tokio::time::Instant;

/// The allocator of kubefan's binary.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PODS: usize = 100_000;
/// The longest accepted wait. It leaves room for a busy machine.
const LIMIT: Duration = Duration::from_millis(100);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!("after a relist of {PODS} changed pods, the longest wait in milliseconds");
    let (get, list) = get_beside_a_list().await;
    println!("Lister::get beside a list: {:.2}", millis(get));
    println!("that list, which decodes all pods: {:.0}", millis(list));
    let poll = poll_of_a_handler().await;
    println!("a poll of a handler: {:.2} of CPU", millis(poll));
    assert!(get < LIMIT && poll < LIMIT, "a reader waits too long");
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns a synced informer of pods. A relist has changed all pods, and the informer has not
/// applied it.
async fn relisted() -> (SharedInformer<Pod>, Writer) {
    let (mut writer, reader) = cache::cache(cache::Config::default());
    relist(&mut writer, 0);
    let resource = api::Resource {
        gvr: GroupVersionResource::new("", "v1", "pods"),
        kind: "Pod".to_owned(),
        singular: "pod".to_owned(),
        short_names: Vec::new(),
        namespaced: true,
        verbs: Vec::new(),
    };
    let config = Config {
        storage: Storage::Decoded,
        ..Config::default()
    };
    let shutdown = Shutdown::new(shutdown::Config::default());
    let informer = SharedInformer::new(reader, Arc::new(resource), config, shutdown);
    assert!(informer.synced().await);
    relist(&mut writer, 1);
    (informer, writer)
}

fn relist(writer: &mut Writer, round: usize) {
    let mut list = writer.relist();
    for index in 0..PODS {
        list.add(pod(index, 1 + (round * PODS + index) as u64));
    }
    let version = (round + 1) * PODS + 1;
    writer.replace(list, ResourceVersion(version as u64));
}

fn pod(index: usize, version: u64) -> Object {
    let name = format!("pod-{index:06}");
    let values = ObjectValues {
        uid: format!("uid-{index}").into(),
        ..ObjectValues::default()
    };
    let body = json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{index}"),
            "resourceVersion": version.to_string(),
            "labels": { "app": "web", "shard": format!("shard-{index}") },
        },
        "spec": {
            "nodeName": format!("node-{}", index % 5_000),
            "containers": [{
                "name": "web", "image": "registry.example/web:1",
                "env": (0..10).map(|number| json!({ "name": format!("V{number}"), "value": "x" }))
                    .collect::<Vec<_>>(),
            }],
        },
        "status": { "phase": "Running", "podIP": "10.0.0.1" },
    });
    let key = ObjectKey::new(Some("shop"), &name);
    let body = body.to_string().into_bytes().into();
    Object::new(key, ResourceVersion(version), &values, body)
}

/// Returns the longest [`Lister::get`](kubefan::shared_informer::Lister::get) while another thread
/// lists all pods, and how long that list takes.
async fn get_beside_a_list() -> (Duration, Duration) {
    let (informer, _writer) = relisted().await;
    let (lister, listing) = (informer.lister(), informer.lister());
    let is_done = Arc::new(AtomicBool::new(false));
    let has_listed = Arc::clone(&is_done);
    let list = std::thread::spawn(move || {
        let began = Instant::now();
        assert_eq!(listing.list().len(), PODS);
        has_listed.store(true, Ordering::Relaxed);
        began.elapsed()
    });
    let mut longest = Duration::ZERO;
    let mut index = 0;
    while !is_done.load(Ordering::Relaxed) {
        index = (index + 7_919) % PODS;
        let began = Instant::now();
        let found = lister.get(Some("shop"), &format!("pod-{index:06}"));
        longest = longest.max(began.elapsed());
        assert!(found.is_ok_and(|found| found.is_some()));
    }
    (longest, list.join().expect("the list ends"))
}

/// Returns the longest poll of a handler that has seen all pods, until it has seen all changes.
async fn poll_of_a_handler() -> Duration {
    let (informer, mut writer) = relisted().await;
    let mut changes = informer.changes();
    for _ in 0..PODS {
        changes.next().await.expect("the informer runs");
    }
    relist(&mut writer, 2);
    let mut longest = Duration::ZERO;
    for _ in 0..PODS {
        let mut next = pin!(changes.next());
        let change = std::future::poll_fn(|cx| {
            let began = ThreadTime::now();
            let polled = next.as_mut().poll(cx);
            longest = longest.max(began.elapsed());
            polled
        });
        change.await.expect("the informer runs");
    }
    longest
}
