//! Serves one connection from its first request to its end, over any transport.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::iter::successors;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use tower::{Service, ServiceExt};

use crate::ledger::Account;
use crate::net::abort::{Answer, StreamExecutor};
use crate::net::coalesce::coalesce;
use crate::net::metered::Metered;
use crate::net::paced_reads::{PacedReads, Starts};
use crate::net::received::{Received, RequestBody};
use crate::net::resets::{AnswerBody, PeerLimit, Unanswered};
use crate::net::write_timeout::WriteTimeout;
use crate::net::{Abort, ClientConnection, ProxyNetworks, Transport};

/// Any error of a body or a service.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Flow-control window, in bytes, of a stream for the body of a request. Requests are small; the
/// window only has to let forwarded uploads flow.
pub(super) const STREAM_WINDOW: u32 = 256 << 10;
/// Flow-control window, in bytes, of a connection for the bodies of all its requests together.
pub(super) const CONNECTION_WINDOW: u32 = 4 << 20;

/// The most header fields of a request over HTTP/1.1. An authenticating proxy sends one for each
/// group of a user. Only while a head is parsed does each of them take memory, whether it is there or
/// not: 56 KiB in all.
const MAX_HEADERS: usize = 1_024;

/// The number of seconds whose resets a peer may send at once.
const RESET_BURST_SECONDS: NonZeroU32 = NonZeroU32::new(2).expect("two is not zero");

/// Limits and timeouts of a listener and its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Upper limit of open connections; further ones wait in the kernel's queue. Default is 16,384.
    pub max_connections: NonZeroUsize,
    /// Upper limit of connections whose TLS handshake or first bytes are not complete. If there are
    /// more, the oldest of them is closed. Default is 1,024.
    pub max_pending_openings: NonZeroUsize,
    /// From where connections begin with a PROXY header. Default is from nowhere.
    pub proxies: ProxyNetworks,
    /// How long a TLS handshake may take, and before it a PROXY header. Default is 10 s.
    pub handshake_timeout: Duration,
    /// How long a connection may last; `None`, the default, for no limit. With a limit, open
    /// connections count as pending too: the oldest is closed if there are too many.
    pub max_lifetime: Option<Lifetime>,
    /// Whether HTTP/2 is served too. Default is true.
    pub http2: bool,
    /// How long a peer may take to send the first bytes of a connection, and over HTTP/1.1 the head
    /// of a request, counted from the end of the request before. So an idle HTTP/1.1 connection is
    /// closed after this time, too. Default is 90 s, the idle time of common clients' connection
    /// pools; with less, they would write to connections that are closing.
    pub head_timeout: Duration,
    /// Upper limit of concurrent requests (and watches) on an HTTP/2 connection. Default is 1,000.
    pub max_concurrent_streams: NonZeroU32,
    /// Bytes in each HTTP/2 stream that may wait for the peer's flow-control window. Default is 16
    /// KiB, because every slow watch takes this memory.
    pub max_send_buffer: usize,
    /// Longest head of a request in bytes. Default is 256 KiB. A URL may have 65,534 bytes, which
    /// the `http` crate limits; the rest is enough for tokens with many groups.
    pub max_header_bytes: u32,
    /// How many requests on one HTTP/2 connection the peer may have cancelled before the server
    /// accepted them; with more, the connection ends. Default is 1,000: a client that cancels many
    /// watches at once has usually opened them long before.
    pub max_early_resets: usize,
    /// How many streams per second an HTTP/2 peer may reset before it takes a part of the bodies of
    /// their answers, on average. It may reset the streams of two seconds at once. If it resets more, its
    /// socket is read later. Default is 100.
    pub max_resets_per_second: NonZeroU32,
    /// How long a peer may take no byte of the output, unless the connection was upgraded. Default
    /// is five minutes: a client's process may be stopped for a while, and costs only the
    /// connection's buffers.
    pub write_timeout: Duration,
    /// How long a connection may be without traffic before the kernel asks the peer's kernel whether
    /// it is still open. Default is 60 s.
    pub tcp_keepalive: Duration,
    /// How long an HTTP/2 peer may be silent before it is pinged. Default is 30 s.
    pub ping_interval: Duration,
    /// How long an HTTP/2 peer may take to answer a ping. Default is 60 s. A client that reads
    /// nothing does not answer either; after this time and the interval, its watches may have
    /// expired anyway.
    pub ping_timeout: Duration,
}

/// How long a connection may last, from the moment when it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// How long it takes requests. An idle connection ends then; a busy one ends after its answer.
    pub serving: Duration,
    /// How long it may last in all, whatever it does.
    pub total: Duration,
}

/// The HTTP version of a connection, which is known before the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 or HTTP/1.0.
    Http1,
    /// HTTP/2, chosen by ALPN or used by prior knowledge.
    Http2,
}

/// The client's end of a request's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client's address and port. If its connection began with a PROXY header, they are from that.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// The certificates that the client presented, its own first. The client has the key of the
    /// first one; nothing else was verified. Empty if that could not be verified either, as for a
    /// certificate that can't be parsed. `None` if it presented none, or was not asked.
    pub certificates: Option<CertificateChain>,
}

/// The certificates that a client presented, its own first.
pub type CertificateChain = Arc<[CertificateDer<'static>]>;

/// A tower service that answers requests, and can be cloned for each of them.
pub trait HttpService<B>:
    Service<Request<RequestBody>, Response = Response<B>, Future: Send, Error: Into<BoxError>>
    + Clone
    + Send
    + 'static
{
}

/// The body of a response.
pub trait ResponseBody: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static {}

/// The future of [`serve_connection`]; boxed because its size differs much between protocols.
pub type ConnectionFuture = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// The error of a connection that the ledger has closed.
#[derive(Debug, thiserror::Error)]
#[error("closed because its client reads too slowly, or memory is short and it holds the most")]
struct ClosedForMemory;

/// Serves the requests of a connection until it ends or is upgraded. Each request has `account` as
/// an extension; if the ledger closes the account, the connection ends. Each request then also
/// has an [`Abort`] as an extension. What the connection's buffers hold is measured in the account.
///
/// When `stop` completes, or [`ClientConnection::finish`] is called, an idle connection is closed,
/// and a busy one is closed after its last response; a request that has arrived by then is answered.
/// The future completes with the end or the upgrade of the connection, never before.
///
/// # Errors
/// If the peer breaks the protocol, or an error of the service or a body ends the connection. A
/// peer that leaves or stays silent is not an error: watches and idle connections end that way.
pub fn serve_connection<I, B: ResponseBody, S: HttpService<B>>(
    io: I,
    protocol: Protocol,
    peer: Peer,
    service: S,
    config: &Config,
    account: Option<Arc<Account>>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> ConnectionFuture
where
    I: Transport + Send + 'static,
{
    let client_connection = ClientConnection::with_files(io.file_slots());
    let finishing = client_connection.clone();
    let stop = async move {
        tokio::select! {
            () = stop => {}
            () = finishing.finishing() => {}
        }
    };
    let resets = Arc::new(config.peer_limit());
    let counted = (protocol == Protocol::Http2).then(|| Arc::clone(&resets));
    let charged = account.clone();
    let starts = Arc::new(Starts::default());
    let started = Arc::clone(&starts);
    let executor = StreamExecutor::default();
    let streams = executor.clone();
    let buffers = account.as_ref().map(|account| account.buffers());
    let buffers = buffers.map(Arc::clone).unwrap_or_default();
    let received = Received::new(Arc::clone(&buffers), protocol);
    let reads = received.reads(config.max_header_bytes);
    let reads = match protocol {
        Protocol::Http1 => reads,
        Protocol::Http2 => reads.paced(&starts, &resets),
    };
    let settled = received.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (mut request, in_progress) = received.begin_request(request);
        let upgradeable = (protocol == Protocol::Http1).then(|| received.clone());
        let mut current = None;
        if let Some(account) = &charged {
            let abort = match protocol {
                Protocol::Http1 => {
                    let answer = current.insert(Answer::default()).clone();
                    Abort::of_answer(Arc::clone(account), answer)
                }
                Protocol::Http2 => streams.abort_of_next(),
            };
            request.extensions_mut().insert(abort);
            request.extensions_mut().insert(Arc::clone(account));
        }
        request.extensions_mut().insert(client_connection.clone());
        request.extensions_mut().insert(peer.clone());
        started.record();
        let unanswered = Unanswered::new(counted.clone());
        let answer = service.clone().oneshot(request);
        async move {
            let answer = answer.await?;
            // An upgraded connection may be aborted as long as it lasts.
            let is_upgrade = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
            let current = current.filter(|_| !is_upgrade);
            if let Some(received) = upgradeable.filter(|_| is_upgrade) {
                received.end_connection();
            }
            let body = |body| AnswerBody::new(body, unanswered, current, in_progress);
            Ok::<_, S::Error>(answer.map(body))
        }
    });
    let io = Metered::new(io, Arc::clone(&buffers), reads);
    let (io, upgraded) = WriteTimeout::new(io, config.write_timeout);
    match protocol {
        Protocol::Http1 => {
            let connection = http1(config).serve_connection(TokioIo::new(io), service);
            let connection = Box::pin(connection.with_upgrades());
            let finish = http1::UpgradeableConnection::graceful_shutdown;
            Box::pin(async move {
                let ended = drive(connection, account, finish, stop, |_| Poll::Pending).await;
                upgraded.set();
                ended
            })
        }
        Protocol::Http2 => {
            let (io, flusher) = coalesce(io, buffers);
            let io = PacedReads::new(io, Arc::clone(&starts), resets);
            let connection = http2(config, executor).serve_connection(TokioIo::new(io), service);
            let finish = http2::Connection::graceful_shutdown;
            let flush = move |cx: &mut Context<'_>| {
                starts.renew();
                settled.settle();
                flusher.poll_flush(cx)
            };
            Box::pin(drive(Box::pin(connection), account, finish, stop, flush))
        }
    }
}

/// Polls the connection to its end, and calls `flush` after each poll that was pending.
async fn drive<C>(
    mut connection: Pin<Box<C>>,
    account: Option<Arc<Account>>,
    finish: impl FnOnce(Pin<&mut C>),
    stop: impl Future<Output = ()>,
    flush: impl Fn(&mut Context<'_>) -> Poll<io::Result<()>>,
) -> Result<(), BoxError>
where
    C: Future<Output = Result<(), hyper::Error>>,
{
    let mut stop = pin!(stop);
    let mut finish = Some(finish);
    let mut is_registered = false;
    let ended = poll_fn(|cx| {
        if let Some(account) = &account
            && account.poll_close(cx, &mut is_registered).is_ready()
        {
            return Poll::Ready(Err(ClosedForMemory.into()));
        }
        // Polled before `stop`, so that a request that has arrived is answered.
        let mut polled = connection.as_mut().poll(cx);
        if polled.is_pending()
            && finish.is_some()
            && stop.as_mut().poll(cx).is_ready()
            && let Some(finish) = finish.take()
        {
            finish(connection.as_mut());
            polled = connection.as_mut().poll(cx);
        }
        if let Poll::Ready(ended) = polled {
            return Poll::Ready(ended.map_err(BoxError::from));
        }
        match flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            _ => Poll::Pending,
        }
    });
    match ended.await {
        Err(error) if !is_ordinary_end(error.as_ref()) => Err(error),
        _ => Ok(()),
    }
}

/// True if the peer left, or was idle or silent for too long.
fn is_ordinary_end(error: &(dyn Error + 'static)) -> bool {
    let is_gone = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::NotConnected
                | io::ErrorKind::UnexpectedEof
        )
    };
    let is_silent = |error: &hyper::Error| error.is_incomplete_message() || error.is_timeout();
    error.downcast_ref().is_some_and(is_silent)
        || successors(Some(error), |&cause| cause.source())
            .any(|cause| cause.downcast_ref().is_some_and(is_gone))
}

fn http1(config: &Config) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(config.head_timeout)
        .max_buf_size(config.max_header_bytes as usize)
        .max_headers(MAX_HEADERS)
        .title_case_headers(true);
    builder
}

fn http2(config: &Config, executor: StreamExecutor) -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(config.max_concurrent_streams.get())
        .max_send_buf_size(config.max_send_buffer)
        .max_header_list_size(config.max_header_bytes)
        .max_pending_accept_reset_streams(config.max_early_resets)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(config.ping_interval)
        .keep_alive_timeout(config.ping_timeout);
    builder
}

impl<S, B> HttpService<B> for S where
    S: Service<Request<RequestBody>, Response = Response<B>, Future: Send, Error: Into<BoxError>>
        + Clone
        + Send
        + 'static
{
}

impl<B> ResponseBody for B where B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static {}

impl Config {
    /// The default of [`Config::write_timeout`].
    pub const DEFAULT_WRITE_TIMEOUT: Duration = Duration::from_secs(300);

    fn peer_limit(&self) -> PeerLimit {
        let rate = self.max_resets_per_second;
        PeerLimit::new(rate.saturating_mul(RESET_BURST_SECONDS), rate)
    }
}

impl Config {
    /// The limits of an admin listener: HTTP/1.1 only, and at most 64 short connections. If there
    /// are more, the oldest is closed, so that a client that sends a request at once is answered.
    pub fn admin() -> Config {
        const CONNECTIONS: usize = 64;
        Config {
            // Connections that are being closed for new ones have slots too.
            max_connections: nonzero(2 * CONNECTIONS),
            max_pending_openings: nonzero(CONNECTIONS),
            // A scraper that sends a request when its idle connection is being closed gets no
            // answer. So connections end between the times of scrapes every 5, 10, 15, 20, 30 or 60
            // seconds, and not at a multiple of these.
            max_lifetime: Some(Lifetime {
                serving: Duration::from_secs(52),
                total: Duration::from_secs(60),
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
        }
    }
}

fn nonzero(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).expect("a default is not zero")
}

impl Protocol {
    /// The value of the metric label `protocol`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Protocol::Http1 => "http1",
            Protocol::Http2 => "http2",
        }
    }
}
