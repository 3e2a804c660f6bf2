//! Sends requests over one identity's connections: HTTP/1.1 ones that carry one request each, or
//! shared HTTP/2 ones.

use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Method;
use http::Request;
use http::Response;
use http::Uri;
use http::header::UPGRADE;
use http_body::Body as _;
use hyper_util::rt::TokioTimer;
use kube::client::AuthError;
use kube::client::ConfigExt;
use kube::config::Config;
use tower::Layer;
use tower::util::BoxCloneSyncService;

use super::connector::Connector;
use super::http2_pool::Http2Pool;
use super::token_file::TokenFile;
use crate::body;
use crate::body::Body;
use crate::body::BoxError;
use crate::upstream::dedicated::ConnectionOpener;
use crate::upstream::dedicated::DedicatedConnection;

/// Time that an unused HTTP/1.1 connection is kept; the API server closes them after 90 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// HTTP/2 connections tried for a request that a closing connection handed back unsent.
const UNSENT_ATTEMPTS: u32 = 3;

type Http1 = hyper_util::client::legacy::Client<Connector, Body>;

/// A transport with an identity's credentials on top.
pub(in crate::upstream) type Stack = BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>;

/// The two identities' connections.
pub(in crate::upstream) struct Stacks {
    pub(in crate::upstream) kubefan: Stack,
    pub(in crate::upstream) caller: Stack,
    /// For connections of the caller's own, as kubefan.
    pub(in crate::upstream) opener: ConnectionOpener,
}

/// Which connections a request goes over; put into the request's extensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::upstream) enum Pool {
    /// A shared HTTP/2 connection, or what HTTP/1.1 has when the server speaks no HTTP/2.
    #[default]
    Http2,
    /// An HTTP/1.1 connection of its own, for as long as the response lasts.
    Http1,
}

/// One identity's connections; cheap to clone.
#[derive(Clone)]
pub(in crate::upstream) struct Transport {
    http1: Http1,
    http2: Arc<Http2Pool>,
}

/// A try that failed.
struct FailedAttempt {
    error: BoxError,
    /// The request as it was, when nothing of it was sent.
    unsent: Option<Request<Body>>,
    /// False when there was no connection at all.
    connected: bool,
}

impl Transport {
    pub(in crate::upstream) fn new(http1: Connector, http2: Connector, server: Uri) -> Self {
        let client = hyper_util::client::legacy::Client::builder(http1.executor())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .build(http1);
        Self {
            http1: client,
            http2: Arc::new(Http2Pool::new(http2, server)),
        }
    }

    /// Puts the credentials of `config` on top.
    ///
    /// Runs the kubeconfig's exec plugin, so it may block.
    pub(super) fn with_credentials(self, config: &Config) -> Result<Stack, kube::Error> {
        let headers = config.extra_headers_layer()?;
        let transport = headers.layer(self);
        if let Some(path) = &config.auth_info.token_file {
            let token = TokenFile::open(path.into())
                .map_err(|error| kube::Error::Auth(AuthError::ReadTokenFile(error, path.into())))?;
            return Ok(Stack::new(token.layer(transport)));
        }
        Ok(match config.auth_layer()? {
            Some(credentials) => Stack::new(credentials.layer(transport)),
            None => Stack::new(transport),
        })
    }

    /// Sends; a GET or HEAD without body, and without upgrade, is sent once more when its connection broke before
    /// anything was answered, as it does for a kept connection that the server closes meanwhile. The second
    /// time it has a connection to itself: a shared one is closed under everybody when a caller is refused (401).
    ///
    /// What is sent over a connection of the caller's own is sent once.
    async fn send(self, mut request: Request<Body>) -> Result<Response<Body>, BoxError> {
        if let Some(dedicated) = request.extensions_mut().remove::<DedicatedConnection>() {
            return dedicated.send(request).await;
        }
        let pool = request
            .extensions()
            .get()
            .copied()
            .unwrap_or(Pool::default());
        let repeat = repeatable_copy(&request);
        let failed = match self.attempt(pool, request).await {
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        match repeat {
            Some(request) if failed.connected => {
                tracing::debug!(error = %failed.error, "connection broke, sending again");
                let again = self.attempt(Pool::Http1, request).await;
                again.map_err(|failed| failed.error)
            }
            _ => Err(failed.error),
        }
    }

    async fn attempt(
        &self,
        pool: Pool,
        request: Request<Body>,
    ) -> Result<Response<Body>, FailedAttempt> {
        let request = match pool {
            Pool::Http1 => request,
            Pool::Http2 => match self.attempt_http2(request).await? {
                Ok(response) => return Ok(response),
                Err(over_http1) => over_http1,
            },
        };
        let sent = self.http1.request(request).await;
        sent.map(|response| response.map(body::boxed))
            .map_err(|error| FailedAttempt {
                connected: !error.is_connect(),
                unsent: None,
                error: error.into(),
            })
    }

    /// Sends over HTTP/2, and over another connection where that one closed before; gives the request back when
    /// there are none, or several closed.
    async fn attempt_http2(
        &self,
        mut request: Request<Body>,
    ) -> Result<Result<Response<Body>, Request<Body>>, FailedAttempt> {
        for _ in 0..UNSENT_ATTEMPTS {
            match self.attempt_http2_once(request).await {
                Err(FailedAttempt {
                    unsent: Some(unsent),
                    ..
                }) => request = unsent,
                outcome => return outcome,
            }
        }
        Ok(Err(request))
    }

    /// Sends over one HTTP/2 connection; gives the request back when there are none.
    async fn attempt_http2_once(
        &self,
        request: Request<Body>,
    ) -> Result<Result<Response<Body>, Request<Body>>, FailedAttempt> {
        let acquired = self.http2.acquire().await.map_err(|error| FailedAttempt {
            error,
            unsent: None,
            connected: false,
        })?;
        let Some((mut sender, permit)) = acquired else {
            return Ok(Err(request));
        };
        match sender.try_send_request(request).await {
            Ok(response) => Ok(Ok(
                response.map(|incoming| body::boxed(permit.guard(incoming)))
            )),
            Err(mut failed) => {
                let unsent = failed.take_message();
                if unsent.is_some() || sender.is_closed() {
                    permit.close_connection();
                }
                Err(FailedAttempt {
                    error: failed.into_error().into(),
                    unsent,
                    connected: true,
                })
            }
        }
    }
}

/// A copy of `request`, when it may be sent twice.
fn repeatable_copy(request: &Request<Body>) -> Option<Request<Body>> {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD)
        // exec over WebSocket is a GET, and would run its command twice.
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
