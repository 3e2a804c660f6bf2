//! Cluster contents that several tests need: the Widget custom resource, a node with the stub of
//! `tests/upstream` as its kubelet, and a namespace full of objects.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::clients::client::Client;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::ApiServer;
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::process::Process;

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

/// Creates the Widget custom resource definition, and waits until the server serves widgets.
pub(crate) async fn define_widgets(server: &ApiServer) {
    let definition = fs::read_to_string(format!("{TESTS}/upstream/widgets.yaml")).expect("a file");
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut headers = http::HeaderMap::new();
    headers.insert(
        "content-type",
        http::HeaderValue::from_static("application/yaml"),
    );
    let made = server
        .client()
        .send(http::Method::POST, path, &headers, definition.into())
        .await;
    assert!(made.status.is_success() || made.status == 409, "{made}");
    eventually("widgets", Duration::from_secs(20), async || {
        let answer = server
            .client()
            .get("/apis/example.kubefan.io/v1/widgets")
            .await;
        answer.is(200)
    })
    .await;
}

/// Creates a custom resource. Tries again while the API server follows a new
/// definition and answers 429 or 503.
pub(crate) async fn create_patiently(client: &Client, collection: &str, object: &Value) {
    let made = eventually(collection, Duration::from_secs(20), async || {
        let made = client.create(collection, object).await;
        match made.status.as_u16() {
            429 | 503 => Err(made),
            _ => Ok(made),
        }
    });
    made.await.ok();
}

/// A running stub kubelet and its scratch files; both end when this is dropped.
#[derive(Debug)]
pub(crate) struct Node {
    _process: Process,
    _directory: TempDir,
}

/// Starts a stub kubelet and creates the node `name` with the stub's address.
pub(crate) async fn start_node(server: &ApiServer, name: &str) -> Node {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let stdout = directory.path().join("stdout");
    let mut command = Command::new(server.assets().stub_kubelet());
    command
        // The stub's scratch files are removed with this directory, even if the stub is killed.
        .env("TMPDIR", directory.path())
        .stdin(Stdio::null())
        .stdout(fs::File::create(&stdout).expect("a file"));
    let process = Process::start(&mut command, Some(directory.path()));
    let port = eventually("the stub kubelet", Duration::from_secs(20), async || {
        let line = fs::read_to_string(&stdout).unwrap_or_default();
        let address = line
            .strip_prefix("listening ")
            .and_then(|rest| rest.strip_suffix('\n'));
        let port = address.and_then(|address| address.rsplit(':').next()?.parse::<u16>().ok());
        port.ok_or(line)
    })
    .await;
    let client = server.client();
    client
        .create("/api/v1/nodes", &json!({ "metadata": { "name": name } }))
        .await
        .ok();
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": port } },
    } });
    client
        .merge(&format!("/api/v1/nodes/{name}/status"), &status)
        .await
        .ok();
    Node {
        _process: process,
        _directory: directory,
    }
}

/// Creates the objects of `tests/kubectl/files/namespace.yaml` in a namespace, with a running pod
/// and a finished rollout. Returns a directory with copies of `tests/kubectl/files`. The copies
/// have the namespace instead of `{ns}`.
pub(crate) async fn fill_namespace(server: &ApiServer, namespace: &str) -> TempDir {
    let files = files_for(namespace);
    let kubectl = Kubectl::new(server.assets(), &server.kubeconfig("admin"), namespace);
    let path = files.path().join("namespace.yaml").display().to_string();
    let stdout = kubectl
        .run(&["create".to_owned(), "-f".to_owned(), path])
        .await;
    assert_eq!(stdout.code, Some(0), "{}", stdout.stderr);
    let base = format!("/api/v1/namespaces/{namespace}/pods");
    let running = json!({ "status": {
        "phase": "Running", "podIP": "10.1.2.3", "podIPs": [{ "ip": "10.1.2.3" }],
        "conditions": [{ "type": "Ready", "status": "True" }],
        "containerStatuses": [{
            "name": "main", "ready": true, "restartCount": 0, "image": "example.com/web",
            "imageID": "", "state": { "running": {} },
        }],
    } });
    server
        .client()
        .merge(&format!("{base}/web-1/status"), &running)
        .await
        .ok();
    let rolled_out = json!({ "status": {
        "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1,
        "readyReplicas": 1, "availableReplicas": 1,
    } });
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/web/status");
    server.client().merge(&path, &rolled_out).await.ok();
    files
}

fn files_for(namespace: &str) -> TempDir {
    let files = tempfile::tempdir().expect("a temporary directory");
    for entry in fs::read_dir(kubectl_directory().join("files")).expect("tests/kubectl/files") {
        let entry = entry.expect("an entry");
        let text = fs::read_to_string(entry.path()).expect("a text");
        let text = text.replace("{ns}", namespace);
        fs::write(files.path().join(entry.file_name()), text).expect("a copy");
    }
    files
}

pub(crate) fn kubectl_directory() -> PathBuf {
    Path::new(TESTS).join("kubectl")
}
