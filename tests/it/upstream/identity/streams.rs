//! Streams of containers that are open when their users lose the right to them.

use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::identities::grant;
use super::observed::LIMIT;
use crate::support::cluster::start_node;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{ApiServer, metric, private_with_tokens};
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;

const TOKENS: &str = "loser-token,loser,1\nkeeper-token,keeper,2\ncreator-token,creator,3\n";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
/// How long a stream may go on after its user has lost the right to it.
const MOST: Duration = Duration::from_secs(3);

/// A kubectl command that streams until its connection ends.
struct Stream {
    what: String,
    child: Child,
    /// Closing it would end the command.
    _stdin: ChildStdin,
}

impl Stream {
    /// Starts a command in the pod, and waits for its first line.
    async fn open(
        server: &ApiServer,
        kubefan: &Kubefan,
        user: &str,
        arguments: &[&str],
        websockets: &str,
    ) -> Self {
        let what = format!("{user}: {arguments:?}, websockets={websockets}");
        let config = kubefan.kubeconfig_named(user, &User::Token(&format!("{user}-token")));
        let mut child = Command::new(server.assets().kubectl())
            .arg("--kubeconfig")
            .arg(&config)
            .args(arguments)
            .env("HOME", config.parent().expect("a directory"))
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("piped");
        // `cat` repeats it; `logs` does not read it.
        stdin.write_all(b"said\n").await.expect("room in the pipe");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (first, is_open) = oneshot::channel();
        tokio::spawn(async move {
            if let Ok(Some(line)) = lines.next_line().await {
                first.send(line).ok();
            }
            // Read to the end, so that the pipe is never full.
            while let Ok(Some(_)) = lines.next_line().await {}
        });
        let line = within(&what, LIMIT, is_open).await;
        line.unwrap_or_else(|_| panic!("{what}: it ended without a line"));
        Self {
            what,
            child,
            _stdin: stdin,
        }
    }

    async fn ended(mut self) -> Instant {
        let ended = within(&self.what, LIMIT, self.child.wait()).await;
        ended.expect("kubectl ends");
        Instant::now()
    }

    fn is_open(&mut self) -> bool {
        self.child.try_wait().expect("a process").is_none()
    }
}

async fn run_pod(server: &ApiServer, node: &str) {
    let container = json!({"name": "main", "image": "none", "stdin": true});
    let pod = json!({
        "metadata": {"name": "pod"},
        "spec": {"nodeName": node, "containers": [container]},
    });
    let pods = "/api/v1/namespaces/default/pods";
    let client = server.client();
    client.create(pods, &pod).await.ok();
    let running = json!({"status": {"phase": "Running"}});
    client
        .merge(&format!("{pods}/pod/status"), &running)
        .await
        .ok();
}

async fn has(kubefan: &Kubefan, name: &str, expected: f64) {
    eventually(name, LIMIT, async || {
        match metric(&kubefan.admin(), name, &[]).await {
            found if found == expected => Ok(()),
            found => Err(format!("{found}, not {expected}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn logs_and_commands_end_when_their_user_loses_the_right() {
    let server = private_with_tokens(TOKENS, &[]).await;
    let _node = start_node(&server, "node").await;
    run_pod(&server, "node").await;
    let kubefan = Kubefan::start(&server, &["--tls-self-signed"]).await;
    has(&kubefan, "kubefan_role_watches_alive", 4.0).await;
    let resources = ["pods", "pods/log", "pods/exec"];
    let rules = json!([{"apiGroups": [""], "resources": resources, "verbs": ["get", "create"]}]);
    let (mut ending, mut staying) = (Vec::new(), Vec::new());
    for (user, streams) in [("loser", &mut ending), ("keeper", &mut staying)] {
        let subject =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user});
        grant(&server.client(), None, user, &rules, &subject).await;
        for (arguments, websockets) in [
            (&["logs", "--follow", "pod"][..], "true"),
            (&["exec", "-i", "pod", "--", "cat"], "true"),
            (&["exec", "-i", "pod", "--", "cat"], "false"),
        ] {
            let opened = Stream::open(&server, &kubefan, user, arguments, websockets);
            streams.push(opened.await);
        }
    }
    let binding = format!("{BINDINGS}/loser");
    server.client().delete(&binding).await.ok();
    let lost = Instant::now();
    for stream in ending {
        let what = stream.what.clone();
        let took = stream.ended().await - lost;
        println!("{what} ended after {took:?}");
        assert!(took < MOST, "{what}: {took:?}");
    }
    for stream in &mut staying {
        assert!(stream.is_open(), "{}", stream.what);
    }
}

/// kubectl opens a WebSocket by a GET. The API server requires the right
/// to `create` the command, too.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_command_over_a_websocket_ends_when_its_user_may_not_create_it_any_more() {
    let server = private_with_tokens(TOKENS, &[]).await;
    let _node = start_node(&server, "node").await;
    run_pod(&server, "node").await;
    let kubefan = Kubefan::start(&server, &["--tls-self-signed"]).await;
    has(&kubefan, "kubefan_role_watches_alive", 4.0).await;
    let resources = ["pods", "pods/log", "pods/exec"];
    let subject =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "creator"});
    for verb in ["get", "create"] {
        let rules = json!([{"apiGroups": [""], "resources": resources, "verbs": [verb]}]);
        grant(&server.client(), None, verb, &rules, &subject).await;
    }
    let exec = ["exec", "-i", "pod", "--", "cat"];
    let command = Stream::open(&server, &kubefan, "creator", &exec, "true").await;
    let follow = ["logs", "--follow", "pod"];
    let mut log = Stream::open(&server, &kubefan, "creator", &follow, "true").await;
    // Both rights to the command, and the right to the log.
    has(&kubefan, "kubefan_open_watches", 3.0).await;
    let binding = format!("{BINDINGS}/create");
    server.client().delete(&binding).await.ok();
    let lost = Instant::now();
    let took = command.ended().await - lost;
    assert!(took < MOST, "{took:?}");
    assert!(log.is_open());
    has(&kubefan, "kubefan_open_watches", 1.0).await;
}
