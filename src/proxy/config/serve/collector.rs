//! The collector of traces.

use http::Uri;

use super::checker::Checker;
use crate::net::is_loopback;
use crate::traces::{Config, Rate};

const ENDPOINT: &str = "tracing.endpoint";
const HEADERS: &str = "tracing.headersFile";

impl Checker<'_> {
    /// Returns where spans are sent to; `None` if no request is recorded.
    pub(super) fn traces(&mut self) -> Option<Config> {
        let tracing = &self.settings.tracing;
        let files = [
            ("tracing.caFile", &tracing.ca_file),
            (HEADERS, &tracing.headers_file),
        ];
        let Some(endpoint) = &tracing.endpoint else {
            for (key, file) in files {
                if file.is_some() {
                    let other = self.sources.name(ENDPOINT, key);
                    self.report(key, &format!("has no effect without {other}; add it"));
                }
            }
            return None;
        };
        let Some(endpoint) = parse(endpoint) else {
            // The text is not shown: it may have credentials.
            let message = "is not an http:// or https:// URL without credentials and query, such as \
                           http://localhost:4318/v1/traces";
            self.report(ENDPOINT, message);
            return None;
        };
        if tracing.headers_file.is_some() && is_exposed(&endpoint) {
            let other = self.sources.name(ENDPOINT, HEADERS);
            let message = format!(
                "may hold credentials, but {other} is an http:// URL of another host, so they would \
                 be sent in plain text; use https://"
            );
            self.report(HEADERS, &message);
            return None;
        }
        let rate = Rate::per_million(tracing.sampling_rate_per_million);
        Some(Config {
            endpoint,
            rate,
            ca_file: tracing.ca_file.clone(),
            headers_file: tracing.headers_file.clone(),
        })
    }
}

/// Returns the URL of a collector. It has no credentials and no query, which may have keys, because
/// logs and the admin API show it.
fn parse(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let authority = url.authority()?;
    let is_usable = matches!(url.scheme_str(), Some("http" | "https"))
        && !authority.host().is_empty()
        && !authority.as_str().contains('@')
        && url.query().is_none();
    is_usable.then_some(url)
}

/// Returns true if what is sent to `endpoint` leaves the machine in plain text.
fn is_exposed(endpoint: &Uri) -> bool {
    endpoint.scheme_str() == Some("http") && !is_loopback(endpoint.host().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_and_a_host_and_nothing_secret() {
        for (text, is_usable) in [
            ("http://localhost:4318/v1/traces", true),
            ("https://collector.example/a", true),
            ("https://collector.example/a?api-key=c", false),
            ("https://collector.example/a?", false),
            ("http://[::1]:4318", true),
            ("localhost:4318", false),
            ("grpc://localhost:4317", false),
            ("http://user:password@localhost:4318/v1/traces", false),
            ("/v1/traces", false),
            ("http://", false),
            ("http://:4318/", false),
            ("", false),
        ] {
            assert_eq!(parse(text).is_some(), is_usable, "{text}");
        }
    }

    #[test]
    fn plain_http_beyond_loopback_is_exposed() {
        for (text, expected) in [
            ("http://localhost:4318/v1/traces", false),
            ("http://LOCALHOST:4318", false),
            ("http://127.1.2.3:4318", false),
            ("http://[::1]:4318", false),
            ("https://collector.example", false),
            ("http://collector.example", true),
            ("http://10.0.0.1:4318", true),
            ("http://localhost.example:4318", true),
            ("http://[fd00::1]:4318", true),
        ] {
            let endpoint = parse(text).expect(text);
            assert_eq!(is_exposed(&endpoint), expected, "{text}");
        }
    }
}
