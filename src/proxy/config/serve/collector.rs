//! The collector of traces.

use http::Uri;

use super::checker::Checker;
use crate::traces::{Config, Rate};

const ENDPOINT: &str = "tracing.endpoint";

impl Checker<'_> {
    /// Returns where spans are sent to; `None` if no request is recorded.
    pub(super) fn traces(&mut self) -> Option<Config> {
        let tracing = &self.settings.tracing;
        let files = [
            ("tracing.caFile", &tracing.ca_file),
            ("tracing.headersFile", &tracing.headers_file),
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
            let message = format!(
                "{endpoint:?} is not an http:// or https:// URL such as \
                 http://localhost:4318/v1/traces"
            );
            self.report(ENDPOINT, &message);
            return None;
        };
        let rate = Rate::per_million(tracing.sampling_rate_per_million);
        Some(Config {
            endpoint,
            rate,
            ca_file: tracing.ca_file.clone(),
            headers_file: tracing.headers_file.clone(),
        })
    }
}

/// Returns the URL of a collector. It has no credentials, because logs show it.
fn parse(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let authority = url.authority()?;
    let is_usable = matches!(url.scheme_str(), Some("http" | "https"))
        && !authority.host().is_empty()
        && !authority.as_str().contains('@');
    is_usable.then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_and_a_host_and_no_credentials() {
        for (text, is_usable) in [
            ("http://localhost:4318/v1/traces", true),
            ("https://collector.example/a?b=c", true),
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
}
