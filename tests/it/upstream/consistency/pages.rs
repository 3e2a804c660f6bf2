//! Pages of a list, when only a part of the cache is proven: all pages come from the cache.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};

use crate::support::clients::client::Client;
use crate::support::faulty::{FaultyUpstream, RECOVERY};
use crate::support::poll::eventually;
use crate::support::programs::apiserver::shared;
use crate::support::proxies::fault_proxy::RequestKind;

const TABLE: HeaderValue = HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io");
const OBJECTS: usize = 1_200;

/// Reads a page of a Table. Returns the page, and whether the answer has a proof by kubefan.
async fn page(client: &Client, path: &str) -> (Value, bool) {
    let accept = HeaderMap::from_iter([(ACCEPT, TABLE)]);
    let answer = client.send(Method::GET, path, &accept, Bytes::new());
    let answer = answer.await.ok();
    let is_proven = answer.header("x-kubefan-proof").is_some();
    (answer.json(), is_proven)
}

/// Changes an object of another resource, so that the version of the API server grows.
async fn renew(client: &Client, leases: &str) {
    let spec = json!({ "spec": { "holderIdentity": rand::random::<u32>().to_string() } });
    client.merge(&format!("{leases}/lease"), &spec).await.ok();
}

/// Reads the pages of `kubectl get configmaps -n NAMESPACE`, while no ConfigMap changes and other
/// resources do. The version of the namespace's proof is above the version of the cache.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn later_pages_of_one_namespace_are_not_forwarded() {
    let server = shared();
    let faulty = FaultyUpstream::start(server).await;
    let names = stream::iter(0..OBJECTS).map(|number| format!("object-{number}"));
    names
        .for_each_concurrent(16, async |name| drop(faulty.create(&name).await))
        .await;
    let namespace = faulty.path.split('/').nth(4).expect("a namespace");
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let lease = json!({ "metadata": { "name": "lease" } });
    faulty.direct.create(&leases, &lease).await.ok();
    let client = faulty.kubefan.client();
    let first = format!("{}?limit=500", faulty.path);
    eventually("a Table from the cache", RECOVERY, async || {
        let (_, is_proven) = page(&client, &first).await;
        is_proven.then_some(()).ok_or("forwarded")
    })
    .await;
    let lists = || faulty.proxy.count(RequestKind::List, "/configmaps");
    for selector in ["", "&labelSelector=side%3Da", ""] {
        let before = lists();
        let mut found = BTreeSet::new();
        let mut versions = BTreeSet::new();
        let mut token = String::new();
        for expected in [500, 500, 200] {
            renew(&faulty.direct, &leases).await;
            let (table, _) = page(&client, &format!("{first}{selector}&continue={token}")).await;
            let rows = table["rows"].as_array().expect("rows");
            assert_eq!(rows.len(), expected, "{selector}");
            found.extend(rows.iter().map(|row| row["cells"][0].to_string()));
            versions.insert(table["metadata"]["resourceVersion"].to_string());
            let next = table["metadata"]["continue"].as_str().unwrap_or_default();
            token = next.to_owned();
        }
        assert_eq!((token.as_str(), found.len()), ("", OBJECTS), "{selector}");
        assert_eq!(versions.len(), 1, "{versions:?}");
        // A barrier and a list of metadata.
        let sent = lists() - before;
        assert!(sent <= 2, "{selector}: {sent} LISTs");
    }
}
