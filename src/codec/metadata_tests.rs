//! Metadata on its own, against what a real API server made of the same objects.

use std::sync::Arc;

use bytes::Bytes;

use super::BookmarkTemplate;
use super::Decoder;
use super::Encoder;
use super::FrameSplitter;
use super::MetaVersion;
use super::TypeMeta;
use super::metadata::in_declared_order;
use super::object_meta;
use crate::api::EventType;
use crate::api::Object;
use crate::api::ResourceVersion;
use crate::api::SelectableFields;
use crate::api::WatchEvent;
use crate::api::WireFormat;

macro_rules! golden {
    ($name:literal) => {
        Bytes::from_static(include_bytes!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/golden/codec/",
            $name
        )))
    };
}

const JSON: WireFormat = WireFormat::Json;
const PROTOBUF: WireFormat = WireFormat::Protobuf;
const V1: MetaVersion = MetaVersion::V1;

fn decoder(format: WireFormat) -> Decoder {
    Decoder::new(format, Arc::new(SelectableFields::default()))
}

fn object(format: WireFormat, body: &Bytes) -> Object {
    decoder(format).object(body).expect("an object")
}

fn pods(format: WireFormat) -> Encoder {
    Encoder::new(format, "Pod", "v1")
}

fn widgets() -> Encoder {
    Encoder::new(JSON, "Widget", "example.kubefan.io/v1").with_embedded_type_meta(true)
}

#[test]
fn objects() {
    let rows = [
        (
            pods(JSON),
            JSON,
            golden!("get-pod.json"),
            golden!("get-pod-pom.json"),
        ),
        (
            pods(PROTOBUF),
            PROTOBUF,
            golden!("get-pod-pb.bin"),
            golden!("get-pod-pom-pb.bin"),
        ),
        (
            pods(JSON),
            JSON,
            golden!("rich-pod.json"),
            golden!("rich-pod-pom.json"),
        ),
        (
            pods(PROTOBUF),
            PROTOBUF,
            golden!("rich-pod-pb.bin"),
            golden!("rich-pod-pom-pb.bin"),
        ),
        // A simulated API server has no protobuf of its own.
        (
            pods(JSON),
            PROTOBUF,
            golden!("rich-pod.json"),
            golden!("rich-pod-pom-pb.bin"),
        ),
        (
            widgets(),
            JSON,
            golden!("rich-cr.json"),
            golden!("rich-cr-pom.json"),
        ),
        (
            widgets(),
            PROTOBUF,
            golden!("rich-cr.json"),
            golden!("rich-cr-pom-pb.bin"),
        ),
    ];
    for (encoder, format, whole, expected) in rows {
        let object = object(encoder.format(), &whole);
        let printed = encoder.partial(format, V1).object_body(&object);
        assert_eq!(Bytes::from(printed.concat()), expected);
    }
}

/// What does not change is not copied.
#[test]
fn metadata_of_built_in_kinds_is_a_slice() {
    for (format, whole) in [
        (JSON, golden!("rich-pod.json")),
        (PROTOBUF, golden!("rich-pod-pb.bin")),
    ] {
        let object = object(format, &whole);
        let body = object.body.as_ptr_range();
        let printed = pods(format).partial(format, V1).object_body(&object);
        let shared = printed.iter().filter(|part| body.contains(&part.as_ptr()));
        assert_eq!(shared.count(), 1, "{format:?}");
    }
}

#[test]
fn lists() {
    let rows = [
        (
            pods(JSON),
            (JSON, V1),
            golden!("list-pods.json"),
            "214",
            golden!("list-pods-pom.json"),
        ),
        (
            pods(PROTOBUF),
            (PROTOBUF, V1),
            golden!("list-pods-pb.bin"),
            "214",
            golden!("list-pods-pom-pb.bin"),
        ),
        (
            pods(JSON),
            (JSON, MetaVersion::V1Beta1),
            golden!("rich-list.json"),
            "260",
            golden!("rich-list-pom-beta.json"),
        ),
        (
            pods(PROTOBUF),
            (PROTOBUF, MetaVersion::V1Beta1),
            golden!("rich-list-pb.bin"),
            "260",
            golden!("rich-list-pom-beta-pb.bin"),
        ),
        (
            widgets(),
            (JSON, V1),
            golden!("cr-list.json"),
            "226",
            golden!("cr-list-pom.json"),
        ),
        (
            widgets(),
            (PROTOBUF, V1),
            golden!("cr-list.json"),
            "226",
            golden!("cr-list-pom-pb.bin"),
        ),
    ];
    for (encoder, (format, version), whole, at, expected) in rows {
        let page = decoder(encoder.format()).list(&whole).expect("a list");
        // The lists were taken one after the other.
        let rv = at.parse().expect("a version");
        let items = page.items.into_iter().map(Arc::new);
        let printed: Vec<Bytes> = encoder
            .partial(format, version)
            .list_parts(rv, None, None, items)
            .collect();
        assert_eq!(Bytes::from(printed.concat()), expected);
    }
}

#[test]
fn list_metadata_is_that_of_any_list() {
    let rv = ResourceVersion(7);
    let text = |encoder: &Encoder, items: Vec<Arc<Object>>| {
        let parts: Vec<Bytes> = encoder
            .list_parts(rv, Some("abc"), Some(2), items)
            .collect();
        String::from_utf8(parts.concat()).expect("JSON")
    };
    let encoder = widgets().partial(JSON, V1);
    let item = Arc::new(object(JSON, &golden!("rich-cr.json")));
    assert!(text(&encoder, vec![item]).starts_with(
        r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7","continue":"abc","remainingItemCount":2},"items":[{"kind":"PartialObjectMetadata","#
    ));
    // As the API server makes it.
    assert!(text(&encoder, Vec::new()).ends_with("},\"items\":null}\n"));
}

fn frames(format: WireFormat, stream: Bytes) -> Vec<Bytes> {
    let mut splitter = FrameSplitter::new(format, 1 << 20);
    splitter.push(stream);
    let frames = std::iter::from_fn(|| splitter.next()).map(|frame| frame.expect("a frame"));
    frames.collect()
}

#[test]
fn events_and_bookmarks() {
    let added = |encoder: &Encoder, object: &Object| encoder.event(EventType::Added, object);
    let pod = object(PROTOBUF, &golden!("rich-pod-pb.bin"));
    let expected = frames(PROTOBUF, golden!("rich-watch-pom-pb.bin"));
    assert_eq!(
        added(&pods(PROTOBUF).partial(PROTOBUF, V1), &pod),
        expected[0]
    );
    let widget = object(JSON, &golden!("rich-cr.json"));
    for (format, stream) in [
        (JSON, golden!("rich-cr-watch-pom.json")),
        (PROTOBUF, golden!("rich-cr-watch-pom-pb.bin")),
    ] {
        let expected = frames(format, stream);
        let bookmark = match decoder(format)
            .event(expected[1].clone())
            .expect("an event")
        {
            WatchEvent::Bookmark(bookmark) => bookmark,
            other => panic!("no bookmark: {other:?}"),
        };
        let taught = BookmarkTemplate::from_frame(
            JSON,
            &Bytes::from_static(
                br#"{"type":"BOOKMARK","object":{"apiVersion":"example.kubefan.io/v1","kind":"Widget","metadata":{"resourceVersion":"1"}}}"#,
            ),
        );
        let taught = widgets().with_bookmark_template(taught.expect("a bookmark"));
        for encoder in [widgets(), taught] {
            let encoder = encoder.partial(format, V1);
            assert_eq!(added(&encoder, &widget), expected[0]);
            let printed = encoder.bookmark(bookmark.resource_version, true);
            assert_eq!(printed, expected[1]);
        }
    }
}

/// Of a built-in kind's bookmark its metadata stays as the API server of this version prints it.
#[test]
fn bookmarks_keep_the_shape_of_their_metadata() {
    let frame = Bytes::from_static(
        br#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1","creationTimestamp":null},"spec":{"containers":null},"status":{}}}"#,
    );
    let template = BookmarkTemplate::from_frame(JSON, &frame).expect("a bookmark");
    let type_meta = TypeMeta::learn(JSON, &frame).expect("a kind");
    let encoder = Encoder::from_type_meta(JSON, &type_meta).with_bookmark_template(template);
    let encoder = encoder.partial(JSON, MetaVersion::V1Beta1);
    assert_eq!(
        encoder.bookmark(ResourceVersion(9), true),
        r#"{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1","metadata":{"resourceVersion":"9","creationTimestamp":null,"annotations":{"k8s.io/initial-events-end":"true"}}}}
"#
    );
    let template = BookmarkTemplate::minimal(PROTOBUF, "Pod", "v1", false);
    let encoder = pods(PROTOBUF).with_bookmark_template(template);
    assert_eq!(
        encoder
            .partial(PROTOBUF, V1)
            .bookmark(ResourceVersion(9), true),
        widgets()
            .partial(PROTOBUF, V1)
            .bookmark(ResourceVersion(9), true)
    );
}

#[test]
fn deletions_carry_their_version() {
    let rv = ResourceVersion(u64::MAX);
    for (encoder, format, whole) in [
        (pods(JSON), JSON, golden!("rich-pod.json")),
        (pods(PROTOBUF), PROTOBUF, golden!("rich-pod-pb.bin")),
        (widgets(), JSON, golden!("rich-cr.json")),
        (widgets(), PROTOBUF, golden!("rich-cr.json")),
    ] {
        let object = object(encoder.format(), &whole);
        let partial = encoder.partial(format, V1);
        let deleted = decoder(format).event(partial.deleted_at(&object, rv));
        let Ok(WatchEvent::Change {
            event_type: EventType::Deleted,
            object: told,
            ..
        }) = deleted
        else {
            panic!("no deletion: {deleted:?}");
        };
        assert_eq!(told.resource_version, rv);
        assert_eq!((told.key, told.uid), (object.key, object.uid));
        assert_eq!(told.labels, object.labels);
    }
}

#[test]
fn declared_order_of_what_is_small() {
    let rows = [
        ("{}", "{}"),
        (r#"{"uid":"u","name":"a"}"#, r#"{"name":"a","uid":"u"}"#),
        (
            r#"{"finalizers":["z","a"],"managedFields":[],"name":"a","ownerReferences":[{}]}"#,
            r#"{"name":"a","ownerReferences":[{}],"finalizers":["z","a"],"managedFields":[]}"#,
        ),
    ];
    for (sorted, expected) in rows {
        let printed = in_declared_order(sorted.as_bytes()).expect("JSON");
        assert_eq!(String::from_utf8_lossy(&printed), expected);
    }
}

/// Whatever is there, the message is one, and what is no ObjectMeta counts as absent.
#[test]
fn protobuf_of_what_is_odd() {
    let nothing: &[u8] = &[
        0x0a, 0, 0x12, 0, 0x1a, 0, 0x22, 0, 0x2a, 0, 0x32, 0, 0x38, 0, 0x42, 0,
    ];
    for json in [
        "{}",
        r#"{"name":null,"labels":null,"creationTimestamp":null,"deletionTimestamp":null}"#,
        r#"{"generation":"x","creationTimestamp":"yesterday","ownerReferences":null,"other":{}}"#,
        r#"{"deletionGracePeriodSeconds":null,"labels":{},"finalizers":[],"managedFields":[]}"#,
    ] {
        let message = object_meta::from_json(json.as_bytes()).expect("JSON");
        assert_eq!(message, nothing, "{json}");
    }
    let of = |json: &str| object_meta::from_json(json.as_bytes()).expect("JSON");
    let with = |tail: &[u8]| [nothing, tail].concat();
    assert_eq!(
        of(r#"{"labels":{"b":"<","a":""}}"#),
        with(b"\x5a\x05\x0a\x01a\x12\x00\x5a\x06\x0a\x01b\x12\x01<")
    );
    assert_eq!(
        of(r#"{"deletionGracePeriodSeconds":-1,"managedFields":[{"fieldsV1":{"a":"\u003c"}}]}"#),
        with(b"\x50\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x8a\x01\x1c\x0a\x00\x12\x00\x1a\x00\x32\x00\x3a\x10\x0a\x0e{\"a\":\"\\u003c\"}\x42\x00".as_slice())
    );
    for fault in ["", "[]", "{\"labels\":[]}", "{\"name\""] {
        assert!(object_meta::from_json(fault.as_bytes()).is_err(), "{fault}");
    }
}
