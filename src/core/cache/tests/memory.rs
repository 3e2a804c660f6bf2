//! Tests of the memory that stored objects keep: watch frames and the texts of keys.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::advance;

use crate::api::{EventType, Object, ObjectValues, ResourceVersion};
use crate::cache::tests::support::{config, key};
use crate::cache::{Config, Reader, Writer, cache};

/// Body size that exactly fills an allocation, so a copy takes less memory than its frame.
const FULL: usize = 2048;
/// Body size for which the frame takes the same allocation as a copy of the body.
const ROOMY: usize = 2100;

/// An object whose body of `length` bytes is a slice of a frame, and the frame.
fn framed(text: &str, version: u64, length: usize) -> (Object, Bytes) {
    let body = format!("{version:x>length$}");
    let frame = Bytes::from(format!("{:<56}{body}\n", "type"));
    let values = ObjectValues {
        fields: vec!["web".into()],
        ..ObjectValues::default()
    };
    let body = frame.slice(56..56 + length);
    let object = Object::new(key(text), ResourceVersion(version), &values, body);
    (object, frame)
}

fn stored(reader: &Reader, text: &str) -> Arc<Object> {
    let snapshot = reader.snapshot().unwrap();
    snapshot.get(&key(text)).unwrap()
}

fn is_in(object: &Object, frame: &Bytes) -> bool {
    frame.as_ptr_range().contains(&object.body.as_ptr())
}

#[tokio::test(start_paused = true)]
async fn an_object_does_not_keep_a_frame_that_the_log_evicted() {
    let (mut writer, reader) = cache(config());
    let relist = writer.relist();
    writer.replace(relist, ResourceVersion(10));
    let mut frames = Vec::new();
    for (version, text, length) in [(11, "full", FULL), (12, "roomy", ROOMY), (13, "gone", FULL)] {
        let (object, frame) = framed(text, version, length);
        writer
            .apply(EventType::Added, object, Some(frame.clone()))
            .unwrap();
        assert!(is_in(&stored(&reader, text), &frame), "shared with the log");
        frames.push(frame);
    }
    let before = reader.snapshot().unwrap();
    advance(Duration::from_secs(75)).await;
    // This change makes the log evict the three events, and replaces the object of the third one.
    let (object, newer) = framed("gone", 14, FULL);
    writer
        .apply(EventType::Modified, object, Some(newer.clone()))
        .unwrap();
    writer.bookmark(ResourceVersion(15)).unwrap();
    assert!(!is_in(&stored(&reader, "full"), &frames[0]));
    assert!(
        is_in(&stored(&reader, "roomy"), &frames[1]),
        "a copy saves nothing"
    );
    assert!(is_in(&stored(&reader, "gone"), &newer), "the log keeps it");
    for (text, version) in [("full", 11), ("roomy", 12)] {
        assert_eq!(stored(&reader, text), before.get(&key(text)).unwrap());
        assert_eq!(stored(&reader, text).resource_version.0, version);
    }
    assert_eq!(stored(&reader, "gone").resource_version.0, 14);
    assert!(is_in(&before.get(&key("full")).unwrap(), &frames[0]), "I2");
}

/// Until then, an object that changes often was replaced, and a copy would have been useless.
#[test]
fn a_body_is_copied_after_as_many_more_evictions_as_the_log_has_events() {
    let (mut writer, reader) = cache(Config {
        retention_age: Duration::ZERO,
        retention_events: 2,
        ..config()
    });
    let relist = writer.relist();
    writer.replace(relist, ResourceVersion(10));
    let mut first = None;
    // The third change makes the log evict the first one.
    for (version, text, is_framed) in [
        (11, "rare", true),
        (12, "often", true),
        (13, "often", true),
        (14, "often", true),
        (15, "often", false),
    ] {
        let (object, frame) = framed(text, version, FULL);
        let first = first.get_or_insert(frame.clone());
        let applied = writer.apply(EventType::Modified, object, Some(frame));
        applied.unwrap();
        let rare = stored(&reader, "rare");
        assert_eq!(is_in(&rare, first), is_framed, "{version}");
        assert_eq!(rare.resource_version.0, 11);
    }
}

/// Applies a change of each of the objects from 0 to `count`, and returns their frames.
fn change_all(writer: &mut Writer, count: u64, version: u64) -> Vec<Bytes> {
    let change = |index: u64| {
        let (object, frame) = framed(&format!("{index:05}"), version + index, FULL);
        let applied = writer.apply(EventType::Modified, object, Some(frame.clone()));
        applied.unwrap();
        frame
    };
    (0..count).map(change).collect()
}

/// How many of the objects from 0 are slices of their frames.
fn count_framed(reader: &Reader, frames: &[Bytes]) -> usize {
    let is_framed = |(index, frame): &(usize, &Bytes)| {
        let object = stored(reader, &format!("{index:05}"));
        is_in(&object, frame)
    };
    frames.iter().enumerate().filter(is_framed).count()
}

#[test]
fn a_bookmark_copies_the_bodies_of_many_objects() {
    for (count, left) in [(200, 0), (1_100, 76)] {
        let (mut writer, reader) = cache(Config {
            retention_bytes: Some(usize::MAX),
            ..config()
        });
        let relist = writer.relist();
        writer.replace(relist, ResourceVersion(10));
        let frames = change_all(&mut writer, count, 11);
        assert_eq!(count_framed(&reader, &frames), frames.len());
        writer.forget_history();
        writer.bookmark(ResourceVersion(5_000)).unwrap();
        assert_eq!(count_framed(&reader, &frames), left);
        writer.bookmark(ResourceVersion(5_001)).unwrap();
        assert_eq!(count_framed(&reader, &frames), 0);
    }
}

/// Such an object needs no copy, and a weak reference would keep its allocation.
#[test]
fn no_replaced_object_waits_for_a_copy() {
    let (mut writer, _reader) = cache(config());
    let relist = writer.relist();
    writer.replace(relist, ResourceVersion(10));
    change_all(&mut writer, 100, 11);
    change_all(&mut writer, 100, 1_011);
    writer.forget_history();
    assert_eq!(writer.frame_backed_objects(), 100);
}

#[test]
fn an_object_does_not_keep_a_frame_of_a_forgotten_history() {
    let (mut writer, reader) = cache(config());
    let relist = writer.relist();
    writer.replace(relist, ResourceVersion(10));
    let (object, frame) = framed("full", 11, FULL);
    let applied = writer.apply(EventType::Added, object, Some(frame.clone()));
    applied.unwrap();
    assert!(is_in(&stored(&reader, "full"), &frame));
    writer.forget_history();
    writer.bookmark(ResourceVersion(12)).unwrap();
    assert!(!is_in(&stored(&reader, "full"), &frame));
}

#[test]
fn a_list_read_from_frames_keeps_no_frame_that_outweighs_its_object() {
    let (mut writer, reader) = cache(config());
    let mut relist = writer.relist();
    let (full, frame_of_full) = framed("full", 1, FULL);
    let (roomy, frame_of_roomy) = framed("roomy", 2, ROOMY);
    relist.add_from_frame(full.clone(), &frame_of_full);
    relist.add_from_frame(roomy.clone(), &frame_of_roomy);
    writer.replace(relist, ResourceVersion(10));
    assert_eq!(*stored(&reader, "full"), full);
    assert_eq!(*stored(&reader, "roomy"), roomy);
    assert!(!is_in(&stored(&reader, "full"), &frame_of_full));
    assert!(is_in(&stored(&reader, "roomy"), &frame_of_roomy));
}

#[test]
fn the_versions_of_an_object_share_the_text_of_their_key() {
    let (mut writer, reader) = cache(config());
    let mut relist = writer.relist();
    relist.add(framed("a/x", 1, FULL).0);
    writer.replace(relist, ResourceVersion(10));
    let first = stored(&reader, "a/x");
    let (object, frame) = framed("a/x", 11, FULL);
    writer
        .apply(EventType::Modified, object, Some(frame))
        .unwrap();
    let mut relist = writer.relist();
    relist.add(framed("a/x", 12, FULL).0);
    let second = stored(&reader, "a/x");
    writer.replace(relist, ResourceVersion(12));
    let third = stored(&reader, "a/x");
    assert_eq!(third.resource_version.0, 12);
    for other in [second, third] {
        assert_eq!(first.key.as_str().as_ptr(), other.key.as_str().as_ptr());
    }
}
