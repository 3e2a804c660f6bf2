//! What a read would have cost the API server. Pure functions.
//!
//! Requests, objects, events and seats are counted as the API server counts them. CPU time is an
//! estimate: the coefficients were measured with one version on one machine. `docs/bill.md` has
//! them, with their source and their error.

mod cpu;
mod seats;

use std::time::Duration;

pub use cpu::BodyFormat;
pub use seats::{ListParameters, ListVersion};
use seats::{list_seats, watch_seats};

/// What reads cost an API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Requests.
    pub requests: u64,
    /// Objects in the answers to LISTs.
    pub objects: u64,
    /// Events of watches.
    pub events: u64,
    /// Seats of API Priority and Fairness, at the start of the requests.
    pub seats: u64,
    /// Estimated CPU time.
    pub cpu: Duration,
}

/// The answer to a GET or LIST.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// Objects in the answer.
    pub objects: u64,
    /// Bytes of its body before compression.
    pub bytes: u64,
    /// The format of its body.
    pub format: BodyFormat,
    /// True if the request is for the most recent state.
    pub is_most_recent: bool,
}

/// Returns the cost of a GET of one object.
pub fn get(answer: &Answered) -> Cost {
    Cost {
        requests: 1,
        seats: 1,
        cpu: cpu::request(answer.is_most_recent) + cpu::body(answer.bytes, answer.format),
        ..Cost::default()
    }
}

/// Returns the cost of a LIST at an API server of Kubernetes 1.`minor`.
pub fn list(minor: u32, parameters: &ListParameters, answer: &Answered) -> Cost {
    Cost {
        requests: 1,
        objects: answer.objects,
        seats: list_seats(minor, parameters),
        cpu: cpu::request(answer.is_most_recent)
            + cpu::examined(parameters.examined())
            + cpu::body(answer.bytes, answer.format),
        ..Cost::default()
    }
}

/// Returns the cost of the start of a WATCH at an API server of Kubernetes 1.`minor`. With
/// `sends_initial_events`, its parameter `sendInitialEvents` is true.
pub fn watch(minor: u32, parameters: &ListParameters, sends_initial_events: bool) -> Cost {
    Cost {
        requests: 1,
        seats: watch_seats(minor, parameters, sends_initial_events),
        cpu: cpu::WATCH_START,
        ..Cost::default()
    }
}

/// Returns the cost of `events` events of a watch, which have `bytes` bytes together.
pub(super) fn events(events: u64, bytes: u64) -> Cost {
    Cost {
        events,
        cpu: cpu::events(events, bytes),
        ..Cost::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: ListParameters = ListParameters {
        stored: 5_000,
        average_bytes: 4_700,
        names_one_object: false,
        limit: 0,
        has_continue: false,
        has_selector: false,
        is_indexed: false,
        version: ListVersion::Zero,
    };

    fn answered(objects: u64, bytes: u64, format: BodyFormat) -> Answered {
        Answered {
            objects,
            bytes,
            format,
            is_most_recent: false,
        }
    }

    fn close(cost: Cost, milliseconds: f64, error: f64) {
        let estimate = cost.cpu.as_secs_f64() * 1_000.0;
        let ratio = estimate / milliseconds;
        assert!(
            (ratio - 1.0).abs() <= error,
            "{estimate} ms, {milliseconds} ms"
        );
    }

    /// The rows of the measurement that the coefficients come from: kube-apiserver 1.36.2, two
    /// cores, TLS.
    #[test]
    fn estimates_are_close_to_the_measured_cpu_time() {
        use BodyFormat::{Json, Protobuf, Table};
        let all = |bytes, format| list(36, &PODS, &answered(5_000, bytes, format));
        for (cost, milliseconds) in [
            (all(33_924_000, Json), 520.0),
            (all(33_924_000, Json), 407.9),
            (all(33_924_000, Json), 365.8),
            (all(23_649_000, Protobuf), 214.0),
            (all(18_747_000, Table), 269.1),
        ] {
            close(cost, milliseconds, 0.25);
        }
        let page = ListParameters {
            limit: 500,
            version: ListVersion::Unset,
            ..PODS
        };
        close(list(36, &page, &answered(500, 3_392_000, Json)), 40.7, 0.25);
        let by_label = ListParameters {
            has_selector: true,
            ..PODS
        };
        close(list(36, &by_label, &answered(50, 339_000, Json)), 6.5, 0.25);
        let by_node = ListParameters {
            is_indexed: true,
            ..by_label
        };
        close(list(36, &by_node, &answered(50, 339_000, Json)), 4.3, 0.25);
        close(get(&answered(1, 6_800, Json)), 0.34, 0.25);
        let recent = Answered {
            is_most_recent: true,
            ..answered(1, 6_800, Json)
        };
        close(get(&recent), 0.52, 0.25);
        // Events of 2 KiB and of 10 KiB, with busy cores and with idle ones.
        for (bytes, microseconds) in [
            (2_206, 18.1),
            (2_206, 15.5),
            (2_206, 28.1),
            (2_206, 22.5),
            (10_398, 35.8),
            (10_398, 33.8),
        ] {
            let thousand = events(1_000, bytes * 1_000);
            close(thousand, microseconds, 0.35);
        }
    }

    #[test]
    fn what_is_counted_is_exact() {
        let answer = answered(50, 1_000, BodyFormat::Json);
        for (cost, expected) in [
            (get(&answer), (1, 0, 0, 1)),
            // A list from the API server's cache has at most ten seats.
            (list(36, &PODS, &answer), (1, 50, 0, 10)),
            (watch(36, &PODS, true), (1, 0, 0, 10)),
            (events(7, 700), (0, 0, 7, 0)),
        ] {
            let found = (cost.requests, cost.objects, cost.events, cost.seats);
            assert_eq!(found, expected);
        }
    }
}
