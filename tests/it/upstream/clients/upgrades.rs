//! `kubectl exec` and `kubectl attach` with input, over WebSockets and over SPDY.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::support::cluster::start_node;
use crate::support::poll::within;
use crate::support::programs::apiserver::{ADMIN, ApiServer, shared};
use crate::support::programs::certificates::Authority;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;

const STEP: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn input_and_output_stream_over_both_protocols() {
    let server = shared();
    let _node = start_node(server, "upgrading-node").await;
    let namespace = server.namespace("upgrades").await;
    run_pod(server, &namespace).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let tls_dir = directory.path().display().to_string();
    let plain = Kubefan::start(server, &[]).await;
    let secure = Kubefan::start(
        server,
        &["--auth", "none", "--tls-self-signed", "--tls-dir", &tls_dir],
    )
    .await;
    let authority = fs::read_to_string(directory.path().join("ca.crt")).expect("the CA");
    // Over TLS, kubectl prompts for a user name unless it has credentials. Without authentication
    // kubefan does not ask for this client certificate.
    let unused = Authority::new().client("unasked", "nobody");
    let (at_plain, at_secure) = (plain.file("kubeconfig"), secure.file("kubeconfig"));
    kubeconfig::write(&at_plain, plain.url(), None, &User::Anonymous);
    let user = User::Certificate(&unused);
    kubeconfig::write(&at_secure, secure.url(), Some(&authority), &user);
    let authenticating = Kubefan::start(server, &["--tls-self-signed"]).await;
    let certificate = server.certificate("executor", "system:masters");
    let with_token = authenticating.kubeconfig_named("token", &User::Token(ADMIN));
    let with_certificate =
        authenticating.kubeconfig_named("certificate", &User::Certificate(&certificate));
    for config in [&at_plain, &at_secure, &with_token, &with_certificate] {
        for websockets in ["true", "false"] {
            let kubectl = Kubectl {
                server,
                config,
                namespace: &namespace,
                websockets,
            };
            kubectl.streams_both_ways().await;
        }
    }
}

async fn run_pod(server: &ApiServer, namespace: &str) {
    let container = json!({ "name": "main", "image": "none", "stdin": true });
    let pod = json!({
        "metadata": { "name": "pod" },
        "spec": { "nodeName": "upgrading-node", "containers": [container] },
    });
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    server.client().create(&pods, &pod).await.ok();
    let running = json!({ "status": { "phase": "Running" } });
    server
        .client()
        .merge(&format!("{pods}/pod/status"), &running)
        .await
        .ok();
}

struct Kubectl<'a> {
    server: &'a ApiServer,
    config: &'a Path,
    namespace: &'a str,
    /// `true` for WebSockets, `false` for SPDY.
    websockets: &'a str,
}

impl Kubectl<'_> {
    async fn streams_both_ways(&self) {
        let what = format!("{} websockets={}", self.config.display(), self.websockets);
        let input: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        let cat = self.command(&["exec", "-i", "pod", "--", "cat"]);
        let output = exchange(&what, cat, input.clone()).await;
        assert!(
            output == input,
            "{what}: {} bytes of {}",
            output.len(),
            input.len()
        );
        let count = self.command(&["exec", "-i", "pod", "--", "wc", "-c"]);
        let count = exchange(&what, count, input).await;
        assert_eq!(String::from_utf8_lossy(&count).trim(), "1200000", "{what}");
        let attach = self.command(&["attach", "-i", "pod"]);
        let attached = exchange(&what, attach, b"said\n".to_vec()).await;
        assert!(
            attached.windows(5).any(|bytes| bytes == b"said\n"),
            "{what}: {attached:?}"
        );
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.server.assets().kubectl());
        command
            .arg("--kubeconfig")
            .arg(self.config)
            .args(["--namespace", self.namespace])
            .args(arguments)
            .env("HOME", self.config.parent().unwrap_or(self.config))
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", self.websockets)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        command
    }
}

async fn exchange(what: &str, mut command: Command, input: Vec<u8>) -> Vec<u8> {
    let mut child = command.spawn().expect("kubectl starts");
    let mut stdin = child.stdin.take().expect("piped");
    let mut stdout = child.stdout.take().expect("piped");
    let mut output = Vec::new();
    let exchange = async {
        let write = async {
            stdin.write_all(&input).await.expect("kubectl reads");
            drop(stdin);
        };
        let (_, read) = tokio::join!(write, stdout.read_to_end(&mut output));
        read.expect("kubectl writes");
        child.wait().await.expect("kubectl ends")
    };
    let status = within(what, STEP, exchange).await;
    assert!(status.success(), "{what}: {status}");
    output
}
