//! Every setting of `kubefan serve` with its default, in the structure of the configuration file.
//!
//! The JSON Schema is generated from these structs. Their doc comments become its descriptions, so
//! they are written for authors of configuration files. The settings are checked elsewhere.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubefan_core::cache::GroupLimits;
use kubefan_core::informer;
use kubefan_core::upstream::ClientConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::cached_resource::CachedResource;
use super::values::freshness_rule::FreshnessRule;
use super::values::network::Network;
use super::values::units::{ByteSize, Period};
use super::{AuthMode, LogFormat, ShardSelectorMode};
use crate::{identity, ledger, net, server};

/// Configuration file of `kubefan serve --config`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(title = "kubefan configuration")]
pub(super) struct Settings {
    /// How to reach the API server.
    pub(super) upstream: Upstream,
    /// The listener for clients.
    pub(super) listen: Listen,
    /// The listener for health and metrics.
    pub(super) admin: Admin,
    /// How callers are authenticated.
    pub(super) authentication: Authentication,
    /// How long the API server's decisions about callers are remembered.
    pub(super) authorization: Authorization,
    /// The audit log of the requests that caches answer.
    pub(super) audit: Audit,
    /// Which resources are cached, and for how long.
    pub(super) cache: Cache,
    /// Limits of what clients may use, and of how long caches serve without the API server.
    pub(super) limits: Limits,
    /// How kubefan shuts down.
    pub(super) shutdown: Shutdown,
    /// The log, which goes to standard error.
    pub(super) log: Log,
}

/// How to reach the API server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Upstream {
    /// Kubeconfig file. Default: $KUBECONFIG, ~/.kube/config, or the pod's service account. A
    /// relative path is relative to the configuration file.
    pub(super) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: its current context.
    pub(super) context: Option<String>,
    /// How long an HTTP/2 connection to the API server may be silent before it is pinged. A number
    /// and ms, s, m or h.
    pub(super) ping_interval: Period,
    /// How long the API server may take to answer a ping. Then the requests of the connection fail,
    /// and if no new connection can be opened either, all others at once, until it responds. A
    /// number and ms, s, m or h.
    pub(super) ping_timeout: Period,
}

/// The listener for clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Listen {
    /// Address for clients, ADDRESS:PORT. Loopback only, unless TLS is served and callers are
    /// authenticated.
    pub(super) address: String,
    /// Accept an address that is not loopback although callers are not authenticated or TLS is not
    /// served. Anyone who reaches it reads and writes with kubefan's rights, or can read the
    /// callers' tokens.
    pub(super) insecure_expose_to_network: bool,
    /// TLS for clients. Default: plain HTTP. Set certFile and keyFile, or selfSigned.
    pub(super) tls: ListenTls,
    /// Networks of load balancers that begin each connection with a PROXY header (version 1 or 2),
    /// such as 10.0.0.0/8. The header's address is taken for the client's in the audit log, in
    /// X-Forwarded-For and in the limits of addresses. Connections from there without a header are
    /// closed, and those from elsewhere have none: list only addresses that no client has. Default:
    /// none.
    pub(super) proxy_protocol_from: Vec<Network>,
    /// Number of threads that serve clients. Default: one per core.
    pub(super) threads: Option<NonZeroUsize>,
}

/// TLS for clients. Default: plain HTTP. Set certFile and keyFile, or selfSigned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ListenTls {
    /// Certificate chain (PEM). A relative path is relative to the configuration file.
    pub(super) cert_file: Option<PathBuf>,
    /// Private key (PEM) for certFile. A relative path is relative to the configuration file.
    pub(super) key_file: Option<PathBuf>,
    /// Serve TLS with a certificate of kubefan's own CA, kept in the directory. Clients must trust
    /// its ca.crt.
    pub(super) self_signed: bool,
    /// Directory for the CA and keys of selfSigned. Default: kubefan/tls in the user's state
    /// directory. A relative path is relative to the configuration file.
    pub(super) directory: Option<PathBuf>,
}

/// The listener for health and metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Admin {
    /// Address for /livez, /readyz and /metrics, ADDRESS:PORT. If it is not loopback, TLS is served,
    /// and /metrics and /readyz?verbose need a caller that may get the path /metrics of the API
    /// server. Probes of /livez and /readyz need no credentials.
    pub(super) address: String,
    /// Answer everyone with the metrics although the address is not loopback, and serve plain HTTP
    /// there unless admin.tls is set. The metrics name resources and count objects.
    pub(super) insecure_expose_to_network: bool,
    /// TLS for probes and metrics. Default: on loopback plain HTTP, elsewhere the certificate of the
    /// listener for clients.
    pub(super) tls: AdminTls,
}

/// TLS for probes and metrics. Default: on loopback plain HTTP, elsewhere the certificate of the
/// listener for clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct AdminTls {
    /// Certificate chain (PEM). A relative path is relative to the configuration file.
    pub(super) cert_file: Option<PathBuf>,
    /// Private key (PEM) for certFile. A relative path is relative to the configuration file.
    pub(super) key_file: Option<PathBuf>,
    /// Serve TLS with a new certificate, which is in memory only. Probes do not verify it, and
    /// scrapers must not.
    pub(super) self_signed: bool,
}

/// How callers are authenticated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Authentication {
    /// Whose word counts: none (callers are not authenticated, and kubefan answers with its own
    /// rights), caller (the API server is asked with the caller's token), or delegated (it is asked
    /// with kubefan's rights to review tokens and access). Default: caller if TLS is served,
    /// otherwise none.
    pub(super) mode: Option<AuthMode>,
    /// Let requests without credentials read from the caches what the user system:anonymous may
    /// read. Otherwise they are only forwarded.
    pub(super) anonymous: bool,
    /// Accept client certificates, and those of authenticating proxies. kubefan needs the rights of
    /// an administrator to serve these callers; without them say false.
    pub(super) client_certificates: bool,
    /// Authorities (PEM) of the client certificates that are accepted. Default: those of the API
    /// server, from the ConfigMap kube-system/extension-apiserver-authentication, as far as kubefan
    /// may read it. A relative path is relative to the configuration file.
    pub(super) client_ca_file: Option<PathBuf>,
    /// Authorities (PEM) of authenticating proxies, which name the user in headers X-Remote-User
    /// and so on. Default: as clientCaFile. A relative path is relative to the configuration file.
    pub(super) requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of authenticating proxies with a certificate of requestheaderClientCaFile.
    /// Default: any.
    pub(super) requestheader_allowed_names: Vec<String>,
    /// How long the owner of a token is remembered, unless it expires before. A number and ms,
    /// s, m or h.
    pub(super) token_ttl: Period,
    /// Longest time after which the token of an open watch is asked about again. A token that is
    /// revoked ends its watches then; deletions of service accounts and pods are noticed earlier. A
    /// number and ms, s, m or h.
    pub(super) reauthenticate: Period,
}

/// How long the API server's decisions about callers are remembered, and how often it is asked again
/// about open watches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Authorization {
    /// How long it is remembered that a user may read something. A number and ms, s, m or h.
    pub(super) allowed_ttl: Period,
    /// How long it is remembered that a user may not read something. Not remembered for nodes. A
    /// number and ms, s, m or h.
    pub(super) denied_ttl: Period,
    /// How long a permission, and the owner of a token, count while the API server does not answer,
    /// if that is longer than they are remembered. Answers that are given so have a Warning. A
    /// number and ms, s, m or h.
    pub(super) stale: Period,
    /// Longest time after which the right to an open watch is judged again, if maxReviewsPerSecond
    /// permits it. Changes of roles and bindings that kubefan sees are judged at once. A number and
    /// ms, s, m or h.
    pub(super) reauthorize: Period,
    /// The most questions about the rights and tokens of open watches per second, on average. The
    /// questions of two seconds may be asked at once. The metric
    /// kubefan_open_watch_review_age_seconds shows whether they are enough.
    pub(super) max_reviews_per_second: NonZeroU32,
    /// Keys of users' extra attributes that no authorizer of the cluster reads, such as
    /// authentication.kubernetes.io/pod-name. Users that differ only in these share decisions.
    pub(super) ignore_extra: Vec<String>,
    /// Let the permission to read all objects of a resource include each of them by its name, as with
    /// RBAC. Set it only if no authorizer of the cluster forbids single names. Then reads by name need
    /// no question each.
    pub(super) names_covered: bool,
}

/// The audit log of the requests that caches answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Audit {
    /// File to which an event (audit.k8s.io/v1, level Metadata) is appended for each request that a
    /// cache answers; - is standard output. Forwarded requests are in the API server's audit log. A
    /// file that is renamed or deleted is created again. Default: no audit log. A relative path is
    /// relative to the configuration file.
    pub(super) log_path: Option<PathBuf>,
}

/// Which resources are cached, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Cache {
    /// Resources to cache from the start, such as pods or deployments.apps, or keys that limit which
    /// objects of a resource are cached. Others are cached at their first LIST or WATCH.
    pub(super) resources: Vec<CachedResource>,
    /// Cache every resource that can be cached, from the start. Name none in resources then, except
    /// for those with other keys.
    pub(super) all: bool,
    /// Resources that are never cached, such as secrets or deployments.apps: their reads are
    /// forwarded. A name without a group is that of a resource in any group.
    pub(super) never: Vec<String>,
    /// Remove metadata.managedFields of what is cached, so that it takes less memory. Answers from
    /// caches then lack them, and those of the API server do not. Writes keep them. Do not use it with
    /// programs that read their own fields from them, such as those with client-go's Extract functions.
    pub(super) strip_managed_fields: bool,
    /// Hold Secrets in memory and answer reads of them from the cache although TLS is served.
    /// Otherwise these reads are forwarded. Without TLS Secrets are always cached.
    pub(super) secrets: bool,
    /// Labels whose values are indexed, so that a list that selects by one of them reads only the
    /// objects it returns.
    pub(super) index_labels: Vec<String>,
    /// What to do with a LIST or WATCH that has a shardSelector: forward it, or serve it from a cache
    /// and refuse it if no cache can answer. An API server whose feature gate ShardedListAndWatch is
    /// off ignores the selector and answers with all objects.
    pub(super) shard_selector: ShardSelectorMode,
    /// How fresh a "most recent" answer must be: strict (as fresh as the request, the default),
    /// bounded:5s (proven within the last 5 s), or any; pods=any is for one resource. Of two rules
    /// for the same resource the later one wins.
    pub(super) freshness: Vec<FreshnessRule>,
    /// Drop the cache of a resource that no client used for this long, unless resources or all
    /// names it. A number and ms, s, m or h.
    pub(super) idle_timeout: Period,
    /// Keep a resource's events at least this long, memory permitting, for watches that resume. A
    /// number and ms, s, m or h.
    pub(super) retention_age: Period,
    /// The most memory for a resource's events: bytes, or a number and Ki, Mi or Gi. Default: 64Mi,
    /// or four times the size of the objects if that is more.
    pub(super) retention_bytes: Option<ByteSize>,
}

/// Limits of what clients may use, and of how long caches serve without the API server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Limits {
    /// The most memory for what readers and callers hold: bytes, or a number and Ki, Mi or Gi. The
    /// caches are not in it. New requests get 429 when it is used up. Default: a quarter of the
    /// container's or machine's memory.
    pub(super) memory: Option<ByteSize>,
    /// The most memory for one client connection, as memory. Default: a quarter of memory.
    pub(super) connection_memory: Option<ByteSize>,
    /// How many bytes per second a client must take of an answer that is not a watch, averaged over
    /// 30 s in which bytes wait for it; otherwise the answer is broken off. 0 for no minimum.
    pub(super) min_body_rate: ByteSize,
    /// Number of GETs and LISTs that are answered concurrently. Connections share it: each may have
    /// at most as many as are free, but always one. Watches, writes, logs, exec and the like do not
    /// count, and neither does a read that waits for a cache. Further ones get 429. 0 for no limit.
    pub(super) max_requests_inflight: usize,
    /// How long the head of an answer from a cache may take, except for a watch. Clients can shorten
    /// it with the parameter timeout. A number and ms, s, m or h.
    pub(super) request_timeout: Period,
    /// Number of open connections of clients; further ones wait.
    pub(super) max_connections: NonZeroUsize,
    /// Number of connections whose TLS handshake or first bytes are not complete. If there are more,
    /// the oldest of them is closed.
    pub(super) max_pending_handshakes: NonZeroUsize,
    /// How long a TLS handshake may take, and a PROXY header before it. A number and ms, s, m or h.
    pub(super) handshake_timeout: Period,
    /// How long a client may take to send the first bytes of a connection, and over HTTP/1.1 the head of
    /// a request; an idle HTTP/1.1 connection is closed after this time, too. A number and ms, s, m or h.
    pub(super) head_timeout: Period,
    /// How long a client may take no byte of its connection's output. Then the connection is closed,
    /// unless it was upgraded for exec and the like. A number and ms, s, m or h.
    pub(super) write_timeout: Period,
    /// How long a client's connection may be without traffic before the kernel checks whether it is
    /// still open. A number and ms, s, m or h.
    pub(super) tcp_keepalive: Period,
    /// Longest head of a request: bytes, or a number and Ki, Mi or Gi.
    pub(super) max_header_bytes: ByteSize,
    /// Longest URL of a request: bytes, or a number and Ki. Longer ones get 414. The HTTP library
    /// refuses URLs of more than 65,534 bytes in any case.
    pub(super) max_url_bytes: ByteSize,
    /// Number of concurrent requests, watches included, on an HTTP/2 connection.
    pub(super) http2_max_streams_per_connection: NonZeroU32,
    /// Number of requests per second that a client may cancel on an HTTP/2 connection before it has
    /// received a part of the answer. It may cancel the requests of two seconds at once. Requests of
    /// clients that cancel more are read later.
    pub(super) http2_max_resets_per_second: NonZeroU32,
    /// Number of different selectors without an index that watches of a resource may have. Such a
    /// selector requires no name, namespace, field value or label value, as in app!=web, so that
    /// each change is tested against it. The same applies to a set of more than 64 values, and to
    /// selectors that require what more than 256 others require, such as the same namespace. A
    /// selector counts once per 16 conditions. A watch with a further one gets 429. 0 for no limit.
    pub(super) max_unindexed_selectors: usize,
    /// Number of requests of one user that are in progress, watches included, on all its connections.
    /// Further ones get 429. Without authentication a connection's limit counts instead. 0 for no
    /// limit.
    pub(super) max_streams_per_user: usize,
    /// Number of open watches of one user, with other long-running requests such as exec. Further
    /// ones get 429. All pods of a service account are one user: the default is 20 watches on each
    /// of 5,000 nodes. 0 for no limit.
    pub(super) max_watches_per_user: usize,
    /// Number of different selections of one user for which reads of the most recent state wait for
    /// a proof at a time. Further ones get 429. The default is two on each of 5,000 nodes. 0 for no
    /// limit.
    pub(super) max_proof_scopes_per_user: usize,
    /// Number of questions of one kind, about tokens or about rights, that the API server is asked at
    /// a time because of new requests. 64 times as many may wait, for 10 s; further ones get 429.
    pub(super) max_reviews_inflight: NonZeroUsize,
    /// Number of authentications of one source address that may fail per second, on average, and ten
    /// times as many at once. Then credentials that kubefan does not know get 429. An address is an
    /// IPv4 address or an IPv6 network (/64). If a load balancer hides the clients' addresses, all of
    /// them share it: see proxyProtocolFrom.
    pub(super) max_failed_authentications_per_second: NonZeroU32,
    /// How long caches serve while the API server refuses kubefan's credentials (401). After that,
    /// their watches end and reads are forwarded. A number and ms, s, m or h.
    pub(super) max_unauthorized: Period,
    /// If a cache's watch of the API server was not proven alive for this long, /readyz fails. A
    /// number and ms, s, m or h. Default: no limit.
    pub(super) max_staleness: Option<Period>,
}

/// How kubefan shuts down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Shutdown {
    /// How long everything is still served after /readyz fails, so that load balancers stop to send
    /// connections first. Clients' watches end after it. A number and ms, s, m or h.
    pub(super) delay: Period,
    /// How long running requests and watches may take at shutdown. A number and ms, s, m or h.
    pub(super) grace_period: Period,
}

/// The log, which goes to standard error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Log {
    /// Format of the log lines.
    pub(super) format: LogFormat,
    /// 0 is info, 1 debug, 2 trace (in debug builds only). RUST_LOG overrides it.
    pub(super) verbosity: u8,
}

// === impl Settings ===

impl Settings {
    /// Returns the settings that are paths, each with its key.
    pub(super) fn paths(&mut self) -> [(&'static str, &mut Option<PathBuf>); 9] {
        let tls = &mut self.listen.tls;
        let admin = &mut self.admin.tls;
        let authentication = &mut self.authentication;
        [
            ("upstream.kubeconfig", &mut self.upstream.kubeconfig),
            ("listen.tls.certFile", &mut tls.cert_file),
            ("listen.tls.keyFile", &mut tls.key_file),
            ("listen.tls.directory", &mut tls.directory),
            ("admin.tls.certFile", &mut admin.cert_file),
            ("admin.tls.keyFile", &mut admin.key_file),
            (
                "authentication.clientCaFile",
                &mut authentication.client_ca_file,
            ),
            (
                "authentication.requestheaderClientCaFile",
                &mut authentication.requestheader_client_ca_file,
            ),
            ("audit.logPath", &mut self.audit.log_path),
        ]
    }

    /// Resolves the relative paths in the settings against `directory`.
    pub(super) fn resolve(&mut self, directory: &Path) {
        for (_, path) in self.paths() {
            // `-` is standard output.
            if let Some(path) = path
                && path.as_os_str() != "-"
            {
                *path = directory.join(&*path);
            }
        }
    }
}

// === Defaults ===

impl Default for Upstream {
    fn default() -> Self {
        let client = ClientConfig::default();
        Self {
            kubeconfig: None,
            context: None,
            ping_interval: Period(client.ping_interval),
            ping_timeout: Period(client.ping_timeout),
        }
    }
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:8001".to_owned(),
            insecure_expose_to_network: false,
            tls: ListenTls::default(),
            proxy_protocol_from: Vec::new(),
            threads: None,
        }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:8002".to_owned(),
            insecure_expose_to_network: false,
            tls: AdminTls::default(),
        }
    }
}

impl Default for Authentication {
    fn default() -> Self {
        let access = identity::Config::default();
        Self {
            mode: None,
            anonymous: access.anonymous,
            client_certificates: true,
            client_ca_file: None,
            requestheader_client_ca_file: None,
            requestheader_allowed_names: Vec::new(),
            token_ttl: Period(access.token_ttl),
            reauthenticate: Period(access.reauthenticate),
        }
    }
}

impl Default for Authorization {
    fn default() -> Self {
        let access = identity::Config::default();
        Self {
            allowed_ttl: Period(access.allowed_ttl),
            denied_ttl: Period(access.denied_ttl),
            stale: Period(access.stale),
            reauthorize: Period(access.reauthorize),
            max_reviews_per_second: access.max_reviews_per_second,
            ignore_extra: access.ignored_extra,
            names_covered: access.names_covered,
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            resources: Vec::new(),
            all: false,
            never: Vec::new(),
            strip_managed_fields: false,
            secrets: false,
            index_labels: Vec::new(),
            shard_selector: ShardSelectorMode::Forward,
            freshness: Vec::new(),
            idle_timeout: Period(informer::Config::DEFAULT_IDLE_TIMEOUT),
            retention_age: Period(informer::Config::SERVER_RETENTION_AGE),
            retention_bytes: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let connections = net::Config::default();
        let requests = server::Config::default();
        let access = identity::Config::default();
        Self {
            memory: None,
            connection_memory: None,
            min_body_rate: ByteSize(ledger::Limits::MINIMUM_RATE as usize),
            max_requests_inflight: requests.max_requests_inflight,
            request_timeout: Period(requests.request_timeout),
            max_connections: connections.max_connections,
            max_pending_handshakes: connections.max_pending_openings,
            handshake_timeout: Period(connections.handshake_timeout),
            head_timeout: Period(connections.head_timeout),
            write_timeout: Period(connections.write_timeout),
            tcp_keepalive: Period(connections.tcp_keepalive),
            max_header_bytes: ByteSize(connections.max_header_bytes as usize),
            max_url_bytes: ByteSize(requests.max_url_bytes),
            http2_max_streams_per_connection: connections.max_concurrent_streams,
            http2_max_resets_per_second: connections.max_resets_per_second,
            max_unindexed_selectors: GroupLimits::DEFAULT_UNINDEXED,
            max_streams_per_user: requests.users.streams,
            max_watches_per_user: requests.users.watches,
            max_proof_scopes_per_user: requests.users.proof_scopes,
            max_reviews_inflight: access.max_reviews_in_flight,
            max_failed_authentications_per_second: access.max_failed_per_second,
            max_unauthorized: Period(informer::Config::DEFAULT_MAX_UNAUTHORIZED),
            max_staleness: None,
        }
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self {
            delay: Period(Duration::ZERO),
            grace_period: Period(Duration::from_secs(10)),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            verbosity: 0,
        }
    }
}
