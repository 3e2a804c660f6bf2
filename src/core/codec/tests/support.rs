//! Recorded answers of an API server, and decoders for them.

use std::sync::Arc;

use bytes::Bytes;

use crate::api::{
    Bookmark, EventType, FieldValue, Object, SelectableField, SelectableFields, WatchEvent,
    WireFormat,
};
use crate::codec::{Decoder, FrameSplitter, ListParts};

macro_rules! golden {
    ($name:literal) => {
        bytes::Bytes::from_static(include_bytes!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/golden/codec/",
            $name
        )))
    };
}

pub(crate) use golden;

pub(crate) const JSON: WireFormat = WireFormat::Json;
pub(crate) const PROTOBUF: WireFormat = WireFormat::Protobuf;

fn field(json: &str, protobuf: &[u32], value: FieldValue) -> SelectableField {
    SelectableField {
        label: json.to_owned(),
        json_path: json.split('.').map(str::to_owned).collect(),
        protobuf_path: protobuf.to_vec(),
        value,
    }
}

fn pod_fields() -> Arc<SelectableFields> {
    Arc::new(SelectableFields {
        fields: vec![
            field("spec.nodeName", &[2, 10], FieldValue::Text),
            field("spec.hostNetwork", &[2, 11], FieldValue::Boolean),
            field("status.phase", &[3, 1], FieldValue::Text),
            field("status.podIPs.0.ip", &[3, 12, 1], FieldValue::Text),
            field("metadata.generation", &[1, 7], FieldValue::Integer),
        ],
        ..SelectableFields::default()
    })
}

pub(crate) fn decoder(format: WireFormat) -> Decoder {
    Decoder::new(format, pod_fields())
}

/// A decoder for the recorded custom resource `Widget`, which has selectable fields.
pub(crate) fn widget_decoder() -> Decoder {
    let fields = vec![
        field("spec.color", &[], FieldValue::Scalar),
        field("spec.size", &[], FieldValue::Scalar),
        field("spec.absent", &[], FieldValue::Scalar),
    ];
    Decoder::new(
        JSON,
        Arc::new(SelectableFields {
            fields,
            ..SelectableFields::default()
        }),
    )
}

pub(crate) fn frames(format: WireFormat, stream: Bytes) -> Vec<Bytes> {
    let mut splitter = FrameSplitter::new(format, 1 << 20);
    splitter.push(stream);
    let frames = std::iter::from_fn(|| splitter.next()).map(Result::unwrap);
    let frames = frames.collect();
    splitter.finish().unwrap();
    frames
}

pub(crate) fn change(event: WatchEvent) -> (EventType, Object) {
    match event {
        WatchEvent::Change {
            event_type, object, ..
        } => (event_type, object),
        other => panic!("not a change: {other:?}"),
    }
}

pub(crate) fn bookmark(event: WatchEvent) -> Bookmark {
    match event {
        WatchEvent::Bookmark(bookmark) => bookmark,
        other => panic!("not a bookmark: {other:?}"),
    }
}

/// Concatenates the parts of a list, and checks the reported remaining length after each part.
pub(crate) fn text_of(mut parts: ListParts) -> Vec<u8> {
    let length = parts.length();
    let mut text = Vec::new();
    while let Some(part) = parts.next() {
        text.extend_from_slice(&part);
        assert_eq!(parts.length() + text.len() as u64, length);
    }
    assert_eq!(parts.length(), 0);
    text
}
