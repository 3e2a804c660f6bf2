//! In each mode kubefan works with exactly the rights, the configuration and the certificate that
//! the chart installs: by the API server's audit log it is refused nothing, and needs every right.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, Method};
use serde_json::json;

use super::identities::grant;
use super::own_requests::{OwnRequests, rights};
use super::shipped;
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::programs::apiserver::{ApiServer, metric, private_with};
use crate::support::programs::certificates::Authority;
use crate::support::programs::chart::Tools;
use crate::support::programs::kubefan::Kubefan;

const KUBEFAN: &str = "/api/v1/namespaces/kubefan";
const ROLES: [&str; 2] = ["kubefan", "kubefan-cache"];

/// The chart's values for each mode without client certificates, and
/// whether the callers send tokens.
const MODES: [(&str, &str, bool); 5] = [
    ("caller", "{}", true),
    (
        "anonymous",
        "config: {authentication: {anonymous: true}}",
        false,
    ),
    (
        "delegated",
        "config: {authentication: {mode: delegated}}",
        true,
    ),
    ("node", "{kind: DaemonSet, cachedResources: []}", true),
    (
        "sidecar",
        "{kind: Sidecar, config: {cache: {secrets: true}}}",
        false,
    ),
];

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(all(apiserver, deploy_tools)),
    ignore = "needs kube-apiserver and Helm: see CONTRIBUTING.md"
)]
async fn each_mode_has_the_rights_that_kubefan_needs_and_no_others() {
    let mut own = OwnRequests::new();
    let audit = own.flags();
    let audit: Vec<&str> = audit.iter().map(String::as_str).collect();
    let server = private_with(&audit).await;
    let tools = Tools::find();
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list", "watch"]}]);
    for (name, kind) in [("system:unauthenticated", "Group"), ("certified", "User")] {
        let reader = json!({"kind": kind, "name": name});
        grant(&server.client(), None, name, &rules, &reader).await;
    }
    let mut authorities = Vec::new();
    impersonate(&server, &tools).await;
    let roles = [&ROLES[..], &["kubefan-certificates"]].concat();
    let published = ("", "configmaps", "get");
    own.check(&server, "certificates", &roles, &[published])
        .await;
    for (mode, values, with_token) in MODES {
        shipped::install(&server, &tools, values);
        authorities.extend(authority(&server).await);
        serve(&server, mode, with_token).await;
        let delegated = (mode == "delegated").then_some("system:auth-delegator");
        let roles: Vec<_> = ROLES.into_iter().chain(delegated).collect();
        own.check(&server, mode, &roles, &[]).await;
    }
    assert_eq!(
        authorities.len(),
        4,
        "all but the sidecar have a certificate"
    );
    authorities.dedup();
    assert_eq!(authorities.len(), 1, "upgrades keep the certificate");
    shipped::helm(&server, &tools, &["uninstall", "kubefan"]);
    for gone in ["clusterroles", "clusterrolebindings"] {
        let path = format!(
            "/apis/rbac.authorization.k8s.io/v1/{gone}?labelSelector=app.kubernetes.io/name%3Dkubefan"
        );
        let left = server.client().get(&path).await.ok().json();
        assert_eq!(left["items"], json!([]), "{gone}");
    }
}

/// Sends requests of users with client certificates and of an authenticating proxy, and of a node,
/// which kubefan forwards, besides reads that caches answer.
async fn impersonate(server: &ApiServer, tools: &Tools) {
    let values = "config: {authentication: {clientCertificates: true}}";
    shipped::install(server, tools, values);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let proxies = Authority::new();
    let file = directory.path().join("proxies.pem");
    fs::write(&file, &proxies.certificate).expect("room");
    let file = file.display().to_string();
    let flags = ["--requestheader-client-ca-file", &file];
    let kubefan = start(server, "certificates", directory.path(), &flags).await;
    let trusted = authority(server).await.expect("a certificate");
    let client = |certificate| {
        let connector = Connector::tls(&trusted, Some(&certificate), &["http/1.1"]);
        Client::new(kubefan.url(), connector)
    };
    let front = client(proxies.client("front", "proxies"));
    let users = [
        client(server.certificate("certified", "any")),
        client(server.certificate("system:node:n1", "system:nodes")),
        front
            .with("x-remote-user", "proxied")
            .with("x-remote-uid", "7"),
    ];
    let secrets = "/api/v1/namespaces/default/secrets";
    for user in &users {
        let made = json!({"metadata": {"name": "made"}});
        for (method, path) in [
            (Method::GET, format!("{secrets}/made")),
            (Method::GET, secrets.to_owned()),
            (Method::GET, format!("{secrets}?watch=1&timeoutSeconds=1")),
            (Method::POST, format!("{secrets}?dryRun=All")),
            (Method::PUT, format!("{secrets}/made?dryRun=All")),
            (Method::PATCH, format!("{secrets}/made?dryRun=All")),
            (Method::DELETE, format!("{secrets}/made?dryRun=All")),
            (Method::DELETE, format!("{secrets}?dryRun=All")),
            (Method::GET, "/healthz".to_owned()),
            (Method::HEAD, "/healthz".to_owned()),
            (Method::POST, "/healthz".to_owned()),
        ] {
            let mut headers = HeaderMap::new();
            let kind = match method {
                Method::PATCH => "application/merge-patch+json",
                _ => "application/json",
            };
            headers.insert("content-type", kind.parse().expect("a media type"));
            let body = made.to_string().into();
            let answer = user.try_send(method.clone(), &path, &headers, body).await;
            let answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
            // The rights of these users are not the point, but kubefan must serve them.
            let text = answer.to_string();
            assert!(
                !text.contains("system:serviceaccount:kubefan:kubefan"),
                "{method} {path}: {text}"
            );
        }
    }
    read_all(server, "certificates", &kubefan, &users[0]).await;
}

/// Returns the certificate of the chart's CA in the clients' ConfigMap.
async fn authority(server: &ApiServer) -> Option<String> {
    let path = format!("{KUBEFAN}/configmaps/kubefan-client");
    let map = server.client().get(&path).await.ok().json();
    map["data"]["ca.crt"].as_str().map(str::to_owned)
}

/// Starts kubefan with what the chart has installed, and these flags.
async fn start(server: &ApiServer, mode: &str, directory: &Path, flags: &[&str]) -> Kubefan {
    let config = configuration(server, directory).await;
    let config = config.display().to_string();
    let kubeconfig = shipped::kubeconfig(server, mode).await;
    Kubefan::start_with(&kubeconfig, &[&["--config", &config], flags].concat()).await
}

/// Runs kubefan with what the chart has installed, and reads through it.
async fn serve(server: &ApiServer, mode: &str, with_token: bool) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kubefan = start(server, mode, directory.path(), &[]).await;
    let client = match authority(server).await {
        Some(authority) => Client::new(
            kubefan.url(),
            Connector::tls(&authority, None, &["http/1.1"]),
        ),
        None => kubefan.client(),
    };
    let client = match with_token {
        true => client.as_token("admin-token"),
        false => client,
    };
    read_all(server, mode, &kubefan, &client).await;
    let log = kubefan.log();
    for bad in ["orbidden", "\"WARN\"", "\"ERROR\""] {
        assert!(!log.contains(bad), "{mode}: {bad} in {log}");
    }
}

/// Reads all resources that kubefan may cache, from its caches.
async fn read_all(server: &ApiServer, mode: &str, kubefan: &Kubefan, client: &Client) {
    let resources = rights(server, &["kubefan-cache"]).await;
    let lists = resources.iter().filter(|(_, _, verb)| verb == "list");
    let mut count = 0.0;
    for (group, resource, _) in lists {
        let version = match group.as_str() {
            "" => "/api/v1".to_owned(),
            group => format!("/apis/{group}/v1"),
        };
        let list = format!("{version}/{resource}?resourceVersion=0");
        client.get(&list).await.ok();
        client
            .get(&format!("{list}&watch=1&timeoutSeconds=1"))
            .await
            .ok();
        count += 2.0;
    }
    let labels = [("outcome", "cache")];
    let answered = metric(&kubefan.admin(), "kubefan_requests_total", &labels).await;
    assert_eq!(answered, count, "{mode}: reads that the caches answered");
}

/// Writes the configuration and the certificate that the chart has installed, and
/// returns the path of the former.
async fn configuration(server: &ApiServer, directory: &Path) -> PathBuf {
    let read = async |path: &str| server.client().get(&format!("{KUBEFAN}/{path}")).await;
    let map = read("configmaps/kubefan").await.ok().json();
    let config = map["data"]["kubefan.yaml"]
        .as_str()
        .expect("a configuration");
    let secret = read("secrets/kubefan-tls").await;
    if secret.status == 200 {
        let secret = secret.json();
        for name in ["tls.crt", "tls.key"] {
            let value = secret["data"][name]
                .as_str()
                .expect("a part of a certificate");
            let value = STANDARD.decode(value).expect("base64");
            fs::write(directory.join(name), value).expect("room");
        }
    }
    let here = config.replace("/etc/kubefan/tls", &directory.display().to_string());
    let path = directory.join("kubefan.yaml");
    fs::write(&path, here).expect("room");
    path
}
