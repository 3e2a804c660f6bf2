//! The trace context of W3C (<https://www.w3.org/TR/trace-context/>): ids of traces and spans, and
//! the headers that carry them from one program to the next.

use std::num::{NonZeroU64, NonZeroU128};

use http::{HeaderMap, HeaderName, HeaderValue};

/// The span of the sender of a request.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// What other tracing systems add to it. kubefan passes it on unchanged.
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The version that the specification excludes.
const INVALID_VERSION: u128 = 0xff;
/// The bit of the flags that says that the sender records its span.
const SAMPLED: u8 = 1;

/// The id of a trace.
pub(crate) type TraceId = NonZeroU128;
/// The id of a span in its trace.
pub(crate) type SpanId = NonZeroU64;

/// A span, as others refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpanContext {
    pub(crate) trace: TraceId,
    pub(crate) span: SpanId,
}

/// The span of a client, from its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) span: SpanContext,
    /// True if the client records its span, as it says.
    pub(crate) is_sampled: bool,
}

impl SpanContext {
    /// Makes the first span of a new trace.
    pub(crate) fn new_trace() -> Self {
        Self {
            trace: rand::random(),
            span: rand::random(),
        }
    }

    /// Makes another span of the same trace.
    pub(crate) fn sibling(self) -> Self {
        Self {
            trace: self.trace,
            span: rand::random(),
        }
    }

    /// Returns the header for a request whose parent is this span, which is recorded.
    pub(crate) fn header(self) -> HeaderValue {
        let text = format!("00-{:032x}-{:016x}-{SAMPLED:02x}", self.trace, self.span);
        HeaderValue::try_from(text).expect("hexadecimal digits are a header value")
    }
}

impl Parent {
    /// Reads the span of the client. Returns `None` if there is none, or if the header is not valid.
    /// Then a new trace begins, as the specification says. Later versions may have more parts.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(TRACEPARENT).iter();
        let line = lines.next().filter(|_| lines.next().is_none())?;
        let mut parts = line.to_str().ok()?.split('-');
        let mut next = |digits| number(parts.next()?, digits);
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        let has_more = parts.next().is_some();
        if version == INVALID_VERSION || version == 0 && has_more {
            return None;
        }
        Some(Self {
            span: SpanContext {
                trace: TraceId::new(trace)?,
                span: SpanId::new(u64::try_from(span).ok()?)?,
            },
            is_sampled: flags & u128::from(SAMPLED) != 0,
        })
    }
}

/// Returns the number with exactly `digits` hexadecimal digits, in lower case.
fn number(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_number = text.len() == digits && text.bytes().all(is_digit);
    is_number.then(|| u128::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
    const SPAN: u64 = 0x00f0_67aa_0ba9_02b7;

    fn parsed(lines: &[&str]) -> Option<Parent> {
        let lines = lines.iter().map(|line| {
            let value = HeaderValue::try_from(*line).expect("a header value");
            (TRACEPARENT, value)
        });
        Parent::of(&lines.collect())
    }

    #[test]
    fn only_a_strictly_valid_header_is_read() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let span = "00f067aa0ba902b7";
        for (text, sampled) in [
            (format!("00-{trace}-{span}-01"), Some(true)),
            (format!("00-{trace}-{span}-00"), Some(false)),
            // The second bit says that the trace's id is random. The others are reserved.
            (format!("00-{trace}-{span}-03"), Some(true)),
            (format!("00-{trace}-{span}-fe"), Some(false)),
            (format!("01-{trace}-{span}-01"), Some(true)),
            (format!("01-{trace}-{span}-00-more"), Some(false)),
            (format!("01-{trace}-{span}-01more"), None),
            (format!("ff-{trace}-{span}-01"), None),
            (format!("0-{trace}-{span}-01"), None),
            (format!("00-{trace}-{span}-1"), None),
            (format!("00-{trace}-{span}-0x"), None),
            (format!("00-{trace}-{span}-01-"), None),
            (format!("00-{trace}-{span}-01-more"), None),
            (format!("00-{trace}-{span}"), None),
            (format!("00-{}-{span}-01", trace.to_uppercase()), None),
            (format!("00-{trace}-{}-01", span.to_uppercase()), None),
            (format!("00-{}-{span}-01", "0".repeat(32)), None),
            (format!("00-{trace}-{}-01", "0".repeat(16)), None),
            (format!("00-{}-{span}-01", &trace[1..]), None),
            (format!("00-+{}-{span}-01", &trace[1..]), None),
            (format!("00-{trace}-{span}0-01"), None),
            (format!(" 00-{trace}-{span}-01"), None),
            (String::new(), None),
        ] {
            let expected = sampled.map(|is_sampled| Parent {
                span: SpanContext {
                    trace: TraceId::new(TRACE).expect("not zero"),
                    span: SpanId::new(SPAN).expect("not zero"),
                },
                is_sampled,
            });
            assert_eq!(parsed(&[&text]), expected, "{text}");
        }
        let twice = format!("00-{trace}-{span}-01");
        assert_eq!(parsed(&[&twice, &twice]), None);
        assert_eq!(parsed(&[]), None);
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        for _ in 0..100 {
            let span = SpanContext::new_trace();
            let header = span.header();
            let text = header.to_str().expect("ASCII");
            let parent = Parent {
                span,
                is_sampled: true,
            };
            assert_eq!(parsed(&[text]), Some(parent), "{text}");
            let sibling = span.sibling();
            assert_eq!(sibling.trace, span.trace);
            assert_ne!(sibling.span, span.span);
        }
    }
}
