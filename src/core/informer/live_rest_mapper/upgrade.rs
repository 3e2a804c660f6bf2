//! Relists the caches after an upgrade of the API server, because another version may encode an
//! object differently although its resource version has not changed.

use std::ops::Range;
use std::time::Duration;

use rand::Rng;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use crate::informer::InformerSet;
use crate::upstream::{Client, PolledVersion};

/// Interval of polls of the API server's version.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// The shortest time from a poll to another poll that a new connection causes.
const EARLY_POLL_PAUSE: Duration = Duration::from_secs(2);
/// A new version counts after this number of polls in sequence that returned it. During a rolling
/// upgrade, servers of both versions answer by turns.
const SETTLED_POLLS: u32 = 3;
/// Random pause between the relists of two informers, in milliseconds. So the API server does not
/// get all lists at once.
pub(super) const RELIST_PAUSE_MS: Range<u64> = 1000..3000;

/// The version of the API server, as seen by polls.
#[derive(Debug, Default)]
struct ServerVersion {
    /// The version that the caches have; `None` before the first poll.
    settled: Option<String>,
    /// Another version, and the number of polls in sequence that returned it.
    candidate: Option<(String, u32)>,
}

/// Why the version was polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Poll {
    /// A minute has passed.
    Regular,
    /// A connection was opened, perhaps to an API server of another version. Such polls prove
    /// nothing about how long a version has been in use.
    Reconnected,
}

/// Relists all informers of `informers`, one after another, whenever the API server has settled on
/// another version. Passes each polled version to `on_poll`. Runs until the future is dropped.
pub(super) async fn relist_after_upgrades(
    client: &Client,
    informers: &InformerSet,
    on_poll: impl Fn(&PolledVersion, Poll),
) {
    let upgraded = Notify::new();
    let mut version = ServerVersion::default();
    let on_poll = |polled: PolledVersion, cause| {
        on_poll(&polled, cause);
        let polled = &polled.version;
        if cause == Poll::Regular && version.has_changed(polled) {
            tracing::info!(version = %polled, "the API server's version changed, listing again");
            // The API server may support them now.
            informers.inner.watch_lists.forget();
            upgraded.notify_one();
        }
    };
    let polls = poll_regularly(
        || async { PolledVersion::poll(client).await.ok() },
        || client.reconnected(),
        on_poll,
    );
    // Beside the polls, because many relists take minutes.
    let relists = relist_all_after(&upgraded, || informers.all(), |informer| informer.relist());
    tokio::join!(polls, relists);
}

/// Calls `relist` for each of `all`, one after another, whenever `upgraded` is notified.
async fn relist_all_after<T>(upgraded: &Notify, all: impl Fn() -> Vec<T>, relist: impl Fn(&T)) {
    loop {
        upgraded.notified().await;
        staggered(all(), &relist).await;
    }
}

/// Calls `poll` each [`POLL_INTERVAL`], and soon after `reconnected` completes. Passes the results
/// to `on_poll`.
async fn poll_regularly<T, P, R>(
    poll: impl Fn() -> P,
    reconnected: impl Fn() -> R,
    mut on_poll: impl FnMut(T, Poll),
) where
    P: Future<Output = Option<T>>,
    R: Future<Output = ()>,
{
    let mut regular = interval(POLL_INTERVAL);
    regular.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = None;
    loop {
        let early = async {
            reconnected().await;
            if let Some(last) = last {
                sleep_until(last + EARLY_POLL_PAUSE).await;
            }
        };
        let cause = tokio::select! {
            biased;
            _ = regular.tick() => Poll::Regular,
            () = early => Poll::Reconnected,
        };
        let polled = poll().await;
        last = Some(Instant::now());
        if let Some(polled) = polled {
            on_poll(polled, cause);
        }
    }
}

/// Calls `act` for each item, with a random pause after each.
async fn staggered<T>(items: Vec<T>, act: impl Fn(&T)) {
    for item in items {
        act(&item);
        pause(RELIST_PAUSE_MS).await;
    }
}

/// Waits for a random number of milliseconds.
pub(super) async fn pause(milliseconds: Range<u64>) {
    let pause = rand::rng().random_range(milliseconds);
    sleep(Duration::from_millis(pause)).await;
}

// === impl ServerVersion ===

impl ServerVersion {
    /// Returns true if the API server has settled on `polled` and had another version before.
    fn has_changed(&mut self, polled: &str) -> bool {
        let Some(settled) = &self.settled else {
            self.settled = Some(polled.to_owned());
            return false;
        };
        if settled == polled {
            self.candidate = None;
            return false;
        }
        let polls = match &self.candidate {
            Some((candidate, polls)) if candidate == polled => polls + 1,
            _ => 1,
        };
        if polls < SETTLED_POLLS {
            self.candidate = Some((polled.to_owned(), polls));
            return false;
        }
        self.settled = Some(polled.to_owned());
        self.candidate = None;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use parking_lot::Mutex;
    use tokio::time::timeout;

    use super::*;

    /// Returns the polls within `limit`, each with its second and its cause. Connections to the API
    /// server are opened when `opened` is notified. Each poll takes a second.
    async fn polls(limit: u64, opened: &Notify) -> Vec<(u64, Poll)> {
        let start = Instant::now();
        let polls = RefCell::new(Vec::new());
        let polling = poll_regularly(
            || async {
                sleep(Duration::from_secs(1)).await;
                Some(start.elapsed().as_secs())
            },
            || opened.notified(),
            |second, cause| polls.borrow_mut().push((second, cause)),
        );
        timeout(Duration::from_secs(limit), polling).await.ok();
        polls.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_causes_a_poll_soon_but_not_each_one() {
        let opened = Notify::new();
        let connecting = async {
            for second in [10, 10, 10, 0, 0] {
                sleep(Duration::from_secs(second)).await;
                opened.notify_one();
            }
            // Each poll opens a separate connection.
            sleep(Duration::from_secs(51)).await;
            for _ in 0..4 {
                sleep(Duration::from_secs(1)).await;
                opened.notify_one();
            }
        };
        let (polls, ()) = tokio::join!(polls(100, &opened), connecting);
        let expected = [
            (1, Poll::Regular),
            (11, Poll::Reconnected),
            (21, Poll::Reconnected),
            (31, Poll::Reconnected),
            (34, Poll::Reconnected),
            (61, Poll::Regular),
            (83, Poll::Reconnected),
            (86, Poll::Reconnected),
            (89, Poll::Reconnected),
        ];
        assert_eq!(polls, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn relists_delay_no_poll() {
        let (relisted, upgraded, opened) = (Cell::new(0), Notify::new(), Notify::new());
        upgraded.notify_one();
        let relists = relist_all_after(
            &upgraded,
            || (0..1_000).collect(),
            |_| {
                relisted.set(relisted.get() + 1);
            },
        );
        let polls = tokio::select! {
            polls = polls(190, &opened) => polls,
            () = relists => unreachable!("it has no end"),
        };
        let seconds: Vec<_> = polls.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds, [1, 61, 121, 181]);
        // The pauses are of one to three seconds.
        assert!((63..=191).contains(&relisted.get()), "{}", relisted.get());
    }

    #[test]
    fn a_version_counts_when_some_polls_in_sequence_returned_it() {
        for (polls, changes) in [
            ("AAAAAA", "......"),
            ("AABBBB", "....x."),
            // A rolling upgrade: two servers answer by turns.
            ("ABABABAB", "........"),
            ("ABBABBB", "......x"),
            ("ABBBAAA", "...x..x"),
            ("ABCCCC", "....x."),
        ] {
            let mut version = ServerVersion::default();
            let seen = polls.chars().map(|polled| {
                if version.has_changed(&polled.to_string()) {
                    'x'
                } else {
                    '.'
                }
            });
            assert_eq!(seen.collect::<String>(), changes, "{polls}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn relists_do_not_coincide() {
        let acted = Mutex::new(Vec::new());
        staggered((0..50).collect(), |_| acted.lock().push(Instant::now())).await;
        let acted = acted.into_inner();
        assert_eq!(acted.len(), 50);
        for pair in acted.windows(2) {
            let pause = pair[1].duration_since(pair[0]).as_millis() as u64;
            assert!(RELIST_PAUSE_MS.contains(&pause), "{pause} ms");
        }
    }
}
