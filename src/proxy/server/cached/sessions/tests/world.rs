//! A random history of the model: users write and read through one kubefan or two, others write,
//! caches follow, and the API server is restored now and then.

use std::time::Duration;

use kubefan_core::api::ResourceVersion;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

use super::kubefan::{CACHES, Kubefan, MOST, PART, Read, USERS, User, requester, user_key};
use super::server::{Change, OBJECTS, Server};
use crate::server::cached::sessions::answered::Before;
use crate::server::cached::sessions::session::Session;
use crate::server::cached::sessions::table::{Key, MAX_REQUEST_TIME, Requester, SessionTable};

/// A rule of sessions that the model leaves out, to show that it notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// A write whose version is known is not seen.
    Write,
    /// A write without an answer is not expected.
    LostWrite,
    /// An answer that shows an unknown state marks nothing.
    UnknownState,
    /// What an unidentified caller sees marks nothing.
    Unidentified,
    /// The version of an answer is believed although a cache may be of another history.
    OtherHistory,
    /// A session that begins has no mark, and no doubt.
    Beginning,
    /// What a read has shown is not seen.
    Read,
    /// What a read has shown is not seen if the session has seen a version that is as high.
    LowerVersion,
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

pub(super) const ALL: [Broken; 13] = [
    Broken::Write,
    Broken::LostWrite,
    Broken::UnknownState,
    Broken::Unidentified,
    Broken::OtherHistory,
    Broken::Beginning,
    Broken::Read,
    Broken::LowerVersion,
    Broken::EarlyProof,
    Broken::GiveUp,
    Broken::PartialProof,
    Broken::NoWait,
    Broken::Forgotten,
];
const STEPS: usize = 400;
/// The steps that half of the histories lack, so that some leave sessions alone for long.
const DISTURBANCES: std::ops::Range<u32> = 2..8;
/// The time between two moments.
const TICK: Duration = Duration::from_secs(3);
/// The most ticks of a step.
const STEP_TICKS: u64 = 6;

/// A kubefan, and one of its users.
type Who = (usize, usize);

pub(super) struct World {
    random: StdRng,
    broken: Option<Broken>,
    began: Instant,
    ticks: u64,
    absent: Vec<u32>,
    server: Server,
    kubefans: Vec<Kubefan>,
}

impl World {
    pub(super) fn new(seed: u64, broken: Option<Broken>) -> Self {
        let server = Server::new();
        let mut random = StdRng::seed_from_u64(seed);
        let kubefans = (0..=seed % 2).map(|_| Kubefan::new(&server));
        Self {
            kubefans: kubefans.collect(),
            absent: DISTURBANCES.filter(|_| random.random_bool(0.5)).collect(),
            random,
            broken,
            began: Instant::now(),
            ticks: 0,
            server,
        }
    }

    /// Runs the history. Returns what a read got wrong, if one did.
    pub(super) fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.commit_what_was_lost();
            let kubefan = self.random.random_range(0..self.kubefans.len());
            let who = (kubefan, self.random.random_range(0..USERS));
            let object = self.random.random_range(0..OBJECTS);
            let step = self.random.random_range(0..20);
            match step {
                _ if self.absent.contains(&step) => {}
                0 | 1 => self.write(who, object),
                2 => self.lose_a_write(who, object),
                3 => self.see_an_unknown_state(who),
                4 => self.forwarded_get(who, object),
                5 => self.write_unidentified(who, object),
                6 => self.forget(kubefan),
                7 => self.restore(),
                8 | 9 => drop(self.commit(object)),
                10..=13 => self.follow(kubefan),
                14..=16 => self.send_read(who),
                _ => self.answer_read(who)?,
            }
        }
        Ok(())
    }

    fn breaks(&self, rule: Broken) -> bool {
        self.broken == Some(rule)
    }

    fn present(&self) -> Instant {
        let ticks = u32::try_from(self.ticks).expect("a short history");
        self.began + TICK * ticks
    }

    /// Returns a moment later than all before.
    fn now(&mut self) -> Instant {
        self.ticks += 1;
        self.present()
    }

    fn user(&mut self, (kubefan, user): Who) -> &mut User {
        &mut self.kubefans[kubefan].users[user]
    }
}

// === impl World: the API server and the caches ===

impl World {
    /// Changes an object. A cache of an earlier history notices in time: once the API server has
    /// passed the cache's version, kubefan can't notice a restore any more.
    fn commit(&mut self, object: usize) -> Change {
        let change = self.server.commit(object);
        let now = self.present();
        for kubefan in &mut self.kubefans {
            for cache in 0..CACHES {
                let is_passed = kubefan.caches[cache].applied <= change.1;
                if kubefan.caches[cache].history != self.server.history && is_passed {
                    kubefan.relist(cache, &self.server, now);
                }
            }
        }
        change
    }

    /// A write that was lost is done at some moment until its last.
    fn commit_what_was_lost(&mut self) {
        for kubefan in 0..self.kubefans.len() {
            for user in 0..USERS {
                let Some((object, last)) = self.user((kubefan, user)).lost else {
                    continue;
                };
                if self.ticks >= last || self.random.random_bool(0.05) {
                    let change = self.commit(object);
                    let user = self.user((kubefan, user));
                    user.lost = None;
                    user.seen[object] = change;
                }
            }
        }
    }

    fn restore(&mut self) {
        let mut kubefans = self.kubefans.iter();
        let is_settled = kubefans.all(|kubefan| kubefan.is_settled(&self.server));
        if is_settled && self.random.random_bool(0.3) {
            self.server.restore(self.random.random_range(1..=10));
            for kubefan in &mut self.kubefans {
                kubefan.restored(&self.server);
            }
        }
    }

    /// A cache follows the API server, or lists it again.
    fn follow(&mut self, kubefan: usize) {
        let now = self.now();
        let cache = self.random.random_range(0..CACHES);
        let kubefan = &mut self.kubefans[kubefan];
        let applied = kubefan.caches[cache].applied;
        let is_current = kubefan.caches[cache].history == self.server.history;
        if self.random.random_bool(if is_current { 0.1 } else { 0.2 }) {
            kubefan.relist(cache, &self.server, now);
        } else if is_current {
            let version = self.random.random_range(applied..=self.server.version);
            kubefan.apply(cache, &self.server, version);
        }
    }
}

// === impl World: what users see without a cache ===

impl World {
    fn write(&mut self, who: Who, object: usize) {
        let before = self.kubefans[who.0].before(object);
        let change = self.commit(object);
        if !self.breaks(Broken::Write) {
            self.see_answer(who, before, change.1);
        }
        self.user(who).seen[object] = change;
    }

    /// Notes an answer that has an object with `version`. The caches had `before`.
    fn see_answer(&mut self, who: Who, before: [Before; PART], version: u64) {
        let now = self.now();
        let agree = |before: &Before| before.agrees_with(ResourceVersion(version));
        let is_believed = before.iter().all(agree) || self.breaks(Broken::OtherHistory);
        let kubefan = &mut self.kubefans[who.0];
        match is_believed {
            true => kubefan.see_object(requester(who.1), version, now),
            false => kubefan.mark(requester(who.1), now),
        }
    }

    fn lose_a_write(&mut self, who: Who, object: usize) {
        if self.user(who).lost.is_some() {
            return;
        }
        let now = self.now();
        let last = self.ticks + MAX_REQUEST_TIME.as_secs() / TICK.as_secs() - STEP_TICKS;
        self.user(who).lost = Some((object, last));
        if !self.breaks(Broken::LostWrite) {
            let Kubefan {
                table, resource, ..
            } = &mut self.kubefans[who.0];
            table.lose_write(requester(who.1), resource, now);
        }
    }

    /// A conflict, a deletion, the last finalizer, an eviction, a list that was forwarded.
    fn see_an_unknown_state(&mut self, who: Who) {
        self.user(who).seen = self.server.state(self.server.version);
        if !self.breaks(Broken::UnknownState) {
            let now = self.now();
            self.kubefans[who.0].mark(requester(who.1), now);
        }
    }

    fn forwarded_get(&mut self, who: Who, object: usize) {
        let before = self.kubefans[who.0].before(object);
        let change = self.server.change(object, self.server.version);
        self.see_answer(who, before, change.1);
        self.user(who).seen[object] = change;
    }

    /// A caller that kubefan does not identify is this user.
    fn write_unidentified(&mut self, who: Who, object: usize) {
        let change = self.commit(object);
        self.user(who).seen[object] = change;
        if !self.breaks(Broken::Unidentified) {
            let now = self.now();
            self.kubefans[who.0].see_object(Requester::Unidentified, change.1, now);
        }
    }

    /// Forgets the sessions: the configuration changes, or there are too many users.
    fn forget(&mut self, kubefan: usize) {
        let now = self.now();
        let is_crowded = self.random.random_bool(0.5);
        let has_no_mark = self.breaks(Broken::Beginning);
        let has_no_doubt = self.breaks(Broken::Forgotten) || has_no_mark;
        let Kubefan {
            table, resource, ..
        } = &mut self.kubefans[kubefan];
        if has_no_doubt {
            *table = SessionTable::new(MOST);
        } else if is_crowded {
            for other in USERS..USERS + MOST {
                table.mark(requester(other), resource, now);
            }
        } else {
            table.clear(now);
        }
        for user in (0..USERS).filter(|_| has_no_mark) {
            let key = Key::of(user_key(user), resource);
            let began = Session::begin(self.began, None);
            table.update(&key, now, |session| *session = began);
        }
    }
}

// === impl World: reads from caches ===

impl World {
    fn send_read(&mut self, who: Who) {
        if self.user(who).read.is_some() {
            return;
        }
        let cache = self.random.random_range(0..CACHES);
        let is_of_one = self.random.random_bool(0.5);
        let object = self.random.random_range(Kubefan::objects(cache));
        let now = self.now();
        let kubefan = &mut self.kubefans[who.0];
        let key = kubefan.key(who.1);
        let claim = kubefan.table.claim(&key, now);
        let user = self.user(who);
        user.read = Some(Read {
            cache,
            object: is_of_one.then_some(object),
            claim,
            seen: user.seen,
        });
    }

    fn answer_read(&mut self, who: Who) -> Result<(), String> {
        let Some(read) = self.user(who).read.take() else {
            return Ok(());
        };
        let proven_since = self.catch_up(who, &read);
        let proven_since = (!self.breaks(Broken::EarlyProof)).then_some(proven_since);
        let cache = &self.kubefans[who.0].caches[read.cache];
        if cache.is_proven_since(proven_since) || self.prove(who.0, &read) {
            self.show(who, &read)
        } else {
            // It is forwarded.
            self.see_an_unknown_state(who);
            Ok(())
        }
    }

    /// Does what [`Sessions::catch_up`](crate::server::cached::sessions::Sessions::catch_up) does.
    fn catch_up(&mut self, (kubefan, user): Who, read: &Read) -> Instant {
        let scope = Kubefan::scope(read.cache);
        let proven_since = read.claim.proven_since(scope);
        let Some(seen) = read.claim.version_in(scope) else {
            return proven_since;
        };
        let proven_since_seen = proven_since.max(seen.at);
        let cache = self.kubefans[kubefan].caches[read.cache];
        if cache.is_proven_since(Some(proven_since_seen)) {
            return proven_since_seen;
        }
        if cache.applied >= seen.version.0 || self.breaks(Broken::NoWait) {
            return proven_since;
        }
        let is_reachable =
            cache.history == self.server.history && seen.version.0 <= self.server.version;
        if is_reachable && self.random.random_bool(0.5) {
            self.kubefans[kubefan].apply(read.cache, &self.server, seen.version.0);
            return proven_since;
        }
        let now = self.now();
        let has_no_mark = self.breaks(Broken::GiveUp);
        let kubefan = &mut self.kubefans[kubefan];
        let key = kubefan.key(user);
        if has_no_mark {
            let table = &mut kubefan.table;
            table.update(&key, now, |session| *session = session.without_version());
        } else {
            kubefan.table.give_up(&key, seen, now);
        }
        proven_since_seen
    }

    /// Proves one object of a cache, or all of them. Changes may come while the call is made.
    /// Returns false if the version of the API server shows another history.
    fn prove(&mut self, kubefan: usize, read: &Read) -> bool {
        let requested_at = self.now();
        if self.kubefans[kubefan].caches[read.cache].history != self.server.history {
            if self.random.random_bool(0.5) {
                self.kubefans[kubefan].relist(read.cache, &self.server, requested_at);
            }
            return false;
        }
        let proven = self.server.version;
        if self.random.random_bool(0.3) {
            let object = self.random.random_range(0..OBJECTS);
            self.commit(object);
        }
        let needed = match read.object {
            Some(object) => self.server.change(object, proven).1,
            None => proven,
        };
        let serves_all = read.object.is_none() || self.breaks(Broken::PartialProof);
        let kubefan = &mut self.kubefans[kubefan];
        kubefan.apply(read.cache, &self.server, needed);
        if serves_all {
            let cache = &mut kubefan.caches[read.cache];
            let version = read.object.map_or(proven, |_| cache.applied);
            cache.proof = Some((requested_at, version));
        }
        true
    }

    /// Answers a read from its cache. Fails if the user has seen a later change than the answer
    /// has.
    fn show(&mut self, who: Who, read: &Read) -> Result<(), String> {
        let scope = Kubefan::scope(read.cache);
        let cache = self.kubefans[who.0].caches[read.cache];
        let version = ResourceVersion(cache.changed);
        let content = self.kubefans[who.0].content(read.cache);
        let is_noted = match read.claim.version_in(scope) {
            Some(seen) if self.breaks(Broken::LowerVersion) => seen.version >= version,
            _ => read.claim.has_shown(content),
        };
        if !is_noted && !self.breaks(Broken::Read) {
            let now = self.now();
            let kubefan = &mut self.kubefans[who.0];
            let key = kubefan.key(who.1);
            kubefan.table.show(&key, content, (version, scope), now);
        }
        // Until all caches are of one history, one may show a change and another an undone one.
        let is_settled = self.kubefans[who.0].is_settled(&self.server);
        let objects = match read.object {
            Some(object) => object..object + 1,
            None => Kubefan::objects(read.cache),
        };
        for object in objects {
            let (shown, seen) = (cache.objects[object], read.seen[object]);
            if shown < seen {
                return Err(format!("{who:?} saw {seen:?}, but got {shown:?}"));
            }
            if is_settled {
                let user = self.user(who);
                user.seen[object] = user.seen[object].max(shown);
            }
        }
        Ok(())
    }
}
