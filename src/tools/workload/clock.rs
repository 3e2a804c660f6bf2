//! The workload's time, which the caller provides and which always advances.

use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::jiff::Timestamp;

const MICROS: i64 = 1_000_000;

/// The time of the last operation, in microseconds since 1970.
#[derive(Default)]
pub(super) struct Clock(i64);

impl Clock {
    pub(super) fn new(now: SystemTime) -> Self {
        Self(micros_of(now))
    }

    /// Advances to `now`, or by one microsecond if `now` is not later.
    pub(super) fn advance(&mut self, now: SystemTime) {
        self.0 = micros_of(now).max(self.0 + 1);
    }

    pub(super) fn micros(&self) -> i64 {
        self.0
    }

    pub(super) fn seconds(&self) -> i64 {
        self.0.div_euclid(MICROS)
    }
}

fn micros_of(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX / 2)
}

/// Formats a time in seconds since 1970 like `metadata.creationTimestamp`.
pub(super) fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds)
        .unwrap_or_default()
        .to_string()
}

/// Formats a time in microseconds since 1970 like a lease's `renewTime`, always with six digits
/// after the point.
pub(super) fn micro_time(micros: i64) -> String {
    let moment = Timestamp::from_microsecond(micros).unwrap_or_default();
    format!("{moment:.6}")
}
