//! The composition root of `kubefan serve`: creates the rooms from the configuration, runs them and
//! drains them.
//!
//! [`App::open`] opens the listeners, with everything that does not need the API server.
//! [`Opened::connect`] waits for the API server, and then creates the rest. From then on, requests
//! are answered.

mod api_server;
mod bill;
mod files;
mod reload;
mod resources;
mod tls;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bill::start_bill;
use files::Files;
use kubefan_core::cache::Dispatcher;
use kubefan_core::informer::{InformerSet, Requirement};
use kubefan_core::shutdown::{Outcome, Shutdown, Signals};
use kubefan_core::telemetry::Registry;
use kubefan_core::upstream::{Client, Forwarder};
use reload::Live;
pub use reload::{ConfigSource, ConfigWatch, hangups};
use resources::{require_configured, resources_to_cache, with_rules};
use tls::{Certificate, load_authorities};
use tokio::net::TcpListener;
use tower::service_fn;

use crate::bill::Bill;
use crate::config::{AdminConfig, Resources, ServeConfig};
use crate::identity::AccessControl;
use crate::ledger::{Ledger, sample_kept};
use crate::net::{Listener, ServingThreads};
use crate::server::{Admin, Consumers, Records, Server, Startup, WebPageRules};
use crate::{identity, ledger, net, server};

/// How often the client certificates and CAs of the kubeconfig are read again.
const CREDENTIAL_RELOAD_INTERVAL: Duration = Duration::from_secs(600);

/// A running kubefan that has reached the API server.
pub struct App {
    live: Arc<Live>,
    listening: Listening,
    logs: Consumers,
}

/// A kubefan with listeners that accept connections, but without the API server yet. All requests
/// of clients get 503.
pub struct Opened {
    config: ServeConfig,
    files: Files,
    startup: Startup,
    metrics: server::Metrics,
    admin: Admin,
    listening: Listening,
}

/// The listeners, and what ends them.
struct Listening {
    url: String,
    admin_url: String,
    registry: Registry,
    shutdown: Shutdown,
    /// The serving threads. They end when this value is dropped. `None` as in
    /// [`ServeConfig::threads`].
    _threads: Option<Arc<ServingThreads>>,
}

impl App {
    /// Opens the listeners and waits until the API server has answered.
    ///
    /// # Errors
    ///
    /// As [`App::open`] and [`Opened::connect`].
    pub async fn start(config: ServeConfig) -> anyhow::Result<Self> {
        Self::open(config).await?.connect().await
    }

    /// Opens the listeners.
    ///
    /// # Errors
    ///
    /// If a listener cannot be opened, or a file of the configuration cannot be used. The message
    /// is one line and names the flag or file.
    pub async fn open(config: ServeConfig) -> anyhow::Result<Opened> {
        let socket = bind("--listen", config.listen).await?;
        let admin_socket = bind("--admin-listen", config.admin.listen).await?;
        let registry = Registry::new();
        let mut files = Files::read(&config, &registry).await?;
        let shutdown = Shutdown::new(config.shutdown.clone());
        files.start_traces(&config, &registry, &shutdown).await?;
        let threads = serving_threads(config.threads, &shutdown)?;
        files.watch(&shutdown).await?;
        files.request_client_certificates(&config);

        let startup = Startup::default();
        let metrics = server::Metrics::new(&registry, &config.memory);
        let of_connections = net::Metrics::new(&registry);
        let listener = |name, socket, config| {
            let (metrics, shutdown) = (of_connections.clone(), shutdown.clone());
            Listener::new(name, socket, config, metrics, shutdown)
        };
        let admin_listener = listener("admin", admin_socket, net::Config::admin());
        let admin_listener = with_tls(admin_listener, files.admin_certificate.as_ref());
        let ledger = start_ledger(config.memory, &startup, &registry, &shutdown);
        let listener =
            listener("clients", socket, connections(&config)).with_ledger(ledger.clone());
        let mut listener = with_tls(listener, files.certificate.as_ref());
        if let Some(threads) = &threads {
            listener = listener.on_threads(Arc::clone(threads));
        }
        let listening = Listening {
            url: url(&listener, files.certificate.is_some())?,
            admin_url: url(&admin_listener, files.admin_certificate.is_some())?,
            registry,
            shutdown: shutdown.clone(),
            _threads: threads,
        };
        listening.log(&config);

        let bill = start_bill(&config, &listening.registry, &shutdown);
        let admin = admin(&config.admin, &startup, ledger, bill.clone(), &listening);
        serve_admin(admin.clone(), admin_listener, &listening);
        let logs = files.logs.clone();
        let records = Records {
            metrics: metrics.requests.clone(),
            consumers: Consumers { bill, ..logs },
            has_cache_status: config.requests.has_cache_status,
        };
        let service = startup
            .clone()
            .into_service(records, config.requests.web_pages);
        shutdown.spawn(listener.serve(service));
        Ok(Opened {
            config,
            files,
            startup,
            metrics,
            admin,
            listening,
        })
    }

    /// Applies changes of the configuration to the running kubefan, as far as they can be applied.
    pub fn watch_config(&self, watch: ConfigWatch) {
        watch.run(Arc::clone(&self.live));
    }

    /// Returns the URL that clients connect to.
    pub fn url(&self) -> String {
        self.listening.url.clone()
    }

    /// Returns the URL of the admin listener, for probes and metrics.
    pub fn admin_url(&self) -> String {
        self.listening.admin_url.clone()
    }

    /// Returns the registry with all metrics of this kubefan.
    pub fn registry(&self) -> &Registry {
        &self.listening.registry
    }

    /// Runs until the first signal arrives, then drains; a second signal aborts the drain.
    pub async fn run(self, signals: Signals) -> Outcome {
        let outcome = self.listening.shutdown.run(signals).await;
        self.logs.finish().await;
        outcome
    }
}

impl Opened {
    /// Waits until the API server has answered, and starts the informers of the configured
    /// resources. Cancel safe: when the future is dropped, everything that it waits for ends, even
    /// an exec plugin.
    ///
    /// # Errors
    ///
    /// If the kubeconfig cannot be used, the API server's certificate cannot be verified, or a
    /// configured resource does not exist or cannot be cached. The message is one line and names
    /// the flag, file or server.
    pub async fn connect(self) -> anyhow::Result<App> {
        let (config, startup, listening) = (self.config, self.startup, self.listening);
        let mut files = self.files;
        let (registry, shutdown) = (&listening.registry, &listening.shutdown);
        let client = api_server::connect(&config, &startup).await?;
        shutdown.spawn_background(renew_credentials(client.clone()));
        let discovered = api_server::discover(&client, &startup).await?;
        let rest_mapper = with_rules(discovered, &config)?;
        let informers = InformerSet::new(client.clone(), config.informer.clone(), shutdown.clone());
        let required = resources_to_cache(&config.resources, &rest_mapper)?;
        // Readiness waits for the resources that an operator has named, even if they are refused.
        let need = match &config.resources {
            Resources::Named(_) => Requirement::Named,
            Resources::All => Requirement::IfAllowed,
        };
        require_configured(need, required, &rest_mapper, &informers);

        let (access, admin_access) = access_controls(&config, &client, &listening);
        access.watch_roles(&informers, &rest_mapper, registry, shutdown);
        if let Some(authorities) = files.authorities.take() {
            load_authorities(&access, authorities, files.asking(&config), shutdown).await?;
        }
        let server = Server::new(
            access,
            informers.clone(),
            Arc::clone(&rest_mapper),
            Forwarder::new(client),
            config.requests,
            self.metrics,
            shutdown.clone(),
        );
        startup.finish(server.clone(), admin_access);
        let live = Live {
            informers: informers.clone(),
            rest_mapper: Arc::clone(&rest_mapper),
            server,
            admin: self.admin,
            registry: registry.clone(),
            shutdown: shutdown.clone(),
        };
        shutdown.spawn_background(async move { rest_mapper.run(informers).await });
        Ok(App {
            live: Arc::new(live),
            listening,
            logs: files.logs,
        })
    }
}

impl Listening {
    fn log(&self, config: &ServeConfig) {
        let (clients, admin, auth) = (&self.url, &self.admin_url, config.access.mode);
        tracing::info!(clients, %auth, admin, "listening");
        if config.is_exposed {
            match auth {
                identity::Mode::None => tracing::warn!(
                    clients,
                    "callers are not authenticated: anyone who reaches this address reads and writes \
                     with kubefan's rights"
                ),
                identity::Mode::Caller | identity::Mode::Delegated => tracing::warn!(
                    clients,
                    "TLS is not served: anyone on the network can read the callers' tokens"
                ),
            }
        }
        if config.admin.is_exposed {
            tracing::warn!(
                admin,
                "anyone who reaches this address reads the metrics; the admin API is closed"
            );
        }
    }
}

fn url(listener: &Listener, is_tls: bool) -> anyhow::Result<String> {
    let scheme = if is_tls { "https" } else { "http" };
    Ok(format!("{scheme}://{}", listener.local_address()?))
}

/// Returns the access control of clients, and the access control of the callers of metrics and
/// details, if there is one.
fn access_controls(
    config: &ServeConfig,
    client: &Client,
    listening: &Listening,
) -> (AccessControl, Option<AccessControl>) {
    let (registry, shutdown) = (&listening.registry, &listening.shutdown);
    let metrics = identity::Metrics::new(registry);
    let new = |config: &identity::Config| {
        let (client, metrics) = (client.clone(), metrics.clone());
        AccessControl::new(config, client, metrics, registry, shutdown)
    };
    let access = new(&config.access);
    let sampled = access.clone();
    registry.on_scrape(move |samples| {
        for (kind, bytes, limit) in sampled.kept_bytes() {
            sample_kept(samples, kind, bytes, limit);
        }
    });
    let of_admin = config.admin.access.as_ref();
    let admin = of_admin.map(|of_admin| {
        if config.access.mode == of_admin.mode {
            access.clone()
        } else {
            new(of_admin)
        }
    });
    (access, admin)
}

fn with_tls(listener: Listener, certificate: Option<&Certificate>) -> Listener {
    match certificate {
        Some(certificate) => listener.with_tls(certificate.acceptor.clone()),
        None => listener,
    }
}

/// Creates the service of the admin listener.
fn admin(
    config: &AdminConfig,
    startup: &Startup,
    ledger: Ledger,
    bill: Option<Arc<Bill>>,
    listening: &Listening,
) -> Admin {
    let (registry, shutdown) = (listening.registry.clone(), listening.shutdown.clone());
    let web_pages = WebPageRules {
        has_local_name: config.listen.ip().is_loopback(),
        are_callers_authenticated: config.access.is_some(),
    };
    Admin::new(startup.clone(), ledger, bill, registry, shutdown, web_pages)
}

/// Answers probes, scrapes and requests of the admin API on `listener`.
fn serve_admin(admin: Admin, listener: Listener, listening: &Listening) {
    let admin = service_fn(move |request| admin.clone().answer(request));
    listening.shutdown.spawn(listener.serve(admin));
}

/// Returns the limits of the listener for clients and of its connections.
fn connections(config: &ServeConfig) -> net::Config {
    let connections = net::Config {
        measures_cpu: config.requests.has_bill,
        ..config.connections.clone()
    };
    connections.within_open_files(net::open_files_limit())
}

/// Creates the ledger, which counts the memory of clients' requests, and runs it.
fn start_ledger(
    limits: ledger::Limits,
    startup: &Startup,
    registry: &Registry,
    shutdown: &Shutdown,
) -> Ledger {
    let evicting = startup.clone();
    let ledger = Ledger::with_metrics(limits, move || evicting.evicted_bytes(), registry);
    shutdown.spawn_background(ledger.clone().run());
    ledger
}

fn serving_threads(
    count: Option<NonZeroUsize>,
    shutdown: &Shutdown,
) -> anyhow::Result<Option<Arc<ServingThreads>>> {
    let start = |count| ServingThreads::start(count, Dispatcher::install);
    let threads = count.map(start).transpose();
    let threads = threads.context("cannot start the serving threads")?;
    if threads.is_some() {
        shutdown.set_background_runtime();
    }
    Ok(threads.map(Arc::new))
}

/// Reloads the client certificates and CAs of the kubeconfig regularly, because they may be
/// rotated. Tokens need no reload, because the client renews them itself.
async fn renew_credentials(client: Client) {
    loop {
        tokio::time::sleep(CREDENTIAL_RELOAD_INTERVAL).await;
        if let Err(error) = client.reload().await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "cannot reload the credentials, keeping the old ones");
        }
    }
}

/// Opens the socket of a listener at `address`.
///
/// # Errors
///
/// The socket can't be opened. The error names `flag`, which sets the address.
pub async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{flag}: cannot listen on {address}"))
}
