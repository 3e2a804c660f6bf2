//! Runs the simulator as a program: alone, behind kubefan, and with kubectl if it is installed.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::support::clients::client::Client;
use crate::support::poll::eventually;
use crate::support::programs::assets::Assets;
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::kubefan::{Kubefan, run};
use crate::support::programs::sim::Sim;

const WIDGETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/upstream/widgets.yaml");
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LIMIT: Duration = Duration::from_secs(20);

async fn items(client: &Client, path: &str) -> Value {
    client.get(path).await.ok().json()["items"].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn kubefan_follows_the_simulator_through_faults() {
    let faults = [
        "/faults/drop-watches",
        "/faults/gone",
        "/faults/away?seconds=1",
        "/faults/half-frame",
        "/faults/slow?milliseconds=10",
        "/faults/too-many-requests?retryAfter=1",
        "/faults/server-error?count=2",
        "/faults/wrong-content-type",
        "/compact",
        "/faults/revision-back",
    ];
    for fault in faults {
        follows_through_fault(fault).await;
    }
}

/// Checks that kubefan's cache becomes correct again after a fault. Each fault gets a new kubefan,
/// because a shared one would back off longer after each fault.
async fn follows_through_fault(fault: &str) {
    let sim = Sim::start(&["--crd", WIDGETS]).await;
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &["-r", "configmaps,widgets"]).await;
    let (direct, client) = (sim.client(), kubefan.client());
    sim.admin(Method::POST, fault).await.ok();
    // Drops the watches, so that kubefan sends a new request, which gets the fault.
    sim.admin(Method::POST, "/faults/drop-watches").await.ok();
    let map = json!({"metadata": {"name": "after"}, "data": {"n": fault}});
    eventually(fault, LIMIT, async || {
        let made = client.create(MAPS, &map).await;
        match made.status.is_success() || made.status == 409 {
            true => Ok(()),
            false => Err(made.to_string()),
        }
    })
    .await;
    eventually(fault, LIMIT, async || {
        let cached = client.get(&format!("{MAPS}?resourceVersion=0")).await;
        let (cached, truth) = match cached.status.is_success() {
            true => (cached.json()["items"].take(), items(&direct, MAPS).await),
            false => return Err(cached.to_string()),
        };
        match cached == truth && truth.as_array().map(Vec::len) == Some(1) {
            true => Ok(()),
            false => Err(format!("{cached} is not {truth}")),
        }
    })
    .await;
}

#[tokio::test]
async fn the_admin_endpoint_prints_its_usage() {
    let sim = Sim::start(&[]).await;
    let help = sim.admin(Method::GET, "/").await.ok();
    let help = String::from_utf8_lossy(&help.body).into_owned();
    let offered = help.lines().filter_map(|line| line.strip_prefix("POST "));
    let paths: Vec<_> = offered.filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(paths.len(), 12, "{help}");
    for path in paths {
        let answer = sim.admin(Method::POST, path).await;
        assert_eq!(answer.status, 200, "{path}: {answer}");
    }
}

#[test]
fn unusable_settings_are_reported() {
    let not_loopback = run(&["sim", "--listen", "0.0.0.0:0"]);
    assert_eq!(not_loopback.code, Some(64), "{not_loopback:?}");
    let no_file = run(&["sim", "--listen", "127.0.0.1:0", "--crd", "none-such.yaml"]);
    assert_eq!(no_file.code, Some(1), "{no_file:?}");
    assert!(
        no_file.stderr.contains("--crd none-such.yaml"),
        "{no_file:?}"
    );
}

/// The manifest of the first `kubectl apply`.
const APP: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: { name: app }
data: { a: "1", b: "2" }
---
apiVersion: example.kubefan.io/v1
kind: Widget
metadata: { name: app }
spec: { color: red, size: 1 }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: app }
spec:
  selector: { matchLabels: { app: app } }
  template:
    metadata: { labels: { app: app } }
    spec:
      containers:
      - { name: main, image: old, ports: [{ containerPort: 80 }] }
      - { name: gone, image: gone }
"#;
/// The manifest of the second `kubectl apply`: in lists and in maps, one entry is changed, one is
/// removed and one is added.
const CHANGED_APP: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: { name: app }
data: { b: "3", c: "4" }
---
apiVersion: example.kubefan.io/v1
kind: Widget
metadata: { name: app }
spec: { color: blue }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: app }
spec:
  selector: { matchLabels: { app: app } }
  template:
    metadata: { labels: { app: app } }
    spec:
      containers:
      - { name: main, image: new, ports: [{ containerPort: 80 }] }
      - { name: added, image: added }
"#;

/// A Deployment with a field that Deployments do not have.
const MISSPELT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: misspelt }
spec:
  replica: 2
  selector: { matchLabels: { app: misspelt } }
  template:
    metadata: { labels: { app: misspelt } }
    spec:
      containers:
      - { name: main, image: a }
"#;

/// (arguments of kubectl, a text that its output contains, its exit code).
const COMMANDS: &[(&str, &str, i32)] = &[
    (
        "create configmap settings --from-literal=a=b",
        "configmap/settings created",
        0,
    ),
    (
        "create deployment web --image=nginx --replicas=2",
        "deployment.apps/web created",
        0,
    ),
    ("get configmap settings -o yaml", "a: b", 0),
    ("get configmap -l a=b", "No resources found", 0),
    (
        "get configmap --field-selector metadata.name=settings",
        "settings",
        0,
    ),
    ("scale deployment web --replicas=5", "scaled", 0),
    ("get deployment web -o jsonpath={.spec.replicas}", "5", 0),
    ("label deployment web tier=front", "labeled", 0),
    ("annotate deployment web note=x", "annotated", 0),
    (
        "patch deployment web -p {\"spec\":{\"paused\":true}}",
        "patched",
        0,
    ),
    (
        "set image deployment/web nginx=other",
        "deployment.apps/web image updated",
        0,
    ),
    (
        "get deployment web -o jsonpath={.spec.template.spec.containers[*].image}",
        "other",
        0,
    ),
    (
        "set env deployment/web A=1",
        "deployment.apps/web env updated",
        0,
    ),
    ("apply -f app.yaml", "deployment.apps/app created", 0),
    (
        "apply -f app-changed.yaml",
        "deployment.apps/app configured",
        0,
    ),
    (
        "apply -f app-changed.yaml",
        "deployment.apps/app unchanged",
        0,
    ),
    (
        "get deployment app -o jsonpath={.spec.template.spec.containers[*].image}",
        "new added",
        0,
    ),
    (
        "get configmap app -o jsonpath={.data}",
        "{\"b\":\"3\",\"c\":\"4\"}",
        0,
    ),
    (
        "get widget app -o jsonpath={.spec}",
        "{\"color\":\"blue\"}",
        0,
    ),
    ("diff -f app-changed.yaml", "", 0),
    (
        "explain pods.spec.containers",
        "imagePullPolicy\t<string>",
        0,
    ),
    (
        "explain deployments.spec --recursive",
        "rollingUpdate\t<RollingUpdateDeployment>",
        0,
    ),
    ("explain widgets.spec", "color\t<string>", 0),
    (
        "patch configmap app --type merge -p {\"dat\":{}}",
        "unknown field \"dat\"",
        0,
    ),
    (
        "apply -f misspelt.yaml",
        "strict decoding error: unknown field \"spec.replica\"",
        1,
    ),
    (
        "apply -f misspelt.yaml --validate=warn",
        "unknown field \"spec.replica\"",
        0,
    ),
    ("delete -f misspelt.yaml", "deleted", 0),
    ("create -f widget.yaml", "configmap/ssa created", 0),
    ("replace -f widget.yaml", "configmap/ssa replaced", 0),
    ("delete -f app.yaml", "deployment.apps \"app\" deleted", 0),
    ("auth can-i create pods", "yes", 0),
    ("describe deployment web", "5 desired", 0),
    ("create namespace shop", "namespace/shop created", 0),
    ("run p --image=busybox --namespace shop", "pod/p created", 0),
    ("describe pod p --namespace shop", "Pending", 0),
    ("get pods --all-namespaces", "shop", 0),
    ("delete namespace shop", "deleted", 0),
    ("get pods --all-namespaces", "No resources found", 0),
    ("api-resources", "widgets", 0),
    ("get --raw /version", "1", 0),
    (
        "apply --server-side -f widget.yaml",
        "no server-side apply",
        1,
    ),
    ("delete deployment web", "deleted", 0),
];

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn kubectl_works_on_the_simulator() {
    let assets = Assets::find();
    let sim = Sim::start(&["--crd", WIDGETS]).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let widget = directory.path().join("widget.yaml");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ssa"}});
    std::fs::write(&widget, object.to_string()).expect("written");
    for (name, text) in [
        ("app.yaml", APP),
        ("app-changed.yaml", CHANGED_APP),
        ("misspelt.yaml", MISSPELT),
    ] {
        std::fs::write(directory.path().join(name), text).expect("written");
    }
    let kubectl = Kubectl::new(&assets, &sim.kubeconfig(), "default");
    for (line, expected, code) in COMMANDS {
        let words = line.split(' ').map(|word| match word {
            name if name.ends_with(".yaml") => {
                directory.path().join(name).to_string_lossy().into_owned()
            }
            word => word.to_owned(),
        });
        let output = kubectl.run(&words.collect::<Vec<_>>()).await;
        assert_eq!(output.code, Some(*code), "{line}: {output:?}");
        let all = format!("{}{}", output.stdout, output.stderr);
        assert!(all.contains(expected), "{line}: {all}");
    }
}
