//! The route to the API server: directly, or through a proxy from the kubeconfig or environment.

use std::net::IpAddr;
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

/// Time limit for opening a connection, including DNS, TCP, proxy and TLS.
pub(in crate::upstream) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// After this time without traffic, TCP sends a keep-alive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// TCP closes the connection if sent bytes are not acknowledged for this time.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the proxy for `server`, or `None` to connect directly.
///
/// The kubeconfig's `proxy-url` has priority and ignores `NO_PROXY`. Otherwise `HTTPS_PROXY`,
/// `HTTP_PROXY` and `NO_PROXY` decide; as in Go, they never apply to loopback addresses. The kube
/// crate's choice of a proxy is not used, because it compares `NO_PROXY` with the proxy's address.
pub(in crate::upstream::connect) fn proxy(
    server: &Uri,
    kubeconfig_proxy: Option<&str>,
) -> Option<Intercept> {
    match kubeconfig_proxy.filter(|url| !url.is_empty()) {
        Some(url) => Matcher::builder().all(url).build().intercept(server),
        None if is_loopback(server) => None,
        None => Matcher::from_env().intercept(server),
    }
}

/// Returns the connector that opens TCP connections to the API server or to its proxy.
pub(in crate::upstream::connect) fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE_IDLE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIMEOUT));
    tcp
}

fn is_loopback(server: &Uri) -> bool {
    let host = host(server);
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Returns the host of `uri`, without the brackets of an IPv6 address. Returns an empty text if the
/// URI has no host.
pub(in crate::upstream::connect) fn host(uri: &Uri) -> &str {
    let host = uri.host().unwrap_or_default();
    host.trim_matches(['[', ']'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubeconfigs_proxy_is_used_with_its_credentials() {
        let server = Uri::from_static("https://10.0.0.1:6443");
        let found = proxy(&server, Some("http://u:p%40ss@proxy:3128")).expect("a proxy");
        assert_eq!(found.uri().to_string(), "http://proxy:3128/");
        assert_eq!(found.basic_auth().expect("credentials"), "Basic dTpwQHNz");
        let found = proxy(&server, Some("socks5://proxy:1080")).expect("a proxy");
        assert_eq!(found.uri().scheme_str(), Some("socks5"));
    }

    #[test]
    fn loopback_and_brackets() {
        for (uri, host_text, loopback) in [
            ("https://[::1]:6443", "::1", true),
            ("http://localhost:8001", "localhost", true),
            ("http://127.0.0.2:1", "127.0.0.2", true),
            ("https://[fd00::1]", "fd00::1", false),
            ("https://kubernetes.default", "kubernetes.default", false),
        ] {
            let uri = Uri::from_static(uri);
            assert_eq!((host(&uri), is_loopback(&uri)), (host_text, loopback));
        }
    }
}
