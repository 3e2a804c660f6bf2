//! Lists and watches with a `shardSelector`, in front of an API server that ignores the parameter:
//! no client may get objects of other shards. The differential suite compares the answers with
//! those of an API server that supports it.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::json;

use crate::support::clients::client::{Answer, Client};
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::{Event, Format};
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{READER, shared};
use crate::support::programs::kubefan::Kubefan;

const STEP: Duration = Duration::from_secs(30);
const SERVE: &str = "--shard-selector=serve";
const OBJECTS: usize = 40;
/// The bounds of four shards, each a quarter of all hashes.
const BOUNDS: [&str; 5] = [
    "0x0000000000000000",
    "0x4000000000000000",
    "0x8000000000000000",
    "0xc000000000000000",
    "0x10000000000000000",
];

/// Returns the parameter for each quarter of the hashes of uids.
pub(crate) fn quarters() -> Vec<String> {
    let bounds = BOUNDS.windows(2);
    let quarter = |bounds: &[&str]| {
        let [start, end] = [bounds[0], bounds[1]];
        format!("shardSelector=shardRange(object.metadata.uid,'{start}','{end}')")
    };
    bounds.map(quarter).collect()
}

async fn send(client: &Client, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().expect("a name");
        map.insert(name, value.parse().expect("a value"));
    }
    let answer = client.send(method, path, &map, Bytes::new());
    within(path, STEP, answer).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn four_shards_have_each_object_once() {
    let server = shared();
    let namespace = server.namespace("shards").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let kubefan = Kubefan::start(server, &[SERVE]).await;
    let forwards = Kubefan::start(server, &[]).await;
    let (client, direct, admin) = (kubefan.client(), forwards.client(), server.client());
    for number in 0..OBJECTS {
        let object = json!({ "metadata": { "name": format!("o-{number}") } });
        admin.create(&path, &object).await.ok();
    }
    for format in [Format::Json, Format::Protobuf] {
        let all = admin.list(&path, format).await.items;
        let names = || all.iter().map(|item| item.key.clone());
        let (mut listed, mut watched) = (BTreeSet::new(), BTreeSet::new());
        for quarter in quarters() {
            let list = client.list(&format!("{path}?{quarter}"), format).await;
            assert!(list.items.len() < OBJECTS, "{quarter}");
            listed.extend(list.items.iter().map(|item| item.key.clone()));
            let initial = format!(
                "{path}?{quarter}&watch=1&sendInitialEvents=true&allowWatchBookmarks=true&\
                 resourceVersionMatch=NotOlderThan"
            );
            let mut stream = client.watch(&initial, format).await.expect("a stream");
            let mut added = Vec::new();
            loop {
                let event = within("an event", STEP, stream.next()).await;
                match event.expect("a stream").expect("an event") {
                    Event::Added(item) => added.push(item.key),
                    Event::Bookmark { .. } => break,
                    other => panic!("{other:?}"),
                }
            }
            let keys = list.items.iter().map(|item| &item.key);
            assert!(keys.eq(&added), "{quarter}: {added:?}");
            watched.extend(added);
            // By default the API server answers, and this API server ignores the selector.
            let list = direct.list(&format!("{path}?{quarter}"), format).await;
            assert_eq!(list.items.len(), OBJECTS, "{quarter}");
        }
        assert_eq!(listed, names().collect());
        assert_eq!(watched, listed);
    }
    let metrics = forwards.metrics().await;
    assert!(metrics.contains("reason=\"shard_selector\""), "{metrics}");
}

/// Requests that no cache can answer are refused, and only refusals of the API server are relayed.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn no_answer_has_the_objects_of_other_shards() {
    let server = shared();
    let namespace = server.namespace("unserved-shards").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let kubefan = Kubefan::start(server, &[SERVE]).await;
    let (client, admin) = (kubefan.client(), server.client());
    let object = json!({ "metadata": { "name": "secret-of-another-shard" } });
    admin.create(&path, &object).await.ok();
    let quarter = &quarters()[0];
    // The cache is filled, so its first version is below that of the next token.
    client.get(&format!("{path}?resourceVersion=0")).await.ok();
    let token = json!({ "v": "meta.k8s.io/v1", "rv": 1, "start": "a\0" });
    let token = URL_SAFE_NO_PAD.encode(token.to_string());
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let yaml = ("accept", "application/yaml");
    let v1beta1 = (
        "accept",
        "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
    );
    let wrong = ("authorization", "Bearer wrong");
    let right = format!("Bearer {}", crate::support::programs::apiserver::ADMIN);
    let right = ("authorization", right.as_str());
    for (target, header, status) in [
        // The API server would answer these with all objects.
        (format!("{path}?{quarter}"), Some(yaml), 429),
        (format!("{path}?{quarter}"), Some(v1beta1), 429),
        (format!("{path}?{quarter}"), Some(right), 429),
        (format!("{path}?{quarter}&watch=1"), Some(right), 429),
        (format!("/api/v1/componentstatuses?{quarter}"), None, 429),
        (
            format!("/api/v1/watch/namespaces/{namespace}/configmaps?{quarter}"),
            None,
            429,
        ),
        (
            format!("{path}?{quarter}&resourceVersion=999999999&resourceVersionMatch=NotOlderThan"),
            None,
            429,
        ),
        (
            format!("{path}?{quarter}&watch=1&{initial}&resourceVersion=999999999"),
            None,
            429,
        ),
        (format!("{path}?{quarter}&continue={token}"), None, 410),
        (
            format!("{path}?{quarter}&resourceVersion=1&resourceVersionMatch=Exact"),
            None,
            410,
        ),
        // These are the API server's refusals.
        (format!("{path}?{quarter}"), Some(wrong), 401),
        (format!("{path}?{quarter}&limit=x"), None, 400),
        (format!("/api/v1/unknown?{quarter}"), None, 404),
        (
            format!("{path}?{quarter}"),
            Some(("accept", "text/html")),
            406,
        ),
        // CEL that the API server reads, and kubefan does not.
        (
            format!("{path}?{}", quarter.replace("'0x", "'%5Cx30x")),
            None,
            429,
        ),
        (format!("{path}?shardSelector=x"), None, 429),
    ] {
        let headers: Vec<_> = header.into_iter().collect();
        let answer = send(&client, Method::GET, &target, &headers).await;
        assert_eq!(answer.status, status, "{target} {headers:?}: {answer}");
        // The answer asks the client to wait only if that can help.
        let can_wait = target.contains("resourceVersion=999999999");
        let seconds = answer.retry_seconds();
        assert_eq!(seconds.is_some(), can_wait, "{target}: {answer}");
        assert!((1..=5).contains(&seconds.unwrap_or(1)), "{seconds:?}");
        assert!(!answer.to_string().contains("another-shard"), "{answer}");
    }
    let deletion = format!("{path}?{quarter}");
    let answer = send(&client, Method::DELETE, &deletion, &[]).await;
    assert_eq!(answer.status, 400, "{answer}");
    admin
        .get(&format!("{path}/secret-of-another-shard"))
        .await
        .ok();
    let answer = send(&client, Method::DELETE, &path, &[]).await;
    assert_eq!(answer.status, 200, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_caller_without_the_right_gets_the_403_of_the_api_server() {
    let server = shared();
    let namespace = server.namespace("forbidden-shards").await;
    let flags = ["--tls-self-signed", SERVE];
    let kubefan = Kubefan::start(server, &flags).await;
    let authority = kubefan.authority().expect("kubefan serves TLS");
    let connector = Connector::tls(&authority, None, &["http/1.1"]);
    let reader = Client::new(kubefan.url(), connector).as_token(READER);
    let list = |resource: &str| {
        let quarter = &quarters()[0];
        format!("/api/v1/namespaces/{namespace}/{resource}?{quarter}")
    };
    let invalid = |resource: &str| {
        format!("/api/v1/namespaces/{namespace}/{resource}?shardSelector=object()")
    };
    for path in [
        list("configmaps"),
        list("configmaps") + "&watch=1",
        invalid("configmaps"),
    ] {
        let answer = send(&reader, Method::GET, &path, &[]).await;
        assert_eq!(answer.status, 403, "{path}: {answer}");
    }
    server
        .allow_reader(&namespace, &["list", "watch"], &["services"])
        .await;
    // While kubefan has no review of the new right, it can only ask its client to try again.
    let answer = eventually("the list of services", STEP, async || {
        let answer = send(&reader, Method::GET, &list("services"), &[]).await;
        match answer.status.as_u16() {
            429 => Err(answer),
            _ => Ok(answer),
        }
    })
    .await;
    assert_eq!(answer.status, 200, "{answer}");
    let metadata = &answer.json()["metadata"];
    assert!(metadata["shardInfo"]["selector"].is_string(), "{answer}");
    let answer = send(&reader, Method::GET, &invalid("services"), &[]).await;
    assert_eq!(answer.status, 500, "{answer}");
}
