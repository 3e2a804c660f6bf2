//! WebSocket handshakes of clients.
//!
//! kubefan grants only handshakes that the API server would grant. All others are forwarded, so
//! that the API server refuses them in its own words. This applies to HTTP/1.1 only: neither
//! kubefan nor the API server supports WebSockets over HTTP/2.

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use hyper::upgrade::OnUpgrade;
use kubefan_core::body::Body;
use kubefan_core::{body, upstream};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// A client's WebSocket handshake that kubefan can grant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    accept: HeaderValue,
    protocol: Option<HeaderValue>,
}

impl Handshake {
    /// Returns the handshake in `headers`; `None` if there is none that the API server would grant.
    ///
    /// The API server requires an `Origin`, and grants one subprotocol of any name.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let first = |name: HeaderName| headers.get(name)?.to_str().ok();
        let is_handshake = first(header::UPGRADE)?.eq_ignore_ascii_case("websocket")
            && upstream::is_upgrade(headers)
            && first(header::SEC_WEBSOCKET_VERSION)? == "13";
        let origin: Uri = first(header::ORIGIN)?.parse().ok()?;
        let key = first(header::SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty())?;
        let has_scheme = origin.scheme_str().is_some_and(|scheme| !scheme.is_empty());
        (is_handshake && has_scheme).then_some(())?;
        let protocol = match headers.get(header::SEC_WEBSOCKET_PROTOCOL) {
            None => None,
            Some(protocols) => Some(protocols.to_str().ok()?.trim()),
        };
        if protocol.is_some_and(|protocols| protocols.contains(',')) {
            return None;
        }
        let protocol = protocol.filter(|protocol| !protocol.is_empty());
        Some(Self {
            accept: derive_accept_key(key.as_bytes()).try_into().ok()?,
            protocol: protocol.map(HeaderValue::from_str).transpose().ok()?,
        })
    }

    /// Returns the handshake of `request`. Also returns `None` if its connection can't be upgraded.
    pub(crate) fn of_upgradable(request: &Request<Body>) -> Option<Self> {
        request.extensions().get::<OnUpgrade>()?;
        Self::of(request.headers())
    }

    /// Returns the response (101) that grants the handshake.
    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, self.accept);
        if let Some(protocol) = self.protocol {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDSHAKE: [(&str, &str); 5] = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("origin", "http://localhost"),
    ];

    fn handshake(changes: &[(&'static str, &'static str)]) -> Option<Handshake> {
        let mut headers = HeaderMap::new();
        for (name, value) in HANDSHAKE.iter().chain(changes) {
            if value.is_empty() {
                headers.remove(*name)
            } else {
                headers.insert(*name, HeaderValue::from_static(value))
            };
        }
        Handshake::of(&headers)
    }

    #[test]
    fn grants_the_same_handshakes_as_the_api_server() {
        let granted = |protocol: Option<&'static str>| {
            Some(Handshake {
                // The accept key for the example key of RFC 6455.
                accept: HeaderValue::from_static("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
                protocol: protocol.map(HeaderValue::from_static),
            })
        };
        for (changes, expected) in [
            (vec![], granted(None)),
            (vec![("connection", "keep-alive, upgrade")], granted(None)),
            (vec![("upgrade", "WebSocket")], granted(None)),
            (
                vec![("sec-websocket-protocol", "chat")],
                granted(Some("chat")),
            ),
            (
                vec![("sec-websocket-protocol", " binary.k8s.io ")],
                granted(Some("binary.k8s.io")),
            ),
            (vec![("sec-websocket-protocol", "a, b")], None),
            (vec![("connection", "keep-alive")], None),
            (vec![("upgrade", "h2c, websocket")], None),
            (vec![("upgrade", "SPDY/3.1")], None),
            (vec![("sec-websocket-version", "8")], None),
            (vec![("sec-websocket-version", "")], None),
            (vec![("sec-websocket-key", "")], None),
            (vec![("origin", "")], None),
            (vec![("origin", "null")], None),
            (vec![("origin", "://localhost")], None),
        ] {
            assert_eq!(handshake(&changes), expected, "{changes:?}");
        }
    }
}
