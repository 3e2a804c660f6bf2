//! The chart in `deploy/helm/kubefan`, installed in an API server.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::support::programs::apiserver::ApiServer;
use crate::support::programs::chart::{NAMESPACE, Tools, chart, objects, succeeded};
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::Kubectl;

/// Installs the chart with these values as release `kubefan`, or upgrades the release to them.
pub(super) fn install(server: &ApiServer, tools: &Tools, values: &str) {
    let file = server.directory().join("values.yaml");
    fs::write(&file, values).expect("room");
    let file = file.display().to_string();
    let chart = chart().display().to_string();
    let create = [
        "--install",
        "--create-namespace",
        "--reset-values",
        "--values",
        &file,
    ];
    helm(
        server,
        tools,
        &[&["upgrade", "kubefan", &chart][..], &create].concat(),
    );
}

/// Creates kubefan's namespace, service account, roles and bindings as the chart describes them
/// with these values, and nothing else, so that the lists of other objects do not change.
pub(super) async fn grant_rights(server: &ApiServer, tools: &Tools, values: &str) {
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    server
        .client()
        .create("/api/v1/namespaces", &namespace)
        .await;
    let rendered = block_in_place(|| tools.render_text(values));
    let rendered = objects(&rendered.unwrap_or_else(|error| panic!("{error}")));
    let is_right = |object: &&Value| {
        let is_of_rbac = object["apiVersion"] == "rbac.authorization.k8s.io/v1";
        is_of_rbac || object["kind"] == "ServiceAccount"
    };
    for namespace in [NAMESPACE, "kube-system"] {
        let is_here = |object: &&Value| {
            let own = object["metadata"]["namespace"].as_str();
            own.unwrap_or(NAMESPACE) == namespace
        };
        let items: Vec<_> = rendered.iter().filter(is_right).filter(is_here).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let file = server.directory().join("rights.json");
        fs::write(&file, list.to_string()).expect("room");
        let file = file.display().to_string();
        kubectl(server, namespace, &["apply", "--server-side", "-f", &file]).await;
    }
}

async fn kubectl(server: &ApiServer, namespace: &str, arguments: &[&str]) -> String {
    let kubectl = Kubectl::new(server.assets(), &server.kubeconfig("admin"), namespace);
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    let output = kubectl.run(&arguments).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    output.stdout
}

/// Runs helm for the release's namespace.
pub(super) fn helm(server: &ApiServer, tools: &Tools, arguments: &[&str]) -> String {
    let kubeconfig = server.kubeconfig("admin").display().to_string();
    let place = ["--namespace", NAMESPACE, "--kubeconfig", &kubeconfig];
    let ended = block_in_place(|| tools.run("helm", &[arguments, &place].concat()));
    succeeded(&ended).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

/// Creates a token of kubefan's service account, or of another account in its namespace.
pub(super) async fn token(server: &ApiServer, account: &str) -> String {
    let token = kubectl(server, NAMESPACE, &["create", "token", account]).await;
    token.trim().to_owned()
}

/// Writes a kubeconfig of kubefan's service account. `name` distinguishes the file from others.
pub(super) async fn kubeconfig(server: &ApiServer, name: &str) -> PathBuf {
    let token = token(server, "kubefan").await;
    let path = server.directory().join(name);
    let authority = Some(server.authority());
    kubeconfig::write(&path, &server.url(), authority, &User::Token(&token));
    path
}
