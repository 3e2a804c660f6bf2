//! Entry: one request and the head of its answer, as plain values.

use std::time::Duration;

use super::client::Identity;
use super::counts::{Count, Counts};
use super::operation::Operation;
use crate::bill::estimate::Cost;

/// One request and its answer. What is not known is 0 or false.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// From whom the request came.
    pub identity: Identity<'a>,
    /// The header `User-Agent`; empty if there is none.
    pub user_agent: &'a str,
    /// What the request does.
    pub operation: Operation<'a>,
    /// Whether a cache or the API server has answered.
    pub outcome: Outcome,
    /// The status of the answer.
    pub status: u16,
    /// True for a GET, or a LIST without a continue token, of the most recent state.
    pub is_unversioned: bool,
    /// True for a LIST without a continue token, and for a WATCH with `sendInitialEvents=true`.
    pub starts_list: bool,
    /// The objects in the answer to a LIST.
    pub objects: u64,
    /// The bytes of the answer's body. 0 for an answer that is opened: see [`OpenAnswer`].
    ///
    /// [`OpenAnswer`]: super::OpenAnswer
    pub bytes: u64,
    /// How long the request waited for a right, a cache and a proof.
    pub waited: Duration,
    /// True if the answer was broken off because the client read too slowly.
    pub was_stalled: bool,
    /// kubefan's CPU time for the request, as sampled.
    pub cpu: Duration,
    /// What the answer would have cost the API server; nothing if it has answered itself.
    pub saved: Cost,
}

/// Whether a cache or the API server has answered, or kubefan has refused the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A cache has answered.
    Hit,
    /// The request was forwarded.
    Forwarded {
        /// The metric label `reason`.
        reason: &'static str,
        /// True if no cache has a media type that the client accepts. Tables do not count: a client
        /// that asks for one accepts JSON, too.
        is_for_format: bool,
    },
    /// kubefan has refused the request itself.
    Refused,
    /// The client left before there was an answer.
    Unanswered,
}

// === impl Entry ===

impl<'a> Entry<'a> {
    /// Creates the entry of a request that a cache has answered, with the user `u` and a program
    /// that sends `program/v1.2.3`.
    #[cfg(test)]
    pub(in crate::bill) fn for_tests(verb: &'static str, resource: &'a str) -> Self {
        Self {
            identity: Identity::User("u"),
            user_agent: "program/v1.2.3",
            operation: Operation {
                verb,
                group: "",
                resource,
                selector: super::SelectorClass::None,
            },
            outcome: Outcome::Hit,
            status: 200,
            is_unversioned: false,
            starts_list: false,
            objects: 0,
            bytes: 0,
            waited: Duration::ZERO,
            was_stalled: false,
            cpu: Duration::ZERO,
            saved: Cost::default(),
        }
    }

    /// Returns what is counted for the request.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default().with(Count::Requests, 1);
        match self.outcome {
            Outcome::Hit => counts.add(Count::Hits, 1),
            Outcome::Forwarded { is_for_format, .. } => {
                counts.add(Count::Forwards, 1);
                counts.add(Count::OtherFormat, u64::from(is_for_format));
            }
            Outcome::Refused => counts.add(Count::Refusals, 1),
            Outcome::Unanswered => {}
        }
        match self.status {
            401 => counts.add(Count::Unauthorized, 1),
            403 => counts.add(Count::Forbidden, 1),
            410 => counts.add(Count::Gone, 1),
            429 => counts.add(Count::TooMany, 1),
            _ => {}
        }
        let is_success = self.status < 400;
        // That there is no such object is an answer, too.
        let is_answered = is_success || self.status == 404;
        let is_watch = self.operation.verb == "watch";
        counts.add(Count::WatchesOpened, u64::from(is_watch && is_success));
        counts.add(
            Count::Unversioned,
            u64::from(self.is_unversioned && is_answered),
        );
        counts.add(Count::Lists, u64::from(self.starts_list && is_answered));
        counts.add(Count::Objects, self.objects);
        counts.add(Count::Bytes, self.bytes);
        counts.add(Count::Waited, micros(self.waited));
        counts.add(Count::Stalls, u64::from(self.was_stalled));
        counts.add(Count::Cpu, nanos(self.cpu));
        add_saved(&mut counts, &self.saved);
        counts
    }
}

/// Adds what the API server was saved.
pub(super) fn add_saved(counts: &mut Counts, saved: &Cost) {
    counts.add(Count::SavedRequests, saved.requests);
    counts.add(Count::SavedObjects, saved.objects);
    counts.add(Count::SavedEvents, saved.events);
    counts.add(Count::SavedSeats, saved.seats);
    counts.add(Count::SavedCpu, nanos(saved.cpu));
}

/// Returns `duration` in nanoseconds. The largest number is 584 years.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fact_is_counted_once() {
        let entry = Entry {
            is_unversioned: true,
            starts_list: true,
            objects: 10,
            bytes: 1_000,
            waited: Duration::from_millis(2),
            was_stalled: true,
            cpu: Duration::from_micros(3),
            saved: Cost {
                requests: 1,
                objects: 10,
                events: 2,
                seats: 4,
                cpu: Duration::from_micros(5),
            },
            ..Entry::for_tests("list", "pods")
        };
        let expected = Counts::default()
            .with(Count::Requests, 1)
            .with(Count::Hits, 1)
            .with(Count::Unversioned, 1)
            .with(Count::Lists, 1)
            .with(Count::Objects, 10)
            .with(Count::Bytes, 1_000)
            .with(Count::Waited, 2_000)
            .with(Count::Stalls, 1)
            .with(Count::Cpu, 3_000)
            .with(Count::SavedRequests, 1)
            .with(Count::SavedObjects, 10)
            .with(Count::SavedEvents, 2)
            .with(Count::SavedSeats, 4)
            .with(Count::SavedCpu, 5_000);
        assert_eq!(entry.counts(), expected);
    }

    #[test]
    fn reads_that_are_refused_or_fail_are_no_reads_of_a_state_and_open_no_watch() {
        for (status, is_answered, opens_watch) in [
            (200, true, true),
            (404, true, false),
            (401, false, false),
            (403, false, false),
            (410, false, false),
            (429, false, false),
            (499, false, false),
            (503, false, false),
        ] {
            let entry = Entry {
                status,
                is_unversioned: true,
                starts_list: true,
                ..Entry::for_tests("watch", "pods")
            };
            let counts = entry.counts();
            for (count, expected) in [
                (Count::Requests, true),
                (Count::Unversioned, is_answered),
                (Count::Lists, is_answered),
                (Count::WatchesOpened, opens_watch),
            ] {
                let found = counts.get(count);
                assert_eq!(found, u64::from(expected), "{count:?}, {status}");
            }
        }
    }

    #[test]
    fn outcome_and_status_have_their_counts() {
        let forwarded = |is_for_format| Outcome::Forwarded {
            reason: "media_type",
            is_for_format,
        };
        for (outcome, status, counted) in [
            (
                Outcome::Refused,
                429,
                &[Count::Refusals, Count::TooMany][..],
            ),
            (
                Outcome::Refused,
                401,
                &[Count::Refusals, Count::Unauthorized],
            ),
            (forwarded(false), 403, &[Count::Forwards, Count::Forbidden]),
            (forwarded(false), 410, &[Count::Forwards, Count::Gone]),
            (forwarded(true), 200, &[Count::Forwards, Count::OtherFormat]),
            (Outcome::Unanswered, 499, &[]),
        ] {
            let entry = Entry {
                outcome,
                status,
                ..Entry::for_tests("get", "pods")
            };
            let mut expected = Counts::default().with(Count::Requests, 1);
            counted.iter().for_each(|count| expected.add(*count, 1));
            assert_eq!(entry.counts(), expected, "{outcome:?}, {status}");
        }
    }
}
