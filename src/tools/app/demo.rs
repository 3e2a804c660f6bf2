//! The composition root of `kubefan demo`: a simulated cluster that changes all the time, a kubefan
//! in front of it, and simulated clients.

mod cluster;
mod kubeconfig;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use cluster::Cluster;
pub use cluster::Views;
use kubeconfig::Kubeconfig;
use kubefan_core::api::GroupVersionResource;
use kubefan_core::informer::ResourceRules;
use kubefan_core::shutdown::{Outcome, Shutdown, Signals};
use kubefan_core::telemetry::Registry;
use kubefan_core::{informer, shutdown};
use kubefan_proxy::app::App;
use kubefan_proxy::config::{AdminConfig, Resources, ServeConfig, Tls};
use kubefan_proxy::{identity, ledger, net, server};
use tokio::sync::watch;

use super::SimulatedApp;
use crate::agents::{Agents, Counters};
use crate::config::{DemoConfig, SimConfig};
use crate::sim::{FaultInjector, Simulator};
use crate::workload::Workload;
use crate::{agents, workload};

/// How kubefan, the simulator and the clients shut down.
const SHUTDOWN: shutdown::Config = shutdown::Config {
    not_ready_delay: Duration::ZERO,
    grace: Duration::from_secs(2),
};
/// Open files for everything but the connections of the simulated clients.
const OTHER_FILES: usize = 150;
/// Connections to kubefan that are left for the user of the demo.
const OTHER_CONNECTIONS: usize = 200;
/// How long the API server is cut off.
const AWAY: Duration = Duration::from_secs(10);

/// A running kubefan, the simulated API server behind it and the clients before it; both servers
/// accept connections.
pub struct DemoApp {
    /// The kubefan of the demo.
    pub kubefan: App,
    /// The simulated API server behind kubefan.
    pub simulated: SimulatedApp,
    cluster_shutdown: Shutdown,
    agents_shutdown: Shutdown,
    _kubeconfig: Kubeconfig,
    /// The state of the demo.
    pub demo: Demo,
    _inner: Kubeconfig,
}

/// Reads the state of a running demo, and injects its fault. Cheap to clone.
#[derive(Clone)]
pub struct Demo {
    agents: Agents,
    served: Arc<Counters>,
    views: watch::Receiver<Views>,
    faults: FaultInjector,
    kubefan: Registry,
}

/// The counts of a demo so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// What the simulated clients asked for and got.
    pub got: agents::Totals,
    /// What the simulated API server served.
    pub served: agents::Totals,
    /// How many watches of the simulated clients are up to date.
    pub views: Views,
    /// Requests to kubefan of all clients.
    pub requests: u64,
    /// Requests to kubefan that a cache answered.
    pub from_cache: u64,
    /// How long the API server stays cut off; `None` if it answers.
    pub away: Option<Duration>,
}

impl DemoApp {
    /// Fills the cluster, starts both servers, the clients and the churn, and writes the kubeconfig
    /// for kubefan.
    ///
    /// # Errors
    ///
    /// If a listener cannot be opened, a file cannot be written, or too few files may be open.
    pub async fn start(config: DemoConfig) -> anyhow::Result<Self> {
        check_open_files(config.agents)?;
        let (cluster_shutdown, agents_shutdown) =
            (Shutdown::new(SHUTDOWN), Shutdown::new(SHUTDOWN));
        let simulator = Simulator::new(cluster_shutdown.clone());
        let workload = start_workload(&config, &simulator);
        let in_use = |error| named_ports(error, config.listen);
        let sim_config = SimConfig {
            listen: config.later_port(2),
            admin_listen: config.later_port(3),
            definitions: Vec::new(),
        };
        let simulated =
            SimulatedApp::serve(&sim_config, simulator.clone(), cluster_shutdown.clone());
        let simulated = simulated.await.map_err(in_use)?;
        let inner = Kubeconfig::temporary(&simulated.url())?;
        let kubefan = kubefan(&config, &inner).await.map_err(in_use)?;
        let kubeconfig = Kubeconfig::write(&config.kubeconfig_out, &kubefan.url())?;
        let agents = start_agents(&config, &kubefan, &simulator, &agents_shutdown).await?;
        let (views, seen) = watch::channel(Views::default());
        let demo = Demo {
            agents: agents.clone(),
            served: Arc::clone(&simulated.served),
            views: seen,
            faults: simulator.faults().clone(),
            kubefan: kubefan.registry().clone(),
        };
        let cluster = Cluster {
            simulator,
            workload,
            churn: config.churn,
            agents,
            views,
        };
        cluster_shutdown.spawn_background(cluster.run());
        Ok(Self {
            kubefan,
            simulated,
            cluster_shutdown,
            agents_shutdown,
            _kubeconfig: kubeconfig,
            demo,
            _inner: inner,
        })
    }

    /// Runs until a signal arrives, then stops the clients, drains kubefan, and after it the
    /// simulated API server. A second signal aborts the drain.
    pub async fn run(self, mut signals: Signals) -> Outcome {
        let mut signal = signals.next().await;
        self.agents_shutdown.drain().await;
        let (sender, forwarded) = Signals::manual();
        let forward = async {
            // An error means that kubefan has ended.
            while sender.send(signal).is_ok() {
                signal = signals.next().await;
            }
            std::future::pending().await
        };
        let outcome = tokio::select! {
            outcome = self.kubefan.run(forwarded) => outcome,
            outcome = forward => outcome,
        };
        match outcome {
            Outcome::Aborted => outcome,
            Outcome::Drained | Outcome::Unfinished { .. } => {
                self.cluster_shutdown.drain().await;
                outcome
            }
        }
    }
}

impl Demo {
    /// Returns the counts so far of the clients, of kubefan and of the simulated API server.
    pub fn totals(&self) -> Totals {
        let (_, metrics) = self.kubefan.render();
        Totals {
            got: self.agents.totals(),
            served: self.served.totals(),
            views: *self.views.borrow(),
            requests: sum(&metrics, "kubefan_requests_total", ""),
            from_cache: sum(&metrics, "kubefan_requests_total", "outcome=\"cache\""),
            away: self.faults.away_for(),
        }
    }

    /// Cuts the API server off for ten seconds: its watches break, and it refuses all requests.
    pub fn cut_off(&self) {
        self.faults.go_away(AWAY);
    }
}

/// Checks that this process may open enough files: each simulated client has a connection, and a
/// connection is two open files.
fn check_open_files(agents: usize) -> anyhow::Result<()> {
    let needed = 2 * agents + OTHER_FILES;
    match net::open_files_limit() {
        Some(limit) if limit < needed => Err(anyhow::anyhow!(
            "{agents} agents need {needed} open files, and the limit (ulimit -n) is {limit}; give \
             a smaller number with --agents"
        )),
        _ => Ok(()),
    }
}

/// Explains which ports the demo uses, if `error` means that one of these ports is in use.
fn named_ports(error: anyhow::Error, listen: SocketAddr) -> anyhow::Error {
    let is_in_use = |cause: &(dyn std::error::Error + 'static)| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::AddrInUse)
    };
    if !error.chain().any(is_in_use) {
        return error;
    }
    let text = error.to_string();
    // The text begins with the name of a flag of `kubefan serve` or `kubefan sim`.
    let (_, problem) = text.split_once(": ").unwrap_or(("", &text));
    let ip = listen.ip();
    let others = SocketAddr::new(ip, 9001);
    anyhow::anyhow!(
        "{problem}: the port is in use; the demo uses four ports, of which --listen names the \
         first: try --listen {others}, or --listen {} for free ones",
        SocketAddr::new(ip, 0)
    )
}

/// Creates the workload, and its first objects in the simulated cluster.
fn start_workload(config: &DemoConfig, simulator: &Simulator) -> Workload {
    let mut workload = Workload::new(workload::Config {
        nodes: config.nodes,
        pods: config.pods,
        seed: config.seed,
        now: SystemTime::now(),
    });
    for operation in workload.initial() {
        cluster::apply(simulator, operation);
    }
    workload
}

async fn start_agents(
    config: &DemoConfig,
    kubefan: &App,
    simulator: &Simulator,
    shutdown: &Shutdown,
) -> anyhow::Result<Agents> {
    let nodes = simulator.versions(&GroupVersionResource::new("", "v1", "nodes"), "")?;
    let nodes: Vec<_> = nodes.iter().map(|(key, _)| key.name().to_owned()).collect();
    let agents = Agents::start(kubefan.url(), config.agents, &nodes, shutdown);
    agents.await.context("cannot start the simulated clients")
}

async fn kubefan(config: &DemoConfig, inner: &Kubeconfig) -> anyhow::Result<App> {
    let app = App::start(ServeConfig {
        kubeconfig: Some(inner.path().to_owned()),
        context: None,
        ping_interval: Duration::from_secs(3),
        ping_timeout: Duration::from_secs(5),
        listen: config.listen,
        is_exposed: false,
        admin: AdminConfig {
            listen: config.later_port(1),
            ..AdminConfig::loopback()
        },
        threads: None,
        resources: Resources::All,
        rules: ResourceRules::default(),
        cache_secrets: true,
        informer: informer::Config {
            retention_age: informer::Config::SERVER_RETENTION_AGE,
            ..informer::Config::default()
        },
        audit_log: None,
        access_log: None,
        traces: None,
        tls: Tls::Plain,
        access: identity::Config::default(),
        authorities: Some(identity::AuthoritySources::default()),
        connections: net::Config {
            max_connections: NonZeroUsize::MIN.saturating_add(config.agents + OTHER_CONNECTIONS),
            ..net::Config::default()
        },
        memory: ledger::Limits::default(),
        requests: server::Config::default(),
        shutdown: SHUTDOWN,
    });
    app.await
}

/// Returns the sum of the values of the metric `name` over all label sets
/// that contain `label` as text.
fn sum(metrics: &str, name: &str, label: &str) -> u64 {
    let sum: f64 = metrics
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
