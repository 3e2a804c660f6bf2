//! A stalled client does not delay other clients, kubefan works with limited permissions, and a
//! resource that is deleted and defined again is served again.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::clients::client::Client;
use crate::support::clients::frames::{Event, Format, decode_list};
use crate::support::clients::watcher::{Start, Watcher};
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{READER, shared};
use crate::support::programs::kubefan::Kubefan;

const STEP: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_client_that_does_not_read_delays_no_other_client() {
    let server = shared();
    let kubefan = Kubefan::start(server, &[]).await;
    let namespace = server.namespace("slow").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let direct = server.client();
    let object = json!({ "metadata": { "name": "large" }, "data": { "text": "" } });
    direct.create(&path, &object).await.ok();
    let client = kubefan.client();
    let watch = format!("{path}?watch=1&resourceVersion=0");
    let mut stalled = Vec::new();
    for format in [Format::Json, Format::Protobuf] {
        for client in [
            client.clone(),
            Client::http2(
                kubefan.url(),
                crate::support::clients::connector::Connector::plain(),
            ),
        ] {
            stalled.push((
                format,
                client.watch(&watch, format).await.expect("a stream"),
            ));
        }
    }
    let reader = Watcher::start(&client, &path, "", Format::Json, Start::Zero);
    // Write more bytes than the buffers of the sockets can hold.
    for round in 0..150 {
        let text = format!("{round}").repeat(20_000);
        let change = json!({ "data": { "text": text } });
        direct.merge(&format!("{path}/large"), &change).await.ok();
    }
    let list = decode_list(Format::Json, &direct.get(&path).await.ok().body);
    reader.reaches("the reader", &list, STEP).await;
    assert_eq!(reader.counts().streams, 1);
    let last = &list.items[0].resource_version;
    for (format, mut stream) in stalled {
        let mut before = 0;
        loop {
            let event = within("what was left unread", STEP, stream.next()).await;
            match event
                .expect("a stream")
                .expect("more events, or an ERROR before the end")
            {
                Event::Added(item) | Event::Modified(item) => {
                    let version: u64 = item.resource_version.parse().expect("a number");
                    assert!(version > before, "{format:?}");
                    before = version;
                    if item.resource_version == *last {
                        break;
                    }
                }
                Event::Error { code, .. } => break assert_eq!(code, 410, "{format:?}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_kubefan_with_few_rights_serves_what_they_allow() {
    let server = shared();
    let (allowed, other) = (
        server.namespace("allowed").await,
        server.namespace("other").await,
    );
    server
        .allow_reader(&allowed, &["get", "list", "watch"], &["configmaps"])
        .await;
    let kubefan = Kubefan::start_with(&server.kubeconfig("reader"), &[]).await;
    let client = kubefan.client();
    let path = format!("/api/v1/namespaces/{allowed}/configmaps");
    let direct = server.anonymous().as_token(READER);
    for format in [Format::Json, Format::Protobuf] {
        let watcher = Watcher::start(&client, &path, "", format, Start::Zero);
        let name = format!("{format:?}").to_lowercase();
        let object = json!({ "metadata": { "name": name } });
        server.client().create(&path, &object).await.ok();
        let list = direct.list(&path, format).await;
        watcher.reaches("what is allowed", &list, STEP).await;
    }
    for path in [
        path.clone(),
        format!("{path}?resourceVersion=0"),
        format!("{path}/json"),
        format!("{path}?watch=1&timeoutSeconds=1"),
        format!("/api/v1/namespaces/{allowed}/secrets?resourceVersion=0"),
        format!("/api/v1/namespaces/{other}/configmaps?resourceVersion=0"),
        format!("/api/v1/namespaces/{other}/configmaps?watch=1&timeoutSeconds=1"),
        "/api/v1/configmaps?resourceVersion=0".to_owned(),
        "/api/v1/configmaps?watch=1&resourceVersion=0&timeoutSeconds=1".to_owned(),
        "/api/v1/configmaps".to_owned(),
        "/api/v1/nodes".to_owned(),
    ] {
        let (wanted, got) = (direct.get(&path).await, client.get(&path).await);
        assert_eq!(got.status, wanted.status, "{path}: {got}");
        if wanted.status == 403 {
            assert_eq!(got.body, wanted.body, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_custom_resource_comes_and_goes() {
    let server = shared();
    let kubefan = Kubefan::start(server, &[]).await;
    let (direct, client) = (server.client(), kubefan.client());
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let path = "/apis/test.kubefan.io/v1/passings";
    let cached = format!("{path}?resourceVersion=0");
    assert_eq!(client.get(path).await.status, 404);
    for life in 0..2 {
        direct.create(definitions, &passing_definition()).await.ok();
        eventually("the resource", STEP, async || {
            client.get(path).await.is(200)
        })
        .await;
        let object = json!({
            "apiVersion": "test.kubefan.io/v1", "kind": "Passing",
            "metadata": { "name": format!("life-{life}") },
        });
        direct.create(path, &object).await.ok();
        let watcher = Watcher::start(&client, path, "", Format::Json, Start::Zero);
        let list = direct.list(path, Format::Json).await;
        assert_eq!(list.items.len(), 1);
        watcher
            .reaches("the object of this life", &list, STEP)
            .await;
        direct
            .delete(&format!("{definitions}/passings.test.kubefan.io"))
            .await
            .ok();
        eventually("no resource", STEP, async || direct.get(path).await.is(404)).await;
        eventually("no resource through kubefan", STEP, async || {
            client.get(path).await.is(404)
        })
        .await;
        eventually("no cache", STEP, async || client.get(&cached).await.is(404)).await;
    }
}

fn passing_definition() -> Value {
    json!({
        "metadata": { "name": "passings.test.kubefan.io" },
        "spec": {
            "group": "test.kubefan.io", "scope": "Cluster",
            "names": { "plural": "passings", "singular": "passing", "kind": "Passing" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } },
            }],
        },
    })
}
