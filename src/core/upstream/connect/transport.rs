//! Sends requests over one identity's connections: over HTTP/1.1 or HTTP/2 connections for one
//! request each, or over shared HTTP/2 connections.

pub(in crate::upstream) mod dedicated;
pub(super) mod health;
pub(in crate::upstream) mod http2_pool;
pub(in crate::upstream) mod replay;

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dedicated::{ConnectionOpener, DedicatedConnection};
use futures_util::future::BoxFuture;
use health::Health;
use http::header::UPGRADE;
use http::{Extensions, Method, Request, Response};
use http_body::Body as _;
use http2_pool::Http2Pool;
use hyper_util::client::legacy::connect::{CaptureConnection, Connected, capture_connection};
use hyper_util::rt::TokioTimer;
use kube::client::{AuthError, ConfigExt};
use kube::config::Config;
use replay::Replay;
use tokio::time::sleep;
use tower::Layer;
use tower::util::MapRequest;

use super::connection::connector::Connector;
use super::connection::last_read::LastRead;
use super::credentials::token_file::TokenFile;
use super::stack::{MaybeSent, Stack};
use crate::body;
use crate::body::{Body, BoxError, GuardedBody};

/// An HTTP/1.1 connection is closed after it was idle for this time; the API server would
/// close it after 90 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of HTTP/2 connections that a request is tried on, including the first.
/// Another connection is tried only if the last one closed before any part of the request was sent.
const UNSENT_ATTEMPTS: u32 = 3;

/// Wait after the end of a connection, until the answers that it received have been processed.
const CLOSED_GRACE: Duration = Duration::from_secs(1);

/// Maximum number of idle HTTP/1.1 connections of one identity. About this number of requests use
/// them concurrently (the server limits the requests of callers). With a smaller number, each
/// request would need a handshake.
const MAX_IDLE: usize = 32;

type Http1 = hyper_util::client::legacy::Client<Connector, Body>;

/// How requests are sent.
pub(in crate::upstream) struct Stacks {
    pub(in crate::upstream) kubefan: Stack,
    /// `None` if requests are sent through a client that has its own connections.
    pub(in crate::upstream) own: Option<OwnConnections>,
}

/// What a client has beside [`Stacks::kubefan`] if it opens its own connections.
pub(in crate::upstream) struct OwnConnections {
    pub(in crate::upstream) caller: Stack,
    /// Opens dedicated connections with kubefan's client certificate.
    pub(in crate::upstream) opener: ConnectionOpener,
    /// Shared by both identities, and by the stacks of later reloads.
    pub(in crate::upstream) health: Arc<Health>,
}

/// The kind of connection for a request; stored in the request's extensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::upstream) enum Pool {
    /// A shared HTTP/2 connection, or an HTTP/1.1 connection if the server does not support HTTP/2.
    #[default]
    Http2,
    /// An HTTP/1.1 connection that no other request uses until the response has ended.
    Http1,
    /// An HTTP/2 connection that is opened only for this request, or an HTTP/1.1 connection if the
    /// server does not support HTTP/2.
    OwnHttp2,
}

/// The connections of one identity; cheap to clone.
#[derive(Clone)]
pub(in crate::upstream) struct Transport {
    http1: Http1,
    http2: Arc<Http2Pool>,
    health: Arc<Health>,
}

/// A failed attempt to send a request.
struct FailedAttempt {
    error: BoxError,
    /// The complete request, if no part of it was sent.
    unsent: Option<Request<Body>>,
    /// False if no connection could be opened.
    connected: bool,
}

impl FailedAttempt {
    /// Creates a failure without a connection.
    fn not_connected(error: impl Into<BoxError>) -> Self {
        Self {
            error: error.into(),
            unsent: None,
            connected: false,
        }
    }

    /// Creates a failure after which the API server may have the request.
    fn broken(error: impl Into<BoxError>) -> Self {
        Self {
            connected: true,
            ..Self::not_connected(error)
        }
    }

    /// Returns true if the connection ended because a ping was not answered.
    fn is_ping_timeout(&self) -> bool {
        let error = self.error.downcast_ref::<hyper::Error>();
        error.is_some_and(hyper::Error::is_timeout)
    }
}

impl From<FailedAttempt> for BoxError {
    fn from(failed: FailedAttempt) -> Self {
        if failed.connected && failed.unsent.is_none() {
            Box::new(MaybeSent(failed.error))
        } else {
            failed.error
        }
    }
}

impl Stacks {
    /// Returns the health of the API server, or `None` if a `kube::Client` has the connections.
    pub(in crate::upstream) fn health(&self) -> Option<Arc<Health>> {
        self.own.as_ref().map(|own| Arc::clone(&own.health))
    }
}

impl Transport {
    /// Creates an identity's connections, which are opened as `opener` opens them.
    pub(in crate::upstream) fn new(opener: ConnectionOpener, health: Arc<Health>) -> Self {
        let ConnectionOpener {
            http1,
            http2,
            server,
        } = opener;
        let client = hyper_util::client::legacy::Client::builder(http1.executor())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .build(http1);
        Self {
            http1: client,
            http2: Arc::new(Http2Pool::new(http2, server, Arc::clone(&health))),
            health,
        }
    }

    /// Makes a stack that adds the credentials in `config` to each request. They must not come from
    /// an exec plugin.
    pub(super) fn with_credentials(self, config: &Config) -> Result<Stack, kube::Error> {
        let headers = config.extra_headers_layer()?;
        let transport = headers.layer(self);
        if let Some(path) = &config.auth_info.token_file {
            let token = TokenFile::open(path.into())
                .map_err(|error| kube::Error::Auth(AuthError::ReadTokenFile(error, path.into())))?;
            let authorize = move |request| token.authorize(request);
            return Ok(Stack::new(MapRequest::new(transport, authorize)));
        }
        Ok(match config.auth_layer()? {
            Some(credentials) => Stack::new(credentials.layer(transport)),
            None => Stack::new(transport),
        })
    }

    /// Sends a request over a dedicated connection, or over a connection of the pool. Fails at once
    /// while the API server does not respond.
    ///
    /// In the pool, a GET or HEAD without body and upgrade is sent a second time if its connection
    /// broke before the response, for example because the server was closing an idle connection.
    /// The second attempt uses an HTTP/1.1 connection, because the API server closes a shared
    /// connection, with all requests on it, when it refuses a caller (401). A request that needs a
    /// separate HTTP/2 connection gets a new one. There is no second attempt after an unanswered
    /// ping, because that attempt would wait for the silent server too.
    async fn send(self, mut request: Request<Body>) -> Result<Response<Body>, BoxError> {
        if let Some(dedicated) = request.extensions_mut().remove::<DedicatedConnection>() {
            return dedicated.send(request).await;
        }
        self.health.check()?;
        let pool: Pool = request.extensions().get().copied().unwrap_or_default();
        let repeat = repeatable_copy(&request);
        let failed = match self.attempt(pool, request).await {
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        match repeat {
            Some(request) if failed.connected && !failed.is_ping_timeout() => {
                tracing::debug!(error = %failed.error, "connection broke, sending the request again");
                let unshared = match pool {
                    Pool::OwnHttp2 => Pool::OwnHttp2,
                    Pool::Http2 | Pool::Http1 => Pool::Http1,
                };
                Ok(self.attempt(unshared, request).await?)
            }
            _ => Err(failed.into()),
        }
    }

    async fn attempt(
        &self,
        pool: Pool,
        request: Request<Body>,
    ) -> Result<Response<Body>, FailedAttempt> {
        let over_http2 = match pool {
            Pool::Http1 => Err(request),
            Pool::Http2 => self.attempt_http2(request).await?,
            Pool::OwnHttp2 => self.attempt_own_http2(request).await?,
        };
        let mut request = match over_http2 {
            Ok(response) => return Ok(response),
            Err(over_http1) => over_http1,
        };
        let closed = closed(capture_connection(&mut request));
        // HTTP/1.1 has no pings, so the connection may be silent for ever.
        let sent = tokio::select! {
            biased;
            sent = self.http1.request(request) => sent.map_err(|error| FailedAttempt {
                connected: !error.is_connect(),
                unsent: None,
                error: error.into(),
            }),
            error = self.health.dead() => Err(FailedAttempt::broken(error)),
            () = closed => {
                let aborted = io::Error::from(io::ErrorKind::ConnectionAborted);
                Err(FailedAttempt::broken(aborted))
            }
        };
        sent.map(|response| response.map(body::boxed))
            .inspect_err(|failed| self.note_timeout(failed))
    }

    /// Sends a request over a new HTTP/2 connection, which no other request uses. Returns
    /// the request if HTTP/2 is not supported. The response has the connection's
    /// [`LastRead`] as an extension.
    async fn attempt_own_http2(
        &self,
        request: Request<Body>,
    ) -> Result<Result<Response<Body>, Request<Body>>, FailedAttempt> {
        let opened = tokio::select! {
            biased;
            opened = self.http2.open_own() => opened.map_err(FailedAttempt::not_connected),
            error = self.health.dead() => Err(FailedAttempt::not_connected(error)),
        };
        let opened = opened.inspect_err(|failed| self.note_timeout(failed))?;
        let Some(connection) = opened else {
            return Ok(Err(request));
        };
        let response = connection.send(request).await;
        response.map(Ok).map_err(FailedAttempt::broken)
    }

    /// Begins to probe the server if its handshake was not completed in time.
    fn note_timeout(&self, failed: &FailedAttempt) {
        if !failed.connected && health::is_timeout(&failed.error) {
            self.health.suspect();
        }
    }

    /// Sends a request over HTTP/2. If the connection closed before the request was sent, or the
    /// server provably did not process the request and its body is small, tries again on another
    /// connection, up to [`UNSENT_ATTEMPTS`] times in total. Returns the request if the server does
    /// not support HTTP/2, or if the request is still unsent after the last attempt.
    async fn attempt_http2(
        &self,
        mut request: Request<Body>,
    ) -> Result<Result<Response<Body>, Request<Body>>, FailedAttempt> {
        let replay = Replay::of(request).await;
        let replay = match replay.map_err(FailedAttempt::not_connected)? {
            Ok(replay) => {
                request = replay.request();
                Some(replay)
            }
            Err(large) => {
                request = large;
                None
            }
        };
        for _ in 0..UNSENT_ATTEMPTS {
            request = match (self.attempt_http2_once(request).await, &replay) {
                (
                    Err(FailedAttempt {
                        unsent: Some(unsent),
                        ..
                    }),
                    _,
                ) => unsent,
                (Err(failed), Some(replay)) if replay::is_unprocessed(&failed.error) => {
                    replay.request()
                }
                (outcome, _) => return outcome,
            };
        }
        Ok(Err(request))
    }

    /// Sends a request over one HTTP/2 connection; returns the request if HTTP/2 is not supported.
    async fn attempt_http2_once(
        &self,
        request: Request<Body>,
    ) -> Result<Result<Response<Body>, Request<Body>>, FailedAttempt> {
        let acquired = tokio::select! {
            biased;
            acquired = self.http2.acquire() => acquired.map_err(FailedAttempt::not_connected),
            error = self.health.dead() => Err(FailedAttempt::not_connected(error)),
        };
        let acquired = acquired.inspect_err(|failed| self.note_timeout(failed))?;
        let Some((mut sender, permit)) = acquired else {
            return Ok(Err(request));
        };
        let response = sender.try_send_request(request);
        // The pool has a sender while the connection takes requests.
        drop(sender);
        match response.await {
            Ok(response) => {
                let response = response.map(|body| GuardedBody::new(body, permit));
                Ok(Ok(response.map(body::boxed)))
            }
            Err(mut failed) => {
                let unsent = failed.take_message();
                let error = BoxError::from(failed.into_error());
                if unsent.is_some() || replay::is_unprocessed(&error) {
                    permit.close_connection();
                }
                Err(FailedAttempt {
                    error,
                    unsent,
                    connected: true,
                })
            }
        }
    }
}

/// Completes some time after the connection of a request was closed, unless the request was
/// sent on another connection by then. This time is long enough to process an answer that
/// arrived before the end.
///
/// This is a workaround for hyperium/hyper#4122: if a request is sent while its connection ends,
/// hyper may leave the request in a queue that nothing reads, and the client would wait for ever.
async fn closed(mut capture: CaptureConnection) {
    fn of(connected: Option<&Connected>) -> Option<LastRead> {
        let mut extras = Extensions::new();
        connected?.get_extras(&mut extras);
        extras.remove()
    }
    loop {
        let connection = of(capture.wait_for_connection_metadata().await.as_ref());
        let Some(connection) = connection else {
            return std::future::pending().await;
        };
        connection.closed().await;
        sleep(CLOSED_GRACE).await;
        let current = of(capture.connection_metadata().as_ref());
        if current.is_some_and(|current| current.is_of_same_connection(&connection)) {
            return;
        }
    }
}

/// Returns a copy of `request` without extensions if the request may be sent
/// twice, otherwise `None`.
pub(in crate::upstream) fn repeatable_copy(request: &Request<Body>) -> Option<Request<Body>> {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD)
        // An exec over WebSocket is a GET too, and sending it twice would run its command twice.
        && !request.headers().contains_key(UPGRADE);
    if !safe || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(body::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

impl tower::Service<Request<Body>> for Transport {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}
