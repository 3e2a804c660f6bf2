//! The order of the questions about open watches.
//!
//! Tenants take turns, and so do the users of a tenant. So neither a user with very many questions
//! nor a namespace with very many accounts delays the questions of others. Each user and each
//! tenant may have only a limited number of questions in flight, so that slow answers do not delay
//! the others either. Of a user's questions, those about all objects of a resource and namespace
//! are asked first, because a user can have any number of narrower ones.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use super::GroupId;
use super::schedule::Urgency;
use super::turns::{CLASSES, Rota};
use crate::identity::callers::caller::Asker;
use crate::identity::tokens::token::Digest;

/// Every second question is asked for the tenant, and the user of the tenant, that have their turn
/// among all, however urgent the questions of others are. Otherwise a user could make the others
/// wait by losing rights again and again.
const ANY_USER_OF: u32 = 2;
/// Every fourth question is also the user's oldest one, however urgent the user's other questions
/// are. Otherwise changes of roles could delay all regular questions without end.
const OLDEST_OF: u32 = 4;
/// Questions with the times when they are due.
#[derive(Debug)]
pub(super) struct Queue {
    places: HashMap<GroupId, QueuedQuestion>,
    /// The questions that were not yet found to be due, in the order of time.
    waiting: BTreeSet<(Instant, GroupId)>,
    /// Tenants with questions that are due or in flight.
    tenants: HashMap<Digest, Tenant>,
    /// The turns of tenants.
    turns: Rota,
    limits: InFlight,
    taken: u32,
}

/// How many questions may be taken and not released.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) of_tenant: usize,
    pub(super) of_user: usize,
}

#[derive(Clone, Copy, Debug)]
struct QueuedQuestion {
    asker: Asker,
    at: Instant,
    class: usize,
}

/// The questions of the users of one tenant.
#[derive(Debug, Default)]
struct Tenant {
    users: HashMap<Digest, Questions>,
    turns: Rota,
    in_flight: usize,
}

/// The questions of one user.
#[derive(Debug, Default)]
struct Questions {
    /// The questions that are due, by class.
    due: [BTreeSet<(Instant, GroupId)>; CLASSES],
    in_flight: usize,
}

// === impl Queue ===

impl Queue {
    /// Creates an empty queue.
    pub(super) fn new(limits: InFlight) -> Self {
        Self {
            places: HashMap::new(),
            waiting: BTreeSet::new(),
            tenants: HashMap::new(),
            turns: Rota::default(),
            limits,
            taken: 0,
        }
    }

    /// Puts `group` into the queue, or moves it to another place there. The question of the group
    /// is asked for `asker`. If `is_narrow`, the question is about only a part of the objects of a
    /// resource and namespace.
    pub(super) fn set(
        &mut self,
        group: GroupId,
        asker: Asker,
        is_narrow: bool,
        (at, urgency): (Instant, Urgency),
    ) {
        self.remove(group);
        let class = 2 * urgency as usize + usize::from(is_narrow);
        let place = QueuedQuestion { asker, at, class };
        self.places.insert(group, place);
        self.waiting.insert((at, group));
    }

    pub(super) fn remove(&mut self, group: GroupId) {
        let Some(QueuedQuestion { asker, at, class }) = self.places.remove(&group) else {
            return;
        };
        if self.waiting.remove(&(at, group)) {
            return;
        }
        // The user is not removed from the turns yet, because its question may soon be back.
        if let Some(tenant) = self.tenants.get_mut(&asker.tenant)
            && let Some(user) = tenant.users.get_mut(&asker.user)
        {
            user.due[class].remove(&(at, group));
        }
        self.forget_idle(asker);
    }

    /// Takes a group that is due: a most urgent group, or a group of the tenant and user that have
    /// their turn. The group's question is in flight until [`release`](Self::release) is called
    /// with the asker.
    pub(super) fn take(&mut self, now: Instant) -> Option<(GroupId, Asker)> {
        self.find_due(now);
        let count = self.taken;
        let is_last_of = |period: u32| count % period == period - 1;
        let class = match is_last_of(ANY_USER_OF) {
            true => None,
            false => Some((0..CLASSES).find(|class| self.first(Some(*class)).is_some())?),
        };
        let of_tenant = self.first(class)?;
        let limits = self.limits;
        let tenant = self.tenants.get_mut(&of_tenant)?;
        let of_user = tenant.first(class, limits)?;
        // A user with urgent questions must not take the turns of the tenant's other users.
        let is_next = tenant.first(None, limits) == Some(of_user);
        let user = tenant.users.get_mut(&of_user)?;
        let (class, (at, group)) = user.next(is_last_of(OLDEST_OF))?;
        user.due[class].remove(&(at, group));
        user.in_flight += 1;
        tenant.in_flight += 1;
        tenant.turns.had(of_user, class);
        self.turns.by_class[class].had(of_tenant);
        if is_next {
            self.turns.all.had(of_tenant);
        }
        self.taken = self.taken.wrapping_add(1);
        self.places.remove(&group);
        let asker = Asker {
            tenant: of_tenant,
            user: of_user,
        };
        Some((group, asker))
    }

    /// Notes that a question of `asker` is not in flight any more.
    pub(super) fn release(&mut self, asker: Asker) {
        let Some(tenant) = self.tenants.get_mut(&asker.tenant) else {
            return;
        };
        tenant.in_flight -= 1;
        // The user or the tenant may have had too many questions in flight, and so have lost its
        // turn.
        if let Some(user) = tenant.users.get_mut(&asker.user) {
            user.in_flight -= 1;
            for class in user.classes() {
                tenant.turns.enter(asker.user, class);
            }
        }
        for (class, turns) in tenant.turns.by_class.iter().enumerate() {
            if !turns.order.is_empty() {
                self.turns.enter(asker.tenant, class);
            }
        }
        self.forget_idle(asker);
    }

    /// Returns when the next group that was not yet found to be due will be due; `None` if there is
    /// no such group. The time may be in the past.
    pub(super) fn next_waiting(&self) -> Option<Instant> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// Returns true if [`take`](Self::take) returns a group even if no further group becomes due.
    pub(super) fn has_due(&mut self) -> bool {
        self.first(None).is_some()
    }

    /// Returns the first tenant, in the order of turns, that may ask a question of `class`, or any
    /// question if it is `None`.
    fn first(&mut self, class: Option<usize>) -> Option<Digest> {
        let (limits, tenants) = (self.limits, &mut self.tenants);
        let may_ask = |of: &Digest| {
            let tenant = tenants.get_mut(of);
            tenant.is_some_and(|tenant| tenant.first(class, limits).is_some())
        };
        self.turns.of(class).first(may_ask)
    }

    /// Finds the groups that are due, and returns those that have become due since the last call.
    pub(super) fn find_due(&mut self, now: Instant) -> Vec<GroupId> {
        let mut found = Vec::new();
        while let Some(first) = self.waiting.first().filter(|(at, _)| *at <= now).copied() {
            self.waiting.remove(&first);
            let QueuedQuestion { asker, class, .. } = self.places[&first.1];
            let tenant = self.tenants.entry(asker.tenant).or_default();
            let user = tenant.users.entry(asker.user).or_default();
            user.due[class].insert(first);
            tenant.turns.enter(asker.user, class);
            let (users, turns) = (&tenant.users, &mut tenant.turns);
            turns.retain(users.len(), |user| users.contains_key(user));
            self.turns.enter(asker.tenant, class);
            found.push(first.1);
        }
        let tenants = &self.tenants;
        self.turns
            .retain(tenants.len(), |tenant| tenants.contains_key(tenant));
        found
    }

    /// Forgets a user without questions, and its tenant if that was the tenant's last user.
    fn forget_idle(&mut self, asker: Asker) {
        if let Some(tenant) = self.tenants.get_mut(&asker.tenant) {
            let user = tenant.users.get(&asker.user);
            if user.is_some_and(Questions::is_idle) {
                tenant.users.remove(&asker.user);
            }
            if tenant.users.is_empty() {
                self.tenants.remove(&asker.tenant);
            }
        }
    }
}

// === impl Tenant, Questions ===

impl Tenant {
    /// Returns the first user, in the order of turns, that may ask a question of `class`, or any
    /// question if it is `None`.
    fn first(&mut self, class: Option<usize>, limits: InFlight) -> Option<Digest> {
        if self.in_flight >= limits.of_tenant {
            return None;
        }
        let users = &self.users;
        let may_ask = |of: &Digest| {
            let user = users.get(of);
            user.is_some_and(|user| user.in_flight < limits.of_user && user.has(class))
        };
        self.turns.of(class).first(may_ask)
    }
}

impl Questions {
    fn has(&self, class: Option<usize>) -> bool {
        match class {
            Some(class) => !self.due[class].is_empty(),
            None => self.classes().next().is_some(),
        }
    }

    /// Returns the classes of the questions that are due.
    fn classes(&self) -> impl Iterator<Item = usize> {
        (0..CLASSES).filter(|class| !self.due[*class].is_empty())
    }

    /// Returns the most urgent question with its class. If `is_oldest`, returns the question that
    /// has been due for the longest time instead.
    fn next(&self, is_oldest: bool) -> Option<(usize, (Instant, GroupId))> {
        let firsts = self.due.iter().map(BTreeSet::first).enumerate();
        let mut firsts = firsts.filter_map(|(class, first)| Some((class, *first?)));
        if is_oldest {
            firsts.min_by_key(|(_, first)| *first)
        } else {
            firsts.next()
        }
    }

    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.classes().next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::identity::open_watches::turns::SPARE_TURNS;
    use crate::identity::tokens::token::Digester;

    const UNLIMITED: InFlight = InFlight {
        of_tenant: usize::MAX,
        of_user: usize::MAX,
    };

    /// Returns a user that is also its tenant.
    fn user(number: u8) -> Asker {
        account(number, number)
    }

    fn account(tenant: u8, user: u8) -> Asker {
        Asker {
            tenant: Digest::for_tests(tenant),
            user: Digest::for_tests(user),
        }
    }

    #[test]
    fn urgent_questions_are_first_but_not_always() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut queue = Queue::new(UNLIMITED);
        for id in 0..4 {
            queue.set(GroupId(id), user(1), false, (at(id), Urgency::Regular));
            queue.set(
                GroupId(10 + id),
                user(1),
                false,
                (at(10 + id), Urgency::Changed),
            );
            queue.set(
                GroupId(20 + id),
                user(1),
                false,
                (at(20 + id), Urgency::LikelyLost),
            );
        }
        queue.set(
            GroupId(99),
            user(1),
            false,
            (at(5_000), Urgency::LikelyLost),
        );
        queue.remove(GroupId(13));
        assert_eq!(queue.next_waiting(), Some(at(0)));
        let taken: Vec<u64> = std::iter::from_fn(|| queue.take(at(1_000)))
            .map(|(group, _)| group.0)
            .collect();
        assert_eq!(taken, [20, 21, 22, 0, 23, 10, 11, 1, 12, 2, 3]);
        assert_eq!(queue.next_waiting(), Some(at(5_000)));
        assert!(!queue.has_due());
        queue.set(GroupId(99), user(1), false, (at(500), Urgency::Changed));
        assert_eq!(queue.take(at(1_000)), Some((GroupId(99), user(1))));
        assert_eq!(queue.next_waiting(), None);
        (0..13).for_each(|_| queue.release(user(1)));
        assert!(queue.tenants.is_empty() && queue.places.is_empty());
    }

    #[test]
    fn users_take_turns_however_many_questions_one_has() {
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        for (many, few, at_most) in [
            // One user loses 30,000 rights, others one each.
            (Urgency::LikelyLost, Urgency::LikelyLost, 8),
            // A user gains nothing from rights that are more probably lost than those of others.
            (Urgency::LikelyLost, Urgency::Changed, 8),
            (Urgency::LikelyLost, Urgency::Regular, 8),
            (Urgency::Regular, Urgency::LikelyLost, 4),
        ] {
            let mut queue = Queue::new(UNLIMITED);
            for id in 0..30_000 {
                queue.set(GroupId(id), user(0), false, (start, many));
            }
            // The user with many questions had a turn before the others came.
            assert!(queue.take(later).is_some());
            for number in 1..4 {
                let group = GroupId(100_000 + u64::from(number));
                queue.set(group, user(number), false, (later, few));
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
    fn a_tenant_with_many_accounts_waits_as_one_user() {
        let start = Instant::now();
        let mut queue = Queue::new(UNLIMITED);
        for number in 0..200 {
            let accounts = account(0, 50 + number);
            queue.set(
                GroupId(u64::from(number)),
                accounts,
                false,
                (start, Urgency::LikelyLost),
            );
        }
        for number in 1..4 {
            let group = GroupId(1_000 + u64::from(number));
            queue.set(group, user(number), false, (start, Urgency::LikelyLost));
        }
        let taken = std::iter::from_fn(|| queue.take(start));
        let taken: Vec<u64> = taken.map(|(group, _)| group.0).collect();
        assert_eq!(taken.len(), 203);
        let last = taken.iter().rposition(|group| *group >= 1_000);
        assert!(last.is_some_and(|last| last < 8), "{last:?}");
    }

    #[test]
    fn the_question_about_all_objects_is_before_any_number_of_others() {
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        let mut queue = Queue::new(UNLIMITED);
        for id in 0..6_000 {
            // These are about one object each, and were due a second earlier.
            queue.set(GroupId(id), user(0), true, (start, Urgency::LikelyLost));
        }
        queue.set(GroupId(6_000), user(0), false, (later, Urgency::LikelyLost));
        assert_eq!(queue.take(later), Some((GroupId(6_000), user(0))));
    }

    #[test]
    fn a_random_queue_loses_nothing_and_makes_no_user_wait_for_the_others_questions() {
        for seed in 0..100 {
            let mut rng = StdRng::seed_from_u64(seed);
            let start = Instant::now();
            let most = rng.random_range(1..20);
            let most_of_tenant = rng.random_range(1..30);
            let mut queue = Queue::new(InFlight {
                of_tenant: most_of_tenant,
                of_user: most,
            });
            // Two tenants with two users each.
            let user = |number: u8| account(number / 2, number);
            let mut expected: HashMap<GroupId, u8> = HashMap::new();
            let mut in_flight = [0; 4];
            // For each user, how many questions of others were taken while the user had a question
            // that was due.
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
                        let is_narrow = rng.random_bool(0.5);
                        queue.set(group, user(owner), is_narrow, (start, urgency));
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
                        let of_tenant = |number: u8| {
                            let first = usize::from(number / 2 * 2);
                            in_flight[first] + in_flight[first + 1]
                        };
                        let may_ask = |number: u8| {
                            in_flight[usize::from(number)] < most
                                && of_tenant(number) < most_of_tenant
                        };
                        let waits = |number| expected.values().any(|owner| *owner == number);
                        let waiting: Vec<u8> =
                            (0..4).filter(|of| may_ask(*of) && waits(*of)).collect();
                        let taken = queue.take(start);
                        let owner = taken.map(|(taken, _)| expected.remove(&taken).expect("set"));
                        assert_eq!(owner.is_none(), waiting.is_empty(), "seed {seed}");
                        assert!(owner.is_none_or(|owner| waiting.contains(&owner)));
                        assert_eq!(owner.map(user), taken.map(|(_, user)| user));
                        if let Some(owner) = owner {
                            in_flight[usize::from(owner)] += 1;
                            assert!(in_flight[usize::from(owner)] <= most, "seed {seed}");
                        }
                        for (other, passed) in (0..).zip(&mut passed_over) {
                            *passed = if waiting.contains(&other) && owner != Some(other) {
                                *passed + 1
                            } else {
                                0
                            };
                            // Each second question is of the tenant and user that have their turn.
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
            let is_empty = queue.places.is_empty() && queue.tenants.is_empty();
            assert!(is_empty, "seed {seed}");
        }
    }

    #[test]
    fn a_question_that_becomes_due_again_and_again_keeps_its_turn() {
        let start = Instant::now();
        let mut queue = Queue::new(UNLIMITED);
        for number in 0..100 {
            let group = GroupId(u64::from(number));
            queue.set(group, user(number), false, (start, Urgency::Changed));
        }
        let last = GroupId(99);
        let mut now = start;
        let taken = (0..200).position(|_| {
            now += Duration::from_millis(20);
            let (taken, _) = queue.take(now).expect("a question");
            queue.set(taken, user(taken.0 as u8), false, (now, Urgency::Changed));
            queue.set(
                last,
                user(99),
                false,
                (now + Duration::from_millis(10), Urgency::Changed),
            );
            taken == last
        });
        assert!(taken.is_some_and(|taken| taken < 100), "{taken:?}");
    }

    #[test]
    fn turns_without_questions_are_few() {
        let start = Instant::now();
        let mut queue = Queue::new(UNLIMITED);
        for number in 0..2 {
            let group = GroupId(20_000 + u64::from(number));
            queue.set(group, user(number), false, (start, Urgency::LikelyLost));
        }
        let digester = Digester::new();
        for number in 0..10_000_u64 {
            let group = GroupId(number + 1);
            let (tenant, user) = (Digest::for_tests(1), digester.digest(&number.to_be_bytes()));
            let of_one = Asker { tenant, user };
            let alone = Asker { tenant: user, user };
            let asker = if number % 2 == 0 { of_one } else { alone };
            queue.set(group, asker, false, (start, Urgency::Regular));
            queue.find_due(start);
            queue.remove(group);
        }
        let tenants = queue.tenants.values().map(|tenant| &tenant.turns);
        let rotas = tenants.chain([&queue.turns]);
        for turns in rotas.flat_map(|rota| rota.by_class.iter().chain([&rota.all])) {
            assert!(turns.order.len() <= SPARE_TURNS + 4);
            assert_eq!(turns.order.len(), turns.places.len());
        }
    }
}
