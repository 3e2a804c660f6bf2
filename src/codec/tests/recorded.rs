//! Recorded bytes of a real API server, read and printed again.

use std::sync::Arc;

use bytes::Bytes;

use crate::api::Bookmark;
use crate::api::EventType;
use crate::api::FieldValue;
use crate::api::ListPage;
use crate::api::Object;
use crate::api::ResourceVersion;
use crate::api::SelectableField;
use crate::api::SelectableFields;
use crate::api::Status;
use crate::api::WatchEvent;
use crate::api::WireFormat;
use crate::codec::BookmarkTemplate;
use crate::codec::Decoder;
use crate::codec::Encoder;
use crate::codec::Error;
use crate::codec::FrameSplitter;
use crate::codec::ListParts;
use crate::codec::TypeMeta;
use crate::codec::decode_status;

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

fn decoder(format: WireFormat) -> Decoder {
    Decoder::new(format, pod_fields())
}

/// A decoder for the recorded custom resource.
fn widget_decoder() -> Decoder {
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

fn frames(format: WireFormat, stream: Bytes) -> Vec<Bytes> {
    let mut splitter = FrameSplitter::new(format, 1 << 20);
    splitter.push(stream);
    let frames = std::iter::from_fn(|| splitter.next()).map(Result::unwrap);
    let frames = frames.collect();
    splitter.finish().unwrap();
    frames
}

fn change(event: WatchEvent) -> (EventType, Object) {
    match event {
        WatchEvent::Change {
            event_type, object, ..
        } => (event_type, object),
        other => panic!("no change: {other:?}"),
    }
}

fn bookmark(event: WatchEvent) -> Bookmark {
    match event {
        WatchEvent::Bookmark(bookmark) => bookmark,
        other => panic!("no bookmark: {other:?}"),
    }
}

fn print_list(encoder: &Encoder, page: ListPage, remaining: Option<u64>) -> Vec<u8> {
    let items: Vec<_> = page.items.into_iter().map(Arc::new).collect();
    let (rv, token) = (page.resource_version, page.continue_token.as_deref());
    text_of(encoder.list_parts(rv, token, remaining, items))
}

/// The list's text, whose length is told beforehand and on the way.
pub(super) fn text_of(mut parts: ListParts) -> Vec<u8> {
    let length = parts.length();
    let mut text = Vec::new();
    while let Some(part) = parts.next() {
        text.extend_from_slice(&part);
        assert_eq!(parts.length() + text.len() as u64, length);
    }
    assert_eq!(parts.length(), 0);
    text
}

#[test]
fn lists_are_printed_as_they_came() {
    let pods = || decoder(JSON);
    let cases = [
        (pods(), JSON, golden!("list-pods.json"), None),
        (pods(), JSON, golden!("list-pods-limit2.json"), Some(1)),
        (
            pods(),
            JSON,
            golden!("list-empty-missing-namespace.json"),
            None,
        ),
        (
            decoder(PROTOBUF),
            PROTOBUF,
            golden!("list-pods-pb.bin"),
            None,
        ),
        (
            decoder(PROTOBUF),
            PROTOBUF,
            golden!("list-empty-pb.bin"),
            None,
        ),
        (widget_decoder(), JSON, golden!("cr-list.json"), None),
        (widget_decoder(), JSON, golden!("cr-limit1.json"), Some(1)),
    ];
    for (decoder, format, body, remaining) in cases {
        let encoder = Encoder::from_type_meta(format, &TypeMeta::learn(format, &body).unwrap());
        let printed = print_list(&encoder, decoder.list(&body).unwrap(), remaining);
        assert_eq!(Bytes::from(printed), body);
    }
}

#[test]
fn a_protobuf_page_carries_token_and_remaining_count() {
    let encoder = Encoder::new(PROTOBUF, "Pod", "v1");
    let mut page = decoder(PROTOBUF)
        .list(&golden!("list-pods-pb.bin"))
        .unwrap();
    page.continue_token = Some("token".to_owned());
    let printed = Bytes::from(print_list(&encoder, page, Some(300)));
    let read = decoder(PROTOBUF).list(&printed).unwrap();
    assert_eq!(read.continue_token.as_deref(), Some("token"));
    assert_eq!(read.items.len(), 3);
    let count: &[u8] = &[0x20, 0xac, 0x02];
    assert!(printed.windows(3).any(|window| window == count));
}

#[test]
fn values_are_found_in_both_formats() {
    let json = decoder(JSON).list(&golden!("list-pods.json")).unwrap();
    let protobuf = decoder(PROTOBUF)
        .list(&golden!("list-pods-pb.bin"))
        .unwrap();
    assert_eq!(json.items.len(), 3);
    for (json, protobuf) in json.items.iter().zip(&protobuf.items) {
        assert_eq!(json.key, protobuf.key);
        assert_eq!(json.uid(), protobuf.uid());
        assert!(json.is_selected_as(protobuf), "{json:?} {protobuf:?}");
    }
    let first = &json.items[0];
    assert_eq!(first.key.as_str(), "golden/a");
    assert_eq!(first.uid(), "71699dae-115a-4c22-a8d6-2a9c28e8a3b8");
    assert_eq!(first.resource_version, ResourceVersion(211));
    assert_eq!(first.label("tier"), Some("x"));
    assert_eq!(
        [1, 2, 4].map(|at| first.field(at)),
        ["false", "Running", "1"]
    );
    assert_eq!(first.field(5), "");
}

#[test]
fn the_first_element_of_a_repeated_field_is_meant() {
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
fn custom_resources_give_scalars() {
    let page = widget_decoder().list(&golden!("cr-list.json")).unwrap();
    let rows = page
        .items
        .iter()
        .map(|item| item.fields().collect::<Vec<_>>());
    assert!(rows.eq([["red", "1", ""], ["blue", "1", ""]]));
}

#[test]
fn a_pretty_printed_list_is_read_like_the_plain_one() {
    let plain = widget_decoder().list(&golden!("cr-list.json")).unwrap();
    let pretty = widget_decoder()
        .list(&golden!("cr-list-pretty.json"))
        .unwrap();
    assert_eq!(pretty.items, plain.items);
    let pod = decoder(JSON).object(&golden!("get-pod.json")).unwrap();
    let pretty = decoder(JSON)
        .object(&golden!("get-pod-pretty.json"))
        .unwrap();
    assert_eq!(pretty, pod);
}

#[test]
fn single_objects_are_printed_as_they_came() {
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
fn list_items_and_events_have_the_same_body() {
    let list = decoder(JSON).list(&golden!("list-pods.json")).unwrap();
    let single = decoder(JSON).object(&golden!("get-pod.json")).unwrap();
    assert_eq!(list.items[0], single);
    let list = decoder(PROTOBUF)
        .list(&golden!("list-pods-pb.bin"))
        .unwrap();
    let single = decoder(PROTOBUF)
        .object(&golden!("get-pod-pb.bin"))
        .unwrap();
    assert_eq!(list.items[0], single);
    let list = widget_decoder().list(&golden!("cr-list.json")).unwrap();
    let frame = frames(JSON, golden!("cr-watch.json")).swap_remove(0);
    let (_, single) = change(widget_decoder().event(frame).unwrap());
    assert_eq!(list.items[0], single);
}

#[test]
fn events_are_printed_as_they_came() {
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
            let type_meta = TypeMeta::learn(format, &frame).unwrap();
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
                WatchEvent::Error(status) => panic!("error: {status:?}"),
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
            panic!("no change");
        };
        assert_eq!(frame, received);
        assert!(received.as_ptr_range().contains(&object.body.as_ptr()));
    }
}

#[test]
fn bookmarks_take_the_learnt_shape_in_both_forms() {
    let mut plain = frames(JSON, golden!("sie-ok-unset.json"));
    plain.retain(|frame| frame.starts_with(b"{\"type\":\"BOOKMARK\""));
    let template = |frame: &Bytes| BookmarkTemplate::from_frame(JSON, frame).unwrap();
    let from_end = |frame: &Bytes, encoder: Encoder| {
        let rv = bookmark(decoder(JSON).event(frame.clone()).unwrap()).resource_version;
        let encoder = encoder.with_bookmark_template(template(frame));
        (encoder.bookmark(rv, false), encoder.bookmark(rv, true))
    };
    let pod = || Encoder::new(JSON, "Pod", "v1");
    let (end, regular) = (&plain[0], &plain[1]);
    assert_eq!(from_end(end, pod()).1, end);
    let rv = ResourceVersion(240);
    let learnt = pod()
        .with_bookmark_template(template(end))
        .bookmark(rv, false);
    assert_eq!(learnt, regular);
    let rv = bookmark(decoder(JSON).event(end.clone()).unwrap()).resource_version;
    let learnt = pod()
        .with_bookmark_template(template(regular))
        .bookmark(rv, true);
    assert_eq!(learnt, end);
    let widgets = frames(JSON, golden!("cr-watch-sie.json"));
    let (without, with) = from_end(&widgets[2], Encoder::new(JSON, "Widget", "example.com/v1"));
    assert_eq!(with, widgets[2]);
    let expected = r#"{"type":"BOOKMARK","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"resourceVersion":"234"}}}"#;
    assert_eq!(without, format!("{expected}\n"));
}

#[test]
fn a_bookmark_of_an_older_server_keeps_its_null() {
    let frame = Bytes::from_static(
        b"{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"7\",\"creationTimestamp\":null},\"spec\":{}}}\n",
    );
    let template = BookmarkTemplate::from_frame(JSON, &frame).unwrap();
    let encoder = Encoder::new(JSON, "Pod", "v1").with_bookmark_template(template);
    assert_eq!(encoder.bookmark(ResourceVersion(7), false), frame);
    let marked = encoder.bookmark(ResourceVersion(8), true);
    assert!(marked.ends_with(
        br#""metadata":{"resourceVersion":"8","creationTimestamp":null,"annotations":{"k8s.io/initial-events-end":"true"}},"spec":{}}}
"#
    ));
}

#[test]
fn a_bookmark_keeps_its_annotations_in_order() {
    let frame = |annotations: &str| {
        Bytes::from(format!(
            "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"DaemonSet\",\"apiVersion\":\"apps/v1\",\"metadata\":{{\"resourceVersion\":\"7\",\"annotations\":{{{annotations}}}}},\"spec\":{{}}}}}}\n"
        ))
    };
    let mark = r#""k8s.io/initial-events-end":"true""#;
    let own = [
        r#""deprecated.daemonset.template.generation":"0""#,
        r#""z":"1""#,
    ];
    let plain = frame(&own.join(","));
    let end = frame(&[own[0], mark, own[1]].join(","));
    for learnt in [&plain, &end] {
        let template = BookmarkTemplate::from_frame(JSON, learnt).unwrap();
        let encoder = Encoder::new(JSON, "DaemonSet", "apps/v1").with_bookmark_template(template);
        assert_eq!(encoder.bookmark(ResourceVersion(7), false), plain);
        assert_eq!(encoder.bookmark(ResourceVersion(7), true), end);
    }
}

#[test]
fn a_protobuf_bookmark_without_its_end_mark_is_read_back() {
    let end = frames(PROTOBUF, golden!("sie-pb.bin")).pop().unwrap();
    let template = BookmarkTemplate::from_frame(PROTOBUF, &end).unwrap();
    let encoder = Encoder::new(PROTOBUF, "Pod", "v1").with_bookmark_template(template);
    assert_eq!(encoder.bookmark(ResourceVersion(252), true), end);
    let plain = encoder.bookmark(ResourceVersion(70_000), false);
    let read = bookmark(decoder(PROTOBUF).event(plain).unwrap());
    assert_eq!(read.resource_version, ResourceVersion(70_000));
    assert!(!read.initial_events_end);
}

#[test]
fn the_minimal_bookmark_is_what_config_maps_and_custom_resources_have() {
    let encoder = Encoder::new(JSON, "Secret", "v1");
    let expected = golden!("sie-empty.json");
    assert_eq!(encoder.bookmark(ResourceVersion(250), true), expected);
    let encoder = Encoder::new(JSON, "Widget", "example.com/v1").with_embedded_type_meta(true);
    let expected = frames(JSON, golden!("cr-watch-sie.json")).swap_remove(2);
    assert_eq!(encoder.bookmark(ResourceVersion(234), true), expected);
    let printed = Encoder::new(PROTOBUF, "Pod", "v1").bookmark(ResourceVersion(9), true);
    let read = bookmark(decoder(PROTOBUF).event(printed).unwrap());
    assert_eq!(
        (read.resource_version.0, read.initial_events_end),
        (9, true)
    );
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
        let type_meta = TypeMeta::learn(format, &frames[0]).unwrap();
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
        assert!(read.is_selected_as(&object));
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
        let encoder = Encoder::from_type_meta(format, &TypeMeta::learn(format, &frame).unwrap());
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
            panic!("no error");
        };
        assert_eq!(Encoder::new(JSON, "Pod", "v1").error(&status), frame);
        let printed = Encoder::new(PROTOBUF, "Pod", "v1").error(&status);
        match decoder(PROTOBUF).event(printed).unwrap() {
            WatchEvent::Error(read) => assert_eq!(read, status),
            other => panic!("no error: {other:?}"),
        }
    }
}

#[test]
fn statuses_are_read_and_printed_as_they_came() {
    let protobuf = PROTOBUF.media_type();
    for (format, content_type, code, body) in [
        (
            JSON,
            "application/json",
            422,
            golden!("list-pods-rv0-exact.json"),
        ),
        (
            JSON,
            "application/json",
            404,
            golden!("get-unknown-resource.json"),
        ),
        (PROTOBUF, protobuf, 403, golden!("auth-weak-pb.bin")),
        (PROTOBUF, protobuf, 406, golden!("cr-watch-pb.bin")),
    ] {
        let status = decode_status(content_type, 500, &body);
        assert_eq!(status.code, code);
        assert_eq!(Encoder::status_body(format, &status), body);
    }
}

#[test]
fn other_error_answers_are_wrapped() {
    for (content_type, body, message) in [
        (
            "text/plain; charset=utf-8",
            "404 page not found\n",
            "404 page not found",
        ),
        (
            "application/json",
            r#"{"kind":"Pod","apiVersion":"v1"}"#,
            r#"{"kind":"Pod","apiVersion":"v1"}"#,
        ),
        ("application/json", "", ""),
        ("application/vnd.kubernetes.protobuf", "k8s", "k8s"),
    ] {
        let status = decode_status(content_type, 404, body.as_bytes());
        assert_eq!(status, Status::failure(404, "", message));
    }
}

#[test]
fn statuses_are_escaped_as_go_does() {
    let status = Status::failure(400, "BadRequest", "a<b>&\"\u{2028}é");
    let body = Encoder::status_body(JSON, &status);
    let text = std::str::from_utf8(&body).unwrap();
    assert!(
        text.contains(r#""message":"a\u003cb\u003e\u0026\"\u2028é""#),
        "{text}"
    );
}

#[test]
fn an_object_or_event_without_its_essentials_is_refused() {
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
fn a_body_knows_where_its_type_stands() {
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
fn the_kind_is_learnt_from_a_list_or_a_frame() {
    let learn = |format, bytes| {
        TypeMeta::learn(format, &bytes).map(|meta| (meta.kind, meta.list_kind, meta.is_embedded))
    };
    let pod = ("Pod".to_owned(), "PodList".to_owned(), false);
    let widget = ("Widget".to_owned(), "WidgetList".to_owned(), true);
    assert_eq!(learn(JSON, golden!("list-pods.json")), Ok(pod.clone()));
    assert_eq!(
        learn(PROTOBUF, golden!("list-pods-pb.bin")),
        Ok(pod.clone())
    );
    assert_eq!(
        learn(PROTOBUF, golden!("watch-pb.bin").slice(..1465)),
        Ok(pod)
    );
    assert_eq!(learn(JSON, golden!("cr-list.json")), Ok(widget));
    assert!(learn(JSON, golden!("sie-too-large.json")).is_err());
}
