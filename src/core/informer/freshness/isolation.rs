//! Isolated selections: at the same version, the cache and the API server have different objects of
//! such a selection, even after a relist.
//!
//! No relist repairs such a difference. For example, a newer API server may fill a selectable field
//! in another way than kubefan expects. Only the reads of the isolated selection are forwarded; the
//! cache answers all others. Every few minutes, a read of the selection checks the cache again.
//! Only an equal verification list ends the isolation: a version that the watch has reached says
//! nothing about a selector that the two sides understand differently.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::Selection;

/// Time between two checks of an isolated selection.
const CHECK_INTERVAL: Duration = Duration::from_secs(300);
/// A selection that differed once, this long ago, is treated as one that never differed.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Maximum number of selections of a cache that are stored here.
const MAX_REMEMBERED: usize = 1024;

/// The selections of one cache that differed from the API server.
#[derive(Default)]
pub(super) struct Isolation(Mutex<HashMap<Arc<Selection>, Difference>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    /// The selection differed at this time. A list that begins later may repair the difference.
    Once(Instant),
    /// A list that began after the first difference did not repair it. The next check is due at
    /// this time.
    Lasting(Instant),
}

/// What a difference requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// A relist may repair the cache.
    Relist,
    /// The selection is isolated from now on, or still.
    Isolate,
}

// === impl Isolation ===

impl Isolation {
    /// Returns true if the reads of `selection` are forwarded.
    pub(super) fn contains(&self, selection: &Selection) -> bool {
        let differences = self.0.lock();
        matches!(differences.get(selection), Some(Difference::Lasting(_)))
    }

    /// Returns true if `selection` is isolated and must be checked now. The next check is then due
    /// some minutes later, so that only one read makes the check and the others are forwarded.
    pub(super) fn begin_check(&self, selection: &Selection) -> bool {
        let now = Instant::now();
        match self.0.lock().get_mut(selection) {
            Some(Difference::Lasting(check_at)) if *check_at <= now => {
                *check_at = now + CHECK_INTERVAL;
                true
            }
            _ => false,
        }
    }

    /// Records that `selection` differs in a cache that continues from a list which began at
    /// `list_began`.
    pub(super) fn differs(&self, selection: &Arc<Selection>, list_began: Instant) -> Remedy {
        let now = Instant::now();
        let mut differences = self.0.lock();
        let next = match differences.get(selection) {
            Some(Difference::Once(at)) if now.duration_since(*at) >= FORGOTTEN_AFTER => {
                Difference::Once(now)
            }
            Some(Difference::Once(at)) if *at >= list_began => Difference::Once(*at),
            Some(_) => Difference::Lasting(now + CHECK_INTERVAL),
            None => Difference::Once(now),
        };
        if differences.len() >= MAX_REMEMBERED && !differences.contains_key(selection) {
            differences.retain(|_, difference| !difference.is_old(now));
        }
        if differences.len() < MAX_REMEMBERED || differences.contains_key(selection) {
            differences.insert(Arc::clone(selection), next);
        }
        match next {
            Difference::Once(_) => Remedy::Relist,
            Difference::Lasting(_) => Remedy::Isolate,
        }
    }

    /// Records that a verification list of `selection` was equal to the cache. Returns true if this
    /// ends the isolation of the selection.
    pub(super) fn equals(&self, selection: &Selection) -> bool {
        let ended = self.0.lock().remove(selection);
        matches!(ended, Some(Difference::Lasting(_)))
    }

    /// Returns the number of isolated selections.
    pub(super) fn len(&self) -> usize {
        let differences = self.0.lock();
        let is_lasting = |difference: &&Difference| matches!(difference, Difference::Lasting(_));
        differences.values().filter(is_lasting).count()
    }
}

// === impl Difference ===

impl Difference {
    /// Returns true if the difference may be forgotten: it was repaired, or no client
    /// reads the selection.
    fn is_old(self, now: Instant) -> bool {
        let since = match self {
            Self::Once(at) => at,
            Self::Lasting(check_at) => check_at,
        };
        now.saturating_duration_since(since) >= FORGOTTEN_AFTER
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn selection(namespace: usize) -> Arc<Selection> {
        Arc::new(Selection {
            namespace: Some(namespace.to_string()),
            ..Selection::default()
        })
    }

    async fn pass(seconds: u64) -> Instant {
        advance(Duration::from_secs(seconds)).await;
        Instant::now()
    }

    #[tokio::test(start_paused = true)]
    async fn a_difference_that_a_later_list_does_not_repair_is_isolated() {
        let isolation = Isolation::default();
        let (first_list, differing) = (pass(0).await, selection(1));
        pass(1).await;
        assert_eq!(isolation.differs(&differing, first_list), Remedy::Relist);
        pass(1).await;
        // The relist has not begun yet.
        assert_eq!(isolation.differs(&differing, first_list), Remedy::Relist);
        assert!(!isolation.contains(&differing));
        let second_list = pass(1).await;
        pass(1).await;
        assert_eq!(isolation.differs(&differing, second_list), Remedy::Isolate);
        assert!(isolation.contains(&differing));
        assert!(!isolation.contains(&selection(2)));
        assert_eq!(isolation.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn one_read_in_some_minutes_checks_an_isolated_selection() {
        let isolation = Isolation::default();
        let differing = selection(1);
        let list = pass(0).await;
        isolation.differs(&differing, list);
        let list = pass(1).await + Duration::from_nanos(1);
        assert_eq!(isolation.differs(&differing, list), Remedy::Isolate);
        assert!(!isolation.begin_check(&differing));
        pass(CHECK_INTERVAL.as_secs()).await;
        assert!(isolation.begin_check(&differing));
        assert!(!isolation.begin_check(&differing));
        assert!(isolation.contains(&differing));
        assert!(isolation.equals(&differing));
        assert!(!isolation.contains(&differing));
        assert!(!isolation.equals(&differing));
    }

    #[tokio::test(start_paused = true)]
    async fn a_difference_long_after_the_last_one_is_a_new_one() {
        let isolation = Isolation::default();
        let differing = selection(1);
        let first_list = pass(0).await;
        assert_eq!(isolation.differs(&differing, first_list), Remedy::Relist);
        let list = pass(1).await;
        pass(FORGOTTEN_AFTER.as_secs()).await;
        assert_eq!(isolation.differs(&differing, list), Remedy::Relist);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limited_number_is_remembered() {
        let isolation = Isolation::default();
        let list = pass(1).await;
        for number in 0..MAX_REMEMBERED + 5 {
            assert_eq!(isolation.differs(&selection(number), list), Remedy::Relist);
        }
        assert_eq!(isolation.0.lock().len(), MAX_REMEMBERED);
        pass(FORGOTTEN_AFTER.as_secs()).await;
        isolation.differs(&selection(MAX_REMEMBERED + 9), list);
        assert_eq!(isolation.0.lock().len(), 1);
    }
}
