//! Tests of the functions that a reflector calls.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kubefan_core::api::{
    GroupVersionResource, LabelSelector, Resource, ResourceVersion, Selection,
};
use kubefan_core::cache::Reader;
use kubefan_core::informer::{
    Hooks, Reflector, ReflectorConfig, ReflectorMetrics, Signals, relist_channel,
};
use kubefan_core::{cache, upstream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fake_source::FakeSource;

/// Starts a reflector of `source`.
fn start(source: &FakeSource, hooks: &Hooks, watch_list: bool) -> (Reader, Arc<ReflectorMetrics>) {
    let (writer, reader) = cache::cache(cache::Config::default());
    let (_, relists) = relist_channel();
    let signals = Signals {
        stop: Box::pin(pending()),
        relists,
    };
    let config = ReflectorConfig {
        watch_list,
        ..ReflectorConfig::default()
    };
    let resource = Arc::new(Resource {
        gvr: GroupVersionResource::new("", "v1", "things"),
        kind: "Thing".to_owned(),
        singular: String::new(),
        short_names: Vec::new(),
        namespaced: true,
        verbs: Vec::new(),
    });
    let reflector = Reflector::new(source.clone(), writer, config, signals);
    let reflector = reflector.with_hooks(hooks, &resource);
    let metrics = reflector.metrics();
    tokio::spawn(reflector.run());
    (reader, metrics)
}

async fn wait_for(reader: &Reader, version: ResourceVersion) {
    let deadline = Instant::now() + Duration::from_secs(600);
    assert!(reader.wait_for(version, deadline).await);
}

fn thing(name: &str, data: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "n", "labels": { "app": "x" },
            "managedFields": [{ "manager": "m" }],
        },
        "data": data,
    })
}

/// Returns the cached objects that have the label `app=x`.
fn cached(reader: &Reader) -> Vec<Value> {
    let selection = Selection {
        labels: LabelSelector::parse("app=x").expect("a selector"),
        ..Selection::default()
    };
    let snapshot = reader.snapshot().expect("a list");
    let objects = snapshot.list(&selection, None);
    objects
        .map(|object| object.decode_json().expect("JSON"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn objects_are_stored_as_the_transform_leaves_them() {
    for watch_list in [false, true] {
        let source = FakeSource::new();
        source.add(&thing("listed", "1")).expect("a new object");
        let hooks = Hooks::default().with_transform(|resource, object| {
            assert_eq!(resource.kind, "Thing");
            if object["data"] == "panic" {
                panic!("planned");
            }
            if object["data"] == "text" {
                *object = "no object".into();
                return;
            }
            // Neither the names nor the version can be changed, and selectors see the labels.
            object["metadata"] = json!({ "name": "other", "resourceVersion": "0" });
        });
        let (reader, metrics) = start(&source, &hooks, watch_list);
        assert!(reader.ready().await);
        source.until(|source| source.watchers() == 1).await;
        let watched = source.add(&thing("watched", "2")).expect("a new object");
        wait_for(&reader, watched).await;
        let stored = cached(&reader);
        let names = stored.iter().map(|object| &object["metadata"]["name"]);
        assert_eq!(names.collect::<Vec<_>>(), ["listed", "watched"]);
        for object in &stored {
            let metadata = object["metadata"].as_object().expect("metadata");
            assert!(!metadata.contains_key("managedFields"), "{object}");
            assert!(!metadata.contains_key("labels"), "{object}");
            assert_eq!(metadata["namespace"], "n");
        }
        let version = stored[1]["metadata"]["resourceVersion"].as_str();
        assert_eq!(version, Some(watched.to_string().as_str()));
        assert_eq!(metrics.transform_failures.load(Ordering::Relaxed), 0);

        // If the transform of an object fails, the object is stored unchanged.
        for (failures, data) in [(1, "panic"), (2, "text")] {
            let changed = source.modify(&thing("watched", data)).expect("it exists");
            wait_for(&reader, changed).await;
            let stored = &cached(&reader)[1];
            assert_eq!(stored["data"], data);
            assert_eq!(stored["metadata"]["managedFields"][0]["manager"], "m");
            assert_eq!(metrics.transform_failures.load(Ordering::Relaxed), failures);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_reported_with_their_cause() {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let record = Arc::clone(&seen);
    let hooks = Hooks::default().with_failure_handler(move |failure| {
        let cause = failure.error.cause().name();
        let resource = &failure.resource.gvr.resource;
        record
            .lock()
            .push(format!("{resource} {} {cause}", failure.during));
        panic!("the reflector goes on");
    });
    let source = FakeSource::new();
    source.fail_next(upstream::Error::Transport("a planned error".into()));
    let (reader, _) = start(&source, &hooks, false);
    assert!(reader.ready().await);
    let faults: [fn(&FakeSource); 3] = [
        FakeSource::end_watches,
        FakeSource::break_watches,
        FakeSource::expire,
    ];
    for (n, fault) in faults.iter().enumerate() {
        source.until(|source| source.watchers() == 1).await;
        fault(&source);
        let added = source.add(&thing(&format!("thing-{n}"), ""));
        wait_for(&reader, added.expect("a new object")).await;
    }
    // The planned end of a watch is no failure.
    let expected = [
        "things list transport",
        "things watch transport",
        "things watch expired",
    ];
    assert_eq!(*seen.lock(), expected);
}
