//! A kubefan of the model: its caches, its sessions, and what users have seen through it.

use std::ops::Range;
use std::sync::Arc;

use kubefan_core::api::{GroupVersionResource, Resource, ResourceVersion};
use tokio::time::Instant;

use super::server::{Change, OBJECTS, Server};
use crate::identity::UserKey;
use crate::server::cached::sessions::answered::Before;
use crate::server::cached::sessions::session::{Claim, ContentHash, ScopeHash};
use crate::server::cached::sessions::table::{Key, Requester, SessionTable, StoredResource};

pub(super) const USERS: usize = 2;
/// The caches: one for each wire format, which reads as Tables use too, and one that has only the
/// first object.
pub(super) const CACHES: usize = 3;
pub(super) const PART: usize = CACHES - 1;
/// The most sessions. The users have half of them, so others can push them out.
pub(super) const MOST: usize = 2 * USERS;

/// A cache, with its last proof of all objects.
#[derive(Clone, Copy)]
pub(super) struct Cache {
    pub(super) history: u32,
    epoch: u32,
    pub(super) applied: u64,
    pub(super) objects: [Change; OBJECTS],
    /// The version of the newest change, or of the list that the cache continues.
    pub(super) changed: u64,
    /// When the proof was requested, and its version.
    pub(super) proof: Option<(Instant, u64)>,
}

/// What one user has seen through one kubefan.
#[derive(Clone, Default)]
pub(super) struct User {
    /// The newest change of each object that the user has seen.
    pub(super) seen: [Change; OBJECTS],
    /// A write without an answer, which is done at this tick or before.
    pub(super) lost: Option<(usize, u64)>,
    pub(super) read: Option<Read>,
}

/// A read that waits for its answer.
#[derive(Clone)]
pub(super) struct Read {
    pub(super) cache: usize,
    /// `None` for all objects.
    pub(super) object: Option<usize>,
    pub(super) claim: Claim,
    /// What the user had seen when the read was sent.
    pub(super) seen: [Change; OBJECTS],
}

pub(super) struct Kubefan {
    pub(super) caches: [Cache; CACHES],
    pub(super) users: [User; USERS],
    pub(super) table: SessionTable,
    pub(super) resource: StoredResource,
}

// === impl Cache, User ===

impl Cache {
    /// Returns true if a proof of all objects was requested at `moment` or later. `None` is long
    /// ago.
    pub(super) fn is_proven_since(&self, moment: Option<Instant>) -> bool {
        self.proof.is_some_and(|(requested_at, version)| {
            Some(requested_at) >= moment && self.applied >= version
        })
    }
}

impl User {
    /// A restore has undone changes that the user has seen.
    fn forget_undone(&mut self, server: &Server) {
        let in_flight = self.read.iter_mut().map(|read| &mut read.seen);
        for seen in in_flight.chain([&mut self.seen]) {
            for (object, change) in seen.iter_mut().enumerate() {
                if change.1 > server.version {
                    *change = server.change(object, server.version);
                }
            }
        }
    }
}

// === impl Kubefan ===

impl Kubefan {
    pub(super) fn new(server: &Server) -> Self {
        let cache = Cache {
            history: server.history,
            epoch: 0,
            applied: server.version,
            objects: server.state(server.version),
            changed: server.version,
            proof: None,
        };
        Self {
            caches: [cache; CACHES],
            users: Default::default(),
            table: SessionTable::new(MOST),
            resource: resource("", "v1", "configmaps"),
        }
    }

    pub(super) fn scope(cache: usize) -> ScopeHash {
        match cache {
            PART => ScopeHash(1),
            _ => ScopeHash::WHOLE,
        }
    }

    /// Returns the objects that `cache` has.
    pub(super) fn objects(cache: usize) -> Range<usize> {
        if cache == PART { 0..1 } else { 0..OBJECTS }
    }

    /// Applies the changes of `server` up to `version`, which is of the cache's history.
    pub(super) fn apply(&mut self, cache: usize, server: &Server, version: u64) {
        let objects = Self::objects(cache);
        let cache = &mut self.caches[cache];
        cache.applied = cache.applied.max(version);
        cache.objects = server.state(cache.applied);
        let versions = objects.map(|object| cache.objects[object].1);
        cache.changed = versions.fold(cache.changed, u64::max);
    }

    /// Lists `server` again, at `now`. In another history, a new epoch begins.
    pub(super) fn relist(&mut self, cache: usize, server: &Server, now: Instant) {
        let before = self.caches[cache];
        self.caches[cache] = Cache {
            history: server.history,
            epoch: before.epoch + u32::from(before.history != server.history),
            applied: server.version,
            objects: server.state(server.version),
            changed: server.version,
            proof: Some((now, server.version)),
        };
    }

    /// The state of `server` was restored.
    pub(super) fn restored(&mut self, server: &Server) {
        for cache in &mut self.caches {
            // The version shows no other history.
            if cache.applied <= server.version {
                cache.history = server.history;
            }
        }
        for user in &mut self.users {
            user.forget_undone(server);
        }
    }

    /// Returns what identifies the state of a cache.
    pub(super) fn content(&self, cache: usize) -> ContentHash {
        let number = u64::try_from(cache + 1).expect("few caches");
        let Cache { epoch, changed, .. } = self.caches[cache];
        ContentHash((number << 48) | (u64::from(epoch) << 32) | changed)
    }

    /// Returns true if all caches are of the history of `server`.
    pub(super) fn is_settled(&self, server: &Server) -> bool {
        let mut caches = self.caches.iter();
        caches.all(|cache| cache.history == server.history)
    }

    /// Returns what the caches of all objects have of `object` before a request is sent.
    pub(super) fn before(&self, object: usize) -> [Before; PART] {
        std::array::from_fn(|cache| {
            let cache = &self.caches[cache];
            Before {
                applied: ResourceVersion(cache.applied),
                object: Some(ResourceVersion(cache.objects[object].1)),
            }
        })
    }

    pub(super) fn key(&self, user: usize) -> Key {
        Key::of(user_key(user), &self.resource)
    }

    pub(super) fn mark(&mut self, requester: Requester, now: Instant) {
        self.table.mark(requester, &self.resource, now);
    }

    pub(super) fn see_object(&mut self, requester: Requester, version: u64, now: Instant) {
        let (resource, version) = (&self.resource, ResourceVersion(version));
        self.table.see_object(requester, resource, version, now);
    }
}

pub(super) fn resource(group: &str, version: &str, plural: &str) -> StoredResource {
    StoredResource(Arc::new(Resource {
        gvr: GroupVersionResource::new(group, version, plural),
        kind: String::new(),
        singular: String::new(),
        short_names: Vec::new(),
        namespaced: true,
        verbs: Vec::new(),
    }))
}

pub(super) fn user_key(user: usize) -> Option<UserKey> {
    Some(UserKey::for_tests(u8::try_from(user).expect("few users")))
}

pub(super) fn requester(user: usize) -> Requester {
    Requester::User(user_key(user))
}
