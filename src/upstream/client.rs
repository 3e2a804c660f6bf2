//! The client: the API server's address, and the connections of the two identities.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::TryFutureExt;
use futures_util::future::BoxFuture;
use http::Request;
use http::Response;
use http::Uri;
use http::header::ACCEPT;
use http::header::HeaderValue;
use http::header::USER_AGENT;
use http::uri::PathAndQuery;
use serde::de::DeserializeOwned;
use tower::ServiceExt;

use super::Error;
use super::answer;
use super::connect::ClientConfig;
use super::connect::ConnectError;
use super::connect::kubeconfig;
use super::connect::transport::Pool;
use super::connect::transport::Stacks;
use super::dedicated::DedicatedConnection;
use super::dedicated::HttpVersion;
use super::warnings::Warnings;
use crate::body;
use crate::body::Body;

/// Time until a small answer's headers are there; the API server gives up after 60 s itself.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);
const OUR_USER_AGENT: &str = concat!("kubefan/", env!("CARGO_PKG_VERSION"));
/// Bytes of a JSON answer that is read into memory.
const JSON_LIMIT: usize = 256 << 20;

/// As whom a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// With the kubeconfig's credentials.
    Kubefan,
    /// With the credentials that the request brings, and none of ours: not even a client
    /// certificate on the connection, for whose sake the API server would ignore a bearer token.
    Caller,
}

/// Sends requests to one API server; cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    config: ClientConfig,
    server: Uri,
    server_text: String,
    default_namespace: String,
    stacks: ArcSwap<Stacks>,
    warnings: Warnings,
}

impl Client {
    /// Reads the kubeconfig and makes a client of it, without connecting.
    ///
    /// # Errors
    ///
    /// When the kubeconfig, or what it refers to, can't be used; the message is one line.
    pub async fn connect(config: ClientConfig) -> Result<Self, ConnectError> {
        let loaded = kubeconfig::load(&config).await?;
        let server = loaded.server().clone();
        let inner = Inner {
            config,
            server_text: server.to_string().trim_end_matches('/').to_owned(),
            server,
            default_namespace: loaded.default_namespace().to_owned(),
            stacks: ArcSwap::from_pointee(loaded.stacks().await?),
            warnings: Warnings::default(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// A client without credentials, whose connections are what `dial` gives.
    #[cfg(test)]
    pub(crate) fn in_memory(dial: &super::Dial) -> Self {
        let server = Uri::from_static("http://localhost");
        let stack = || super::tests::memory::stack(dial, &server);
        let inner = Inner {
            config: ClientConfig::default(),
            server_text: server.to_string(),
            default_namespace: "default".to_owned(),
            stacks: ArcSwap::from_pointee(Stacks {
                kubefan: stack(),
                caller: stack(),
                opener: super::tests::memory::opener(dial, &server),
            }),
            server,
            warnings: Warnings::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Reads the kubeconfig again, so that requests from now on use the client certificates and
    /// CAs that are there now; requests in flight go on as they are. Tokens, exec plugins' tokens
    /// and a pod's CA are renewed without this.
    ///
    /// # Errors
    ///
    /// When it can't be used any more or names another server; everything stays as it was then.
    pub async fn reload(&self) -> Result<(), ConnectError> {
        let loaded = kubeconfig::load(&self.inner.config).await?;
        loaded.check_same_server(&self.inner.server)?;
        let stacks = loaded.stacks().await?;
        self.inner.stacks.store(Arc::new(stacks));
        Ok(())
    }

    /// What the API server warned kubefan of.
    pub fn warnings(&self) -> &Warnings {
        &self.inner.warnings
    }

    /// The API server's URL, for logs.
    pub fn server(&self) -> &str {
        &self.inner.server_text
    }

    /// The namespace that the context names; `default` when it names none.
    pub fn default_namespace(&self) -> &str {
        &self.inner.default_namespace
    }

    /// Sends a request over a shared HTTP/2 connection and returns once the response's headers
    /// are there. Of the request's URI only path and query count; they are sent byte for byte
    /// behind the path of the server's URL. Dropping the future or the body cancels the request.
    ///
    /// # Errors
    ///
    /// When it can't be sent or isn't answered. A failure that the API server answers is no error
    /// here.
    pub async fn request(
        &self,
        identity: Identity,
        request: Request<Body>,
    ) -> Result<Response<Body>, Error> {
        self.send(identity, Pool::Http2, request).await
    }

    /// Sends a request over an HTTP/1.1 connection that it has for itself: for upgrades, and for
    /// watches, which then can't hold up each other.
    ///
    /// # Errors
    ///
    /// As [`Client::request`].
    pub async fn request_http1(
        &self,
        identity: Identity,
        request: Request<Body>,
    ) -> Result<Response<Body>, Error> {
        self.send(identity, Pool::Http1, request).await
    }

    /// Opens a connection for the caller alone, on the runtime that this runs in, to send requests over as
    /// kubefan.
    ///
    /// # Errors
    ///
    /// When there is no connection, or the server doesn't speak that version.
    pub async fn open_connection(
        &self,
        version: HttpVersion,
    ) -> Result<DedicatedConnection, Error> {
        let opener = self.inner.stacks.load().opener.clone();
        opener.open(version).await.map_err(Error::Transport)
    }

    /// Sends a request over a connection that the caller opened; the answer's headers must come soon.
    ///
    /// # Errors
    ///
    /// [`Error::Answer`] for every answer but 2xx, and what [`Client::request`] says.
    pub async fn request_over(
        &self,
        connection: &DedicatedConnection,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, Error> {
        request.extensions_mut().insert(connection.clone());
        let sent = self.send(Identity::Kubefan, Pool::Http2, request);
        answer::success(in_time(sent).await?).await
    }

    /// Sends a request and reads its answer, which must be JSON of at most 256 MiB.
    ///
    /// # Errors
    ///
    /// [`Error::Answer`] for every answer but 2xx.
    pub async fn request_json<T: DeserializeOwned>(
        &self,
        identity: Identity,
        request: Request<Body>,
    ) -> Result<T, Error> {
        let response = self.request_success(identity, request).await?;
        let body = answer::collect(response.into_body(), JSON_LIMIT).await?;
        serde_json::from_slice(&body).map_err(|error| Error::Decode(error.into()))
    }

    /// GETs JSON as kubefan.
    ///
    /// # Errors
    ///
    /// As [`Client::request_json`].
    pub async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let request = get(path, "application/json")?;
        self.request_json(Identity::Kubefan, request).await
    }

    /// Sends a request whose answer's headers must come soon and say success.
    ///
    /// # Errors
    ///
    /// [`Error::Answer`] for every answer but 2xx, and what [`Client::request`] says.
    pub async fn request_success(
        &self,
        identity: Identity,
        request: Request<Body>,
    ) -> Result<Response<Body>, Error> {
        let response = in_time(self.request(identity, request)).await?;
        answer::success(response).await
    }

    /// Boxed at once: the compiler can't prove a future that holds the stack's own to be `Send`.
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
        if let Some(dedicated) = dedicated {
            request.extensions_mut().insert(dedicated);
        }
        let stacks = self.inner.stacks.load();
        let stack = match identity {
            Identity::Kubefan => &stacks.kubefan,
            Identity::Caller => &stacks.caller,
        };
        let sent = stack.clone().oneshot(request);
        Box::pin(sent.map_err(Error::Transport))
    }

    /// `target`'s path and query on the server, behind the path of the server's URL.
    fn uri(&self, target: &Uri) -> Result<Uri, Error> {
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

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.server())
            .finish_non_exhaustive()
    }
}

/// What `sent` answers, unless it takes longer than the API server takes to give up.
pub(super) async fn in_time(
    sent: impl Future<Output = Result<Response<Body>, Error>>,
) -> Result<Response<Body>, Error> {
    let answered = tokio::time::timeout(ANSWER_TIMEOUT, sent).await;
    answered.map_err(|_| Error::Timeout(ANSWER_TIMEOUT))?
}

/// A GET of `path` (with query) that accepts `accept`.
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
