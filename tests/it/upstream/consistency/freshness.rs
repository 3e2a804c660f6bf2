//! Answers are never older than the request allows, however late the upstream's events arrive.

use std::time::Duration;

use serde_json::json;

use crate::support::clients::client::Client;
use crate::support::clients::frames::{Event, Format, decode_list};
use crate::support::faulty::{FaultyUpstream, next};
use crate::support::poll::within;
use crate::support::programs::apiserver::{ApiServer, shared};
use crate::support::proxies::fault_proxy::RequestKind;

const FORMATS: [Format; 2] = [Format::Json, Format::Protobuf];

/// Creates an object and checks that reads of the most recent state, and of the version of the
/// write, show it; then deletes it and checks that reads do not show it.
async fn reads_its_writes(faulty: &FaultyUpstream, client: &Client, name: &str) {
    let written = faulty.create(name).await;
    let at_least = |version: &str| {
        let number = |text: &str| text.parse::<u64>().expect("a number");
        assert!(
            number(version) >= number(&written),
            "{name}: {version} is older than {written}"
        );
    };
    let (path, key) = (&faulty.path, format!("/{name}"));
    let object = format!("{path}/{name}");
    for format in FORMATS {
        for query in [
            "".to_owned(),
            "?limit=500".to_owned(),
            "?labelSelector=side%3Da".to_owned(),
            format!("?fieldSelector=metadata.name%3D{name}"),
            format!("?resourceVersion={written}"),
            format!("?resourceVersion={written}&resourceVersionMatch=Exact"),
        ] {
            let answer = client.get_as(&format!("{path}{query}"), format).await.ok();
            let list = decode_list(format, &answer.body);
            at_least(&list.resource_version);
            assert!(
                list.items.iter().any(|item| item.key.ends_with(&key)),
                "{name}{query} {format:?}"
            );
        }
        client.get_as(&object, format).await.ok();
        client
            .get_as(&format!("{object}?resourceVersion={written}"), format)
            .await
            .ok();
        let watch_list = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let query = format!("{path}?{watch_list}&allowWatchBookmarks=true");
        let mut stream = client.watch(&query, format).await.expect("a stream");
        let mut found = false;
        loop {
            match next(&mut stream).await {
                Event::Added(item) => found |= item.key.ends_with(&key),
                Event::Bookmark {
                    resource_version, ..
                } => break at_least(&resource_version),
                other => panic!("{other:?}"),
            }
        }
        assert!(found, "{name}: a watch-list in {format:?}");
    }
    faulty.direct.delete(&object).await.ok();
    assert_eq!(client.get(&object).await.status, 404, "{name} was deleted");
    let list = decode_list(Format::Json, &client.get(path).await.ok().body);
    assert!(
        !list.items.iter().any(|item| item.key.ends_with(&key)),
        "{name} was deleted"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn reads_follow_writes_even_when_events_are_late() {
    let server = shared();
    // A delay of 5 s is longer than kubefan waits for a proof, so it forwards those reads.
    for (delay, rounds) in [(0, 10), (200, 2), (5_000, 1)] {
        let faulty = FaultyUpstream::start(server).await;
        let others = server.namespace("others").await;
        let others = format!("/api/v1/namespaces/{others}/configmaps");
        faulty.create("there").await;
        let client = faulty.kubefan.client();
        for format in FORMATS {
            client
                .get_as(&format!("{}?resourceVersion=0", faulty.path), format)
                .await
                .ok();
        }
        faulty.proxy.delay_watches(Duration::from_millis(delay));
        // Events of another namespace precede those of the reads in one upstream watch.
        let other = json!({ "metadata": { "name": "other" } });
        server.client().create(&others, &other).await.ok();
        for number in 0..10 {
            let change = json!({ "data": { "n": number.to_string() } });
            let object = format!("{others}/other");
            server.client().merge(&object, &change).await.ok();
        }
        for round in 0..rounds {
            let name = format!("late-{delay}-{round}");
            let round = reads_its_writes(&faulty, &client, &name);
            within("a round", Duration::from_secs(100), round).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn cached_reads_cause_no_upstream_requests() {
    let server = shared();
    let faulty = filled(server).await;
    let client = faulty.kubefan.client();
    let before = cost(&faulty);
    for number in 0..20 {
        let selected = "resourceVersion=0&labelSelector=side%3Da";
        for path in [
            "?resourceVersion=0",
            &format!("?{selected}"),
            &format!("/object-{number}?resourceVersion=0"),
        ] {
            client.get(&format!("{}{path}", faulty.path)).await.ok();
        }
    }
    assert_eq!(cost(&faulty) - before, 0);
}

/// Starts a kubefan behind a fault proxy, and fills its cache with twenty objects.
async fn filled(server: &'static ApiServer) -> FaultyUpstream {
    let faulty = FaultyUpstream::start(server).await;
    for number in 0..20 {
        faulty.create(&format!("object-{number}")).await;
    }
    let cached = format!("{}?resourceVersion=0", faulty.path);
    faulty.kubefan.client().get(&cached).await.ok();
    faulty
}

fn cost(faulty: &FaultyUpstream) -> u32 {
    [RequestKind::List, RequestKind::Watch, RequestKind::Get]
        .map(|kind| faulty.proxy.count(kind, "/configmaps"))
        .iter()
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_first_list_and_its_watch_fit_together() {
    let server = shared();
    let faulty = FaultyUpstream::start(server).await;
    // All resources share etcd's revision, so these writes also advance the version of the
    // resources that are read.
    let writing = async {
        for number in 0.. {
            faulty.write(number).await;
        }
    };
    let reading = async {
        let client = faulty.kubefan.client();
        for resource in ["secrets", "services", "endpoints"] {
            let path = faulty.path.replace("configmaps", resource);
            let clients = (0..20).map(|index| list_then_watch(&client, &path, FORMATS[index % 2]));
            futures::future::join_all(clients.collect::<Vec<_>>()).await;
        }
    };
    tokio::select! {
        () = writing => {}
        () = reading => {}
    }
}

async fn list_then_watch(client: &Client, path: &str, format: Format) {
    let list = client.list(path, format).await;
    let from = list.resource_version;
    let watch = format!("{path}?watch=1&timeoutSeconds=1&resourceVersion={from}");
    let mut stream = client.watch(&watch, format).await.expect("a stream");
    let event = stream.next().await.expect("a clean end");
    assert_eq!(event, None, "{path} {format:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_future_version_is_too_large_only_after_the_wait() {
    let server = shared();
    let faulty = FaultyUpstream::start(server).await;
    let client = faulty.kubefan.client();
    let now: u64 = faulty.create("now").await.parse().expect("a number");
    client
        .get(&format!("{}?resourceVersion=0", faulty.path))
        .await
        .ok();
    let future = format!("{}?resourceVersion={}", faulty.path, now + 1_000_000);
    let began = tokio::time::Instant::now();
    let (through, direct) = tokio::join!(client.get(&future), faulty.direct.get(&future));
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert_eq!(
        (through.status.as_u16(), direct.status.as_u16()),
        (504, 504)
    );
    assert_eq!(through.header("retry-after"), direct.header("retry-after"));
    // A version that the cache reaches while the request waits is served.
    let read = async {
        let soon = client
            .get(&format!("{}?resourceVersion={}", faulty.path, now + 1))
            .await;
        let list = decode_list(Format::Json, &soon.ok().body);
        assert!(list.resource_version.parse::<u64>().expect("a number") > now);
    };
    tokio::join!(read, faulty.create("soon"));
}
