//! Tests of the error messages for kubeconfigs that can't be used.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Pings, load};
use crate::upstream::{Client, ClientConfig};

/// A kubeconfig with the contexts `one`, which is usable, and `two`, whose cluster does not exist.
fn sample() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [
            { "name": "one", "context": { "cluster": "c", "user": "u", "namespace": "team" } },
            { "name": "two", "context": { "cluster": "gone" } },
        ],
        "clusters": [{ "name": "c", "cluster": { "server": "https://10.0.0.1:6443" } }],
        "users": [{ "name": "u", "user": {} }],
    })
}

async fn connect(text: &str, context: Option<&str>) -> Result<Client, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config");
    std::fs::write(&path, text).expect("a kubeconfig");
    let config = ClientConfig {
        kubeconfig: Some(path),
        context: context.map(str::to_owned),
        ..ClientConfig::default()
    };
    let connected = Client::connect(config).await;
    let folder = folder.path().display().to_string();
    connected.map_err(|error| error.to_string().replace(&folder, "."))
}

async fn connect_error(kubeconfig: Value, context: Option<&str>) -> String {
    let connected = connect(&kubeconfig.to_string(), context).await;
    let message = connected.expect_err("an unusable kubeconfig");
    assert!(!message.contains('\n'), "{message}");
    message
}

#[tokio::test]
async fn a_usable_kubeconfig() {
    let client = connect(&sample().to_string(), None).await.expect("usable");
    assert_eq!(client.server(), "https://10.0.0.1:6443");
    assert_eq!(client.default_namespace(), "team");
}

#[tokio::test]
async fn pings_are_as_configured() {
    let config = ClientConfig {
        server: Some("http://127.0.0.1:1".to_owned()),
        ping_interval: Duration::from_secs(20),
        ping_timeout: Duration::from_secs(7),
        ..ClientConfig::default()
    };
    let Ok(loaded) = load(&config).await else {
        panic!("a server");
    };
    assert_eq!(loaded.pings.interval, Duration::from_secs(20));
    assert_eq!(loaded.pings.timeout, Duration::from_secs(7));
    // A connection that is closed between two pings is no sign of a dead server.
    assert_eq!(loaded.pings.longest_silence(), Duration::from_secs(20));
    let default = Pings::of(&ClientConfig::default());
    assert_eq!(default.longest_silence(), Duration::from_secs(5));
}

#[tokio::test]
async fn missing_names_are_reported() {
    assert_eq!(
        connect_error(sample(), Some("three")).await,
        "kubeconfig ./config has no context \"three\"; known contexts: one, two"
    );
    assert_eq!(
        connect_error(sample(), Some("two")).await,
        "context \"two\" of kubeconfig ./config names cluster \"gone\", which does not exist; \
         known clusters: c"
    );
    let mut unset = sample();
    unset["current-context"] = "".into();
    assert_eq!(
        connect_error(unset, None).await,
        "kubeconfig ./config sets no current-context; choose one with --context; \
         known contexts: one, two"
    );
    assert_eq!(
        connect_error(json!({}), Some("one")).await,
        "kubeconfig ./config has no context \"one\"; it has no contexts"
    );
}

#[tokio::test]
async fn unusable_values_are_reported() {
    let origin = "context \"one\" of kubeconfig ./config: ";
    for (pointer, value, problem) in [
        (
            "/clusters/0/cluster/server",
            json!("10.0.0.1:6443"),
            "server \"10.0.0.1:6443\" is not an http:// or https:// URL",
        ),
        (
            "/clusters/0/cluster/server",
            json!("https://a b"),
            "server \"https://a b\" is not an http:// or https:// URL",
        ),
        (
            "/clusters/0/cluster/proxy-url",
            json!("ftp://proxy"),
            "proxy-url \"ftp://proxy\" is not an http://, https:// or socks5:// URL",
        ),
        (
            "/clusters/0/cluster/certificate-authority",
            json!("/does/not/exist"),
            "failed to load certificate authority: failed to read file '\"/does/not/exist\"': \
             No such file or directory (os error 2)",
        ),
        (
            "/clusters/0/cluster/tls-server-name",
            json!("no name"),
            "tls-server-name \"no name\" is not a DNS name or IP address",
        ),
        (
            "/users/0/user/exec",
            json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "/no/plugin" }),
            "exec plugin \"/no/plugin\": it does not exist",
        ),
        (
            "/users/0/user/exec",
            json!({
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "/no/plugin",
                "installHint": "Install it\nwith apt.",
            }),
            "exec plugin \"/no/plugin\": it does not exist; Install it with apt.",
        ),
        (
            "/users/0/user/exec",
            json!({ "command": "/bin/echo", "args": ["a-secret"], "interactiveMode": "Never" }),
            "exec plugin \"/bin/echo\": its output is not an ExecCredential",
        ),
        (
            "/users/0/user/auth-provider",
            json!({ "name": "gcp", "config": { "cmd-path": "/bin/echo", "cmd-args": "a-secret" } }),
            "auth-provider \"gcp\" is not supported; use the exec plugin gke-gcloud-auth-plugin",
        ),
        (
            "/users/0/user/auth-provider",
            json!({ "name": "oidc", "config": { "refresh-token": "a-secret" } }),
            "auth-provider \"oidc\" is not supported; log in again",
        ),
        (
            "/clusters/0/cluster/certificate-authority-data",
            json!("bm8gY2VydGlmaWNhdGU="),
            "its certificate authority has no certificate (PEM)",
        ),
        (
            "/users/0/user/exec",
            json!({
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "/bin/sh",
                "args": ["-c", "echo a-secret; echo a-secret >&2; exit 3"],
            }),
            "exec plugin \"/bin/sh\": it failed with exit status: 3",
        ),
        (
            "/users/0/user/tokenFile",
            json!("/does/not/exist"),
            "failed to read token file",
        ),
    ] {
        let mut kubeconfig = sample();
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        kubeconfig.pointer_mut(parent).expect("the parent exists")[key] = value;
        let message = connect_error(kubeconfig, None).await;
        assert!(message.starts_with(origin), "{message}");
        assert!(message.contains(problem), "{message}");
        assert!(!message.contains("a-secret"), "{message}");
        assert!(message.matches("os error").count() <= 1, "{message}");
    }
}

#[tokio::test]
async fn an_authority_and_no_verification_exclude_each_other() {
    let authority = rcgen::generate_simple_self_signed(["ca".to_owned()]).expect("a certificate");
    let mut kubeconfig = sample();
    let cluster = &mut kubeconfig["clusters"][0]["cluster"];
    cluster["insecure-skip-tls-verify"] = true.into();
    connect(&kubeconfig.to_string(), None)
        .await
        .expect("usable");
    let data = STANDARD.encode(authority.cert.pem());
    kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"] = data.into();
    let message = connect_error(kubeconfig, None).await;
    assert!(message.contains("exclude each other"), "{message}");
}

#[tokio::test]
async fn malformed_files_are_reported_with_the_position() {
    let message = connect("clusters:\n- name: [\n", None)
        .await
        .expect_err("not YAML");
    assert!(
        message.starts_with("kubeconfig ./config is malformed: "),
        "{message}"
    );
    assert!(
        message.contains("line 2") || message.contains("line 3"),
        "{message}"
    );
    assert!(!message.contains('\n'), "{message}");

    let message = connect("clusters: 7\n", None)
        .await
        .expect_err("not a list");
    assert!(message.contains("line 1"), "{message}");
}

#[tokio::test]
async fn a_missing_file_is_reported() {
    let config = ClientConfig {
        kubeconfig: Some(PathBuf::from("/does/not/exist")),
        context: None,
        ..ClientConfig::default()
    };
    let error = Client::connect(config).await.expect_err("no file");
    // The message is formatted as the program prints it, and must contain each cause once.
    assert_eq!(
        format!("{:#}", anyhow::Error::from(error)),
        "cannot read kubeconfig /does/not/exist: No such file or directory (os error 2)"
    );
}
