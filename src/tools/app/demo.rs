//! The composition root of `kubefan demo`: a simulated cluster that changes all the time, and a
//! kubefan in front of it.

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
use crate::config::AdminConfig;
use crate::config::Resources;
use crate::config::ServeConfig;
use crate::config::Tls;
use crate::identity;
use crate::informer;
use crate::informer::ResourceRules;
use crate::ledger;
use crate::net;
use crate::server;
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

/// How often due changes are made. Timers have a resolution of one millisecond, so a fast churn
/// makes several changes per tick.
const CHURN_TICK: Duration = Duration::from_millis(20);
/// The grace period of kubefan and of the simulator at shutdown.
const GRACE: Duration = Duration::from_secs(2);

/// A running kubefan and the simulated API server behind it; both accept connections.
pub struct DemoApp {
    kubefan: App,
    simulated: SimulatedApp,
    cluster_shutdown: Shutdown,
    kubeconfig: PathBuf,
    _inner: TempKubeconfig,
}

/// The path of a temporary kubeconfig for the simulated API server. kubefan reads the file again
/// from time to time, so it exists as long as this value; dropping the value deletes the file.
struct TempKubeconfig(PathBuf);

/// Totals of what kubefan did since its start, and the number of open watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Open watches of clients that the cache answers.
    pub watchers: u64,
    /// Requests of clients that were answered, by the cache or otherwise.
    pub requests: u64,
    /// Requests of clients that the cache answered.
    pub from_cache: u64,
    /// Events that caches sent to clients.
    pub events_sent: u64,
    /// Requests that the simulated API server received.
    pub upstream_requests: u64,
    /// Events that kubefan received from the simulated API server.
    pub upstream_events: u64,
}

impl DemoApp {
    /// Fills the cluster, starts both servers and the churn, and writes the kubeconfig for kubefan.
    ///
    /// # Errors
    ///
    /// If a listener cannot be opened, or a file cannot be written.
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

    /// The kubefan of the demo.
    pub fn kubefan(&self) -> &App {
        &self.kubefan
    }

    /// The simulated API server behind kubefan.
    pub fn simulated(&self) -> &SimulatedApp {
        &self.simulated
    }

    /// The path of the kubeconfig for kubefan, to use with kubectl.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns a function that reads the current [`Totals`] from the metrics of both servers.
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

    /// Runs until a signal arrives, then drains kubefan and after it the simulated API server. A
    /// second signal aborts the drain.
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
        ping_interval: Duration::from_secs(3),
        ping_timeout: Duration::from_secs(5),
        listen: config.listen,
        is_exposed: false,
        admin: AdminConfig::loopback(),
        threads: None,
        resources: Resources::All,
        rules: ResourceRules::default(),
        cache_secrets: true,
        informer: informer::Config {
            retention_age: informer::Config::SERVER_RETENTION_AGE,
            ..informer::Config::default()
        },
        audit_log: None,
        tls: Tls::Plain,
        access: identity::Config::default(),
        authorities: Some(identity::AuthoritySources::default()),
        connections: net::Config::default(),
        memory: ledger::Limits::default(),
        requests: server::Config::default(),
        shutdown: shutdown::Config {
            not_ready_delay: Duration::ZERO,
            grace: GRACE,
        },
    });
    app.await
}

impl TempKubeconfig {
    /// Writes a kubeconfig for `server`, a URL, to a new file with a unique name.
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
            tracing::debug!(%error, "cannot delete the temporary kubeconfig");
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
    // A kubeconfig is YAML, and JSON is valid YAML.
    std::fs::write(file, format!("{kubeconfig:#}\n"))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Makes `churn` changes per second in the simulated cluster; never returns.
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
        // A user of the demo may have deleted the object.
        tracing::debug!(%gvr, name = target.name, reason = status.message, "change failed");
    }
}

/// The sum of the values of the metric `name` over all label sets whose text contains `label`.
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
