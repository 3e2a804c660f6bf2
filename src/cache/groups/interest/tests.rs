//! Tests which groups the index finds for a change, which events are queued, and that empty groups
//! and evicted events leave nothing behind.

use super::*;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::api::EventType;
use crate::api::Field;
use crate::api::FieldSelector;
use crate::api::FieldTerm;
use crate::api::LabelSelector;
use crate::api::Object;
use crate::api::ObjectValues;
use crate::api::ResourceVersion;
use crate::cache::Config;
use crate::cache::EpochCause;
use crate::cache::Reader;
use crate::cache::WatchFrom;
use crate::cache::WatchStream;
use crate::cache::Writer;
use crate::cache::cache;
use crate::cache::tests::support::config;
use crate::cache::tests::support::describe;
use crate::cache::tests::support::drain;
use crate::cache::tests::support::everything;
use crate::cache::tests::support::in_namespace;
use crate::cache::tests::support::key;
use crate::cache::tests::support::with_field;

fn pod(text: &str, node: &str, labels: &str) -> Object {
    let labels = labels.split_terminator(',').map(|label| {
        let (label, value) = label.split_once('=').unwrap();
        (label.into(), value.into())
    });
    let values = ObjectValues {
        uid: "u".into(),
        labels: labels.collect(),
        fields: vec![node.into()],
    };
    Object::new(key(text), ResourceVersion(1), &values, Bytes::new())
}

fn change(before: Option<Object>, after: Object) -> Event {
    let event_type = match before {
        Some(_) => EventType::Modified,
        None => EventType::Added,
    };
    Event::new(event_type, Arc::new(after), before.map(Arc::new), None)
}

fn labelled(selector: &str) -> Selection {
    Selection {
        labels: LabelSelector::parse(selector).unwrap(),
        ..Selection::default()
    }
}

fn on_node(node: &str) -> Selection {
    with_field(Field::Value(0), true, node)
}

fn named(namespace: Option<&str>, name: &str) -> Selection {
    Selection {
        namespace: namespace.map(str::to_owned),
        ..with_field(Field::Name, true, name)
    }
}

fn joined(selections: impl IntoIterator<Item = Selection>) -> (Interest, Vec<Arc<Group>>) {
    let mut interest = Interest::default();
    let join = |selection| interest.join_at_tip(&Arc::new(selection), 0).0;
    let groups = selections.into_iter().map(join).collect();
    (interest, groups)
}

/// The ids of the groups that the index visits for `event`, with duplicates.
fn found_groups(interest: &Interest, event: &Event) -> Vec<u64> {
    let mut found = Vec::new();
    interest.index.find(event, |group| found.push(group.id));
    found.sort_unstable();
    found
}

#[test]
fn a_change_is_offered_only_to_groups_that_it_may_concern() {
    let both = Selection {
        namespace: Some("b".to_owned()),
        ..on_node("n1")
    };
    let never = Selection {
        fields: FieldSelector {
            terms: vec![FieldTerm {
                field: Field::Empty,
                equal: true,
                value: "10.0.0.1".to_owned(),
            }],
        },
        ..Selection::default()
    };
    let (interest, groups) = joined([
        Selection::default(),
        in_namespace("a"),
        named(None, "x"),
        named(Some("a"), "x"),
        on_node("n1"),
        on_node(""),
        labelled("app=web"),
        labelled("app in (db,web)"),
        labelled("app!=web"),
        labelled("tier"),
        with_field(Field::Namespace, true, "b"),
        both,
        never,
    ]);
    let ids: Vec<_> = groups.iter().map(|group| group.id).collect();
    assert_eq!(ids, Vec::from_iter(0..13));
    // Each case has the object before and after a change, and the ids of the indexed groups that
    // are visited. The groups without a condition (0, 8 and 9) are visited for each change.
    let cases: [(Option<Object>, Object, &[u64]); 8] = [
        (None, pod("c/y", "n9", ""), &[]),
        (None, pod("a/x", "", ""), &[1, 2, 3, 5]),
        (None, pod("b/x", "n1", "app=web"), &[2, 4, 6, 7, 10, 11]),
        (
            Some(pod("c/y", "", "app=db")),
            pod("c/y", "n1", "app=web"),
            &[4, 5, 6, 7, 7, 11],
        ),
        (
            Some(pod("c/y", "n1", "app=web")),
            pod("c/y", "n1", "app=web"),
            &[4, 6, 7, 11],
        ),
        (
            Some(pod("c/y", "n1", "app=web")),
            pod("c/y", "n2", ""),
            &[4, 6, 7, 11],
        ),
        (None, pod("x", "n9", "zone=1"), &[2]),
        (None, pod("y", "n9", "tier=1,app=cache"), &[]),
    ];
    for (before, after, expected) in cases {
        let event = change(before, after);
        let always = [0, 8, 9];
        let mut expected = [expected, &always].concat();
        expected.sort_unstable();
        let found = found_groups(&interest, &event);
        assert_eq!(found, expected, "{event:?}");
        // All groups that the change concerns were visited.
        for group in &groups {
            assert!(event.verdict(&group.selection).is_none() || found.contains(&group.id));
        }
    }
}

#[test]
fn a_group_is_indexed_by_its_rarest_condition() {
    let shards = (0..100).map(|shard| labelled(&format!("app=web,shard=s{shard}")));
    let nodes = (0..100).map(|node| Selection {
        namespace: Some("a".to_owned()),
        ..on_node(&format!("n{node}"))
    });
    let namespaces = (0..100).map(|number| Selection {
        namespace: Some(format!("ns-{number}")),
        ..labelled("app=web")
    });
    let names = (0..100).map(|number| named(Some(&format!("ns-{number}")), "config"));
    let all = shards.chain(nodes).chain(namespaces).chain(names);
    let (interest, _groups) = joined(all);
    for (before, after, limit) in [
        (None, pod("b/x", "", "app=web,shard=s7"), 3),
        (None, pod("a/x", "n7", ""), 2),
        (Some(pod("a/x", "n7", "")), pod("a/x", "n8", ""), 3),
        (None, pod("ns-7/config", "", ""), 3),
    ] {
        let event = change(before, after);
        let found = found_groups(&interest, &event);
        assert!((1..=limit).contains(&found.len()), "{found:?} of {event:?}");
    }
}

#[test]
fn an_event_is_queued_once_per_group_and_never_in_a_group_without_streams() {
    let (mut interest, groups) = joined([labelled("app in (db,web)"), on_node("n1")]);
    let event = Arc::new(change(
        Some(pod("a/x", "n1", "app=db")),
        pod("a/x", "n2", "app=web"),
    ));
    let mut to_wake = Vec::new();
    interest.publish(0, &event, &mut to_wake);
    assert_eq!(to_wake.len(), 2);
    assert_eq!((groups[0].end(), groups[1].end()), (1, 1));
    interest.leave(&groups[1]);
    interest.publish(1, &event, &mut to_wake);
    assert_eq!((groups[0].end(), groups[1].end()), (2, 1));
    assert_eq!(interest.queue_order.len(), 3);
    interest.evict(1);
    assert!(!groups[0].retains(0) && groups[0].retains(1));
    interest.evict(2);
    assert!(groups[0].retains(2) && interest.queue_order.is_empty());
    assert_eq!(Arc::strong_count(&event), 2, "one is in the left group");
}

#[test]
fn groups_vanish_with_their_last_stream() {
    let both = Selection {
        namespace: Some("a".to_owned()),
        ..labelled("app in (db,web)")
    };
    let all = [
        Selection::default(),
        in_namespace("a"),
        named(None, "x"),
        named(Some("a"), "x"),
        on_node("n1"),
        labelled("app in (db,web)"),
        labelled("tier"),
        both,
    ];
    let (mut interest, groups) = joined(all.clone());
    for (selection, group) in all.into_iter().zip(&groups) {
        let (again, _) = interest.join_at_tip(&Arc::new(selection), 0);
        assert!(Arc::ptr_eq(&again, group));
    }
    groups.iter().for_each(|group| interest.leave(group));
    assert_eq!(interest.len(), groups.len());
    groups.iter().for_each(|group| interest.leave(group));
    groups.iter().for_each(|group| interest.leave(group));
    assert_eq!(interest.len(), 0);
    assert!(interest.index.is_empty());
    assert!(interest.ids.is_empty());
    for group in groups {
        assert_eq!(Arc::strong_count(&group), 1);
    }
}

// === through the cache ===

fn ready(retention_bytes: Option<usize>) -> (Writer, Reader) {
    let (mut writer, reader) = cache(Config {
        retention_bytes,
        ..config()
    });
    writer.replace(writer.relist(), ResourceVersion(10));
    (writer, reader)
}

fn write(writer: &mut Writer, text: &str, version: u64, node: &str) {
    let mut written = pod(text, node, "");
    written.resource_version = ResourceVersion(version);
    writer.apply(EventType::Modified, written, None).unwrap();
}

fn watch(reader: &Reader, from: WatchFrom, selection: Selection) -> WatchStream {
    reader.watch(from, Arc::new(selection)).unwrap()
}

#[test]
fn a_quiet_stream_is_at_the_tip_and_outlives_the_log() {
    let (mut writer, reader) = ready(Some(2000));
    write(&mut writer, "a/x", 11, "n1");
    let mut quiet = watch(&reader, WatchFrom::Tip, on_node("n1"));
    let mut initial = watch(&reader, WatchFrom::Snapshot, on_node("n1"));
    let mut stalled = watch(&reader, WatchFrom::Tip, on_node("n2"));
    let mut ahead = watch(
        &reader,
        WatchFrom::After(ResourceVersion(15)),
        on_node("n1"),
    );
    assert!(drain(&mut quiet).is_empty());
    for version in 12..100 {
        write(&mut writer, "a/y", version, "n2");
    }
    assert!(reader.stats().log_start > Some(ResourceVersion(90)));
    assert_eq!(quiet.bookmark(), Some(ResourceVersion(99)));
    assert!(drain(&mut quiet).is_empty());
    assert_eq!(describe(&drain(&mut initial)), ["+a/x", "=11"]);
    assert_eq!(initial.bookmark(), Some(ResourceVersion(99)));
    assert!(drain(&mut ahead).is_empty());
    assert_eq!(stalled.bookmark(), None);
    assert_eq!(describe(&drain(&mut stalled)), ["expired"]);
    write(&mut writer, "a/x", 100, "n2");
    for stream in [&mut quiet, &mut initial, &mut ahead] {
        assert_eq!(describe(&drain(stream)), ["DELETED a/x@100"]);
        assert_eq!(stream.bookmark(), Some(ResourceVersion(100)));
    }
}

#[test]
fn a_late_start_reads_the_log_once_and_joins_an_existing_group() {
    let (mut writer, reader) = ready(None);
    for version in 11..200 {
        write(&mut writer, "a/x", version, "n1");
    }
    let from = WatchFrom::After(ResourceVersion(100));
    let mut first = watch(&reader, from, on_node("n1"));
    assert_eq!(reader.stats().groups, 0, "the stream reads the log first");
    assert_eq!(drain(&mut first).len(), 99);
    assert_eq!(reader.stats().groups, 1);
    write(&mut writer, "a/x", 200, "n1");
    write(&mut writer, "a/x", 201, "n1");
    for (start, expected) in [(198, 3), (199, 2), (200, 1), (201, 0)] {
        let from = WatchFrom::After(ResourceVersion(start));
        let mut late = watch(&reader, from, on_node("n1"));
        assert_eq!(drain(&mut late).len(), expected, "{start}");
    }
    assert_eq!(drain(&mut first).len(), 2);
    drop(first);
    assert_eq!(reader.stats().groups, 0);
}

#[test]
fn queued_events_count_in_the_log_until_they_are_evicted() {
    let (mut writer, reader) = ready(None);
    write(&mut writer, "a/x", 11, "n1");
    let alone = reader.stats().log_bytes;
    let nodes = (0..50).map(|node| with_field(Field::Value(0), false, &format!("m{node}")));
    let streams: Vec<_> = nodes
        .map(|selection| watch(&reader, WatchFrom::Tip, selection))
        .collect();
    write(&mut writer, "a/y", 12, "n1");
    let both = reader.stats().log_bytes;
    assert_eq!(both - 2 * alone, 50 * QUEUED_EVENT_BYTES);
    writer.forget_history();
    assert_eq!(reader.stats().log_bytes, 0);
    let shared = writer.shared();
    assert!(shared.interest.lock().queue_order.is_empty());
    writer.new_epoch(EpochCause::WentBack);
    assert_eq!(reader.stats().groups, 0);
    drop(streams);
    let everything = reader.watch(WatchFrom::Tip, everything());
    assert!(everything.is_err(), "not ready");
    assert_eq!(writer.shared().watchers.load(Ordering::Relaxed), 0);
}
