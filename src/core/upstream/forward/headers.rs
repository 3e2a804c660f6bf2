//! Separates the headers for one connection from those that are forwarded.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The hop-by-hop headers, which are only for one connection, by RFC 9110 §7.6.1 and older
/// specifications.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What `Connection` may list beside the names of [`HOP_BY_HOP`].
const OTHER_CONNECTION_OPTIONS: [&str; 3] = ["close", "http2-settings", "trailer"];

/// The API server's upgrade protocols for exec, attach, port-forward and WebSocket watches.
const RELAYED_PROTOCOLS: [&str; 2] = ["websocket", "SPDY/3.1"];

/// Removes the hop-by-hop headers, including those that `Connection` lists. `TE: trailers` stays,
/// because HTTP/2 servers require it before they send trailers.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    for name in connection_options(headers) {
        headers.remove(name);
    }
    let trailers =
        listed(headers, header::TE).any(|encoding| encoding.eq_ignore_ascii_case("trailers"));
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Returns true if `Connection` lists a header for the API server, such as `Accept` or
/// `Impersonate-User`. Removing such a header would change the request's meaning or identity.
pub fn connection_lists_end_to_end_header(headers: &HeaderMap) -> bool {
    connection_options(headers).iter().any(|option| {
        !HOP_BY_HOP.contains(option) && !OTHER_CONNECTION_OPTIONS.contains(&option.as_str())
    })
}

/// Returns true if `headers` request an upgrade to a protocol that the API server
/// supports. Other upgrades, such as `h2c`, are ignored, as HTTP allows: the request is
/// then treated like any other.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    upgrade_protocol(headers).is_some()
}

/// Returns the protocol of the upgrade that a request asks for, or that a response has accepted. If
/// there are several protocols, returns the first supported one. `Upgrade` is ignored unless
/// `Connection` lists it.
pub(super) fn upgrade_protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut options = connection_options(headers).into_iter();
    options.find(|option| option == header::UPGRADE)?;
    let is_relayed = |offer: &&str| {
        let mut relayed = RELAYED_PROTOCOLS.iter();
        relayed.any(|protocol| offer.eq_ignore_ascii_case(protocol))
    };
    // The protocol is returned in the upper and lower case that the client used.
    let mut relayed = listed(headers, header::UPGRADE).filter(is_relayed);
    HeaderValue::from_str(relayed.next()?).ok()
}

/// Adds the headers for an upgrade to `protocol`, which [`remove_hop_by_hop`] has removed.
pub(super) fn insert_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    let upgrade = HeaderValue::from_static("Upgrade");
    headers.insert(header::CONNECTION, upgrade);
    headers.insert(header::UPGRADE, protocol);
}

fn connection_options(headers: &HeaderMap) -> Vec<HeaderName> {
    listed(headers, header::CONNECTION)
        // `TE` is excluded because the caller removes it depending on its value.
        .filter(|option| !option.eq_ignore_ascii_case("te"))
        .filter_map(|option| HeaderName::try_from(option).ok())
        .collect()
}

/// Returns what the header lines `name` list, separated by commas.
fn listed(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = lines.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        pairs.collect()
    }

    #[test]
    fn only_end_to_end_headers_are_relayed() {
        let mut relayed = headers(&[
            ("connection", "keep-alive, X-Private , TE"),
            ("connection", "x-other"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "Basic x"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("te", "gzip, trailers"),
            ("x-private", "1"),
            ("x-other", "2"),
            ("authorization", "Bearer t"),
            ("audit-id", "a"),
        ]);
        remove_hop_by_hop(&mut relayed);
        let expected = [
            ("te", "trailers"),
            ("authorization", "Bearer t"),
            ("audit-id", "a"),
        ];
        assert_eq!(relayed, headers(&expected));
    }

    #[test]
    fn connection_may_list_only_what_concerns_the_connection() {
        for (value, expected) in [
            ("close", false),
            ("keep-alive, Upgrade", false),
            ("Upgrade, HTTP2-Settings", false),
            ("TE, Trailer, Transfer-Encoding, Proxy-Authorization", false),
            ("", false),
            (",, keep-alive ,", false),
            ("Accept", true),
            ("close, authorization", true),
            ("keep-alive,Impersonate-User", true),
            ("x-remote-user", true),
            ("host", true),
            ("content-length", true),
            ("x-anything", true),
        ] {
            let headers = headers(&[("connection", "keep-alive"), ("connection", value)]);
            let found = connection_lists_end_to_end_header(&headers);
            assert_eq!(found, expected, "{value}");
        }
    }

    #[test]
    fn an_upgrade_needs_both_headers_and_a_known_protocol() {
        for (lines, protocol) in [
            (
                vec![
                    ("connection", "keep-alive, Upgrade"),
                    ("upgrade", "SPDY/3.1"),
                ],
                Some("SPDY/3.1"),
            ),
            (vec![("connection", "Upgrade")], None),
            (vec![("upgrade", "websocket")], None),
            (
                vec![("connection", "close"), ("upgrade", "websocket")],
                None,
            ),
            (
                vec![("connection", "upgrade"), ("upgrade", "WebSocket")],
                Some("WebSocket"),
            ),
            (
                vec![("connection", "Upgrade"), ("upgrade", "spdy/3.1")],
                Some("spdy/3.1"),
            ),
            (
                vec![
                    ("connection", "Upgrade, HTTP2-Settings"),
                    ("upgrade", "h2c"),
                ],
                None,
            ),
            (vec![("connection", "Upgrade"), ("upgrade", "SPDY/3")], None),
            (
                vec![
                    ("connection", "Upgrade"),
                    ("upgrade", "h2c, websocket"),
                    ("upgrade", "SPDY/3.1"),
                ],
                Some("websocket"),
            ),
        ] {
            let headers = headers(&lines);
            let found = upgrade_protocol(&headers);
            assert_eq!(found, protocol.map(HeaderValue::from_static), "{lines:?}");
            assert_eq!(is_upgrade(&headers), protocol.is_some(), "{lines:?}");
        }
    }
}
