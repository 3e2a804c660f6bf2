//! What the API server publishes about its own authentication, in the ConfigMap
//! `extension-apiserver-authentication` of the namespace `kube-system`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The CA bundles and names with which the API server authenticates its clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedAuthentication {
    /// The authorities of client certificates, as PEM; `None` if the API server accepts none.
    pub client_ca: Option<String>,
    /// The authorities of authenticating proxies, as PEM; `None` if the API server accepts none.
    pub request_header_ca: Option<String>,
    /// The common names of authenticating proxies; any if this is empty.
    pub request_header_allowed_names: Vec<String>,
}

/// Why the ConfigMap can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishedError {
    /// The bytes are no ConfigMap in JSON.
    #[error("not a ConfigMap in JSON")]
    ConfigMap(#[source] serde_json::Error),
    /// The names of the proxies are not a list of strings in JSON.
    #[error("requestheader-allowed-names is not a list of strings in JSON")]
    AllowedNames(#[source] serde_json::Error),
}

impl PublishedAuthentication {
    /// Reads the ConfigMap from its JSON.
    ///
    /// # Errors
    /// If it is no ConfigMap, or the names of the proxies are not a list of strings in JSON.
    pub fn from_config_map(json: &[u8]) -> Result<PublishedAuthentication, PublishedError> {
        #[derive(Deserialize)]
        struct ConfigMap {
            #[serde(default)]
            data: BTreeMap<String, String>,
        }

        let config_map = serde_json::from_slice(json);
        let ConfigMap { mut data } = config_map.map_err(PublishedError::ConfigMap)?;
        let mut take = |key| data.remove(key).filter(|value| !value.is_empty());
        let names = take("requestheader-allowed-names");
        let names: Option<Vec<String>> = names
            .map(|names| serde_json::from_str(&names))
            .transpose()
            .map_err(PublishedError::AllowedNames)?;
        Ok(PublishedAuthentication {
            client_ca: take("client-ca-file"),
            request_header_ca: take("requestheader-client-ca-file"),
            request_header_allowed_names: names.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(data: serde_json::Value) -> Result<PublishedAuthentication, PublishedError> {
        let config_map = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": data});
        PublishedAuthentication::from_config_map(config_map.to_string().as_bytes())
    }

    #[test]
    fn what_the_api_server_publishes_is_read() {
        let published = read(json!({
            "client-ca-file": "one",
            "requestheader-allowed-names": r#"["front-proxy-client","other"]"#,
            "requestheader-client-ca-file": "two",
            "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
        }));
        let expected = PublishedAuthentication {
            client_ca: Some("one".to_owned()),
            request_header_ca: Some("two".to_owned()),
            request_header_allowed_names: vec!["front-proxy-client".to_owned(), "other".to_owned()],
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
            assert!(matches!(error, PublishedError::AllowedNames(_)), "{names}");
        }
        let error = PublishedAuthentication::from_config_map(b"[]x").unwrap_err();
        assert!(matches!(error, PublishedError::ConfigMap(_)));
    }
}
