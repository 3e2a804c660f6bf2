//! The rooms of `kubefan sim`, built in order.

use std::net::SocketAddr;

use anyhow::Context;
use tower::service_fn;

use crate::app::bind;
use crate::net;
use crate::net::Listener;
use crate::server;
use crate::server::RequestMetrics;
use crate::shutdown;
use crate::shutdown::Outcome;
use crate::shutdown::Shutdown;
use crate::shutdown::Signals;
use crate::telemetry::Registry;
use crate::tools::config::SimConfig;
use crate::tools::sim;
use crate::tools::sim::Simulator;

/// A simulated API server whose listeners accept connections.
pub struct SimulatedApp {
    shutdown: Shutdown,
    address: SocketAddr,
    admin_address: SocketAddr,
    simulator: Simulator,
    registry: Registry,
}

impl SimulatedApp {
    /// Opens the listeners and defines what the files define.
    ///
    /// # Errors
    ///
    /// When a listener can't be opened, or a file can't be read or used.
    pub async fn start(config: SimConfig) -> anyhow::Result<Self> {
        let shutdown = Shutdown::new(shutdown::Config::default());
        let simulator = Simulator::new(shutdown.clone());
        for file in &config.definitions {
            let name = || format!("--crd {}", file.display());
            let text = std::fs::read_to_string(file).with_context(name)?;
            simulator.define(&text).with_context(name)?;
        }
        Self::serve(&config, simulator, shutdown).await
    }

    /// Opens the listeners for a simulator that is there already and ends with `shutdown`.
    ///
    /// # Errors
    ///
    /// When a listener can't be opened.
    pub async fn serve(
        config: &SimConfig,
        simulator: Simulator,
        shutdown: Shutdown,
    ) -> anyhow::Result<Self> {
        let socket = bind("--listen", config.listen).await?;
        let admin_socket = bind("--admin-listen", config.admin_listen).await?;
        let registry = Registry::new();
        let metrics = net::Metrics::new(&registry);
        let listener = |name, socket| {
            let config = net::Config::default();
            Listener::new(name, socket, config, metrics.clone(), shutdown.clone())
        };
        let clients = listener("clients", socket);
        let admins = listener("admin", admin_socket);
        let app = Self {
            shutdown: shutdown.clone(),
            address: clients.local_address()?,
            admin_address: admins.local_address()?,
            simulator: simulator.clone(),
            registry: registry.clone(),
        };
        tracing::info!(clients = app.url(), admin = app.admin_url(), "listening");
        let admin = sim::Admin::new(simulator.clone(), registry.clone());
        let admin = service_fn(move |request| admin.clone().answer(request));
        let metrics = RequestMetrics::new(&registry);
        let answer = move |request| simulator.clone().answer(request);
        let service = server::with_filters(metrics, answer);
        shutdown.spawn(admins.serve(admin));
        shutdown.spawn(clients.serve(service));
        Ok(app)
    }

    /// Where clients connect.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where faults are asked for.
    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin_address)
    }

    /// The store behind it.
    pub fn simulator(&self) -> &Simulator {
        &self.simulator
    }

    /// The metrics, to read while it runs.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Runs until a signal comes, then drains.
    pub async fn run(self, signals: Signals) -> Outcome {
        self.shutdown.run(signals).await
    }
}
