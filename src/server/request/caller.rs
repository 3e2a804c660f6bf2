//! Detects requests that carry an identity of their own.

use http::HeaderMap;

/// Prefix of the subprotocol in which a WebSocket client that can't set headers sends its token.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// True if the request carries credentials or identity claims, which only the API server can judge.
pub(crate) fn has_identity(headers: &HeaderMap) -> bool {
    let is_claim = |name: &http::HeaderName| {
        let name = name.as_str();
        name == "authorization" || name.starts_with("impersonate-") || name.starts_with("x-remote-")
    };
    let protocols = headers.get_all(http::header::SEC_WEBSOCKET_PROTOCOL);
    headers.keys().any(is_claim)
        || protocols.iter().any(|protocols| {
            let protocols = protocols.as_bytes().split(|byte| *byte == b',');
            let mut protocols = protocols.map(<[u8]>::trim_ascii);
            protocols.any(|protocol| protocol.starts_with(TOKEN_PROTOCOL.as_bytes()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_with_an_identity_are_recognised() {
        let rows = [
            ("authorization", "Bearer x", true),
            ("impersonate-user", "jane", true),
            ("impersonate-extra-scopes", "x", true),
            ("x-remote-user", "jane", true),
            ("x-remote-extra-a", "x", true),
            (
                "sec-websocket-protocol",
                "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.eA",
                true,
            ),
            ("sec-websocket-protocol", "v5.channel.k8s.io", false),
            ("accept", "application/json", false),
        ];
        for (name, value, expected) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().expect("a header value"));
            assert_eq!(has_identity(&headers), expected, "{name}: {value}");
        }
    }
}
