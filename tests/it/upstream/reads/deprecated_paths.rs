//! Requests with deprecated `/watch/` paths are forwarded; other tests compare their answers.

use std::time::Duration;

use crate::support::clients::frames::Format;
use crate::support::cluster::define_widgets;
use crate::support::poll::within;
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubefan::Kubefan;

const STEP: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn deprecated_paths_are_answered_by_the_api_server() {
    let server = shared();
    define_widgets(server).await;
    let kubefan = Kubefan::start(server, &[]).await;
    let client = kubefan.client();
    let namespace = server.namespace("deprecated").await;
    let named = format!("/api/v1/watch/namespaces/{namespace}");
    for (path, status, labels) in [
        (
            format!("{named}/configmaps?timeoutSeconds=1"),
            200,
            r#"code="200",group="",outcome="forwarded",reason="deprecated_path",resource="configmaps",verb="watch""#,
        ),
        (
            format!("{named}/secrets/none?timeoutSeconds=1"),
            200,
            r#"code="200",group="",outcome="forwarded",reason="deprecated_path",resource="secrets",verb="watch""#,
        ),
        (
            format!("{named}?timeoutSeconds=1"),
            200,
            r#"code="200",group="",outcome="forwarded",reason="deprecated_path",resource="namespaces",verb="watch""#,
        ),
        (
            format!("{named}/services/none?fieldSelector=metadata.name%3Dother"),
            400,
            r#"code="400",group="",outcome="forwarded",reason="deprecated_path",resource="services",verb="watch""#,
        ),
        (
            "/api/v1/watch/pods/none?timeoutSeconds=1".to_owned(),
            404,
            r#"code="404",group="",outcome="forwarded",reason="deprecated_path",resource="pods",verb="watch""#,
        ),
        (
            "/apis/example.kubefan.io/v1/watch/widgets?timeoutSeconds=1".to_owned(),
            200,
            r#"code="200",group="example.kubefan.io",outcome="forwarded",reason="deprecated_path",resource="widgets",verb="watch""#,
        ),
    ] {
        let answer = within(&path, STEP, client.get_as(&path, Format::Json)).await;
        assert_eq!(answer.status, status, "{path}: {answer}");
        let metrics = kubefan.metrics().await;
        let counted = format!("kubefan_requests_total{{{labels}}} 1");
        let requests = metrics
            .lines()
            .filter(|line| line.starts_with("kubefan_requests_total"));
        let requests: Vec<_> = requests.collect();
        assert!(
            requests.contains(&counted.as_str()),
            "{path}: {counted} is not among {requests:#?}"
        );
    }
}
