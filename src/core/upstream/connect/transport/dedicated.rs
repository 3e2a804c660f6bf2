//! Connections that a caller opens for its own requests, with an HTTP version of its choice. Load
//! tests use them to control the number of connections.
//!
//! Over HTTP/2, a [`BodySink`] can take the body of an answer on the connection's task: without a
//! task, a wake, a lock of the HTTP library or a copy for each DATA frame. The library handles all
//! other frames.

mod filtered_io;
mod frames;
mod received_frames;
mod stream_body;
mod streams;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use filtered_io::FilteredIo;
use futures_util::future::{AbortHandle, abortable};
use h2::client;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body::Body as _;
use hyper::client::conn::http1;
use hyper::rt::Executor;
use hyper_util::rt::TokioExecutor;
use stream_body::OpenStream;
use streams::{Streams, Windows};
use tokio::sync::Mutex;

pub use self::stream_body::SinkableBody;
pub use self::streams::BodySink;
use crate::body;
use crate::body::{Body, BoxError};
use crate::upstream::connect::connection::connector::Connector;
use crate::upstream::connect::connection::runtime_executor::RuntimeExecutor;
use crate::upstream::connect::stack::MaybeSent;

/// The HTTP version of a dedicated connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1, which carries one request after another.
    Http1,
    /// HTTP/2, negotiated by ALPN over TLS, and assumed (prior knowledge) without TLS.
    Http2 {
        /// Flow-control window of a stream, in bytes.
        stream_window: u32,
        /// Flow-control window of the connection, in bytes.
        connection_window: u32,
    },
}

/// The number of concurrent streams until the server has said how many it allows.
const FIRST_STREAMS: usize = 100;

/// A connection that only the caller uses. Clones share it. It is closed when the last clone and
/// the last body of its responses are dropped.
#[derive(Clone)]
pub struct DedicatedConnection {
    sender: Arc<Sender>,
    task: ConnectionTask,
}

/// The task that reads from and writes to a connection.
#[derive(Clone)]
struct ConnectionTask {
    abort: AbortHandle,
    has_ended: Arc<AtomicBool>,
}

/// How the connections of one identity are opened: its two connectors, and the server.
#[derive(Clone)]
pub(in crate::upstream) struct ConnectionOpener {
    pub(in crate::upstream::connect) http1: Connector,
    pub(in crate::upstream::connect) http2: Connector,
    pub(in crate::upstream::connect) server: Uri,
}

enum Sender {
    Http1(Mutex<http1::SendRequest<Body>>),
    Http2 {
        sender: client::SendRequest<Bytes>,
        streams: Arc<parking_lot::Mutex<Streams>>,
    },
}

// === impl ConnectionOpener ===

impl ConnectionOpener {
    /// Returns the executor of the runtime for shared connections.
    pub(in crate::upstream) fn executor(&self) -> RuntimeExecutor {
        self.http2.executor()
    }

    /// Opens a connection, handshakes included, and closes it.
    pub(in crate::upstream) async fn probe(self) -> Result<(), BoxError> {
        self.http2.connect(self.server).await.map(drop)
    }

    pub(in crate::upstream) async fn open(
        self,
        version: HttpVersion,
    ) -> Result<DedicatedConnection, BoxError> {
        match version {
            HttpVersion::Http1 => {
                let stream = self.http1.connect(self.server).await?;
                let (sender, connection) = http1::handshake(stream).await?;
                let sender = Sender::Http1(Mutex::new(sender));
                Ok(DedicatedConnection::start(sender, connection))
            }
            HttpVersion::Http2 {
                stream_window,
                connection_window,
            } => {
                let windows = Windows {
                    stream: stream_window,
                    connection: connection_window,
                };
                self.open_http2(windows).await
            }
        }
    }

    async fn open_http2(self, windows: Windows) -> Result<DedicatedConnection, BoxError> {
        let is_tls = self.server.scheme() == Some(&http::uri::Scheme::HTTPS);
        let stream = self.http2.connect(self.server).await?;
        if is_tls && !stream.inner().http2 {
            return Err("the server does not offer HTTP/2".into());
        }
        let streams = Arc::new(parking_lot::Mutex::new(Streams::new(windows)));
        let io = FilteredIo::new(stream.into_inner(), Arc::clone(&streams));
        let (sender, connection) = client::Builder::new()
            .initial_window_size(windows.stream)
            .initial_connection_window_size(windows.connection)
            .initial_max_send_streams(FIRST_STREAMS)
            .enable_push(false)
            .handshake(io)
            .await?;
        let sender = Sender::Http2 { sender, streams };
        Ok(DedicatedConnection::start(sender, connection))
    }
}

// === impl DedicatedConnection ===

impl DedicatedConnection {
    /// Spawns the connection on the current runtime.
    fn start<E: std::error::Error>(
        sender: Sender,
        connection: impl Future<Output = Result<(), E>> + Send + 'static,
    ) -> Self {
        let (connection, abort) = abortable(connection);
        let has_ended = Arc::new(AtomicBool::new(false));
        let task = ConnectionTask {
            abort,
            has_ended: Arc::clone(&has_ended),
        };
        TokioExecutor::new().execute(async move {
            if let Ok(Err(error)) = connection.await {
                tracing::debug!(%error, "connection to the API server broke");
            }
            has_ended.store(true, Ordering::Release);
        });
        let sender = Arc::new(sender);
        Self { sender, task }
    }

    /// Returns true if no more requests can be sent over the connection. A server that has
    /// announced the end of an HTTP/2 connection may refuse them before that.
    pub fn is_closed(&self) -> bool {
        if self.task.abort.is_aborted() || self.task.has_ended.load(Ordering::Acquire) {
            return true;
        }
        match &*self.sender {
            // The lock is held while a request is sent, so the connection is still open then.
            Sender::Http1(sender) => sender.try_lock().is_ok_and(|sender| sender.is_closed()),
            Sender::Http2 { .. } => false,
        }
    }

    /// Closes the connection at once, as if it broke. All requests over it fail, and the bodies of
    /// their answers end or fail.
    pub fn abort(&self) {
        self.task.abort.abort();
    }

    /// Sends a request with an absolute URI, and waits for the response's headers. Over HTTP/2, the
    /// request must not have a body, and the response has a [`SinkableBody`] as an extension.
    pub(in crate::upstream) async fn send(
        self,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, BoxError> {
        let response = match &*self.sender {
            Sender::Http1(sender) => {
                let uri = request.uri();
                let authority = uri.authority().map_or("", |authority| authority.as_str());
                let host = HeaderValue::try_from(authority)?;
                let path = uri.path_and_query().cloned();
                *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
                request.headers_mut().entry(HOST).or_insert(host);
                let mut sender = sender.lock().await;
                sender.ready().await?;
                let response = sender.send_request(request).await;
                response.map_err(maybe_sent)?.map(body::boxed)
            }
            Sender::Http2 { sender, streams } => {
                if !request.body().is_end_stream() {
                    return Err("a dedicated HTTP/2 connection sends no bodies".into());
                }
                send_http2(sender.clone(), streams, request.map(drop)).await?
            }
        };
        Ok(response)
    }
}

async fn send_http2(
    sender: client::SendRequest<Bytes>,
    streams: &Arc<parking_lot::Mutex<Streams>>,
    request: Request<()>,
) -> Result<Response<Body>, BoxError> {
    let mut sender = sender.ready().await?;
    let (number, response) = {
        // The answer is not received before its stream is known here.
        let mut streams = streams.lock();
        let (response, _) = sender.send_request(request, true)?;
        let number = response.stream_id().as_u32();
        streams.open(number);
        (number, response)
    };
    let stream = OpenStream::new(number, streams);
    let (mut parts, received) = response.await.map_err(maybe_sent)?.into_parts();
    let body = stream.into_body(received);
    parts.extensions.insert(body.sinkable());
    Ok(Response::from_parts(parts, body::boxed(body)))
}

fn maybe_sent(error: impl Into<BoxError>) -> MaybeSent {
    MaybeSent(error.into())
}

impl std::fmt::Debug for DedicatedConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DedicatedConnection")
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
