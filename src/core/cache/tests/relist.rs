//! Tests of relists: the block, holes, new epochs, and changes that imply missed events.

use std::sync::Arc;

use bytes::Bytes;

use crate::api::{EventType, Object, ResourceVersion, Selection};
use crate::cache::tests::support::{config, describe, drain, everything, key, object, with_label};
use crate::cache::{
    EpochCause, Expired, Reader, ReplaceOutcome, WatchError, WatchFrom, WatchItem, WatchStream,
    WentBack, Writer, cache,
};

/// A cache with four objects of versions 11 to 14, at resource version 20.
fn four_objects() -> (Writer, Reader) {
    let (mut writer, reader) = cache(config());
    let mut relist = writer.relist();
    for (version, text) in [(12, "a/x"), (11, "a/y"), (13, "b/x"), (14, "b/y")] {
        relist.add(object(text, "u", version, "web"));
    }
    assert_eq!(
        writer.replace(relist, ResourceVersion(20)),
        ReplaceOutcome::First
    );
    (writer, reader)
}

fn replace(writer: &mut Writer, objects: &[Object], version: u64) -> ReplaceOutcome {
    let mut relist = writer.relist();
    for object in objects {
        relist.add(object.clone());
    }
    writer.replace(relist, ResourceVersion(version))
}

fn watch(reader: &Reader, start: u64) -> Result<Vec<String>, WatchError> {
    let start = WatchFrom::After(ResourceVersion(start));
    let mut stream = reader.watch(start, everything())?;
    Ok(describe(&drain(&mut stream)))
}

fn expired(requested: u64, oldest: u64) -> Result<Vec<String>, WatchError> {
    Err(WatchError::Expired(Expired {
        requested: ResourceVersion(requested),
        oldest: ResourceVersion(oldest),
    }))
}

/// A list in which, compared with [`four_objects`], `a/x` is unchanged, `a/y` is gone, `b/x` is
/// recreated, `b/y` is changed and `c/x` is new.
fn changed_objects() -> [Object; 4] {
    [
        object("c/x", "u", 28, "web"),
        object("b/y", "u", 26, "web"),
        object("b/x", "u2", 27, "web"),
        object("a/x", "u", 12, "web"),
    ]
}

#[test]
fn the_block_comes_first_and_then_changes_in_order() {
    let (mut writer, reader) = four_objects();
    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    let replaced = replace(&mut writer, &changed_objects(), 30);
    let expected = ReplaceOutcome::Diffed {
        added: 2,
        modified: 1,
        deleted: 2,
    };
    assert_eq!(replaced, expected);
    let items = drain(&mut stream);
    assert_eq!(
        describe(&items),
        [
            "DELETED a/y@20",
            "DELETED b/x@20",
            "MODIFIED b/y@26",
            "ADDED b/x@27",
            "ADDED c/x@28"
        ]
    );
    let WatchItem::Change { event, verdict } = &items[0] else {
        panic!("{items:?}");
    };
    let shown = event.object_for(*verdict);
    assert_eq!(shown.resource_version, ResourceVersion(11), "own version");
    assert_eq!(stream.bookmark(), Some(ResourceVersion(30)));
    let snapshot = reader.snapshot().unwrap();
    assert_eq!(snapshot.resource_version(), ResourceVersion(30));
    let all = everything();
    let mut expected = changed_objects();
    expected.sort_by_key(|object| object.key.clone());
    let listed = snapshot
        .list(&all, None)
        .map(|object| Object::clone(&object));
    assert!(listed.eq(expected));
}

#[test]
fn starts_around_a_hole_are_served_and_starts_inside_expire() {
    let (mut writer, reader) = four_objects();
    writer.bookmark(ResourceVersion(22)).unwrap();
    let mut ahead_inside = reader
        .watch(WatchFrom::After(ResourceVersion(27)), everything())
        .unwrap();
    let mut ahead_at_the_end = reader
        .watch(WatchFrom::After(ResourceVersion(30)), everything())
        .unwrap();
    replace(&mut writer, &changed_objects(), 30);
    let later = object("d/x", "u", 31, "web");
    writer.apply(EventType::Added, later, None).unwrap();

    for start in [20, 21, 22] {
        let items = watch(&reader, start).unwrap();
        assert_eq!(items.len(), 6, "from {start}: {items:?}");
        assert_eq!(items[0], "DELETED a/y@22");
    }
    for start in 23..30 {
        assert_eq!(watch(&reader, start), expired(start, 30));
    }
    for start in [30, 31, 32] {
        let items = watch(&reader, start).unwrap();
        assert_eq!(items.len(), usize::from(start == 30), "{start}: {items:?}");
    }
    assert_eq!(watch(&reader, 19), expired(19, 20));
    assert_eq!(
        Expired {
            requested: ResourceVersion(19),
            oldest: ResourceVersion(20)
        }
        .to_string(),
        "too old resource version: 19 (20)"
    );
    assert_eq!(ahead_inside.bookmark(), None);
    assert_eq!(describe(&drain(&mut ahead_inside)), ["expired"]);
    assert_eq!(describe(&drain(&mut ahead_at_the_end)), ["ADDED d/x@31"]);
}

#[test]
fn a_watch_from_a_future_version_is_silent_until_it_passes() {
    let (mut writer, reader) = four_objects();
    let start = WatchFrom::After(ResourceVersion(22));
    let mut stream = reader.watch(start, everything()).unwrap();
    for version in 21..25 {
        let text = format!("n/{version}");
        let written = object(&text, "u", version, "web");
        writer.apply(EventType::Added, written, None).unwrap();
        let items = describe(&drain(&mut stream));
        match version {
            21 | 22 => assert_eq!((items, stream.bookmark()), (vec![], None)),
            _ => assert_eq!(items, [format!("ADDED n/{version}@{version}")]),
        }
    }
}

#[test]
fn a_hole_is_recorded_even_if_nothing_differs() {
    let (mut writer, reader) = four_objects();
    let all = everything();
    let same: Vec<_> = reader.snapshot().unwrap().list(&all, None).collect();
    let same: Vec<_> = same.iter().map(|object| Object::clone(object)).collect();
    let nothing = ReplaceOutcome::Diffed {
        added: 0,
        modified: 0,
        deleted: 0,
    };
    // A list at the applied version opens no hole.
    assert_eq!(replace(&mut writer, &same, 20), nothing);
    assert_eq!(replace(&mut writer, &same, 23), nothing);
    assert_eq!(watch(&reader, 20).unwrap().len(), 0);
    assert_eq!(watch(&reader, 21), expired(21, 23));
    assert_eq!(watch(&reader, 23).unwrap().len(), 0);
    assert_eq!(reader.stats().log_events, 0);
}

#[test]
fn a_list_that_no_events_explain_starts_a_new_epoch() {
    let mut other_bytes = object("a/x", "u", 12, "web");
    other_bytes.body = Bytes::from_static(b"converted");
    let first = [object("a/x", "u", 12, "web")];
    let cases = [
        ("bytes differ", other_bytes, 25, EpochCause::BytesDiffer),
        ("list below", first[0].clone(), 19, EpochCause::WentBack),
        (
            "two states of one version",
            first[0].clone(),
            20,
            EpochCause::WentBack,
        ),
        (
            "an unknown old object",
            object("z/z", "u", 15, "web"),
            25,
            EpochCause::WentBack,
        ),
        (
            "an older state",
            object("a/x", "u", 11, "web"),
            25,
            EpochCause::WentBack,
        ),
        (
            "an object newer than the list",
            object("a/x", "u", 26, "web"),
            25,
            EpochCause::WentBack,
        ),
    ];
    for (name, listed, version, cause) in cases {
        let (mut writer, reader) = four_objects();
        let old = reader.snapshot().unwrap();
        reader.pin(&old);
        let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
        let mut initial = reader.watch(WatchFrom::Snapshot, everything()).unwrap();
        let list = [listed.clone()];
        let replaced = replace(&mut writer, &list, version);
        assert_eq!(replaced, ReplaceOutcome::NewEpoch(cause), "{name}");
        assert_eq!(describe(&drain(&mut stream)), ["expired"], "{name}");
        assert_eq!(describe(&drain(&mut initial)), ["expired"], "{name}");
        assert!(reader.watch_snapshot(old.clone(), everything()).is_err());
        reader.pin(&old);
        let stats = reader.stats();
        assert_eq!((stats.pinned, stats.log_events, stats.objects), (0, 0, 1));
        assert_eq!((stats.epochs, stats.last_epoch_cause), (1, Some(cause)));
        assert_eq!(stats.log_start, Some(ResourceVersion(version)));
        let now = reader.snapshot().unwrap();
        assert_eq!(now.resource_version(), ResourceVersion(version));
        assert_eq!(*now.get(&listed.key).unwrap(), listed);
    }
}

#[test]
fn the_block_deletes_objects_that_no_longer_match_a_selector() {
    let (mut writer, reader) = four_objects();
    let watch = |selection: Selection| {
        let stream = reader.watch(WatchFrom::After(ResourceVersion(20)), Arc::new(selection));
        stream.unwrap()
    };
    let (mut all, mut web, mut db) = (
        watch(Selection::default()),
        watch(with_label("web")),
        watch(with_label("db")),
    );
    let list = [
        object("a/x", "u", 24, "web"),
        object("a/y", "u", 26, "db"),
        object("b/x", "u", 13, "web"),
    ];
    replace(&mut writer, &list, 30);
    let items = |stream: &mut WatchStream| describe(&drain(stream));
    let expected = ["DELETED b/y@20", "MODIFIED a/x@24", "MODIFIED a/y@26"];
    assert_eq!(items(&mut all), expected);
    let expected = ["DELETED b/y@20", "DELETED a/y@20", "MODIFIED a/x@24"];
    assert_eq!(items(&mut web), expected);
    assert_eq!(items(&mut db), ["ADDED a/y@26"]);
}

#[test]
fn versions_of_an_earlier_epoch_expire_and_do_not_wait() {
    let (mut writer, reader) = four_objects();
    let first = object("a/x", "u", 8, "web");
    let replaced = replace(&mut writer, &[first], 9);
    assert_eq!(replaced, ReplaceOutcome::NewEpoch(EpochCause::WentBack));
    assert_eq!(watch(&reader, 20), expired(20, 9));
    assert_eq!(watch(&reader, 10), expired(10, 9));
    assert_eq!(watch(&reader, 9), Ok(vec![]));
    // No earlier epoch reached version 21, so the watch waits for it.
    assert_eq!(watch(&reader, 21), Ok(vec![]));
    writer.bookmark(ResourceVersion(20)).unwrap();
    assert_eq!(watch(&reader, 20), Ok(vec![]));
}

#[test]
fn after_a_new_epoch_nothing_is_served_until_the_next_list() {
    let (mut writer, reader) = four_objects();
    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    writer.new_epoch(EpochCause::BytesDiffer);
    assert!(!reader.is_ready());
    assert_eq!(writer.applied(), None);
    assert_eq!(describe(&drain(&mut stream)), ["expired"]);
    assert!(reader.watch(WatchFrom::Snapshot, everything()).is_err());
    let first = [object("a/x", "u", 12, "web")];
    assert_eq!(replace(&mut writer, &first, 15), ReplaceOutcome::First);
    assert_eq!(watch(&reader, 15).unwrap().len(), 0);
}

#[test]
fn a_relist_follows_a_watch_list_and_holds_only_what_differs() {
    let (mut writer, reader) = four_objects();
    let stored = reader.snapshot().unwrap().get(&key("a/x")).unwrap();
    let before = std::sync::Arc::strong_count(&stored);
    let mut relist = writer.relist();
    relist.add(object("a/x", "u", 12, "web"));
    assert_eq!(std::sync::Arc::strong_count(&stored), before + 1, "shared");
    relist.add(object("a/y", "u", 11, "web"));
    relist.add(object("b/y", "u", 14, "web"));
    relist.add(object("n/x", "u", 22, "web"));
    relist.add(object("b/y", "u", 23, "web"));
    relist.remove(&key("a/y"));
    relist.remove(&key("n/x"));
    assert_eq!((relist.len(), relist.is_empty()), (2, false));
    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    writer.replace(relist, ResourceVersion(25));
    assert_eq!(
        describe(&drain(&mut stream)),
        ["DELETED a/y@20", "DELETED b/x@20", "MODIFIED b/y@23"]
    );
}

#[test]
fn apply_refuses_older_versions_and_skips_repeats() {
    use EventType::{Added, Deleted, Modified};
    let (mut writer, reader) = four_objects();
    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    let mut apply = |event_type, object| writer.apply(event_type, object, None);
    let went_back = |received| {
        Err(WentBack {
            applied: ResourceVersion(20),
            received: ResourceVersion(received),
        })
    };
    let repeated = object("a/x", "u", 12, "web");
    assert_eq!(apply(Modified, repeated.clone()), Ok(()));
    assert_eq!(apply(Added, repeated.clone()), Ok(()));
    assert_eq!(apply(Deleted, repeated.clone()), went_back(12));
    assert_eq!(apply(Added, object("a/x", "u2", 12, "web")), went_back(12));
    assert_eq!(apply(Added, object("n/x", "u", 20, "web")), went_back(20));
    assert_eq!(apply(Added, object("n/x", "u", 1, "web")), went_back(1));
    assert_eq!(writer.bookmark(ResourceVersion(19)), went_back(19));
    assert_eq!(writer.bookmark(ResourceVersion(20)), Ok(()));
    assert!(drain(&mut stream).is_empty());
    assert_eq!(reader.stats().events, 0);
}

#[test]
fn apply_implies_the_events_that_were_missed() {
    use EventType::{Added, Deleted, Modified};
    let (mut writer, reader) = four_objects();
    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    let mut apply = |event_type, object| {
        writer.apply(event_type, object, None).unwrap();
        describe(&drain(&mut stream))
    };
    // A deletion of an unknown object makes no event, but increases the applied version.
    assert!(apply(Deleted, object("n/n", "u", 21, "web")).is_empty());
    assert_eq!(reader.snapshot().unwrap().resource_version().0, 21);
    assert_eq!(
        apply(Modified, object("n/x", "u", 22, "web")),
        ["ADDED n/x@22"]
    );
    assert_eq!(
        apply(Added, object("n/x", "u", 23, "web")),
        ["MODIFIED n/x@23"]
    );
    assert_eq!(
        apply(Added, object("n/x", "u2", 26, "web")),
        ["DELETED n/x@23", "ADDED n/x@26"]
    );
    // The version of the missed deletion is unknown, so 23 to 26 is a hole like one of a relist.
    assert_eq!(
        watch(&reader, 23).unwrap(),
        ["DELETED n/x@23", "ADDED n/x@26"]
    );
    assert_eq!(watch(&reader, 24), expired(24, 26));
}
