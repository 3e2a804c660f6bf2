//! What kubefan asks, looks up and starts for its callers, and what that may cost.
//!
//! By hand with more long questions:
//!
//! ```sh
//! KUBEFAN_LONG_QUESTIONS=1000 cargo test --test it long_questions -- --nocapture
//! ```

use std::fs;

use futures::future::join_all;
use serde_json::json;

use super::observed::{LIMIT, Observed};
use crate::support::clients::client::Client;
use crate::support::outcomes::request_count;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, READER, metric, shared};
use crate::support::programs::kubefan::Kubefan;
use crate::support::settings::setting;

const CALLER: [&str; 2] = ["--auth", "caller"];

/// Returns the resident memory of kubefan, in MiB.
fn resident(kubefan: &Kubefan) -> u64 {
    let status = format!("/proc/{}/status", kubefan.pid());
    let status = fs::read_to_string(status).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.expect("a size").trim().trim_end_matches(" kB");
    kib.parse::<u64>().expect("a number") / 1024
}

/// Creates a namespace with some ConfigMaps, which the reader may get, list and watch.
pub(super) async fn maps(server: &ApiServer, name: &str, count: usize) -> String {
    let namespace = server.namespace(name).await;
    let verbs = ["get", "list", "watch"];
    server
        .allow_reader(&namespace, &verbs, &["configmaps"])
        .await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    for number in 0..count {
        let map = json!({"metadata": {"name": format!("map-{number}")}});
        server.client().create(&maps, &map).await.ok();
    }
    maps
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_user_without_rights_fills_no_memory_with_long_questions() {
    let server = shared();
    let namespace = server.namespace("long-questions").await;
    let flags = [&CALLER[..], &["--memory-limit", "256Mi"]].concat();
    let kubefan = Kubefan::start(server, &flags).await;
    let reader = kubefan.client().as_token(READER);
    let path = format!("/api/v1/namespaces/{namespace}/secrets?resourceVersion=0");
    assert_eq!(reader.get(&path).await.status, 403);
    let before = resident(&kubefan);
    let count: usize = setting("KUBEFAN_LONG_QUESTIONS", 100);
    for round in 0..count / 10 {
        let requests = (0..10).map(|number| {
            let number = 10 * round + number;
            let path = match number % 4 {
                // The longest URL has 64 KiB.
                0 => {
                    let namespace = format!("n{number}{}", "x".repeat(60_000));
                    format!("/api/v1/namespaces/{namespace}/secrets?resourceVersion=0")
                }
                1 => format!("{path}&labelSelector=k{number}{}", ",a".repeat(30_000)),
                2 => {
                    let keys: Vec<_> = (0..9_000).map(|key| format!("k{key}")).collect();
                    format!("{path}&labelSelector=n{number},{}", keys.join(","))
                }
                _ => {
                    let fields: Vec<_> = (0..4_000).map(|key| format!("k{key}=v")).collect();
                    format!("{path}&fieldSelector=n{number}=v,{}", fields.join(","))
                }
            };
            let reader = reader.clone();
            async move { reader.get(&path).await }
        });
        for answer in join_all(requests).await {
            assert!([400, 403].contains(&answer.status.as_u16()), "{answer}");
        }
    }
    let grown = resident(&kubefan).saturating_sub(before);
    println!("{count} long questions took {grown} MiB");
    assert!(grown < 64, "{grown} MiB");
}

/// Waits until kubefan has found out whether names are covered. It does so when a client reads by
/// name, so reads `path`.
pub(super) async fn found_out(kubefan: &Kubefan, client: &Client, path: &str, finding: &str) {
    eventually(finding, LIMIT, async || {
        client.get(path).await;
        match kubefan.log().contains(finding) {
            true => Ok(()),
            false => Err(kubefan.log()),
        }
    })
    .await;
}

/// Counts the questions about rights.
async fn asked(kubefan: &Kubefan) -> f64 {
    let labels = [("kind", "SelfSubjectAccessReview")];
    metric(&kubefan.admin(), "kubefan_reviews_total", &labels).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn reads_by_name_cost_no_calls_if_names_are_covered() {
    let server = shared();
    let count = 20;
    let maps = maps(server, "covered-names", count).await;
    for (flag, is_covered) in [
        // The API server has only RBAC.
        (None, true),
        (Some("--authorization-names-covered"), true),
        (Some("--authorization-names-covered=false"), false),
    ] {
        let flags: Vec<_> = CALLER.into_iter().chain(flag).collect();
        let kubefan = Kubefan::start(server, &flags).await;
        let reader = kubefan.client().as_token(READER);
        // Only a LIST starts a cache.
        reader.get(&format!("{maps}?resourceVersion=0")).await.ok();
        if flag.is_none() {
            let other = "/api/v1/namespaces/default/configmaps/other?resourceVersion=0";
            found_out(&kubefan, &reader, other, "names are covered").await;
        }
        let answered = async |outcome| request_count(&kubefan.metrics().await, outcome, "get");
        let outcome = if is_covered { "cache" } else { "forwarded" };
        let (reviews, before) = (asked(&kubefan).await, answered(outcome).await);
        for number in 0..count {
            let path = format!("{maps}/map-{number}?resourceVersion=0");
            reader.get(&path).await.ok();
        }
        let answered = answered(outcome).await - before;
        assert_eq!(answered, count as f64, "{flag:?} {outcome}");
        let asked = asked(&kubefan).await - reviews;
        // One more if the first is forgotten, after ten seconds.
        let most = if is_covered { 2.0 } else { 0.0 };
        assert!(asked <= most, "{asked} for {count} reads, {flag:?}");
        // Another verb is another right.
        let path = "/api/v1/namespaces/default/configmaps/any?resourceVersion=0";
        assert_eq!(reader.get(path).await.status, 403);
        // Watches of one object each share a question.
        let mut watches = Vec::new();
        for number in 0..count {
            let one = format!("fieldSelector=metadata.name%3Dmap-{number}");
            let path = format!("{maps}?watch=1&resourceVersion=0&{one}");
            watches.push(Observed::open(&reader, &path, 1).await);
        }
        let labels = [("about", "right")];
        let questions = metric(&kubefan.admin(), "kubefan_open_watch_questions", &labels).await;
        let expected = if is_covered { 1 } else { count };
        assert_eq!(questions, expected as f64);
    }
}

/// Counts kubefan's caches of the resources that the test reads.
async fn caches(kubefan: &Kubefan) -> usize {
    let metrics = kubefan.metrics().await;
    let read = ["configmaps", "services", "deployments", "replicasets"];
    let read = read.map(|resource| format!("resource=\"{resource}\""));
    let lines = metrics.lines();
    let caches = lines.filter(|line| line.starts_with("kubefan_cache_bytes{"));
    caches
        .filter(|line| read.iter().any(|resource| line.contains(resource)))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn reads_by_name_and_reads_without_rights_start_no_cache() {
    let server = shared();
    let maps = maps(server, "not-started", 1).await;
    let kubefan = Kubefan::start(server, &CALLER).await;
    let reader = kubefan.client().as_token(READER);
    let one = "fieldSelector=metadata.name%3Dmap-0";
    for (path, status) in [
        (format!("{maps}/map-0?resourceVersion=0"), 200),
        (format!("{maps}?resourceVersion=0&{one}"), 200),
        (format!("{maps}?{one}"), 200),
        (
            format!("{maps}?watch=1&resourceVersion=0&timeoutSeconds=1&{one}"),
            200,
        ),
        ("/api/v1/configmaps?resourceVersion=0".to_owned(), 403),
        ("/api/v1/services?watch=1&resourceVersion=0".to_owned(), 403),
        (
            "/apis/apps/v1/deployments?resourceVersion=0".to_owned(),
            403,
        ),
        (
            "/apis/apps/v1/namespaces/default/replicasets".to_owned(),
            403,
        ),
    ] {
        let answer = reader.get(&path).await;
        assert_eq!(answer.status, status, "{path}: {answer}");
        assert_eq!(caches(&kubefan).await, 0, "{path}");
    }
    // A read without a name starts a cache.
    reader.get(&format!("{maps}?resourceVersion=0")).await.ok();
    assert_eq!(caches(&kubefan).await, 1);
}
