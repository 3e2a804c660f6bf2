//! Remembers recent changes. For 30 s after a change, the API server may still answer as before it.
//! So its answers in this time count for only a short time.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

/// How long after a change the API server may still answer as before it.
pub(in crate::identity) const SETTLED: Duration = Duration::from_secs(30);
/// How long an answer counts until the change is settled.
pub(in crate::identity) const COUNTS_FOR: Duration = Duration::from_secs(1);

/// When keys last changed, for example users or objects.
#[derive(Debug)]
pub(in crate::identity) struct ChangeTimes {
    started: Instant,
    /// The milliseconds from `started` to the last change, and one more; 0 if there was no change.
    /// Because of this number, most requests take no lock.
    last_ms: AtomicU64,
    /// How long changes are remembered: until all answers that the API server gave before a change
    /// was settled have expired.
    kept_for: Duration,
    /// How long an answer counts after a change of an unknown key, until the change is settled.
    counts_after_unknown: Duration,
    /// Upper limit of the remembered keys, which take up to 72 bytes each. Of older keys, only the
    /// time of the last change is remembered.
    max_keys: usize,
    hasher: RandomState,
    times: RwLock<Times>,
}

#[derive(Debug, Default)]
struct Times {
    /// The last changes, by the hashes of their keys.
    last: HashMap<u64, Instant>,
    /// All changes, oldest first, including those that a later change in `last` has replaced.
    in_order: VecDeque<(Instant, u64)>,
    /// The last change of a key that is not known, or not remembered any more. It counts for all
    /// keys.
    unknown: Option<Instant>,
}

/// The last change of some keys, and the last change of an unknown key.
pub(in crate::identity) type LastChanges = (Option<Instant>, Option<Instant>);

impl ChangeTimes {
    /// Creates an empty register of changes, of up to `max_keys` keys. `longest` is how long an
    /// answer may count.
    pub(in crate::identity) fn new(
        longest: Duration,
        counts_after_unknown: Duration,
        max_keys: usize,
    ) -> Self {
        Self {
            started: Instant::now(),
            last_ms: AtomicU64::new(0),
            kept_for: SETTLED.saturating_add(longest),
            counts_after_unknown,
            max_keys,
            hasher: RandomState::new(),
            times: RwLock::default(),
        }
    }

    /// Adds a change of `keys` at `now`. Forgets the changes that are too old.
    pub(in crate::identity) fn add(&self, keys: impl IntoIterator<Item = impl Hash>, now: Instant) {
        let mut times = self.times.write();
        times.forget(now, self.kept_for, self.max_keys);
        for key in keys {
            times.add(self.hasher.hash_one(key), now);
            // One change may have more keys than are remembered.
            if times.in_order.len() > self.max_keys {
                times.forget(now, self.kept_for, self.max_keys);
            }
        }
        drop(times);
        self.set_changed(now);
    }

    /// Adds a change of unknown keys at `now`.
    pub(in crate::identity) fn add_unknown(&self, now: Instant) {
        self.times.write().unknown = Some(now);
        self.set_changed(now);
    }

    /// Returns the moment before which an answer about `keys` must not have been asked for, for a
    /// request of `since`. Returns `None` if no change of them is remembered.
    pub(in crate::identity) fn earliest(
        &self,
        keys: impl IntoIterator<Item = impl Hash>,
        since: Instant,
    ) -> Option<Instant> {
        if !self.has_changed_within(self.kept_for) {
            return None;
        }
        let (known, unknown) = self.last(keys);
        let known = known.map(|last| earliest(last, since, COUNTS_FOR));
        known.max(unknown.map(|last| earliest(last, since, self.counts_after_unknown)))
    }

    /// Returns the moment before which an answer about `keys` must not have been asked for, if it
    /// is to count in an outage. At this moment the last remembered change of them was settled.
    pub(in crate::identity) fn settled(
        &self,
        keys: impl IntoIterator<Item = impl Hash>,
    ) -> Option<Instant> {
        let (known, unknown) = self.last(keys);
        known.max(unknown).map(|last| last + SETTLED)
    }

    /// Returns the last changes of `keys`. Leaves out changes that are settled.
    pub(in crate::identity) fn unsettled(
        &self,
        keys: impl IntoIterator<Item = impl Hash>,
    ) -> LastChanges {
        if !self.has_changed_within(SETTLED) {
            return (None, None);
        }
        let (known, unknown) = self.last(keys);
        let is_unsettled = |last: &Instant| last.elapsed() < SETTLED;
        (known.filter(is_unsettled), unknown.filter(is_unsettled))
    }

    /// Returns the last remembered changes of `keys`. Without keys, there are none.
    pub(in crate::identity) fn last(
        &self,
        keys: impl IntoIterator<Item = impl Hash>,
    ) -> LastChanges {
        let times = self.times.read();
        let mut last = (None, None);
        for key in keys {
            let at = times.last.get(&self.hasher.hash_one(key)).copied();
            last = (last.0.max(at), times.unknown);
        }
        last
    }

    fn set_changed(&self, now: Instant) {
        let last = self.millis(now) + 1;
        self.last_ms.fetch_max(last, Ordering::AcqRel);
    }

    fn has_changed_within(&self, age: Duration) -> bool {
        let last = self.last_ms.load(Ordering::Acquire);
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        last > 0 && self.millis(Instant::now()) < last.saturating_add(age)
    }

    fn millis(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_millis() as u64
    }
}

impl Times {
    fn add(&mut self, key: u64, now: Instant) {
        if self.last.insert(key, now) != Some(now) {
            self.in_order.push_back((now, key));
        }
    }

    /// Forgets the changes that are older than `age`, and the oldest changes if there are too many.
    fn forget(&mut self, now: Instant, age: Duration, max_keys: usize) {
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < age;
        self.unknown = self.unknown.filter(is_recent);
        while let Some((at, key)) = self.in_order.front().copied() {
            if is_recent(&at) && self.in_order.len() <= max_keys {
                break;
            }
            self.in_order.pop_front();
            // The key may have changed again since.
            if self.last.get(&key) == Some(&at) {
                self.last.remove(&key);
                if is_recent(&at) {
                    self.unknown = self.unknown.max(Some(at));
                }
            }
        }
    }
}

/// Returns the moment before which an answer must not have been asked for, for a request of
/// `since`, after a change at `last`. Answers from before the change do not count. An answer that
/// was asked for after the change, but before the change is settled, counts for `counts_for`; only
/// a request that waits for such an answer may use it later. An answer that was asked for when the
/// change is settled counts as usual.
fn earliest(last: Instant, since: Instant, counts_for: Duration) -> Instant {
    let counts_from = since.checked_sub(counts_for);
    let earliest = counts_from.map_or(last, |from| from.max(last));
    earliest.min(last + SETTLED)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MAX_KEYS: usize = 100_000;

    fn times(longest: Duration) -> ChangeTimes {
        ChangeTimes::new(longest, 10 * SECOND, MAX_KEYS)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_must_be_later_than_a_change_and_not_older_than_a_second() {
        let times = times(SETTLED);
        let earliest = || times.earliest(["a", "b"], Instant::now());
        assert_eq!(earliest(), None);
        let change = Instant::now();
        times.add(["b"], change);
        assert_eq!(earliest(), Some(change));
        assert_eq!(times.earliest(["a"], Instant::now()), None);
        advance(Duration::from_millis(2_500)).await;
        assert_eq!(earliest(), Some(change + Duration::from_millis(1_500)));
        // An answer of the last moments before the change was settled does not count again.
        advance(SETTLED).await;
        assert_eq!(earliest(), Some(change + SETTLED));
        advance(SETTLED).await;
        assert_eq!(earliest(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_kept_until_the_answers_before_them_have_expired() {
        for (longest, is_kept) in [(Duration::ZERO, false), (3 * SETTLED, true)] {
            let times = times(longest);
            let changed = Instant::now();
            times.add(["a"], changed);
            assert_eq!(times.unsettled(["a"]), (Some(changed), None));
            advance(2 * SETTLED).await;
            times.add(["other"], Instant::now());
            assert_eq!(times.unsettled(["a"]), (None, None));
            let expected = is_kept.then_some(changed + SETTLED);
            assert_eq!(times.earliest(["a"], Instant::now()), expected);
            assert_eq!(times.settled(["a"]), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_keys_at_once_are_all_keys() {
        let times = times(SETTLED);
        let earliest = |key: &str| times.earliest([key], Instant::now());
        let at = Instant::now();
        times.add((0..MAX_KEYS).map(|number| number.to_string()), at);
        assert_eq!(earliest("another"), None);
        times.add(["one too many"], at);
        assert_eq!(earliest("another"), Some(at));
        assert_eq!(times.unsettled(["another"]), (None, Some(at)));
        assert_eq!(times.earliest([""; 0], Instant::now()), None);
        assert_eq!(times.times.read().last.len(), MAX_KEYS);
        advance(15 * SECOND).await;
        assert_eq!(earliest("another"), Some(at + 5 * SECOND));
        assert_eq!(earliest("one too many"), Some(at + 14 * SECOND));
        advance(2 * SETTLED).await;
        assert_eq!(earliest("another"), None);
        // There is room again.
        let at = Instant::now();
        times.add(["other"], at);
        assert_eq!((earliest("another"), earliest("other")), (None, Some(at)));
        assert_eq!(times.times.read().in_order.len(), 1);
    }

    /// With `authorization.stale`, changes are remembered for a long time.
    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded_and_steady_changes_concern_no_other_key() {
        let times = times(Duration::from_secs(3_600));
        for number in 0..2_000 {
            for of_second in 0..99 {
                times.add([(number, of_second)], Instant::now());
            }
            // This key changes all the time.
            times.add([(-1, 0)], Instant::now());
            advance(SECOND).await;
        }
        {
            let times = times.times.read();
            assert_eq!(times.in_order.len(), MAX_KEYS);
            assert!(times.last.len() <= MAX_KEYS);
        }
        let (another, now) = ([(-1, 1)], Instant::now());
        assert_eq!(times.unsettled(another), (None, None));
        // Answers of the last minutes count, also in an outage.
        let forgotten = now - Duration::from_secs(1_001);
        let earliest = [times.earliest(another, now), times.settled(another)];
        assert_eq!(earliest, [Some(forgotten + SETTLED); 2]);
        assert_eq!(times.unsettled([(-1, 0)]).0, Some(now - SECOND));
    }
}
