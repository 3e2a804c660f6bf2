//! The limits and timeouts of listeners and connections.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use crate::net::ProxyNetworks;

/// Flow-control window, in bytes, of a stream for the body of a request. Requests are small; the
/// window only has to be large enough for forwarded uploads.
pub(super) const STREAM_WINDOW: u32 = 256 << 10;
/// Flow-control window, in bytes, of a connection for the bodies of all its requests together.
pub(super) const CONNECTION_WINDOW: u32 = 4 << 20;

/// Limits and timeouts of a listener and its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Upper limit of open connections; further ones wait in the kernel's queue. Default is 16,384.
    pub max_connections: NonZeroUsize,
    /// Upper limit of connections with a TLS handshake or first bytes that are not complete. If
    /// there are more, the oldest of them is closed. Default is 1,024.
    pub max_pending_openings: NonZeroUsize,
    /// The networks with connections that begin with a PROXY header. Default is none.
    pub proxies: ProxyNetworks,
    /// How long a TLS handshake may take, and before it a PROXY header. Default is 10 s.
    pub handshake_timeout: Duration,
    /// How long a connection may last; `None`, the default, for no limit. With a limit, open
    /// connections also count as pending: the oldest is closed if there are too many.
    pub max_lifetime: Option<Lifetime>,
    /// Whether HTTP/2 is served too. Default is true.
    pub http2: bool,
    /// How long a peer may take to send the first bytes of a connection, and over HTTP/1.1 the head
    /// of a request, counted from the end of the request before. So an idle HTTP/1.1 connection is
    /// also closed after this time. Default is 90 s, the idle time of common clients' connection
    /// pools. With a shorter time, these clients would write to connections that are closing.
    pub head_timeout: Duration,
    /// Upper limit of concurrent requests (and watches) on an HTTP/2 connection. Default is 1,000.
    pub max_concurrent_streams: NonZeroU32,
    /// Bytes in each HTTP/2 stream that may wait for the peer's flow-control window. Default is 16
    /// KiB, because every slow watch takes this memory.
    pub max_send_buffer: usize,
    /// Longest head of a request in bytes. Default is 256 KiB. The `http` crate limits a URL to
    /// 65,534 bytes; the rest is enough for tokens with many groups.
    pub max_header_bytes: u32,
    /// How many requests on one HTTP/2 connection the peer may have cancelled before the server
    /// accepted them. After more, the connection ends. Default is 1,000: a client that cancels many
    /// watches at once has usually opened them long before.
    pub max_early_resets: usize,
    /// How many streams per second an HTTP/2 peer may reset, on average, before it takes a part of
    /// the bodies of their answers. It may reset the streams of two seconds at once. If it resets
    /// more, its socket is read later. Default is 100.
    pub max_resets_per_second: NonZeroU32,
    /// How long a peer may take no byte of the output, unless the connection was upgraded. Default
    /// is five minutes: a client's process may be stopped for a while, and such a client costs only
    /// the connection's buffers.
    pub write_timeout: Duration,
    /// How long a connection may be without traffic before the kernel asks the peer's kernel
    /// whether the connection is still open. Default is 60 s.
    pub tcp_keepalive: Duration,
    /// How long an HTTP/2 peer may be silent before it is pinged. Default is 30 s.
    pub ping_interval: Duration,
    /// How long an HTTP/2 peer may take to answer a ping. Default is 60 s. A client that reads
    /// nothing does not answer pings either. After this time and the interval, its watches may have
    /// expired anyway.
    pub ping_timeout: Duration,
    /// True if the CPU time of each connection is measured. Default is false.
    pub measures_cpu: bool,
}

/// How long a connection may last after it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// How long the connection accepts requests. After this time, an idle connection ends at once,
    /// and a busy connection ends after its answer.
    pub serving: Duration,
    /// How long the connection may last in all, even if it is busy.
    pub total: Duration,
}

impl Config {
    /// The default of [`Config::write_timeout`].
    pub const DEFAULT_WRITE_TIMEOUT: Duration = Duration::from_secs(300);

    /// Returns the limits of an admin listener: HTTP/1.1 only, and at most 64 short connections. If
    /// there are more, the oldest is closed, so that a client that sends a request at once is
    /// answered.
    pub fn admin() -> Config {
        const CONNECTIONS: usize = 64;
        Config {
            // Connections that are being closed in favour of new ones have slots too.
            max_connections: nonzero(2 * CONNECTIONS),
            max_pending_openings: nonzero(CONNECTIONS),
            // A scraper that sends a request while its idle connection is being closed gets no
            // answer. So connections do not end at multiples of 5, 10, 15, 20, 30 or 60 seconds,
            // the usual intervals of scrapes, but between them. A stream of the admin API takes 50 s,
            // and may begin at the end of the time in which the connection takes requests.
            max_lifetime: Some(Lifetime {
                serving: Duration::from_secs(52),
                total: Duration::from_secs(110),
            }),
            http2: false,
            head_timeout: Duration::from_secs(25),
            max_header_bytes: 16 << 10,
            write_timeout: Duration::from_secs(10),
            ..Config::default()
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            max_connections: nonzero(16_384),
            max_pending_openings: nonzero(1_024),
            proxies: ProxyNetworks::default(),
            handshake_timeout: Duration::from_secs(10),
            max_lifetime: None,
            http2: true,
            head_timeout: Duration::from_secs(90),
            max_concurrent_streams: NonZeroU32::new(1_000).expect("1,000 is not zero"),
            max_send_buffer: 16 << 10,
            max_header_bytes: 256 << 10,
            max_early_resets: 1_000,
            max_resets_per_second: NonZeroU32::new(100).expect("100 is not zero"),
            write_timeout: Config::DEFAULT_WRITE_TIMEOUT,
            tcp_keepalive: Duration::from_secs(60),
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(60),
            measures_cpu: false,
        }
    }
}

fn nonzero(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).expect("a default is not zero")
}
