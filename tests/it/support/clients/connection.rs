//! A client with a single connection, for many requests that must cost the client little.

use std::net::Ipv4Addr;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::support::clients::client::Answer;
use crate::support::clients::connector::{Connector, Io};

/// The future that reads and writes a connection. The connection closes when it is dropped.
pub(crate) type Driver = http1::Connection<TokioIo<Box<dyn Io>>, Full<Bytes>>;

/// A client with one HTTP/1.1 connection, and at most one request in flight. Its [`Driver`] must
/// be polled meanwhile.
pub(crate) struct Connection {
    requests: http1::SendRequest<Full<Bytes>>,
    headers: HeaderMap,
}

impl Connection {
    /// Connects to `server`, a URL with an IPv4 address, a port and no path, as the owner of a
    /// bearer token.
    ///
    /// # Panics
    /// Panics if the server does not accept the connection.
    pub(crate) async fn open(server: &str, connector: &Connector, token: &str) -> (Self, Driver) {
        let dialed = connector.dial(server, Ipv4Addr::LOCALHOST).await;
        let stream = TokioIo::new(dialed.expect("a connection"));
        let (requests, driver) = http1::handshake(stream).await.expect("HTTP/1.1");
        let (_, host) = server.split_once("://").expect("a URL");
        let bearer = format!("Bearer {token}");
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().expect("a header value"));
        headers.insert(AUTHORIZATION, bearer.parse().expect("a header value"));
        (Self { requests, headers }, driver)
    }

    /// Sends a request and reads the response to its end.
    ///
    /// # Panics
    /// Panics if the connection fails before the response is complete.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Answer {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("a path");
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().extend(headers.clone());
        self.requests.ready().await.expect("an open connection");
        let answer = self.requests.send_request(request).await;
        let (parts, body) = answer.expect("an answer").into_parts();
        let body = body.collect().await.expect("a complete body");
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.to_bytes(),
        }
    }
}
