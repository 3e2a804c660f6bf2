//! Connections that a caller opens for itself, of the HTTP version it wants: for those who measure how a
//! server copes with connections, which the shared connections would decide for them.

use std::sync::Arc;

use http::HeaderValue;
use http::Request;
use http::Response;
use http::Uri;
use http::header::HOST;
use hyper::client::conn::http1;
use hyper::client::conn::http2;
use hyper::rt::Executor;
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::TokioTimer;
use tokio::sync::Mutex;

use super::connect::connector::Connector;
use crate::body;
use crate::body::Body;
use crate::body::BoxError;

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1, one request at a time.
    Http1,
    /// HTTP/2: chosen by ALPN over TLS, and by prior knowledge without.
    Http2 {
        /// Unread bytes that a stream takes.
        stream_window: u32,
        /// The same for all streams together.
        connection_window: u32,
    },
}

/// A connection of the caller's own; clones share it, and it is closed when the last of them, and of
/// the bodies that came over it, is dropped.
#[derive(Clone)]
pub struct DedicatedConnection(Arc<Sender>);

/// Opens connections with an identity's client certificate.
#[derive(Clone)]
pub(super) struct ConnectionOpener {
    http1: Connector,
    http2: Connector,
    server: Uri,
}

enum Sender {
    Http1(Mutex<http1::SendRequest<Body>>),
    Http2(http2::SendRequest<Body>),
}

// === impl ConnectionOpener ===

impl ConnectionOpener {
    pub(super) fn new(http1: Connector, http2: Connector, server: Uri) -> Self {
        Self {
            http1,
            http2,
            server,
        }
    }

    pub(super) async fn open(self, version: HttpVersion) -> Result<DedicatedConnection, BoxError> {
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
                if is_tls && !stream.http2 {
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
    /// True when no further request can be sent over it.
    pub fn is_closed(&self) -> bool {
        match &*self.0 {
            // One that is being sent over is not closed yet.
            Sender::Http1(sender) => sender.try_lock().is_ok_and(|sender| sender.is_closed()),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    /// Sends; the request's URI is absolute.
    pub(super) async fn send(self, mut request: Request<Body>) -> Result<Response<Body>, BoxError> {
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
                sender.send_request(request).await?
            }
            Sender::Http2(sender) => {
                let mut sender = sender.clone();
                sender.ready().await?;
                sender.send_request(request).await?
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
