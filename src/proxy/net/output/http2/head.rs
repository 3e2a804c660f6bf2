//! The head of an answer over HTTP/2.

use std::cell::RefCell;

use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, StatusCode};
use http_body::Body;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

/// The fields that HTTP/2 forbids (RFC 9113, 8.2.2), besides `connection` and those that it names.
static CONNECTION_FIELDS: [HeaderName; 5] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

thread_local! {
    /// The second since 1970 of the last answer, and its date.
    static LAST_DATE: RefCell<(i64, HeaderValue)> =
        const { RefCell::new((i64::MIN, HeaderValue::from_static(""))) };
}

/// Removes the fields that HTTP/2 forbids, and adds the date, and the length of `body` if it is
/// known. A body that has ended needs no length.
pub(super) fn complete(headers: &mut HeaderMap, body: &impl Body) {
    remove_connection_fields(headers);
    headers.entry(DATE).or_insert_with(date);
    if !body.is_end_stream()
        && let Some(length) = body.size_hint().exact()
    {
        let length = || HeaderValue::from(length);
        headers.entry(CONTENT_LENGTH).or_insert_with(length);
    }
}

/// Returns true if an answer with this head, which is complete, has data of unknown length.
pub(super) fn is_open_ended(status: StatusCode, headers: &HeaderMap, body: &impl Body) -> bool {
    status == StatusCode::OK && !headers.contains_key(CONTENT_LENGTH) && !body.is_end_stream()
}

fn remove_connection_fields(headers: &mut HeaderMap) {
    for name in &CONNECTION_FIELDS {
        headers.remove(name);
    }
    if let Some(names) = headers.remove(CONNECTION)
        && let Ok(names) = names.to_str()
    {
        for name in names.split(',') {
            headers.remove(name.trim());
        }
    }
}

/// Returns the date of now, which is made once a second.
fn date() -> HeaderValue {
    let now = Timestamp::now();
    LAST_DATE.with_borrow_mut(|(second, date)| {
        if *second != now.as_second() {
            (*second, *date) = (now.as_second(), printed(now));
        }
        date.clone()
    })
}

/// Returns `time` in the form of RFC 9110, 5.6.7.
fn printed(time: Timestamp) -> HeaderValue {
    let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&time);
    let text = text.expect("a clock shows no year before 0");
    HeaderValue::try_from(text).expect("a date has letters, digits and spaces")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures::stream;
    use http_body::Frame;
    use http_body_util::{Empty, Full, StreamBody};

    use super::*;

    fn fields(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |&(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        fields.iter().map(field).collect()
    }

    #[test]
    fn fields_of_a_connection_are_removed_and_no_others() {
        let mut headers = fields(&[
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "x"),
            ("close", "1"),
            ("x-kept", "1"),
        ]);
        remove_connection_fields(&mut headers);
        assert_eq!(headers, fields(&[("x-kept", "1")]));
    }

    #[test]
    fn a_date_and_a_known_length_are_added_unless_the_service_has_them() {
        let full = Full::new(Bytes::from_static(b"four"));
        let length = |before: &[(&'static str, &'static str)]| {
            let mut headers = fields(before);
            complete(&mut headers, &full);
            let date = headers.remove(DATE).unwrap();
            let rest = headers.into_iter().map(|(_, value)| value);
            (date, rest.collect::<Vec<_>>())
        };
        let (date, lengths) = length(&[]);
        assert_eq!((date.len(), lengths), (29, vec!["4".parse().unwrap()]));
        let (date, lengths) = length(&[("date", "then"), ("content-length", "5")]);
        assert_eq!(
            (date.to_str().unwrap(), lengths),
            ("then", vec!["5".parse().unwrap()])
        );
        let mut headers = HeaderMap::new();
        complete(&mut headers, &Empty::<Bytes>::new());
        assert!(
            !headers.contains_key(CONTENT_LENGTH),
            "a body that has ended"
        );
    }

    #[test]
    fn dates_have_the_form_of_http() {
        for (second, expected) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
        ] {
            let time = Timestamp::from_second(second).unwrap();
            assert_eq!(printed(time), expected);
        }
    }

    #[test]
    fn an_answer_is_open_ended_if_nothing_says_its_length() {
        let frames = stream::pending::<Result<Frame<Bytes>, Infallible>>();
        let endless = StreamBody::new(frames);
        let (ok, none) = (StatusCode::OK, HeaderMap::new());
        assert!(is_open_ended(ok, &none, &endless));
        assert!(!is_open_ended(StatusCode::CREATED, &none, &endless));
        let length = fields(&[("content-length", "5")]);
        assert!(!is_open_ended(ok, &length, &endless));
        assert!(!is_open_ended(ok, &none, &Empty::<Bytes>::new()));
    }
}
