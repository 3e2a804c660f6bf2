//! Decodes and encodes Statuses in both wire formats.

use super::support::{JSON, PROTOBUF, golden};
use crate::api::Status;
use crate::codec::{Encoder, decode_status};

#[test]
fn statuses_are_read_and_printed_as_received() {
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
