//! A pool of HTTP/2 connections that requests share. The API server allows a number of streams per
//! connection, so each connection carries no more, and another one is opened when all are full.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::FutureExt;
use http::{Request, Response, Uri};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::TokioTimer;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tower::ServiceExt;

use super::health::{Health, Pings};
use crate::body;
use crate::body::{Body, BodyGuard, BoxError, GuardedBody};
use crate::upstream::connect::connection::connector::Connector;
use crate::upstream::connect::connection::last_read::LastRead;
use crate::upstream::connect::connection::route;
use crate::upstream::connect::connection::runtime_executor::RuntimeExecutor;

/// The most requests in flight on one connection, even if the API server allows more streams. Its
/// default is 100.
const STREAMS_PER_CONNECTION: usize = 90;
/// The number of requests that may be cancelled on one connection before it gets no more requests.
/// Go's server ends a connection, with all its requests, when four times its stream limit of
/// cancelled requests still occupy it.
const CANCELS_PER_CONNECTION: usize = 2 * STREAMS_PER_CONNECTION;
/// The number of free streams that the other connections must have before an idle one is closed.
const SPARE_STREAMS: usize = STREAMS_PER_CONNECTION / 2;
/// Flow-control window of a connection, in bytes. It is larger than `STREAMS_PER_CONNECTION` times
/// `STREAM_WINDOW`, so streams that are not read can't block the others.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Flow-control window of one stream, in bytes.
pub(in crate::upstream) const STREAM_WINDOW: u32 = 1 << 20;
/// The most bytes of a request's body that a stream buffers.
const SEND_BUFFER: usize = 64 << 10;
/// The largest response headers, in bytes. It is generous because `Warning` headers can be long.
const HEADER_LIST_LIMIT: u32 = 256 << 10;

/// The HTTP/2 connections of one identity.
pub(super) struct Http2Pool {
    connector: Connector,
    server: Uri,
    connections: Arc<ConnectionSet>,
    health: Arc<Health>,
    /// Locked while a connection is opened, so that a burst opens no more than it needs.
    opening: tokio::sync::Mutex<()>,
    /// True if the server is plain http, or has chosen HTTP/1.1 by ALPN.
    http1_only: AtomicBool,
}

/// Permission to use one stream of a connection; dropping it frees the stream.
pub(super) struct StreamPermit {
    connections: Arc<ConnectionSet>,
    connection: u64,
    /// True if the complete response was received. Otherwise the request is cancelled.
    has_ended: bool,
}

/// A connection with its current stream limit, which the server may change.
pub(super) struct Opened {
    sender: SendRequest<Body>,
    streams: Arc<AtomicUsize>,
    last_read: LastRead,
    /// Fails when the connection takes no more requests.
    ended: oneshot::Receiver<()>,
}

/// The sender of a connection for one request, which stays open until this is dropped.
impl BodyGuard for Option<SendRequest<Body>> {}

#[derive(Default)]
struct ConnectionSet(Mutex<ConnectionSetState>);

#[derive(Default)]
struct ConnectionSetState {
    connections: Vec<PooledConnection>,
    opened: u64,
}

struct PooledConnection {
    id: u64,
    opened: Opened,
    in_flight: usize,
    cancelled: usize,
}

impl Http2Pool {
    /// Creates a pool for `server`; it stays empty for plain http, which has no
    /// ALPN to choose HTTP/2.
    pub(super) fn new(connector: Connector, server: Uri, health: Arc<Health>) -> Self {
        let plain = server.scheme() != Some(&http::uri::Scheme::HTTPS);
        Self {
            connector,
            server,
            connections: Arc::default(),
            health,
            opening: tokio::sync::Mutex::default(),
            http1_only: AtomicBool::new(plain),
        }
    }

    /// Returns a stream on an open or new connection, or `None` if the server
    /// supports only HTTP/1.1.
    pub(super) async fn acquire(
        &self,
    ) -> Result<Option<(SendRequest<Body>, StreamPermit)>, BoxError> {
        if self.http1_only.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if let Some(acquired) = self.connections.acquire() {
            return Ok(Some(acquired));
        }
        // The wait for the lock is limited too, because the server may not answer its holder.
        let opening = tokio::time::timeout(route::CONNECT_TIMEOUT, self.opening.lock());
        let _opening = opening.await?;
        self.health.check()?;
        if let Some(acquired) = self.connections.acquire() {
            return Ok(Some(acquired));
        }
        let opened = self.open().await?;
        Ok(opened.map(|opened| self.connections.add(opened)))
    }

    /// Opens a connection for one request. Returns `None` if the server supports only HTTP/1.1.
    pub(super) async fn open_own(&self) -> Result<Option<Opened>, BoxError> {
        if self.http1_only.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.open().await
    }

    /// Opens a connection, and returns when the server's settings have arrived. When the connection
    /// takes no more requests, the pool drops its sender.
    ///
    /// A request that is sent at that moment may stay in hyper's queue, and fails only when all
    /// senders of the connection are dropped (hyperium/hyper#4122).
    async fn open(&self) -> Result<Option<Opened>, BoxError> {
        let stream = self.connector.clone().oneshot(self.server.clone()).await?;
        self.health.opened.notify_one();
        if !stream.inner().http2 {
            self.http1_only.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        let executor = self.connector.executor();
        let pings = self.health.pings;
        let builder = builder(executor.clone(), pings);
        let last_read = stream.inner().last_read.clone();
        // The handshake runs on the executor too, because it starts the timer of the pings.
        let handshake = async move { builder.handshake(stream).await };
        let (sender, mut connection) = executor.run(handshake).await??;
        let streams = Arc::new(AtomicUsize::new(STREAMS_PER_CONNECTION));
        let limit = Arc::clone(&streams);
        let settings = last_read.clone();
        let mut settled = Box::pin(async move { settings.first().await }.fuse());
        let connection = poll_fn(move |cx| {
            // The first bytes are the server's settings; h2 applies them without a wake-up.
            let _ = settled.as_mut().poll(cx);
            let ended = Pin::new(&mut connection).poll(cx);
            limit.store(connection.current_max_send_streams(), Ordering::Relaxed);
            ended
        });
        let first = last_read.clone();
        let (open, mut ended) = oneshot::channel::<()>();
        let health = Arc::clone(&self.health);
        let connections = Arc::clone(&self.connections);
        executor.execute(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to the API server broke");
            }
            // A server that runs answers pings, so it is never silent for longer than the interval.
            if last_read.at().elapsed() >= pings.longest_silence() {
                health.suspect();
            }
            connections.0.lock().forget_closed();
            drop(open);
        });
        settings_arrived(&first, &mut ended).await?;
        Ok(Some(Opened {
            sender,
            streams,
            last_read: first,
            ended,
        }))
    }
}

fn builder(executor: RuntimeExecutor, pings: Pings) -> Builder<RuntimeExecutor> {
    let mut builder = Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADER_LIST_LIMIT)
        .keep_alive_interval(pings.interval)
        .keep_alive_timeout(pings.timeout)
        .keep_alive_while_idle(true);
    builder
}

/// Waits for the server's settings, which are its first bytes. A server that refuses kubefan's
/// certificate ends the connection instead, and does so only after the handshake of TLS 1.3.
async fn settings_arrived(
    last_read: &LastRead,
    ended: &mut oneshot::Receiver<()>,
) -> io::Result<()> {
    let settings = async {
        tokio::select! {
            biased;
            () = last_read.first() => Ok(()),
            _ = ended => Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
        }
    };
    tokio::time::timeout(route::CONNECT_TIMEOUT, settings).await?
}

impl ConnectionSet {
    /// Returns a stream on the first connection that is not full, so that later
    /// connections become idle.
    fn acquire(self: &Arc<Self>) -> Option<(SendRequest<Body>, StreamPermit)> {
        let mut state = self.0.lock();
        state.forget_closed();
        let mut connections = state.connections.iter_mut();
        let connection = connections.find(|connection| connection.free_streams() > 0)?;
        connection.in_flight += 1;
        let sender = connection.opened.sender.clone();
        Some((sender, self.permit(connection.id)))
    }

    fn add(self: &Arc<Self>, opened: Opened) -> (SendRequest<Body>, StreamPermit) {
        let mut state = self.0.lock();
        state.opened += 1;
        let id = state.opened;
        let sender = opened.sender.clone();
        state.connections.push(PooledConnection {
            id,
            opened,
            in_flight: 1,
            cancelled: 0,
        });
        (sender, self.permit(id))
    }

    fn permit(self: &Arc<Self>, connection: u64) -> StreamPermit {
        StreamPermit {
            connections: Arc::clone(self),
            connection,
            has_ended: false,
        }
    }

    /// Frees a stream of connection `id`. Removes the connection if `is_cancelled` requests have
    /// used it up, or if it is idle now and the others have at least `SPARE_STREAMS` free streams.
    /// A removed connection is closed when its requests have ended.
    fn release(&self, id: u64, is_cancelled: bool) {
        let mut state = self.0.lock();
        let Some(index) = state
            .connections
            .iter()
            .position(|connection| connection.id == id)
        else {
            return;
        };
        let connection = &mut state.connections[index];
        connection.in_flight -= 1;
        connection.cancelled += usize::from(is_cancelled);
        if connection.cancelled >= CANCELS_PER_CONNECTION {
            state.connections.remove(index);
            return;
        }
        let others = state
            .connections
            .iter()
            .filter(|connection| connection.id != id);
        let spare: usize = others.map(PooledConnection::free_streams).sum();
        if state.connections[index].in_flight == 0 && spare >= SPARE_STREAMS {
            state.connections.remove(index);
        }
    }
}

impl ConnectionSetState {
    fn forget_closed(&mut self) {
        self.connections
            .retain(|connection| !connection.opened.sender.is_closed());
    }
}

impl Opened {
    /// Sends the only request, and waits for the head of the response. The response has the
    /// connection's [`LastRead`] as an extension, and its body keeps the connection open.
    pub(super) async fn send(self, request: Request<Body>) -> hyper::Result<Response<Body>> {
        let Self {
            mut sender,
            mut ended,
            last_read,
            ..
        } = self;
        let mut response = pin!(sender.send_request(request));
        let (response, sender) = tokio::select! {
            biased;
            response = &mut response => (response, Some(sender)),
            // Completes only with an error: nothing is sent.
            _ = &mut ended => {
                drop(sender);
                // The server may still answer the request that it has.
                (response.await, None)
            }
        };
        let mut response = response?;
        response.extensions_mut().insert(last_read);
        let response = response.map(|body| GuardedBody::new(body, sender));
        Ok(response.map(body::boxed))
    }
}

impl PooledConnection {
    /// Returns how many more requests the connection may carry. A limit of 0 is not obeyed, because
    /// such a server could not be used at all.
    fn free_streams(&self) -> usize {
        let allowed = self.opened.streams.load(Ordering::Relaxed);
        let streams = allowed.clamp(1, STREAMS_PER_CONNECTION);
        streams.saturating_sub(self.in_flight)
    }
}

impl StreamPermit {
    /// Removes the stream's connection from the pool, so that it gets no more requests.
    pub(super) fn close_connection(&self) {
        let mut state = self.connections.0.lock();
        state
            .connections
            .retain(|connection| connection.id != self.connection);
    }
}

impl BodyGuard for StreamPermit {
    fn body_dropped(&mut self, is_complete: impl FnOnce() -> bool) {
        self.has_ended = is_complete();
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.connections.release(self.connection, !self.has_ended);
    }
}

#[cfg(test)]
mod tests;
