//! Compares kubectl's behaviour with kubefan and with the API server.

use std::fs;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::support::cluster::{define_widgets, fill_namespace, kubectl_directory, start_node};
use crate::support::normalise::normalise;
use crate::support::outcomes::request_count;
use crate::support::poll::within;
use crate::support::programs::apiserver::{ADMIN, ApiServer, shared};
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::{CommandOutput, Kubectl};
use crate::support::programs::kubefan::Kubefan;
use crate::support::proxies::listener::Listener;

/// A parsed line of tests/kubectl/commands.txt. The header of that file explains the parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Line {
    stop_after: Option<usize>,
    only_exit: bool,
    arguments: Vec<String>,
    meanwhile: Option<Vec<String>>,
}

const CERTIFIED: &str = "with a certificate";

/// kubectl sends its token or certificate over TLS to one kubefan, and nothing over
/// plain HTTP to another kubefan.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn every_command_prints_the_same_through_kubefan() {
    let server = shared();
    define_widgets(server).await;
    let _node = start_node(server, "stub-node").await;
    let plain = Kubefan::start(server, &[]).await;
    let secure = Kubefan::start(server, &["--tls-self-signed"]).await;
    let direct = Place::fill(server, server.url(), &server.kubeconfig("admin")).await;
    let certificate = server.certificate("admin", "system:masters");
    let mut through = Vec::new();
    for (name, kubefan, user) in [
        ("without credentials", &plain, User::Anonymous),
        ("with a token", &secure, User::Token(ADMIN)),
        (CERTIFIED, &secure, User::Certificate(&certificate)),
    ] {
        let kubeconfig = kubefan.kubeconfig_named(name, &user);
        let place = Place::fill(server, kubefan.url().to_owned(), &kubeconfig).await;
        through.push((name, place));
    }
    let list = fs::read_to_string(kubectl_directory().join("commands.txt")).expect("the list");
    let mut differences = Vec::new();
    for text in commands(&list) {
        let places = std::iter::once(&direct).chain(through.iter().map(|(_, place)| place));
        let mut printed = join_all(places.map(|place| place.run(text)))
            .await
            .into_iter();
        let wanted = printed.next().expect("the direct output");
        for ((name, _), got) in through.iter().zip(printed) {
            // A certificate has other groups and attributes than the token of the direct client.
            let is_other_user = *name == CERTIFIED && text == "auth whoami";
            if wanted != got && !is_other_user {
                differences.push(format!(
                    "kubectl {text}\n--- directly\n{wanted}\n--- through kubefan {name}\n{got}\n",
                ));
            }
        }
    }
    let count = differences.len();
    assert!(
        differences.is_empty(),
        "{count} commands differ:\n\n{}",
        differences.join("\n")
    );
    let metrics = secure.metrics().await;
    for verb in ["list", "watch"] {
        let count = request_count(&metrics, "cache", verb);
        assert!(count >= 1.0, "{verb}: {metrics}");
    }
}

/// A server that kubectl talks to, and a namespace there with objects
/// like those at the other places.
struct Place {
    kubectl: Kubectl,
    url: String,
    namespace: String,
    files: TempDir,
}

impl Place {
    async fn fill(server: &ApiServer, url: String, kubeconfig: &Path) -> Self {
        let namespace = server.namespace("kubectl").await;
        Self {
            kubectl: Kubectl::new(server.assets(), kubeconfig, &namespace),
            url,
            files: fill_namespace(server, &namespace).await,
            namespace,
        }
    }

    /// Runs a command of the list; its output has no names that differ between places.
    async fn run(&self, text: &str) -> String {
        let line = parse(text, &self.namespace, &path_of(&self.files));
        let output = run(&self.kubectl, &line).await;
        let names = [
            (self.namespace.as_str(), "NS"),
            (self.url.as_str(), "URL"),
            (&path_of(&self.files), "FILES"),
        ];
        comparable(&output, &line, &names)
    }
}

fn path_of(directory: &TempDir) -> String {
    directory.path().display().to_string()
}

async fn run(kubectl: &Kubectl, line: &Line) -> CommandOutput {
    match line.stop_after {
        None => kubectl.run(&line.arguments).await,
        Some(lines) => {
            kubectl
                .run_for_lines(&line.arguments, lines, line.meanwhile.as_deref())
                .await
        }
    }
}

fn comparable(output: &CommandOutput, line: &Line, names: &[(&str, &str)]) -> String {
    let code = output
        .code
        .map_or("stopped".to_owned(), |code| code.to_string());
    if line.only_exit {
        return format!("exit {code}");
    }
    let (stdout, stderr) = (
        normalise(&output.stdout, names),
        normalise(&output.stderr, names),
    );
    format!("exit {code}\n{stdout}\nstderr: {stderr}")
}

/// Returns the commands of the list, without its comments.
fn commands(list: &str) -> impl Iterator<Item = &str> {
    let texts = list.lines().map(str::trim);
    texts.filter(|text| !text.is_empty() && !text.starts_with('#'))
}

fn parse(text: &str, namespace: &str, files: &str) -> Line {
    let mut line = Line::default();
    let mut rest = text;
    while let Some((option, after)) = rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
        match option {
            "exit" => line.only_exit = true,
            lines => line.stop_after = Some(lines.parse().expect("a number of lines")),
        }
        rest = after.trim_start();
    }
    let filled = |text: &str| {
        let fill = |word: String| word.replace("{ns}", namespace).replace("{files}", files);
        words(text).into_iter().map(fill).collect::<Vec<String>>()
    };
    match rest.split_once(" ;; ") {
        Some((command, other)) => {
            line.arguments = filled(command);
            line.meanwhile = Some(filled(other));
        }
        None => line.arguments = filled(rest),
    }
    line
}

fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = None::<String>;
    let mut quoted = false;
    for character in text.chars() {
        match character {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_port_is_forwarded_both_ways() {
    let server = shared();
    define_widgets(server).await;
    let _node = start_node(server, "forwarding-node").await;
    let plain = Kubefan::start(server, &[]).await;
    let secure = Kubefan::start(server, &["--tls-self-signed"]).await;
    let namespace = server.namespace("forward").await;
    let pod = json!({
        "metadata": { "name": "listener" },
        "spec": { "nodeName": "forwarding-node", "containers": [{ "name": "main", "image": "none" }] },
    });
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    server.client().create(&pods, &pod).await.ok();
    let running = json!({ "status": { "phase": "Running" } });
    server
        .client()
        .merge(&format!("{pods}/listener/status"), &running)
        .await
        .ok();
    let echo = Listener::start(|_, mut tcp| async move {
        let (mut read, mut write) = tcp.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await;
    let port = echo.address().port();
    let certificate = server.certificate("forwarder", "system:masters");
    for (kubefan, name, user) in [
        (&plain, "anonymous", User::Anonymous),
        (&secure, "token", User::Token(ADMIN)),
        (&secure, "certificate", User::Certificate(&certificate)),
    ] {
        let kubeconfig = kubefan.kubeconfig_named(name, &user);
        let kubectl = Kubectl::new(server.assets(), &kubeconfig, &namespace);
        forwards_both_ways(&kubectl, port).await;
    }
}

/// Forwards a local port to the port of an echoing program in the pod, and sends bytes through it.
async fn forwards_both_ways(kubectl: &Kubectl, port: u16) {
    let mut forward = kubectl.start(&[
        "port-forward".into(),
        "pod/listener".into(),
        format!(":{port}"),
    ]);
    let mut output = BufReader::new(forward.stdout.take().expect("piped")).lines();
    let line = within("port-forward", Duration::from_secs(20), output.next_line()).await;
    let line = line.expect("text").expect("a line");
    let local = line
        .strip_prefix("Forwarding from ")
        .and_then(|rest| rest.split(' ').next());
    let mut tcp = TcpStream::connect(local.expect("an address"))
        .await
        .expect("a connection");
    let message = vec![b'x'; 200_000];
    let (mut read, mut write) = tcp.split();
    let mut echoed = vec![0; message.len()];
    let (sent, received) = within("the echo", Duration::from_secs(20), async {
        tokio::join!(write.write_all(&message), read.read_exact(&mut echoed))
    })
    .await;
    sent.expect("sent");
    received.expect("received");
    assert!(echoed == message);
}

#[test]
fn a_line_of_the_list_is_parsed() {
    let line = parse(
        "[3] get pods -l 'a in (b)' ;; label pod {ns}",
        "x",
        "/files",
    );
    assert_eq!(line.stop_after, Some(3));
    assert_eq!(line.arguments, ["get", "pods", "-l", "a in (b)"]);
    assert_eq!(line.meanwhile.expect("another"), ["label", "pod", "x"]);
    assert_eq!(
        parse("cp {files}/a b:c", "x", "/files").arguments,
        ["cp", "/files/a", "b:c"]
    );
}
