//! Sessions: a user's reads of a resource contain the user's own writes, and never go back.
//!
//! A session is of one user and one stored resource, whatever version of it is named. A read needs
//! a proof of the cache that was requested after the user may have learned of a state that this
//! kubefan can't name by a version (the session is *marked* then), and a cache that has reached the
//! newest version that kubefan can name. All sessions of a cache share its proofs, so a session
//! that is current costs the API server nothing.
//!
//! - `effect.rs` says what a request tells its user. What it tells is noted before the first byte
//!   of the answer is sent.
//! - `session.rs` has the rules. Guarded by `sessions_contain_what_their_users_have_written` and by
//!   `the_model_of_sessions_notices_each_broken_rule`.
//! - A session that kubefan has forgotten begins again, with a mark. So forgetting is always safe.
//! - Watches don't count: what a watch delivers raises no version.

mod answered;
mod effect;
mod session;
#[cfg(test)]
mod tests;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use answered::Before;
pub(in crate::server) use answered::Pending;
use dashmap::DashMap;
use effect::{Affected, Effect, effect_of_read, effects_of_write};
use kubefan_core::api::{GroupVersionResource, Resource, ResourceVersion, WireFormat};
use kubefan_core::concurrency::Generations;
use kubefan_core::informer::{Informer, InformerSet, LiveRestMapper};
use parking_lot::Mutex;
use session::Session;
pub(in crate::server) use session::{Claim, Written};
use tokio::time::Instant;

use crate::identity::{Caller, UserKey};
use crate::ledger::Budget;
use crate::server::decide::{Need, Plan, Read};
use crate::server::request::Exchange;

/// The most sessions.
const MAX_SESSIONS: usize = 100_000;
/// The memory of a session, in bytes: twice its size, because a map may be half empty.
const SESSION_BYTES: usize = 2 * (size_of::<Key>() + size_of::<Session>());

/// The sessions of all users. A clone refers to the original's sessions.
#[derive(Clone)]
pub(in crate::server) struct Sessions {
    inner: Arc<Inner>,
}

struct Inner {
    informers: InformerSet,
    rest_mapper: Arc<LiveRestMapper>,
    table: Mutex<Generations<Key, Session>>,
    /// When a caller that kubefan could not identify last wrote a resource. It may be anyone, so
    /// this marks all sessions of the resource.
    unidentified: DashMap<StoredResource, Instant>,
    budget: Budget,
}

/// Whose session, and of what. Callers that kubefan does not authenticate are one user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    user: Option<UserKey>,
    resource: StoredResource,
}

/// A resource as the API server stores it: all versions are one, and so are the events of both
/// groups.
#[derive(Clone, Debug)]
struct StoredResource(Arc<Resource>);

/// The user that a request comes from.
#[derive(Clone, Copy, Debug)]
enum Requester {
    /// `None` if callers are not authenticated.
    User(Option<UserKey>),
    /// kubefan could not identify the caller, so it may be any user.
    Unidentified,
}

/// What a read of a session needs.
pub(in crate::server) struct SessionRead {
    key: Key,
    claim: Claim,
}

// === impl Sessions ===

impl Sessions {
    /// Creates sessions for the caches of `informers` whose policy serves sessions. They take at
    /// most `budget`.
    pub(in crate::server) fn new(
        informers: InformerSet,
        rest_mapper: Arc<LiveRestMapper>,
        budget: Budget,
    ) -> Self {
        let most = (budget.limit() / SESSION_BYTES).min(MAX_SESSIONS);
        Self {
            inner: Arc::new(Inner {
                informers,
                rest_mapper,
                table: Mutex::new(Generations::new(most / 2)),
                unidentified: DashMap::new(),
                budget,
            }),
        }
    }

    /// Forgets all sessions. Call it when policies may have changed: what was written under
    /// another policy was not noted.
    pub(in crate::server) fn clear(&self) {
        self.inner.table.lock().clear();
        self.inner.budget.set_used(0);
    }

    /// Returns what `read` of `caller`, which arrived at `asked_at`, needs from the cache of
    /// `informer`. Returns `None` if the read is of no session: its resource has another policy, or
    /// it names a version.
    pub(in crate::server) fn read(
        &self,
        caller: &Caller,
        read: &Read,
        informer: &Informer,
        asked_at: Instant,
    ) -> Option<SessionRead> {
        let is_of_session = !matches!(read.plan, Plan::Watch { .. })
            && read.need == Need::MostRecent
            && informer.serves_sessions();
        if !is_of_session {
            return None;
        }
        let key = Key {
            user: caller.name_key(),
            resource: StoredResource(Arc::clone(&read.spec.resource)),
        };
        let mut claim = self.update(&key, asked_at, |session| {
            session.read(informer.number(), asked_at)
        });
        if let Some(wrote) = self.inner.unidentified.get(&key.resource) {
            claim.proven_since = claim.proven_since.max(*wrote);
        }
        // A cache of some objects may never reach the version of another object.
        if !read.scope.is_everything()
            && let Some(written) = claim.written.take()
        {
            claim.proven_since = claim.proven_since.max(written.at);
        }
        Some(SessionRead { key, claim })
    }

    /// Notes that `read` was proven since `moment`.
    pub(in crate::server) fn proven(&self, read: &SessionRead, moment: Instant) {
        let needs_note = read
            .claim
            .written
            .is_some_and(|written| written.at <= moment);
        if needs_note {
            self.update(&read.key, moment, |session| session.proven(moment));
        }
    }

    /// Returns what the API server's answer to the write of `exchange` must be noted in; `None` if
    /// it changes no resource with sessions.
    pub(in crate::server) fn write(&self, exchange: &Exchange) -> Option<Pending> {
        let query = exchange.request.uri().query();
        let is_dry_run = query.is_some_and(|query| query.contains("dryRun"))
            && exchange.query().first("dryRun").is_some();
        self.pending(exchange, effects_of_write(&exchange.info, is_dry_run), true)
    }

    /// Returns what the API server's answer to the read of `exchange` must be noted in; `None` if
    /// it is of no resource with sessions.
    pub(in crate::server) fn forwarded_read(&self, exchange: &Exchange) -> Option<Pending> {
        // Nobody else is answered from a cache, so nobody else has a session.
        if !exchange.caller.may_use_cache() {
            return None;
        }
        let effect = effect_of_read(&exchange.info);
        self.pending(exchange, effect.into_iter().collect(), false)
    }

    fn pending(
        &self,
        exchange: &Exchange,
        effects: Vec<Effect>,
        is_write: bool,
    ) -> Option<Pending> {
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
                Some((self.with_sessions(&gvr)?, effect.told_by))
            })
            .collect();
        if effects.is_empty() {
            return None;
        }
        let requester = if exchange.caller.may_use_cache() {
            Requester::User(exchange.caller.name_key())
        } else {
            Requester::Unidentified
        };
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
            self.inner.informers.get_ready(&spec, namespace)
        });
        informers
            .filter_map(|informer| {
                // The URL of a Namespace object reads as if it were in its own namespace.
                let namespace = namespace.filter(|_| informer.resource().namespaced);
                Before::of(informer.reader(), namespace, &info.name)
            })
            .collect()
    }

    /// Notes that the user has learned that an object of `resource` has `version`.
    fn wrote(&self, requester: Requester, resource: &StoredResource, version: ResourceVersion) {
        let now = Instant::now();
        match requester {
            Requester::User(user) => self.update(&Key::of(user, resource), now, |session| {
                session.wrote(version, now);
            }),
            Requester::Unidentified => self.mark(requester, resource),
        }
    }

    /// Notes that the user may have learned of any state of `resource`.
    fn mark(&self, requester: Requester, resource: &StoredResource) {
        let now = Instant::now();
        match requester {
            Requester::User(user) => {
                self.update(&Key::of(user, resource), now, |session| session.mark(now));
            }
            Requester::Unidentified => {
                self.inner.unidentified.insert(resource.clone(), now);
            }
        }
    }

    /// Changes the session of `key`. If there is none, begins one at `now`.
    fn update<T>(&self, key: &Key, now: Instant, change: impl FnOnce(&mut Session) -> T) -> T {
        let mut sessions = self.inner.table.lock();
        let session = sessions.get(key).copied();
        let mut session = session.unwrap_or_else(|| Session::begin(now));
        let result = change(&mut session);
        sessions.insert(key.clone(), session);
        self.inner.budget.set_used(sessions.len() * SESSION_BYTES);
        result
    }
}

impl SessionRead {
    /// Waits a moment for the cache of `informer` to reach what the session has written. Returns
    /// the moment since which the cache must be proven. Cancel safe.
    pub(in crate::server) async fn proven_since(&self, informer: &Informer) -> Instant {
        let Claim {
            proven_since,
            written,
        } = self.claim;
        let Some(Written { version, at }) = written else {
            return proven_since;
        };
        let reader = informer.reader();
        if reader.applied() >= Some(version) {
            return proven_since;
        }
        let deadline = Instant::now() + answered::CATCH_UP_WAIT;
        if reader.wait_for(version, deadline).await {
            proven_since
        } else {
            // The cache is slow, or of another history. A proof shows which.
            proven_since.max(at)
        }
    }
}

// === impl Key, StoredResource ===

impl Key {
    fn of(user: Option<UserKey>, resource: &StoredResource) -> Self {
        Self {
            user,
            resource: resource.clone(),
        }
    }
}

impl StoredResource {
    /// Returns group and resource.
    fn names(&self) -> (&str, &str) {
        match (self.0.gvr.group.as_str(), self.0.gvr.resource.as_str()) {
            ("events.k8s.io", "events") => ("", "events"),
            names => names,
        }
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
