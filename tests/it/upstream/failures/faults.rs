//! Faults of the upstream watch that clients must not notice: broken connections, expired watches,
//! and 429. Also the start of watches at a block and at a hole.

use std::time::Duration;

use serde_json::json;

use crate::support::clients::frames::{Event, Format, decode_list};
use crate::support::clients::watcher::{Start, Watcher};
use crate::support::faulty::{FaultyUpstream, next, next_change, open};
use crate::support::poll::eventually;
use crate::support::programs::apiserver::shared;
use crate::support::proxies::fault_proxy::{CutPoint, RequestKind};

const RECOVERY: Duration = Duration::from_secs(60);

/// A watcher with its wire format and its selector.
type Client = (Format, &'static str, Watcher);

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn fifty_cuts_are_not_noticed() {
    let server = shared();
    let faulty = FaultyUpstream::start(server).await;
    for number in 0..17 {
        faulty.create(&format!("object-{number}")).await;
    }
    faulty.create("always").await;
    let clients = start_clients(&faulty).await;
    for (_, _, watcher) in &clients {
        sees_a_live_event(&faulty, watcher).await;
    }
    for cut in 0..50 {
        if cut % 4 == 3 {
            let (_, _, watcher) = &clients[cut / 4];
            sees_a_live_event(&faulty, watcher).await;
            watcher.cut();
        }
        cut_upstream(&faulty, cut).await;
    }
    assert!(faulty.proxy.count(RequestKind::List, "/configmaps") >= 2 + 16);
    for (format, selector, watcher) in &clients {
        let what = format!("{format:?} {selector:?}");
        let list = faulty
            .direct
            .list(&format!("{}?{selector}", faulty.path), *format)
            .await;
        watcher.reaches(&what, &list, RECOVERY).await;
        let fold = watcher.fold();
        assert_eq!(fold.errors, vec![], "{what}");
        assert_eq!(fold.faults, Vec::<String>::new(), "{what}");
        assert_eq!(watcher.counts().relists, 0, "{what}");
    }
}

async fn start_clients(faulty: &FaultyUpstream) -> Vec<Client> {
    let client = faulty.kubefan.client();
    let mut clients = Vec::new();
    for format in [Format::Json, Format::Protobuf] {
        // Fill the cache before its clients start.
        client
            .list(&format!("{}?resourceVersion=0", faulty.path), format)
            .await;
        for selector in [
            "",
            "labelSelector=side%3Da",
            "fieldSelector=metadata.name%3Dobject-3",
        ] {
            for from in [Start::Zero, Start::List] {
                let watcher = Watcher::start(&client, &faulty.path, selector, format, from);
                watcher.synced().await;
                clients.push((format, selector, watcher));
            }
        }
    }
    clients
}

/// Breaks kubefan's upstream watch between writes, and waits for a new watch. At each third call,
/// the next watch is answered with 410.
async fn cut_upstream(faulty: &FaultyUpstream, cut: usize) {
    for number in 0..3 {
        faulty
            .write(u32::try_from(cut * 3 + number).expect("a small number"))
            .await;
    }
    if cut % 3 == 2 {
        faulty.proxy.expire(RequestKind::Watch, "/configmaps", 1);
    }
    let before = faulty.proxy.count(RequestKind::Watch, "/configmaps");
    let place = if cut.is_multiple_of(2) {
        CutPoint::Now
    } else {
        CutPoint::Within(cut * 7 % 300)
    };
    faulty.proxy.cut_watches(place);
    // This write always changes an object, so the watch certainly has bytes that the cut can hit.
    let mark = json!({ "data": { "cut": cut.to_string() } });
    faulty
        .direct
        .merge(&format!("{}/always", faulty.path), &mark)
        .await
        .ok();
    eventually("kubefan watches again", RECOVERY, async || {
        let now = faulty.proxy.count(RequestKind::Watch, "/configmaps");
        if now > before {
            Ok(())
        } else {
            Err(now.to_string())
        }
    })
    .await;
}

/// Waits until a watcher has seen an event that kubefan received from its own upstream watch.
/// Versions of a list or of a relist's difference may be inside a hole, where a watch cannot start.
async fn sees_a_live_event(faulty: &FaultyUpstream, watcher: &Watcher) {
    // The first change may be part of a relist's difference; the second comes after that relist.
    for _ in 0..2 {
        let version: u64 = faulty.touch("object-3").await.parse().expect("a number");
        eventually("the live event", RECOVERY, async || {
            let seen: u64 = watcher.fold().resource_version().parse().unwrap_or(0);
            if seen >= version {
                Ok(())
            } else {
                Err(format!("{seen} is before {version}"))
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_client_cut_inside_a_block_of_deletions_misses_none() {
    let server = shared();
    for format in [Format::Json, Format::Protobuf] {
        deletions_case(&FaultyUpstream::start(server).await, format).await;
    }
}

async fn deletions_case(faulty: &FaultyUpstream, format: Format) {
    for name in ["a", "b", "c", "stays"] {
        faulty.create(name).await;
    }
    let client = faulty.kubefan.client();
    let mut stream = open(&client, &faulty.path, "0", format).await;
    for _ in 0..4 {
        next(&mut stream).await;
    }
    faulty
        .through_a_hole(async {
            for name in ["a", "b", "c"] {
                faulty
                    .direct
                    .delete(&format!("{}/{name}", faulty.path))
                    .await
                    .ok();
            }
        })
        .await;
    let Event::Deleted(first) = next_change(&mut stream).await else {
        panic!("no DELETED")
    };
    drop(stream);

    let mut left = vec!["a", "b", "c"];
    let gone =
        |left: &mut Vec<&str>, key: &str| left.retain(|name| !key.ends_with(&format!("/{name}")));
    gone(&mut left, &first.key);
    assert_eq!(left.len(), 2);
    let mut stream = open(&client, &faulty.path, &first.resource_version, format).await;
    while !left.is_empty() {
        match next_change(&mut stream).await {
            Event::Deleted(item) => gone(&mut left, &item.key),
            other => panic!("{other:?} while {left:?} should be deleted"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_start_inside_a_hole_is_bridged_and_at_its_ends_is_served() {
    let server = shared();
    for format in [Format::Json, Format::Protobuf] {
        hole_case(&FaultyUpstream::start(server).await, format).await;
    }
}

async fn hole_case(faulty: &FaultyUpstream, format: Format) {
    let client = faulty.kubefan.client();
    faulty.create("first").await;
    let mut stream = open(&client, &faulty.path, "0", format).await;
    next(&mut stream).await;
    // This version is after the cache's first list, so the event log contains it.
    let before = faulty.create("before").await;
    next_change(&mut stream).await;
    let mut inside = String::new();
    faulty
        .through_a_hole(async {
            inside = faulty.create("inside").await;
            faulty
                .direct
                .delete(&format!("{}/before", faulty.path))
                .await
                .ok();
            faulty.create("later").await;
        })
        .await;
    // This object is created after the relist. When the open stream delivers its event, the stream
    // has delivered all of the relist's difference.
    let after = faulty.create("after").await;
    loop {
        match next_change(&mut stream).await {
            Event::Added(item) if item.resource_version == after => break,
            Event::Error { code, message } => panic!("{code} {message}"),
            _ => {}
        }
    }

    // The log has only the difference of the relist. A bridge has the events one by one.
    let mut stream = open(&client, &faulty.path, &inside, format).await;
    let mut bridged = Vec::new();
    loop {
        let (kind, item) = match next_change(&mut stream).await {
            Event::Added(item) => ("added", item),
            Event::Deleted(item) => ("deleted", item),
            other => panic!("{other:?}"),
        };
        let (_, name) = item.key.split_once('/').expect("a namespace");
        bridged.push(format!("{kind} {name}"));
        if item.resource_version == after {
            break;
        }
    }
    assert_eq!(bridged, ["deleted before", "added later", "added after"]);
    let mut stream = open(&client, &faulty.path, &before, format).await;
    match next_change(&mut stream).await {
        Event::Deleted(item) => assert!(item.key.ends_with("/before"), "{item:?}"),
        other => panic!("{other:?}"),
    }
    let last = faulty.create("last").await;
    let mut stream = open(&client, &faulty.path, &after, format).await;
    match next_change(&mut stream).await {
        Event::Added(item) => assert_eq!(item.resource_version, last),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_busy_upstream_is_waited_for() {
    let server = shared();
    let faulty = FaultyUpstream::start(server).await;
    faulty.proxy.refuse(RequestKind::List, "/configmaps", 2);
    faulty.proxy.refuse(RequestKind::Watch, "/configmaps", 2);
    faulty.create("object").await;
    let client = faulty.kubefan.client();
    let watcher = Watcher::start(&client, &faulty.path, "", Format::Json, Start::Zero);
    let list = decode_list(
        Format::Json,
        &faulty.direct.get(&faulty.path).await.ok().body,
    );
    watcher.reaches("the object", &list, RECOVERY).await;
    assert_eq!(watcher.fold().errors, vec![]);
}
