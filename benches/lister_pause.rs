//! Measures how long an informer that stores decoded objects delays others after a list of 100,000
//! changed pods: `cargo bench --bench lister_pause`. The others are the readers of a lister, which
//! wait for its lock, and the tasks of the threads on which the informer and its handlers run. The
//! bench fails if they wait for longer than [`LIMIT`].
//!
//! The waits of tasks are CPU times of their thread, so other programs on the machine do not count.
//! The waits of readers are real times. Each figure is the best of several rounds.

use std::sync::Arc;
use std::time::Duration;

use cpu_time::ThreadTime;
use k8s_openapi::api::core::v1::Pod;
use kubefan::api::{GroupVersionResource, Object, ObjectKey, ObjectValues, ResourceVersion};
use kubefan::cache::{ReplaceOutcome, Writer};
use kubefan::shared_informer::{Changes, Config, SharedInformer, Storage};
use kubefan::shutdown::Shutdown;
use kubefan::{api, cache, shutdown};
use serde_json::json;
use tokio::task::yield_now;
use tokio::time::Instant;

/// The allocator of kubefan's binary.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PODS: usize = 100_000;
const ROUNDS: usize = 3;
/// The longest accepted wait: work of a few milliseconds, on a slow machine.
const LIMIT: Duration = Duration::from_millis(20);

/// What an event log holds after a list.
#[derive(Clone, Copy, Debug)]
enum Log {
    /// The changes of all pods, so the informer and its handlers apply each of them.
    AllChanges,
    /// The last changes only, so the informer loads all pods, and handlers compare them.
    LastChanges,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!("after a list of {PODS} changed pods, the longest wait in milliseconds");
    let mut longest = Duration::ZERO;
    for log in [Log::AllChanges, Log::LastChanges] {
        let mut best = [Duration::MAX; 4];
        for _ in 0..ROUNDS {
            let [first, changes] = waits_of_tasks(log).await;
            let waits = [
                first,
                changes,
                get_beside_a_list(log).await,
                get_beside_an_index(log).await,
            ];
            best = std::array::from_fn(|which| best[which].min(waits[which]));
        }
        let [first, changes, list, index] = best.map(|wait| wait.as_secs_f64() * 1e3);
        println!(
            "{log:?}: tasks beside the first list {first:.2} of CPU, beside the changes {changes:.2} \
             of CPU; Lister::get beside a list {list:.2}, beside a new index {index:.2}"
        );
        longest = longest.max(best.into_iter().max().unwrap_or_default());
    }
    assert!(longest < LIMIT, "others wait too long");
}

/// Returns the longest waits of other tasks on the thread of an informer and a handler: while these
/// load the first list, and while they follow another list that has changed all pods.
async fn waits_of_tasks(log: Log) -> [Duration; 2] {
    let (mut writer, informer) = informer(log);
    let mut changes = informer.changes();
    let first = longest_wait_beside(receive(&mut changes)).await;
    relist(&mut writer, 1);
    let others = longest_wait_beside(receive(&mut changes)).await;
    [first, others]
}

/// Receives a change of each pod.
async fn receive(changes: &mut Changes<Pod>) {
    for _ in 0..PODS {
        changes.next().await.expect("the informer runs");
    }
}

/// Returns the longest CPU time after which another task of this thread got its next turn, while
/// `work` ran here and other tasks ran in the background.
async fn longest_wait_beside(work: impl Future<Output = ()>) -> Duration {
    let mut longest = Duration::ZERO;
    let other_task = async {
        loop {
            let began = ThreadTime::now();
            yield_now().await;
            longest = longest.max(began.elapsed());
        }
    };
    tokio::select! {
        biased;
        () = other_task => {}
        () = work => {}
    }
    longest
}

/// Returns an informer of pods, and the writer of its cache, which has had one list.
fn informer(log: Log) -> (Writer, SharedInformer<Pod>) {
    let (mut writer, reader) = cache::cache(cache::Config {
        retention_bytes: match log {
            Log::AllChanges => None,
            Log::LastChanges => Some(1 << 20),
        },
        ..cache::Config::default()
    });
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
    (writer, informer)
}

/// Applies a list in which each pod has a version above those of the list of the round before.
fn relist(writer: &mut Writer, round: usize) {
    let first = 1 + round * (PODS + 1);
    let mut list = writer.relist();
    for index in 0..PODS {
        list.add(pod(index, (first + index) as u64));
    }
    let outcome = writer.replace(list, ResourceVersion((first + PODS) as u64));
    assert!(!matches!(outcome, ReplaceOutcome::NewEpoch(_)));
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
/// lists all pods after a list that has changed them.
async fn get_beside_a_list(log: Log) -> Duration {
    let (mut writer, informer) = informer(log);
    assert!(informer.synced().await);
    relist(&mut writer, 1);
    let listing = informer.lister();
    longest_get_beside(&informer, move || assert_eq!(listing.list().len(), PODS))
}

/// Returns the longest `Lister::get` while another thread adds an index, before the first list is
/// loaded.
async fn get_beside_an_index(log: Log) -> Duration {
    let (_writer, informer) = informer(log);
    let (indexed, runtime) = (informer.clone(), tokio::runtime::Handle::current());
    longest_get_beside(&informer, move || {
        let _entered = runtime.enter();
        let name = |pod: &Pod| pod.metadata.name.iter().cloned().collect();
        indexed.add_index("name", name).expect("no other index");
    })
}

fn longest_get_beside(
    informer: &SharedInformer<Pod>,
    work: impl FnOnce() + Send + 'static,
) -> Duration {
    let thread = std::thread::spawn(work);
    let lister = informer.lister();
    let mut longest = Duration::ZERO;
    let mut index = 0;
    while !thread.is_finished() {
        index = (index + 7_919) % PODS;
        let began = Instant::now();
        let found = lister.get(Some("shop"), &format!("pod-{index:06}"));
        longest = longest.max(began.elapsed());
        assert!(found.is_ok_and(|found| found.is_some()));
    }
    thread.join().expect("the work ends");
    longest
}
