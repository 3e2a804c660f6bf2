//! Alerts fire at the faults that they are for: the test makes the fault, scrapes kubefan before, during
//! and after it, and promtool evaluates the alerts in a history that is made of the scrapes.

use std::fs;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::history::{END_OF_FAULT, Phase, fires_during_the_fault};
use super::{queries, rules, text};
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, metric, private, shared};
use crate::support::programs::chart::{Tools, succeeded};
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::sim::Sim;

const LIMIT: Duration = Duration::from_secs(60);
/// The panel and the recording rule that are empty as long as no request has failed.
const EMPTY_WITHOUT_ERRORS: [&str; 2] = ["Errors", "instance:kubefan_server_errors:ratio_rate5m"];

/// Waits until the metrics have a line, and returns them.
async fn scraped_with(kubefan: &Kubefan, wanted: &str) -> String {
    eventually(wanted, LIMIT, async || {
        let metrics = kubefan.metrics().await;
        match metrics.lines().any(|line| line == wanted) {
            true => Ok(metrics),
            false => Err("no such line"),
        }
    })
    .await
}

/// Waits until all caches are filled, also those that kubefan needs for itself, and returns the metrics.
async fn scraped_healthy(kubefan: &Kubefan) -> String {
    eventually("filled caches", LIMIT, async || {
        let metrics = kubefan.metrics().await;
        let mut ready = metrics
            .lines()
            .filter(|line| line.starts_with("kubefan_informer_ready{"))
            .peekable();
        let is_filled = ready.peek().is_some() && ready.all(|line| line.ends_with(" 1"));
        if is_filled { Ok(metrics) } else { Err(metrics) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(all(apiserver, deploy_tools)),
    ignore = "needs kube-apiserver and promtool: see CONTRIBUTING.md"
)]
async fn an_api_server_that_stops_responding_is_reported() {
    let tools = Tools::find();
    let server = private().await;
    let kubefan = Kubefan::start(&server, &["--resource", "configmaps"]).await;
    let healthy = scraped_healthy(&kubefan).await;
    server.suspend();
    let fault = scraped_with(&kubefan, "kubefan_upstream_responding 0").await;
    server.resume();
    let healed = scraped_with(&kubefan, "kubefan_upstream_responding 1").await;
    let phases = [&healthy, &fault, &healed].map(|scrape| Phase::quiet(scrape));
    fires_during_the_fault(&tools, "KubefanUpstreamNotResponding", &phases, vec![]);
}

/// One list a minute.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(deploy_tools), ignore = "needs promtool: see CONTRIBUTING.md")]
async fn a_cache_that_is_listed_again_and_again_is_reported() {
    let tools = Tools::find();
    let sim = Sim::start(&[]).await;
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &["--resource", "configmaps"]).await;
    let lists = async || {
        let labels = [("resource", "configmaps")];
        metric(&kubefan.admin(), "kubefan_relists_total", &labels).await
    };
    let before = scraped_healthy(&kubefan).await;
    let first = lists().await;
    sim.admin(Method::POST, "/faults/gone").await.ok();
    eventually("another list", LIMIT, async || {
        let count = lists().await;
        if count > first { Ok(()) } else { Err(count) }
    })
    .await;
    let after = kubefan.metrics().await;
    let phases = [
        Phase::quiet(&before),
        Phase::between(&before, &after),
        Phase::quiet(&after),
    ];
    fires_during_the_fault(&tools, "KubefanRelisting", &phases, vec![]);
}

/// Five reads that a cache answers.
async fn cached_reads(client: &Client, path: &str) {
    for _ in 0..5 {
        let answer = client.get(path).await.ok();
        assert!(answer.header("x-kubefan-proof").is_some(), "{answer}");
    }
}

/// Tests of promtool: at the end of the fault, each query of the dashboard and each recording rule has
/// a value.
fn everything_shows_something() -> Vec<Value> {
    let recorded = rules("rules.yaml").into_iter().map(|rule| {
        let name = text(&rule, "/record").to_owned();
        (name.clone(), name)
    });
    let all = queries().into_iter().chain(recorded);
    let shown = all.filter(|(title, _)| !EMPTY_WITHOUT_ERRORS.contains(&title.as_str()));
    let tests = shown.map(|(_, expression)| {
        let expected = json!([{"labels": "{}", "value": 1}]);
        let expression = format!("count({expression}) > bool 0");
        json!({"expr": expression, "eval_time": END_OF_FAULT, "exp_samples": expected})
    });
    tests.collect()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(all(apiserver, deploy_tools)),
    ignore = "needs kube-apiserver and promtool: see CONTRIBUTING.md"
)]
async fn a_client_that_accepts_no_json_is_reported_and_every_panel_shows_something() {
    let tools = Tools::find();
    let server = shared();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let audit = directory.path().join("audit.log").display().to_string();
    let flags = [
        "--tls-self-signed",
        "--resource",
        "configmaps",
        // So that no read waits for a proof, which could take a second on a busy machine.
        "--freshness",
        "any",
        "--audit-log-path",
        &audit,
    ];
    let kubefan = Kubefan::start(server, &flags).await;
    scraped_with(&kubefan, "kubefan_role_watches_alive 4").await;
    scraped_healthy(&kubefan).await;
    let namespace = server.namespace("alerts").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let authority = kubefan.authority().expect("kubefan serves TLS");
    let connector = Connector::tls(&authority, None, &["http/1.1"]);
    let client = Client::new(kubefan.url(), connector).as_token(ADMIN);
    // The first read of a user may be forwarded.
    eventually("a read from the cache", LIMIT, async || {
        let answer = client.get(&path).await.ok();
        match answer.header("x-kubefan-proof") {
            Some(_) => Ok(()),
            None => Err("forwarded"),
        }
    })
    .await;

    let begun = kubefan.metrics().await;
    cached_reads(&client, &path).await;
    let healthy = kubefan.metrics().await;
    for _ in 0..5 {
        client.with("accept", "application/cbor").get(&path).await;
    }
    cached_reads(&client, &path).await;
    let fault = kubefan.metrics().await;
    cached_reads(&client, &path).await;
    let healed = kubefan.metrics().await;

    let phases = [
        Phase::between(&begun, &healthy),
        Phase::between(&healthy, &fault),
        Phase::between(&fault, &healed),
    ];
    let panels = everything_shows_something();
    fires_during_the_fault(&tools, "KubefanReadsForwarded", &phases, panels);

    let scrape = directory.path().join("metrics.txt");
    fs::write(&scrape, &fault).expect("room");
    let checked = tools.run_reading("promtool", &["check", "metrics"], &scrape);
    succeeded(&checked).unwrap_or_else(|error| panic!("{error}"));
}
