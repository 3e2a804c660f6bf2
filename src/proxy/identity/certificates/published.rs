//! What the API server publishes about its own authentication, in the ConfigMap
//! `extension-apiserver-authentication` of the namespace `kube-system`.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow};
use http::HeaderName;
use serde::Deserialize;

use super::front_proxy::RemoteHeaders;

/// The CA bundles and names that the API server uses to authenticate its clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedAuthentication {
    /// The authorities of client certificates, as PEM; `None` if the API server accepts none.
    pub client_ca: Option<String>,
    /// The authorities of authenticating proxies, as PEM; `None` if the API server accepts none.
    pub request_header_ca: Option<String>,
    /// The common names of authenticating proxies; any name if this is empty.
    pub request_header_allowed_names: Vec<String>,
    /// The headers in which authenticating proxies name their callers. The default is the headers
    /// of kube-aggregator.
    pub remote_headers: RemoteHeaders,
}

impl PublishedAuthentication {
    /// Reads the ConfigMap from its JSON.
    ///
    /// # Errors
    /// If the bytes are no ConfigMap, or one of its lists is not a list of strings in JSON, or not
    /// a list of headers' names.
    pub fn from_config_map(json: &[u8]) -> anyhow::Result<PublishedAuthentication> {
        let config_map = serde_json::from_slice::<ConfigMap>(json);
        let mut data = config_map.context("not a ConfigMap in JSON")?.data;
        Ok(PublishedAuthentication {
            remote_headers: data.remote_headers()?,
            request_header_allowed_names: data.list("requestheader-allowed-names")?,
            client_ca: data.take("client-ca-file"),
            request_header_ca: data.take("requestheader-client-ca-file"),
        })
    }
}

#[derive(Deserialize)]
struct ConfigMap {
    #[serde(default)]
    data: Data,
}

#[derive(Default, Deserialize)]
struct Data(BTreeMap<String, String>);

impl Data {
    fn take(&mut self, key: &str) -> Option<String> {
        self.0.remove(key).filter(|value| !value.is_empty())
    }

    fn list(&mut self, key: &str) -> anyhow::Result<Vec<String>> {
        let Some(list) = self.take(key) else {
            return Ok(Vec::new());
        };
        let list = serde_json::from_str::<Vec<String>>(&list);
        list.with_context(|| format!("{key} is not a list of strings in JSON"))
    }

    fn headers(&mut self, key: &str) -> anyhow::Result<Vec<HeaderName>> {
        let names = self.list(key)?.into_iter();
        let parsed = names.map(|name| {
            let parsed = HeaderName::try_from(&name);
            parsed.map_err(|_| anyhow!("{key} has {name:?}, which is not the name of a header"))
        });
        parsed.collect()
    }

    /// Returns the published headers of authenticating proxies; those of kube-aggregator if no
    /// header for the user's name is published.
    fn remote_headers(&mut self) -> anyhow::Result<RemoteHeaders> {
        let names = self.headers("requestheader-username-headers")?;
        if names.is_empty() {
            return Ok(RemoteHeaders::default());
        }
        let prefixes = self.list("requestheader-extra-headers-prefix")?;
        let prefixes = prefixes.into_iter().filter(|prefix| !prefix.is_empty());
        Ok(RemoteHeaders {
            names,
            uids: self.headers("requestheader-uid-headers")?,
            groups: self.headers("requestheader-group-headers")?,
            extra_prefixes: prefixes.map(|prefix| prefix.to_ascii_lowercase()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(data: serde_json::Value) -> anyhow::Result<PublishedAuthentication> {
        let config_map = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": data});
        PublishedAuthentication::from_config_map(config_map.to_string().as_bytes())
    }

    #[test]
    fn what_the_api_server_publishes_is_read() {
        let published = read(json!({
            "client-ca-file": "one",
            "requestheader-allowed-names": r#"["front-proxy-client","other"]"#,
            "requestheader-client-ca-file": "two",
            "requestheader-username-headers": r#"["X-Remote-User","X-User"]"#,
            "requestheader-group-headers": r#"["X-Group"]"#,
            "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
        }));
        let expected = PublishedAuthentication {
            client_ca: Some("one".to_owned()),
            request_header_ca: Some("two".to_owned()),
            request_header_allowed_names: vec!["front-proxy-client".to_owned(), "other".to_owned()],
            remote_headers: RemoteHeaders {
                names: ["x-remote-user", "x-user"]
                    .map(HeaderName::from_static)
                    .into(),
                uids: Vec::new(),
                groups: vec![HeaderName::from_static("x-group")],
                extra_prefixes: vec!["x-remote-extra-".to_owned()],
            },
        };
        assert_eq!(published.unwrap(), expected);
    }

    #[test]
    fn missing_and_empty_values_are_none() {
        for data in [
            json!({}),
            json!({"client-ca-file": "", "requestheader-allowed-names": ""}),
            json!({"requestheader-client-ca-file": "", "requestheader-allowed-names": "[]"}),
        ] {
            assert_eq!(read(data).unwrap(), PublishedAuthentication::default());
        }
        let bare = PublishedAuthentication::from_config_map(b"{}");
        assert_eq!(bare.unwrap(), PublishedAuthentication::default());
    }

    #[test]
    fn invalid_texts_are_errors() {
        for names in ["front-proxy-client", r#"{"a":"b"}"#, "[1]"] {
            let error = read(json!({"requestheader-allowed-names": names})).unwrap_err();
            let expected = "requestheader-allowed-names is not a list of strings in JSON";
            assert_eq!(error.to_string(), expected, "{names}");
            assert!(error.source().is_some());
        }
        let error = read(json!({"requestheader-username-headers": r#"["a b"]"#})).unwrap_err();
        let expected =
            "requestheader-username-headers has \"a b\", which is not the name of a header";
        assert_eq!(error.to_string(), expected);
        let error = PublishedAuthentication::from_config_map(b"[]x").unwrap_err();
        assert_eq!(error.to_string(), "not a ConfigMap in JSON");
    }
}
