//! Encodes bookmarks from templates and compares them with the API server's bookmarks.

use bytes::Bytes;

use super::support::{JSON, PROTOBUF, bookmark, decoder, frames, golden};
use crate::api::ResourceVersion;
use crate::codec::{BookmarkTemplate, Encoder};

#[test]
fn bookmarks_take_the_shape_of_the_template_in_both_forms() {
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
fn a_protobuf_bookmark_without_its_end_annotation_is_read_back() {
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
