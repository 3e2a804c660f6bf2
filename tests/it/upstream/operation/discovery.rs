//! What kubefan itself requests to know the resources.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::support::faulty::FaultyUpstream;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::shared;
use crate::support::proxies::fault_proxy::RequestKind;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SPROCKETS: &str = "/apis/test.kubefan.io/v1/namespaces/default/sprockets";
const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_new_definition_is_learnt_without_listing_all_again() {
    let server = shared();
    let faulty = FaultyUpstream::start(server).await;
    let (direct, client) = (&faulty.direct, faulty.kubefan.client());
    let definition = json!({
        "metadata": { "name": "sprockets.test.kubefan.io" },
        "spec": {
            "group": "test.kubefan.io", "scope": "Namespaced",
            "names": { "plural": "sprockets", "singular": "sprocket", "kind": "Sprocket" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "selectableFields": [{ "jsonPath": ".spec.teeth" }],
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "spec": { "type": "object", "properties": {
                        "teeth": { "type": "integer" },
                    } } },
                } },
            }],
        },
    });
    let lists = || {
        let proxy = &faulty.proxy;
        proxy.count(RequestKind::List, "/customresourcedefinitions")
    };
    let fetches = || faulty.proxy.count(RequestKind::Other, "/apis");
    let before = (lists(), fetches());
    direct.create(CRDS, &definition).await.ok();
    // A selector on the definition's selectable field shows that kubefan has read the definition.
    let selected = format!("{SPROCKETS}?fieldSelector=spec.teeth%3D7");
    eventually("sprockets from the cache", SOON, async || {
        let answer = client.get(&selected).await;
        let proof = answer.header("x-kubefan-proof").map(str::to_owned);
        proof.ok_or_else(|| answer.to_string())
    })
    .await;
    // After a change, the documents are fetched four times.
    eventually("four fetches", SOON, async || {
        let fetched = fetches() - before.1;
        (fetched >= 4).then_some(()).ok_or(fetched)
    })
    .await;
    // Other tests define resources too, and their documents may once arrive before the definition.
    let listed = lists() - before.0;
    assert!(listed <= 2, "the definitions were listed {listed} times");
    direct
        .delete(&format!("{CRDS}/sprockets.test.kubefan.io"))
        .await
        .ok();
    eventually("no sprockets", SOON, async || {
        client.get(SPROCKETS).await.is(404)
    })
    .await;
    assert!(!faulty.kubefan.log().contains("cannot decode"));
}

/// Creates definitions one after the other while kubefan serves them, and counts
/// kubefan's lists and fetches for them.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn many_new_definitions_cost_few_lists_and_fetches() {
    const DEFINITIONS: u32 = 10;
    /// Shortest time between two fetches of discovery, in milliseconds.
    const SPACING: u128 = 300;
    let server = shared();
    let faulty = FaultyUpstream::start(server).await;
    let (direct, client) = (&faulty.direct, faulty.kubefan.client());
    let schema = json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "description": "long ".repeat(2_000),
    });
    let definition = |number| {
        let kind = format!("Ratchet{number}");
        let singular = kind.to_lowercase();
        let plural = format!("{singular}s");
        let definition = json!({
            "metadata": { "name": format!("{plural}.many.kubefan.io") },
            "spec": {
                "group": "many.kubefan.io", "scope": "Namespaced",
                "names": { "plural": plural, "singular": singular, "kind": kind },
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": schema },
                }],
            },
        });
        (plural, definition)
    };
    let count = |kind, path| faulty.proxy.count(kind, path);
    let counted = || {
        [
            count(RequestKind::List, "/customresourcedefinitions"),
            count(RequestKind::List, "/apiservices"),
            count(RequestKind::Other, "/apis"),
        ]
    };
    let proofs = || count(RequestKind::Get, "/customresourcedefinitions");
    let (before, proofs_before, start) = (counted(), proofs(), Instant::now());
    let reads = AtomicU32::new(0);
    for number in 0..DEFINITIONS {
        let (_, definition) = definition(number);
        direct.create(CRDS, &definition).await.ok();
    }
    for number in 0..DEFINITIONS {
        let (plural, _) = definition(number);
        let path = format!("/apis/many.kubefan.io/v1/namespaces/default/{plural}");
        eventually("the resource from the cache", SOON, async || {
            reads.fetch_add(1, Ordering::Relaxed);
            let answer = client.get(&path).await;
            let proof = answer.header("x-kubefan-proof").map(str::to_owned);
            proof.ok_or_else(|| answer.to_string())
        })
        .await;
    }
    let (after, took) = (counted(), start.elapsed().as_millis());
    let [definitions, services, fetches] = std::array::from_fn(|kind| after[kind] - before[kind]);
    let (proofs, reads) = (proofs() - proofs_before, reads.into_inner());
    // A proof is repeated if the cache of the definitions was listed again in the meantime.
    assert!(
        proofs <= 2 * reads,
        "{proofs} proofs of a definition for {reads} reads"
    );
    // Other tests define resources too, and their documents may arrive before the definition.
    assert!(
        definitions <= 4 || definitions < fetches,
        "the definitions were listed {definitions} times in {fetches} fetches"
    );
    // The definitions are few and short, so they are listed once for each fetch.
    assert!(
        services <= fetches,
        "the API services were listed {services} times in {fetches} fetches"
    );
    let most = took / SPACING + 2;
    assert!(
        fetches as u128 <= most,
        "{fetches} fetches in {took} ms, at most {most} were expected"
    );
    for number in 0..DEFINITIONS {
        let (plural, _) = definition(number);
        let path = format!("{CRDS}/{plural}.many.kubefan.io");
        direct.delete(&path).await.ok();
    }
}
