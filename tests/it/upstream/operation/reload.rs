//! A running kubefan applies a changed configuration after SIGHUP, and when the mounted file
//! changes. A file with mistakes changes nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::support::clients::frames::Format;
use crate::support::outcomes::request_count;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::{Kubefan, binary, start_in};
use crate::support::proxies::listener::Listener;

const STEP: Duration = Duration::from_secs(60);

/// Replaces the mounted file as Kubernetes does: the link `..data` changes to a new directory.
fn mount(directory: &Path, version: &str, text: &str) {
    let (new, unfinished) = (directory.join(version), directory.join("..data_tmp"));
    fs::create_dir(&new).expect("a new directory");
    fs::write(new.join("kubefan.yaml"), text).expect("a written file");
    symlink(version, &unfinished).expect("a link");
    fs::rename(&unfinished, directory.join("..data")).expect("a renamed link");
}

async fn logged(kubefan: &Kubefan, text: &str) {
    eventually(text, STEP, async || {
        let log = kubefan.log();
        log.contains(text).then_some(()).ok_or(log)
    })
    .await;
}

/// Returns the numbers of LISTs that the cache answered, and that were forwarded.
async fn lists(kubefan: &Kubefan) -> [f64; 2] {
    let metrics = kubefan.metrics().await;
    ["cache", "forwarded"].map(|outcome| request_count(&metrics, outcome, "list"))
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_changed_configuration_is_applied_and_a_wrong_one_is_not() {
    let server = shared();
    let mounted = tempfile::tempdir().expect("a temporary directory");
    let file = mounted.path().join("kubefan.yaml");
    mount(mounted.path(), "1", "cache: {resources: [configmaps]}\n");
    symlink("..data/kubefan.yaml", &file).expect("a link");
    let file = file.to_str().expect("UTF-8");
    let kubefan = Kubefan::start(server, &["--config", file]).await;
    let client = kubefan.client();
    let list = async |resource: &str| {
        let path = format!("/api/v1/namespaces/default/{resource}?resourceVersion=0");
        client.get(&path).await.ok();
    };
    list("configmaps").await;
    assert_eq!(lists(&kubefan).await, [1.0, 0.0]);
    let path = "/api/v1/configmaps?watch=1&fieldSelector=metadata.name%3Dnosuch";
    let mut watch = client.watch(path, Format::Json).await.expect("a stream");

    // SIGHUP. The cache of a resource that must not be cached any more ends,
    // and its watches end cleanly.
    let text = "cache: {resources: [services], never: [configmaps, nodez]}\nlog: {verbosity: 1}\n";
    mount(mounted.path(), "2", text);
    kubefan.signal("HUP");
    let unknown = "cache.never: the API server has no such resource now name=\"nodez\" did_you_mean=\"nodes\"";
    logged(&kubefan, unknown).await;
    let keys = "changed settings are in use keys=\"cache.resources, cache.never, log.verbosity\"";
    logged(&kubefan, keys).await;
    let end = within("the end of the watch", STEP, watch.next()).await;
    assert_eq!(end, Ok(None));
    list("configmaps").await;
    assert_eq!(lists(&kubefan).await, [1.0, 1.0]);
    let ready = eventually("services are cached", STEP, async || {
        let ready = kubefan.admin().get("/readyz?verbose").await;
        let ready = String::from_utf8_lossy(&ready.body).into_owned();
        let is_ready = ready.contains("[+]services.v1 json: ") && ready.ends_with("\nready\n");
        if is_ready { Ok(ready) } else { Err(ready) }
    });
    assert!(!ready.await.contains("configmaps"));
    logged(&kubefan, " DEBUG ").await;

    // The file changes, and has mistakes: all are reported, and nothing changes.
    let text = "cache: {never: [services], nonsense: 1}\nlimits: {requestTimeout: 0s}\n";
    mount(mounted.path(), "3", text);
    logged(&kubefan, ":1:28: cache.nonsense: unknown key").await;
    logged(
        &kubefan,
        ":2:26: limits.requestTimeout: must be more than 0s",
    )
    .await;
    // So has one that does not fit the API server.
    let text = "cache: {resources: [nosuch], never: [services]}\n";
    mount(mounted.path(), "4", text);
    logged(&kubefan, "--resource nosuch").await;
    list("services").await;
    assert_eq!(lists(&kubefan).await, [2.0, 1.0]);

    // What cannot change while kubefan runs is named; the rest is applied.
    let text = "cache: {resources: [services], freshness: [any]}\nlimits: {maxConnections: 9}\n";
    mount(mounted.path(), "5", text);
    logged(
        &kubefan,
        "changed settings are not in use: restart to apply them keys=\"limits.maxConnections\"",
    )
    .await;
    let calls = async || {
        let metrics = kubefan.metrics().await;
        let of_services = metrics.lines().filter(|line| {
            line.starts_with("kubefan_freshness_questions_total{") && line.contains("\"services\"")
        });
        let values = of_services.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum::<f64>()
    };
    let before = calls().await;
    client.get("/api/v1/services").await.ok();
    assert_eq!(lists(&kubefan).await, [3.0, 1.0]);
    assert_eq!(
        calls().await,
        before,
        "with the freshness any, no proof is needed"
    );
    let metrics = kubefan.metrics().await;
    let refused = "kubefan_config_reloads_total{result=\"refused\"} 2\n";
    assert!(metrics.contains(refused), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sighup_during_the_start_does_not_end_kubefan() {
    // An API server that answers nothing.
    let connected = Arc::new(Notify::new());
    let connecting = Arc::clone(&connected);
    let server = Listener::start(move |_, stream| {
        connecting.notify_one();
        async move {
            let _open = stream;
            std::future::pending().await
        }
    })
    .await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("config");
    kubeconfig::write(&config, server.http_url(), None, &User::Anonymous);
    let mut command = Command::new(binary());
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    command.args(["--admin-listen", "127.0.0.1:0", "--kubeconfig"]);
    let mut kubefan = start_in(command.arg(config), directory.path());
    within("a connection", STEP, connected.notified()).await;
    kubefan.signal("HUP");
    kubefan.signal("TERM");
    let status = kubefan.wait(STEP).expect("it ends");
    assert_eq!(status.code(), Some(0), "{status}");
}
