//! A random model of sessions: users write and read, caches follow, proofs are of one object or of
//! all, reads overlap, and no user misses a write of its own or goes back behind what it has seen.

use std::time::Duration;

use kubefan_core::api::ResourceVersion;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

use super::session::{Claim, ScopeHash, Seen, Session};

/// A rule of sessions that the model leaves out, to show that it notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// A write whose version is known is not seen.
    Write,
    /// A write without an answer is not expected.
    LostWrite,
    /// An answer that shows an unknown state marks nothing.
    UnknownState,
    /// A session that begins has no mark, and no doubt.
    Beginning,
    /// What a read has shown is not seen.
    Read,
    /// A proof that was requested before the mark is sufficient.
    EarlyProof,
    /// A version that a cache has not reached is forgotten, without a mark.
    GiveUp,
    /// A proof of one object serves all.
    PartialProof,
    /// A read does not wait for the version.
    NoWait,
    /// A session that was forgotten begins without a doubt about writes that were lost.
    Forgotten,
}

const ALL: [Broken; 10] = [
    Broken::Write,
    Broken::LostWrite,
    Broken::UnknownState,
    Broken::Beginning,
    Broken::Read,
    Broken::EarlyProof,
    Broken::GiveUp,
    Broken::PartialProof,
    Broken::NoWait,
    Broken::Forgotten,
];
const USERS: usize = 2;
const OBJECTS: usize = 3;
const CACHES: usize = 3;
/// The last cache has only the first object.
const PART: usize = CACHES - 1;
const STEPS: usize = 300;
/// How long a write that was lost may still be done, in ticks.
const LOST_FOR: u64 = 12;

#[derive(Clone, Copy, Default)]
struct Cache {
    applied: u64,
    /// When the last proof of all objects was requested, and its version.
    proof: Option<(Instant, u64)>,
}

#[derive(Clone, Default)]
struct User {
    session: Option<Session>,
    /// When the session was last forgotten.
    forgotten_at: Option<Instant>,
    /// The version of the newest change of each object that the user has seen.
    seen: [u64; OBJECTS],
    /// A write without an answer, which is done at this tick or before.
    lost: Option<(usize, u64)>,
    /// A read that waits for its answer: the cache, the object or all of them, what it needs, and
    /// what the user had seen when it was sent.
    read: Option<(usize, Option<usize>, Claim, [u64; OBJECTS])>,
}

struct Model {
    random: StdRng,
    broken: Option<Broken>,
    began: Instant,
    ticks: u64,
    /// The version of the API server, and the versions of the changes of each object.
    version: u64,
    changes: [Vec<u64>; OBJECTS],
    caches: [Cache; CACHES],
    users: [User; USERS],
}

impl Model {
    fn new(seed: u64, broken: Option<Broken>) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            broken,
            began: Instant::now(),
            ticks: 0,
            version: 1,
            changes: std::array::from_fn(|_| vec![1]),
            caches: [Cache {
                applied: 1,
                proof: None,
            }; CACHES],
            users: Default::default(),
        }
    }

    fn breaks(&self, rule: Broken) -> bool {
        self.broken == Some(rule)
    }

    /// Returns a moment later than all before.
    fn now(&mut self) -> Instant {
        self.ticks += 1;
        self.began + Duration::from_nanos(self.ticks)
    }

    fn scope(cache: usize) -> ScopeHash {
        match cache {
            PART => ScopeHash(1),
            _ => ScopeHash::WHOLE,
        }
    }

    /// Returns the objects that `cache` has.
    fn objects(cache: usize) -> std::ops::Range<usize> {
        if cache == PART { 0..1 } else { 0..OBJECTS }
    }

    /// Returns the version of the newest change of `object` up to `version`.
    fn change(&self, object: usize, version: u64) -> u64 {
        let changes = self.changes[object].iter();
        changes
            .copied()
            .filter(|at| *at <= version)
            .max()
            .unwrap_or(0)
    }

    /// Returns the newest change that `cache` contains.
    fn newest_change(&self, cache: usize) -> u64 {
        let applied = self.caches[cache].applied;
        let objects = Self::objects(cache);
        objects
            .map(|object| self.change(object, applied))
            .max()
            .unwrap_or(0)
    }

    fn update(&mut self, user: usize, change: impl FnOnce(&mut Session, Instant)) {
        let now = self.now();
        let begins_at = match self.breaks(Broken::Beginning) {
            true => self.began,
            false => now,
        };
        let doubts = !self.breaks(Broken::Forgotten) && !self.breaks(Broken::Beginning);
        let user = &mut self.users[user];
        let lost_for = Duration::from_nanos(LOST_FOR + 1);
        let unsure_until = user.forgotten_at.filter(|_| doubts).map(|at| at + lost_for);
        let new = || Session::begin(begins_at, unsure_until);
        change(user.session.get_or_insert_with(new), now);
    }

    fn commit(&mut self, object: usize) -> u64 {
        self.version += 1;
        self.changes[object].push(self.version);
        self.version
    }

    /// Runs a history. Returns what a read got wrong, if one did.
    fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.commit_what_was_lost();
            let user = self.random.random_range(0..USERS);
            let object = self.random.random_range(0..OBJECTS);
            match self.random.random_range(0..16) {
                0 | 1 => self.write(user, object),
                2 => self.lose_a_write(user, object),
                3 => self.see_an_unknown_state(user),
                4 => self.forwarded_get(user, object),
                5 => self.forget(user),
                6 | 7 => drop(self.commit(object)),
                8..=10 => self.follow(),
                11..=13 => self.send_read(user),
                _ => self.answer_read(user)?,
            }
        }
        Ok(())
    }

    /// A write that was lost is done at some moment until its last.
    fn commit_what_was_lost(&mut self) {
        for user in 0..USERS {
            let Some((object, last)) = self.users[user].lost else {
                continue;
            };
            // A step takes at most four ticks.
            if self.ticks + 4 >= last || self.random.random_bool(0.2) {
                self.users[user].lost = None;
                self.users[user].seen[object] = self.commit(object);
            }
        }
    }

    fn write(&mut self, user: usize, object: usize) {
        let version = self.commit(object);
        if !self.breaks(Broken::Write) {
            self.see(user, version, ScopeHash::WHOLE);
        }
        self.users[user].seen[object] = version;
    }

    fn see(&mut self, user: usize, version: u64, scope: ScopeHash) {
        let version = ResourceVersion(version);
        self.update(user, |session, at| session.see(Seen { version, at, scope }));
    }

    fn lose_a_write(&mut self, user: usize, object: usize) {
        if self.users[user].lost.is_some() {
            return;
        }
        let last = self.ticks + LOST_FOR;
        self.users[user].lost = Some((object, last));
        let until = self.began + Duration::from_nanos(last + 1);
        if !self.breaks(Broken::LostWrite) {
            self.update(user, |session, _| session.lose_write(until));
        }
    }

    /// A conflict, a deletion, a list that was forwarded.
    fn see_an_unknown_state(&mut self, user: usize) {
        for object in 0..OBJECTS {
            self.users[user].seen[object] = self.change(object, self.version);
        }
        if !self.breaks(Broken::UnknownState) {
            self.update(user, Session::mark);
        }
    }

    fn forget(&mut self, user: usize) {
        let now = self.now();
        self.users[user].session = None;
        self.users[user].forgotten_at = Some(now);
    }

    fn forwarded_get(&mut self, user: usize, object: usize) {
        let version = self.change(object, self.version);
        self.see(user, version, ScopeHash::WHOLE);
        self.users[user].seen[object] = version;
    }

    fn follow(&mut self) {
        let cache = self.random.random_range(0..CACHES);
        let applied = self.caches[cache].applied;
        self.caches[cache].applied = self.random.random_range(applied..=self.version);
    }

    fn send_read(&mut self, user: usize) {
        if self.users[user].read.is_some() {
            return;
        }
        let cache = self.random.random_range(0..CACHES);
        let mut object = Self::objects(cache).next_back();
        if cache != PART {
            object = (self.random.random_bool(0.6)).then(|| self.random.random_range(0..OBJECTS));
        }
        let mut claim = None;
        self.update(user, |session, now| claim = Some(session.claim(now)));
        let user = &mut self.users[user];
        user.read = claim.map(|claim| (cache, object, claim, user.seen));
    }

    fn answer_read(&mut self, user: usize) -> Result<(), String> {
        let Some((cache, object, claim, seen)) = self.users[user].read.take() else {
            return Ok(());
        };
        let scope = Self::scope(cache);
        let mut proven_since = claim.proven_since(scope);
        if let Some(missing) = claim.version_in(scope)
            && self.caches[cache].applied < missing.version.0
            && !self.breaks(Broken::NoWait)
        {
            // The cache reaches the version while the read waits, or a proof is made.
            if self.random.random_bool(0.5) {
                self.caches[cache].applied = missing.version.0;
            } else {
                proven_since = proven_since.max(missing.at);
                match self.breaks(Broken::GiveUp) {
                    true => self.update(user, |session, _| *session = session.without_version()),
                    false => self.update(user, |session, _| session.give_up(missing)),
                }
            }
        }
        let is_proven = self.caches[cache]
            .proof
            .is_some_and(|(requested_at, version)| {
                let is_late_enough =
                    requested_at >= proven_since || self.breaks(Broken::EarlyProof);
                is_late_enough && self.caches[cache].applied >= version
            });
        if !is_proven {
            self.prove(cache, object);
        }
        if !self.breaks(Broken::Read) {
            self.see(user, self.newest_change(cache), scope);
        }
        let shown = match object {
            Some(object) => object..object + 1,
            None => Self::objects(cache),
        };
        for object in shown {
            let change = self.change(object, self.caches[cache].applied);
            if change < seen[object] {
                let seen = seen[object];
                return Err(format!("user {user} saw version {seen}, but got {change}"));
            }
            let user = &mut self.users[user];
            user.seen[object] = user.seen[object].max(change);
        }
        Ok(())
    }

    /// Proves one object of `cache`, or all of them. Changes may come while the call is made.
    fn prove(&mut self, cache: usize, object: Option<usize>) {
        let requested_at = self.now();
        let proven = self.version;
        if self.random.random_bool(0.3) {
            let object = self.random.random_range(0..OBJECTS);
            self.commit(object);
        }
        let needed = match object {
            Some(object) => self.change(object, proven),
            None => proven,
        };
        let applied = self.caches[cache].applied.max(needed);
        self.caches[cache].applied = applied;
        if object.is_none() || self.breaks(Broken::PartialProof) {
            let version = if object.is_none() { proven } else { applied };
            self.caches[cache].proof = Some((requested_at, version));
        }
    }
}

#[test]
fn sessions_contain_what_their_users_have_seen() {
    for seed in 0..5_000 {
        let end = Model::new(seed, None).run();
        assert_eq!(end, Ok(()), "seed {seed}");
    }
}

#[test]
fn the_model_of_sessions_notices_each_broken_rule() {
    for rule in ALL {
        let is_noticed = (0..20_000).any(|seed| Model::new(seed, Some(rule)).run().is_err());
        assert!(is_noticed, "{rule:?}");
    }
}
