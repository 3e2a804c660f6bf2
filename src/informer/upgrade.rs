//! Relists the caches after an upgrade of the API server, because another version may encode an
//! object differently although its resource version is the same.

use std::ops::Range;
use std::time::Duration;

use rand::Rng;
use tokio::time::MissedTickBehavior;
use tokio::time::interval;
use tokio::time::sleep;

use crate::upstream::Client;
use crate::upstream::Discovery;

use super::InformerSet;

/// Interval of polls of the API server's version.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// A new version counts after this number of polls in sequence that returned it. During a rolling
/// upgrade, servers of both versions answer by turns.
const SETTLED_POLLS: u32 = 3;
/// Random pause between the relists of two informers, in milliseconds. So the API server does not
/// get all lists at once.
const RELIST_PAUSE_MS: Range<u64> = 1000..3000;

/// The version of the API server, as seen by polls.
#[derive(Debug, Default)]
struct ServerVersion {
    /// The version that the caches have; `None` before the first poll.
    settled: Option<String>,
    /// Another version, and the number of polls in sequence that returned it.
    candidate: Option<(String, u32)>,
}

/// Relists all informers of `informers`, one after another, whenever the API server has settled on
/// another version. Passes each polled version to `on_poll`. Runs until the future is dropped.
pub(super) async fn relist_after_upgrades(
    client: &Client,
    informers: &InformerSet,
    on_poll: impl Fn(&str),
) {
    let mut version = ServerVersion::default();
    let mut poll = interval(POLL_INTERVAL);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        poll.tick().await;
        let Ok(polled) = Discovery::version(client).await else {
            continue;
        };
        on_poll(&polled);
        if version.has_changed(&polled) {
            tracing::info!(version = %polled, "the API server's version changed, listing again");
            staggered(informers.all(), |informer| informer.relist()).await;
        }
    }
}

/// Calls `act` for each item, with a random pause after each.
async fn staggered<T>(items: Vec<T>, act: impl Fn(&T)) {
    for item in items {
        act(&item);
        let pause = rand::rng().random_range(RELIST_PAUSE_MS);
        sleep(Duration::from_millis(pause)).await;
    }
}

// === impl ServerVersion ===

impl ServerVersion {
    /// True if the API server has settled on `polled` and had another version before.
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
    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;

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
            let seen = polls
                .chars()
                .map(|polled| match version.has_changed(&polled.to_string()) {
                    true => 'x',
                    false => '.',
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
