//! The composition root of `kubefan sim`.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use http::Request;
use kubefan_core::api::Query;
use kubefan_core::shutdown;
use kubefan_core::shutdown::{Outcome, Shutdown, Signals};
use kubefan_core::telemetry::Registry;
use kubefan_proxy::app::bind;
use kubefan_proxy::net::Listener;
use kubefan_proxy::server::{Body, RequestMetrics, WebPageRules};
use kubefan_proxy::{net, server};
use tower::service_fn;

use super::served::count;
use crate::agents::Counters;
use crate::config::SimConfig;
use crate::sim;
use crate::sim::Simulator;

/// A running simulated API server; its listeners accept connections.
pub struct SimulatedApp {
    shutdown: Shutdown,
    address: SocketAddr,
    admin_address: SocketAddr,
    /// The counts of what this simulator served to its clients.
    pub(super) served: Arc<Counters>,
}

impl SimulatedApp {
    /// Creates a simulator with the custom resources in the files, and opens the listeners.
    ///
    /// # Errors
    ///
    /// If a listener cannot be opened, or a file cannot be read or has no valid definitions.
    pub async fn start(config: SimConfig) -> anyhow::Result<Self> {
        let shutdown = Shutdown::new(shutdown::Config::default());
        let simulator = Simulator::new(shutdown.clone());
        for file in &config.definitions {
            let name = || format!("--crd {}", file.display());
            // Not on a thread of the runtime: the file may be a pipe.
            let text = tokio::fs::read_to_string(file).await.with_context(name)?;
            simulator.define(&text).with_context(name)?;
        }
        Self::serve(&config, simulator, shutdown).await
    }

    /// Opens the listeners for an existing simulator. Both end with `shutdown`.
    ///
    /// # Errors
    ///
    /// If a listener cannot be opened.
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
            served: Arc::default(),
        };
        tracing::info!(clients = app.url(), admin = app.admin_url(), "listening");
        let admin = sim::Admin::new(simulator.clone(), registry.clone());
        let admin = service_fn(move |request| admin.clone().answer(request));
        let metrics = RequestMetrics::new(&registry);
        let served = app.served.clone();
        let answer = move |request: Request<Body>| {
            let query = Query::parse(request.uri().query().unwrap_or_default());
            let is_watch = matches!(query.first("watch"), Some("true" | "1"));
            let (simulator, served) = (simulator.clone(), served.clone());
            async move { count(&served, is_watch, simulator.answer(request).await) }
        };
        let service = server::with_filters(metrics, WebPageRules::default(), answer);
        shutdown.spawn(admins.serve(admin));
        shutdown.spawn(clients.serve(service));
        Ok(app)
    }

    /// Returns the URL that clients connect to.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the URL of the admin listener, for probes, metrics and fault injection.
    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin_address)
    }

    /// Runs until the first signal arrives, then drains; a second signal aborts the drain.
    pub async fn run(self, signals: Signals) -> Outcome {
        self.shutdown.run(signals).await
    }
}
