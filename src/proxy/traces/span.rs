//! A span that has ended: what the collector gets.

use std::borrow::Cow;

use jiff::Timestamp;
use tokio::time::Instant;

use super::context::{SpanContext, SpanId};

/// A part of the work for a request, with its start and end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) context: SpanContext,
    pub(crate) parent: Option<SpanId>,
    pub(crate) name: Cow<'static, str>,
    pub(crate) kind: SpanKind,
    /// Nanoseconds since 1970, as is `ended`.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    /// The spans of work that this one shared with others.
    pub(crate) links: Vec<SpanContext>,
    /// True if the work has failed, and not because of the request.
    pub(crate) is_error: bool,
}

/// How a span relates to those of other programs. The numbers are those of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanKind {
    Internal = 1,
    /// The span of an answer to a client.
    Server = 2,
    /// The span of a call to the API server.
    Client = 3,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(Cow<'static, str>),
    Number(u32),
}

/// One moment by both clocks, from which the times of a span follow. A change of the machine's
/// clock during a request does not change its durations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    moment: Instant,
    time: Timestamp,
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl Clock {
    pub(crate) fn now() -> Self {
        Self {
            moment: Instant::now(),
            time: Timestamp::now(),
        }
    }

    /// Returns the time of `moment` in nanoseconds since 1970.
    pub(crate) fn unix_nanos(&self, moment: Instant) -> u64 {
        let nanos = |duration: std::time::Duration| i128::try_from(duration.as_nanos());
        let after = nanos(moment.saturating_duration_since(self.moment)).unwrap_or(i128::MAX);
        let before = nanos(self.moment.saturating_duration_since(moment)).unwrap_or(i128::MAX);
        let time = self.time.as_nanosecond().saturating_add(after);
        u64::try_from(time.saturating_sub(before)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn times_before_and_after_the_known_moment_keep_their_distance() {
        let early = Instant::now();
        tokio::time::advance(Duration::from_millis(7)).await;
        let clock = Clock::now();
        let now = clock.unix_nanos(Instant::now());
        assert_eq!(i128::from(now), clock.time.as_nanosecond());
        assert_eq!(now - clock.unix_nanos(early), 7_000_000);
        tokio::time::advance(Duration::from_nanos(1)).await;
        assert_eq!(clock.unix_nanos(Instant::now()) - now, 1);
    }
}
