//! Changes that events cannot express and that start a new epoch: an object that changes without a
//! new resourceVersion, and an etcd that is restored from a backup.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::clients::client::Client;
use crate::support::clients::frames::{Format, List, decode_list};
use crate::support::clients::watcher::{Start, Watcher};
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, metric, private, shared};
use crate::support::programs::kubefan::Kubefan;

const RECOVERY: Duration = Duration::from_secs(90);
/// The API server sends a bookmark each minute.
const BOOKMARK: Duration = Duration::from_secs(150);
const PATH: &str = "/api/v1/namespaces/default/configmaps";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS: &str = "/apis/test.kubefan.io/v1/namespaces/default/gadgets";

fn gadget_definition(spec: &Value) -> Value {
    json!({
        "metadata": { "name": "gadgets.test.kubefan.io" },
        "spec": {
            "group": "test.kubefan.io", "scope": "Namespaced",
            "names": { "plural": "gadgets", "singular": "gadget", "kind": "Gadget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "spec": { "type": "object", "properties": spec } },
                } },
            }],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_new_default_of_a_custom_resource_reaches_every_client() {
    let server = shared();
    let direct = server.client();
    let before = json!({ "color": { "type": "string" }, "size": { "type": "integer" } });
    direct.create(CRDS, &gadget_definition(&before)).await.ok();
    eventually("gadgets", RECOVERY, async || {
        direct.get(GADGETS).await.is(200)
    })
    .await;
    for name in ["one", "two"] {
        let gadget = json!({
            "apiVersion": "test.kubefan.io/v1", "kind": "Gadget",
            "metadata": { "name": name }, "spec": { "color": "red" },
        });
        direct.create(GADGETS, &gadget).await.ok();
    }
    let kubefan = Kubefan::start(server, &[]).await;
    let client = kubefan.client();
    let start = |from| Watcher::start(&client, GADGETS, "", Format::Json, from);
    let watchers = [Start::Zero, Start::List].map(start);
    let as_it_was = list(&direct, GADGETS).await;
    for watcher in &watchers {
        watcher.reaches("as it was", &as_it_was, RECOVERY).await;
    }

    let after =
        json!({ "color": { "type": "string" }, "size": { "type": "integer", "default": 7 } });
    let change = json!({ "spec": gadget_definition(&after)["spec"] });
    direct
        .merge(&format!("{CRDS}/gadgets.test.kubefan.io"), &change)
        .await
        .ok();
    eventually("the default", RECOVERY, async || {
        let gadget = direct.get(&format!("{GADGETS}/one")).await.json();
        if gadget["spec"]["size"] == 7 {
            Ok(())
        } else {
            Err(gadget.to_string())
        }
    })
    .await;
    let as_it_is = list(&direct, GADGETS).await;
    assert_eq!(
        versions(&as_it_is),
        versions(&as_it_was),
        "the objects have their old RVs"
    );
    for watcher in &watchers {
        watcher
            .reaches("with the default", &as_it_is, RECOVERY)
            .await;
    }
    let cached = client
        .get(&format!("{GADGETS}/one?resourceVersion=0"))
        .await
        .ok()
        .json();
    assert_eq!(cached["spec"]["size"], 7);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_restored_etcd_leaves_no_client_with_an_old_object() {
    let server = private().await;
    let direct = server.client();
    for name in ["kept", "changed", "deleted"] {
        direct.create(PATH, &named(name)).await.ok();
    }
    let snapshot = server.snapshot().await;
    let kubefan = Kubefan::start(&server, &[]).await;
    let client = kubefan.client();
    let formats = [Format::Json, Format::Protobuf];
    let start = |format| {
        (
            format,
            Watcher::start(&client, PATH, "", format, Start::Zero),
        )
    };
    let watchers = formats.map(start);
    let change = json!({ "data": { "a": "new" } });
    direct.merge(&format!("{PATH}/changed"), &change).await.ok();
    direct.delete(&format!("{PATH}/deleted")).await.ok();
    for number in 0..20 {
        direct
            .create(PATH, &named(&format!("later-{number}")))
            .await
            .ok();
    }
    all_reach("the last state", &server, &watchers).await;

    server.restore(&snapshot).await;
    assert_eq!(list(&server.client(), PATH).await.items.len(), 3);
    all_reach("the restored state", &server, &watchers).await;
    for format in formats {
        let wanted = server.client().list(PATH, format).await.items;
        for path in [PATH.to_owned(), format!("{PATH}?resourceVersion=0")] {
            assert_eq!(
                client.list(&path, format).await.items,
                wanted,
                "{format:?} {path}"
            );
        }
    }
    // Changes after the restore reach the clients too.
    server
        .client()
        .create(PATH, &named("afterwards"))
        .await
        .ok();
    all_reach("the new history", &server, &watchers).await;
}

/// While kubefan is suspended, etcd is restored, and etcd's version passes the version that
/// kubefan has applied. So the barrier before the watch is resumed shows no restore. Reads
/// find the wrong objects at the latest when a proof fails and the next bookmark arrives,
/// and no client must ask again.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_restored_etcd_that_has_passed_the_cache_is_found() {
    let server = private().await;
    server.client().create(PATH, &named("kept")).await.ok();
    let snapshot = server.snapshot().await;
    let kubefan = Kubefan::start(&server, &["--resource", "configmaps"]).await;
    let client = kubefan.client();
    for number in 0..20 {
        let lost = named(&format!("lost-{number}"));
        server.client().create(PATH, &lost).await.ok();
    }
    let cached = format!("{PATH}?resourceVersion=0");
    let before = list(&server.client(), PATH).await;
    eventually("the objects in the cache", RECOVERY, async || {
        is_equal(&list(&client, &cached).await, &before)
    })
    .await;

    kubefan.signal("STOP");
    server.restore(&snapshot).await;
    let direct = server.client();
    let mut number = 0;
    while version(&list(&direct, PATH).await) <= version(&before) + 10 {
        number += 1;
        let written = named(&format!("written-{number}"));
        direct.create(PATH, &written).await.ok();
    }
    let last = format!("default/written-{number}");
    kubefan.signal("CONT");

    // A proof without an answer shows nothing, so the watch must work again first.
    eventually("the resumed watch", RECOVERY, async || {
        let items = list(&client, &cached).await.items;
        match items.iter().any(|item| item.key == last) {
            true => Ok(()),
            false => Err("no object of the new history".to_owned()),
        }
    })
    .await;
    let unproven = async || metric(&kubefan.admin(), "kubefan_freshness_unproven_total", &[]).await;
    let unproven_before = unproven().await;
    // One proof that fails is enough, if its list is answered in time. Of three
    // lists, at least one should be.
    eventually("proofs that fail", RECOVERY, async || {
        client.get(PATH).await;
        match unproven().await >= unproven_before + 3.0 {
            true => Ok(()),
            false => is_equal(&list(&client, &cached).await, &list(&direct, PATH).await),
        }
    })
    .await;
    let expected = list(&direct, PATH).await;
    eventually("the restored state", BOOKMARK, async || {
        is_equal(&list(&client, &cached).await, &expected)
    })
    .await;
}

fn is_equal(list: &List, expected: &List) -> Result<(), String> {
    match list.items == expected.items {
        true => Ok(()),
        false => Err(format!(
            "{} objects, not {}",
            list.items.len(),
            expected.items.len()
        )),
    }
}

fn version(list: &List) -> u64 {
    list.resource_version.parse().expect("a number")
}

fn named(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

async fn all_reach(what: &str, server: &ApiServer, watchers: &[(Format, Watcher)]) {
    for (format, watcher) in watchers {
        let list = server.client().list(PATH, *format).await;
        watcher.reaches(what, &list, RECOVERY).await;
    }
}

async fn list(client: &Client, path: &str) -> List {
    // The API server answers 429 while it builds a new watch cache for the changed resource.
    let answer = eventually("a list", RECOVERY, async || client.get(path).await.is(200)).await;
    decode_list(Format::Json, &answer.body)
}

fn versions(list: &List) -> Vec<&str> {
    list.items
        .iter()
        .map(|item| item.resource_version.as_str())
        .collect()
}
