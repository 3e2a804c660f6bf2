//! `kubefan kubeconfig`: prints a kubeconfig for a kubefan on this machine.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::config::default_tls_dir;
use crate::net::throwaway_client_certificate;
use crate::process::Error;

use super::args::KubeconfigArgs;
use super::args::KubeconfigClient;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Kubeconfig {
    api_version: &'static str,
    kind: &'static str,
    clusters: Vec<NamedCluster>,
    contexts: Vec<NamedContext>,
    #[serde(rename = "current-context")]
    current_context: &'static str,
    users: Vec<NamedUser>,
}

#[derive(Serialize)]
struct NamedCluster {
    name: &'static str,
    cluster: Cluster,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_authority_data: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    insecure_skip_tls_verify: bool,
}

#[derive(Serialize)]
struct NamedContext {
    name: &'static str,
    context: ClusterAndUser,
}

#[derive(Serialize)]
struct ClusterAndUser {
    cluster: &'static str,
    user: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
}

#[derive(Serialize)]
struct NamedUser {
    name: &'static str,
    user: User,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    #[serde(skip_serializing_if = "Option::is_none")]
    client_certificate_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_key_data: Option<String>,
}

const NAME: &str = "kubefan";

/// Prints the kubeconfig on standard output.
///
/// # Errors
///
/// If the address is malformed, the CA of `--tls-self-signed` cannot be read, no key can be
/// generated, or standard output is closed.
pub(super) fn kubeconfig(args: &KubeconfigArgs) -> Result<(), Error> {
    let yaml = render(args)?;
    std::io::stdout()
        .lock()
        .write_all(yaml.as_bytes())
        .context("cannot write to standard output")?;
    Ok(())
}

fn render(args: &KubeconfigArgs) -> anyhow::Result<String> {
    let listen = args.listen.replacen("localhost:", "127.0.0.1:", 1);
    let address: std::net::SocketAddr = listen.parse().with_context(|| {
        format!("--listen: {listen:?} is not an ADDRESS:PORT such as 127.0.0.1:8001")
    })?;
    let (scheme, certificate_authority_data, user) = match args.tls_self_signed {
        false => ("http", None, User::default()),
        true => {
            let authority = STANDARD.encode(certificate_authority(args)?);
            ("https", Some(authority), User::throwaway()?)
        }
    };
    // client-node refuses a plain HTTP server without `insecure-skip-tls-verify`. Over TLS it must
    // not be set: it would switch off the check of kubefan's certificate, and kubectl rejects it
    // together with a certificate authority.
    let insecure_skip_tls_verify =
        args.client == Some(KubeconfigClient::ClientNode) && !args.tls_self_signed;
    let kubeconfig = Kubeconfig {
        api_version: "v1",
        kind: "Config",
        clusters: vec![NamedCluster {
            name: NAME,
            cluster: Cluster {
                server: format!("{scheme}://{address}"),
                certificate_authority_data,
                insecure_skip_tls_verify,
            },
        }],
        contexts: vec![NamedContext {
            name: NAME,
            context: ClusterAndUser {
                cluster: NAME,
                user: NAME,
                namespace: args.namespace.clone(),
            },
        }],
        current_context: NAME,
        users: vec![NamedUser { name: NAME, user }],
    };
    serde_saphyr::to_string(&kubeconfig).context("cannot print the kubeconfig")
}

impl User {
    /// A user with a self-signed client certificate, for TLS. Without any credential kubectl would
    /// prompt for a user name. A token would not do, because kubefan would forward it as the
    /// caller's identity. kubefan does not request client certificates, so the certificate is never
    /// sent and its key need not be secret.
    fn throwaway() -> anyhow::Result<Self> {
        let made = throwaway_client_certificate();
        let (certificate, key) = made.context("cannot make a client certificate")?;
        Ok(Self {
            client_certificate_data: Some(STANDARD.encode(certificate)),
            client_key_data: Some(STANDARD.encode(key)),
        })
    }
}

fn certificate_authority(args: &KubeconfigArgs) -> anyhow::Result<Vec<u8>> {
    let directory: PathBuf = args
        .tls_dir
        .clone()
        .or_else(default_tls_dir)
        .context("--tls-dir is needed, because HOME is not set")?;
    let file = directory.join("ca.crt");
    std::fs::read(&file).with_context(|| {
        format!(
            "cannot read the CA in {}; kubefan serve --tls-self-signed creates it",
            file.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(tls_dir: Option<PathBuf>) -> KubeconfigArgs {
        KubeconfigArgs {
            listen: "localhost:8001".into(),
            tls_self_signed: tls_dir.is_some(),
            tls_dir,
            namespace: Some("shop".into()),
            client: None,
        }
    }

    fn user(yaml: &str) -> serde_json::Value {
        let read: serde_json::Value = serde_saphyr::from_str(yaml).expect("YAML");
        read["users"][0]["user"].clone()
    }

    #[test]
    fn the_client_library_reads_the_kubeconfig() {
        let yaml = render(&args(None)).expect("rendered");
        let read = kube::config::Kubeconfig::from_yaml(&yaml).expect("a kubeconfig");
        assert_eq!(read.current_context.as_deref(), Some("kubefan"));
        let cluster = read.clusters[0].cluster.clone().expect("a cluster");
        assert_eq!(cluster.server.as_deref(), Some("http://127.0.0.1:8001"));
        let context = read.contexts[0].context.clone().expect("a context");
        assert_eq!(context.namespace.as_deref(), Some("shop"));
        assert_eq!(user(&yaml), serde_json::json!({}));
    }

    #[test]
    fn skips_tls_verification_only_for_client_node_over_plain_http() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("ca.crt"), "PEM").expect("written");
        let tls_dir = Some(directory.path().to_owned());
        let client_node = Some(KubeconfigClient::ClientNode);
        for (client, tls_dir, skips) in [
            (None, None, false),
            (client_node, None, true),
            (client_node, tls_dir, false),
        ] {
            let args = KubeconfigArgs {
                client,
                ..args(tls_dir)
            };
            let yaml = render(&args).expect("rendered");
            let is_set = yaml.contains("insecure-skip-tls-verify: true");
            assert_eq!(is_set, skips, "{args:?}: {yaml}");
        }
    }

    #[test]
    fn carries_the_certificate_authority() {
        let directory = tempfile::tempdir().expect("a directory");
        let with_tls = args(Some(directory.path().to_owned()));
        let missing = render(&with_tls).expect_err("there is no CA yet");
        assert!(format!("{missing:#}").contains("--tls-self-signed creates it"));
        std::fs::write(directory.path().join("ca.crt"), "PEM").expect("written");
        let yaml = render(&with_tls).expect("rendered");
        assert!(
            yaml.contains("https://127.0.0.1:8001") && yaml.contains("UEVN"),
            "{yaml}"
        );
        let user = user(&yaml);
        // Any other credential would be forwarded as the caller's identity.
        let keys: Vec<_> = user.as_object().expect("a map").keys().collect();
        assert_eq!(keys, ["client-certificate-data", "client-key-data"]);
        let pem = STANDARD.decode(user[keys[0]].as_str().expect("text"));
        assert!(pem.expect("base64").starts_with(b"-----BEGIN CERTIFICATE"));
    }
}
