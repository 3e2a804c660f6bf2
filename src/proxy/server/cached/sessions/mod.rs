//! Sessions: a user's reads of a resource contain the user's own writes, and never go back.
//!
//! A session is of one user and one stored resource, whatever version of the API is used. A read
//! needs a cache that has the newest version that its user has seen, and a proof that was requested
//! after the user may have seen a state that has no version here: the session was *marked* then.
//! All sessions of a cache share its proofs of all objects, so a session that is current costs the
//! API server nothing.
//!
//! - `effect.rs` says what the answer to a request shows; `answered.rs` reads it, before the first
//!   byte of the answer is sent.
//! - `session.rs` has the rules of one session, and `table.rs` those of all. Guarded by
//!   `sessions_contain_what_their_users_have_seen` and
//!   `the_model_of_sessions_notices_each_broken_rule`.
//! - A session that was forgotten begins again, with a mark, and is in doubt for as long as the API
//!   server may take for a request. So forgetting is always safe.
//! - Callers that kubefan can't identify may be any user, so what they see marks all sessions of
//!   the resource. What the API server refuses them shows nothing.
//! - A user has at most one session for each resource that kubefan caches, so no user can push out
//!   the sessions of others.
//! - Watches, and reads with a version, don't count.

mod answered;
mod effect;
mod session;
mod table;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use answered::Before;
pub(in crate::server) use answered::Pending;
use effect::{Affected, Effect, effect_of_read, effects_of_write};
use kubefan_core::api::{GroupVersionResource, ResourceVersion, Selection, WireFormat};
use kubefan_core::informer::{Informer, InformerSet, LiveRestMapper, Proof};
use parking_lot::Mutex;
use session::{Claim, ContentHash, ScopeHash, Seen, Session};
use table::{Key, Requester, SessionTable, StoredResource};
use tokio::time::Instant;

use crate::identity::Caller;
use crate::ledger::Budget;
use crate::server::decide::{Need, Plan, Read};
use crate::server::request::Exchange;

/// The most sessions.
const MAX_SESSIONS: usize = 100_000;
/// The memory of a session, in bytes: twice its size, because a map may be half empty.
const SESSION_BYTES: usize = 2 * (size_of::<Key>() + size_of::<Session>());
/// How long a read waits for a version that its cache has not reached, before the cache is proven.
const CATCH_UP_WAIT: Duration = Duration::from_secs(1);

/// The sessions of all users. A clone refers to the original's sessions.
#[derive(Clone)]
pub(in crate::server) struct Sessions {
    inner: Arc<Inner>,
}

struct Inner {
    informers: InformerSet,
    rest_mapper: Arc<LiveRestMapper>,
    /// False if no resource has sessions. Then there are none, and requests cost nothing here.
    are_used: AtomicBool,
    table: Mutex<SessionTable>,
    hasher: RandomState,
    budget: Budget,
}

/// What a read of a session needs.
pub(in crate::server) struct SessionRead {
    key: Key,
    claim: Claim,
}

/// Whether a cache has what a session has seen. A proof of the cache counts for the session if it was
/// requested at this moment or later.
enum Standing {
    /// The cache has it.
    Reached(Instant),
    /// The cache has not reached this version.
    Behind(Seen, Instant),
}

// === impl Sessions ===

impl Sessions {
    /// Creates sessions for the caches of `informers` whose policy serves sessions. They take at
    /// most `budget`.
    pub(in crate::server) fn new(
        informers: InformerSet,
        rest_mapper: Arc<LiveRestMapper>,
        are_used: bool,
        budget: Budget,
    ) -> Self {
        let most = (budget.limit() / SESSION_BYTES).min(MAX_SESSIONS);
        Self {
            inner: Arc::new(Inner {
                informers,
                rest_mapper,
                are_used: AtomicBool::new(are_used),
                table: Mutex::new(SessionTable::new(most)),
                hasher: RandomState::new(),
                budget,
            }),
        }
    }

    /// Forgets all sessions. Call it when policies may have changed: what was written under another
    /// policy was not noted. `are_used` is false if no resource has sessions now.
    pub(in crate::server) fn clear(&self, are_used: bool) {
        self.inner.are_used.store(are_used, Ordering::Relaxed);
        drop(self.with_table(SessionTable::clear));
    }

    /// Returns what `read` of `caller` needs from a cache. Call it before the cache is looked up.
    /// Returns `None` if the read is of no session: its resource has another policy, or it names a
    /// version.
    pub(in crate::server) fn read(&self, caller: &Caller, read: &Read) -> Option<SessionRead> {
        let key = self.key(caller, read)?;
        let claim = self.with_table(|table, now| table.claim(&key, now));
        Some(SessionRead { key, claim })
    }

    /// Does what [`Sessions::read`] does, but begins no session.
    pub(in crate::server) fn peek(&self, caller: &Caller, read: &Read) -> Option<SessionRead> {
        let key = self.key(caller, read)?;
        let claim = self.with_table(|table, now| table.peek(&key, now));
        Some(SessionRead { key, claim })
    }

    /// Returns the key of the session of `read`, if it is of one.
    fn key(&self, caller: &Caller, read: &Read) -> Option<Key> {
        let is_of_session = !matches!(read.plan, Plan::Watch { .. })
            && read.need == Need::MostRecent
            && self.are_used()
            && self.inner.informers.serves_sessions(&read.spec);
        is_of_session.then(|| Key {
            user: caller.name_key(),
            resource: StoredResource(Arc::clone(&read.spec.resource)),
        })
    }

    /// Waits a moment for the cache of `informer` to reach what the session of `read` has seen.
    /// Returns the moment since which the cache must be proven. Cancel safe.
    pub(in crate::server) async fn catch_up(
        &self,
        read: &SessionRead,
        informer: &Informer,
    ) -> Instant {
        let (seen, proven_since) = match self.standing(read, informer) {
            Standing::Reached(proven_since) => return proven_since,
            Standing::Behind(seen, proven_since) => (seen, proven_since),
        };
        let reader = informer.reader();
        // A cache of Events may reach it only with a later change.
        if !reader.shares_versions()
            && reader
                .wait_for(seen.version, Instant::now() + CATCH_UP_WAIT)
                .await
        {
            return proven_since;
        }
        // The cache is slow, or of another history. A proof shows which.
        self.with_table(|table, now| table.give_up(&read.key, seen, now));
        proven_since.max(seen.at)
    }

    /// Returns the moment since which the cache of `informer` must be proven for `read`, and whether
    /// it has first to reach a version. Waits for nothing.
    pub(in crate::server) fn proven_since(
        &self,
        read: &SessionRead,
        informer: &Informer,
    ) -> (Instant, bool) {
        match self.standing(read, informer) {
            Standing::Reached(proven_since) => (proven_since, false),
            Standing::Behind(_, proven_since) => (proven_since, true),
        }
    }

    /// Compares the cache of `informer` with what the session of `read` has seen.
    fn standing(&self, read: &SessionRead, informer: &Informer) -> Standing {
        let scope = self.scope(informer.scope());
        let proven_since = read.claim.proven_since(scope);
        let Some(seen) = read.claim.version_in(scope) else {
            return Standing::Reached(proven_since);
        };
        // A proof since the user has seen the version covers it, also on a quiet resource.
        let proven_since_seen = proven_since.max(seen.at);
        if informer.proof_by_policy(proven_since_seen).is_some() {
            Standing::Reached(proven_since_seen)
        } else if informer.reader().applied() >= Some(seen.version) {
            Standing::Reached(proven_since)
        } else {
            Standing::Behind(seen, proven_since)
        }
    }

    /// Notes that `read` shows the state of `proof`, from the cache of `informer`.
    pub(in crate::server) fn shown(&self, read: &SessionRead, informer: &Informer, proof: &Proof) {
        let scope = self.scope(informer.scope());
        let (snapshot, format) = (&proof.snapshot, informer.format());
        let version = snapshot.newest_change();
        let content = (scope.0, format, snapshot.epoch(), version);
        let content = ContentHash(self.inner.hasher.hash_one(content) | 1);
        if !read.claim.has_shown(content) {
            self.with_table(|table, now| table.show(&read.key, content, (version, scope), now));
        }
    }

    /// Returns what must note the API server's answer to the write of `exchange`; `None` if the
    /// write changes no resource that a cache may have.
    pub(in crate::server) fn write(&self, exchange: &Exchange) -> Option<Pending> {
        if !self.are_used() {
            return None;
        }
        let query = exchange.request.uri().query();
        let is_dry_run = query.is_some_and(|query| query.contains("dryRun"))
            && exchange.query().first("dryRun").is_some();
        self.pending(exchange, effects_of_write(&exchange.info, is_dry_run), true)
    }

    /// Returns what must note the API server's answer to the read of `exchange`; `None` if the read
    /// is of no resource with sessions.
    pub(in crate::server) fn forwarded_read(&self, exchange: &Exchange) -> Option<Pending> {
        if !self.are_used() {
            return None;
        }
        let effect = effect_of_read(&exchange.info)?;
        self.pending(exchange, vec![effect], false)
    }

    /// Returns true if a resource has sessions.
    pub(in crate::server) fn are_used(&self) -> bool {
        self.inner.are_used.load(Ordering::Relaxed)
    }

    fn pending(
        &self,
        exchange: &Exchange,
        effects: Vec<Effect>,
        is_write: bool,
    ) -> Option<Pending> {
        let requester = match &exchange.caller {
            Caller::Trusted => Requester::User(None),
            Caller::Known(caller) => Requester::User(Some(caller.name_key())),
            Caller::Unknown => Requester::Unidentified,
            // No cache answers them: they act as another user, or the API server refused their token.
            Caller::Impersonating | Caller::Unnamed(_) | Caller::Refused => return None,
        };
        let own = exchange.info.gvr()?;
        let effects: Vec<_> = effects
            .into_iter()
            .filter_map(|effect| {
                let gvr = match effect.on {
                    Affected::Own => own.clone(),
                    Affected::Pods => GroupVersionResource::new("", "v1", "pods"),
                    Affected::PodDisruptionBudgets => {
                        GroupVersionResource::new("policy", "v1", "poddisruptionbudgets")
                    }
                };
                Some((self.with_sessions(&gvr)?, effect.shown_by))
            })
            .collect();
        if effects.is_empty() {
            return None;
        }
        let before = self.before(&own, exchange);
        Some(Pending::new(
            self.clone(),
            requester,
            effects,
            before,
            is_write,
        ))
    }

    /// Returns the stored resource of `gvr`, if its caches serve sessions.
    fn with_sessions(&self, gvr: &GroupVersionResource) -> Option<StoredResource> {
        let Inner {
            informers,
            rest_mapper,
            ..
        } = self.inner.as_ref();
        let spec = rest_mapper.spec_or_reason(gvr, WireFormat::Json).ok()?;
        let serves = informers.serves_sessions(&spec);
        serves.then_some(StoredResource(spec.resource))
    }

    /// Returns what the caches have of the object of `exchange` before the request is sent.
    fn before(&self, gvr: &GroupVersionResource, exchange: &Exchange) -> Vec<Before> {
        let info = &exchange.info;
        let namespace = Some(info.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let formats = [WireFormat::Json, WireFormat::Protobuf].into_iter();
        let informers = formats.filter_map(|format| {
            let spec = self.inner.rest_mapper.spec_or_reason(gvr, format).ok()?;
            self.inner.informers.peek(&spec, namespace)
        });
        informers
            .filter_map(|informer| {
                // The URL of a Namespace object reads as if it were in its own namespace.
                let namespace = namespace.filter(|_| informer.resource().namespaced);
                Before::of(informer.reader(), namespace, &info.name)
            })
            .collect()
    }

    /// Notes that the requester has seen that an object of `resource` has `version`.
    fn seen(&self, requester: Requester, resource: &StoredResource, version: ResourceVersion) {
        self.with_table(|table, now| table.see_object(requester, resource, version, now));
    }

    /// Notes that the requester may have seen any state of `resource`.
    fn mark(&self, requester: Requester, resource: &StoredResource) {
        self.with_table(|table, now| table.mark(requester, resource, now));
    }

    /// Notes that the requester has sent a write of `resource` whose answer did not come.
    fn lose_write(&self, requester: Requester, resource: &StoredResource) {
        self.with_table(|table, now| table.lose_write(requester, resource, now));
    }

    /// Reads or changes the table. `change` gets the present moment, which is read under the lock,
    /// so no change gets an earlier one than the change before.
    fn with_table<T>(&self, change: impl FnOnce(&mut SessionTable, Instant) -> T) -> T {
        let mut table = self.inner.table.lock();
        let result = change(&mut table, Instant::now());
        let garbage = table.take_garbage();
        self.inner.budget.set_used(table.len() * SESSION_BYTES);
        drop(table);
        drop(garbage);
        result
    }

    /// Returns the hash of the objects that a cache holds.
    fn scope(&self, objects: &Selection) -> ScopeHash {
        if objects.is_everything() {
            ScopeHash::WHOLE
        } else {
            ScopeHash(self.inner.hasher.hash_one(objects) | 1)
        }
    }
}
