//! Texts of headers and times, as in the lines of the logs.

use std::borrow::Cow;

use http::HeaderValue;
use jiff::Timestamp;

/// Longest User-Agent, in bytes, that is written in full, as by the API server.
pub(super) const MAX_USER_AGENT: usize = 1024;
/// Longest audit ID, in bytes, that is written in full. An ID is usually a UUID, but clients can
/// send any.
pub(super) const MAX_AUDIT_ID: usize = 128;
/// The text that the API server writes after the beginning of a longer User-Agent.
const TRUNCATED: &str = "...TRUNCATED";

/// Shortens a text of more than `most` bytes as the API server shortens a User-Agent.
pub(super) fn truncated(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let beginning = &text[..text.floor_char_boundary(most)];
    format!("{beginning}{TRUNCATED}").into()
}

/// Returns `time` in the format of Kubernetes' `MicroTime`.
pub(super) fn micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// Returns the text of a header; an empty one if there is none, or if it is not ASCII.
pub(super) fn header_text(value: Option<&HeaderValue>) -> &str {
    let text = value.and_then(|value| value.to_str().ok());
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let usual = "a".repeat(MAX_USER_AGENT);
        let most = usual.len();
        assert_eq!(truncated(&usual, most), usual);
        let cut = truncated(&format!("{usual}b"), most).into_owned();
        assert_eq!(cut, format!("{usual}...TRUNCATED"));
        assert_eq!(truncated("aé", 2), "a...TRUNCATED");
        // A text that was cut stays as it is.
        assert_eq!(truncated(&cut, most), cut);
    }

    #[test]
    fn times_have_microseconds() {
        let text = micro_time(Timestamp::now());
        assert_eq!(text.len(), "2026-01-01T00:00:00.000000Z".len(), "{text}");
        assert!(text.ends_with('Z'), "{text}");
    }
}
