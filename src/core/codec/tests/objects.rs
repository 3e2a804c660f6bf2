//! Decodes single objects and encodes them again, and reads their kind.

use bytes::Bytes;

use super::support::{JSON, PROTOBUF, change, decoder, frames, golden, widget_decoder};
use crate::api::EventType;
use crate::codec::{Encoder, Error, TypeMeta};

#[test]
fn the_first_element_of_a_repeated_field_is_used() {
    for (format, stream) in [
        (JSON, golden!("sie-ok-unset.json")),
        (PROTOBUF, golden!("watch-pb.bin")),
    ] {
        let frame = frames(format, stream).swap_remove(0);
        let (_, pod) = change(decoder(format).event(frame).unwrap());
        let expected = ["node-1", "false", "Running", "10.2.0.1", "1"];
        assert!(pod.fields().eq(expected), "{pod:?}");
    }
}

#[test]
fn single_objects_are_printed_as_received() {
    for (decoder, format, body, embedded) in [
        (decoder(JSON), JSON, golden!("get-pod.json"), false),
        (
            decoder(PROTOBUF),
            PROTOBUF,
            golden!("get-pod-pb.bin"),
            false,
        ),
        (widget_decoder(), JSON, golden!("cr-get.json"), true),
    ] {
        let encoder = Encoder::new(format, "Pod", "v1").with_embedded_type_meta(embedded);
        let object = decoder.object(&body).unwrap();
        assert_eq!(Bytes::from(encoder.object_body(&object).concat()), body);
    }
}

#[test]
fn an_object_or_event_without_required_fields_is_refused() {
    let decoder = decoder(JSON);
    let refused = |text: &'static str| decoder.object(text.as_bytes()).unwrap_err();
    let no_name = r#"{"metadata":{"resourceVersion":"1"}}"#;
    assert_eq!(refused(no_name), Error::Missing("metadata.name"));
    let no_version = r#"{"metadata":{"name":"a"}}"#;
    assert_eq!(
        refused(no_version),
        Error::Missing("metadata.resourceVersion")
    );
    let bad_version = r#"{"metadata":{"name":"a","resourceVersion":"x"}}"#;
    assert!(matches!(refused(bad_version), Error::ResourceVersion(_)));
    let event = Bytes::from_static(br#"{"type":"SYNC","object":{}}"#);
    let unknown = Error::UnknownEventType("SYNC".to_owned());
    assert_eq!(decoder.event(event).unwrap_err(), unknown);
    let pod = golden!("get-pod.json");
    assert_eq!(decoder.list(&pod).unwrap_err(), Error::Missing("items"));
}

#[test]
fn a_body_starts_after_a_leading_type_meta() {
    let meta = r#""metadata":{"name":"a","resourceVersion":"1"}"#;
    for (text, body) in [
        (format!("{{{meta}}}"), format!("{meta}}}")),
        (
            format!(r#"{{"kind":"K","apiVersion":"v1",{meta}}}"#),
            format!("{meta}}}"),
        ),
        (
            format!(r#" {{"kind":"K", "apiVersion":"v1", {meta}}} "#),
            format!("{meta}}}"),
        ),
        (
            format!(r#"{{"apiVersion":"v1","kind":"K",{meta}}}"#),
            String::new(),
        ),
        (
            format!(r#"{{"kind":"K",{meta},"apiVersion":"v1"}}"#),
            String::new(),
        ),
        (format!(r#"{{"kind":"K",{meta}}}"#), String::new()),
        (format!(r#"{{{meta},"kind":"K"}}"#), String::new()),
    ] {
        let object = decoder(JSON).object(text.as_bytes()).unwrap();
        let expected = if body.is_empty() { &text } else { &body };
        assert_eq!(object.body, expected.as_bytes());
        let event = Encoder::new(JSON, "K", "v1").event(EventType::Added, &object);
        let event: serde_json::Value = serde_json::from_slice(&event).unwrap();
        assert_eq!(event["object"]["kind"], "K");
        assert_eq!(event["object"]["metadata"]["name"], "a");
    }
}

#[test]
fn the_kind_is_read_from_a_list_or_a_frame() {
    let read = |format, bytes| {
        TypeMeta::read(format, &bytes).map(|meta| (meta.kind, meta.list_kind, meta.is_embedded))
    };
    let pod = ("Pod".to_owned(), "PodList".to_owned(), false);
    let widget = ("Widget".to_owned(), "WidgetList".to_owned(), true);
    assert_eq!(read(JSON, golden!("list-pods.json")), Ok(pod.clone()));
    assert_eq!(read(PROTOBUF, golden!("list-pods-pb.bin")), Ok(pod.clone()));
    assert_eq!(
        read(PROTOBUF, golden!("watch-pb.bin").slice(..1465)),
        Ok(pod)
    );
    assert_eq!(read(JSON, golden!("cr-list.json")), Ok(widget));
    assert!(read(JSON, golden!("sie-too-large.json")).is_err());
}
