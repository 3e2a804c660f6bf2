//! Turns the settings of `kubefan serve` into a checked [`ServeConfig`], or reports all problems.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use kubefan_core::api::is_label_key;
use kubefan_core::cache::GroupLimits;
use kubefan_core::informer::ResourceRules;
use kubefan_core::{informer, shutdown};

use super::admin::AdminConfig;
use super::cached_resource::CachedResource;
use super::certificate::{CertificateKeys, ListenerCertificate};
use super::expansion::Lookup;
use super::freshness_rule::FreshnessRule;
use super::problem::Problem;
use super::settings::{Limits, Settings};
use super::sources::Sources;
use super::units::ByteSize;
use super::{AuthMode, ShardSelectorMode, address};
use crate::net::ProxyNetworks;
use crate::server::{ShardSelectors, UserLimits, WebPageRules};
use crate::{identity, ledger, net, server};

/// The sizes that `limits.maxHeaderBytes` may have; hyper needs 8 KiB.
const HEADER_BYTES: RangeInclusive<usize> = 8 << 10..=16 << 20;
/// The sizes that `limits.maxUrlBytes` may have.
const URL_BYTES: RangeInclusive<usize> = 1 << 10..=64 << 10;
/// Values that the kernel accepts, in milliseconds as a 32-bit number.
const WRITE_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(24 * 24 * 3600);
/// Values that the kernel accepts, in seconds as a 16-bit number.
const TCP_KEEPALIVE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(9 * 3600);

/// The most verbose log.
const MAX_VERBOSITY: u8 = 2;

const EMPTY_NAME: &str = "a name is empty; names are for example pods or deployments.apps";

/// A checked configuration of `kubefan serve`.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Kubeconfig of the API server; `None` for `KUBECONFIG`, `~/.kube/config`, or the pod's
    /// service account.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; `None` for its current context.
    pub context: Option<String>,
    /// As [`ClientConfig::ping_interval`](kubefan_core::upstream::ClientConfig::ping_interval).
    pub ping_interval: Duration,
    /// As [`ClientConfig::ping_timeout`](kubefan_core::upstream::ClientConfig::ping_timeout).
    pub ping_timeout: Duration,
    /// Address for clients.
    pub listen: SocketAddr,
    /// True if programs on other machines can read with kubefan's rights, or read tokens on the
    /// line. The operator has accepted this.
    pub is_exposed: bool,
    /// The listener for probes and metrics.
    pub admin: AdminConfig,
    /// Number of serving threads; `None` to serve clients on the runtime that starts kubefan, as
    /// the demo does.
    pub threads: Option<NonZeroUsize>,
    /// The resources that are cached from the start.
    pub resources: Resources,
    /// Which of their objects are cached, and how.
    pub rules: ResourceRules,
    /// Whether Secrets are held in memory.
    pub cache_secrets: bool,
    /// The settings of the informers and their caches.
    pub informer: informer::Config,
    /// Where audit events are written; `-` for standard output, `None` for no audit log.
    pub audit_log: Option<PathBuf>,
    /// Whether clients connect with TLS, and with which certificate.
    pub tls: Tls,
    /// How callers are authenticated and authorized.
    pub access: identity::Config,
    /// Where the authorities of client certificates are from.
    pub authorities: Option<identity::AuthoritySources>,
    /// The limits of the listener for clients and of its connections.
    pub connections: net::Config,
    /// The limits of the memory that is held for readers and callers.
    pub memory: ledger::Limits,
    /// The limits of requests.
    pub requests: server::Config,
    /// How long the listeners are open, and how long running requests and watches may take, at
    /// shutdown.
    pub shutdown: shutdown::Config,
}

/// The resources that are cached from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resources {
    /// Resources by the names that kubectl accepts, such as `deployments.apps`; may be empty.
    Named(Vec<String>),
    /// Every resource that can be cached.
    All,
}

/// Whether clients connect with TLS, and with which certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Clients connect with plain HTTP.
    Plain,
    /// Clients connect with TLS; the certificate is from files.
    Files {
        /// Path of the certificate chain (PEM).
        certificate: PathBuf,
        /// Path of the certificate's private key (PEM).
        key: PathBuf,
    },
    /// Clients connect with TLS; the certificate is from kubefan's own CA, which is created if it
    /// does not exist.
    SelfSigned {
        /// The directory of the CA, the certificate and their keys.
        directory: PathBuf,
    },
}

// === impl ServeConfig ===

/// Checks the settings against each other. `variable` looks up environment variables that they refer
/// to. Adds what is wrong to `problems`, and returns `None` if
/// there is any problem, also one from reading the file.
pub(super) fn check(
    settings: &Settings,
    sources: &Sources,
    variable: Lookup<'_>,
    problems: &mut Vec<Problem>,
) -> Option<ServeConfig> {
    let mut checker = Checker {
        settings,
        sources,
        problems,
    };
    let listen = checker.address("listen.address", &settings.listen.address);
    let tls = checker.tls();
    let mut access = access(settings, &tls);
    let admin = checker.admin(&tls, &access);
    let exposure = listen.map(|listen| Exposure::of(listen, &tls, access.mode));
    if let Some(exposure) = exposure {
        checker.exposure(exposure);
    }
    let authorities = checker.authorities(&access);
    let resources = checker.resources();
    let rules = checker.rules(variable);
    checker.limits();
    let memory = checker.memory();
    access.token_bytes = memory.share(identity::Config::DEFAULT_TOKEN_BYTES);
    access.decision_bytes = memory.share(identity::Config::DEFAULT_DECISION_BYTES);
    if !problems.is_empty() {
        return None;
    }
    let cache = &settings.cache;
    Some(ServeConfig {
        kubeconfig: settings.upstream.kubeconfig.clone(),
        context: settings.upstream.context.clone(),
        ping_interval: settings.upstream.ping_interval.0,
        ping_timeout: settings.upstream.ping_timeout.0,
        listen: listen?,
        is_exposed: exposure?.danger.is_some(),
        admin: admin?,
        threads: Some(settings.listen.threads.unwrap_or_else(cores)),
        resources,
        rules,
        cache_secrets: cache.secrets || tls == Tls::Plain,
        informer: informer::Config {
            idle_timeout: cache.idle_timeout.0,
            indexed_labels: cache.index_labels.clone(),
            retention_age: cache.retention_age.0,
            retention_bytes: cache.retention_bytes.map(|size| size.0),
            groups: GroupLimits {
                unindexed: max_unindexed(&settings.limits),
                idle_bytes: memory.share(GroupLimits::DEFAULT_IDLE_BYTES),
                queue_bytes: memory.share(GroupLimits::DEFAULT_QUEUE_BYTES),
                ..GroupLimits::default()
            },
            bridge_bytes: memory.share(informer::Config::DEFAULT_BRIDGE_BYTES),
            freshness: FreshnessRule::policies(&cache.freshness),
            max_unauthorized: settings.limits.max_unauthorized.0,
            max_staleness: settings.limits.max_staleness.map(|period| period.0),
            hooks: informer::Hooks::default(),
            seed: None,
        },
        audit_log: settings.audit.log_path.clone(),
        tls,
        access,
        authorities,
        connections: connections(settings)?,
        memory,
        requests: server::Config {
            max_requests_inflight: settings.limits.max_requests_inflight,
            max_url_bytes: settings.limits.max_url_bytes.0,
            max_unindexed_selectors: max_unindexed(&settings.limits),
            users: UserLimits {
                streams: settings.limits.max_streams_per_user,
                watches: settings.limits.max_watches_per_user,
                proof_scopes: settings.limits.max_proof_scopes_per_user,
            },
            request_timeout: settings.limits.request_timeout.0,
            write_timeout: settings.limits.write_timeout.0,
            shard_selectors: match cache.shard_selector {
                ShardSelectorMode::Forward => ShardSelectors::Forward,
                ShardSelectorMode::Serve => ShardSelectors::Serve,
            },
            web_pages: exposure?.web_pages,
        },
        shutdown: shutdown::Config {
            not_ready_delay: settings.shutdown.delay.0,
            grace: settings.shutdown.grace_period.0,
        },
    })
}

/// Which programs can reach the listener for clients, and what follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exposure {
    /// What goes wrong if the address is used; `None` if nothing does.
    danger: Option<&'static str>,
    web_pages: WebPageRules,
}

pub(super) struct Checker<'a> {
    pub(super) settings: &'a Settings,
    pub(super) sources: &'a Sources,
    problems: &'a mut Vec<Problem>,
}

// === impl Exposure ===

impl Exposure {
    fn of(listen: SocketAddr, tls: &Tls, mode: identity::Mode) -> Self {
        let is_loopback = listen.ip().is_loopback();
        let (is_plain, is_open) = (*tls == Tls::Plain, mode == identity::Mode::None);
        let danger = match (is_open, is_plain) {
            _ if is_loopback => None,
            (true, _) => Some(
                "with --auth none kubefan answers everyone with its own rights; use 127.0.0.1 or \
                 [::1], or serve TLS with --auth caller",
            ),
            (false, true) => Some(
                "without TLS anyone on the network can read the tokens; use 127.0.0.1 or [::1], or \
                 serve TLS",
            ),
            (false, false) => None,
        };
        let web_pages = WebPageRules {
            // A browser compares the certificate's names with the page's. A user may accept any
            // certificate, so this counts only if the page needs credentials, too.
            has_local_name: is_loopback && (is_open || is_plain),
            are_callers_authenticated: !is_open,
        };
        Self { danger, web_pages }
    }
}

// === impl Checker ===

impl Checker<'_> {
    pub(super) fn report(&mut self, key: &'static str, message: &str) {
        self.problems.push(self.sources.problem(key, message));
    }

    /// Like [`Checker::report`], of an element of the setting's list, or of one of its keys.
    pub(super) fn report_in(
        &mut self,
        key: &'static str,
        part: (usize, Option<&str>),
        message: &str,
    ) {
        self.problems
            .push(self.sources.problem_in(key, part, message));
    }

    pub(super) fn address(&mut self, key: &'static str, text: &str) -> Option<SocketAddr> {
        let address = address::parse(text);
        address.map_err(|message| self.report(key, &message)).ok()
    }

    /// Reports an address that would let others read with kubefan's rights, unless the operator
    /// accepts that.
    fn exposure(&mut self, exposure: Exposure) {
        const ADDRESS: &str = "listen.address";
        const ACCEPTED: &str = "listen.insecureExposeToNetwork";
        match (
            exposure.danger,
            self.settings.listen.insecure_expose_to_network,
        ) {
            (Some(danger), false) => {
                let address = &self.settings.listen.address;
                self.report(ADDRESS, &format!("{address} is not loopback: {danger}"));
            }
            (None, true) => {
                let message = "has no effect: the listener is not exposed; leave it out";
                self.report(ACCEPTED, message);
            }
            (Some(_), true) | (None, false) => {}
        }
    }

    /// The authorities of client certificates, which are used only if callers are authenticated.
    fn authorities(&mut self, access: &identity::Config) -> Option<identity::AuthoritySources> {
        const ANONYMOUS: &str = "authentication.anonymous";
        const CLIENT: &str = "authentication.clientCaFile";
        const PROXY: &str = "authentication.requestheaderClientCaFile";
        const NAMES: &str = "authentication.requestheaderAllowedNames";
        const ACCEPTED_CERTIFICATES: &str = "authentication.clientCertificates";
        let authentication = &self.settings.authentication;
        let sources = identity::AuthoritySources {
            client_ca: authentication.client_ca_file.clone(),
            request_header_ca: authentication.requestheader_client_ca_file.clone(),
            request_header_allowed_names: authentication.requestheader_allowed_names.clone(),
        };
        let is_off = access.mode == identity::Mode::None;
        let are_accepted = authentication.client_certificates;
        let is_anonymous = authentication.anonymous;
        for (key, is_set, is_used) in [
            (ANONYMOUS, is_anonymous, true),
            (CLIENT, sources.client_ca.is_some(), are_accepted),
            (PROXY, sources.request_header_ca.is_some(), are_accepted),
        ] {
            if is_off && is_set {
                self.report(key, "has no effect with --auth none");
            } else if is_set && !is_used {
                let other = self.sources.name(ACCEPTED_CERTIFICATES, key);
                self.report(key, &format!("has no effect without {other}"));
            }
        }
        if sources.request_header_ca.is_none() && !sources.request_header_allowed_names.is_empty() {
            let other = self.sources.name(PROXY, NAMES);
            self.report(NAMES, &format!("has no effect without {other}; add it"));
        }
        are_accepted.then_some(sources)
    }

    fn tls(&mut self) -> Tls {
        const KEYS: CertificateKeys = CertificateKeys {
            certificate: "listen.tls.certFile",
            key: "listen.tls.keyFile",
            self_signed: "listen.tls.selfSigned",
        };
        const DIRECTORY: &str = "listen.tls.directory";
        let tls = &self.settings.listen.tls;
        let (certificate, key) = (tls.cert_file.as_ref(), tls.key_file.as_ref());
        let (key, message) = match KEYS.choose(certificate, key, tls.self_signed, self.sources) {
            Ok(ListenerCertificate::Files { certificate, key }) => {
                return Tls::Files { certificate, key };
            }
            Ok(ListenerCertificate::SelfSigned) => {
                match tls.directory.clone().or_else(default_tls_dir) {
                    Some(directory) => return Tls::SelfSigned { directory },
                    None => {
                        let other = self.sources.name(DIRECTORY, KEYS.self_signed);
                        let message = format!("needs {other}, because HOME is not set");
                        (KEYS.self_signed, message)
                    }
                }
            }
            Ok(ListenerCertificate::Plain) if tls.directory.is_some() => {
                let other = self.sources.name(KEYS.self_signed, DIRECTORY);
                let message = format!("has no effect without {other}; add it");
                (DIRECTORY, message)
            }
            Ok(ListenerCertificate::Plain) => return Tls::Plain,
            Err(mistake) => mistake,
        };
        self.report(key, &message);
        Tls::Plain
    }

    fn limits(&mut self) {
        let limits = &self.settings.limits;
        let upstream = &self.settings.upstream;
        for (key, timeout) in [
            ("upstream.pingInterval", upstream.ping_interval),
            ("upstream.pingTimeout", upstream.ping_timeout),
            ("cache.idleTimeout", self.settings.cache.idle_timeout),
            ("limits.requestTimeout", limits.request_timeout),
            ("limits.handshakeTimeout", limits.handshake_timeout),
            ("limits.headTimeout", limits.head_timeout),
        ] {
            if timeout.0.is_zero() {
                self.report(key, "must be more than 0s, such as 10s");
            }
        }
        if self.settings.log.verbosity > MAX_VERBOSITY {
            self.report("log.verbosity", "must be 0, 1 for debug, or 2 for trace");
        }
        if !WRITE_TIMEOUT.contains(&limits.write_timeout.0) {
            self.report("limits.writeTimeout", "must be from 1s to 24d");
        }
        if !TCP_KEEPALIVE.contains(&limits.tcp_keepalive.0) {
            self.report("limits.tcpKeepalive", "must be from 1s to 9h");
        }
        let sizes = [
            (
                "limits.maxHeaderBytes",
                limits.max_header_bytes.0,
                HEADER_BYTES,
                "8Ki to 16Mi",
            ),
            (
                "limits.maxUrlBytes",
                limits.max_url_bytes.0,
                URL_BYTES,
                "1Ki to 64Ki",
            ),
        ];
        for (key, bytes, possible, name) in sizes {
            if !possible.contains(&bytes) {
                self.report(key, &format!("{bytes} bytes are not from {name}"));
            }
        }
    }

    fn memory(&mut self) -> ledger::Limits {
        let limits = &self.settings.limits;
        let sizes = [
            ("limits.memory", limits.memory, ledger::Limits::MIN_MEMORY),
            (
                "limits.connectionMemory",
                limits.connection_memory,
                ledger::Limits::MIN_CONNECTION_MEMORY,
            ),
        ];
        let bytes = |size: ByteSize| size.0 as u64;
        let [memory, connection_memory] = sizes.map(|(key, size, least)| {
            let size = size.map(bytes);
            if size.is_some_and(|size| size < least) {
                self.report(key, &format!("must be at least {}Mi", least >> 20));
            }
            size
        });
        ledger::Limits::new(memory, connection_memory, bytes(limits.min_body_rate))
    }

    fn resources(&mut self) -> Resources {
        const ALL: &str = "cache.all";
        const NAMES: &str = "cache.resources";
        let cache = &self.settings.cache;
        let is_overriding = self.sources.overrides(ALL, NAMES);
        let is_name = |entry: &CachedResource| matches!(entry, CachedResource::Named(_));
        if cache.all && cache.resources.iter().any(is_name) && !is_overriding {
            let other = self.sources.name(NAMES, ALL);
            let message = format!("already includes every resource; leave out {other}");
            self.report(ALL, &message);
        }
        let mut names = cache.resources.iter().map(CachedResource::name);
        if names.any(|name| name.trim().is_empty()) {
            self.report(NAMES, EMPTY_NAME);
        }
        let mut labels = cache.index_labels.iter();
        if let Some(label) = labels.find(|label| !is_label_key(label)) {
            let message =
                format!("{label:?} is not the key of a label, such as app.kubernetes.io/name");
            self.report("cache.indexLabels", &message);
        }
        if cache.never.iter().any(|name| name.trim().is_empty()) {
            self.report("cache.never", EMPTY_NAME);
        }
        let from_start = cache.resources.iter().filter(|entry| entry.is_from_start());
        match cache.all {
            true => Resources::All,
            false => Resources::Named(from_start.map(|entry| entry.name().to_owned()).collect()),
        }
    }
}

/// How callers are authenticated and authorized.
fn access(settings: &Settings, tls: &Tls) -> identity::Config {
    let (authentication, authorization) = (&settings.authentication, &settings.authorization);
    let mode = match authentication.mode {
        Some(AuthMode::Caller) => identity::Mode::Caller,
        Some(AuthMode::Delegated) => identity::Mode::Delegated,
        Some(AuthMode::None) => identity::Mode::None,
        None if *tls == Tls::Plain => identity::Mode::None,
        None => identity::Mode::Caller,
    };
    identity::Config {
        mode,
        anonymous: authentication.anonymous,
        token_ttl: authentication.token_ttl.0,
        allowed_ttl: authorization.allowed_ttl.0,
        denied_ttl: authorization.denied_ttl.0,
        stale: authorization.stale.0,
        reauthorize: authorization.reauthorize.0,
        max_reviews_per_second: authorization.max_reviews_per_second,
        reauthenticate: authentication.reauthenticate.0,
        max_reviews_in_flight: settings.limits.max_reviews_inflight,
        max_failed_per_second: settings.limits.max_failed_authentications_per_second,
        names_covered: authorization.names_covered,
        ignored_extra: authorization.ignore_extra.clone(),
        ..identity::Config::default()
    }
}

/// The most selections that no index finds, watched in one cache.
fn max_unindexed(limits: &Limits) -> usize {
    match limits.max_unindexed_selectors {
        0 => usize::MAX,
        max => max,
    }
}

/// The limits of the client listener; `None` if a value is out of range, which is reported before.
fn connections(settings: &Settings) -> Option<net::Config> {
    let limits = &settings.limits;
    let proxies = settings.listen.proxy_protocol_from.iter();
    let proxies = proxies.map(|network| network.0).collect();
    Some(net::Config {
        proxies: ProxyNetworks::new(proxies),
        max_connections: limits.max_connections,
        max_pending_openings: limits.max_pending_handshakes,
        handshake_timeout: limits.handshake_timeout.0,
        head_timeout: limits.head_timeout.0,
        write_timeout: limits.write_timeout.0,
        tcp_keepalive: limits.tcp_keepalive.0,
        max_header_bytes: u32::try_from(limits.max_header_bytes.0).ok()?,
        max_concurrent_streams: limits.http2_max_streams_per_connection,
        max_resets_per_second: limits.http2_max_resets_per_second,
        ..net::Config::default()
    })
}

/// The number of cores that this process may use; the limit of its container counts too.
fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// The default of `--tls-dir`: `kubefan/tls` in the user's state directory (XDG Base Directory
/// Specification). `None` if neither `XDG_STATE_HOME` nor `HOME` is set.
pub fn default_tls_dir() -> Option<PathBuf> {
    let directory = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = match directory("XDG_STATE_HOME") {
        Some(state) => PathBuf::from(state),
        None => PathBuf::from(directory("HOME")?).join(".local/state"),
    };
    Some(state.join("kubefan/tls"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ServeLine;
    use crate::config::{Problems, ResolvedConfig};

    fn parse(line: &str) -> Result<ServeConfig, Problems> {
        let words = ["kubefan", "serve"]
            .into_iter()
            .chain(line.split_whitespace());
        let (global, serve) = ServeLine::parse(words);
        ResolvedConfig::new(&global, &serve).map(|resolved| resolved.serve)
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let rows = [
            (
                "--listen 0.0.0.0:8001",
                vec!["--listen: 0.0.0.0:8001 is not loopback: with --auth none"],
            ),
            (
                "--listen 0.0.0.0:8001 --auth delegated",
                vec!["--listen: 0.0.0.0:8001 is not loopback: without TLS"],
            ),
            (
                "--listen 10.0.0.1:8001 --auth none --tls-self-signed --tls-dir x",
                vec!["--listen: 10.0.0.1:8001 is not loopback: with --auth none"],
            ),
            (
                "--insecure-expose-to-network",
                vec!["--insecure-expose-to-network: has no effect"],
            ),
            (
                "--listen 10.0.0.1:1 --tls-self-signed --tls-dir x --insecure-expose-to-network",
                vec!["--insecure-expose-to-network: has no effect"],
            ),
            (
                "--client-ca-file x --auth none --tls-self-signed --tls-dir x",
                vec!["--client-ca-file: has no effect with --auth none"],
            ),
            (
                "--client-ca-file x --client-certificates=false --tls-self-signed --tls-dir x",
                vec!["--client-ca-file: has no effect without --client-certificates"],
            ),
            (
                "--anonymous-auth",
                vec!["--anonymous-auth: has no effect with --auth none"],
            ),
            (
                "--listen nonsense",
                vec!["--listen: \"nonsense\" is not an ADDRESS:PORT"],
            ),
            (
                "--listen 10.0.0.1:1 --admin-listen x --all -r pods --tls-cert-file a",
                vec![
                    "--tls-cert-file: needs",
                    "--admin-listen:",
                    "--listen:",
                    "--all: already",
                ],
            ),
            (
                "--tls-dir x",
                vec!["--tls-dir: has no effect without --tls-self-signed"],
            ),
            (
                "--head-timeout 0s --max-header-bytes 1Ki --max-url-bytes 65Ki",
                vec![
                    "--head-timeout: must be more than 0s",
                    "--max-header-bytes: 1024 bytes are not from 8Ki to 16Mi",
                    "--max-url-bytes: 66560 bytes are not from 1Ki to 64Ki",
                ],
            ),
            (
                "--write-timeout 0s --tcp-keepalive 900ms --upstream-ping-timeout 0s",
                vec![
                    "--upstream-ping-timeout: must be more than 0s",
                    "--write-timeout: must be from 1s to 24d",
                    "--tcp-keepalive: must be from 1s to 9h",
                ],
            ),
            (
                "--write-timeout 25d --tcp-keepalive 10h",
                vec![
                    "--write-timeout: must be from 1s to 24d",
                    "--tcp-keepalive: must be from 1s to 9h",
                ],
            ),
            (
                "--tls-private-key-file x",
                vec!["--tls-private-key-file: needs"],
            ),
            (
                "--tls-self-signed --tls-cert-file a --tls-private-key-file b",
                vec!["--tls-self-signed: can't"],
            ),
        ];
        for (line, expected) in rows {
            let problems = parse(line).expect_err(line);
            let reported = problems.to_string();
            let lines: Vec<_> = reported.lines().collect();
            assert_eq!(lines.len(), expected.len(), "{line}: {reported}");
            for (reported, expected) in lines.iter().zip(expected) {
                assert!(reported.starts_with(expected), "{line}: {reported}");
            }
        }
    }

    #[test]
    fn defaults_match_kubectl_proxy() {
        let config = parse("").expect("no problem");
        assert_eq!(config.listen, "127.0.0.1:8001".parse().expect("an address"));
        assert_eq!(config.resources, Resources::Named(Vec::new()));
        assert_eq!(config.tls, Tls::Plain);
        assert!(parse("--listen localhost:0").is_ok());
        assert!(parse("--listen [::1]:8001").is_ok());
    }

    #[test]
    fn times_of_connections_and_budgets_are_passed_on() {
        let flags = "--write-timeout 11s --tcp-keepalive 12s --upstream-ping-interval 13s \
                     --upstream-ping-timeout 14s --memory-limit 16Mi";
        let config = parse(flags).expect("no problem");
        let seconds = Duration::from_secs;
        assert_eq!(config.connections.write_timeout, seconds(11));
        assert_eq!(config.requests.write_timeout, seconds(11));
        assert_eq!(config.connections.tcp_keepalive, seconds(12));
        assert_eq!(config.ping_interval, seconds(13));
        assert_eq!(config.ping_timeout, seconds(14));
        let groups = config.informer.groups;
        for budget in [
            config.informer.bridge_bytes,
            groups.queue_bytes,
            groups.idle_bytes,
        ] {
            assert_eq!(budget, 2 << 20);
        }
    }

    #[test]
    fn the_limits_of_users_and_addresses_are_passed_on() {
        let flags = "--max-reviews-inflight 5 --max-failed-authentications-per-second 6 \
                     --authentication-reauthenticate 7s --max-watches-per-user 8 \
                     --max-streams-per-user 9 --max-proof-scopes-per-user 10 \
                     --proxy-protocol-from 10.0.0.0/8,::1";
        let config = parse(flags).expect("no problem");
        let access = &config.access;
        assert_eq!(access.max_reviews_in_flight.get(), 5);
        assert_eq!(access.max_failed_per_second.get(), 6);
        assert_eq!(access.reauthenticate, Duration::from_secs(7));
        let users = UserLimits {
            streams: 9,
            watches: 8,
            proof_scopes: 10,
        };
        assert_eq!(config.requests.users, users);
        let networks = ["10.0.0.0/8", "::1/128"].map(|text| text.parse().expect("a network"));
        let expected = ProxyNetworks::new(networks.into());
        assert_eq!(config.connections.proxies, expected);
    }

    #[test]
    fn callers_are_authenticated_where_tls_is_served() {
        use identity::Mode;
        let tls = "--tls-self-signed --tls-dir x";
        for (line, mode, is_exposed, has_local_name) in [
            (String::new(), Mode::None, false, true),
            ("--auth caller".to_owned(), Mode::Caller, false, true),
            (tls.to_owned(), Mode::Caller, false, false),
            (format!("{tls} --auth none"), Mode::None, false, true),
            (
                format!("{tls} --auth delegated --listen 0.0.0.0:1"),
                Mode::Delegated,
                false,
                false,
            ),
            (format!("{tls} --listen [::]:1"), Mode::Caller, false, false),
            (
                "--listen 0.0.0.0:1 --insecure-expose-to-network".to_owned(),
                Mode::None,
                true,
                false,
            ),
            (
                "--listen 10.0.0.1:1 --auth caller --insecure-expose-to-network".to_owned(),
                Mode::Caller,
                true,
                false,
            ),
        ] {
            let config = parse(&line).expect(&line);
            assert_eq!(config.access.mode, mode, "{line}");
            assert_eq!(config.is_exposed, is_exposed, "{line}");
            assert_eq!(config.cache_secrets, !line.contains("tls"), "{line}");
            assert!(
                parse(&format!("{line} --cache-secrets"))
                    .expect(&line)
                    .cache_secrets
            );
            let expected = WebPageRules {
                has_local_name,
                are_callers_authenticated: mode != Mode::None,
            };
            assert_eq!(config.requests.web_pages, expected, "{line}");
        }
    }
}
