//! Decodes recorded watch events of a real API server and encodes them again.

use bytes::Bytes;

use super::support::{JSON, PROTOBUF, change, decoder, frames, golden};
use crate::api::{EventType, ResourceVersion, WatchEvent};
use crate::codec::{BookmarkTemplate, Encoder, TypeMeta};

#[test]
fn events_are_printed_as_received() {
    for (format, stream) in [
        (JSON, golden!("sie-ok-unset.json")),
        (JSON, golden!("watch-add-mod-del.json")),
        (JSON, golden!("watch-configmap-escape.json")),
        (JSON, golden!("cr-watch.json")),
        (JSON, golden!("cr-watch-sie.json")),
        (JSON, golden!("sie-empty.json")),
        (PROTOBUF, golden!("watch-pb.bin")),
        (PROTOBUF, golden!("sie-pb.bin")),
    ] {
        for frame in frames(format, stream) {
            let type_meta = TypeMeta::read(format, &frame).unwrap();
            let encoder = Encoder::from_type_meta(format, &type_meta);
            let printed = match decoder(format).event(frame.clone()).unwrap() {
                WatchEvent::Change {
                    event_type, object, ..
                } => encoder.event(event_type, &object),
                WatchEvent::Bookmark(bookmark) => {
                    let template = BookmarkTemplate::from_frame(format, &frame).unwrap();
                    let encoder = encoder.with_bookmark_template(template);
                    encoder.bookmark(bookmark.resource_version, bookmark.initial_events_end)
                }
                WatchEvent::Error(status) => panic!("an ERROR event: {status:?}"),
            };
            assert_eq!(printed, frame);
        }
    }
}

#[test]
fn an_event_keeps_its_frame_and_shares_its_memory() {
    for (format, stream) in [
        (JSON, golden!("watch-add-mod-del.json")),
        (PROTOBUF, golden!("watch-pb.bin")),
    ] {
        let received = frames(format, stream).swap_remove(0);
        let WatchEvent::Change { object, frame, .. } =
            decoder(format).event(received.clone()).unwrap()
        else {
            panic!("not a change");
        };
        assert_eq!(frame, received);
        assert!(received.as_ptr_range().contains(&object.body.as_ptr()));
    }
}

#[test]
fn an_object_that_leaves_a_selector_is_printed_as_the_server_does() {
    let cases = [
        (JSON, golden!("watch-label-enter-leave.json"), 1, 2),
        (JSON, golden!("cr-watch-field.json"), 1, 2),
        (PROTOBUF, golden!("watch-pb.bin"), 5, 6),
    ];
    for (format, stream, before, deleted) in cases {
        let frames = frames(format, stream);
        let type_meta = TypeMeta::read(format, &frames[0]).unwrap();
        let encoder = Encoder::from_type_meta(format, &type_meta);
        let (_, object) = change(decoder(format).event(frames[before].clone()).unwrap());
        let (event_type, last) = change(decoder(format).event(frames[deleted].clone()).unwrap());
        assert_eq!(event_type, EventType::Deleted);
        let printed = encoder.deleted_at(&object, last.resource_version);
        assert_eq!(printed, frames[deleted]);
    }
}

#[test]
fn a_longer_resource_version_rewrites_all_lengths() {
    let rv = ResourceVersion(u64::MAX);
    for (format, stream) in [
        (JSON, golden!("watch-add-mod-del.json")),
        (PROTOBUF, golden!("watch-pb.bin")),
    ] {
        let frame = frames(format, stream).swap_remove(0);
        let (_, object) = change(decoder(format).event(frame).unwrap());
        let encoder = Encoder::new(format, "Pod", "v1");
        let deleted = encoder.deleted_at(&object, rv);
        let (event_type, read) = change(decoder(format).event(deleted).unwrap());
        assert_eq!(event_type, EventType::Deleted);
        assert_eq!(read.resource_version, rv);
        assert_eq!(read.key, object.key);
        assert!(read.has_same_selectable_values(&object));
    }
}

#[test]
fn retarget_changes_only_the_type() {
    for (format, stream, at) in [
        (JSON, golden!("watch-add-mod-del.json"), 1),
        (JSON, golden!("cr-watch.json"), 2),
        (PROTOBUF, golden!("watch-pb.bin"), 3),
    ] {
        let frame = frames(format, stream).swap_remove(at);
        let encoder = Encoder::from_type_meta(format, &TypeMeta::read(format, &frame).unwrap());
        let (_, object) = change(decoder(format).event(frame.clone()).unwrap());
        let expected = encoder.event(EventType::Added, &object);
        assert_eq!(
            encoder.retarget(&frame, EventType::Added).unwrap(),
            expected
        );
    }
    let encoder = Encoder::new(PROTOBUF, "Pod", "v1");
    assert_eq!(
        encoder.retarget(&Bytes::from_static(b"xx"), EventType::Added),
        None
    );
}

#[test]
fn error_events_are_read_and_printed() {
    for frame in [
        golden!("sie-too-large.json"),
        golden!("comp-after-watch-rv1-crd.json"),
    ] {
        let WatchEvent::Error(status) = decoder(JSON).event(frame.clone()).unwrap() else {
            panic!("not an ERROR event");
        };
        assert_eq!(Encoder::new(JSON, "Pod", "v1").error(&status), frame);
        let printed = Encoder::new(PROTOBUF, "Pod", "v1").error(&status);
        match decoder(PROTOBUF).event(printed).unwrap() {
            WatchEvent::Error(read) => assert_eq!(read, status),
            other => panic!("not an ERROR event: {other:?}"),
        }
    }
}
