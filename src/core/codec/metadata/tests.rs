//! Compares PartialObjectMetadata with the answers of a real API server for the same objects.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::in_declared_order;
use super::object_meta::from_json;
use crate::api::{
    EventType, Object, ObjectValues, ResourceVersion, SelectableFields, WatchEvent, WireFormat,
};
use crate::codec::protobuf::{enveloped, put_bytes};
use crate::codec::tests::support::{JSON, PROTOBUF, frames, golden, text_of};
use crate::codec::{
    BookmarkTemplate, Decoder, Encoder, ListMetadata, MetaVersion, TypeMeta, protobuf_to_json,
};

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

/// Only a broken API server sends such metadata. The encoder must neither panic nor drop the event.
#[test]
fn unprintable_metadata_is_rebuilt_from_known_values() {
    let known = r#""name":"x","namespace":"a","uid":"u","resourceVersion":"7""#;
    for text in [
        format!(r#"{{"metadata":null,"metadata":{{{known}}},"spec":{{}}}}"#),
        format!(r#"{{"metadata":{{}},"metadata":{{{known}}}}}"#),
        format!(r#"{{"apiVersion":"v1","kind":"W","metadata":{{"annotations":"x",{known}}}}}"#),
        format!(r#"{{"apiVersion":"v1","kind":"W","metadata":{{"ownerReferences":[5],{known}}}}}"#),
        format!(r#"{{"metadata":{{{known},"generation":1{{}}}}"#),
        format!(r#"{{"metadata":{{{known},"generation":1","x":""}}}}"#),
    ] {
        let Ok(object) = decoder(JSON).object(&Bytes::from(text.clone())) else {
            continue;
        };
        let versions = [pods(JSON), widgets()];
        for whole in versions {
            let json = whole.partial(JSON, V1);
            let protobuf = whole.partial(PROTOBUF, V1);
            for encoder in [whole, json, protobuf] {
                for frame in [
                    encoder.event(EventType::Modified, &object),
                    encoder.deleted_at(&object, ResourceVersion(9)),
                ] {
                    assert!(memchr::memmem::find(&frame, b"x").is_some(), "{text}");
                }
            }
        }
    }
    for broken in [
        r#"{"metadata":{"name":"x","resourceVersion":"7","generation":1{}}"#,
        r#"{"metadata":{"name":"x","resourceVersion":"7"},"metadata":{}}"#,
    ] {
        assert!(
            decoder(JSON).object(&Bytes::from(broken)).is_err(),
            "{broken}"
        );
    }
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
        // The simulated API server stores JSON only, so it converts metadata to protobuf.
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

/// Metadata that needs no conversion is not copied.
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
        // The list of whole objects and the list of metadata were recorded one after the other, so
        // their versions may differ.
        let rv: ResourceVersion = at.parse().expect("a version");
        let items = page.items.into_iter().map(Arc::new);
        let encoder = encoder.partial(format, version);
        let printed = text_of(encoder.list_parts(rv.into(), items));
        assert_eq!(Bytes::from(printed), expected);
    }
}

#[test]
fn list_metadata_is_the_same_as_in_any_list() {
    let text = |encoder: &Encoder, items: Vec<Arc<Object>>| {
        let metadata = ListMetadata {
            continue_token: "abc",
            remaining_item_count: Some(2),
            ..ResourceVersion(7).into()
        };
        let printed = text_of(encoder.list_parts(metadata, items));
        String::from_utf8(printed).expect("JSON")
    };
    let encoder = widgets().partial(JSON, V1);
    let item = Arc::new(object(JSON, &golden!("rich-cr.json")));
    assert!(text(&encoder, vec![item]).starts_with(
        r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7","continue":"abc","remainingItemCount":2},"items":[{"kind":"PartialObjectMetadata","#
    ));
    // The API server also encodes an empty list of metadata with null items.
    assert!(text(&encoder, Vec::new()).ends_with("},\"items\":null}\n"));
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
            other => panic!("not a bookmark: {other:?}"),
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

/// A bookmark keeps the upstream's metadata members, which differ between API server versions.
#[test]
fn bookmarks_keep_the_shape_of_their_metadata() {
    let frame = Bytes::from_static(
        br#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1","creationTimestamp":null},"spec":{"containers":null},"status":{}}}"#,
    );
    let template = BookmarkTemplate::from_frame(JSON, &frame).expect("a bookmark");
    let type_meta = TypeMeta::read(JSON, &frame).expect("a kind");
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
            object: decoded,
            ..
        }) = deleted
        else {
            panic!("not a deletion: {deleted:?}");
        };
        assert_eq!(decoded.resource_version, rv);
        assert_eq!((&decoded.key, decoded.uid()), (&object.key, object.uid()));
        assert!(decoded.labels().eq(object.labels()));
    }
}

#[test]
fn hidden_annotations_appear_only_in_whole_objects() {
    let encoder = Encoder::new(JSON, "DaemonSet", "apps/v1");
    let made = "\"deprecated.daemonset.template.generation\":\"1\"";
    for (annotations, left) in [
        (format!("\"annotations\":{{{made}}},"), String::new()),
        (
            format!("\"annotations\":{{\"a\":\"<\",{made},\"z\":\"\"}},"),
            "\"annotations\":{\"a\":\"<\",\"z\":\"\"},".to_owned(),
        ),
        (
            format!("\"annotations\":{{\"a\":\"{}\"}},", made.replace('"', "'")),
            format!("\"annotations\":{{\"a\":\"{}\"}},", made.replace('"', "'")),
        ),
    ] {
        let metadata = |annotations: &str| {
            format!(
                "{{\"name\":\"a\",\"resourceVersion\":\"7\",{annotations}\"finalizers\":[\"f\"]}}"
            )
        };
        let whole = format!(
            "{{\"kind\":\"DaemonSet\",\"apiVersion\":\"apps/v1\",\"metadata\":{},\"spec\":{{}}}}",
            metadata(&annotations)
        );
        let object = object(JSON, &Bytes::from(whole));
        let printed = encoder.partial(JSON, V1).object_body(&object).concat();
        let printed = String::from_utf8(printed).expect("JSON");
        assert!(printed.contains(&metadata(&left)), "{printed}");
        // In protobuf the annotation is removed both from a protobuf body and from a converted one.
        let protobuf = |annotations: &str| {
            let mut message = Vec::new();
            let json = metadata(annotations);
            put_bytes(&mut message, 1, &from_json(json.as_bytes()).expect("JSON"));
            Bytes::from(enveloped("apps/v1", "DaemonSet", &message))
        };
        let daemon_sets = Encoder::new(PROTOBUF, "DaemonSet", "apps/v1").partial(PROTOBUF, V1);
        let of = |body: Bytes| {
            let key = object.key.clone();
            Object::new(key, object.resource_version, &ObjectValues::default(), body)
        };
        let body_of = |annotations: &str| {
            let decoded = decoder(PROTOBUF).object(&protobuf(annotations));
            decoded.expect("an object").body
        };
        let changed = of(body_of(&annotations));
        let printed = daemon_sets.body_of(&changed);
        assert_eq!(printed.as_ref(), &body_of(&left));
        assert_eq!(
            encoder.partial(PROTOBUF, V1).body_of(&object).as_ref(),
            &body_of(&left)
        );
        let deleted = daemon_sets.deleted_at(&of(body_of(&annotations)), ResourceVersion(7));
        assert_eq!(
            deleted,
            daemon_sets.deleted_at(&of(body_of(&left)), ResourceVersion(7))
        );
    }
}

#[test]
fn declared_order_of_small_metadata() {
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

/// Null, and texts, numbers and times of the wrong type, are treated as absent.
#[test]
fn protobuf_of_unusual_metadata() {
    let nothing: &[u8] = &[
        0x0a, 0, 0x12, 0, 0x1a, 0, 0x22, 0, 0x2a, 0, 0x32, 0, 0x38, 0, 0x42, 0,
    ];
    for json in [
        "{}",
        r#"{"name":null,"labels":null,"creationTimestamp":null,"deletionTimestamp":null}"#,
        r#"{"generation":"x","creationTimestamp":"yesterday","ownerReferences":null,"other":{}}"#,
        r#"{"deletionGracePeriodSeconds":null,"labels":{},"finalizers":[],"managedFields":[]}"#,
    ] {
        let message = from_json(json.as_bytes()).expect("JSON");
        assert_eq!(message, nothing, "{json}");
    }
    let of = |json: &str| from_json(json.as_bytes()).expect("JSON");
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
        assert!(from_json(fault.as_bytes()).is_err(), "{fault}");
    }
}

fn texts() -> impl Strategy<Value = String> {
    "[a-z<>&\"\\\\\u{2028}\u{e9}\u{1F600}\n]{1,9}"
}

fn maps() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(texts(), texts(), 1..6).prop_map(|map| json!(map))
}

fn times() -> impl Strategy<Value = Value> {
    // Seconds from the year 1970 to the year 9999.
    (0_i64..253_402_300_799).prop_map(|second| {
        let time = jiff::Timestamp::from_second(second).expect("in range");
        time.to_string().into()
    })
}

fn owners() -> impl Strategy<Value = Value> {
    let switch = || prop::option::of(any::<bool>());
    let owner = (texts(), texts(), texts(), switch(), switch());
    let owner = owner.prop_map(|(kind, name, uid, controller, blocks)| {
        let mut owner = json!({ "kind": kind, "name": name, "uid": uid, "apiVersion": "v1" });
        for (key, value) in [("controller", controller), ("blockOwnerDeletion", blocks)] {
            if let Some(value) = value {
                owner[key] = value.into();
            }
        }
        owner
    });
    prop::collection::vec(owner, 1..4).prop_map(Value::from)
}

fn managed_fields() -> impl Strategy<Value = Value> {
    let entry = (texts(), texts(), times(), maps(), prop::option::of(texts()));
    let entry = entry.prop_map(|(manager, operation, time, fields, subresource)| {
        let mut entry = json!({
            "manager": manager, "operation": operation, "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        });
        if let Some(subresource) = subresource {
            entry["subresource"] = subresource.into();
        }
        entry
    });
    prop::collection::vec(entry, 1..4).prop_map(Value::from)
}

fn object_metas() -> impl Strategy<Value = Value> {
    let finalizers = prop::collection::vec(texts(), 1..4).prop_map(Value::from);
    let members = (
        prop::option::of(times()),
        prop::option::of(0_i64..99),
        prop::option::of(maps()),
        prop::option::of(maps()),
        prop::option::of(owners()),
        prop::option::of(finalizers),
        prop::option::of(managed_fields()),
        1_i64..9,
    );
    members.prop_map(|members| {
        let mut metadata = json!({ "name": "a", "resourceVersion": "1", "generation": members.7 });
        for (key, value) in [
            ("deletionTimestamp", members.0),
            ("deletionGracePeriodSeconds", members.1.map(Value::from)),
            ("labels", members.2),
            ("annotations", members.3),
            ("ownerReferences", members.4),
            ("finalizers", members.5),
            ("managedFields", members.6),
        ] {
            if let Some(value) = value {
                metadata[key] = value;
            }
        }
        metadata
    })
}

proptest! {
    /// The message is read back with `protobuf_to_json`, which uses the schema.
    #[test]
    fn protobuf_carries_the_same_values(metadata in object_metas()) {
        let message = from_json(metadata.to_string().as_bytes()).expect("JSON");
        let mut object = Vec::new();
        put_bytes(&mut object, 1, &message);
        let read = protobuf_to_json(&enveloped("v1", "ConfigMap", &object)).expect("a body");
        prop_assert_eq!(&read["metadata"], &metadata);
    }

    /// Reordering members neither loses nor changes a value.
    #[test]
    fn declared_order_carries_the_same_values(metadata in object_metas()) {
        let printed = in_declared_order(metadata.to_string().as_bytes()).expect("JSON");
        let read: Value = serde_json::from_slice(&printed).expect("JSON");
        prop_assert_eq!(read, metadata);
    }
}
