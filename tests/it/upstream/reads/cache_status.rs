//! The header `Cache-Status`: what it says about hits, proofs, forwarded requests and shared calls.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use crate::support::clients::client::{Answer, Client};
use crate::support::faulty::FaultyUpstream;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;

const STEP: Duration = Duration::from_secs(30);
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Returns the members of the header, in their order.
fn members(answer: &Answer) -> Vec<&str> {
    let values = answer.headers.get_all("cache-status").iter();
    let values = values.map(|value| value.to_str().expect("ASCII"));
    values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect()
}

/// Returns the only member of the header.
async fn member(client: &Client, path: &str) -> String {
    let answer = within(path, STEP, client.get(path)).await;
    let members = members(&answer);
    let [member] = members[..] else {
        panic!("{path}: {members:?}");
    };
    member.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn each_answer_says_how_it_was_made() {
    let faulty = FaultyUpstream::start(shared()).await;
    let (client, path) = (faulty.kubefan.client(), &faulty.path);
    faulty.create("there").await;
    let cached = format!("{path}?resourceVersion=0");
    eventually("the object in the cache", STEP, async || {
        let list = client.get(&cached).await;
        (members(&list) == ["kubefan; hit"] && list.to_string().contains("there"))
            .then_some(())
            .ok_or(format!("{:?}: {list}", members(&list)))
    })
    .await;
    eventually("a proof", STEP, async || {
        let found = member(&client, path).await;
        let detail = found.strip_prefix("kubefan; hit; detail=\"");
        let detail = detail.and_then(|detail| detail.strip_suffix("ms\""));
        let words = detail.and_then(|detail| detail.split_once(' '));
        let is_proof = words.is_some_and(|(method, age)| {
            ["barrier", "verification-list", "informer-list"].contains(&method)
                && age.parse::<u32>().is_ok()
        });
        is_proof.then_some(()).ok_or(found)
    })
    .await;
    let namespace = path.strip_suffix("/configmaps").expect("ConfigMaps");
    let yaml = client.with("accept", "application/yaml");
    for (client, path, expected) in [
        (
            &client,
            format!("{path}/missing?resourceVersion=0"),
            "kubefan; hit",
        ),
        (
            &client,
            format!("{cached}&watch=1&timeoutSeconds=1"),
            "kubefan; hit",
        ),
        (
            &client,
            format!("{path}/there"),
            "kubefan; fwd=request; fwd-status=200; detail=consistent",
        ),
        (
            &client,
            format!("{path}/missing"),
            "kubefan; fwd=request; fwd-status=404; detail=consistent",
        ),
        (
            &client,
            format!("{cached}&limit=x"),
            "kubefan; fwd=request; fwd-status=400; detail=malformed",
        ),
        (
            &yaml,
            cached.clone(),
            "kubefan; fwd=vary-miss; fwd-status=200; detail=media_type",
        ),
        (
            &client,
            format!("{namespace}/status"),
            "kubefan; fwd=bypass; fwd-status=200; detail=subresource",
        ),
        (
            &client,
            format!("{namespace}/nothings"),
            "kubefan; fwd=uri-miss; fwd-status=404; detail=unknown",
        ),
        (
            &client,
            format!("{namespace}/podtemplates/none?resourceVersion=0"),
            "kubefan; fwd=miss; fwd-status=404; detail=not_cached",
        ),
    ] {
        assert_eq!(member(client, &path).await, expected, "{path}");
    }
    let object = json!({ "metadata": { "name": "new" } });
    let created = client.create(path, &object).await;
    let expected = "kubefan; fwd=method; fwd-status=201; detail=not_get";
    assert_eq!(members(&created), [expected], "{created}");
    // The API server confirms a document that kubefan remembers.
    let discovery = client.with("accept", DISCOVERY);
    eventually("a confirmed document", STEP, async || {
        let found = member(&discovery, "/apis").await;
        let expected = "kubefan; fwd=stale; fwd-status=304; detail=non_resource";
        (found == expected).then_some(()).ok_or(found)
    })
    .await;
    // kubefan refuses this itself.
    let refused = client.get("/api/v1/namespaces/a%2Fb").await;
    assert_eq!(refused.status, 400, "{refused}");
    assert!(members(&refused).is_empty(), "{refused}");
    assert!(refused.to_string().contains("kubefan"), "{refused}");
    // A write that the watch does not report, so the cache can't be proven.
    faulty.proxy.silence(true);
    faulty.create("unseen").await;
    let expected = "kubefan; fwd=stale; fwd-status=200; detail=unproven";
    assert_eq!(member(&client, path).await, expected);
    faulty.proxy.silence(false);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn requests_that_share_a_call_say_so() {
    let kubefan = Kubefan::start(shared(), &[]).await;
    let client = kubefan.client();
    eventually("a shared call", STEP, async || {
        let reads = (0..20).map(|_| member(&client, "/version"));
        let found = join_all(reads).await;
        let is_shared = |member: &String| member.contains("; collapsed; detail=non_resource");
        let is_any = found.iter().any(is_shared);
        is_any.then_some(()).ok_or(found.join(", "))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn members_of_several_kubefans_are_in_order_and_can_be_switched_off() {
    let server = shared();
    let path = format!(
        "/api/v1/namespaces/{}/configmaps",
        server.namespace("cache-status").await
    );
    let object = json!({ "metadata": { "name": "there" } });
    server.client().create(&path, &object).await.ok();
    let first = Kubefan::start(server, &[]).await;
    let config = first.kubeconfig(&User::Anonymous);
    let second = Kubefan::start_with(&config, &[]).await;
    let silent = Kubefan::start_with(&config, &["--cache-status=false"]).await;
    let object = format!("{path}/there?resourceVersion=0");
    let upper = first.client();
    eventually("the object in the first cache", STEP, async || {
        upper.get(&format!("{path}?resourceVersion=0")).await.ok();
        let found = member(&upper, &object).await;
        (found == "kubefan; hit").then_some(()).ok_or(found)
    })
    .await;
    // A GET starts no cache.
    let answer = second.client().get(&object).await.ok();
    let expected = [
        "kubefan; hit",
        "kubefan; fwd=miss; fwd-status=200; detail=not_cached",
    ];
    assert_eq!(members(&answer), expected, "{answer}");
    let answer = silent.client().get(&object).await.ok();
    assert_eq!(members(&answer), ["kubefan; hit"], "{answer}");
    let client = silent.client();
    eventually("a hit without a member", STEP, async || {
        let list = client.get(&path).await.ok();
        let is_proven = list.header("x-kubefan-proof").is_some();
        (is_proven && members(&list).is_empty())
            .then_some(())
            .ok_or(format!("{:?}", list.headers))
    })
    .await;
}
