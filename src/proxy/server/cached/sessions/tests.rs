//! A random model of sessions: users write and read, caches follow, and no user ever misses a write
//! of its own, or goes back behind what it has learned.

use std::time::Duration;

use kubefan_core::api::ResourceVersion;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

use super::session::Session;

/// A rule of sessions that the model leaves out, to show that it notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// A write whose version is known raises nothing.
    Write,
    /// A write without an answer marks nothing.
    LostWrite,
    /// An answer that tells of an unknown state marks nothing.
    UnknownState,
    /// A session that begins again has no mark.
    Beginning,
    /// A read of another cache than before needs no new proof.
    OtherCache,
    /// A proof that was requested before the mark is sufficient.
    EarlyProof,
    /// A session forgets what it wrote after any proof.
    EarlyClear,
    /// The answer to a read is not waited for until the cache has what was written.
    NoWait,
}

const ALL: [Broken; 8] = [
    Broken::Write,
    Broken::LostWrite,
    Broken::UnknownState,
    Broken::Beginning,
    Broken::OtherCache,
    Broken::EarlyProof,
    Broken::EarlyClear,
    Broken::NoWait,
];
const USERS: usize = 2;
const CACHES: usize = 2;
const STEPS: usize = 200;

#[derive(Clone, Copy, Default)]
struct Cache {
    applied: u64,
    /// When the last proof was requested, and its version.
    proof: Option<(Instant, u64)>,
}

#[derive(Clone, Copy, Default)]
struct User {
    session: Option<Session>,
    /// The newest version that the user has learned of, by any answer.
    knows: u64,
}

struct Model {
    random: StdRng,
    broken: Option<Broken>,
    began: Instant,
    ticks: u64,
    /// The version of the API server.
    version: u64,
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
            caches: [Cache::default(); CACHES],
            users: [User::default(); USERS],
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

    fn session(&mut self, user: usize) -> Session {
        let now = self.now();
        let began = if self.breaks(Broken::Beginning) {
            self.began
        } else {
            now
        };
        self.users[user]
            .session
            .unwrap_or_else(|| Session::begin(began))
    }

    /// Runs a history. Returns what a read got wrong, if one did.
    fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            let user = self.random.random_range(0..USERS);
            let cache = self.random.random_range(0..CACHES);
            match self.random.random_range(0..12) {
                0 | 1 => self.write(user),
                2 => self.lose_a_write(user),
                3 => self.learn_of_an_unknown_state(user),
                4 => self.forwarded_read(user),
                5 => self.users[user].session = None,
                6 => self.version += self.random.random_range(1..3),
                7 | 8 => self.follow(cache),
                _ => self.read(user, cache)?,
            }
        }
        Ok(())
    }

    fn write(&mut self, user: usize) {
        self.version += 1;
        self.users[user].knows = self.version;
        let now = self.now();
        let mut session = self.session(user);
        if !self.breaks(Broken::Write) {
            session.wrote(ResourceVersion(self.version), now);
        }
        self.users[user].session = Some(session);
    }

    /// The client goes away during its write, which the API server has done.
    fn lose_a_write(&mut self, user: usize) {
        self.version += 1;
        self.users[user].knows = self.version;
        let now = self.now();
        let mut session = self.session(user);
        if !self.breaks(Broken::LostWrite) {
            session.mark(now);
        }
        self.users[user].session = Some(session);
    }

    /// A conflict, a deletion, a list that was forwarded.
    fn learn_of_an_unknown_state(&mut self, user: usize) {
        self.users[user].knows = self.version;
        let now = self.now();
        let mut session = self.session(user);
        if !self.breaks(Broken::UnknownState) {
            session.mark(now);
        }
        self.users[user].session = Some(session);
    }

    /// A GET of an object whose last change is not the newest of all.
    fn forwarded_read(&mut self, user: usize) {
        let object = self.random.random_range(1..=self.version);
        self.users[user].knows = self.users[user].knows.max(object);
        let now = self.now();
        let mut session = self.session(user);
        session.wrote(ResourceVersion(object), now);
        self.users[user].session = Some(session);
    }

    fn follow(&mut self, cache: usize) {
        let applied = self.caches[cache].applied;
        self.caches[cache].applied = self.random.random_range(applied..=self.version);
    }

    fn read(&mut self, user: usize, cache: usize) -> Result<(), String> {
        let asked_at = self.now();
        let mut session = self.session(user);
        let number = if self.breaks(Broken::OtherCache) {
            0
        } else {
            cache
        };
        let claim = session.read(number as u64, asked_at);
        let mut proven_since = claim.proven_since;
        if let Some(written) = claim.written
            && self.caches[cache].applied < written.version.0
            && !self.breaks(Broken::NoWait)
        {
            // The cache reaches the version while the read waits, or a proof is made.
            if self.random.random_bool(0.5) {
                self.caches[cache].applied = written.version.0;
            } else {
                proven_since = proven_since.max(written.at);
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
            // Changes may come while the call is made.
            let requested_at = self.now();
            let version = self.version;
            self.version += self.random.random_range(0..2);
            let reached = self.random.random_range(version..=self.version);
            let cache = &mut self.caches[cache];
            cache.applied = cache.applied.max(reached);
            cache.proof = Some((requested_at, version));
        }
        let moment = if self.breaks(Broken::EarlyClear) {
            asked_at
        } else {
            proven_since
        };
        session.proven(moment);
        let shown = self.caches[cache].applied;
        let knows = self.users[user].knows;
        if shown < knows {
            return Err(format!(
                "user {user} knows version {knows}, but got {shown}"
            ));
        }
        self.users[user].knows = shown;
        self.users[user].session = Some(session);
        Ok(())
    }
}

#[test]
fn sessions_contain_what_their_users_have_written() {
    for seed in 0..5_000 {
        let end = Model::new(seed, None).run();
        assert_eq!(end, Ok(()), "seed {seed}");
    }
}

#[test]
fn the_model_of_sessions_notices_each_broken_rule() {
    for rule in ALL {
        let is_noticed = (0..1_000).any(|seed| Model::new(seed, Some(rule)).run().is_err());
        assert!(is_noticed, "{rule:?}");
    }
}
