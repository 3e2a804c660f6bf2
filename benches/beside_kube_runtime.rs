//! Compares a shared informer with kube-runtime's reflector, and the work queue with its scheduler:
//! `cargo bench --bench beside_kube_runtime`.
//!
//! The simulator serves the pods. Each library runs in a process of its own, which is this program
//! again, and gets the same changes at the same rate. `PODS` and `CHANGES` in the environment change
//! the numbers.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;

use cpu_time::ProcessTime;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::scheduler::ScheduleRequest;
use kube::runtime::scheduler::scheduler;
use kube::runtime::watcher;
use kubefan::api::GroupVersionResource;
use kubefan::informer;
use kubefan::internals::tools::app::SimulatedApp;
use kubefan::internals::tools::config::SimConfig;
use kubefan::internals::tools::sim::Simulator;
use kubefan::internals::tools::workload;
use kubefan::internals::tools::workload::Operation;
use kubefan::internals::tools::workload::Workload;
use kubefan::shared_informer::Config;
use kubefan::shared_informer::Factory;
use kubefan::shared_informer::HandlerFunctions;
use kubefan::shared_informer::Storage;
use kubefan::shutdown;
use kubefan::shutdown::Shutdown;
use kubefan::upstream::Client;
use kubefan::upstream::ClientConfig;
use kubefan::work_queue::WorkQueue;
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::json;
use tikv_jemalloc_ctl::epoch;
use tikv_jemalloc_ctl::stats;
use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Names the server and the library in the environment of a child process.
const SERVER: &str = "BESIDE_SERVER";
const LIBRARY: &str = "BESIDE_LIBRARY";
/// The annotation that has the time of a change, in nanoseconds since 1970.
const CHANGED_AT: &str = "example.com/changed-at";
const CHANGES_PER_SECOND: u32 = 500;
/// The number of reads and queue operations that are timed.
const READS: usize = 100_000;
const LIBRARIES: [&str; 3] = ["kube-runtime", "kubefan, bytes", "kubefan, decoded"];

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    match env::var(LIBRARY) {
        Ok(library) => runtime.block_on(measure(&library)),
        Err(_) => runtime.block_on(compare()),
    }
}

fn number(name: &str, default: usize) -> usize {
    let set = env::var(name).ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn nanoseconds() -> u64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("it is after 1970");
    now.as_nanos() as u64
}

// The parent: the simulator and its changes.

async fn compare() -> Outcome<()> {
    let (pods, changes) = (number("PODS", 50_000), number("CHANGES", 10_000));
    let shutdown = Shutdown::new(shutdown::Config::default());
    let simulator = Simulator::new(shutdown.clone());
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let config = SimConfig {
        listen: any,
        admin_listen: any,
        definitions: Vec::new(),
    };
    let server = SimulatedApp::serve(&config, simulator.clone(), shutdown.clone()).await?;
    let stored = store_pods(&simulator, pods)?;
    let mut columns = Vec::new();
    for library in LIBRARIES {
        eprintln!("{library} …");
        columns.push(run(library, &server.url(), &simulator, &stored, changes).await?);
    }
    print(&columns);
    shutdown.drain().await;
    Ok(())
}

fn store_pods(simulator: &Simulator, count: usize) -> Outcome<Vec<Value>> {
    let mut workload = Workload::new(workload::Config {
        nodes: count.div_ceil(30),
        pods: count,
        seed: 1,
        now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_750_000_000),
    });
    let gvr = GroupVersionResource::new("", "v1", "pods");
    let mut pods = Vec::new();
    for operation in workload.initial() {
        if let Operation::Create { target, object } = operation
            && target.resource == "pods"
        {
            let put = simulator.put(&gvr, target.namespace.as_deref(), object.clone());
            put.map_err(|status| status.message)?;
            pods.push(object);
        }
    }
    let bytes: usize = pods.iter().map(|pod| pod.to_string().len()).sum();
    println!("{} pods of {} bytes", pods.len(), bytes / pods.len());
    Ok(pods)
}

/// Runs `library` in a child process. Returns the figures that it prints.
async fn run(
    library: &str,
    url: &str,
    simulator: &Simulator,
    pods: &[Value],
    changes: usize,
) -> Outcome<BTreeMap<String, f64>> {
    let mut child = Command::new(env::current_exe()?)
        .env(LIBRARY, library)
        .env(SERVER, url)
        .env("CHANGES", changes.to_string())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("no output")?;
    let (send, mut lines) = mpsc::unbounded_channel();
    let reader = tokio::task::spawn_blocking(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    let mut figures = BTreeMap::new();
    while let Some(line) = lines.recv().await {
        match line.split_once(": ") {
            Some((name, value)) => {
                let value = value.parse().map_err(|error| format!("{line}: {error}"))?;
                figures.insert(name.to_owned(), value);
            }
            None => change(simulator, pods, changes).await?,
        }
    }
    reader.await?;
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("{library}: {status}").into());
    }
    Ok(figures)
}

async fn change(simulator: &Simulator, pods: &[Value], changes: usize) -> Outcome<()> {
    let gvr = GroupVersionResource::new("", "v1", "pods");
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / CHANGES_PER_SECOND);
    for number in 0..changes {
        ticks.tick().await;
        let mut pod = pods[number * 7 % pods.len()].clone();
        let namespace = pod["metadata"]["namespace"].as_str().map(str::to_owned);
        pod["metadata"]["annotations"][CHANGED_AT] = json!(nanoseconds().to_string());
        let put = simulator.put(&gvr, namespace.as_deref(), pod);
        put.map_err(|status| status.message)?;
    }
    Ok(())
}

fn print(columns: &[BTreeMap<String, f64>]) {
    println!("| | {} | ratios |", LIBRARIES.join(" | "));
    println!("|---|{}---|", "---|".repeat(LIBRARIES.len()));
    for name in columns[0].keys() {
        let values: Vec<_> = columns
            .iter()
            .filter_map(|column| column.get(name))
            .collect();
        let text = |value: &&f64| format!("{value:.2}");
        let ratios = values.iter().skip(1).map(|value| **value / *values[0]);
        let ratios: Vec<_> = ratios.map(|ratio| format!("{ratio:.2}")).collect();
        let values: Vec<_> = values.iter().map(text).collect();
        println!(
            "| {name} | {} | {} |",
            values.join(" | "),
            ratios.join(", ")
        );
    }
}

// The child: one library.

/// What the handler has seen.
#[derive(Default)]
struct Seen {
    latencies: Mutex<Vec<u64>>,
    all: Notify,
}

impl Seen {
    fn changed(&self, pod: &Pod) {
        let annotations = pod.metadata.annotations.as_ref();
        let at = annotations.and_then(|all| all.get(CHANGED_AT)?.parse::<u64>().ok());
        // Pods that another library's run changed have older times, and come before the start.
        let Some(at) = at else { return };
        let mut latencies = self.latencies.lock();
        latencies.push(nanoseconds().saturating_sub(at));
        if latencies.len() == number("CHANGES", 0) {
            self.all.notify_one();
        }
    }
}

/// A cache that is synced.
trait Synced {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<Pod>>;

    fn list(&self) -> Vec<Arc<Pod>>;
}

impl Synced for reflector::Store<Pod> {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        reflector::Store::get(self, &ObjectRef::new(name).within(namespace))
    }

    fn list(&self) -> Vec<Arc<Pod>> {
        self.state()
    }
}

impl Synced for kubefan::shared_informer::Lister<Pod> {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let got = kubefan::shared_informer::Lister::get(self, Some(namespace), name);
        got.expect("a pod")
    }

    fn list(&self) -> Vec<Arc<Pod>> {
        kubefan::shared_informer::Lister::list(self)
    }
}

async fn measure(library: &str) -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("kubeconfig");
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sim", "cluster": {"server": env::var(SERVER)?}}],
        "contexts": [{"name": "sim", "context": {"cluster": "sim", "user": "sim"}}],
        "users": [{"name": "sim", "user": {}}],
        "current-context": "sim",
    });
    fs::write(&path, kubeconfig.to_string())?;
    let (began, cpu) = (Instant::now(), ProcessTime::now());
    let before = allocated()?;
    let seen = Arc::<Seen>::default();
    let storage = match library {
        "kubefan, bytes" => Some(Storage::Bytes),
        "kubefan, decoded" => Some(Storage::Decoded),
        _ => None,
    };
    match storage {
        None => {
            let options = kube::config::KubeConfigOptions::default();
            let kubeconfig = kube::config::Kubeconfig::read_from(&path)?;
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
            let pods = kube::Api::<Pod>::all(kube::Client::try_from(config)?);
            let (store, writer) = reflector::store();
            let stream = watcher(pods, watcher::Config::default()).default_backoff();
            let stream = stream.reflect(writer).applied_objects();
            let (to, store_of_task) = (Arc::clone(&seen), store.clone());
            let mut task = JoinSet::new();
            task.spawn(async move {
                let mut stream = std::pin::pin!(stream);
                let mut is_ready = false;
                while let Some(pod) = stream.next().await {
                    is_ready = is_ready || !store_of_task.is_empty();
                    match (pod, is_ready) {
                        (Ok(pod), true) => to.changed(&pod),
                        (Ok(_), false) => {}
                        (Err(error), _) => eprintln!("{error}"),
                    }
                }
            });
            store.wait_until_ready().await?;
            report_sync(began, cpu, before)?;
            report_changes(&seen).await?;
            report_reads(&store)?;
            task.shutdown().await;
            report_scheduler().await;
        }
        Some(storage) => {
            let shutdown = Shutdown::new(shutdown::Config::default());
            let config = ClientConfig {
                kubeconfig: Some(path),
                ..ClientConfig::default()
            };
            let client = Client::connect(config).await?;
            let config = informer::Config::default();
            let factory = Factory::start(client, config, shutdown.clone()).await?;
            let config = Config {
                storage,
                ..Config::default()
            };
            let pods = factory.informer::<Pod>(config)?;
            let to = Arc::clone(&seen);
            let handler =
                HandlerFunctions::new().on_update(move |_, pod: Arc<Pod>| to.changed(&pod));
            let mut handler = pods.add_handler(handler, None);
            if !handler.synced().await {
                return Err("the informer ended".into());
            }
            report_sync(began, cpu, before)?;
            report_changes(&seen).await?;
            report_reads(&pods.lister())?;
            report_queue().await;
        }
    }
    Ok(())
}

/// The bytes that are allocated.
fn allocated() -> Outcome<f64> {
    let failed = |error: tikv_jemalloc_ctl::Error| error.to_string();
    epoch::advance().map_err(failed)?;
    Ok(stats::allocated::read().map_err(failed)? as f64)
}

fn report_sync(began: Instant, cpu: ProcessTime, before: f64) -> Outcome<()> {
    println!("1 sync, s: {}", began.elapsed().as_secs_f64());
    println!("2 sync, CPU s: {}", cpu.elapsed().as_secs_f64());
    println!("3 memory, MB: {}", (allocated()? - before) / 1e6);
    Ok(())
}

/// Asks for the changes, and reports what they cost.
async fn report_changes(seen: &Seen) -> Outcome<()> {
    seen.latencies.lock().clear();
    let cpu = ProcessTime::now();
    println!("synced");
    seen.all.notified().await;
    let cpu = cpu.elapsed();
    let mut latencies = seen.latencies.lock().clone();
    latencies.sort_unstable();
    let count = latencies.len();
    let micros = |percent: usize| latencies[count * percent / 100] as f64 / 1e3;
    println!(
        "4 change, CPU us: {}",
        cpu.as_secs_f64() * 1e6 / count as f64
    );
    println!("5 change to handler, p50 us: {}", micros(50));
    println!("6 change to handler, p99 us: {}", micros(99));
    println!("7 memory after the changes, MB: {}", allocated()? / 1e6);
    Ok(())
}

fn report_reads(cache: &impl Synced) -> Outcome<()> {
    let pods = cache.list();
    let keys = pods.iter().map(|pod| {
        let of = |part: &Option<String>| part.clone().unwrap_or_default();
        (of(&pod.metadata.namespace), of(&pod.metadata.name))
    });
    let keys: Vec<_> = keys.collect();
    drop(pods);
    let began = Instant::now();
    for read in 0..READS {
        let (namespace, name) = &keys[read * 31 % keys.len()];
        let pod = cache.get(namespace, name).ok_or("no such pod")?;
        std::hint::black_box(pod);
    }
    let micros = began.elapsed().as_secs_f64() * 1e6;
    println!("8 lister, one pod, us: {}", micros / READS as f64);
    let began = Instant::now();
    let listed = std::hint::black_box(cache.list());
    println!(
        "9 lister, all pods, ms: {}",
        began.elapsed().as_secs_f64() * 1e3
    );
    drop(listed);
    Ok(())
}

fn keys() -> Vec<String> {
    (0..READS).map(|n| format!("namespace/pod-{n}")).collect()
}

async fn report_scheduler() {
    let (requests, from) = mpsc::unbounded_channel();
    let from = futures::stream::unfold(from, |mut from| async { Some((from.recv().await?, from)) });
    let mut queue = std::pin::pin!(scheduler(from));
    let keys = keys();
    let began = Instant::now();
    for message in keys {
        let run_at = Instant::now();
        requests
            .send(ScheduleRequest { message, run_at })
            .expect("the scheduler listens");
    }
    for _ in 0..READS {
        queue.as_mut().hold_unless(|_| true).next().await;
    }
    report_operations(began);
}

async fn report_queue() {
    let queue = WorkQueue::new(kubefan::work_queue::Config::default());
    let keys = keys();
    let began = Instant::now();
    for key in keys {
        queue.add(key);
    }
    for _ in 0..READS {
        drop(queue.get().await);
    }
    report_operations(began);
}

fn report_operations(began: Instant) {
    let micros = began.elapsed().as_secs_f64() * 1e6;
    println!("queue, one key, us: {}", micros / READS as f64);
}
