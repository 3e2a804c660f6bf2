//! Compares a shared informer with kube-runtime's reflector, the work queue with its scheduler, and
//! the controllers of both: `cargo bench --bench beside_kube_runtime`.
//!
//! The simulator serves the pods over TLS, as API servers do. kubefan then speaks HTTP/2, and
//! kube-runtime HTTP/1.1. With `PLAIN` in the environment, the simulator serves without TLS. Each
//! library runs in a separate process, which is this program again, and gets equal changes at an
//! equal rate. `PODS`, `CHANGES` and `RUNS` in the environment change the numbers. The figures
//! are the medians of the runs. `ONLY` selects the columns that contain it in their names, to
//! profile one library.

use std::collections::BTreeMap;
use std::error::Error;
use std::future::{pending, ready};
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use std::{env, fs};

use cpu_time::ProcessTime;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kubefan::api::GroupVersionResource;
use kubefan::controller::{Action, Controller, Request};
use kubefan::shared_informer::{Config, Factory, HandlerFunctions, Storage};
use kubefan::shutdown::Shutdown;
use kubefan::telemetry::Registry;
use kubefan::upstream::{Client, ClientConfig};
use kubefan::work_queue::WorkQueue;
use kubefan::{informer, shutdown};
use kubefan_proxy::net;
use kubefan_proxy::net::{Acceptor, Listener};
use kubefan_proxy::server::{RequestMetrics, WebPageRules, with_filters};
use kubefan_tools::sim::Simulator;
use kubefan_tools::workload;
use kubefan_tools::workload::{Operation, Workload};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tikv_jemalloc_ctl::{epoch, stats};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The measured values, by name.
type Figures = BTreeMap<String, f64>;
type Outcome<T> = Result<T, Box<dyn Error>>;

/// Names the server and the library in the environment of a child process.
const SERVER: &str = "BESIDE_SERVER";
const LIBRARY: &str = "BESIDE_LIBRARY";
/// The annotation with the time of a change, in nanoseconds since 1970.
const CHANGED_AT: &str = "example.com/changed-at";
const CHANGES_PER_SECOND: u32 = 500;
/// Every seventh pod is changed next.
const STEP: usize = 7;
/// The number of changes before the measured ones: more than kubefan's event log holds, so that the
/// log is full and does not grow any more.
const WARM_UP: usize =
    (informer::Config::DEFAULT_RETENTION_AGE.as_secs() as usize + 2) * CHANGES_PER_SECOND as usize;
/// The number of timed reads and queue operations.
const READS: usize = 100_000;
/// Each table compares its other columns with its first one.
const TABLES: [&[&str]; 2] = [
    &["kube-runtime", "kubefan, bytes", "kubefan, decoded"],
    &[
        "kube-runtime, controller",
        "kubefan, controller, bytes",
        "kubefan, controller, decoded",
    ],
];
/// How many pods each controller reconciles at once.
const RECONCILES: u16 = 8;

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
    // A controller would merge changes of one pod.
    if pods < WARM_UP + changes || pods.is_multiple_of(STEP) {
        let least = WARM_UP + changes;
        return Err(format!("PODS must be at least {least}, and no multiple of {STEP}").into());
    }
    let shutdown = Shutdown::new(shutdown::Config::default());
    let simulator = Simulator::new(shutdown.clone());
    let url = serve(&simulator, &shutdown).await?;
    let stored = store_pods(&simulator, pods)?;
    let only = env::var("ONLY").unwrap_or_default();
    let tables = TABLES.map(|libraries| {
        let selected = libraries.iter().filter(|library| library.contains(&only));
        selected.copied().collect::<Vec<_>>()
    });
    let mut runs: BTreeMap<&str, Vec<Figures>> = BTreeMap::new();
    for number in 0..number("RUNS", 1) {
        // The log of the simulator grows, so each library comes first in some run.
        let mut libraries = tables.concat();
        let first = number % libraries.len().max(1);
        libraries.rotate_left(first);
        for library in libraries {
            eprintln!("{library}, run {number} …");
            let figures = run(library, &url, &simulator, &stored).await?;
            runs.entry(library).or_default().push(figures);
        }
    }
    for libraries in tables.iter().filter(|libraries| !libraries.is_empty()) {
        let columns = libraries.iter().map(|library| medians(&runs[library]));
        print(libraries, &columns.collect::<Vec<_>>());
    }
    shutdown.drain().await;
    Ok(())
}

/// Serves the simulator until `shutdown`, and returns its URL.
async fn serve(simulator: &Simulator, shutdown: &Shutdown) -> Outcome<String> {
    let registry = Registry::new();
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let (address, metrics) = (socket.local_addr()?, net::Metrics::new(&registry));
    let config = net::Config::default();
    let mut listener = Listener::new("clients", socket, config, metrics, shutdown.clone());
    let scheme = match env::var_os("PLAIN") {
        Some(_) => "http",
        None => {
            let names = [Ipv4Addr::LOCALHOST.to_string()];
            listener = listener.with_tls(Acceptor::with_throwaway_certificate(&names)?);
            "https"
        }
    };
    let simulator = simulator.clone();
    let answer = move |request| simulator.clone().answer(request);
    let metrics = RequestMetrics::new(&registry);
    let service = with_filters(metrics, WebPageRules::default(), answer);
    shutdown.spawn(listener.serve(service));
    Ok(format!("{scheme}://{address}"))
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

/// Runs `library` in a child process, and returns the figures that the process prints.
async fn run(library: &str, url: &str, simulator: &Simulator, pods: &[Value]) -> Outcome<Figures> {
    let mut child = Command::new(env::current_exe()?)
        .env(LIBRARY, library)
        .env(SERVER, url)
        .env("PODS", pods.len().to_string())
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
    let (mut figures, mut changed) = (Figures::new(), 0);
    while let Some(line) = lines.recv().await {
        match line.split_once(": ") {
            Some((name, value)) => {
                let value = value.parse().map_err(|error| format!("{line}: {error}"))?;
                figures.insert(name.to_owned(), value);
            }
            None => {
                let count: usize = line.parse()?;
                change(simulator, pods, changed..changed + count).await?;
                changed += count;
            }
        }
    }
    reader.await?;
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("{library}: {status}").into());
    }
    Ok(figures)
}

async fn change(simulator: &Simulator, pods: &[Value], numbers: Range<usize>) -> Outcome<()> {
    let gvr = GroupVersionResource::new("", "v1", "pods");
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / CHANGES_PER_SECOND);
    for number in numbers {
        ticks.tick().await;
        let mut pod = pods[number * STEP % pods.len()].clone();
        let namespace = pod["metadata"]["namespace"].as_str().map(str::to_owned);
        pod["metadata"]["annotations"][CHANGED_AT] = json!(nanoseconds().to_string());
        let put = simulator.put(&gvr, namespace.as_deref(), pod);
        put.map_err(|status| status.message)?;
    }
    Ok(())
}

fn medians(runs: &[Figures]) -> Figures {
    let median = |name: &String| {
        let mut values: Vec<_> = runs.iter().map(|run| run[name]).collect();
        values.sort_unstable_by(f64::total_cmp);
        (name.clone(), values[values.len() / 2])
    };
    runs[0].keys().map(median).collect()
}

fn print(libraries: &[&str], columns: &[Figures]) {
    println!("| | {} | ratios |", libraries.join(" | "));
    println!("|---|{}---|", "---|".repeat(libraries.len()));
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

/// What the handler or reconciler has seen.
#[derive(Default)]
struct Seen {
    latencies: Mutex<Vec<u64>>,
    /// The number of changes to wait for.
    wanted: AtomicUsize,
    all: Notify,
    reconciles: AtomicUsize,
    pods: usize,
    all_reconciled: Notify,
}

impl Seen {
    fn changed(&self, pod: &Pod) {
        let annotations = pod.metadata.annotations.as_ref();
        let at = annotations.and_then(|all| all.get(CHANGED_AT)?.parse::<u64>().ok());
        // Pods that the run of another library changed have older times, and come before the start.
        let Some(at) = at else { return };
        let mut latencies = self.latencies.lock();
        latencies.push(nanoseconds().saturating_sub(at));
        if latencies.len() == self.wanted.load(Ordering::Relaxed) {
            self.all.notify_one();
        }
    }
}

impl Seen {
    /// Counts a reconcile. The first reconciles are of pods that other runs have changed.
    fn reconciled(&self, pod: &Pod) {
        let (before, pods) = (self.reconciles.fetch_add(1, Ordering::Relaxed), self.pods);
        if before >= pods {
            self.changed(pod);
        } else if before + 1 == pods {
            self.all_reconciled.notify_one();
        }
    }
}

/// A synced cache.
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
        "clusters": [{"name": "sim", "cluster": {"server": env::var(SERVER)?, "insecure-skip-tls-verify": true}}],
        "contexts": [{"name": "sim", "context": {"cluster": "sim", "user": "sim"}}],
        "users": [{"name": "sim", "user": {}}],
        "current-context": "sim",
    });
    fs::write(&path, kubeconfig.to_string())?;
    let (began, cpu) = (Instant::now(), ProcessTime::now());
    let before = allocated()?;
    let seen = Arc::new(Seen {
        pods: number("PODS", 0),
        ..Seen::default()
    });
    let storage = match library.rsplit_once(", ") {
        Some((_, "bytes")) => Some(Storage::Bytes),
        Some((_, "decoded")) => Some(Storage::Decoded),
        _ => None,
    };
    let is_controller = library.contains("controller");
    match storage {
        None => {
            let options = kube::config::KubeConfigOptions::default();
            let kubeconfig = kube::config::Kubeconfig::read_from(&path)?;
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
            let pods = kube::Api::<Pod>::all(kube::Client::try_from(config)?);
            if is_controller {
                let mut task = JoinSet::new();
                task.spawn(run_controller(pods, Arc::clone(&seen)));
                return report_controller(&seen, began, cpu, before).await;
            }
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
            if is_controller {
                let controller = Controller::new("pods", &pods, shutdown.clone());
                let controller = controller.max_concurrent_reconciles(RECONCILES.into());
                let (to, lister) = (Arc::clone(&seen), pods.lister());
                let reconcile = move |request: Request| {
                    let namespace = request.namespace.as_deref();
                    let pod = lister.get(namespace, &request.name).expect("a pod");
                    to.reconciled(&pod.expect("it exists"));
                    ready(Ok::<_, std::convert::Infallible>(Action::Done))
                };
                let mut task = JoinSet::new();
                task.spawn(controller.run(reconcile, pending()));
                return report_controller(&seen, began, cpu, before).await;
            }
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

/// Runs kube-runtime's controller, with its default debounce and backoff.
async fn run_controller(pods: kube::Api<Pod>, seen: Arc<Seen>) {
    type Failure = std::convert::Infallible;
    let config = kube::runtime::controller::Config::default().concurrency(RECONCILES);
    let reconcile = |pod: Arc<Pod>, seen: Arc<Seen>| {
        seen.reconciled(&pod);
        ready(Ok::<_, Failure>(
            kube::runtime::controller::Action::await_change(),
        ))
    };
    let on_error = |_: Arc<Pod>, error: &Failure, _: Arc<Seen>| match *error {};
    kube::runtime::Controller::new(pods, watcher::Config::default())
        .with_config(config)
        .run(reconcile, on_error, seen)
        .for_each(|_| ready(()))
        .await;
}

/// Reports the first reconciles of all pods, and then the changes.
async fn report_controller(
    seen: &Seen,
    began: Instant,
    cpu: ProcessTime,
    before: f64,
) -> Outcome<()> {
    seen.all_reconciled.notified().await;
    report_sync(began, cpu, before)?;
    report_changes(seen).await
}

/// Returns the number of allocated bytes.
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

/// Asks for the changes, and reports their cost.
async fn report_changes(seen: &Seen) -> Outcome<()> {
    see_changes(seen, WARM_UP).await;
    let cpu = ProcessTime::now();
    see_changes(seen, number("CHANGES", 10_000)).await;
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

/// Asks for `count` changes, and waits until they were seen.
async fn see_changes(seen: &Seen, count: usize) {
    seen.wanted.store(count, Ordering::Relaxed);
    seen.latencies.lock().clear();
    println!("{count}");
    seen.all.notified().await;
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
