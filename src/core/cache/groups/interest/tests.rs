//! Tests which groups the index finds for a change, which events are queued, and that empty groups
//! and evicted events leave nothing behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use bytes::Bytes;

use super::*;
use crate::api::{
    EventType, Field, FieldSelector, FieldTerm, LabelSelector, Object, ObjectValues,
    ResourceVersion, Selection,
};
use crate::cache::tests::support::{
    config, describe, drain, everything, in_namespace, key, with_field,
};
use crate::cache::{Config, EpochCause, Reader, WatchFrom, WatchStream, Writer, cache};

impl Group {
    /// Returns the number of events in the queue.
    fn len(&self) -> usize {
        self.queue.read().entries.len()
    }
}

impl GroupIndex {
    fn is_empty(&self) -> bool {
        let has_entries = self.by_field.len() + self.by_label.len() > 0;
        !has_entries && self.by_key.is_empty() && self.unindexed.is_empty()
    }
}

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

fn log() -> EventLog {
    EventLog::new(ResourceVersion::ZERO, Arc::default())
}

fn join(interest: &mut Interest, selection: Selection) -> Option<Arc<Group>> {
    let candidate = Candidate::new(Arc::new(selection));
    let joined = interest.join(&candidate, &log());
    joined.map(|joined| joined.group)
}

fn joined(selections: impl IntoIterator<Item = Selection>) -> (Interest, Vec<Arc<Group>>) {
    let mut interest = Interest::new(&config());
    let mut join = |selection| join(&mut interest, selection).unwrap();
    let groups = selections.into_iter().map(&mut join).collect();
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
fn an_event_is_queued_once_per_group_also_without_streams() {
    let (mut interest, groups) = joined([labelled("app in (db,web)"), on_node("n1")]);
    let event = Arc::new(change(
        Some(pod("a/x", "n1", "app=db")),
        pod("a/x", "n2", "app=web"),
    ));
    let lengths = || (groups[0].len(), groups[1].len());
    let mut to_wake = Vec::new();
    interest.publish(0, &event, &mut to_wake);
    assert_eq!((to_wake.len(), lengths()), (2, (1, 1)));
    drop(interest.leave(&groups[1], Instant::now()));
    interest.publish(1, &event, &mut to_wake);
    assert_eq!((lengths(), interest.queued), ((2, 2), 4));
    interest.evict(1, usize::MAX);
    assert!(!groups[0].retains(0) && groups[0].retains(1));
    // Queues of two events keep their memory while they are not empty.
    assert_eq!((lengths(), interest.queued), ((1, 1), 4));
    // The queue of a removed group no longer counts.
    interest.remove(groups[1].id);
    assert_eq!((interest.queued, interest.ordered), (2, 2));
    interest.evict(2, usize::MAX);
    assert!(groups[0].retains(2) && interest.queue_order.is_empty());
    assert_eq!(interest.queue_bytes(), 0);
}

#[test]
fn an_eviction_stops_after_some_groups_and_goes_on_later() {
    let (mut interest, groups) = joined([labelled("app in (db,web)"), on_node("n1")]);
    let event = Arc::new(change(None, pod("a/x", "n1", "app=db")));
    for position in 0..3 {
        assert_eq!(interest.publish(position, &event, &mut Vec::new()), 2);
    }
    for (left, has_more) in [(2, true), (1, true), (0, false)] {
        assert_eq!(interest.evict(3, 1), (2, has_more));
        assert_eq!((groups[0].len(), groups[1].len()), (left, left));
    }
    assert_eq!(interest.evict(3, 1).0, 0);
}

#[test]
fn a_group_without_streams_is_kept_for_the_retention_age() {
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
    let count = groups.len();
    let (start, age) = (Instant::now(), config().retention_age);
    let leave = |interest: &mut Interest, now| {
        let mut leave = |group| assert!(interest.leave(group, now).is_empty());
        groups.iter().for_each(&mut leave);
    };
    for selection in all.clone() {
        let again = join(&mut interest, selection).unwrap();
        assert!(groups.iter().any(|group| Arc::ptr_eq(group, &again)));
    }
    leave(&mut interest, start);
    assert_eq!(interest.len(), count, "each group has one more stream");
    leave(&mut interest, start);
    assert_eq!((interest.len(), interest.idle.len()), (0, count));
    assert!(interest.remove_idle(start + age / 2).is_empty());
    for selection in all {
        let again = join(&mut interest, selection).unwrap();
        assert!(groups.iter().any(|group| Arc::ptr_eq(group, &again)));
    }
    assert_eq!((interest.len(), interest.idle.len()), (count, 0));
    leave(&mut interest, start + age / 2);
    assert!(interest.remove_idle(start + age).is_empty());
    assert_eq!(interest.remove_idle(start + age * 3 / 2).len(), count);
    assert_eq!((interest.members.len(), interest.idle.len()), (0, 0));
    assert!(interest.index.is_empty() && interest.ids.is_empty());
    for group in groups {
        assert_eq!(Arc::strong_count(&group), 1);
    }
}

fn limited(groups: GroupLimits) -> Interest {
    Interest::new(&Config { groups, ..config() })
}

#[test]
fn groups_without_streams_are_limited() {
    let mut interest = limited(GroupLimits {
        idle: 3,
        ..GroupLimits::default()
    });
    let start = Instant::now();
    for (node, second) in (0..10).zip(0..) {
        let group = join(&mut interest, on_node(&format!("n{node}"))).unwrap();
        let now = start + Duration::from_secs(second);
        let removed = interest.leave(&group, now);
        let removed = removed.first().map(|group| group.id);
        assert_eq!(removed, u64::checked_sub(node, 3), "the oldest");
    }
    assert_eq!((interest.members.len(), interest.idle.len()), (3, 3));
}

#[test]
fn groups_that_no_index_finds_are_limited() {
    let mut interest = limited(GroupLimits {
        unindexed: 2,
        ..GroupLimits::default()
    });
    let first = join(&mut interest, labelled("!a")).unwrap();
    let second = join(&mut interest, labelled("!b")).unwrap();
    assert!(join(&mut interest, labelled("!c")).is_none());
    // An existing group, an indexed one and the group of all objects are not refused.
    let again = join(&mut interest, labelled("!b")).unwrap();
    assert!(Arc::ptr_eq(&again, &second));
    for selection in [on_node("n1"), in_namespace("a"), Selection::default()] {
        join(&mut interest, selection).unwrap();
    }
    assert!(join(&mut interest, labelled("!c")).is_none());
    // A group without streams gives way.
    drop(interest.leave(&first, Instant::now()));
    let third = Candidate::new(Arc::new(labelled("!c")));
    let joined = interest.join(&third, &log()).expect("room");
    // It is returned, so that its queue is not freed under the locks.
    assert!(Arc::ptr_eq(&joined.replaced[0], &first));
    assert!(join(&mut interest, labelled("!d")).is_none());
}

/// `count` conditions, each on a label of its own, that no index answers.
fn conditions(prefix: &str, count: usize) -> Selection {
    let conditions: Vec<_> = (0..count)
        .map(|number| format!("!{prefix}{number}"))
        .collect();
    labelled(&conditions.join(","))
}

#[test]
fn a_group_with_many_conditions_counts_as_many() {
    let mut interest = limited(GroupLimits {
        unindexed: 10,
        ..GroupLimits::default()
    });
    assert!(join(&mut interest, conditions("a", 161)).is_none());
    let large = join(&mut interest, conditions("a", 144)).unwrap();
    let small = join(&mut interest, conditions("b", 16)).unwrap();
    assert!(join(&mut interest, labelled("!c")).is_none());
    let event = Arc::new(change(None, pod("a/x", "n1", "")));
    assert_eq!(interest.publish(0, &event, &mut Vec::new()), 10);
    // It gives way as a whole, and so do others if one does not suffice.
    drop(interest.leave(&large, Instant::now()));
    join(&mut interest, labelled("!c")).unwrap();
    drop(interest.leave(&small, Instant::now()));
    join(&mut interest, conditions("d", 144)).unwrap();
    assert_eq!((interest.members.len(), interest.idle.len()), (2, 0));
    assert_eq!(interest.limited_units, 10);
}

#[test]
fn a_group_has_a_limited_number_of_entries() {
    let values = |count: usize| {
        let values: Vec<_> = (0..count).map(|number| format!("v{number}")).collect();
        format!("a in ({})", values.join(","))
    };
    let places = [
        (labelled(&values(64)), Some(64)),
        (labelled(&values(65)), None),
        (labelled(&format!("{},b=c", values(65))), Some(1)),
        (labelled(&["a=1"; 100].join(",")), Some(1)),
        (
            Selection {
                namespace: Some("a".to_owned()),
                ..labelled(&values(15_000))
            },
            Some(1),
        ),
    ];
    for (selection, entries) in places {
        let candidate = Candidate::new(Arc::new(selection));
        let place = GroupIndex::default().place_for(&candidate.sets, candidate.units);
        let found = place.conditions.as_ref().map(Vec::len);
        assert_eq!((found, place.is_limited), (entries, entries.is_none()));
    }
    let equalities: Vec<_> = (0..1_000).map(|number| format!("a{number}=b")).collect();
    let candidate = Candidate::new(Arc::new(labelled(&equalities.join(","))));
    assert_eq!(candidate.sets.len(), 16);
}

#[test]
fn groups_that_are_found_by_one_condition_are_limited() {
    let kinds: [fn(usize) -> Selection; 2] = [
        |label| Selection {
            namespace: Some("a".to_owned()),
            ..labelled(&format!("!x{label}"))
        },
        |label| Selection {
            fields: named(None, "x").fields,
            ..labelled(&format!("!x{label}"))
        },
    ];
    for selection in kinds {
        let mut interest = limited(GroupLimits {
            unindexed: 2,
            ..GroupLimits::default()
        });
        let joined = (0..258).map(|label| join(&mut interest, selection(label)));
        let groups: Vec<_> = joined.map(Option::unwrap).collect();
        assert_eq!(interest.limited_units, 2);
        assert!(join(&mut interest, selection(258)).is_none());
        // Those that joined before, and other conditions, are not concerned.
        join(&mut interest, selection(7)).unwrap();
        join(&mut interest, on_node("n1")).unwrap();
        drop(interest.leave(&groups[257], Instant::now()));
        join(&mut interest, selection(258)).unwrap();
        assert_eq!(interest.limited_units, 2);
    }
}

#[test]
fn the_selections_of_groups_without_streams_have_a_limit_of_bytes() {
    const LIMIT: usize = 1 << 20;
    let mut interest = limited(GroupLimits {
        idle_bytes: LIMIT,
        ..GroupLimits::default()
    });
    let start = Instant::now();
    let mut removed = 0;
    for number in 0..5_000 {
        let group = join(&mut interest, labelled(&format!("app=web{number}"))).unwrap();
        let left = interest.leave(&group, start);
        assert!(left.len() <= 2);
        removed += left.len();
        assert!(interest.idle.weight <= LIMIT);
    }
    assert!(removed > 0 && interest.idle.weight > LIMIT * 9 / 10);
    // A group that would take the place of many is not kept.
    let large = join(&mut interest, conditions("a", 15_000)).unwrap();
    let left = interest.leave(&large, start);
    assert!(left.len() == 1 && Arc::ptr_eq(&left[0], &large));
    assert_eq!((interest.len(), interest.limited_units), (0, 0));
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
fn a_late_start_reads_the_log_until_its_groups_queue_begins() {
    let (mut writer, reader) = ready(None);
    for version in 11..200 {
        write(&mut writer, "a/x", version, "n1");
    }
    let from = WatchFrom::After(ResourceVersion(100));
    let mut first = watch(&reader, from, on_node("n1"));
    assert_eq!(reader.stats().groups, 1);
    assert_eq!(drain(&mut first).len(), 99);
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

/// The number of times that a poll of `stream` yields before the stream waits.
fn yields(stream: &mut WatchStream) -> usize {
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut yields = 0;
    loop {
        let polled = stream.poll_next(&mut Context::from_waker(&waker));
        assert!(polled.is_pending(), "{polled:?}");
        if wakes.0.load(Ordering::Relaxed) == yields {
            return yields;
        }
        yields += 1;
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_stream_that_was_cut_resumes_without_a_search_of_the_log() {
    let (mut writer, reader) = ready(None);
    let agents: Vec<_> = ["n1", "n2"].map(on_node).into();
    let open = |selection: &Selection| watch(&reader, WatchFrom::Tip, selection.clone());
    let cut: Vec<_> = agents.iter().map(open).collect();
    for version in 11..8_000 {
        write(&mut writer, "a/x", version, "n9");
    }
    write(&mut writer, "a/y", 8_000, "n1");
    drop(cut);
    assert_eq!(reader.stats().groups, 0);
    write(&mut writer, "a/z", 8_001, "n1");
    let resume = |version, selection: &Selection| {
        let from = WatchFrom::After(ResourceVersion(version));
        watch(&reader, from, selection.clone())
    };
    let mut first = resume(10, &agents[0]);
    assert_eq!(
        describe(&drain(&mut first)),
        ["ADDED a/y@8000", "ADDED a/z@8001"]
    );
    assert_eq!(yields(&mut resume(10, &agents[1])), 0);
    // A selection that was not watched before is searched for in the log.
    assert_eq!(yields(&mut resume(10, &on_node("n3"))), 3);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_drops_many_groups_that_were_idle_for_too_long() {
    let (mut writer, reader) = ready(None);
    let nodes = (0..1_000).map(|node| on_node(&format!("n{node}")));
    let open = |selection| watch(&reader, WatchFrom::Tip, selection);
    drop(nodes.map(open).collect::<Vec<_>>());
    let groups = |writer: &Writer| writer.shared().interest.lock().members.len();
    tokio::time::advance(config().retention_age).await;
    // A change drops some, so that it is not delayed for long.
    write(&mut writer, "a/x", 11, "n1");
    assert_eq!(groups(&writer), 1_000 - DROPPED_AT_ONCE);
    writer.bookmark(ResourceVersion(12)).unwrap();
    assert_eq!(groups(&writer), 0);
}

#[tokio::test(start_paused = true)]
async fn groups_that_were_idle_for_too_long_leave_within_a_few_changes() {
    let (mut writer, reader) = ready(None);
    let nodes = (0..10_000).map(|node| on_node(&format!("n{node}")));
    let open = |selection| watch(&reader, WatchFrom::Tip, selection);
    drop(nodes.map(open).collect::<Vec<_>>());
    tokio::time::advance(config().retention_age).await;
    for version in 11..=50 {
        write(&mut writer, "a/x", version, "n1");
    }
    assert_eq!(writer.shared().interest.lock().members.len(), 0);
}

#[test]
fn the_bytes_of_queues_are_those_that_are_allocated() {
    let (mut writer, reader) = ready(None);
    let streams: Vec<_> = (0..20)
        .map(|node| with_field(Field::Value(0), false, &format!("m{node}")))
        .map(|selection| watch(&reader, WatchFrom::Tip, selection))
        .collect();
    let check = |writer: &Writer| {
        let interest = writer.shared().interest.lock();
        let capacity: usize = interest.groups().map(|group| group.capacity()).sum();
        assert_eq!(interest.queued, capacity);
        assert!(interest.queue_bytes() >= capacity * QUEUED_EVENT_BYTES);
        capacity
    };
    for version in 11..=1_010 {
        write(&mut writer, "a/x", version, "n1");
        check(&writer);
    }
    let full = check(&writer);
    assert!((20_000..=50_000).contains(&full), "{full}");
    {
        // All but the newest hundred events leave the queues.
        let first = writer.shared().state.read().log.tip() - 100;
        writer.shared().interest.lock().evict(first, usize::MAX);
    }
    let few = check(&writer);
    assert!((2_000..=4_000).contains(&few), "{few}");
    drop(streams);
}

#[test]
fn queues_have_a_limit_of_their_own() {
    let (mut writer, reader) = cache(Config {
        groups: GroupLimits {
            queue_bytes: 100 * (50 * 32 + 32),
            ..GroupLimits::default()
        },
        ..config()
    });
    writer.replace(writer.relist(), ResourceVersion(10));
    let nodes = (0..50).map(|node| with_field(Field::Value(0), false, &format!("m{node}")));
    let mut streams: Vec<_> = nodes
        .map(|selection| watch(&reader, WatchFrom::Tip, selection))
        .collect();
    write(&mut writer, "a/x", 11, "n1");
    let alone = reader.stats().log_bytes;
    for version in 12..=1_010 {
        write(&mut writer, "a/x", version, "n1");
    }
    let stats = reader.stats();
    assert_eq!(stats.log_events, 1_000, "queues do not shorten the log");
    assert!(stats.log_bytes <= 1_000 * 2 * alone);
    {
        let interest = writer.shared().interest.lock();
        let limit = interest.limits.queue_bytes;
        // A queue that is too large is halved.
        assert!((limit / 3..=limit).contains(&interest.queue_bytes()));
    }
    // What left the queue is read from the log, by open streams and by those that resume.
    let mut last = streams.pop().unwrap();
    assert_eq!(drain(&mut last).len(), 1_000);
    assert_eq!(last.bookmark(), Some(ResourceVersion(1_010)));
    let resumed = WatchFrom::After(ResourceVersion(500));
    let selection = with_field(Field::Value(0), false, "m7");
    assert_eq!(drain(&mut watch(&reader, resumed, selection)).len(), 510);
    writer.forget_history();
    assert_eq!(reader.stats().log_bytes, 0);
    assert_eq!(writer.shared().interest.lock().queue_bytes(), 0);
    assert_eq!(describe(&drain(&mut streams[0])), ["expired"]);
    writer.new_epoch(EpochCause::WentBack);
    assert_eq!(reader.stats().groups, 0);
    drop((streams, last));
    let everything = reader.watch(WatchFrom::Tip, everything());
    assert!(everything.is_err(), "not ready");
    assert_eq!(writer.shared().watchers.load(Ordering::Relaxed), 0);
}

#[test]
fn the_memory_of_the_order_drops_few_events() {
    let nodes = || (0..3_000).map(|node| format!("n{node}"));
    let (mut interest, _groups) = joined(nodes().map(|node| on_node(&node)));
    // About a thousand events fit. Then the order's memory doubles.
    interest.limits.queue_bytes = 125_000;
    let mut least = usize::MAX;
    for (position, node) in (0..).zip(nodes()) {
        let event = Arc::new(change(None, pod("a/x", &node, "")));
        interest.publish(position, &event, &mut Vec::new());
        let before = interest.queue_order.len();
        interest.evict(0, usize::MAX);
        let dropped = before - interest.queue_order.len();
        assert!(dropped <= before / 8, "{dropped} of {before}");
        assert!(interest.queue_bytes() <= interest.limits.queue_bytes);
        if dropped > 0 {
            least = least.min(interest.queue_order.len());
        }
    }
    assert!((500..3_000).contains(&least), "{least}");
}
