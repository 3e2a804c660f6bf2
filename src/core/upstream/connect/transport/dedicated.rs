//! Connections that a caller opens for its own requests, with an HTTP version of its choice. Load
//! tests use them to control the number of connections.

use std::sync::Arc;

use futures_util::future::{AbortHandle, BoxFuture, abortable};
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::Mutex;
use tokio::task;

use crate::body;
use crate::body::{Body, BoxError};
use crate::upstream::connect::connection::connector::{ConnectionStream, Connector};
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

/// A connection that only the caller uses. Clones share it. It is closed when the last clone and
/// the last body of its responses are dropped.
#[derive(Clone)]
pub struct DedicatedConnection {
    sender: Arc<Sender>,
    /// Ends the connection.
    abort: AbortHandle,
    /// The task that reads from and writes to the connection.
    task: task::AbortHandle,
}

/// Sends the requests of a [`DedicatedConnection`] whose HTTP the caller implements.
pub trait RequestSender: Send + Sync {
    /// Returns true if no more requests can be sent.
    fn is_closed(&self) -> bool;

    /// Sends a request, which has an absolute URI and credentials, and waits for the response's
    /// headers. After an error, the server may have received the request.
    fn send(&self, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, BoxError>>;
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
    Http2(http2::SendRequest<Body>),
    Custom(Box<dyn RequestSender>),
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
                let stream = self.open_http2().await?;
                let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    .initial_stream_window_size(stream_window)
                    .initial_connection_window_size(connection_window)
                    .handshake(stream)
                    .await?;
                let sender = Sender::Http2(sender);
                Ok(DedicatedConnection::start(sender, connection))
            }
        }
    }

    /// Opens a connection for HTTP/2, without the handshake of HTTP/2.
    pub(in crate::upstream) async fn open_http2(self) -> Result<ConnectionStream, BoxError> {
        let is_tls = self.server.scheme() == Some(&http::uri::Scheme::HTTPS);
        let stream = self.http2.connect(self.server).await?;
        if is_tls && !stream.inner().http2 {
            return Err("the server does not offer HTTP/2".into());
        }
        Ok(stream)
    }
}

// === impl DedicatedConnection ===

impl DedicatedConnection {
    /// Makes a connection whose HTTP the caller implements: `sender` sends its requests, and
    /// `connection` reads and writes. Spawns `connection` on the current runtime.
    pub fn new<E: std::error::Error>(
        sender: impl RequestSender + 'static,
        connection: impl Future<Output = Result<(), E>> + Send + 'static,
    ) -> Self {
        Self::start(Sender::Custom(Box::new(sender)), connection)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the task ends with the connection, which belongs to the caller"
    )]
    fn start<E: std::error::Error>(
        sender: Sender,
        connection: impl Future<Output = Result<(), E>> + Send + 'static,
    ) -> Self {
        let (connection, abort) = abortable(connection);
        let task = tokio::spawn(async move {
            if let Ok(Err(error)) = connection.await {
                tracing::debug!(%error, "connection to the API server broke");
            }
        });
        Self {
            sender: Arc::new(sender),
            abort,
            task: task.abort_handle(),
        }
    }

    /// Returns true if no more requests can be sent over the connection.
    pub fn is_closed(&self) -> bool {
        let is_sender_closed = match &*self.sender {
            // The lock is held while a request is sent, so the connection is still open then.
            Sender::Http1(sender) => sender.try_lock().is_ok_and(|sender| sender.is_closed()),
            Sender::Http2(sender) => sender.is_closed(),
            Sender::Custom(sender) => sender.is_closed(),
        };
        is_sender_closed || self.abort.is_aborted()
    }

    /// Returns true if the connection has ended, and with it all requests over it.
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Closes the connection at once, as if it broke. All requests over it fail, and the bodies of
    /// their answers end or fail.
    pub fn abort(&self) {
        self.abort.abort();
    }

    /// Sends a request with an absolute URI, and waits for the response's headers.
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
            Sender::Http2(sender) => {
                let mut sender = sender.clone();
                sender.ready().await?;
                let response = sender.send_request(request).await;
                response.map_err(maybe_sent)?.map(body::boxed)
            }
            Sender::Custom(sender) => sender.send(request).await.map_err(maybe_sent)?,
        };
        Ok(response)
    }
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
