//! All sessions of this kubefan, without locks and clocks.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use kubefan_core::api::{Resource, ResourceVersion};
use kubefan_core::concurrency::Generations;
use tokio::time::Instant;

use super::session::{Claim, ContentHash, ScopeHash, Seen, Session};
use crate::identity::UserKey;

/// How long the API server may still do a write whose client or connection went away. It breaks off
/// requests after 60 s.
pub(super) const MAX_REQUEST_TIME: Duration = Duration::from_secs(60);

/// The sessions of all users. Each method gets the present moment, which must not be earlier than
/// that of the call before.
pub(super) struct SessionTable {
    sessions: Generations<Key, Session>,
    /// When sessions were last forgotten. Writes that were sent before may not have been noted, or
    /// may not have an answer yet.
    forgotten_at: Option<Instant>,
    /// When a caller that kubefan could not identify last saw a state of a resource.
    unidentified: HashMap<StoredResource, Instant>,
    /// Forgotten sessions that are not freed yet.
    garbage: Option<HashMap<Key, Session>>,
}

/// Whose session, and of what. Callers that kubefan does not authenticate are one user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) user: Option<UserKey>,
    pub(super) resource: StoredResource,
}

/// A resource as the API server stores it: all versions are one, and so are the events of both
/// groups.
#[derive(Clone, Debug)]
pub(super) struct StoredResource(pub(super) Arc<Resource>);

/// The user that a request comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Requester {
    /// `None` if callers are not authenticated.
    User(Option<UserKey>),
    /// kubefan could not identify the caller, so it may be any user.
    Unidentified,
}

// === impl SessionTable ===

impl SessionTable {
    /// Creates a table of at most `most` sessions.
    pub(super) fn new(most: usize) -> Self {
        Self {
            sessions: Generations::new(most / 2),
            forgotten_at: None,
            unidentified: HashMap::new(),
            garbage: None,
        }
    }

    /// Returns the number of sessions. One that was changed a while after it was last changed may
    /// count twice.
    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Forgets all sessions. Returns them, so that the caller can free them outside of its lock.
    pub(super) fn clear(&mut self, now: Instant) -> Generations<Key, Session> {
        self.forgotten_at = Some(now);
        self.sessions.take()
    }

    /// Takes the sessions that were forgotten for others, so that the caller can free them outside
    /// of its lock.
    pub(super) fn take_garbage(&mut self) -> Option<HashMap<Key, Session>> {
        self.garbage.take()
    }

    /// Returns what a read in the session of `key` needs.
    pub(super) fn claim(&mut self, key: &Key, now: Instant) -> Claim {
        let seen_by_anyone = self.seen_by_anyone(key);
        self.update(key, now, |session| session.claim_after(seen_by_anyone, now))
    }

    /// Returns what [`SessionTable::claim`] would return, and notes nothing.
    pub(super) fn peek(&self, key: &Key, now: Instant) -> Claim {
        let mut session = self.session(key, now);
        session.claim_after(self.seen_by_anyone(key), now)
    }

    /// Returns when a caller that kubefan could not identify last saw a state of the resource.
    fn seen_by_anyone(&self, key: &Key) -> Option<Instant> {
        self.unidentified.get(&key.resource).copied()
    }

    /// Notes that a cache has shown its state `content` in the session of `key`. `version` is that
    /// of its newest change, among the objects of `scope`.
    pub(super) fn show(
        &mut self,
        key: &Key,
        content: ContentHash,
        (version, scope): (ResourceVersion, ScopeHash),
        now: Instant,
    ) {
        let at = now;
        self.update(key, now, |session| {
            session.show(content, Seen { version, at, scope });
        });
    }

    /// Notes that the requester has seen that an object of `resource` has `version`.
    pub(super) fn see_object(
        &mut self,
        requester: Requester,
        resource: &StoredResource,
        version: ResourceVersion,
        now: Instant,
    ) {
        match requester {
            Requester::User(user) => {
                let seen = Seen {
                    version,
                    at: now,
                    scope: ScopeHash::WHOLE,
                };
                self.update(&Key::of(user, resource), now, |session| session.see(seen));
            }
            Requester::Unidentified => self.mark(requester, resource, now),
        }
    }

    /// Notes that the requester may have seen any state of `resource`.
    pub(super) fn mark(&mut self, requester: Requester, resource: &StoredResource, now: Instant) {
        match requester {
            Requester::User(user) => {
                self.update(&Key::of(user, resource), now, |session| session.mark(now));
            }
            Requester::Unidentified => {
                self.unidentified.insert(resource.clone(), now);
            }
        }
    }

    /// Notes that the requester has sent a write of `resource` whose answer did not come.
    pub(super) fn lose_write(
        &mut self,
        requester: Requester,
        resource: &StoredResource,
        now: Instant,
    ) {
        if let Requester::User(user) = requester {
            self.update(&Key::of(user, resource), now, |session| {
                session.lose_write(now + MAX_REQUEST_TIME);
            });
        }
    }

    /// Notes that a cache has not reached `seen` in time, which a read in the session of `key`
    /// needed.
    pub(super) fn give_up(&mut self, key: &Key, seen: Seen, now: Instant) {
        self.update(key, now, |session| session.give_up(seen));
    }

    /// Changes the session of `key`. If there is none, begins one.
    pub(super) fn update<T>(
        &mut self,
        key: &Key,
        now: Instant,
        change: impl FnOnce(&mut Session) -> T,
    ) -> T {
        let mut session = self.session(key, now);
        let result = change(&mut session);
        let forgotten = self.sessions.insert(key.clone(), session);
        if forgotten.as_ref().is_some_and(|old| !old.is_empty()) {
            self.forgotten_at = Some(now);
            self.garbage = forgotten;
        }
        result
    }

    /// Returns the session of `key`, or a new one.
    fn session(&self, key: &Key, now: Instant) -> Session {
        let session = self.sessions.get(key).copied();
        let unsure_until = self.forgotten_at.map(|at| at + MAX_REQUEST_TIME);
        session.unwrap_or_else(|| Session::begin(now, unsure_until))
    }
}

// === impl Key, StoredResource ===

impl Key {
    pub(super) fn of(user: Option<UserKey>, resource: &StoredResource) -> Self {
        Self {
            user,
            resource: resource.clone(),
        }
    }
}

impl StoredResource {
    /// Returns group and resource.
    fn names(&self) -> (&str, &str) {
        let gvr = &self.0.gvr;
        if gvr.is_events() {
            return ("", "events");
        }
        (&gvr.group, &gvr.resource)
    }
}

impl PartialEq for StoredResource {
    fn eq(&self, other: &Self) -> bool {
        self.names() == other.names()
    }
}

impl Eq for StoredResource {}

impl Hash for StoredResource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.names().hash(state);
    }
}
