//! Connections that a caller opens for its own requests, with an HTTP version of its choice. Load
//! tests use them to control the number of connections.

use std::sync::Arc;

use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use hyper::client::conn::{http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::Mutex;

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

/// A connection that only the caller uses. Clones share it. It is closed when the last clone and
/// the last body of its responses are dropped.
#[derive(Clone)]
pub struct DedicatedConnection(Arc<Sender>);

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
        let sender = match version {
            HttpVersion::Http1 => {
                let stream = self.http1.connect(self.server).await?;
                let (sender, connection) = http1::handshake(stream).await?;
                spawn(connection);
                Sender::Http1(Mutex::new(sender))
            }
            HttpVersion::Http2 {
                stream_window,
                connection_window,
            } => {
                let is_tls = self.server.scheme() == Some(&http::uri::Scheme::HTTPS);
                let stream = self.http2.connect(self.server).await?;
                if is_tls && !stream.inner().http2 {
                    return Err("the server does not offer HTTP/2".into());
                }
                let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    .initial_stream_window_size(stream_window)
                    .initial_connection_window_size(connection_window)
                    .handshake(stream)
                    .await?;
                spawn(connection);
                Sender::Http2(sender)
            }
        };
        Ok(DedicatedConnection(Arc::new(sender)))
    }
}

fn spawn<E: std::error::Error>(connection: impl Future<Output = Result<(), E>> + Send + 'static) {
    TokioExecutor::new().execute(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to the API server broke");
        }
    });
}

// === impl DedicatedConnection ===

impl DedicatedConnection {
    /// Returns true if no more requests can be sent over the connection.
    pub fn is_closed(&self) -> bool {
        match &*self.0 {
            // The lock is held while a request is sent, so the connection is still open then.
            Sender::Http1(sender) => sender.try_lock().is_ok_and(|sender| sender.is_closed()),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    /// Sends a request with an absolute URI, and waits for the response's headers.
    pub(in crate::upstream) async fn send(
        self,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, BoxError> {
        let maybe_sent = |error: hyper::Error| MaybeSent(error.into());
        let response = match &*self.0 {
            Sender::Http1(sender) => {
                let uri = request.uri();
                let authority = uri.authority().map_or("", |authority| authority.as_str());
                let host = HeaderValue::try_from(authority)?;
                let path = uri.path_and_query().cloned();
                *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
                request.headers_mut().entry(HOST).or_insert(host);
                let mut sender = sender.lock().await;
                sender.ready().await?;
                sender.send_request(request).await.map_err(maybe_sent)?
            }
            Sender::Http2(sender) => {
                let mut sender = sender.clone();
                sender.ready().await?;
                sender.send_request(request).await.map_err(maybe_sent)?
            }
        };
        Ok(response.map(body::boxed))
    }
}

impl std::fmt::Debug for DedicatedConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DedicatedConnection")
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
