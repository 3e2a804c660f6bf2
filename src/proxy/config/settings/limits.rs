//! The settings of the limits.

use std::num::{NonZeroU32, NonZeroUsize};

use kubefan_core::cache::GroupLimits;
use kubefan_core::informer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::values::units::{ByteSize, Period};
use crate::{identity, ledger, net, server};

/// Limits of what clients may use, and of how long caches serve without the API server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(in crate::config) struct Limits {
    /// The most memory for what readers and callers hold, without the caches. New requests get 429
    /// when it is used up. Default: a quarter of the container's or machine's memory.
    #[schemars(extend(
        "x-flag" = "--memory-limit BYTES",
        "x-range" = "at least 16Mi",
        "x-help" = true,
        "x-page" = "settings.md#memory"
    ))]
    pub(in crate::config) memory: Option<ByteSize>,
    /// The most memory for one client connection. Default: a quarter of `limits.memory`.
    #[schemars(extend("x-flag" = "--connection-memory-limit BYTES", "x-range" = "at least 1Mi"))]
    pub(in crate::config) connection_memory: Option<ByteSize>,
    /// How many bytes per second a client must take of an answer that is not a watch. The answers of a
    /// connection share it. It is averaged over 30 s in which bytes wait for the client; an answer
    /// that is slower is broken off. Logs that are followed, exec, port-forward and proxied requests
    /// are exempt. 0 for no minimum.
    pub(in crate::config) min_body_rate: ByteSize,
    /// The most GETs and LISTs that are answered concurrently. Users share them, or connections if
    /// callers are not authenticated: each may have at most as many as are free, but always one.
    /// Watches, writes, logs, exec and the like do not count, and neither does a read that waits for a
    /// cache. Further ones get 429. 0 for no limit.
    #[schemars(extend("x-live" = true))]
    pub(in crate::config) max_requests_inflight: usize,
    /// How long the head of an answer from a cache may take, except for a watch. Clients can shorten
    /// it with the parameter timeout. The API server's own limits apply to forwarded requests.
    #[schemars(extend("x-range" = "more than 0s"))]
    pub(in crate::config) request_timeout: Period,
    /// The most open connections of clients; further ones wait. Upgraded connections are included;
    /// those that are forwarded count twice, and may take three quarters. The limit of open files
    /// (ulimit -n), less 320, applies too.
    pub(in crate::config) max_connections: NonZeroUsize,
    /// The most connections whose TLS handshake or first bytes are not complete. If there are more,
    /// the oldest of them is closed. At most half of the connections may be pending. Default: one for
    /// each 256Ki of `limits.memory`, at least 1024.
    #[schemars(extend("x-flag" = "--max-pending-handshakes COUNT"))]
    pub(in crate::config) max_pending_handshakes: Option<NonZeroUsize>,
    /// How long a TLS handshake may take, and a PROXY header before it.
    #[schemars(extend("x-range" = "more than 0s"))]
    pub(in crate::config) handshake_timeout: Period,
    /// How long a client may take to send the first bytes of a connection, and over HTTP/1.1 the head
    /// of a request. An idle HTTP/1.1 connection is closed after this time, too.
    #[schemars(extend("x-range" = "more than 0s"))]
    pub(in crate::config) head_timeout: Period,
    /// How long a client may take no byte of its connection's output. Then the connection is closed,
    /// unless it was upgraded for exec and the like.
    // The kernel takes milliseconds as a 32-bit number.
    #[schemars(extend("x-range" = "from 1s to 24d"))]
    pub(in crate::config) write_timeout: Period,
    /// How long a client's connection may be without traffic before the kernel checks whether it is
    /// still open.
    // The kernel takes seconds as a 16-bit number.
    #[schemars(extend("x-range" = "from 1s to 9h"))]
    pub(in crate::config) tcp_keepalive: Period,
    /// The longest head of a request; longer ones get 431.
    // hyper needs 8 KiB.
    #[schemars(extend("x-range" = "from 8Ki to 16Mi"))]
    pub(in crate::config) max_header_bytes: ByteSize,
    /// The longest URL of a request; longer ones get 414. URLs of more than 65,534 bytes always do, or
    /// over HTTP/2 their stream is reset.
    #[schemars(extend("x-range" = "from 1Ki to 64Ki"))]
    pub(in crate::config) max_url_bytes: ByteSize,
    /// The most concurrent requests, watches included, on an HTTP/2 connection.
    pub(in crate::config) http2_max_streams_per_connection: NonZeroU32,
    /// The most requests per second that a client may cancel on an HTTP/2 connection before it has
    /// received a part of the answer. PING and SETTINGS frames count, too. It may send those of two
    /// seconds at once. Clients that send more are read later.
    pub(in crate::config) http2_max_resets_per_second: NonZeroU32,
    /// The most different selectors without an index that watches of a resource may have. Such a
    /// selector requires no name, namespace, field value or label value, as in app!=web, so that
    /// each change is tested against it. The same applies to a set of more than 64 values, and to
    /// selectors that require what more than 256 others require, such as the same namespace. A
    /// selector counts once per 16 conditions. A watch with a further one gets 429. 0 for no limit.
    pub(in crate::config) max_unindexed_selectors: usize,
    /// The most requests in progress of one user, watches included, on all its connections. Further
    /// ones get 429. Without authentication a connection's limit counts instead. 0 for no limit.
    #[schemars(extend("x-live" = true))]
    pub(in crate::config) max_streams_per_user: usize,
    /// The most open watches of one user, with other long-running requests such as exec. Further ones
    /// get 429. All pods of a service account are one user: the default is 20 watches on each of 5,000
    /// nodes. 0 for no limit.
    #[schemars(extend("x-live" = true))]
    pub(in crate::config) max_watches_per_user: usize,
    /// The most different selections of one user for which reads of the most recent state wait for a
    /// proof at a time. Further ones get 429. The default is two on each of 5,000 nodes. 0 for no
    /// limit.
    #[schemars(extend("x-live" = true))]
    pub(in crate::config) max_proof_scopes_per_user: usize,
    /// The most questions of one kind, about tokens or about rights, that the API server is asked at a
    /// time because of new requests. 64 times as many may wait, for 10 s; further ones get 429.
    pub(in crate::config) max_reviews_inflight: NonZeroUsize,
    /// How many authentications of one source address may fail per second, on average. Ten times as
    /// many may fail at once. Then credentials that kubefan does not know get 429. An address is an
    /// IPv4 address or an IPv6 network (/64). If a load balancer hides the clients' addresses, all of
    /// them share it: see `listen.proxyProtocolFrom`.
    pub(in crate::config) max_failed_authentications_per_second: NonZeroU32,
    /// How long caches serve while the API server refuses kubefan's credentials (401). After that,
    /// their watches end and reads are forwarded.
    pub(in crate::config) max_unauthorized: Period,
    /// How long a cache's watch of the API server may be without proof that it is alive; then /readyz
    /// fails. Default: no limit.
    #[schemars(extend("x-live" = true))]
    pub(in crate::config) max_staleness: Option<Period>,
}

// === impl Limits ===

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
            max_pending_handshakes: None,
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
