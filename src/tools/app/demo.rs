//! The rooms of `kubefan demo`: a simulated cluster that lives, and a kubefan before it.

use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::SystemTime;

use anyhow::Context;
use tokio::time::MissedTickBehavior;
use tokio::time::interval;

use crate::api::GroupVersionResource;
use crate::app::App;
use crate::config::Resources;
use crate::config::ServeConfig;
use crate::config::Tls;
use crate::informer;
use crate::shutdown;
use crate::shutdown::Outcome;
use crate::shutdown::Shutdown;
use crate::shutdown::Signals;
use crate::telemetry::Registry;
use crate::tools::config::DemoConfig;
use crate::tools::config::SimConfig;
use crate::tools::sim::Simulator;
use crate::tools::workload;
use crate::tools::workload::Operation;
use crate::tools::workload::Workload;

use super::SimulatedApp;

/// Clocks are no finer than a millisecond, so a fast churn makes several changes a tick.
const CHURN_TICK: Duration = Duration::from_millis(20);
/// How long what is open at the end has.
const GRACE: Duration = Duration::from_secs(2);

/// A kubefan before a simulated cluster, both accepting connections.
pub struct DemoApp {
    kubefan: App,
    simulated: SimulatedApp,
    cluster_shutdown: Shutdown,
    kubeconfig: PathBuf,
    _inner: TempKubeconfig,
}

/// The file by which kubefan finds the simulated API server. It is read again now and then, so it
/// stays until the end.
struct TempKubeconfig(PathBuf);

/// What kubefan did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Watches that clients have open, answered from the cache.
    pub watchers: u64,
    /// Requests of clients that were answered.
    pub requests: u64,
    /// Those of them that the API server had no work with.
    pub from_cache: u64,
    /// Events given to clients by caches.
    pub events_sent: u64,
    /// Requests that the simulated API server received.
    pub upstream_requests: u64,
    /// Changes that the simulated API server told kubefan.
    pub upstream_events: u64,
}

impl DemoApp {
    /// Fills the cluster, starts both servers, writes the kubeconfig and lets the cluster live.
    ///
    /// # Errors
    ///
    /// When a listener can't be opened, or a file can't be written.
    pub async fn start(config: DemoConfig) -> anyhow::Result<Self> {
        let cluster_shutdown = Shutdown::new(shutdown::Config {
            not_ready_delay: Duration::ZERO,
            grace: GRACE,
        });
        let simulator = Simulator::new(cluster_shutdown.clone());
        let mut workload = Workload::new(workload::Config {
            nodes: config.nodes,
            pods: config.pods,
            seed: config.seed,
            now: SystemTime::now(),
        });
        for operation in workload.initial() {
            apply(&simulator, operation);
        }
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let sim_config = SimConfig {
            listen: any,
            admin_listen: any,
            definitions: Vec::new(),
        };
        let simulated =
            SimulatedApp::serve(&sim_config, simulator.clone(), cluster_shutdown.clone());
        let simulated = simulated.await?;
        let inner = TempKubeconfig::new(&simulated.url())?;
        let kubefan = kubefan(&config, &inner).await?;
        write_kubeconfig(&config.kubeconfig_out, &kubefan.url())?;
        if config.churn > 0 {
            cluster_shutdown.spawn_background(run_churn(simulator, workload, config.churn));
        }
        Ok(Self {
            kubefan,
            simulated,
            cluster_shutdown,
            kubeconfig: config.kubeconfig_out,
            _inner: inner,
        })
    }

    /// The kubefan.
    pub fn kubefan(&self) -> &App {
        &self.kubefan
    }

    /// The cluster's API server.
    pub fn simulated(&self) -> &SimulatedApp {
        &self.simulated
    }

    /// The file that points at the kubefan.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Reads off what was done so far, whenever it is called.
    pub fn totals(&self) -> impl Fn() -> Totals + Send + 'static {
        let kubefan = self.kubefan.registry().clone();
        let simulated = self.simulated.registry().clone();
        move || Totals {
            watchers: sum(&kubefan, "kubefan_watchers", ""),
            requests: sum(&kubefan, "kubefan_requests_total", ""),
            from_cache: sum(&kubefan, "kubefan_requests_total", "outcome=\"cache\""),
            events_sent: sum(&kubefan, "kubefan_events_sent_total", ""),
            upstream_requests: sum(&simulated, "kubefan_requests_total", ""),
            upstream_events: sum(&kubefan, "kubefan_events_total", ""),
        }
    }

    /// Runs until a signal comes, then drains the kubefan, then the cluster.
    pub async fn run(self, signals: Signals) -> Outcome {
        let outcome = self.kubefan.run(signals).await;
        match outcome {
            Outcome::Aborted => outcome,
            Outcome::Drained | Outcome::Unfinished { .. } => {
                self.cluster_shutdown.drain().await;
                outcome
            }
        }
    }
}

async fn kubefan(config: &DemoConfig, inner: &TempKubeconfig) -> anyhow::Result<App> {
    let app = App::start(ServeConfig {
        kubeconfig: Some(inner.0.clone()),
        context: None,
        listen: config.listen,
        admin_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        threads: None,
        resources: Resources::All,
        informer: informer::Config::default(),
        tls: Tls::Plain,
        shutdown_grace_period: GRACE,
    });
    app.await
}

impl TempKubeconfig {
    /// One for `server`, under a name that nobody can have taken before.
    fn new(server: &str) -> anyhow::Result<Self> {
        let name = format!("kubefan-demo-{}.kubeconfig", uuid::Uuid::new_v4());
        let file = std::env::temp_dir().join(name);
        write_kubeconfig(&file, server)?;
        Ok(Self(file))
    }
}

impl Drop for TempKubeconfig {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(%error, "the inner kubeconfig stays");
        }
    }
}

fn write_kubeconfig(file: &Path, server: &str) -> anyhow::Result<()> {
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "kubefan-demo",
        "clusters": [{"name": "kubefan-demo", "cluster": {"server": server}}],
        "users": [{"name": "kubefan-demo", "user": {}}],
        "contexts": [{
            "name": "kubefan-demo",
            "context": {"cluster": "kubefan-demo", "user": "kubefan-demo"},
        }],
    });
    // JSON is YAML.
    std::fs::write(file, format!("{kubeconfig:#}\n"))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Makes `churn` changes a second, until it is dropped.
async fn run_churn(simulator: Simulator, mut workload: Workload, churn: u32) {
    let mut ticks = interval(CHURN_TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut due = 0.0;
    loop {
        ticks.tick().await;
        due += f64::from(churn) * CHURN_TICK.as_secs_f64();
        while due >= 1.0 {
            due -= 1.0;
            apply(&simulator, workload.churn(SystemTime::now()));
        }
    }
}

fn apply(simulator: &Simulator, operation: Operation) {
    let target = operation.target().clone();
    let gvr = GroupVersionResource::new(target.group, target.version, target.resource);
    let namespace = target.namespace.as_deref();
    let done = match operation {
        Operation::Create { object, .. } | Operation::Update { object, .. } => {
            simulator.put(&gvr, namespace, object)
        }
        Operation::Delete { .. } => simulator.delete(&gvr, namespace, &target.name),
    };
    if let Err(status) = done {
        // A visitor may have deleted it.
        tracing::debug!(%gvr, name = target.name, reason = status.message, "not done");
    }
}

/// The sum of a metric's values whose labels contain `label`.
fn sum(registry: &Registry, name: &str, label: &str) -> u64 {
    let (_, text) = registry.render();
    let sum: f64 = text
        .lines()
        .filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('{'))
        })
        .filter(|line| line.contains(label))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    sum as u64
}
