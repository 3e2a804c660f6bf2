//! Several Events that are deleted at one version, as etcd deletes them when they expire: each
//! watch gets all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use crate::support::clients::frames::{Event, Format, WatchReader};
use crate::support::events::{
    assert_existed, assert_same, changed, changes_until, collections, create_event, delete_at_once,
    deleted_at, event, fill_caches, list, names, number, watch_from,
};
use crate::support::outcomes::request_count;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{ApiServer, private_with, shared};
use crate::support::programs::kubefan::Kubefan;

const LIMIT: Duration = Duration::from_secs(60);
const FORMATS: [Format; 2] = [Format::Json, Format::Protobuf];
/// The number of Events that expire.
const EXPIRING: usize = 30;
/// From this TTL on, an API server uses a lease again: for a twentieth of the TTL, in whole
/// seconds.
const SHORTEST_SHARED_TTL: &str = "--event-ttl=20s";
/// The Event with the last change of a history. All selectors select it.
const LAST: &str = "last";
/// Selectors for each of the two groups. Some Events enter or leave their selections.
const SELECTORS: [[&str; 4]; 2] = [
    [
        "",
        "&fieldSelector=involvedObject.name%3Dx",
        "&fieldSelector=source%3Dkubelet",
        "&fieldSelector=reason%21%3DNoise",
    ],
    [
        "",
        "&fieldSelector=regarding.name%3Dx",
        "&fieldSelector=reportingController%3Dkubelet",
        "&fieldSelector=reason%21%3DNoise",
    ],
];

/// A watch at the API server and through kubefan.
struct TwinWatch {
    path: String,
    selector: &'static str,
    format: Format,
    direct: WatchReader,
    through: WatchReader,
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn watches_get_each_group_of_deletions_as_from_the_api_server() {
    let server = shared();
    let kubefan = Kubefan::start(server, &[]).await;
    let (direct, through) = (server.client(), kubefan.client());
    let namespace = server.namespace("groups").await;
    fill_caches(&through, &namespace).await;
    let [path, _] = collections(&namespace);
    let from = number(&direct.list(&path, Format::Json).await.resource_version);
    let mut watches = Vec::new();
    for (path, selectors) in collections(&namespace).into_iter().zip(SELECTORS) {
        for (selector, format) in selectors
            .into_iter()
            .flat_map(|selector| FORMATS.map(|format| (selector, format)))
        {
            watches.push(TwinWatch {
                direct: watch_from(&direct, &path, from, selector, format).await,
                through: watch_from(&through, &path, from, selector, format).await,
                path: path.clone(),
                selector,
                format,
            });
        }
    }
    let groups = write_history(server, &namespace).await;
    for mut watch in watches {
        let what = format!("{} {:?} {}", watch.path, watch.format, watch.selector);
        let wanted = changes_until(&mut watch.direct, LAST).await;
        for (version, count) in &groups {
            let deleted = deleted_at(&wanted, version);
            let is_whole = watch.selector.is_empty();
            assert!(deleted == *count || !is_whole, "{what} at {version}");
        }
        assert_same(
            &changes_until(&mut watch.through, LAST).await,
            &wanted,
            &what,
        );
        // A watch that begins now gets the groups from the event log.
        let TwinWatch {
            path,
            selector,
            format,
            ..
        } = watch;
        let mut late = watch_from(&through, &path, from, selector, format).await;
        assert_same(&changes_until(&mut late, LAST).await, &wanted, &what);
    }
    let metrics = kubefan.metrics().await;
    assert_eq!(request_count(&metrics, "forwarded", "watch"), 0.0);
}

/// Creates, changes and deletes Events. Returns the version of each group of deletions and the
/// number of its Events.
async fn write_history(server: &ApiServer, namespace: &str) -> Vec<(String, usize)> {
    let client = server.client();
    let [path, _] = collections(namespace);
    for at in 0..6 {
        let mut made = event(namespace, &format!("a-{at}"), ["x", "y"][at % 2]);
        made["reason"] = json!(["Signal", "Noise"][at / 2 % 2]);
        if at % 3 == 0 {
            // The selector `source` then selects it by its reporting component.
            made["source"] = json!({});
        }
        client.create(&path, &made).await.ok();
    }
    for (name, change) in [
        ("a-0", json!({ "involvedObject": { "name": "y" } })),
        ("a-1", json!({ "count": 2 })),
        ("a-2", json!({ "reason": "Signal" })),
        ("a-3", json!({ "source": { "component": "other" } })),
    ] {
        client.merge(&format!("{path}/{name}"), &change).await.ok();
    }
    let mut groups = vec![delete_at_once(server, namespace, "a-").await];
    // Other Events with the names of deleted ones.
    for at in 0..3 {
        create_event(&client, namespace, &format!("a-{at}"), "x").await;
    }
    client.delete(&format!("{path}/a-1")).await.ok();
    groups.push(delete_at_once(server, namespace, "a-").await);
    for at in 0..4 {
        create_event(&client, namespace, &format!("b-{at}"), "x").await;
    }
    groups.push(delete_at_once(server, namespace, "b-").await);
    create_event(&client, namespace, LAST, "x").await;
    let counts: Vec<_> = groups.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [6, 2, 4]);
    groups
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes half a minute"]
async fn events_that_expire_together_are_deleted_as_at_the_api_server() {
    let server = private_with(&[SHORTEST_SHARED_TTL]).await;
    let kubefan = Kubefan::start(&server, &[]).await;
    let (direct, through) = (server.client(), kubefan.client());
    let namespace = server.namespace("expiring").await;
    let [path, _] = collections(&namespace);
    fill_caches(&through, &namespace).await;
    let from = number(&direct.list(&path, Format::Json).await.resource_version);
    let mut watches = Vec::new();
    for format in FORMATS {
        watches.push((
            watch_from(&direct, &path, from, "", format).await,
            watch_from(&through, &path, from, "", format).await,
        ));
    }
    for at in 0..EXPIRING {
        create_event(&direct, &namespace, &format!("e-{at}"), "x").await;
    }
    for (mut direct, mut through) in watches {
        let wanted = until_expired(&mut direct).await;
        let got = until_expired(&mut through).await;
        assert_same(&got, &wanted, "the expired Events");
        let mut versions = BTreeMap::<_, usize>::new();
        for event in &wanted[EXPIRING..] {
            let version = changed(event).resource_version.as_str();
            *versions.entry(version).or_default() += 1;
        }
        assert!(versions.values().any(|count| *count > 1), "{versions:?}");
    }
    // Another change shows that the last version is complete.
    create_event(&direct, &namespace, LAST, "x").await;
    eventually("the state after the deletions", LIMIT, async || {
        let state = list(&through, &path, Format::Json).await;
        assert_existed(&direct, &path, &state, Format::Json).await;
        match names(&state).iter().any(|name| name.starts_with("e-")) {
            true => Err("some are left"),
            false => Ok(()),
        }
    })
    .await;
}

/// Reads the changes until all Events were created and deleted.
async fn until_expired(stream: &mut WatchReader) -> Vec<Event> {
    let mut changes = Vec::new();
    while changes.len() < 2 * EXPIRING {
        let event = within("a change", LIMIT, stream.next()).await;
        changes.push(event.expect("a stream").expect("an event, not the end"));
    }
    changes
}
