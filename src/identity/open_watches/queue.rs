//! The order in which questions about open watches are asked, and how many are asked per second.
//!
//! Users take turns, so that one with very many questions does not delay those of the others, and
//! each may have only some questions in flight, so that one with slow answers does not either.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::GroupId;
use super::schedule::Urgency;
use crate::identity::token::Digest;

/// Every how many questions there is one whose user is next among all users, however urgent the
/// questions of others are. Otherwise a user could keep the others waiting by losing rights again
/// and again.
const ANY_USER_OF: u32 = 2;
/// Every how many questions such a one is also the user's oldest, however urgent its others are.
/// Otherwise changes of roles could keep all regular questions waiting.
const OLDEST_OF: u32 = 4;
/// How many users may keep a turn without questions, besides as many as have some.
const SPARE_TURNS: usize = 64;
/// The number of urgencies.
const URGENCIES: usize = 3;

/// Questions with the times at which they are due.
#[derive(Debug)]
pub(super) struct Queue {
    places: HashMap<GroupId, Place>,
    /// Those that are not known to be due, in the order of time.
    waiting: BTreeSet<(Instant, GroupId)>,
    /// Those that are due, by user.
    due: HashMap<Digest, Due>,
    /// The same for users with too many questions in flight.
    held: HashMap<Digest, Due>,
    /// The number of questions that were taken and not released, by user.
    in_flight: HashMap<Digest, usize>,
    /// Upper limit of these numbers.
    most_in_flight: usize,
    /// The users with questions that are due, by the urgency of the questions.
    turns: [Turns; URGENCIES],
    /// All users with questions that are due.
    all_turns: Turns,
    taken: u32,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    user: Digest,
    at: Instant,
    urgency: Urgency,
}

/// The questions of one user that are due, by urgency.
type Due = [BTreeSet<(Instant, GroupId)>; URGENCIES];

/// Users that take turns.
#[derive(Debug, Default)]
struct Turns {
    places: HashMap<Digest, u64>,
    order: BTreeMap<u64, Digest>,
    last: u64,
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
    /// No questions. Each user may have `most_in_flight` questions that were taken and not released.
    pub(super) fn new(most_in_flight: usize) -> Self {
        Self {
            places: HashMap::new(),
            waiting: BTreeSet::new(),
            due: HashMap::new(),
            held: HashMap::new(),
            in_flight: HashMap::new(),
            most_in_flight,
            turns: Default::default(),
            all_turns: Turns::default(),
            taken: 0,
        }
    }

    /// Puts `group` into the queue, or to another place in it. `user` is the digest of the name of
    /// the user that its question is about.
    pub(super) fn set(&mut self, group: GroupId, user: Digest, (at, urgency): (Instant, Urgency)) {
        self.remove(group);
        let place = Place { user, at, urgency };
        self.places.insert(group, place);
        self.waiting.insert((at, group));
    }

    pub(super) fn remove(&mut self, group: GroupId) {
        let Some(Place { user, at, urgency }) = self.places.remove(&group) else {
            return;
        };
        if self.waiting.remove(&(at, group)) {
            return;
        }
        // The user keeps its turn for a while: its question may be back before.
        for all in [&mut self.due, &mut self.held] {
            if let Some(due) = all.get_mut(&user) {
                due[urgency as usize].remove(&(at, group));
                if due.iter().all(BTreeSet::is_empty) {
                    all.remove(&user);
                }
            }
        }
    }

    /// Takes a group that is due: a most urgent one, or one of the user whose turn it is. Its
    /// question is in flight until [`release`](Self::release) is called with the user.
    pub(super) fn take(&mut self, now: Instant) -> Option<(GroupId, Digest)> {
        self.find_due(now);
        let count = self.taken;
        let is_last_of = |period: u32| count % period == period - 1;
        let user = match is_last_of(ANY_USER_OF) {
            true => self.all_turns.first(|user| self.due.contains_key(user)),
            false => self.first_urgent(),
        }?;
        let mut firsts = self.due[&user].iter().filter_map(BTreeSet::first);
        let first = match is_last_of(OLDEST_OF) {
            true => firsts.min(),
            false => firsts.next(),
        };
        let (_, group) = *first.expect("a user whose turn it is has a question");
        self.taken = self.taken.wrapping_add(1);
        let urgency = self.places[&group].urgency;
        for turns in [&mut self.all_turns, &mut self.turns[urgency as usize]] {
            turns.had(user);
        }
        self.remove(group);
        let in_flight = self.in_flight.entry(user).or_default();
        *in_flight += 1;
        if *in_flight >= self.most_in_flight
            && let Some(due) = self.due.remove(&user)
        {
            self.held.insert(user, due);
        }
        Some((group, user))
    }

    /// A question of `user` is not in flight any more.
    pub(super) fn release(&mut self, user: Digest) {
        if let Some(in_flight) = self.in_flight.get_mut(&user) {
            *in_flight -= 1;
            if *in_flight == 0 {
                self.in_flight.remove(&user);
            }
        }
        let Some(due) = self.held.remove(&user) else {
            return;
        };
        self.all_turns.enter(user);
        for (turns, due) in self.turns.iter_mut().zip(&due) {
            if !due.is_empty() {
                turns.enter(user);
            }
        }
        self.due.insert(user, due);
    }

    /// The next user among those with the most urgent questions.
    fn first_urgent(&mut self) -> Option<Digest> {
        let mut turns = self.turns.iter_mut().enumerate();
        turns.find_map(|(urgency, turns)| {
            let has_some = |due: &Due| !due[urgency].is_empty();
            turns.first(|user| self.due.get(user).is_some_and(has_some))
        })
    }

    /// When a group is due next; `None` if the queue is empty. It may be past.
    pub(super) fn next(&self) -> Option<Instant> {
        let due = self.due.values().next().into_iter().flatten();
        let due = due.filter_map(BTreeSet::first);
        let next = due.chain(self.waiting.first()).min();
        next.map(|(at, _)| *at)
    }

    fn find_due(&mut self, now: Instant) {
        while let Some(first) = self.waiting.first().filter(|(at, _)| *at <= now).copied() {
            self.waiting.remove(&first);
            let Place { user, urgency, .. } = self.places[&first.1];
            let in_flight = self.in_flight.get(&user).copied().unwrap_or_default();
            if in_flight >= self.most_in_flight {
                self.held.entry(user).or_default()[urgency as usize].insert(first);
                continue;
            }
            let due = self.due.entry(user).or_default();
            due[urgency as usize].insert(first);
            self.turns[urgency as usize].enter(user);
            self.all_turns.enter(user);
        }
        let most = 2 * self.due.len() + SPARE_TURNS;
        for turns in self.turns.iter_mut().chain([&mut self.all_turns]) {
            if turns.order.len() > most {
                turns.retain(|user| self.due.contains_key(user));
            }
        }
    }
}

// === impl Turns ===

impl Turns {
    /// Adds a user as the last, unless it is there already.
    fn enter(&mut self, user: Digest) {
        if !self.places.contains_key(&user) {
            self.last += 1;
            self.places.insert(user, self.last);
            self.order.insert(self.last, user);
        }
    }

    /// The user whose turn it is. Removes those before it, which have no questions by `has_some`.
    fn first(&mut self, has_some: impl Fn(&Digest) -> bool) -> Option<Digest> {
        while let Some((place, user)) = self.order.first_key_value() {
            let (place, user) = (*place, *user);
            if has_some(&user) {
                return Some(user);
            }
            self.order.remove(&place);
            self.places.remove(&user);
        }
        None
    }

    /// Makes a user the last that has had its turn.
    fn had(&mut self, user: Digest) {
        if let Some(place) = self.places.remove(&user) {
            self.order.remove(&place);
        }
        self.enter(user);
    }

    /// Removes all users but those with questions.
    fn retain(&mut self, has_some: impl Fn(&Digest) -> bool) {
        self.order.retain(|_, user| has_some(user));
        self.places.retain(|user, _| has_some(user));
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
    use rand::Rng;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::identity::token::Digester;

    fn user(number: u8) -> Digest {
        Digest::for_tests(number)
    }

    #[test]
    fn urgent_questions_are_first_but_not_always() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut queue = Queue::new(usize::MAX);
        for id in 0..4 {
            queue.set(GroupId(id), user(1), (at(id), Urgency::Regular));
            queue.set(GroupId(10 + id), user(1), (at(10 + id), Urgency::Changed));
            queue.set(
                GroupId(20 + id),
                user(1),
                (at(20 + id), Urgency::LikelyLost),
            );
        }
        queue.set(GroupId(99), user(1), (at(5_000), Urgency::LikelyLost));
        queue.remove(GroupId(13));
        assert_eq!(queue.next(), Some(at(0)));
        let taken: Vec<u64> = std::iter::from_fn(|| queue.take(at(1_000)))
            .map(|(group, _)| group.0)
            .collect();
        assert_eq!(taken, [20, 21, 22, 0, 23, 10, 11, 1, 12, 2, 3]);
        assert_eq!(queue.next(), Some(at(5_000)));
        queue.set(GroupId(99), user(1), (at(500), Urgency::Changed));
        assert_eq!(queue.take(at(1_000)), Some((GroupId(99), user(1))));
        assert_eq!(queue.next(), None);
        assert!(queue.due.is_empty() && queue.places.is_empty());
    }

    #[test]
    fn users_take_turns_however_many_questions_one_has() {
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        for (many, few, at_most) in [
            // One user loses 30,000 rights, others one each.
            (Urgency::LikelyLost, Urgency::LikelyLost, 8),
            // It does not help to lose more probably than others.
            (Urgency::LikelyLost, Urgency::Changed, 8),
            (Urgency::LikelyLost, Urgency::Regular, 8),
            (Urgency::Regular, Urgency::LikelyLost, 4),
        ] {
            let mut queue = Queue::new(usize::MAX);
            for id in 0..30_000 {
                queue.set(GroupId(id), user(0), (start, many));
            }
            // The user with many questions had a turn before the others came.
            assert!(queue.take(later).is_some());
            for number in 1..4 {
                let group = GroupId(100_000 + u64::from(number));
                queue.set(group, user(number), (later, few));
            }
            let taken: Vec<u64> = (0..30_002)
                .map(|_| queue.take(later).expect("a question").0.0)
                .collect();
            let is_of_others = |group: &u64| *group > 100_000;
            let last = taken
                .iter()
                .rposition(is_of_others)
                .expect("three questions");
            assert!(last < at_most, "{many:?} {few:?}: {last}");
            assert_eq!(taken.iter().filter(|group| is_of_others(group)).count(), 3);
            assert_eq!(queue.take(later), None);
        }
    }

    #[test]
    fn a_random_queue_loses_nothing_and_makes_no_user_wait_for_the_others_questions() {
        for seed in 0..100 {
            let mut rng = StdRng::seed_from_u64(seed);
            let start = Instant::now();
            let most = rng.random_range(1..20);
            let mut queue = Queue::new(most);
            let mut expected: HashMap<GroupId, u8> = HashMap::new();
            let mut in_flight = [0; 4];
            // By user: how many questions of others were taken since it had one that was due.
            let mut passed_over = [0; 4];
            for _ in 0..2_000 {
                let group = GroupId(rng.random_range(0..200));
                // The first user has most of the questions.
                let owner = if group.0 < 150 {
                    0
                } else {
                    (group.0 % 4) as u8
                };
                match rng.random_range(0..5) {
                    0 | 1 => {
                        let urgency = [Urgency::LikelyLost, Urgency::Changed, Urgency::Regular];
                        let urgency = urgency[rng.random_range(0..3)];
                        queue.set(group, user(owner), (start, urgency));
                        expected.insert(group, owner);
                    }
                    2 => {
                        queue.remove(group);
                        expected.remove(&group);
                    }
                    3 if in_flight[usize::from(owner)] > 0 => {
                        queue.release(user(owner));
                        in_flight[usize::from(owner)] -= 1;
                    }
                    _ => {
                        let may_ask = |number: u8| in_flight[usize::from(number)] < most;
                        let waits = |number| expected.values().any(|owner| *owner == number);
                        let waiting: Vec<u8> =
                            (0..4).filter(|of| may_ask(*of) && waits(*of)).collect();
                        let taken = queue.take(start);
                        let owner = taken.map(|(taken, _)| expected.remove(&taken).expect("set"));
                        assert_eq!(owner.is_none(), waiting.is_empty(), "seed {seed}");
                        assert_eq!(owner.map(user), taken.map(|(_, user)| user));
                        if let Some(owner) = owner {
                            in_flight[usize::from(owner)] += 1;
                            assert!(in_flight[usize::from(owner)] <= most, "seed {seed}");
                        }
                        for (other, passed) in (0..).zip(&mut passed_over) {
                            *passed = match waiting.contains(&other) && owner != Some(other) {
                                true => *passed + 1,
                                false => 0,
                            };
                            // Each second question is of the user whose turn it is, of four.
                            assert!(*passed <= 2 * 4, "seed {seed}: {other} waits");
                        }
                    }
                }
            }
            for (number, in_flight) in (0..).zip(in_flight) {
                (0..in_flight).for_each(|_| queue.release(user(number)));
            }
            while let Some((group, user)) = queue.take(start) {
                assert!(expected.remove(&group).is_some(), "seed {seed}");
                queue.release(user);
            }
            assert!(expected.is_empty(), "seed {seed}");
            assert!(queue.due.is_empty() && queue.held.is_empty(), "seed {seed}");
            assert!(
                queue.places.is_empty() && queue.in_flight.is_empty(),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn a_question_that_becomes_due_again_and_again_keeps_its_turn() {
        let start = Instant::now();
        let mut queue = Queue::new(usize::MAX);
        for number in 0..100 {
            let group = GroupId(u64::from(number));
            queue.set(group, user(number), (start, Urgency::Changed));
        }
        let last = GroupId(99);
        let mut now = start;
        let taken = (0..200).position(|_| {
            now += Duration::from_millis(20);
            let (taken, _) = queue.take(now).expect("a question");
            queue.set(taken, user(taken.0 as u8), (now, Urgency::Changed));
            queue.set(
                last,
                user(99),
                (now + Duration::from_millis(10), Urgency::Changed),
            );
            taken == last
        });
        assert!(taken.is_some_and(|taken| taken < 100), "{taken:?}");
    }

    #[test]
    fn turns_of_users_without_questions_are_few() {
        let start = Instant::now();
        let mut queue = Queue::new(usize::MAX);
        queue.set(GroupId(0), user(0), (start, Urgency::LikelyLost));
        let digester = Digester::new();
        for number in 0..10_000_u64 {
            let group = GroupId(number + 1);
            let user = digester.digest(&number.to_be_bytes());
            queue.set(group, user, (start, Urgency::Regular));
            queue.find_due(start);
            queue.remove(group);
        }
        let all = queue.turns.iter().chain([&queue.all_turns]);
        for turns in all {
            assert!(turns.order.len() <= SPARE_TURNS + 4);
            assert_eq!(turns.order.len(), turns.places.len());
        }
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
