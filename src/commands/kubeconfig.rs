//! `kubefan kubeconfig`: prints a kubeconfig for kubefan.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kubefan_proxy::config::{AuthMode, default_tls_dir};
use kubefan_proxy::net::throwaway_client_certificate;
use kubefan_proxy::process::{Error, write_to_stdout};
use serde_json::{Value, json};

use super::args::{KubeconfigArgs, KubeconfigClient};
use super::credentials::Credentials;

const NAME: &str = "kubefan";

/// Permissions of a file with credentials.
const SECRET_MODE: u32 = 0o600;

/// Prints the kubeconfig on standard output, or writes it to a file.
///
/// # Errors
///
/// If the address is malformed, the CA of `--tls-self-signed` or the credentials cannot be read, no
/// key can be generated, or the output cannot be written.
pub(super) fn kubeconfig(args: &KubeconfigArgs) -> Result<(), Error> {
    let yaml = render(args)?;
    match &args.output {
        Some(path) => {
            write_secret(path, &yaml).with_context(|| format!("cannot write {}", path.display()))
        }
        None => write_to_stdout(&yaml).context("cannot write to standard output"),
    }?;
    Ok(())
}

/// Replaces the file at `path` by a file that only its owner may read.
fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let name = path.file_name().ok_or(std::io::ErrorKind::IsADirectory)?;
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}", std::process::id()));
    let temporary = directory.unwrap_or(Path::new(".")).join(temporary);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(SECRET_MODE)
        .open(&temporary)?;
    let written = file.write_all(text.as_bytes());
    let renamed = written.and_then(|()| std::fs::rename(&temporary, path));
    if renamed.is_err() {
        // The first error matters more than a failure to remove the file.
        let _ = std::fs::remove_file(&temporary);
    }
    renamed
}

fn render(args: &KubeconfigArgs) -> anyhow::Result<String> {
    let is_tls = args.tls_self_signed || args.certificate_authority.is_some();
    let server = server(args, is_tls)?;
    let is_tls = server.starts_with("https://");
    let credentials = credentials(args, is_tls)?;
    let mut cluster = json!({ "server": server });
    if let Some(authority) = certificate_authority(args)? {
        cluster["certificate-authority-data"] = json!(STANDARD.encode(authority));
    }
    // client-node refuses a plain HTTP server without `insecure-skip-tls-verify`. Over TLS the
    // option must not be set: it would switch off the check of kubefan's certificate, and kubectl
    // rejects the option together with a certificate authority.
    if args.client == Some(KubeconfigClient::ClientNode) && !is_tls {
        cluster["insecure-skip-tls-verify"] = json!(true);
    }
    let mut context = json!({ "cluster": NAME, "user": NAME });
    if let Some(namespace) = args.namespace.clone().or(credentials.namespace) {
        context["namespace"] = json!(namespace);
    }
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": NAME, "cluster": cluster }],
        "contexts": [{ "name": NAME, "context": context }],
        "current-context": NAME,
        "users": [{ "name": NAME, "user": credentials.user }],
    });
    serde_saphyr::to_string(&kubeconfig).context("cannot print the kubeconfig")
}

/// Returns the URL of kubefan.
fn server(args: &KubeconfigArgs, is_tls: bool) -> anyhow::Result<String> {
    if let Some(server) = &args.server {
        let is_https = server.starts_with("https://");
        anyhow::ensure!(
            is_https || server.starts_with("http://"),
            "--server: {server:?} is not an http:// or https:// URL"
        );
        anyhow::ensure!(
            is_https || !is_tls,
            "--server: {server:?} is not an https:// URL, but kubefan serves TLS"
        );
        return Ok(server.clone());
    }
    let listen = args.listen.replacen("localhost:", "127.0.0.1:", 1);
    let address: std::net::SocketAddr = listen.parse().with_context(|| {
        format!("--listen: {listen:?} is not an ADDRESS:PORT such as 127.0.0.1:8001")
    })?;
    anyhow::ensure!(
        !address.ip().is_unspecified(),
        "--listen: clients cannot connect to {address}; name kubefan's URL with --server"
    );
    let scheme = if is_tls { "https" } else { "http" };
    Ok(format!("{scheme}://{address}"))
}

/// Returns the credentials that clients send to kubefan.
fn credentials(args: &KubeconfigArgs, is_tls: bool) -> anyhow::Result<Credentials> {
    let user = match args.auth {
        Some(AuthMode::Caller | AuthMode::Delegated) if !is_tls => {
            anyhow::bail!(
                "--auth: kubectl sends credentials only over TLS; add --tls-self-signed, \
                 --certificate-authority, or --server with an https URL"
            )
        }
        Some(AuthMode::None) | None if !is_tls => json!({}),
        Some(AuthMode::None) => throwaway_user()?,
        Some(AuthMode::Caller | AuthMode::Delegated) | None => {
            return Credentials::read(args.kubeconfig.as_deref(), args.context.as_deref());
        }
    };
    Ok(Credentials {
        user,
        namespace: None,
    })
}

/// Creates a user with a self-signed client certificate, for TLS without authentication. Without
/// any credentials, kubectl would prompt for a user name. A token is no alternative, because
/// kubefan would forward it as the caller's identity. In this mode kubefan does not request client
/// certificates, so the certificate is never sent and its key need not be secret.
fn throwaway_user() -> anyhow::Result<Value> {
    let made = throwaway_client_certificate();
    let (certificate, key) = made.context("cannot make a client certificate")?;
    Ok(json!({
        "client-certificate-data": STANDARD.encode(certificate),
        "client-key-data": STANDARD.encode(key),
    }))
}

/// Returns the authority that clients must trust, if it is not one of the system's.
fn certificate_authority(args: &KubeconfigArgs) -> anyhow::Result<Option<Vec<u8>>> {
    if let Some(file) = &args.certificate_authority {
        let read = std::fs::read(file);
        let read = read.with_context(|| format!("--certificate-authority {}", file.display()));
        return read.map(Some);
    }
    if !args.tls_self_signed {
        return Ok(None);
    }
    let directory: PathBuf = args
        .tls_dir
        .clone()
        .or_else(default_tls_dir)
        .context("--tls-dir is needed, because HOME is not set")?;
    let file = directory.join("ca.crt");
    let authority = std::fs::read(&file).with_context(|| {
        format!(
            "cannot read the CA in {}; kubefan serve --tls-self-signed creates it",
            file.display()
        )
    })?;
    Ok(Some(authority))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::commands::kubeconfig;

    fn args(tls_dir: Option<PathBuf>) -> KubeconfigArgs {
        KubeconfigArgs {
            listen: "localhost:8001".into(),
            server: None,
            tls_self_signed: tls_dir.is_some(),
            tls_dir,
            certificate_authority: None,
            auth: Some(AuthMode::None),
            kubeconfig: None,
            context: None,
            namespace: Some("shop".into()),
            client: None,
            output: None,
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

    const CALLERS: &str = "
current-context: one
contexts:
- {name: one, context: {cluster: c, user: one, namespace: own}}
- {name: two, context: {cluster: c, user: two}}
users:
- {name: one, user: {token: 'yes'}}
- {name: two, user: {exec: {apiVersion: v, command: plugin, args: ['--a: b', '-1'], env: []}}}
";

    #[test]
    fn copies_the_credentials_of_a_context_if_callers_are_authenticated() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        let authority = file("authority", "PEM");
        let kubeconfig = Some(file("config", CALLERS));
        let output = directory.path().join("out");
        std::fs::write(&output, "old, and readable by all").expect("written");
        let args = KubeconfigArgs {
            server: Some("https://kubefan.example:8443".to_owned()),
            certificate_authority: Some(authority),
            auth: None,
            kubeconfig,
            namespace: None,
            output: Some(output.clone()),
            ..args(None)
        };
        kubeconfig::kubeconfig(&args).expect("written");
        let mode = std::fs::metadata(&output).expect("a file").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        let yaml = std::fs::read_to_string(&output).expect("text");
        let read = kube::config::Kubeconfig::from_yaml(&yaml).expect("a kubeconfig");
        let cluster = read.clusters[0].cluster.clone().expect("a cluster");
        let server = cluster.server.as_deref();
        assert_eq!(server, Some("https://kubefan.example:8443"));
        let context = read.contexts[0].context.clone().expect("a context");
        assert_eq!(context.namespace.as_deref(), Some("own"));
        assert_eq!(user(&yaml), serde_json::json!({"token": "yes"}));
        let yaml = render(&KubeconfigArgs {
            context: Some("two".to_owned()),
            ..args.clone()
        });
        let exec =
            json!({"apiVersion": "v", "command": "plugin", "args": ["--a: b", "-1"], "env": []});
        let found = user(&yaml.expect("rendered"));
        assert_eq!(found, json!({"exec": exec}));
        for (server, expected) in [
            (Some("kubefan.example"), "is not an http:// or https:// URL"),
            (Some("http://kubefan.example"), "but kubefan serves TLS"),
            (None, "clients cannot connect to 0.0.0.0:1"),
        ] {
            let failed = render(&KubeconfigArgs {
                listen: "0.0.0.0:1".to_owned(),
                server: server.map(str::to_owned),
                ..args.clone()
            });
            let message = format!("{:#}", failed.expect_err(expected));
            assert!(message.contains(expected), "{message}");
        }
        let plain = render(&KubeconfigArgs {
            server: None,
            certificate_authority: None,
            auth: Some(AuthMode::Caller),
            ..args
        });
        let message = format!("{:#}", plain.expect_err("no TLS"));
        assert!(message.contains("credentials only over TLS"), "{message}");
    }
}
