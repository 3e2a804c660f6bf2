//! The client for one API server, with separate connections for each of the two identities.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{ACCEPT, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tower::ServiceExt;

use super::connect::connection::last_read::Io;
use super::connect::credentials::accepted::AcceptedCredentials;
use super::connect::kubeconfig::LoadedConfig;
use super::connect::stack::{MaybeSent, Stack};
use super::connect::transport::dedicated::{DedicatedConnection, HttpVersion};
use super::connect::transport::{Pool, Stacks, repeatable_copy};
use super::connect::{ClientConfig, ConnectError, OtherServer, kubeconfig, other_server};
use super::outage::Outage;
use super::warnings::Warnings;
use super::{Error, answer};
use crate::body;
use crate::body::{Body, BoxError};

mod kube_client;
mod paths;
mod renewal;

pub use paths::has_dot_segment;
pub(super) use paths::is_answered_by_backend;

const OUR_USER_AGENT: &str = concat!("kubefan/", env!("CARGO_PKG_VERSION"));
/// Maximum size in bytes of a JSON answer that is read into memory.
const JSON_LIMIT: usize = 256 << 20;

/// The identity that sends a request to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// The request is sent with the kubeconfig's credentials.
    Kubefan,
    /// The request is sent only with the credentials in its headers. Its connection has no client
    /// certificate, because the API server would prefer the certificate to a bearer token.
    Caller,
}

/// Sends requests to one API server; cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    origin: Origin,
    answer_timeout: Duration,
    server: Uri,
    server_text: String,
    default_namespace: String,
    stacks: ArcSwap<Stacks>,
    /// When the credentials were last reloaded after a 401. Locked during such a reload, so that
    /// all requests with the refused credentials share it.
    renewed_at: Arc<tokio::sync::Mutex<Option<Instant>>>,
    /// Requests with kubefan's credentials that got 401.
    refused_credentials: AtomicU64,
    /// The callers' credentials that the API server has accepted. Requests with these credentials
    /// may share connections.
    accepted: AcceptedCredentials,
    warnings: Warnings,
    outage: Arc<Outage>,
}

/// What a client was made from.
enum Origin {
    /// A kubeconfig, which can be read again.
    Config(ClientConfig),
    /// Another server, and the kubeconfig with its credentials.
    Other(OtherServer, ClientConfig),
    /// A client that has its own connections and credentials.
    Kube(kube::Client),
}

impl Inner {
    /// Sends a request over `stack`. The future is `'static`, so it borrows neither.
    fn call(
        &self,
        stack: &Stack,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Body>, Error>> + Send + 'static {
        let outage = Arc::clone(&self.outage);
        let is_safe = request.method().is_safe();
        let sent = stack.clone().oneshot(request);
        sent.map(move |sent| {
            let sent = sent.map_err(|error| no_answer(error, is_safe));
            outage.record(&sent);
            sent
        })
    }
}

impl Client {
    fn from_parts(
        origin: Origin,
        server: Uri,
        server_text: &str,
        default_namespace: &str,
        stacks: Stacks,
    ) -> Self {
        let answer_timeout = match &origin {
            Origin::Config(config) | Origin::Other(_, config) => config.answer_timeout,
            Origin::Kube(_) => ClientConfig::default().answer_timeout,
        };
        let inner = Inner {
            origin,
            answer_timeout,
            server,
            server_text: server_text.to_owned(),
            default_namespace: default_namespace.to_owned(),
            stacks: ArcSwap::from_pointee(stacks),
            renewed_at: Arc::default(),
            refused_credentials: AtomicU64::new(0),
            accepted: AcceptedCredentials::default(),
            warnings: Warnings::default(),
            outage: Arc::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Makes a client from the kubeconfig that `config` names. It opens no connection yet.
    ///
    /// If the kubeconfig has an exec plugin, this call runs it. The plugin inherits the program's
    /// standard error, and its standard input if that is a terminal. It may take five minutes;
    /// dropping the future kills it. Later runs may take one minute each and have no input; their
    /// standard error is logged.
    ///
    /// # Errors
    /// If the kubeconfig or a file that it names can't be used; the message is one line.
    pub async fn connect(config: ClientConfig) -> Result<Self, ConnectError> {
        let loaded = kubeconfig::load(&config).await?;
        Self::of_loaded(Origin::Config(config), loaded).await
    }

    /// Makes a client of `server`, which gets the credentials that `config` names. They are those of
    /// the current context if it names none, as for kubectl. [`ClientConfig::server`] is ignored.
    ///
    /// Otherwise it is as [`Client::connect`].
    ///
    /// # Errors
    /// If the URL does not begin with `https://`, because credentials are sent over TLS only, and
    /// the errors of [`Client::connect`].
    pub async fn connect_to(
        server: OtherServer,
        config: ClientConfig,
    ) -> Result<Self, ConnectError> {
        let loaded = other_server::load(&server, &config).await?;
        Self::of_loaded(Origin::Other(server, config), loaded).await
    }

    async fn of_loaded(origin: Origin, loaded: LoadedConfig) -> Result<Self, ConnectError> {
        let server = loaded.server().clone();
        let server_text = server.to_string();
        let default_namespace = loaded.config.default_namespace.clone();
        Ok(Self::from_parts(
            origin,
            server,
            server_text.trim_end_matches('/'),
            &default_namespace,
            loaded.stacks(None).await?,
        ))
    }

    /// Creates a client without credentials; `dial` opens its connections.
    #[cfg(any(test, feature = "test-support"))]
    pub fn in_memory(dial: &super::Dial) -> Self {
        let server = Uri::from_static("http://localhost");
        Self::for_tests(dial, server, &rustls::RootCertStore::empty())
    }

    #[cfg(any(test, feature = "test-support"))]
    fn for_tests(dial: &super::Dial, server: Uri, roots: &rustls::RootCertStore) -> Self {
        let stacks = super::connect::memory::stacks(dial, &server, roots, None);
        let origin = Origin::Config(ClientConfig::default());
        let text = server.to_string();
        Self::from_parts(origin, server, &text, "default", stacks)
    }

    /// Reads the kubeconfig again, so that later requests use its current client certificates and
    /// CAs. Requests in flight are not affected. Tokens, including those of exec plugins, and the
    /// CA of a pod are renewed without a reload. Does nothing if the client was made from a
    /// `kube::Client`.
    ///
    /// # Errors
    /// If the kubeconfig can't be used or names another server; the client then stays unchanged.
    pub async fn reload(&self) -> Result<(), ConnectError> {
        let loaded = match &self.inner.origin {
            Origin::Config(config) => kubeconfig::load(config).await?,
            Origin::Other(server, config) => other_server::load(server, config).await?,
            Origin::Kube(_) => return Ok(()),
        };
        loaded.check_same_server(&self.inner.server)?;
        let health = self.inner.stacks.load().health();
        self.replace(loaded.stacks(health).await?);
        Ok(())
    }

    /// Sends later requests over `stacks`, which share the health of the current stacks.
    fn replace(&self, stacks: Stacks) {
        if let Some(own) = &stacks.own {
            own.health.probe_with(own.opener.clone());
        }
        self.inner.stacks.store(Arc::new(stacks));
    }

    /// Returns false while the API server does not answer pings or handshakes. During this time,
    /// requests fail at once. Without HTTP/2 there are no pings, so only handshakes count. Always
    /// returns true if the client was made from a `kube::Client`.
    pub fn is_responding(&self) -> bool {
        let health = self.inner.stacks.load().health();
        health.is_none_or(|health| health.is_responding())
    }

    /// Returns how many requests with the kubeconfig's credentials were answered with 401. A read that
    /// was sent again with reloaded credentials counts only if these were refused, too. Answers of
    /// pods, services and nodes through the API server's proxy do not count, nor those to
    /// [`Client::request_over`].
    pub fn refused_credentials(&self) -> u64 {
        self.inner.refused_credentials.load(Ordering::Relaxed)
    }

    /// Completes when a connection to the API server was opened since this method last completed.
    /// Another API server may have accepted that connection. One task at a time may wait. Never
    /// completes if the client was made from a `kube::Client`. Cancel safe.
    pub async fn reconnected(&self) {
        match self.inner.stacks.load().health() {
            Some(health) => health.opened.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Returns for how long no request of kubefan or of a caller has reached the API server, or
    /// `None` if the last request did. An answer with any status counts.
    pub fn unreachable_for(&self) -> Option<Duration> {
        self.inner.outage.duration()
    }

    /// Returns the warnings in the API server's answers to kubefan's lists and watches.
    pub fn warnings(&self) -> &Warnings {
        &self.inner.warnings
    }

    /// Returns the API server's URL without a trailing slash, for logs. If the client was made from
    /// a `kube::Client`, which does not expose its URL, returns the text `kube::Client`.
    pub fn server(&self) -> &str {
        &self.inner.server_text
    }

    /// Returns the namespace of the kubeconfig's context, or `default` if the context has none.
    pub fn default_namespace(&self) -> &str {
        &self.inner.default_namespace
    }

    /// Sends a request over a shared HTTP/2 connection and returns when the response's headers
    /// have arrived.
    ///
    /// Only the path and query of the request's URI are used; they are appended unchanged to the
    /// path of the server's URL. Dropping the future or the response's body cancels the request.
    ///
    /// # Errors
    /// If the request can't be sent or gets no response. A response with an error status is `Ok`.
    pub async fn request(
        &self,
        identity: Identity,
        request: Request<Body>,
    ) -> Result<Response<Body>, Error> {
        self.send(identity, Pool::Http2, request).await
    }

    /// Sends a request over an HTTP/1.1 connection that no other request uses until the answer
    /// ends. This is for upgrades, and for large lists.
    ///
    /// # Errors
    /// As for [`Client::request`].
    pub async fn request_http1(
        &self,
        identity: Identity,
        request: Request<Body>,
    ) -> Result<Response<Body>, Error> {
        self.send(identity, Pool::Http1, request).await
    }

    /// Sends a request over an HTTP/2 connection that no other request uses, or over HTTP/1.1 if
    /// the server does not support HTTP/2. This is for watches: they can't delay each other, and
    /// pings show whether a silent watch is alive.
    ///
    /// # Errors
    /// As for [`Client::request`].
    pub(super) async fn request_alone(
        &self,
        identity: Identity,
        request: Request<Body>,
    ) -> Result<Response<Body>, Error> {
        self.send(identity, Pool::OwnHttp2, request).await
    }

    /// Opens a connection for [`Client::request_over`], on the current runtime and with kubefan's
    /// client certificate.
    ///
    /// # Errors
    /// If the connection can't be opened, the server does not support `version`, or the client was
    /// made from a `kube::Client`.
    pub async fn open_connection(
        &self,
        version: HttpVersion,
    ) -> Result<DedicatedConnection, Error> {
        let stacks = self.inner.stacks.load_full();
        let own = stacks.own.as_ref().ok_or_else(no_own_connections)?;
        let opened = own.opener.clone().open(version).await;
        opened.map_err(Error::Unreachable)
    }

    /// Opens a stream for a caller that implements HTTP/2, on the current runtime and with kubefan's
    /// client certificate. No byte of HTTP/2 is sent over it. [`DedicatedConnection::new`] makes a
    /// connection of it.
    ///
    /// # Errors
    /// As for [`Client::open_connection`].
    pub async fn open_http2_stream(&self) -> Result<Box<dyn Io>, Error> {
        let stacks = self.inner.stacks.load_full();
        let own = stacks.own.as_ref().ok_or_else(no_own_connections)?;
        let opened = own.opener.clone().open_http2().await;
        Ok(Box::new(opened.map_err(Error::Unreachable)?.into_inner()))
    }

    /// Sends a request as kubefan over a connection that the caller opened. The answer's headers
    /// must arrive within [`ClientConfig::answer_timeout`].
    ///
    /// # Errors
    /// [`Error::Answer`] if the status is not 2xx, and the errors of [`Client::request`].
    pub async fn request_over(
        &self,
        connection: &DedicatedConnection,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, Error> {
        request.extensions_mut().insert(connection.clone());
        let sent = self.send(Identity::Kubefan, Pool::Http2, request);
        answer::success(self.in_time(sent).await?).await
    }

    /// Sends a request and decodes its answer, which must be JSON of at most 256 MiB.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Decode`], and the errors of [`Client::request_success`].
    pub async fn request_json<T: DeserializeOwned>(
        &self,
        identity: Identity,
        request: Request<Body>,
    ) -> Result<T, Error> {
        let response = self.request_success(identity, request).await?;
        answer::json(response, JSON_LIMIT).await
    }

    /// Does what [`Client::request_json`] does, over an HTTP/1.1 connection that no other request
    /// uses until the answer ends.
    ///
    /// # Errors
    /// As for [`Client::request_json`].
    pub async fn request_json_alone<T: DeserializeOwned>(
        &self,
        identity: Identity,
        request: Request<Body>,
    ) -> Result<T, Error> {
        let response = self.in_time(self.request_http1(identity, request)).await?;
        answer::json(answer::success(response).await?, JSON_LIMIT).await
    }

    /// Sends a GET of `path`, which may have a query, as kubefan and decodes the JSON answer.
    ///
    /// # Errors
    /// As for [`Client::request_json`].
    pub async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let request = get(path, "application/json")?;
        self.request_json(Identity::Kubefan, request).await
    }

    /// Sends a request and returns its answer, if the answer is a success. The answer's headers
    /// must arrive within [`ClientConfig::answer_timeout`].
    ///
    /// # Errors
    /// [`Error::Answer`] if the status is not 2xx, and the errors of [`Client::request`].
    pub async fn request_success(
        &self,
        identity: Identity,
        request: Request<Body>,
    ) -> Result<Response<Body>, Error> {
        let response = self.in_time(self.request(identity, request)).await?;
        answer::success(response).await
    }

    /// Waits for the answer of `sent`, for at most [`ClientConfig::answer_timeout`].
    pub(super) async fn in_time(
        &self,
        sent: impl Future<Output = Result<Response<Body>, Error>>,
    ) -> Result<Response<Body>, Error> {
        answered_within(self.inner.answer_timeout, sent).await
    }

    /// Boxes the future, because the compiler can't prove an `async fn` around it to be `Send`.
    fn send(
        &self,
        identity: Identity,
        pool: Pool,
        mut request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        match self.uri(request.uri()) {
            Ok(uri) => *request.uri_mut() = uri,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        }
        *request.version_mut() = http::Version::HTTP_11;
        let dedicated = request.extensions_mut().remove::<DedicatedConnection>();
        request.extensions_mut().clear();
        request.extensions_mut().insert(pool);
        match (identity, dedicated) {
            (Identity::Caller, _) => Box::pin(self.clone().send_as_caller(request)),
            (Identity::Kubefan, Some(dedicated)) => {
                request.extensions_mut().insert(dedicated);
                Box::pin(self.inner.call(&self.inner.stacks.load().kubefan, request))
            }
            (Identity::Kubefan, None) => Box::pin(self.clone().send_as_kubefan(request, pool)),
        }
    }

    /// Returns true if the API server has accepted the token in `headers` when it was last used,
    /// or kubefan has asked about it since. A request of another caller gets an HTTP/1.1
    /// connection to itself.
    pub fn has_accepted(&self, headers: &HeaderMap) -> bool {
        let accepted = &self.inner.accepted;
        let token = accepted.digest(headers);
        token.is_some_and(|token| accepted.contains(token))
    }

    /// Records that the API server accepts `token`, as a review has shown.
    pub fn note_accepted(&self, token: &str) {
        let accepted = &self.inner.accepted;
        accepted.record(accepted.digest_of(token), true);
    }

    /// Sends a request with its own credentials. The request shares a connection only if the API
    /// server has accepted the credentials before, because a 401 on an HTTP/2 connection ends all
    /// requests on it. A request without credentials never shares a connection, because the API
    /// server closes its connection after the answer.
    async fn send_as_caller(self, mut request: Request<Body>) -> Result<Response<Body>, Error> {
        let accepted = &self.inner.accepted;
        let credentials = accepted.digest(request.headers());
        if !credentials.is_some_and(|credentials| accepted.contains(credentials)) {
            request.extensions_mut().insert(Pool::Http1);
        }
        let stacks = self.inner.stacks.load_full();
        let own = stacks.own.as_ref().ok_or_else(no_own_connections)?;
        let response = self.inner.call(&own.caller, request).await?;
        // Other statuses prove nothing about the credentials: a load balancer may have sent the
        // answer, or the API server may have answered 400 before it checked the credentials.
        let are_accepted = match response.status() {
            StatusCode::UNAUTHORIZED => Some(false),
            status if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS => {
                Some(true)
            }
            _ => None,
        };
        if let (Some(credentials), Some(are_accepted)) = (credentials, are_accepted) {
            accepted.record(credentials, are_accepted);
        }
        Ok(response)
    }

    /// Sends a request with kubefan's credentials. If the API server refuses the credentials,
    /// reloads them, and repeats the request if it is a read. Counts the refusals that remain.
    async fn send_as_kubefan(
        self,
        request: Request<Body>,
        pool: Pool,
    ) -> Result<Response<Body>, Error> {
        let is_refusable = !is_answered_by_backend(request.uri().path());
        let repeat = repeatable_copy(&request);
        let stacks = self.inner.stacks.load_full();
        let is_refused = |status: StatusCode| is_refusable && status == StatusCode::UNAUTHORIZED;
        let mut response = self.inner.call(&stacks.kubefan, request).await?;
        if is_refused(response.status())
            && let Some(own) = &stacks.own
            && self.renew(&stacks, own).await
            && let Some(mut repeat) = repeat
        {
            repeat.extensions_mut().insert(pool);
            let stacks = self.inner.stacks.load_full();
            response = self.inner.call(&stacks.kubefan, repeat).await?;
        }
        if is_refused(response.status()) {
            let refused = &self.inner.refused_credentials;
            refused.fetch_add(1, Ordering::Relaxed);
        }
        Ok(response)
    }

    /// Returns the URI of a request: the server's URL, with the path and query
    /// of `target` appended.
    ///
    /// A path with a dot segment is refused: the server, or a proxy before it, might resolve it to
    /// a path outside of the URL's prefix, such as a path of another cluster.
    fn uri(&self, target: &Uri) -> Result<Uri, Error> {
        if has_dot_segment(target.path()) {
            return Err(Error::Request("the path has a segment '.' or '..'".into()));
        }
        let invalid = |error: http::Error| Error::Request(error.into());
        let prefix = self.inner.server.path().trim_end_matches('/');
        let path_and_query = match target.path_and_query() {
            None => PathAndQuery::from_static("/"),
            Some(target) if prefix.is_empty() => target.clone(),
            Some(target) => PathAndQuery::try_from(format!("{prefix}{target}"))
                .map_err(|error| invalid(error.into()))?,
        };
        let mut parts = self.inner.server.clone().into_parts();
        parts.path_and_query = Some(path_and_query);
        Uri::from_parts(parts).map_err(|error| invalid(error.into()))
    }
}

/// Returns the error for a request that a client made from a `kube::Client` cannot send.
fn no_own_connections() -> Error {
    Error::Request("a client made from a kube::Client has no other connections".into())
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.server())
            .finish_non_exhaustive()
    }
}

/// Returns the error for a request that got no answer; `is_safe` is true if the
/// request changes nothing.
fn no_answer(error: BoxError, is_safe: bool) -> Error {
    match error.downcast::<MaybeSent>() {
        Ok(sent) if is_safe => Error::Transport(sent.0),
        Ok(sent) => Error::InDoubt(sent.0),
        Err(not_sent) => Error::unsent(not_sent),
    }
}

/// Waits for the answer of `sent`, for at most `limit`.
pub(super) async fn answered_within(
    limit: Duration,
    sent: impl Future<Output = Result<Response<Body>, Error>>,
) -> Result<Response<Body>, Error> {
    let response = tokio::time::timeout(limit, sent).await;
    response.map_err(|_| Error::Timeout(limit))?
}

/// Makes a GET request for `path`, which may have a query; `accept` is its `Accept` header.
pub(super) fn get(path: &str, accept: &'static str) -> Result<Request<Body>, Error> {
    let mut request = Request::new(body::empty());
    *request.uri_mut() = path
        .parse()
        .map_err(|error: http::uri::InvalidUri| Error::Request(error.into()))?;
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static(accept));
    headers.insert(USER_AGENT, HeaderValue::from_static(OUR_USER_AGENT));
    Ok(request)
}

#[cfg(test)]
mod tests;
