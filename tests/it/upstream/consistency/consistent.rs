//! Reads of the most recent state that kubefan proves: they share upstream requests and are never
//! stale.

use futures::future::join_all;
use serde_json::json;

use crate::support::clients::client::{Answer, Client};
use crate::support::clients::frames::{Event, Format};
use crate::support::faulty::{FaultyUpstream, RECOVERY, next};
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::shared;
use crate::support::proxies::fault_proxy::RequestKind;

const FORMATS: [Format; 2] = [Format::Json, Format::Protobuf];
const PROOF: &str = "x-kubefan-proof";
const WATCH_LIST: &str =
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

async fn filled(faulty: &FaultyUpstream, objects: usize) {
    for number in 0..objects {
        faulty.create(&format!("object-{number}")).await;
    }
    let client = faulty.kubefan.client();
    for format in FORMATS {
        let cached = format!("{}?resourceVersion=0", faulty.path);
        client.get_as(&cached, format).await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn concurrent_readers_share_upstream_requests() {
    let server = shared();
    let faulty = FaultyUpstream::start(server).await;
    filled(&faulty, 30).await;
    let client = faulty.kubefan.client();
    let count = |kind| faulty.proxy.count(kind, "/configmaps");

    let before = count(RequestKind::List);
    let lists = (0..300).map(|number| {
        let selector = format!("labelSelector=side%20in%20(a,x{number})");
        let path = format!("{}?{selector}", faulty.path);
        let client = &client;
        async move { client.get(&path).await.ok() }
    });
    for answer in join_all(lists).await {
        assert!(
            answer.header(PROOF).is_some(),
            "a LIST was forwarded: {answer}"
        );
        assert_eq!(answer.json()["items"].as_array().map(Vec::len), Some(30));
    }
    let sent = count(RequestKind::List) - before;
    // LISTs share an upstream request only if they arrive before it is sent, and the 300
    // connections are opened over some time.
    assert!(
        (1..=150).contains(&sent),
        "300 lists sent {sent} LISTs upstream"
    );

    let before = (count(RequestKind::List), count(RequestKind::Watch));
    let watches = (0..100).map(|number| synced(&client, &faulty.path, FORMATS[number % 2]));
    for objects in join_all(watches).await {
        assert_eq!(objects, 30);
    }
    let sent = count(RequestKind::List) - before.0;
    assert!(
        (1..=50).contains(&sent),
        "100 watch lists sent {sent} LISTs upstream"
    );
    assert_eq!(count(RequestKind::Watch), before.1);

    let before = count(RequestKind::Get);
    let object = format!("{}/object-7", faulty.path);
    let gets = (0..300).map(|_| client.get(&object));
    for answer in join_all(gets).await {
        assert_eq!(answer.ok().json()["metadata"]["name"], "object-7");
    }
    let sent = count(RequestKind::Get) - before;
    assert!(
        (1..=150).contains(&sent),
        "300 GETs sent {sent} GETs upstream"
    );
}

/// Opens a watch list of the most recent state, and returns the number of its initial objects.
async fn synced(client: &Client, path: &str, format: Format) -> usize {
    let path = format!("{path}?{WATCH_LIST}");
    let stream = client.watch(&path, format);
    let mut stream = within("a stream", RECOVERY, stream)
        .await
        .expect("a stream");
    let mut objects = 0;
    loop {
        match next(&mut stream).await {
            Event::Added(_) => objects += 1,
            Event::Bookmark { .. } => return objects,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn unproven_reads_are_forwarded_a_few_concurrently() {
    let server = shared();
    let faulty = FaultyUpstream::start(server).await;
    filled(&faulty, 3).await;
    let client = faulty.kubefan.client();
    faulty.proxy.silence(true);
    faulty.create("unheard-of").await;
    let lists = (0..40).map(|number| {
        let path = format!("{}?labelSelector=side%20in%20(a,x{number})", faulty.path);
        let client = &client;
        async move { client.get(&path).await }
    });
    let answers: Vec<Answer> = within("lists", RECOVERY, join_all(lists)).await;
    let (forwarded, refused): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.status == 200);
    assert!(!forwarded.is_empty() && !refused.is_empty(), "{answers:?}");
    for answer in forwarded {
        assert_eq!(answer.header(PROOF), None);
        assert!(answer.to_string().contains("unheard-of"), "{answer}");
    }
    for answer in refused {
        assert_eq!(answer.status, 429, "{answer}");
        assert!(matches!(answer.retry_seconds(), Some(1..=5)), "{answer}");
        assert_eq!(answer.json()["reason"], "TooManyRequests");
    }
    // A watch gets the error in its stream, as from an API server with a late watch cache.
    let watch = client.get(&format!("{}?{WATCH_LIST}", faulty.path)).await;
    assert_eq!(watch.status, 200);
    let error = watch.json();
    assert_eq!(
        (&error["type"], &error["object"]["code"]),
        (&json!("ERROR"), &json!(504))
    );

    faulty.proxy.silence(false);
    eventually("proofs again", RECOVERY, async || {
        let answer = client.get(&faulty.path).await;
        match answer.header(PROOF) {
            Some(_) if answer.to_string().contains("unheard-of") => Ok(()),
            _ => Err(answer.to_string()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_freshness_policy_avoids_upstream_proofs() {
    let server = shared();
    let flags = [
        "--freshness",
        "any,configmaps=bounded:1h",
        "--freshness",
        "secrets=bounded:1ms",
    ];
    let faulty = FaultyUpstream::start_with(server, &flags).await;
    filled(&faulty, 2).await;
    let client = faulty.kubefan.client();
    let proof = async |resource: &str, object: &str| {
        let path = faulty.path.replace("configmaps", resource);
        let answer = client.get(&format!("{path}{object}")).await;
        answer.header(PROOF).unwrap_or("none").to_owned()
    };
    assert_eq!(proof("services", "").await, "any");
    assert_eq!(proof("services", "").await, "any");
    assert_ne!(proof("secrets", "").await, "any");
    assert_ne!(proof("secrets", "").await, "recent", "1 ms is over");

    // The object has not been proven within the hour, so the GET is forwarded.
    assert_eq!(proof("configmaps", "/object-0").await, "none");
    assert!(["barrier", "verification-list"].contains(&proof("configmaps", "").await.as_str()));
    faulty.proxy.silence(true);
    faulty.create("unheard-of").await;
    let lists = faulty.proxy.count(RequestKind::List, "/configmaps");
    let before = client.get(&faulty.path).await.ok();
    assert_eq!(before.header(PROOF), Some("recent"));
    assert_eq!(before.json()["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(proof("configmaps", "/object-0").await, "recent");
    assert_eq!(
        client
            .get(&format!("{}/unheard-of", faulty.path))
            .await
            .status,
        404
    );
    assert_eq!(synced(&client, &faulty.path, Format::Json).await, 2);
    assert_eq!(faulty.proxy.count(RequestKind::List, "/configmaps"), lists);
}
