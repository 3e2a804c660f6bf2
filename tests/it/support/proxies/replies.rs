//! The answers that the proxies give without asking the API server, worded as the API server does.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

/// A response of a proxy: made here, or forwarded from the upstream.
pub(super) type Reply = Response<UnsyncBoxBody<Bytes, String>>;

/// Creates a reply with this body and the content type JSON.
pub(super) fn plain(status: StatusCode, text: &str) -> Reply {
    let body = Full::new(Bytes::copy_from_slice(text.as_bytes()));
    let mut reply = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *reply.status_mut() = status;
    reply
        .headers_mut()
        .insert("content-type", HeaderValue::from_static("application/json"));
    reply
}

/// Creates a 429 that asks the client to retry after a second.
pub(super) fn too_many_requests() -> Reply {
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too many requests","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#;
    let mut reply = plain(StatusCode::TOO_MANY_REQUESTS, status);
    reply
        .headers_mut()
        .insert("retry-after", HeaderValue::from_static("1"));
    reply
}

/// Creates a 401, as for credentials that no authenticator accepts.
pub(super) fn unauthorized() -> Reply {
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
    plain(StatusCode::UNAUTHORIZED, status)
}

const EXPIRED: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (2)","reason":"Expired","code":410}"#;

/// Creates the answer to an expired LIST: a 410 with a Status.
pub(super) fn expired_list() -> Reply {
    plain(StatusCode::GONE, EXPIRED)
}

/// Creates the answer to an expired watch: an ERROR event with code 410, in the requested format.
pub(super) fn expired_watch(headers: &HeaderMap) -> Reply {
    let accept = headers
        .get("accept")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if !accept.starts_with("application/vnd.kubernetes.protobuf") {
        return plain(
            StatusCode::OK,
            &format!("{{\"type\":\"ERROR\",\"object\":{EXPIRED}}}\n"),
        );
    }
    let mut reply = plain(StatusCode::OK, "");
    let media_type = "application/vnd.kubernetes.protobuf;stream=watch";
    reply
        .headers_mut()
        .insert("content-type", HeaderValue::from_static(media_type));
    let body = Full::new(Bytes::from(expired_frame()));
    reply.map(|_| body.map_err(|never| match never {}).boxed_unsync())
}

/// Encodes a protobuf frame with an ERROR event with code 410, preceded by its length.
fn expired_frame() -> Vec<u8> {
    // Fields of Status: 2 is status, 3 message, 4 reason, 6 code (410 is the varint 9a 03).
    let mut status = field(2, b"Failure");
    status.extend(field(3, b"too old resource version: 1 (2)"));
    status.extend(field(4, b"Expired"));
    status.extend([0x30, 0x9a, 0x03]);
    let mut type_meta = field(1, b"v1");
    type_meta.extend(field(2, b"Status"));
    let mut unknown = b"k8s\0".to_vec();
    unknown.extend(field(1, &type_meta));
    unknown.extend(field(2, &status));
    let mut event = field(1, b"ERROR");
    event.extend(field(2, &field(1, &unknown)));
    let mut frame = u32::try_from(event.len())
        .expect("short")
        .to_be_bytes()
        .to_vec();
    frame.extend(event);
    frame
}

/// Encodes a length-delimited protobuf field of fewer than 16,384 bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let length = bytes.len();
    if length < 0x80 {
        field.push(length.to_le_bytes()[0]);
    } else {
        field.push((length & 0x7f).to_le_bytes()[0] | 0x80);
        field.push((length >> 7).to_le_bytes()[0]);
    }
    field.extend(bytes);
    field
}
