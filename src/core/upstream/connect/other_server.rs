//! The credentials of a kubeconfig for a server that it does not name.

use kube::config::Config;

use super::config::{ClientConfig, OtherServer};
use super::connection::server_certificate;
use super::error::{ConnectError, one_line};
use super::kubeconfig::{LoadedConfig, find_config, invalid, parse_url};

/// Reads and validates what `config` names, for `server`. Blocks no thread of the runtime: a file may
/// be a pipe.
pub(in crate::upstream) async fn load(
    server: &OtherServer,
    config: &ClientConfig,
) -> Result<LoadedConfig, ConnectError> {
    let (server, config) = (server.clone(), config.clone());
    let read = tokio::task::spawn_blocking(move || read(&server, &config)).await;
    read.unwrap_or_else(|error| Err(invalid("kubeconfig", one_line(&error))))
}

/// Reads the credentials that `config` names, for `server`. Reads no kubeconfig if `config` names a
/// token file and neither a kubeconfig nor a context.
///
/// # Errors
/// If a file can't be used, or the URL is not one of a server with TLS.
fn read(server: &OtherServer, config: &ClientConfig) -> Result<LoadedConfig, ConnectError> {
    let mut origin = format!("server {}", server.url);
    let url = parse_url(&origin, &server.url)?;
    if url.scheme_str() != Some("https") {
        let problem = "credentials are sent over TLS only, so it must be an https:// URL";
        return Err(invalid(&origin, problem.to_owned()));
    }
    let mut own = match (&config.kubeconfig, &config.context, &config.token_file) {
        (None, None, Some(_)) => Config::new(url.clone()),
        _ => {
            let found = find_config(config)?;
            origin = format!("{origin} with {}", found.origin);
            found.config
        }
    };
    own.cluster_url = url;
    own.tls_server_name.clone_from(&server.tls_server_name);
    own.accept_invalid_certs = server.insecure_skip_tls_verify;
    if own.accept_invalid_certs {
        own.root_cert = None;
        own.root_cert_file = None;
    }
    if let Some(path) = &server.certificate_authority {
        server_certificate::trust_file(&mut own, path)?;
    }
    LoadedConfig::new(origin, own, None)?.with_overrides(config)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Value, json};

    use super::*;

    /// Writes a kubeconfig with a token, whose cluster has these further fields.
    fn kubeconfig(folder: &Path, cluster: &Value) -> PathBuf {
        let path = folder.join("config");
        let mut of_cluster = json!({"server": "https://10.0.0.1:6443"});
        for (key, value) in cluster.as_object().expect("fields") {
            of_cluster[key] = value.clone();
        }
        let text = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "one",
            "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": of_cluster}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        });
        std::fs::write(&path, text.to_string()).expect("a kubeconfig");
        path
    }

    fn certificate(name: &str) -> rcgen::Certificate {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]);
        made.expect("a certificate").cert
    }

    fn server() -> OtherServer {
        OtherServer {
            url: "https://kubefan.example:8002".to_owned(),
            certificate_authority: None,
            tls_server_name: None,
            insecure_skip_tls_verify: false,
        }
    }

    fn loaded(server: &OtherServer, config: &ClientConfig) -> LoadedConfig {
        match read(server, config) {
            Ok(loaded) => loaded,
            Err(error) => panic!("{error}"),
        }
    }

    fn problem(server: &OtherServer, config: &ClientConfig) -> String {
        let failed = read(server, config).err();
        failed.expect("a problem").to_string()
    }

    #[test]
    fn the_credentials_are_those_of_the_context_and_the_trust_is_the_servers() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = certificate("ca");
        let data = STANDARD.encode(own.pem());
        let with_authority = json!({
            "certificate-authority-data": data, "tls-server-name": "kubernetes",
        });
        let config = ClientConfig {
            kubeconfig: Some(kubeconfig(folder.path(), &with_authority)),
            ..ClientConfig::default()
        };
        let found = loaded(&server(), &config).config;
        assert_eq!(found.cluster_url.host(), Some("kubefan.example"));
        assert!(found.auth_info.token.is_some());
        assert_eq!(found.root_cert, Some(vec![own.der().to_vec()]));
        assert_eq!(found.tls_server_name, None);

        let other = certificate("other");
        let file = folder.path().join("ca.crt");
        std::fs::write(&file, other.pem()).expect("a file");
        let named = OtherServer {
            certificate_authority: Some(file),
            tls_server_name: Some("kubefan.kubefan.svc".to_owned()),
            ..server()
        };
        let found = loaded(&named, &config).config;
        assert_eq!(found.root_cert, Some(vec![other.der().to_vec()]));
        assert_eq!(found.tls_server_name, named.tls_server_name);

        let unverified = OtherServer {
            insecure_skip_tls_verify: true,
            ..server()
        };
        let found = loaded(&unverified, &config).config;
        assert!(found.accept_invalid_certs && found.root_cert.is_none());
    }

    #[test]
    fn that_the_api_server_is_not_verified_says_nothing_about_another_server() {
        let folder = tempfile::tempdir().expect("a folder");
        let unverified = json!({"insecure-skip-tls-verify": true});
        let config = ClientConfig {
            kubeconfig: Some(kubeconfig(folder.path(), &unverified)),
            ..ClientConfig::default()
        };
        assert!(!loaded(&server(), &config).config.accept_invalid_certs);
    }

    #[test]
    fn a_token_file_needs_no_kubeconfig() {
        let config = ClientConfig {
            token_file: Some(PathBuf::from("/does/not/exist")),
            ..ClientConfig::default()
        };
        let found = loaded(&server(), &config).config.auth_info;
        assert_eq!(found.token_file.as_deref(), Some("/does/not/exist"));
        assert!(found.token.is_none());
    }

    #[test]
    fn unusable_servers_and_authorities_are_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("a file");
            Some(path)
        };
        let config = ClientConfig {
            token_file: Some(PathBuf::from("t")),
            ..ClientConfig::default()
        };
        for (url, certificate_authority, expected) in [
            ("http://kubefan.example", None, "over TLS only"),
            ("https://a b", None, "is not an http:// or https:// URL"),
            (
                "https://a",
                Some(PathBuf::from("/does/not/exist")),
                "/does/not/exist: No such file",
            ),
            (
                "https://a",
                file("none", "text"),
                "/none: there is no certificate in it",
            ),
        ] {
            let server = OtherServer {
                url: url.to_owned(),
                certificate_authority,
                ..server()
            };
            let message = problem(&server, &config);
            assert!(message.contains(expected), "{message}");
        }
    }
}
