//! A small HTTP client of the Kubernetes API that returns the status, the headers and the unchanged
//! body bytes of every response.

use std::error::Error;
use std::fmt;
use std::iter::successors;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;

use crate::support::clients::connector::Connector;
use crate::support::clients::frames::{Format, List, WatchReader, decode_list};

/// How often a GET of an unshared client is sent at most.
const MAX_ATTEMPTS: u32 = 5;

/// A complete response: the head and the body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A client of one server as one user. Clones share their connections.
#[derive(Clone)]
pub(crate) struct Client {
    http: legacy::Client<Connector, Full<Bytes>>,
    server: String,
    headers: HeaderMap,
    /// False if each request has a connection of its own.
    is_shared: bool,
}

impl Answer {
    /// Returns the body as JSON.
    ///
    /// # Panics
    /// Panics if the body is not JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the seconds in the header `Retry-After`.
    pub(crate) fn retry_seconds(&self) -> Option<u32> {
        self.header("retry-after")?.parse().ok()
    }

    /// Returns the answer if it has this status; otherwise an error with its status and body.
    pub(crate) fn is(self, status: u16) -> Result<Self, String> {
        if self.status == status {
            Ok(self)
        } else {
            Err(self.to_string())
        }
    }

    /// Returns the answer, and panics unless its status is 2xx.
    pub(crate) fn ok(self) -> Self {
        assert!(self.status.is_success(), "{self}");
        self
    }
}

/// Returns true if the request failed because of a GOAWAY of the server that names no error.
fn is_graceful_end(error: &legacy::Error) -> bool {
    let causes = successors(error.source(), |&cause| cause.source());
    let mut h2 = causes.filter_map(|cause| cause.downcast_ref::<h2::Error>());
    h2.any(|error| {
        error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
    })
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client of {}", self.server)
    }
}

impl Client {
    /// Creates a client for HTTP/1.1, or HTTP/2 if ALPN selects it.
    /// `server` is a URL without a path.
    pub(crate) fn new(server: &str, connector: Connector) -> Self {
        Self::built(server, connector, false, true)
    }

    /// Creates a client for HTTP/2 only: with prior knowledge, or over TLS that offers only h2.
    pub(crate) fn http2(server: &str, connector: Connector) -> Self {
        Self::built(server, connector, true, true)
    }

    /// Creates a client for HTTP/2 only that opens a new connection for each request.
    ///
    /// On shared connections, a request that is sent while the server closes the connection may
    /// wait for ever in the client (hyperium/hyper#4122). A request that was sent just before the
    /// server's GOAWAY may fail in the client, even if its answer arrives (hyperium/hyper#2500).
    /// Such a GET is sent again.
    pub(crate) fn http2_unshared(server: &str, connector: Connector) -> Self {
        Self::built(server, connector, true, false)
    }

    fn built(server: &str, connector: Connector, http2: bool, is_shared: bool) -> Self {
        let idle = if is_shared { usize::MAX } else { 0 };
        let http = legacy::Client::builder(TokioExecutor::new())
            .http2_only(http2)
            .pool_max_idle_per_host(idle)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Self {
            http,
            server: server.trim_end_matches('/').to_owned(),
            headers: HeaderMap::new(),
            is_shared,
        }
    }

    /// Copies the client, and adds one more header to every request of the copy.
    pub(crate) fn with(&self, name: &'static str, value: &str) -> Self {
        let mut client = self.clone();
        client
            .headers
            .insert(name, value.parse().expect("a header value"));
        client
    }

    /// Copies the client, and authenticates the copy with this bearer token.
    pub(crate) fn as_token(&self, token: &str) -> Self {
        self.with("authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Sends a request and returns as soon as the response's head has arrived.
    pub(crate) async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, legacy::Error> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = format!("{}{path}", self.server).parse().expect("a URI");
        request.headers_mut().extend(self.headers.clone());
        request.headers_mut().extend(headers.clone());
        if !self.is_shared && request.method() == Method::GET {
            for _ in 1..MAX_ATTEMPTS {
                match self.http.request(request.clone()).await {
                    Err(error) if is_graceful_end(&error) => {
                        eprintln!("{path} is sent again: {error}");
                    }
                    answered => return answered,
                }
            }
        }
        self.http.request(request).await
    }

    /// Sends a request and reads the response to its end. An error is a text with all causes.
    pub(crate) async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Answer, String> {
        let response = self
            .open(method, path, headers, body)
            .await
            .map_err(|error| format!("{path}: {}", chain(&error)))?;
        let (parts, body) = response.into_parts();
        let body = body
            .collect()
            .await
            .map_err(|error| format!("{path}: {}", chain(&error)))?;
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.to_bytes(),
        })
    }

    /// Sends a request and reads the response to its end.
    ///
    /// # Panics
    /// Panics if the connection fails before the response is complete.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Answer {
        match self.try_send(method, path, headers, body).await {
            Ok(answer) => answer,
            Err(error) => panic!("{self:?}: {error}"),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &HeaderMap::new(), Bytes::new())
            .await
    }

    /// Sends a GET, reads the body to its end without keeping it, and returns the status and the
    /// length of the body in bytes.
    ///
    /// # Panics
    /// Panics if the connection fails before the response is complete.
    pub(crate) async fn drain(&self, path: &str) -> (u16, usize) {
        let none = HeaderMap::new();
        let response = self
            .open(Method::GET, path, &none, Bytes::new())
            .await
            .unwrap_or_else(|error| panic!("{path}: {}", chain(&error)));
        let (parts, mut body) = response.into_parts();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.unwrap_or_else(|error| panic!("{path}: {}", chain(&error)));
            length += frame.data_ref().map_or(0, Bytes::len);
        }
        (parts.status.as_u16(), length)
    }

    pub(crate) async fn get_as(&self, path: &str, format: Format) -> Answer {
        self.send(Method::GET, path, &format.accept(), Bytes::new())
            .await
    }

    /// Sends a LIST and decodes it; panics unless its status is 2xx.
    pub(crate) async fn list(&self, path: &str, format: Format) -> List {
        decode_list(format, &self.get_as(path, format).await.ok().body)
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Answer {
        self.write(Method::POST, path, "application/json", object)
            .await
    }

    pub(crate) async fn replace(&self, path: &str, object: &Value) -> Answer {
        self.write(Method::PUT, path, "application/json", object)
            .await
    }

    pub(crate) async fn merge(&self, path: &str, change: &Value) -> Answer {
        self.write(Method::PATCH, path, "application/merge-patch+json", change)
            .await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.write(Method::DELETE, path, "application/json", &Value::Null)
            .await
    }

    async fn write(&self, method: Method, path: &str, media: &str, object: &Value) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", media.parse().expect("a media type"));
        let body = if object.is_null() {
            Vec::new()
        } else {
            object.to_string().into_bytes()
        };
        self.send(method, path, &headers, Bytes::from(body)).await
    }

    /// Opens a watch, and returns when the response's head has arrived.
    ///
    /// # Errors
    /// The connection failed, or the status is not 200.
    pub(crate) async fn watch(&self, path: &str, format: Format) -> Result<WatchReader, String> {
        self.watch_as(path, format, &format.accept_watch()).await
    }

    /// Opens a watch with the given `Accept` header; the server must answer it in `format`.
    pub(crate) async fn watch_accepting(
        &self,
        path: &str,
        format: Format,
        accept: &str,
    ) -> Result<WatchReader, String> {
        let mut headers = HeaderMap::new();
        headers.insert("accept", accept.parse().expect("a media type"));
        self.watch_as(path, format, &headers).await
    }

    async fn watch_as(
        &self,
        path: &str,
        format: Format,
        headers: &HeaderMap,
    ) -> Result<WatchReader, String> {
        let response = self
            .open(Method::GET, path, headers, Bytes::new())
            .await
            .map_err(|error| format!("{path}: {}", chain(&error)))?;
        if response.status() != StatusCode::OK {
            let status = response.status();
            let body = response
                .into_body()
                .collect()
                .await
                .map(|body| body.to_bytes());
            let body = body.unwrap_or_default();
            return Err(format!(
                "{path}: {status} {}",
                String::from_utf8_lossy(&body)
            ));
        }
        Ok(WatchReader::new(response.into_body(), format))
    }
}

/// Returns the message of an error followed by the messages of its causes, outermost first.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
