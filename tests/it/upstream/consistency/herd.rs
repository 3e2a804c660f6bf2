//! Many concurrent clients: informers that start together, and readers of a slow API server.
//!
//! Tests with names that start with `long_` are run by hand:
//!
//! ```sh
//! KUBEFAN_TEST_BINARY=target/dist/kubefan \
//!     cargo test --test it herd -- --ignored --nocapture --test-threads=1
//! ```

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use crate::support::clients::client::Client;
use crate::support::clients::frames::Format;
use crate::support::faulty::{FaultyUpstream, RECOVERY};
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{private, shared};
use crate::support::programs::informers;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::proxies::fault_proxy::RequestKind;
use crate::support::settings::setting;

const PROOF: &str = "x-kubefan-proof";
const OBJECTS: usize = 20;
/// The most LISTs that thirty informers together may cause at the API server.
const MOST_LISTS: u32 = 15;

/// Creates `OBJECTS` ConfigMaps, and has kubefan cache the resource in both formats.
async fn filled(direct: &Client, client: &Client, path: &str) {
    for number in 0..OBJECTS {
        let metadata = json!({ "name": format!("object-{number}"), "labels": { "side": "a" } });
        direct
            .create(path, &json!({ "metadata": metadata }))
            .await
            .ok();
    }
    for format in [Format::Json, Format::Protobuf] {
        let cached = format!("{path}?resourceVersion=0");
        client.get_as(&cached, format).await.ok();
    }
}

fn namespace(path: &str) -> &str {
    path.split('/').nth(4).expect("a namespace's path")
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn informers_that_start_together_cost_a_few_lists() {
    let server = shared();
    let faulty = FaultyUpstream::start(server).await;
    filled(&faulty.direct, &faulty.kubefan.client(), &faulty.path).await;
    let count = |kind| faulty.proxy.count(kind, "/configmaps");
    let before = (count(RequestKind::List), count(RequestKind::Watch));
    let config = faulty.kubefan.kubeconfig(&User::Anonymous);
    let arguments = [
        "herd",
        "--count",
        "30",
        "--namespace",
        namespace(&faulty.path),
    ];
    let output = informers::run_plainly(server.assets(), &config, &arguments).await;
    let sent = (
        count(RequestKind::List) - before.0,
        count(RequestKind::Watch) - before.1,
    );
    println!("{output}; {sent:?} LISTs and WATCHes upstream");
    assert_eq!(output["objects"], json!([OBJECTS]), "{output}");
    assert_eq!(output["watchErrors"]["count"], 0, "{output}");
    assert!(sent.0 <= MOST_LISTS && sent.1 == 0, "{sent:?}: {output}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn informers_of_an_empty_cache_cost_no_more_than_directly() {
    let server = shared();
    for informers in [1, 2] {
        let faulty = FaultyUpstream::start(server).await;
        for number in 0..OBJECTS {
            faulty.create(&format!("object-{number}")).await;
        }
        let config = faulty.kubefan.kubeconfig(&User::Anonymous);
        let count = informers.to_string();
        let namespace = namespace(&faulty.path);
        let arguments = ["herd", "--count", &count, "--namespace", namespace];
        let output = informers::run_plainly(server.assets(), &config, &arguments).await;
        assert_eq!(output["objects"], json!([OBJECTS]), "{output}");
        let sent = [RequestKind::List, RequestKind::Watch]
            .map(|kind| faulty.proxy.count(kind, "/configmaps"));
        // Directly, each informer sends one watch-list.
        println!("{informers} informers: {sent:?} LISTs and WATCHes upstream");
        assert!(sent.iter().sum::<u32>() <= informers, "{sent:?}: {output}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: KUBEFAN_INFORMERS, or 500"]
async fn long_informers_that_start_together_cost_a_few_lists() {
    let server = private().await;
    let kubefan = Kubefan::start(&server, &[]).await;
    let path = format!(
        "/api/v1/namespaces/{}/configmaps",
        server.namespace("herd").await
    );
    filled(&server.client(), &kubefan.client(), &path).await;
    let config = kubefan.kubeconfig(&User::Anonymous);
    let informers: u32 = setting("KUBEFAN_INFORMERS", 500);
    let count = informers.to_string();
    let arguments = ["herd", "--count", &count, "--namespace", namespace(&path)];
    let requests = async |verb| {
        let labels = [("resource", "configmaps"), ("verb", verb)];
        server.metric("apiserver_request_total", &labels).await
    };
    for round in 0..3 {
        let before = requests("LIST").await;
        let output = informers::run_plainly(server.assets(), &config, &arguments).await;
        let sent = requests("LIST").await - before;
        println!("round {round}: {sent} LISTs upstream: {output}");
        assert_eq!(output["objects"], json!([OBJECTS]), "{output}");
        assert!(sent < f64::from(informers) / 2.0, "{sent} LISTs upstream");
    }
}

/// Runs readers, each with a different selector, while the API server is slow. A reader that gets
/// 429 retries after a second. Every answer must show an object that was created before the reads
/// began. The API server is fast again after the first forwarded answer.
async fn slowed(faulty: &FaultyUpstream, readers: usize, slowness: Duration) {
    let client = faulty.kubefan.client();
    filled(&faulty.direct, &client, &faulty.path).await;
    faulty.proxy.slow_down(slowness);
    faulty.create("unheard-of").await;
    let (forwarded, refused) = (AtomicU32::new(0), AtomicU32::new(0));
    let reading = (0..readers).map(|number| {
        let path = format!("{}?labelSelector=side%20in%20(a,x{number})", faulty.path);
        let (client, forwarded, refused) = (&client, &forwarded, &refused);
        async move {
            loop {
                let answer = client.get(&path).await;
                if answer.status == 429 {
                    assert!(matches!(answer.retry_seconds(), Some(1..=5)), "{answer}");
                    assert_eq!(answer.json()["reason"], "TooManyRequests");
                    refused.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
                let answer = answer.ok();
                assert!(answer.to_string().contains("unheard-of"), "{answer}");
                if answer.header(PROOF).is_none() {
                    forwarded.fetch_add(1, Ordering::Relaxed);
                }
                return;
            }
        }
    });
    let end_delay = async {
        eventually("a forwarded answer", RECOVERY, async || {
            let forwarded = forwarded.load(Ordering::Relaxed);
            (forwarded > 0).then_some(()).ok_or("none")
        })
        .await;
        faulty.proxy.slow_down(Duration::ZERO);
        Instant::now()
    };
    let all = async { tokio::join!(join_all(reading), end_delay) };
    let (_, delay_ended) = within("all answers", 2 * RECOVERY, all).await;
    let recovered = delay_ended.elapsed();
    let (forwarded, refused) = (forwarded.into_inner(), refused.into_inner());
    let most = faulty.proxy.most_concurrent_whole_lists(&faulty.path);
    println!(
        "{readers} readers, {slowness:?} delay: {forwarded} forwarded, {most} concurrently, {refused} times 429; \
         all answered {recovered:?} after the end of the delay"
    );
    assert!(most <= 2, "{most} concurrent LISTs");
    assert!(refused > 0);
    let answer = client.get(&faulty.path).await.ok();
    assert!(answer.header(PROOF).is_some(), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn readers_of_a_slow_api_server_are_asked_to_retry_later() {
    let server = shared();
    let faulty = FaultyUpstream::start(server).await;
    slowed(&faulty, 40, Duration::from_secs(4)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: KUBEFAN_READERS, or 1,000"]
async fn long_readers_of_a_slow_api_server_are_asked_to_retry_later() {
    let server = shared();
    let faulty = FaultyUpstream::start(server).await;
    slowed(
        &faulty,
        setting("KUBEFAN_READERS", 1_000),
        Duration::from_secs(5),
    )
    .await;
}
