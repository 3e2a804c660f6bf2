//! The flags of `kubefan serve` and the global flags, as clap parses them. Flags are not checked
//! against each other here.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args as ClapArgs, ValueEnum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::freshness_rule::FreshnessRule;
use super::values::network::Network;
use super::values::units::{parse_bytes, parse_count, parse_duration, parse_number};

/// Flags that every subcommand has.
#[derive(Clone, Debug, ClapArgs)]
pub struct GlobalArgs {
    /// Log more: -v for debug, -vv for trace (in debug builds only). RUST_LOG overrides it
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,

    /// Format of the log lines, which go to standard error
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, env = "KUBEFAN_LOG_FORMAT")]
    pub log_format: LogFormat,

    /// Which flags were given on the command line or by an environment variable. Not a flag itself.
    #[arg(skip)]
    pub arg_sources: ArgSources,
}

/// Format of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people
    Text,
    /// One JSON object per line
    Json,
}

/// How callers are authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuthMode {
    /// Not at all; kubefan answers with its own rights
    None,
    /// With their own credentials; the API server is asked with the caller's token
    Caller,
    /// With kubefan's rights to review tokens and access
    Delegated,
}

/// What is done with a LIST or WATCH that has a `shardSelector`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShardSelectorMode {
    /// It is forwarded, and the API server may ignore the selector
    Forward,
    /// It is answered from a cache, or refused
    Serve,
}

/// Flags of `kubefan serve`.
#[derive(Clone, Debug, ClapArgs)]
pub struct ServeArgs {
    /// Configuration file (YAML); environment variables and the other flags override it
    #[arg(long, value_name = "FILE", env = "KUBEFAN_CONFIG")]
    pub config: Option<PathBuf>,

    /// How to reach the API server; default: $KUBECONFIG, ~/.kube/config, or the pod's service
    /// account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig; default: its current context
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// How long a connection to the API server may be silent before it is pinged (HTTP/2)
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = parse_duration)]
    pub upstream_ping_interval: Duration,

    /// How long the API server may take to answer a ping; then the requests of the connection fail
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    pub upstream_ping_timeout: Duration,

    /// Address for clients; loopback only, unless TLS is served and callers are authenticated
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8001",
        env = "KUBEFAN_LISTEN"
    )]
    pub listen: String,

    /// Accept a --listen address that is not loopback although callers are not authenticated or TLS
    /// is not served: anyone who reaches it has kubefan's rights, or can read the callers' tokens
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub insecure_expose_to_network: bool,

    /// Network of load balancers that begin each connection to --listen with a PROXY header (version 1
    /// or 2), such as 10.0.0.0/8; may be repeated. Connections from there without one are closed, and
    /// those from elsewhere have none
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub proxy_protocol_from: Vec<Network>,

    /// Address for health and metrics: /livez, /readyz and /metrics. If it is not loopback, TLS is
    /// served, and /metrics and /readyz?verbose need a caller that may get the path /metrics of the
    /// API server
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8002",
        env = "KUBEFAN_ADMIN_LISTEN"
    )]
    pub admin_listen: String,

    /// Answer everyone with the metrics although --admin-listen is not loopback, and serve plain HTTP
    /// there unless --admin-tls-cert-file or --admin-tls-self-signed is given
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub admin_insecure_expose_to_network: bool,

    /// Serve TLS on --admin-listen with this certificate chain (PEM); default: the certificate for
    /// clients if --admin-listen is not loopback, otherwise plain HTTP
    #[arg(long, value_name = "FILE")]
    pub admin_tls_cert_file: Option<PathBuf>,

    /// Private key (PEM) for --admin-tls-cert-file
    #[arg(long, value_name = "FILE")]
    pub admin_tls_private_key_file: Option<PathBuf>,

    /// Serve TLS on --admin-listen with a new certificate, which is in memory only: probes do not
    /// verify it, and scrapers must not
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub admin_tls_self_signed: bool,

    /// Threads that serve clients; default: one per core
    #[arg(long, value_name = "COUNT", env = "KUBEFAN_THREADS", value_parser = parse_count::<NonZeroUsize>)]
    pub threads: Option<NonZeroUsize>,

    /// A resource to cache from the start, such as pods or deployments.apps; repeat it, or separate
    /// names with commas. Others are cached at their first LIST or WATCH
    #[arg(
        long = "resource",
        short = 'r',
        value_name = "RESOURCE",
        value_delimiter = ',',
        env = "KUBEFAN_RESOURCES"
    )]
    pub resources: Vec<String>,

    /// A resource that is never cached, such as secrets or deployments.apps: its reads are forwarded;
    /// repeat it, or separate names with commas
    #[arg(
        long = "never-cache",
        value_name = "RESOURCE",
        value_delimiter = ',',
        env = "KUBEFAN_NEVER_CACHE"
    )]
    pub never_cache: Vec<String>,

    /// Cache every resource that can be cached, from the start; =false overrides the file
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub all: bool,

    /// Remove metadata.managedFields of what is cached; answers from caches then lack them. Not for
    /// clients that read their own fields from them, such as those with client-go's Extract functions
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub strip_managed_fields: bool,

    /// Hold Secrets in memory and answer reads of them from the cache although TLS is served;
    /// without TLS they are always cached
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub cache_secrets: bool,

    /// Index the values of this label, so that a list that selects by it reads only the objects it
    /// returns; may be repeated
    #[arg(long = "index-label", value_name = "KEY", value_delimiter = ',')]
    pub index_labels: Vec<String>,

    /// What to do with a LIST or WATCH that has a shardSelector: an API server whose feature gate
    /// ShardedListAndWatch is off ignores it and answers with all objects
    #[arg(
        long,
        value_name = "MODE",
        value_enum,
        default_value_t = ShardSelectorMode::Forward,
        env = "KUBEFAN_SHARD_SELECTOR"
    )]
    pub shard_selector: ShardSelectorMode,

    /// How fresh a "most recent" answer must be: strict (as fresh as the request, the default),
    /// bounded:5s (proven within the last 5 s), or any; pods=any is for one resource; may be
    /// repeated
    #[arg(
        long,
        value_name = "[RESOURCE=]POLICY",
        value_delimiter = ',',
        env = "KUBEFAN_FRESHNESS"
    )]
    pub freshness: Vec<FreshnessRule>,

    /// Drop the cache of a resource that no client used for this long, unless --resource or --all
    /// names it
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    pub idle_timeout: Duration,

    /// Keep a resource's events at least this long, memory permitting, for watches that resume
    #[arg(long, value_name = "DURATION", default_value = "75s", value_parser = parse_duration)]
    pub retention_age: Duration,

    /// The most memory for a resource's events, such as 256Mi; default: 64Mi, or four times the
    /// size of the objects if that is more
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub retention_bytes: Option<usize>,

    /// Serve TLS with this certificate chain (PEM); needs --tls-private-key-file
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,

    /// Private key (PEM) for --tls-cert-file
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,

    /// Serve TLS with a certificate of kubefan's own CA, kept in --tls-dir; clients must trust its
    /// ca.crt; =false overrides the file
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub tls_self_signed: bool,

    /// Directory for the CA and keys of --tls-self-signed; default: kubefan/tls in the user's state
    /// directory
    #[arg(long, value_name = "DIR")]
    pub tls_dir: Option<PathBuf>,

    /// How callers are authenticated; default: caller if TLS is served, otherwise none
    #[arg(long, value_name = "MODE", value_enum, env = "KUBEFAN_AUTH")]
    pub auth: Option<AuthMode>,

    /// Let requests without credentials read from the caches what the user system:anonymous may read;
    /// otherwise they are only forwarded
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub anonymous_auth: bool,

    /// Accept client certificates, and those of authenticating proxies. kubefan needs the rights of
    /// an administrator to serve these callers; without them say false
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        hide_possible_values = true
    )]
    pub client_certificates: bool,

    /// Authorities (PEM) of the client certificates that are accepted; default: those of the API
    /// server, from the ConfigMap kube-system/extension-apiserver-authentication, as far as kubefan
    /// may read it
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// Authorities (PEM) of authenticating proxies, which name the user in headers X-Remote-User and
    /// so on; default: as --client-ca-file
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,

    /// Common name of an authenticating proxy with a certificate of --requestheader-client-ca-file;
    /// may be repeated; default: any
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,

    /// How long the owner of a token is remembered, unless it expires before
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub authentication_token_cache_ttl: Duration,

    /// Longest time after which the token of an open watch is asked about again
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    pub authentication_reauthenticate: Duration,

    /// How long it is remembered that a user may read something
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub authorization_cache_authorized_ttl: Duration,

    /// How long it is remembered that a user may not read something
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub authorization_cache_unauthorized_ttl: Duration,

    /// How long a permission, and the owner of a token, count while the API server does not answer,
    /// if that is longer than they are remembered
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub authorization_stale: Duration,

    /// Longest time after which the right to an open watch is judged again, if
    /// --authorization-max-reviews permits it
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub authorization_reauthorize: Duration,

    /// The most questions about the rights and tokens of open watches per second, on average
    #[arg(long, value_name = "NUMBER", default_value = "50", value_parser = parse_count::<NonZeroU32>)]
    pub authorization_max_reviews: NonZeroU32,

    /// A key of users' extra attributes that no authorizer of the cluster reads, such as
    /// authentication.kubernetes.io/pod-name; users that differ only in these share decisions; may be
    /// repeated
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub authorization_ignore_extra: Vec<String>,

    /// Let the permission to read all objects of a resource include each of them by its name, as with
    /// RBAC. Set it only if no authorizer of the cluster forbids single names
    #[arg(long)]
    pub authorization_names_covered: bool,

    /// Append an audit event (audit.k8s.io/v1, level Metadata) to this file for each request that a
    /// cache answers; - is standard output; default: no audit log
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<PathBuf>,

    /// The most memory for what readers and callers hold, without the caches, such as 512Mi;
    /// default: a quarter of the container's or machine's memory
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory_limit: Option<usize>,

    /// The most memory for one client connection; default: a quarter of --memory-limit
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub connection_memory_limit: Option<usize>,

    /// How many bytes per second a client must take of an answer that is not a watch, averaged over
    /// 30 s in which bytes wait for it; shared by the answers of a connection; 0 for no minimum
    #[arg(long, value_name = "BYTES", default_value = "65536", value_parser = parse_bytes)]
    pub min_body_rate: usize,

    /// The most GETs and LISTs that are answered concurrently; connections share them, and further
    /// ones get 429; 0 for no limit
    #[arg(long, value_name = "COUNT", default_value = "4000", value_parser = parse_number::<usize>)]
    pub max_requests_inflight: usize,

    /// How long the head of an answer from a cache may take, except for a watch; clients can shorten
    /// it with ?timeout=
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub request_timeout: Duration,

    /// The most open connections of clients; further ones wait
    #[arg(long, value_name = "COUNT", default_value = "16384", value_parser = parse_count::<NonZeroUsize>)]
    pub max_connections: NonZeroUsize,

    /// The most connections whose TLS handshake or first bytes are not complete; if there are more,
    /// the oldest of them is closed
    #[arg(long, value_name = "COUNT", default_value = "1024", value_parser = parse_count::<NonZeroUsize>)]
    pub max_pending_handshakes: NonZeroUsize,

    /// How long a TLS handshake may take, and a PROXY header before it
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub handshake_timeout: Duration,

    /// How long a client may take to send the first bytes of a connection, and over HTTP/1.1 the head of
    /// a request; an idle HTTP/1.1 connection is closed after this time, too
    #[arg(long, value_name = "DURATION", default_value = "90s", value_parser = parse_duration)]
    pub head_timeout: Duration,

    /// How long a client may take no byte of its connection's output; then the connection is closed,
    /// unless it was upgraded
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub write_timeout: Duration,

    /// How long a client's connection may be without traffic before the kernel checks whether it is
    /// still open
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub tcp_keepalive: Duration,

    /// The longest head of a request, such as 256Ki
    #[arg(long, value_name = "BYTES", default_value = "256Ki", value_parser = parse_bytes)]
    pub max_header_bytes: usize,

    /// The longest URL of a request, such as 8Ki
    #[arg(long, value_name = "BYTES", default_value = "64Ki", value_parser = parse_bytes)]
    pub max_url_bytes: usize,

    /// The most concurrent requests, watches included, on an HTTP/2 connection
    #[arg(long, value_name = "COUNT", default_value = "1000", value_parser = parse_count::<NonZeroU32>)]
    pub http2_max_streams_per_connection: NonZeroU32,

    /// The most requests per second that a client may cancel on an HTTP/2 connection before it has
    /// received a part of the answer; requests of clients that cancel more are read later
    #[arg(long, value_name = "COUNT", default_value = "100", value_parser = parse_count::<NonZeroU32>)]
    pub http2_max_resets_per_second: NonZeroU32,

    /// The most different selectors without an index that watches of a resource may have, such as
    /// app!=web, as each is tested against every change; one with many conditions counts once per 16;
    /// a watch with a further one gets 429; 0 for no limit
    #[arg(long, value_name = "COUNT", default_value = "1000", value_parser = parse_number::<usize>)]
    pub max_unindexed_selectors: usize,

    /// The most requests in progress of one user, watches included, on all its connections; further
    /// ones get 429; 0 for no limit
    #[arg(long, value_name = "COUNT", default_value = "200000", value_parser = parse_number::<usize>)]
    pub max_streams_per_user: usize,

    /// The most open watches of one user, with other long-running requests such as exec; further ones
    /// get 429; 0 for no limit
    #[arg(long, value_name = "COUNT", default_value = "100000", value_parser = parse_number::<usize>)]
    pub max_watches_per_user: usize,

    /// The most different selections of one user for which reads of the most recent state wait for a
    /// proof at a time; further ones get 429; 0 for no limit
    #[arg(long, value_name = "COUNT", default_value = "10000", value_parser = parse_number::<usize>)]
    pub max_proof_scopes_per_user: usize,

    /// The most questions of one kind, about tokens or about rights, that the API server is asked at a
    /// time because of new requests; 64 times as many may wait
    #[arg(long, value_name = "COUNT", default_value = "64", value_parser = parse_count::<NonZeroUsize>)]
    pub max_reviews_inflight: NonZeroUsize,

    /// How many authentications of one source address may fail per second, on average, and ten times
    /// as many at once; then credentials that kubefan does not know get 429
    #[arg(long, value_name = "COUNT", default_value = "100", value_parser = parse_count::<NonZeroU32>)]
    pub max_failed_authentications_per_second: NonZeroU32,

    /// How long caches serve while the API server refuses kubefan's credentials (401); after that,
    /// their watches end and reads are forwarded
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    pub max_unauthorized: Duration,

    /// /readyz fails if a cache's watch of the API server was not proven alive for this long;
    /// default: no limit
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub max_staleness: Option<Duration>,

    /// How long everything is still served at shutdown after /readyz fails, so that load balancers
    /// stop to send connections first
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub shutdown_delay_duration: Duration,

    /// How long running requests and watches may take at shutdown, after --shutdown-delay-duration
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub shutdown_grace_period: Duration,
}

/// For each argument's field name, whether its value is a default or was given on the command line
/// or by an environment variable.
#[derive(Clone, Debug, Default)]
pub struct ArgSources(pub(super) BTreeMap<String, ValueSource>);

// === impl ArgSources ===

impl ArgSources {
    /// Records the sources of the innermost subcommand's arguments and of the global ones.
    pub fn of(matches: &ArgMatches) -> Self {
        let mut innermost = matches;
        while let Some((_, below)) = innermost.subcommand() {
            innermost = below;
        }
        let source = |id: &str| Some((id.to_owned(), innermost.value_source(id)?));
        Self(
            innermost
                .ids()
                .filter_map(|id| source(id.as_str()))
                .collect(),
        )
    }
}
