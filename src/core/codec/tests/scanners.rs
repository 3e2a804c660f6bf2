//! Compares the scanners with serde_json, and runs them on arbitrary and damaged bytes.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq};
use proptest::{prop_oneof, proptest};
use serde_json::{Value, json};

use crate::api::{
    EventType, FieldValue, ListPage, Object, ResourceVersion, SelectableField, SelectableFields,
    WatchEvent, WireFormat,
};
use crate::codec::json::{Scanner, Text, compact};
use crate::codec::{
    BookmarkTemplate, Decoder, Encoder, Error, FrameSplitter, TypeMeta, decode_status,
};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{0,6}",
        any::<String>(),
        Just("\\\"{}[]\n\u{1F600}\u{2028}".to_owned()),
        Just("metadata".to_owned()),
        Just("spec".to_owned()),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..5)
                .prop_map(|members| members.into_iter().collect::<Value>()),
        ]
    })
}

fn fields() -> Arc<SelectableFields> {
    let field = |path: &str, numbers: &[u32]| SelectableField {
        label: path.to_owned(),
        json_path: path.split('.').map(str::to_owned).collect(),
        protobuf_path: numbers.to_vec(),
        value: FieldValue::Scalar,
    };
    let fields = vec![
        field("spec", &[2]),
        field("spec.a", &[2, 1]),
        field("spec.list.1.x", &[2, 3, 1]),
        field("metadata.name", &[1, 1]),
    ];
    Arc::new(SelectableFields {
        fields,
        ..SelectableFields::default()
    })
}

/// Passes `bytes` to every function that reads bytes from the upstream.
fn read_all(bytes: &Bytes) {
    for format in [WireFormat::Json, WireFormat::Protobuf] {
        let decoder = Decoder::new(format, fields());
        let encoder = Encoder::new(format, "K", "v1");
        let page = decoder.list(bytes).ok();
        let size = bytes.len() / 3 + 1;
        let in_pieces = in_pieces(&decoder, bytes, size).ok();
        let is_held_to_it = match format {
            // In text with line breaks, a list decoder compacts each item separately, so damaged
            // text may give another page.
            WireFormat::Json => !bytes.trim_ascii_end().contains(&b'\n'),
            // A damaged envelope may have two contents. The list decoder reads both and may fail on
            // the first; `Decoder::list` reads the last only.
            WireFormat::Protobuf => in_pieces.is_some(),
        };
        if is_held_to_it {
            assert_eq!(in_pieces, page);
        }
        if let Ok(object) = decoder.object(bytes) {
            read_again(&decoder, &encoder, &object);
        }
        if let Ok(WatchEvent::Change { object, .. }) = decoder.event(bytes.clone()) {
            read_again(&decoder, &encoder, &object);
        }
        let _ = TypeMeta::read(format, bytes);
        let _ = BookmarkTemplate::from_frame(format, bytes);
        let _ = encoder.retarget(bytes, EventType::Added);
        let _ = decode_status(format.media_type(), 500, bytes);
        let mut splitter = FrameSplitter::new(format, 64);
        splitter.push(bytes.clone());
        while splitter.next().is_some() {}
        let _ = splitter.finish();
    }
    let _ = Text(bytes).unescape();
    let _ = compact(bytes);
}

/// Checks that a decoded object can be encoded, and that decoding it again gives the same values.
fn read_again(decoder: &Decoder, encoder: &Encoder, object: &Object) {
    let deleted = encoder.deleted_at(object, ResourceVersion(u64::MAX));
    match decoder.event(deleted) {
        Ok(WatchEvent::Change { object: read, .. }) => {
            assert_eq!(read.key, object.key);
            assert!(read.fields().eq(object.fields()));
            assert_eq!(read.resource_version, ResourceVersion(u64::MAX));
        }
        other => panic!("cannot be decoded again: {other:?} from {object:?}"),
    }
}

/// The text that selectors compare for a value that serde_json parsed.
fn scalar(value: &Value) -> Box<str> {
    match value {
        Value::String(text) => text.as_str().into(),
        Value::Bool(_) | Value::Number(_) => value.to_string().into(),
        _ => "".into(),
    }
}

/// Decodes a list from pieces of `size` bytes.
fn in_pieces(decoder: &Decoder, body: &[u8], size: usize) -> Result<ListPage, Error> {
    let mut list = decoder.list_decoder();
    for piece in body.chunks(size) {
        list.push(piece)?;
    }
    list.finish()
}

/// Encodes every character as a `\u` escape sequence, which any JSON writer may do.
fn all_escaped(text: &str) -> String {
    text.encode_utf16()
        .map(|unit| format!("\\u{unit:04X}"))
        .collect()
}

proptest! {
    #[test]
    fn skipping_ends_at_the_end_of_the_value(value in value(), pretty in any::<bool>(), behind in ".{0,5}") {
        let printed = if pretty {
            serde_json::to_string_pretty(&value)
        } else {
            serde_json::to_string(&value)
        }.unwrap();
        let text = format!(" {printed},{behind}");
        let range = Scanner::new(text.as_bytes()).range().unwrap();
        prop_assert_eq!(&text[range], &printed);
        prop_assert_eq!(compact(printed.as_bytes()), serde_json::to_vec(&value).unwrap());
    }

    #[test]
    fn strings_are_unescaped(text in any::<String>()) {
        let printed = serde_json::to_string(&text).unwrap();
        let read = Scanner::new(printed.as_bytes()).string().unwrap();
        prop_assert_eq!(read.unescape().unwrap(), text.as_str());
        let escaped = all_escaped(&text);
        prop_assert_eq!(Text(escaped.as_bytes()).unescape().unwrap(), text.as_str());
        assert!(Text(escaped.as_bytes()).is(&text));
    }

    #[test]
    fn objects_are_read_as_a_parser_reads_them(
        name in "[a-z]{1,8}",
        labels in prop::collection::btree_map(text(), text(), 0..4),
        spec in prop_oneof![
            value(),
            (value(), prop::collection::vec(value(), 0..3), value()).prop_map(|(a, mut list, x)| {
                list.push(json!({"x": x}));
                json!({"a": a, "list": list})
            }),
        ],
        extra in prop::collection::btree_map("[f-z\"\\\\]{1,3}", value(), 0..4),
        rv in any::<u64>(),
        pretty in any::<bool>(),
    ) {
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "K",
            "metadata": {"name": name, "namespace": "n", "uid": "u", "labels": labels, "resourceVersion": rv.to_string()},
            "spec": spec,
        });
        for (key, value) in extra {
            object.as_object_mut().unwrap().entry(key).or_insert(value);
        }
        let list = json!({"items": [object, object], "metadata": {"resourceVersion": "5", "continue": "c"}});
        let bytes = Bytes::from(if pretty {
            serde_json::to_vec_pretty(&list).unwrap()
        } else {
            serde_json::to_vec(&list).unwrap()
        });
        let decoder = Decoder::new(WireFormat::Json, fields());
        let page = decoder.list(&bytes).unwrap();
        for size in [1, 7, 64, bytes.len()] {
            prop_assert_eq!(&in_pieces(&decoder, &bytes, size).unwrap(), &page);
        }
        for eighth in 0..8 {
            assert!(in_pieces(&decoder, &bytes[..bytes.len() * eighth / 8], 50).is_err());
        }
        prop_assert_eq!(page.continue_token.as_deref(), Some("c"));
        prop_assert_eq!(&page.items[0], &page.items[1]);
        let read = &page.items[0];
        prop_assert_eq!(read.key.as_str(), format!("n/{name}"));
        prop_assert_eq!(read.resource_version, ResourceVersion(rv));
        let expected = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        prop_assert_eq!(read.labels().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        let values = [
            &object["spec"],
            &object["spec"]["a"],
            &object["spec"]["list"][1]["x"],
            &object["metadata"]["name"],
        ].map(scalar);
        prop_assert_eq!(read.fields().map(Box::from).collect::<Vec<_>>(), values);
        prop_assert_eq!(&read.body, &serde_json::to_vec(&object).unwrap());

        let encoder = Encoder::new(WireFormat::Json, "K", "v1").with_embedded_type_meta(true);
        let frame = encoder.deleted_at(read, ResourceVersion(7));
        object["metadata"]["resourceVersion"] = "7".into();
        let event: Value = serde_json::from_slice(&frame).unwrap();
        prop_assert_eq!(event, json!({"type": "DELETED", "object": object}));
    }

    #[test]
    fn anything_is_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_all(&bytes.into());
    }

    #[test]
    fn anything_like_json_is_read_without_panic(text in r#"[{}\[\]":,\\ntu0-9a-z \n]{0,80}"#) {
        read_all(&text.into());
    }

    #[test]
    fn damaged_messages_are_read_without_panic(
        cut in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        for bytes in [
            include_bytes!("../../../../tests/golden/codec/watch-pb.bin").get(..1465).unwrap(),
            include_bytes!("../../../../tests/golden/codec/list-pods-pb.bin").as_slice(),
            include_bytes!("../../../../tests/golden/codec/get-pod-pb.bin").as_slice(),
            include_bytes!("../../../../tests/golden/codec/cr-list.json").as_slice(),
            include_bytes!("../../../../tests/golden/codec/sie-too-large.json").as_slice(),
        ] {
            let mut damaged = bytes.to_vec();
            let position = at.index(damaged.len());
            damaged[position] = byte;
            read_all(&damaged.clone().into());
            damaged.truncate(cut.index(bytes.len()));
            read_all(&damaged.into());
            read_all(&Bytes::from_static(&bytes[..cut.index(bytes.len())]));
        }
    }

    #[test]
    fn both_formats_carry_any_status(message in any::<String>(), code in 1_u16..600) {
        let status = crate::api::Status::failure(code, "Reason", message);
        for format in [WireFormat::Json, WireFormat::Protobuf] {
            let encoder = Encoder::new(format, "K", "v1");
            let body = Encoder::status_body(format, &status);
            prop_assert_eq!(&decode_status(format.media_type(), 500, &body), &status);
            match Decoder::new(format, fields()).event(encoder.error(&status)).unwrap() {
                WatchEvent::Error(read) => prop_assert_eq!(read, status.clone()),
                other => panic!("not an ERROR event: {other:?}"),
            }
        }
    }
}

#[test]
fn deep_nesting_needs_no_stack() {
    let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
    let object = format!(r#"{{"metadata":{{"name":"a","resourceVersion":"1"}},"spec":{deep}}}"#);
    let decoder = Decoder::new(WireFormat::Json, fields());
    assert_eq!(decoder.object(object.as_bytes()).unwrap().key.as_str(), "a");
}

#[test]
fn lone_surrogates_become_replacement_characters() {
    for (text, expected) in [
        (r"\ud800", "\u{fffd}"),
        (r"\ud800x", "\u{fffd}x"),
        (r"\udc00\ud83d\ude00", "\u{fffd}\u{1F600}"),
        (r"\ud800\u0041", "\u{fffd}A"),
    ] {
        assert_eq!(Text(text.as_bytes()).unescape().unwrap(), expected);
    }
    for malformed in [r"\u12", r"\x", r"\u+123", r"a\"] {
        assert!(
            Text(malformed.as_bytes()).unescape().is_err(),
            "{malformed}"
        );
    }
}
