//! The manifests of `deploy/shared`, applied to an API server.

use std::path::PathBuf;

use crate::repository::root;
use crate::support::programs::apiserver::ApiServer;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::Kubectl;

async fn run(server: &ApiServer, arguments: &[&str]) -> String {
    let kubectl = Kubectl::new(server.assets(), &server.kubeconfig("admin"), "kubefan");
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    let output = kubectl.run(&arguments).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    output.stdout
}

/// Applies files of `deploy/shared`.
pub(super) async fn apply(server: &ApiServer, names: &[&str]) {
    for name in names {
        let path = root().join("deploy/shared").join(name);
        let path = path.display().to_string();
        // Only this file has an object in a namespace other than kubefan's.
        let namespace = match *name {
            "rbac-certificates.yaml" => "--namespace=kube-system",
            _ => "--namespace=kubefan",
        };
        run(server, &["apply", "--server-side", "-f", &path, namespace]).await;
    }
}

/// A token of kubefan's service account, or of another one in its namespace.
pub(super) async fn token(server: &ApiServer, account: &str) -> String {
    let token = run(server, &["create", "token", account]).await;
    token.trim().to_owned()
}

/// A kubeconfig of kubefan's service account; `name` distinguishes the file from others.
pub(super) async fn kubeconfig(server: &ApiServer, name: &str) -> PathBuf {
    let token = token(server, "kubefan").await;
    let path = server.directory().join(name);
    let authority = Some(server.authority());
    kubeconfig::write(&path, &server.url(), authority, &User::Token(&token));
    path
}
