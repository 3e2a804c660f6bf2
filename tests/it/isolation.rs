//! Reads of a selection that kubefan and the API server understand differently. A proxy between the
//! two changes the selector, as if a newer API server gave it another meaning.

use std::time::Duration;

use serde_json::json;

use crate::support::clients::client::Client;
use crate::support::poll::eventually;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::sim::Sim;
use crate::support::proxies::scripted_proxy::{RequestAction, ScriptedProxy, SeenRequest};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LIMIT: Duration = Duration::from_secs(20);

/// Forwards each request. The label selector `app=web` selects what `app=db` should.
fn misunderstand(seen: &SeenRequest) -> RequestAction {
    match seen.query("labelSelector") {
        "app=web" => RequestAction::ReplaceInQuery("web", "db"),
        _ => RequestAction::Forward,
    }
}

/// Returns the names in the list at `path`, and whether a cache answered.
async fn names(client: &Client, path: &str) -> (Vec<String>, bool) {
    let answer = client.get(path).await.ok();
    let list = answer.json();
    let items = list["items"].as_array().expect("items").iter();
    let name = |item: &serde_json::Value| item["metadata"]["name"].as_str().map(str::to_owned);
    let is_cached = answer.header("x-kubefan-proof").is_some();
    (items.filter_map(name).collect(), is_cached)
}

/// Returns the sum of a metric over all its labels that contain `label`.
async fn metric(kubefan: &Kubefan, name: &str, label: &str) -> f64 {
    let metrics = kubefan.metrics().await;
    let lines = metrics.lines().filter(|line| line.contains(label));
    let values = lines.filter_map(|line| {
        let labels_and_value = line.strip_prefix(name)?.strip_prefix('{')?;
        labels_and_value.rsplit(' ').next()?.parse::<f64>().ok()
    });
    values.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_a_selection_with_a_lasting_difference_are_forwarded_and_no_others() {
    let sim = Sim::start(&[]).await;
    for name in ["web", "db"] {
        let object = json!({"metadata": {"name": name, "labels": {"app": name}}});
        sim.client().create(MAPS, &object).await.ok();
    }
    let proxy = ScriptedProxy::start(sim.client(), misunderstand).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("config");
    kubeconfig::write(&config, proxy.url(), None, &User::Anonymous);
    let kubefan = Kubefan::start_with(&config, &["-r", "configmaps"]).await;
    let client = kubefan.client();
    let wrong = format!("{MAPS}?labelSelector=app%3Dweb");
    let right = format!("{MAPS}?labelSelector=app%3Ddb");
    let db = || vec!["db".to_owned()];

    // The first difference causes a relist, and the next one shows that it repaired nothing.
    eventually("the isolation", LIMIT, async || {
        assert_eq!(names(&client, &wrong).await, (db(), false));
        let isolated = metric(&kubefan, "kubefan_freshness_isolated_selections", "").await;
        if isolated == 1.0 {
            Ok(())
        } else {
            Err(isolated)
        }
    })
    .await;

    // The first list is counted too.
    let relists = metric(&kubefan, "kubefan_relists_total", "configmaps").await;
    assert_eq!(relists, 2.0);
    // The old state, and a state with a version that the cache has, are forwarded too.
    for version in ["", "&resourceVersion=0", "&resourceVersion=1"] {
        let path = format!("{wrong}{version}");
        assert_eq!(names(&client, &path).await, (db(), false), "{path}");
    }
    let seen = |name: &str| {
        let watches = proxy.seen().into_iter().filter(SeenRequest::is_watch);
        let selected = watches.filter(|seen| seen.query("labelSelector") == name);
        selected.count()
    };
    let forwarded = metric(&kubefan, "kubefan_requests_total", "cache_differs").await;
    assert!(forwarded >= 4.0, "{forwarded}");
    let watch = format!("{wrong}&watch=true&resourceVersion=0&timeoutSeconds=1");
    assert_eq!(seen("app=web"), 0);
    let answer = client.get(&watch).await.ok();
    assert_eq!(seen("app=web"), 1, "{answer}");

    assert_eq!(names(&client, &right).await, (db(), true));
    assert!(names(&client, MAPS).await.1);
    let relists = metric(&kubefan, "kubefan_relists_total", "configmaps").await;
    assert_eq!(relists, 2.0);
}
