//! With `--strip-managed-fields`, answers from caches are those of the API server without the
//! field, and writes preserve the field.

use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};

use crate::support::clients::client::Client;
use crate::support::clients::frames::{Event, Format, Item};
use crate::support::outcomes::request_count;
use crate::support::poll::within;
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubefan::Kubefan;

const STEP: Duration = Duration::from_secs(60);

/// Removes the field everywhere, and what differs between two lists.
fn without(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("managedFields");
            members.values_mut().for_each(without);
        }
        Value::Array(elements) => elements.iter_mut().for_each(without),
        _ => {}
    }
}

async fn get(client: &Client, path: &str, accept: &'static str) -> (Value, usize) {
    let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
    let sent = client.try_send(Method::GET, path, &headers, bytes::Bytes::new());
    let answer = sent.await.expect("an answer").ok();
    let text = String::from_utf8_lossy(&answer.body);
    let mut body = answer.json();
    if body.get("items").is_some() || body.get("rows").is_some() {
        body["metadata"] = json!(null);
    }
    (body, text.matches("managedFields").count())
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn answers_from_caches_lack_managed_fields_and_nothing_else() {
    let server = shared();
    let direct = server.client();
    let namespace = server.namespace("managed-fields").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let object =
        |name: &str, value: &str| json!({ "metadata": { "name": name }, "data": { "a": value } });
    for name in ["a", "b"] {
        direct.create(&path, &object(name, "1")).await.ok();
    }
    let kubefan = Kubefan::start(server, &["-r", "configmaps", "--strip-managed-fields"]).await;
    let client = kubefan.client();
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    for (path, accept) in [
        (format!("{path}?resourceVersion=0"), "application/json"),
        (format!("{path}?labelSelector=!x"), "application/json"),
        (format!("{path}/a?resourceVersion=0"), "application/json"),
        (format!("{path}?resourceVersion=0"), metadata),
    ] {
        let (mut expected, fields) = get(&direct, &path, accept).await;
        assert!(fields > 0, "{path} {accept}");
        without(&mut expected);
        assert_eq!(
            get(&client, &path, accept).await,
            (expected, 0),
            "{path} {accept}"
        );
    }
    let metrics = kubefan.metrics().await;
    assert_eq!(
        request_count(&metrics, "forwarded", "list"),
        0.0,
        "{metrics}"
    );

    // Events, including deletions, in both formats.
    let list = direct.list(&path, Format::Json).await;
    let watch = format!("{path}?watch=1&resourceVersion={}", list.resource_version);
    let open =
        async |client: &Client, format| client.watch(&watch, format).await.expect("a stream");
    let mut streams = Vec::new();
    for format in [Format::Json, Format::Protobuf] {
        streams.push((open(&direct, format).await, open(&client, format).await));
    }
    direct
        .merge(&format!("{path}/a"), &json!({ "data": { "a": "2" } }))
        .await
        .ok();
    direct.delete(&format!("{path}/b")).await.ok();
    for (direct, through) in &mut streams {
        for _ in 0..2 {
            let expected = within(&watch, STEP, direct.next()).await.expect("a stream");
            let found = within(&watch, STEP, through.next())
                .await
                .expect("a stream");
            let (expected, found) = (changed(expected), changed(found));
            assert_eq!(
                (&found.key, &found.uid, &found.resource_version),
                (&expected.key, &expected.uid, &expected.resource_version)
            );
            let count = |item: &Item| memchr::memmem::find_iter(&item.body, "f:data").count();
            assert_eq!(
                (count(&expected) > 0, count(&found)),
                (true, 0),
                "{found:?}"
            );
            if let Ok(mut expected) = serde_json::from_slice::<Value>(&expected.body) {
                without(&mut expected);
                let found: Value = serde_json::from_slice(&found.body).expect("JSON");
                assert_eq!(found, expected);
            }
        }
    }
    // A client that writes what it has read takes no fields away.
    let (mut read, _) = get(
        &client,
        &format!("{path}/a?resourceVersion=0"),
        "application/json",
    )
    .await;
    read["data"]["c"] = json!("3");
    client.replace(&format!("{path}/a"), &read).await.ok();
    let (stored, fields) = get(&direct, &format!("{path}/a"), "application/json").await;
    assert_eq!(
        (stored["data"]["c"].as_str(), fields),
        (Some("3"), 1),
        "{stored}"
    );
    let managers = stored["metadata"]["managedFields"].as_array().map(Vec::len);
    assert!(managers > Some(0), "{stored}");
}

fn changed(event: Option<Event>) -> Item {
    match event {
        Some(Event::Added(item) | Event::Modified(item) | Event::Deleted(item)) => item,
        other => panic!("{other:?}"),
    }
}
