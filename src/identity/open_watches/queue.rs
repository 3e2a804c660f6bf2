//! The order in which questions about open watches are asked, and how many are asked per second.

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::GroupId;
use super::schedule::Urgency;

/// Of this many questions, the one that is due for the longest time is asked, however urgent others
/// are. Otherwise changes of roles could keep all regular questions waiting.
const OLDEST_OF: u32 = 4;

/// Questions with the times at which they are due.
#[derive(Debug, Default)]
pub(super) struct Queue {
    places: HashMap<GroupId, (Instant, Urgency)>,
    /// Those that are not known to be due, in the order of time.
    waiting: BTreeSet<(Instant, GroupId)>,
    /// Those that are due, by urgency.
    due: [BTreeSet<(Instant, GroupId)>; 3],
    taken: u32,
}

/// Limits how often something is done per second.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    /// How far ahead of the regular times actions may be.
    burst: Duration,
    next: Option<Instant>,
}

// === impl Queue ===

impl Queue {
    /// Puts `group` into the queue, or to another place in it.
    pub(super) fn set(&mut self, group: GroupId, (at, urgency): (Instant, Urgency)) {
        self.remove(group);
        self.places.insert(group, (at, urgency));
        self.waiting.insert((at, group));
    }

    pub(super) fn remove(&mut self, group: GroupId) {
        if let Some((at, urgency)) = self.places.remove(&group)
            && !self.waiting.remove(&(at, group))
        {
            self.due[urgency as usize].remove(&(at, group));
        }
    }

    /// Takes the most urgent group that is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<GroupId> {
        self.find_due(now);
        let mut firsts = self.due.iter().filter_map(BTreeSet::first);
        let (_, group) = match self.taken % OLDEST_OF == OLDEST_OF - 1 {
            true => firsts.min()?,
            false => firsts.next()?,
        };
        let group = *group;
        self.taken = self.taken.wrapping_add(1);
        self.remove(group);
        Some(group)
    }

    /// When the next group is due; `None` if the queue is empty. It may be past.
    pub(super) fn next(&self) -> Option<Instant> {
        let firsts = self.due.iter().filter_map(BTreeSet::first);
        let first = firsts.chain(self.waiting.first()).min();
        first.map(|(at, _)| *at)
    }

    fn find_due(&mut self, now: Instant) {
        while let Some(first) = self.waiting.first().filter(|(at, _)| *at <= now).copied() {
            self.waiting.remove(&first);
            let (_, urgency) = self.places[&first.1];
            self.due[urgency as usize].insert(first);
        }
    }
}

// === impl Pace ===

impl Pace {
    /// `rate` actions per second, and those of `burst` at once.
    pub(super) fn new(rate: u32, burst: Duration) -> Self {
        Self {
            interval: Duration::from_secs(1) / rate.max(1),
            burst,
            next: None,
        }
    }

    /// When the next action may be done; it may be past.
    pub(super) fn next(&self, now: Instant) -> Instant {
        let ahead = self.next.unwrap_or(now).saturating_duration_since(now);
        now + ahead.saturating_sub(self.burst)
    }

    /// Counts an action at `now`.
    pub(super) fn count(&mut self, now: Instant) {
        let next = self.next.map_or(now, |next| next.max(now));
        self.next = Some(next + self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_questions_are_first_but_not_always() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut queue = Queue::default();
        for id in 0..4 {
            queue.set(GroupId(id), (at(id), Urgency::Regular));
            queue.set(GroupId(10 + id), (at(10 + id), Urgency::Changed));
            queue.set(GroupId(20 + id), (at(20 + id), Urgency::LikelyLost));
        }
        queue.set(GroupId(99), (at(5_000), Urgency::LikelyLost));
        queue.remove(GroupId(13));
        assert_eq!(queue.next(), Some(at(0)));
        let taken: Vec<u64> = std::iter::from_fn(|| queue.take(at(1_000)))
            .map(|group| group.0)
            .collect();
        assert_eq!(taken, [20, 21, 22, 0, 23, 10, 11, 1, 12, 2, 3]);
        assert_eq!(queue.next(), Some(at(5_000)));
        queue.set(GroupId(99), (at(500), Urgency::Changed));
        assert_eq!(queue.take(at(1_000)), Some(GroupId(99)));
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn a_burst_is_followed_by_the_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(50, Duration::from_secs(2));
        let mut now = start;
        let mut done = 0;
        while now < start + Duration::from_secs(10) {
            pace.count(now);
            done += 1;
            now = pace.next(now);
        }
        assert_eq!(done, 50 * 12);
        assert_eq!(
            pace.next(start + Duration::from_secs(60)),
            start + Duration::from_secs(60)
        );
    }
}
