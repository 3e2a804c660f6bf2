//! The CPU time of an API server, by coefficients.
//!
//! They come from measurements of kube-apiserver 1.36.2 with TLS on two virtual cores (AMD EPYC,
//! Zen 4), with pods of 6.8 KiB and ConfigMaps of 2 KiB and 10 KiB. They do not include etcd.

use std::time::Duration;

/// Any request: TLS, HTTP, authentication, authorization, audit and metrics.
const REQUEST: Duration = Duration::from_micros(260);
/// More for the most recent state, for which the API server asks etcd.
const MOST_RECENT: Duration = Duration::from_micros(180);
/// The start of a watch, over HTTP/2.
pub(super) const WATCH_START: Duration = Duration::from_micros(250);
/// One object that is compared with a selector.
const EXAMINED_NANOSECONDS: u64 = 450;
/// One event of a watch, without its bytes.
const EVENT_NANOSECONDS: u64 = 16_000;
/// Picoseconds for one byte of an event. It was encoded once for all watches.
const EVENT_BYTE_PICOSECONDS: u64 = 1_900;

/// The format of the body of a GET or LIST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// JSON, of complete objects or of their metadata.
    Json,
    /// Protobuf, of complete objects or of their metadata.
    Protobuf,
    /// A Table, in JSON.
    Table,
}

/// Returns the CPU time of a request without its answer.
pub(super) fn request(is_most_recent: bool) -> Duration {
    match is_most_recent {
        true => REQUEST + MOST_RECENT,
        false => REQUEST,
    }
}

/// Returns the CPU time of comparing `objects` objects with a selector.
pub(super) fn examined(objects: u64) -> Duration {
    Duration::from_nanos(objects.saturating_mul(EXAMINED_NANOSECONDS))
}

/// Returns the CPU time of encoding and sending a body of `bytes` bytes before compression.
/// Compression costs no more than it saves.
pub(super) fn body(bytes: u64, format: BodyFormat) -> Duration {
    let nanoseconds_per_byte = match format {
        BodyFormat::Json => 12,
        BodyFormat::Protobuf => 9,
        BodyFormat::Table => 14,
    };
    Duration::from_nanos(bytes.saturating_mul(nanoseconds_per_byte))
}

/// Returns the CPU time of sending `events` events of `bytes` bytes together.
pub(super) fn events(events: u64, bytes: u64) -> Duration {
    let of_bytes = bytes.saturating_mul(EVENT_BYTE_PICOSECONDS) / 1_000;
    let of_events = events.saturating_mul(EVENT_NANOSECONDS);
    Duration::from_nanos(of_events.saturating_add(of_bytes))
}
