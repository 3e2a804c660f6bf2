//! Refuses requests that a web page or a rebound DNS name could send.
//!
//! A browser sends what a page asks for, wherever the page is from, and may add a client
//! certificate. It can reach listeners that the page's author cannot. The headers `Host`, `Origin`
//! and `Sec-Fetch-Site` show that a request was caused by a web page. Upgrades are checked as well,
//! because the same-origin policy does not cover WebSockets. kube-apiserver checks none of this;
//! its users do not browse with certificates, and its listener has no rights of its own.
//!
//! - On a loopback listener without authenticated callers, or without TLS, `Host` must be local. A
//!   page that binds its own name to the listener's address has the listener's origin for the
//!   browser, but its name is in `Host`. With TLS the browser finds that the certificate has
//!   another name. On other listeners an HTTP/1.0 request may lack `Host`, such as the check of a
//!   load balancer: browsers always send it.
//! - `Origin` must be the request's own host.
//! - A request with a bearer token in `Authorization` passes if callers are authenticated. A page
//!   that has a token needs no browser, and a browser lets a page add the header only after a
//!   preflight request, which is refused. Proxies of dashboards send such requests with the
//!   `Origin` of their users. A token in a WebSocket subprotocol does not count: pages may add
//!   that.

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Uri, Version};
use kubefan_core::api::Status;

use crate::net::is_loopback;
use crate::server::answers::answer::Answer;
use crate::server::request::Exchange;

/// The properties of a listener that decide which requests may be from a web page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebPageRules {
    /// True if clients reach the listener by a local name only. Default is true.
    pub has_local_name: bool,
    /// True if callers are authenticated, so that a bearer token shows that its sender is no
    /// foreign page. Default is false.
    pub are_callers_authenticated: bool,
}

impl Default for WebPageRules {
    fn default() -> Self {
        Self {
            has_local_name: true,
            are_callers_authenticated: false,
        }
    }
}

/// Refuses requests that a foreign web page may have caused.
pub(super) async fn refuse_foreign<F: Future<Output = Answer>>(
    exchange: Box<Exchange>,
    rules: WebPageRules,
    next: impl FnOnce(Box<Exchange>) -> F,
) -> Answer {
    let request = &exchange.request;
    let head = (request.uri(), request.headers());
    match refusal_reason(rules, request.version(), head) {
        None => next(exchange).await,
        Some(reason) => {
            let message = format!("forbidden: {reason}");
            exchange.refuse(Status::failure(403, "Forbidden", message))
        }
    }
}

/// Returns why a foreign web page may have caused the request; `None` if no header indicates that.
pub(crate) fn refusal_reason(
    rules: WebPageRules,
    version: Version,
    (uri, headers): (&Uri, &HeaderMap),
) -> Option<String> {
    let host = authority(uri, headers);
    let may_lack_host = version == Version::HTTP_10
        && uri.authority().is_none()
        && !headers.contains_key(HOST)
        && !rules.has_local_name;
    if host.is_none() && !may_lack_host {
        return Some("the request has no valid Host header".to_owned());
    }
    let host = host.as_ref();
    if let Some(host) = host.filter(|host| rules.has_local_name && !is_loopback(host.host())) {
        return Some(format!(
            "Host {:?} is not local; kubefan accepts localhost, 127.0.0.1 and [::1]",
            host.as_str()
        ));
    }
    if rules.are_callers_authenticated && has_bearer_token(headers) {
        return None;
    }
    if let Some(origin) = headers.get_all(ORIGIN).iter().find(|origin| {
        let own = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.split_once("://"));
        let is_own = |(_, own): (&str, &str)| {
            host.is_some_and(|host| own.eq_ignore_ascii_case(host.as_str()))
        };
        !own.is_some_and(is_own)
    }) {
        return Some(format!("Origin {origin:?} is not the Host of the request"));
    }
    let sites = headers.get_all("sec-fetch-site");
    let is_foreign_site = |site: &&http::HeaderValue| *site != "same-origin" && *site != "none";
    let site = sites.iter().find(is_foreign_site)?;
    Some(format!("the request comes from another site ({site:?})"))
}

/// Returns the host and port that the request is for. HTTP/2 has them in the URI, and HTTP/1.1 in
/// exactly one `Host` header. Returns `None` if they are missing or ambiguous.
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

/// Returns true if the request has exactly one `Authorization` header, with a bearer token.
/// Browsers add other kinds of credentials to the requests of foreign pages themselves.
fn has_bearer_token(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return false;
    };
    let scheme = value.as_bytes().split(|byte| *byte == b' ').next();
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(uri: &str, headers: &[(&str, &str)]) -> bool {
        refused_by(WebPageRules::default(), uri, headers)
    }

    fn refused_by(rules: WebPageRules, uri: &str, headers: &[(&str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().expect("a header name");
            map.append(name, value.parse().expect("a header value"));
        }
        let uri: Uri = uri.parse().expect("a URI");
        let is_refused = refusal_reason(rules, Version::HTTP_11, (&uri, &map)).is_some();
        let http10 = refusal_reason(rules, Version::HTTP_10, (&uri, &map)).is_some();
        let has_host = uri.authority().is_some() || map.contains_key(HOST);
        assert!(!has_host || is_refused == http10, "{uri} {headers:?}");
        is_refused
    }

    #[test]
    fn load_balancers_check_without_a_host_in_http10() {
        let remote = WebPageRules {
            has_local_name: false,
            are_callers_authenticated: true,
        };
        let (token, origin) = (
            ("authorization", "Bearer t"),
            ("origin", "https://a.example"),
        );
        let local = WebPageRules {
            has_local_name: true,
            ..remote
        };
        for (rules, version, headers, is_refused) in [
            (remote, Version::HTTP_10, &[][..], false),
            (remote, Version::HTTP_10, &[token], false),
            (remote, Version::HTTP_10, &[token, origin], false),
            (remote, Version::HTTP_10, &[origin], true),
            (
                remote,
                Version::HTTP_10,
                &[("sec-fetch-site", "cross-site")],
                true,
            ),
            (remote, Version::HTTP_10, &[token, ("host", "a b")], true),
            (remote, Version::HTTP_11, &[token], true),
            (local, Version::HTTP_10, &[token], true),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, value.parse().expect("a header value"));
            }
            let reason = refusal_reason(rules, version, (&Uri::from_static("/version"), &map));
            assert_eq!(
                reason.is_some(),
                is_refused,
                "{rules:?} {version:?} {headers:?}"
            );
        }
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

    #[test]
    fn programs_on_other_machines_pass_and_foreign_pages_do_not() {
        let rules = WebPageRules {
            has_local_name: false,
            are_callers_authenticated: true,
        };
        let (host, foreign) = (("host", "api.example:6443"), "https://evil.example");
        let token = ("authorization", "Bearer t");
        let cross_site = ("sec-fetch-site", "cross-site");
        let pass: &[&[(&str, &str)]] = &[
            &[host],
            &[host, token],
            &[host, ("origin", "https://api.example:6443")],
            &[host, ("origin", foreign), token],
            &[host, ("origin", foreign), ("authorization", "bEARER t")],
            &[host, ("origin", foreign), cross_site, token],
        ];
        for headers in pass {
            assert!(!refused_by(rules, "/api", headers), "{headers:?}");
        }
        let protocol = (
            "sec-websocket-protocol",
            "base64url.bearer.authorization.k8s.io.dA, v4.channel.k8s.io",
        );
        let refuse: &[&[(&str, &str)]] = &[
            &[token],
            &[host, host, token],
            &[host, ("origin", foreign)],
            &[host, cross_site],
            &[host, ("origin", foreign), ("authorization", "Basic dTpw")],
            &[host, ("origin", foreign), token, token],
            &[host, ("origin", foreign), protocol],
        ];
        for headers in refuse {
            assert!(refused_by(rules, "/api", headers), "{headers:?}");
        }
        let insecure = WebPageRules {
            are_callers_authenticated: false,
            ..rules
        };
        let headers = &[host, ("origin", foreign), token];
        assert!(refused_by(insecure, "/api", headers));
        let local = WebPageRules {
            has_local_name: true,
            ..rules
        };
        assert!(refused_by(local, "/api", &[host, token]));
    }
}
