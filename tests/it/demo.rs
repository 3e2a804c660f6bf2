//! Runs `kubefan demo`, the first command of the README: a changing simulated cluster behind a
//! kubefan.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::{Event, Format};
use crate::support::poll::{eventually, within};
use crate::support::programs::assets::Assets;
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::kubefan::{binary, run, start_in};
use crate::support::programs::process::Process;

const LIMIT: Duration = Duration::from_secs(60);

/// A manifest with a misspelt field: it should be `replicas`.
const MISSPELT: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: misspelt}
spec:
  replica: 2
  selector: {matchLabels: {app: misspelt}}
  template:
    metadata: {labels: {app: misspelt}}
    spec: {containers: [{name: main, image: nginx}]}
";

/// Starts a small demonstration, which writes its kubeconfig to the file `config` in `directory`.
/// Returns its URL.
async fn start(directory: &Path) -> (Process, String) {
    let mut command = Command::new(binary());
    command
        .args("demo --nodes 5 --pods 60 --agents 60 --churn 100 --listen 127.0.0.1:0".split(' '));
    command
        .arg("--kubeconfig-out")
        .arg(directory.join("config"));
    let process = start_in(&mut command, directory);
    eventually("the demonstration", LIMIT, async || {
        let stdout = printed(directory);
        match stdout.contains("Ctrl-C stops it") {
            true => Ok(()),
            false => Err(stdout),
        }
    })
    .await;
    let url = after(directory, "kubefan serves on ");
    (process, url)
}

/// Returns the text that the demonstration has printed.
fn printed(directory: &Path) -> String {
    fs::read_to_string(directory.join("stdout")).unwrap_or_default()
}

/// Returns the rest of the printed line that begins with `start`.
fn after(directory: &Path, start: &str) -> String {
    let stdout = printed(directory);
    let rest = stdout.lines().find_map(|line| line.strip_prefix(start));
    rest.unwrap_or_else(|| panic!("{start}: {stdout}"))
        .to_owned()
}

/// Returns the numbers in a printed line about the clients and the API server, in their order:
/// watches and events of the clients, watches and events of the API server, and the ratio.
fn numbers(line: &str) -> Vec<f64> {
    let words =
        line.split(|character: char| !(character.is_ascii_digit() || ",.".contains(character)));
    let numbers = words.filter_map(|word| word.replace(',', "").parse().ok());
    numbers.collect()
}

fn ends(process: &mut Process, directory: &Path) {
    process.signal("INT");
    let status = process.wait(LIMIT).expect("it ends");
    let log = fs::read_to_string(directory.join("stderr")).unwrap_or_default();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!log.contains("panicked at"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn kubectl_explains_and_checks_in_the_demo_cluster() {
    let assets = Assets::find();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| directory.path().join(name);
    let (mut process, _) = start(directory.path()).await;
    fs::write(file("misspelt.yaml"), MISSPELT).expect("a file");
    let correct = MISSPELT.replace("replica:", "replicas:");
    fs::write(file("correct.yaml"), correct).expect("a file");
    let kubectl = Kubectl::new(&assets, &file("config"), "default");
    for (line, expected, code) in [
        ("explain pods.spec", "nodeName\t<string>", 0),
        ("explain deployments.spec.replicas", "replicas <integer>", 0),
        (
            "apply -f misspelt.yaml",
            "unknown field \"spec.replica\"",
            1,
        ),
        ("get deployment misspelt", "not found", 1),
        ("apply -f correct.yaml", "created", 0),
        ("get deployment misspelt", "0/2", 0),
    ] {
        let words = line.split(' ').map(|word| match word.ends_with(".yaml") {
            true => file(word).display().to_string(),
            false => word.to_owned(),
        });
        let output = kubectl.run(&words.collect::<Vec<_>>()).await;
        assert_eq!(output.code, Some(code), "{line}: {output:?}");
        let all = format!("{}{}", output.stdout, output.stderr);
        assert!(
            all.to_lowercase().contains(&expected.to_lowercase()),
            "{line}: {all}"
        );
    }
    ends(&mut process, directory.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_cluster_changes_and_shuts_down_cleanly() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| directory.path().join(name);
    let (mut process, url) = start(directory.path()).await;
    let kubeconfig = fs::read_to_string(file("config")).expect("a kubeconfig");
    assert!(kubeconfig.contains(&url), "{kubeconfig}");

    let client = Client::new(&url, Connector::plain());
    let count = async |path: &str| {
        let list = client.get(path).await.ok().json();
        list["items"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(count("/api/v1/nodes?resourceVersion=0").await, 5);
    let pods = count("/api/v1/pods?resourceVersion=0").await;
    assert!((40..=90).contains(&pods), "{pods} pods");

    let leases = "/apis/coordination.k8s.io/v1/leases?watch=true&resourceVersion=0";
    let mut watch = client.watch(leases, Format::Json).await.expect("a watch");
    within("a change", LIMIT, async {
        loop {
            let event = watch.next().await.expect("a frame");
            if let Event::Modified(_) = event.expect("the watch goes on") {
                break;
            }
        }
    })
    .await;
    drop(watch);

    ends(&mut process, directory.path());
    assert!(!file("config").exists(), "the kubeconfig is left");
    let _: Value = serde_json::from_str(&kubeconfig).expect("JSON is YAML");
}

/// The watches of the simulated clients show the cluster again after the API server was
/// cut off, and none of them ends.
#[tokio::test(flavor = "multi_thread")]
async fn the_clients_get_more_than_the_api_server_serves_and_notice_no_outage() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    let (mut process, url) = start(directory).await;
    let is_healthy = |line: &str| line.starts_with("clients: ") && line.contains("x less)");
    // A line without a second one: every watch shows exactly the cluster's objects.
    let healthy = async |what: &str, printed_before: usize| {
        eventually(what, LIMIT, async || {
            let stdout = printed(directory);
            let last = stdout[printed_before..].lines().last().unwrap_or_default();
            match is_healthy(last) && stdout.ends_with('\n') {
                true => Ok(last.to_owned()),
                false => Err(stdout),
            }
        })
        .await
    };
    let line = healthy("the gain", 0).await;
    let [watches, events, served_watches, served_events, ratio] = numbers(&line)[..] else {
        panic!("{line}");
    };
    assert!(watches > 2.0 * served_watches, "{line}");
    assert!(events > 2.0 * served_events && ratio > 2.0, "{line}");

    let faults = Client::new(&after(directory, "fault injection on "), Connector::plain());
    let before = printed(directory).len();
    let cut = faults
        .send(
            Method::POST,
            "/faults/away?seconds=6",
            &HeaderMap::new(),
            Bytes::new(),
        )
        .await;
    assert_eq!(cut.status, 200, "{cut}");
    let client = Client::new(&url, Connector::plain());
    client.get("/api/v1/pods?resourceVersion=0").await.ok();
    eventually("an outage", LIMIT, async || {
        let stdout = printed(directory);
        match stdout[before..].contains("is cut off for") {
            true => Ok(()),
            false => Err(stdout),
        }
    })
    .await;
    let before = printed(directory).len();
    healthy("the end of the outage", before).await;
    ends(&mut process, directory);
}

/// The first commands that the demo suggests are answered from the cache: a client has read these
/// Tables before.
#[tokio::test(flavor = "multi_thread")]
async fn the_suggested_reads_come_from_the_cache() {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (mut process, url) = start(directory.path()).await;
    let client = Client::new(&url, Connector::plain()).with("accept", TABLE);
    for path in ["/api/v1/nodes?limit=500", "/api/v1/namespaces?limit=1"] {
        eventually(path, LIMIT, async || {
            let answer = client.get(path).await.ok();
            match answer.header("x-kubefan-proof") {
                Some(_) => Ok(()),
                None => Err(answer.to_string()),
            }
        })
        .await;
    }
    ends(&mut process, directory.path());
}

#[test]
fn a_port_that_is_in_use_has_a_remedy() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").port();
    let listen = format!("127.0.0.1:{taken}");
    let ended = run(&["demo", "--pods", "0", "--agents", "0", "--listen", &listen]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    // Another program may have one of the next three ports.
    let mut ports = (taken..=taken.saturating_add(3)).map(|port| format!("127.0.0.1:{port}: "));
    assert!(
        ports.any(|port| ended.stderr.contains(&port)),
        "{listen}: {ended:?}"
    );
    for part in ["--listen 127.0.0.1:9001", "--listen 127.0.0.1:0"] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
}

#[test]
fn invalid_flags_are_reported() {
    let ended = run(&["demo", "--nodes", "0", "--listen", "0.0.0.0:1"]);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(
        ended.stderr.contains("--nodes") && ended.stderr.contains("--listen"),
        "{ended:?}"
    );
}
