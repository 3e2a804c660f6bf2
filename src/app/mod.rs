//! The composition root of `kubefan serve`: creates the rooms from the configuration, runs them and
//! drains them.

mod reload;
mod tls;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tower::service_fn;

use crate::api::GroupVersionResource;
use crate::api::WireFormat;
use crate::audit::AuditLog;
use crate::cache::Dispatcher;
use crate::config::Resources;
use crate::config::ServeConfig;
use crate::identity;
use crate::identity::AccessControl;
use crate::informer::InformerSet;
use crate::informer::LiveRestMapper;
use crate::informer::Requirement;
use crate::informer::ResourceRule;
use crate::informer::ResourceRules;
use crate::ledger::Ledger;
use crate::ledger::sample_kept;
use crate::net;
use crate::net::Listener;
use crate::net::ServingThreads;
use crate::server;
use crate::server::Admin;
use crate::server::Server;
use crate::shutdown::Outcome;
use crate::shutdown::Shutdown;
use crate::shutdown::Signals;
use crate::telemetry::Registry;
use crate::upstream::Client;
use crate::upstream::ClientConfig;
use crate::upstream::Forwarder;
use crate::upstream::NotCacheable;
use crate::upstream::RestMapper;
use crate::upstream::UnknownResource;

use reload::Live;
use tls::Certificate;
use tls::load_authorities;

pub use reload::ConfigSource;
pub use reload::Hangups;

/// How often the client certificates and CAs of the kubeconfig are read again.
const CREDENTIAL_RELOAD_INTERVAL: Duration = Duration::from_secs(600);
/// How long discovery at start may take.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(15);

/// A running kubefan, whose listeners accept connections.
pub struct App {
    live: Arc<Live>,
    shutdown: Shutdown,
    address: SocketAddr,
    admin_address: SocketAddr,
    scheme: &'static str,
    admin_scheme: &'static str,
    registry: Registry,
    audit: Option<Arc<AuditLog>>,
    /// The serving threads, which end when the `App` is dropped; `None` as in
    /// [`ServeConfig::threads`].
    _threads: Option<Arc<ServingThreads>>,
}

impl App {
    /// Opens the listeners, connects to the API server, and starts the informers of the configured
    /// resources.
    ///
    /// # Errors
    ///
    /// If a listener cannot be opened, the kubeconfig cannot be used, the API server cannot be
    /// reached, or a configured resource does not exist or cannot be cached. The message is one
    /// line and names the flag, file or server.
    pub async fn start(config: ServeConfig) -> anyhow::Result<Self> {
        let socket = bind("--listen", config.listen).await?;
        let admin_socket = bind("--admin-listen", config.admin.listen).await?;
        let certificate = Certificate::of_clients(&config.tls, config.listen)?;
        let admin_certificate = Certificate::of_admin(&config.admin, certificate.as_ref())?;
        let client = connect(&config).await?;
        let server_url = client.server().to_owned();
        let rest_mapper = discover(&client).await?;
        let rest_mapper = rest_mapper.with_rules(config.rules.clone());
        let rest_mapper = Arc::new(match config.cache_secrets {
            true => rest_mapper,
            false => rest_mapper.excluding("", "secrets"),
        });
        check_rules(&config.rules, &rest_mapper)?;

        let shutdown = Shutdown::new(config.shutdown.clone());
        let registry = Registry::new();
        let informers = InformerSet::new(client.clone(), config.informer.clone(), shutdown.clone());
        let required = resources_to_cache(&config.resources, &rest_mapper)?;
        let need = match &config.resources {
            Resources::Named(_) => Requirement::Named,
            Resources::All => Requirement::IfAllowed,
        };
        require_configured(need, required, &rest_mapper, &informers);
        let access_metrics = identity::Metrics::new(&registry);
        let new_access = |config: &identity::Config| {
            let (client, metrics) = (client.clone(), access_metrics.clone());
            AccessControl::new(config, client, metrics, &registry, &shutdown)
        };
        let access = new_access(&config.access);
        let sampled = access.clone();
        registry.on_scrape(move |samples| {
            if let Some((bytes, limit)) = sampled.decision_bytes() {
                sample_kept(samples, "decision", bytes, limit);
            }
        });
        access.watch_roles(&informers, &rest_mapper, &registry, &shutdown);
        let admin_access = config.admin.access.as_ref().map(|of_admin| {
            match config.access.mode == of_admin.mode {
                true => access.clone(),
                false => new_access(of_admin),
            }
        });
        let mut certified = Vec::from_iter(certificate.as_ref());
        certified.extend(
            admin_certificate
                .as_ref()
                .filter(|_| admin_access.is_some()),
        );
        if let Some(sources) = config.authorities.clone() {
            load_authorities(&access, sources, &certified, &shutdown).await?;
        }
        for certificate in [&certificate, &admin_certificate].into_iter().flatten() {
            certificate.watch(&shutdown).await?;
        }
        let audit = config.audit_log.as_deref();
        let audit = audit
            .map(|path| open_audit_log(path, &registry))
            .transpose()?;
        let mut server = Server::new(
            access,
            informers.clone(),
            Arc::clone(&rest_mapper),
            Forwarder::new(client.clone()),
            config.requests,
            server::Metrics::new(&registry, &config.memory),
            shutdown.clone(),
        );
        if let Some(audit) = &audit {
            server = server.with_audit(Arc::clone(audit));
        }
        let renewed = client;
        let mut admin = Admin::new(informers.clone(), registry.clone(), shutdown.clone());
        if let Some(access) = admin_access {
            admin = admin.with_access(access);
        }

        let threads = serving_threads(config.threads)?;
        if threads.is_some() {
            shutdown.set_background_runtime();
        }
        let evicted = informers.evicted_bytes().clone();
        let ledger = Ledger::with_metrics(config.memory, move || evicted.get(), &registry);
        shutdown.spawn_background(ledger.clone().run());
        let metrics = net::Metrics::new(&registry);
        let listener = |name, socket, config| {
            Listener::new(name, socket, config, metrics.clone(), shutdown.clone())
        };
        let mut admin_listener = listener("admin", admin_socket, net::Config::admin());
        if let Some(certificate) = &admin_certificate {
            admin_listener = admin_listener.with_tls(certificate.acceptor.clone());
        }
        let connections = config.connections;
        let connections = connections.within_open_files(net::open_files_limit());
        let client_listener = listener("clients", socket, connections);
        let mut client_listener = client_listener.with_ledger(ledger);
        if let Some(certificate) = &certificate {
            client_listener = client_listener.with_tls(certificate.acceptor.clone());
        }
        if let Some(threads) = &threads {
            client_listener = client_listener.on_threads(Arc::clone(threads));
        }
        let live = Arc::new(Live {
            informers: informers.clone(),
            rest_mapper: Arc::clone(&rest_mapper),
            server: server.clone(),
            registry: registry.clone(),
            shutdown: shutdown.clone(),
        });
        let app = Self {
            live,
            address: client_listener.local_address()?,
            admin_address: admin_listener.local_address()?,
            scheme: scheme(certificate.is_some()),
            admin_scheme: scheme(admin_certificate.is_some()),
            shutdown: shutdown.clone(),
            registry,
            audit,
            _threads: threads,
        };
        app.log_addresses(&server_url, config.access.mode);
        if config.is_exposed {
            app.warn_of_exposure(config.access.mode);
        }
        if config.admin.is_exposed {
            let admin = app.admin_url();
            tracing::warn!(admin, "anyone who reaches this address reads the metrics");
        }
        shutdown.spawn_background(async move { rest_mapper.run(informers).await });
        shutdown.spawn_background(renew_credentials(renewed));
        let admin = service_fn(move |request| admin.clone().answer(request));
        shutdown.spawn(admin_listener.serve(admin));
        shutdown.spawn(client_listener.serve(server.into_service()));
        Ok(app)
    }

    fn log_addresses(&self, upstream: &str, auth: identity::Mode) {
        let (clients, admin) = (self.url(), self.admin_url());
        tracing::info!(upstream, clients, %auth, admin, "listening");
    }

    fn warn_of_exposure(&self, mode: identity::Mode) {
        let clients = self.url();
        match mode {
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

    /// Reads the configuration again after each of `hangups`, and when its file has changed, and applies
    /// what can change while kubefan runs.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub async fn watch_config(&self, source: ConfigSource, hangups: Hangups) -> anyhow::Result<()> {
        reload::watch(source, hangups, Arc::clone(&self.live)).await
    }

    /// The URL that clients connect to.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// The URL of the admin listener, for probes and metrics.
    pub fn admin_url(&self) -> String {
        format!("{}://{}", self.admin_scheme, self.admin_address)
    }

    /// The registry with all metrics of this kubefan.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Runs until the first signal arrives, then drains; a second signal aborts the drain.
    pub async fn run(self, signals: Signals) -> Outcome {
        let outcome = self.shutdown.run(signals).await;
        if let Some(audit) = &self.audit {
            audit.finish().await;
        }
        outcome
    }
}

fn open_audit_log(path: &Path, registry: &Registry) -> anyhow::Result<Arc<AuditLog>> {
    let log = AuditLog::open(path, registry);
    let log = log.with_context(|| format!("--audit-log-path: cannot open {}", path.display()));
    log.map(Arc::new)
}

fn scheme(is_tls: bool) -> &'static str {
    if is_tls { "https" } else { "http" }
}

async fn connect(config: &ServeConfig) -> anyhow::Result<Client> {
    let client = Client::connect(ClientConfig {
        kubeconfig: config.kubeconfig.clone(),
        context: config.context.clone(),
        ping_interval: config.ping_interval,
        ping_timeout: config.ping_timeout,
        ..ClientConfig::default()
    });
    Ok(client.await?)
}

async fn discover(client: &Client) -> anyhow::Result<LiveRestMapper> {
    let server = client.server();
    timeout(DISCOVERY_TIMEOUT, LiveRestMapper::discover(client.clone()))
        .await
        .with_context(|| format!("{server} did not answer within {DISCOVERY_TIMEOUT:?}"))?
        .with_context(|| format!("cannot discover the resources of {server}"))
}

fn serving_threads(count: Option<NonZeroUsize>) -> anyhow::Result<Option<Arc<ServingThreads>>> {
    let start = |count| ServingThreads::start(count, Dispatcher::install);
    let threads = count.map(start).transpose();
    let threads = threads.context("cannot start the serving threads")?;
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

/// Opens the socket of a listener. An error names `flag`, which sets the address.
pub(crate) async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{flag}: cannot listen on {address}"))
}

/// The resources that are cached from the start.
fn resources_to_cache(
    resources: &Resources,
    rest_mapper: &LiveRestMapper,
) -> anyhow::Result<Vec<GroupVersionResource>> {
    let all = |mapper: &RestMapper| -> Vec<GroupVersionResource> {
        let resources = mapper.resources();
        resources.map(|resource| resource.gvr.clone()).collect()
    };
    Ok(match resources {
        Resources::Named(names) => find_named(rest_mapper, names)?,
        Resources::All => {
            let mut all = rest_mapper.with(all);
            all.retain(|gvr| rest_mapper.cacheable(gvr).is_ok());
            all
        }
    })
}

/// Requires what is cached of `found`, the resources that are cached from the start, and starts their
/// informers: one for JSON, and one for protobuf unless the resource is a custom one.
fn require_configured(
    need: Requirement,
    found: Vec<GroupVersionResource>,
    rest_mapper: &LiveRestMapper,
    informers: &InformerSet,
) {
    for gvr in found {
        for format in [WireFormat::Json, WireFormat::Protobuf] {
            let spec = rest_mapper.known_informer_spec(&gvr, format);
            let spec = spec.filter(|spec| format == WireFormat::Json || !spec.custom);
            if let Some(spec) = spec {
                informers.require(&spec, need);
            }
        }
    }
    rest_mapper.pin_required(informers);
}

/// Checks that each rule fits its resource, and that no resource has two.
fn check_rules(rules: &ResourceRules, rest_mapper: &LiveRestMapper) -> anyhow::Result<()> {
    rest_mapper.with(|mapper| {
        for name in rules.unknown_never(mapper) {
            tracing::warn!(name, "cache.never: the API server has no such resource now");
        }
    });
    let mut seen: Vec<(GroupVersionResource, &str)> = Vec::new();
    for ResourceRule { resource: name, .. } in &rules.rules {
        let found = rest_mapper.with(|mapper| mapper.find(name).map(|found| found.gvr.clone()));
        // An unknown resource may be defined later.
        let Ok(gvr) = found else { continue };
        let context = || format!("cache.resources: {name}");
        rest_mapper.check_rule(&gvr).with_context(context)?;
        if let Some((_, other)) = seen.iter().find(|(known, _)| *known == gvr) {
            return Err(anyhow::anyhow!("{other} is the same resource")).with_context(context);
        }
        seen.push((gvr, name));
    }
    Ok(())
}

fn find_named(
    rest_mapper: &LiveRestMapper,
    names: &[String],
) -> anyhow::Result<Vec<GroupVersionResource>> {
    let find = |name: &String| -> anyhow::Result<_> {
        let context = || format!("--resource {name}");
        let found = rest_mapper.with(|mapper| Ok(mapper.find(name)?.gvr.clone()));
        let gvr =
            found.map_err(|error: UnknownResource| anyhow::Error::new(error).context(context()))?;
        match rest_mapper.cacheable(&gvr) {
            // Only Secrets are ever excluded.
            Err(NotCacheable::Excluded) => Err(anyhow::anyhow!(
                "it is cached over TLS only with --cache-secrets"
            )),
            cacheable => cacheable.map_err(anyhow::Error::new),
        }
        .with_context(context)?;
        Ok(gvr)
    };
    names.iter().map(find).collect()
}
