//! kubefan starts before the API server does, and serves as soon as there
//! is one. Nothing is restarted.

use std::fs;
use std::time::Duration;

use http::{HeaderMap, Method};
use serde_json::json;

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::outcomes::request_count;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, private};
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::kubefan::Kubefan;

const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn kubectl_works_when_the_api_server_starts_after_kubefan() {
    let server = private().await;
    let namespace = server.namespace("start").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let object = json!({ "metadata": { "name": "from-before" } });
    server.client().create(&path, &object).await.ok();
    server.stop();
    let kubeconfig = server.kubeconfig("admin");
    // A named resource must not be taken for an unknown one while the API server starts.
    let flags = ["--resource", "configmaps,deployments.apps"];
    let mut kubefan = Kubefan::start_waiting(&kubeconfig, &flags).await;
    let pid = kubefan.pid();
    let refused = kubefan.client().get(&path).await;
    assert_eq!(refused.status, 503, "{refused}");
    assert_eq!(refused.retry_seconds(), Some(1), "{refused}");
    eventually("the wait for the API server", LIMIT, async || {
        let ready = kubefan.admin().get("/readyz").await;
        assert_eq!(ready.status, 503, "{ready}");
        let is_expected = ready.body == "waiting for the API server\n";
        is_expected.then_some(()).ok_or(ready)
    })
    .await;
    assert_eq!(kubefan.admin().get("/livez").await.status, 200);

    server.start_again().await;
    kubefan.ready().await;
    let client = kubefan.kubeconfig(&User::Anonymous);
    let kubectl = Kubectl::new(server.assets(), &client, &namespace);
    let arguments = ["get", "configmaps", "-o", "name"].map(str::to_owned);
    let output = kubectl.run(&arguments).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.stdout, "configmap/from-before\n", "{output:?}");
    let metrics = kubefan.metrics().await;
    assert!(request_count(&metrics, "cache", "list") > 0.0, "{metrics}");
    assert_eq!(kubefan.pid(), pid);
    let log = kubefan.log();
    assert!(log.contains("the API server has answered"), "{log}");
}

/// Checks a client that connected with its certificate before kubefan had read the authorities.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_certificate_on_a_connection_from_before_the_start_is_judged_after_it() {
    let server = private().await;
    server.stop();
    let kubeconfig = server.kubeconfig("admin");
    let flags = ["--tls-self-signed", "--auth", "delegated"];
    let mut kubefan = Kubefan::start_waiting(&kubeconfig, &flags).await;
    let authority = kubefan.authority().expect("a CA");
    let identity = server.certificate("jane", "system:masters");
    let tls = Connector::tls(&authority, Some(&identity), &["h2"]);
    let client = Client::http2(kubefan.url(), tls);
    let review = "/api/v1/namespaces/kube-system/configmaps";
    let refused = client.get(review).await;
    assert_eq!(refused.status, 503, "{refused}");

    server.start_again().await;
    kubefan.ready().await;
    let answer = client.get(review).await;
    assert_eq!(answer.status, 200, "{answer}");
    let bare = Client::http2(kubefan.url(), Connector::tls(&authority, None, &["h2"]));
    let refused = bare
        .try_send(Method::GET, review, &HeaderMap::new(), bytes::Bytes::new())
        .await;
    let status = refused.expect("an answer").status;
    assert!([401, 403].contains(&status.as_u16()), "{status}");
}

/// Corrects wrong credentials in the kubeconfig while kubefan waits.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn refused_credentials_are_waited_for() {
    let server = private().await;
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let text = fs::read_to_string(server.kubeconfig("admin")).expect("a kubeconfig");
    fs::write(&kubeconfig, text.replace(ADMIN, "wrong")).expect("a kubeconfig");
    let mut kubefan = Kubefan::start_waiting(&kubeconfig, &[]).await;
    eventually("the reason", LIMIT, async || {
        let log = kubefan.log();
        log.contains("answered 401").then_some(()).ok_or(log)
    })
    .await;
    fs::write(&kubeconfig, text).expect("a kubeconfig");
    kubefan.ready().await;
}
