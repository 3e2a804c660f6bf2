//! Refuses requests that a web page or a rebound DNS name could send to a loopback listener.
//!
//! Callers are not authenticated, so every program that reaches the socket has the kubeconfig's
//! rights. A browser on the same machine can reach it too; the headers `Host`, `Origin` and
//! `Sec-Fetch-Site` show that a request was caused by a web page. Upgrades are checked as well,
//! because the same-origin policy does not cover WebSockets.

use std::convert::Infallible;
use std::task::Context;
use std::task::Poll;

use futures_util::future::Either;
use futures_util::future::Ready;
use futures_util::future::ready;
use http::HeaderMap;
use http::Request;
use http::Response;
use http::Uri;
use http::header::HOST;
use http::header::ORIGIN;
use http::uri::Authority;
use tower::Layer;
use tower::Service;

use crate::api::Status;
use crate::body::Body;
use crate::server::rescue::Refusal;

/// The layer that adds [`WebPages`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct WebPagesLayer;

/// Answers 403 to requests that a foreign web page may have caused.
#[derive(Clone, Debug)]
pub(crate) struct WebPages<S> {
    inner: S,
}

impl<S> Layer<S> for WebPagesLayer {
    type Service = WebPages<S>;

    fn layer(&self, inner: S) -> WebPages<S> {
        WebPages { inner }
    }
}

impl<S> Service<Request<Body>> for WebPages<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<Response<Body>, Infallible>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match refusal_reason(request.uri(), request.headers()) {
            None => Either::Left(self.inner.call(request)),
            Some(reason) => {
                let status = Status::failure(403, "Forbidden", format!("forbidden: {reason}"));
                let refusal = Refusal::of(&request);
                Either::Right(ready(Ok(refusal.respond(&status))))
            }
        }
    }
}

/// Why a foreign web page may have caused the request; `None` if no header indicates it.
fn refusal_reason(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let Some(host) = authority(uri, headers) else {
        return Some("the request has no valid Host header".to_owned());
    };
    if !is_loopback(host.host()) {
        return Some(format!(
            "Host {:?} is not local; kubefan accepts localhost, 127.0.0.1 and [::1]",
            host.as_str()
        ));
    }
    if let Some(origin) = headers.get_all(ORIGIN).iter().find(|origin| {
        let own = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.split_once("://"));
        own.is_none_or(|(_, own)| !own.eq_ignore_ascii_case(host.as_str()))
    }) {
        return Some(format!("Origin {origin:?} is not the Host of the request"));
    }
    let sites = headers.get_all("sec-fetch-site");
    let is_foreign_site = |site: &&http::HeaderValue| *site != "same-origin" && *site != "none";
    let site = sites.iter().find(is_foreign_site)?;
    Some(format!("the request comes from another site ({site:?})"))
}

/// The host and port that the request is for: in the URI in HTTP/2, in exactly one `Host` header in
/// HTTP/1.1. `None` if it is missing or ambiguous.
fn authority(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let mut hosts = headers.get_all(HOST).iter();
    match (uri.authority(), hosts.next(), hosts.next()) {
        (None, Some(host), None) => host.to_str().ok()?.parse().ok(),
        (Some(authority), None, None) => Some(authority.clone()),
        (Some(authority), Some(host), None) if host == authority.as_str() => {
            Some(authority.clone())
        }
        _ => None,
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(uri: &str, headers: &[(&str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().expect("a header name");
            map.append(name, value.parse().expect("a header value"));
        }
        refusal_reason(&uri.parse().expect("a URI"), &map).is_some()
    }

    #[test]
    fn only_local_programs_pass() {
        let pass: &[(&str, &[(&str, &str)])] = &[
            ("/api", &[("host", "127.0.0.1:8001")]),
            ("/api", &[("host", "localhost")]),
            ("/api", &[("host", "[::1]:8001")]),
            ("http://127.0.0.1:8001/api", &[]),
            (
                "/api",
                &[("host", "localhost:1"), ("origin", "http://localhost:1")],
            ),
            (
                "/api",
                &[("host", "localhost:1"), ("sec-fetch-site", "same-origin")],
            ),
            (
                "/api",
                &[("host", "localhost:1"), ("sec-fetch-site", "none")],
            ),
        ];
        for (uri, headers) in pass {
            assert!(!refused(uri, headers), "{uri} {headers:?}");
        }
        let refuse: &[(&str, &[(&str, &str)])] = &[
            ("/api", &[]),
            ("/api", &[("host", "evil.example")]),
            ("/api", &[("host", "localhost.evil.example:8001")]),
            ("/api", &[("host", "10.0.0.1")]),
            ("/api", &[("host", "localhost"), ("host", "evil.example")]),
            ("http://evil.example/api", &[("host", "localhost")]),
            (
                "/api",
                &[("host", "localhost:1"), ("origin", "http://evil.example")],
            ),
            (
                "/api",
                &[("host", "localhost:1"), ("origin", "http://localhost:2")],
            ),
            ("/api", &[("host", "localhost:1"), ("origin", "null")]),
            (
                "/api",
                &[("host", "localhost:1"), ("sec-fetch-site", "cross-site")],
            ),
            (
                "/api",
                &[("host", "localhost:1"), ("sec-fetch-site", "same-site")],
            ),
        ];
        for (uri, headers) in refuse {
            assert!(refused(uri, headers), "{uri} {headers:?}");
        }
    }
}
