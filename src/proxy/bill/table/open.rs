//! Answers that are still being sent: what they have delivered, and which of them are behind.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::client::{Client, Keys};
use super::counts::{Count, Counts};
use super::entry::{add_saved, nanos};
use super::operation::OperationName;
use crate::bill::cpu::CpuAccount;
use crate::bill::estimate;

/// A watch that ended within this time is short: its client reopens it too often.
pub(super) const SHORT_WATCH: Duration = Duration::from_secs(5);

/// A reader that has been behind for less is busy, not slow.
pub(super) const SLOW_AFTER: Duration = Duration::from_secs(5);

/// An answer that is still being sent, such as that of a watch. The bill asks it when it is read,
/// and every few seconds, so that the answer calls nothing for an event.
pub trait OpenAnswer: Send + Sync {
    /// Returns what was delivered since the start of the answer. Cheap: all open answers are asked.
    fn progress(&self) -> Progress;

    /// Returns how far the reader is behind at `now`; `None` if it has everything.
    fn behind(&self, now: Instant) -> Option<Behind>;
}

/// What an answer has delivered since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Events of a watch, including initial events.
    pub events: u64,
    /// Bytes of the body.
    pub bytes: u64,
    /// True if a watch has ended with 410 in its stream.
    pub is_expired: bool,
    /// True if the answer was broken off because the client read too slowly.
    pub was_stalled: bool,
}

/// How far a reader is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Events that the reader has not received.
    pub events: u64,
    /// For how long the oldest of them has waited.
    pub waited: Duration,
    /// How long the oldest of them will be retained. Then the watch ends with 410, or the answer is
    /// broken off. `None` if that is not known.
    pub remaining: Option<Duration>,
}

/// An open answer in the table.
pub(super) struct Open {
    pub(super) client: Arc<Client>,
    pub(super) operation: Arc<OperationName>,
    pub(super) answer: Arc<dyn OpenAnswer>,
    /// What was counted already.
    events: u64,
    bytes: u64,
    /// The account of the connection, from which the CPU time for the answer is taken. `None` if
    /// it is not measured.
    cpu: Option<Arc<CpuAccount>>,
    /// When the answer began, in hundredths of a second after the start of the bill.
    opened: u32,
    /// True if a cache answers, so that what is delivered is saved.
    is_hit: bool,
}

// === impl Open ===

impl Open {
    pub(super) fn new(
        (client, operation): (Arc<Client>, Arc<OperationName>),
        (answer, cpu): (Arc<dyn OpenAnswer>, Option<Arc<CpuAccount>>),
        is_hit: bool,
        at: Duration,
    ) -> Self {
        Self {
            client,
            operation,
            answer,
            events: 0,
            bytes: 0,
            cpu,
            opened: hundredths(at),
            is_hit,
        }
    }

    /// Returns the hashes of the user, the client and the operation.
    pub(super) fn keys(&self) -> Keys {
        Keys {
            user: self.client.user_key,
            client: self.client.key,
            operation: self.operation.key,
        }
    }

    /// Returns what was delivered and not counted before. Notes that it is counted now.
    pub(super) fn uncounted(&mut self, progress: &Progress) -> Counts {
        let events = take_more(&mut self.events, progress.events);
        let bytes = take_more(&mut self.bytes, progress.bytes);
        let cpu = self.cpu.as_ref().map_or(Duration::ZERO, |cpu| cpu.take());
        let mut counts = Counts::default()
            .with(Count::Events, events)
            .with(Count::Bytes, bytes)
            .with(Count::Cpu, nanos(cpu));
        if self.is_hit && events > 0 {
            add_saved(&mut counts, &estimate::events(events, bytes));
        }
        counts
    }

    /// Returns what is counted when the answer ends at `at`.
    pub(super) fn ended(&mut self, progress: &Progress, at: Duration) -> Counts {
        let mut counts = self.uncounted(progress);
        if self.operation.verb == "watch" {
            let lasted = hundredths(at).saturating_sub(self.opened);
            let is_short = lasted < hundredths(SHORT_WATCH);
            counts.add(Count::WatchesEnded, 1);
            counts.add(Count::ShortWatches, u64::from(is_short));
        }
        counts.add(Count::Gone, u64::from(progress.is_expired));
        counts.add(Count::Stalls, u64::from(progress.was_stalled));
        counts
    }
}

/// Returns by how much `now` is more than `counted`, which becomes the larger of both.
fn take_more(counted: &mut u64, now: u64) -> u64 {
    let more = now.saturating_sub(*counted);
    *counted += more;
    more
}

/// Returns `at` in hundredths of a second, at most 497 days.
fn hundredths(at: Duration) -> u32 {
    u32::try_from(at.as_millis() / 10).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bill::table::client::Identity;
    use crate::bill::table::operation::{Operation, SelectorClass};

    struct Silent;

    impl OpenAnswer for Silent {
        fn progress(&self) -> Progress {
            Progress::default()
        }

        fn behind(&self, _now: Instant) -> Option<Behind> {
            None
        }
    }

    fn open(verb: &'static str, is_hit: bool) -> Open {
        let keys = Keys {
            user: 0,
            client: 1,
            operation: 2,
        };
        let client = Client::new(keys, Identity::User("u"), "a/1");
        let operation = Operation {
            verb,
            group: "",
            resource: "pods",
            selector: SelectorClass::None,
        };
        let names = (Arc::new(client), Arc::new(OperationName::new(2, operation)));
        Open::new(
            names,
            (Arc::new(Silent), None),
            is_hit,
            Duration::from_secs(100),
        )
    }

    #[test]
    fn an_open_answer_takes_64_bytes() {
        assert!(size_of::<Open>() <= 64, "{}", size_of::<Open>());
    }

    #[test]
    fn what_is_delivered_is_counted_once() {
        let mut open = open("watch", true);
        let progress = |events, bytes| Progress {
            events,
            bytes,
            ..Progress::default()
        };
        let mut sum = Counts::default();
        // The third one was read before the second one, by another thread.
        for (events, bytes) in [(2, 200), (5, 500), (3, 300), (5, 500), (6, 700)] {
            sum += &open.uncounted(&progress(events, bytes));
        }
        assert_eq!(sum.get(Count::Events), 6);
        assert_eq!(sum.get(Count::Bytes), 700);
        assert_eq!(sum.get(Count::SavedEvents), 6);
        assert!(open.uncounted(&progress(6, 700)).is_zero());
    }

    #[test]
    fn the_cpu_time_of_the_connection_is_taken_once() {
        let account = Arc::new(CpuAccount::default());
        let mut open = Open {
            cpu: Some(Arc::clone(&account)),
            ..open("watch", true)
        };
        account.add(Duration::from_nanos(7));
        for expected in [7, 0] {
            let counts = open.uncounted(&Progress::default());
            assert_eq!(counts.get(Count::Cpu), expected);
        }
    }

    #[test]
    fn only_watches_of_a_cache_save_events_and_only_watches_can_be_short() {
        let at = |milliseconds: u64| Duration::from_millis(100_000 + milliseconds);
        let progress = Progress {
            events: 1,
            bytes: 10,
            is_expired: true,
            ..Progress::default()
        };
        for (verb, is_hit, lasted, ended, short) in [
            ("watch", true, 4_990, 1, 1),
            ("watch", false, 5_000, 1, 0),
            ("list", false, 10, 0, 0),
        ] {
            let counts = open(verb, is_hit).ended(&progress, at(lasted));
            assert_eq!(counts.get(Count::WatchesEnded), ended, "{verb}");
            assert_eq!(counts.get(Count::ShortWatches), short, "{verb}");
            assert_eq!(counts.get(Count::Gone), 1, "{verb}");
            assert_eq!(counts.get(Count::SavedEvents), u64::from(is_hit), "{verb}");
        }
    }
}
