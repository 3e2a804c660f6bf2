//! Which changes request which reconciles, and the priorities of the requests.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kubefan_core::api::ObjectKey;
use serde_json::{Value, json};

use super::support::{Calls, Fake, controller, map, ms, shutdown, start};
use crate::controller::{Controller, Predicate, Request};

/// Returns a secret in the namespace `n` with an owner.
fn owned(name: &str, owner: &str, kind: &str, api_version: &str, is_controller: bool) -> Value {
    json!({ "metadata": {
        "namespace": "n", "name": name,
        "ownerReferences": [
            { "apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "0" },
            {
                "apiVersion": api_version, "kind": kind, "name": owner, "uid": "1",
                "controller": is_controller,
            },
        ],
    }})
}

/// Returns the requests since the last call, after all that is to come.
async fn settled(calls: &Calls, seen: &mut usize) -> Vec<String> {
    tokio::time::sleep(Duration::from_secs(40)).await;
    let names = calls.names();
    let mut new = names[std::mem::replace(seen, names.len())..].to_vec();
    new.sort();
    new
}

#[tokio::test(start_paused = true)]
async fn an_object_is_reconciled_after_each_change_of_it() {
    let maps = Fake::<ConfigMap>::new();
    let (calls, mut seen) = (Calls::default(), 0);
    start(controller(&maps), &calls);
    maps.source.add(&map("a", 1)).unwrap();
    assert_eq!(settled(&calls, &mut seen).await, ["n/a"]);
    maps.source.modify(&map("a", 2)).unwrap();
    assert_eq!(settled(&calls, &mut seen).await, ["n/a"]);
    let key = ObjectKey::new(Some("n"), "a");
    maps.source.delete(&key).unwrap();
    assert_eq!(settled(&calls, &mut seen).await, ["n/a"]);
    // The next list finds the changes that are missed while the watch is interrupted.
    maps.source.hold();
    maps.source.add(&map("b", 1)).unwrap();
    maps.source.expire();
    maps.source.release();
    assert_eq!(settled(&calls, &mut seen).await, ["n/b"]);
}

#[tokio::test(start_paused = true)]
async fn a_predicate_leaves_changes_out() {
    let maps = Fake::<ConfigMap>::new();
    let (calls, mut seen) = (Calls::default(), 0);
    let predicate = Predicate::generation_changed();
    start(controller(&maps).with_predicate(predicate), &calls);
    maps.source.add(&map("a", 1)).unwrap();
    assert_eq!(settled(&calls, &mut seen).await, ["n/a"]);
    let mut same = map("a", 1);
    same["data"] = json!({ "x": "y" });
    maps.source.modify(&same).unwrap();
    assert!(settled(&calls, &mut seen).await.is_empty());
    maps.source.modify(&map("a", 2)).unwrap();
    assert_eq!(settled(&calls, &mut seen).await, ["n/a"]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_reconciled_after_changes_of_what_it_controls() {
    let (maps, secrets) = (Fake::<ConfigMap>::new(), Fake::<Secret>::new());
    let (calls, mut seen) = (Calls::default(), 0);
    start(controller(&maps).owns(&secrets.informer, None), &calls);
    let add = |object: Value| secrets.source.add(&object).unwrap();
    add(owned("s1", "a", "ConfigMap", "v1", true));
    assert_eq!(settled(&calls, &mut seen).await, ["n/a"]);
    add(owned("s2", "a", "ConfigMap", "v1", false));
    add(owned("s3", "a", "ConfigMap", "example.com/v1", true));
    add(owned("s4", "a", "Deployment", "apps/v1", true));
    assert!(settled(&calls, &mut seen).await.is_empty());
    // Only the group of the owner counts, not its version. A change of the owner
    // requests both owners.
    let moved = owned("s1", "b", "ConfigMap", "v2", true);
    secrets.source.modify(&moved).unwrap();
    assert_eq!(settled(&calls, &mut seen).await, ["n/a", "n/b"]);
    let key = ObjectKey::new(Some("n"), "s1");
    secrets.source.delete(&key).unwrap();
    assert_eq!(settled(&calls, &mut seen).await, ["n/b"]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_scoped_owner_has_no_namespace() {
    let (namespaces, secrets) = (Fake::<Namespace>::new(), Fake::<Secret>::new());
    let (calls, mut seen) = (Calls::default(), 0);
    let controller = Controller::new("namespaces", &namespaces.informer, shutdown());
    let controller = controller.owns(&secrets.informer, None);
    tokio::spawn(controller.run(calls.clone(), std::future::pending()));
    let secret = owned("s", "team", "Namespace", "v1", true);
    secrets.source.add(&secret).unwrap();
    assert_eq!(settled(&calls, &mut seen).await, ["team"]);
}

#[tokio::test(start_paused = true)]
async fn a_mapping_chooses_the_objects_of_both_states() {
    let (maps, secrets) = (Fake::<ConfigMap>::new(), Fake::<Secret>::new());
    let (calls, mut seen) = (Calls::default(), 0);
    let mapping = |secret: &Secret| {
        let labels = secret.metadata.labels.iter().flatten();
        labels
            .map(|(label, _)| Request::new(Some("m"), label))
            .collect()
    };
    let predicate = Predicate::labels_changed();
    let watching = controller(&maps).watches(&secrets.informer, Some(predicate), mapping);
    start(watching, &calls);
    let secret = |labels: Value| json!({ "metadata": { "name": "s", "labels": labels } });
    let first = secret(json!({ "a": "", "b": "" }));
    secrets.source.add(&first).unwrap();
    assert_eq!(settled(&calls, &mut seen).await, ["m/a", "m/b"]);
    let second = secret(json!({ "b": "", "c": "" }));
    secrets.source.modify(&second).unwrap();
    assert_eq!(settled(&calls, &mut seen).await, ["m/a", "m/b", "m/c"]);
    secrets.source.modify(&second).unwrap();
    assert!(settled(&calls, &mut seen).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn changes_come_before_the_first_list() {
    let maps = Fake::<ConfigMap>::new();
    let calls = Calls::default();
    calls.take(ms(10));
    for name in ["a", "b", "c", "d"] {
        maps.source.add(&map(name, 1)).unwrap();
    }
    start(controller(&maps), &calls);
    calls.until(1).await;
    maps.source.modify(&map("d", 2)).unwrap();
    maps.source.add(&map("e", 1)).unwrap();
    calls.until(5).await;
    assert_eq!(calls.names(), ["n/a", "n/d", "n/e", "n/b", "n/c"]);
}

#[tokio::test(start_paused = true)]
async fn the_first_list_does_not_starve() {
    let maps = Fake::<ConfigMap>::new();
    let calls = Calls::default();
    calls.take(ms(100));
    for name in ["a", "b", "c"] {
        maps.source.add(&map(name, 1)).unwrap();
    }
    start(controller(&maps), &calls);
    // There is always a change that waits, and one reconcile at a time.
    for generation in 1..=300 {
        calls.until(generation).await;
        let name = format!("new-{generation}");
        maps.source.add(&map(&name, 1)).unwrap();
    }
    let names = calls.names();
    let place = names.iter().position(|name| name == "n/c");
    // Ten seconds of waiting are worth 100 points of priority.
    assert!((100..=105).contains(&place.expect("it ran")), "{place:?}");
}

#[tokio::test(start_paused = true)]
async fn a_resync_requests_all_objects_with_low_priority() {
    let maps = Fake::<ConfigMap>::new();
    let (calls, mut seen) = (Calls::default(), 0);
    for name in ["a", "b", "c"] {
        maps.source.add(&map(name, 1)).unwrap();
    }
    let controller = controller(&maps).with_resync(Duration::from_secs(60));
    start(controller, &calls);
    assert_eq!(settled(&calls, &mut seen).await, ["n/a", "n/b", "n/c"]);
    calls.take(ms(100));
    calls.until(4).await;
    maps.source.modify(&map("c", 2)).unwrap();
    calls.until(6).await;
    assert_eq!(calls.names()[3..], ["n/a", "n/c", "n/b"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_keeps_its_low_priority_when_it_is_requeued() {
    let maps = Fake::<ConfigMap>::new();
    let calls = Calls::default();
    calls.take(ms(10));
    calls.script("a", &[super::support::Outcome::Error]);
    maps.source.add(&map("a", 1)).unwrap();
    maps.source.add(&map("b", 1)).unwrap();
    maps.source.add(&map("c", 1)).unwrap();
    start(controller(&maps), &calls);
    // While `b` runs, the retry of `a` becomes due, and `d` is added after that.
    calls.until(2).await;
    tokio::time::sleep(ms(8)).await;
    maps.source.add(&map("d", 1)).unwrap();
    calls.until(5).await;
    assert_eq!(calls.names(), ["n/a", "n/b", "n/d", "n/c", "n/a"]);
}
