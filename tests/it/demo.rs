//! Runs `kubefan demo`, the first command of the README: a changing simulated cluster behind a
//! kubefan.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::Event;
use crate::support::clients::frames::Format;
use crate::support::poll::eventually;
use crate::support::poll::within;
use crate::support::programs::apiserver::available;
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::kubefan::binary;
use crate::support::programs::kubefan::run;
use crate::support::programs::kubefan::start_in;
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
    command.args("demo --nodes 5 --pods 60 --churn 100 --listen 127.0.0.1:0".split(' '));
    command
        .arg("--kubeconfig-out")
        .arg(directory.join("config"));
    let process = start_in(&mut command, directory);
    let stdout = || fs::read_to_string(directory.join("stdout")).unwrap_or_default();
    let url = eventually("the demonstration", LIMIT, async || {
        let stdout = stdout();
        let is_whole = stdout.contains("Ctrl-C stops it");
        let line = stdout
            .lines()
            .find_map(|line| line.strip_prefix("kubefan serves on "));
        line.filter(|_| is_whole).map(str::to_owned).ok_or(stdout)
    })
    .await;
    (process, url)
}

fn ends(process: &mut Process, directory: &Path) {
    process.signal("INT");
    let status = process.wait(LIMIT).expect("it ends");
    let log = fs::read_to_string(directory.join("stderr")).unwrap_or_default();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!log.contains("panicked at"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_explains_and_checks_in_the_demo_cluster() {
    let Some(assets) = available() else {
        return;
    };
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
    let _: Value = serde_json::from_str(&kubeconfig).expect("JSON is YAML");
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
