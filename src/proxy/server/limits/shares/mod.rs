//! Counts what each user holds of limited resources, so that one user does not take all of them.
//! Callers that kubefan does not authenticate are not counted.

mod counts;
mod limits;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use arc_swap::ArcSwap;
pub(in crate::server) use counts::TooMany;
use counts::{Counted, Counts, Distinct, DistinctShare};
use http::Response;
use kubefan_core::api::{GroupVersionResource, HashedSelection, Selection, Status, WireFormat};
use kubefan_core::body::{Body, BodyGuard};
use kubefan_core::informer::ProofRequest;
use kubefan_core::telemetry::Registry;
pub use limits::UserLimits;
use limits::or_unlimited;
use parking_lot::Mutex;
use prometheus::IntCounterVec;
use tokio::sync::Semaphore;

use super::in_flight::is_long_running;
use crate::identity::{Caller, UserKey};
use crate::server::decide::{Plan, Read};
use crate::server::request::RequestInfo;

/// The shares of all users. A clone refers to the original's shares.
#[derive(Clone)]
pub(in crate::server) struct Shares {
    limits: Arc<ArcSwap<UserLimits>>,
    /// The units of a cache's limit for selections without an index that one user may take.
    max_units: usize,
    requests: Requests,
    /// Permits of semaphores. The number in the key is the address of the semaphore.
    permits: Counts<(UserKey, usize)>,
    /// Watched selections that no index finds, of all caches of a resource.
    selections: Distinct<(UserKey, GroupVersionResource, WireFormat), HashedSelection>,
    /// Scopes for which reads wait for a proof.
    proof_scopes: Distinct<UserKey, ProofScope>,
    metrics: ShareMetrics,
}

/// The requests in progress of each user. Users without requests have no entry.
type Requests = Arc<Mutex<HashMap<UserKey, InProgress>>>;

/// The requests of a user that are in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct InProgress {
    streams: usize,
    watches: usize,
}

/// What a proof is for: the cache, and the objects.
type ProofScope = (GroupVersionResource, WireFormat, ProofRequest);

/// A user's request in progress. It counts until all clones are dropped.
#[derive(Clone)]
pub(in crate::server) struct RequestShare {
    _request: Arc<CountedRequest>,
}

struct CountedRequest {
    requests: Requests,
    user: UserKey,
    is_watch: bool,
}

/// A user's share of the permits of a semaphore.
pub(in crate::server) struct PermitShare {
    _counted: Counted<(UserKey, usize)>,
}

/// A watch of a selection that no index finds.
pub(in crate::server) type SelectionShare =
    DistinctShare<(UserKey, GroupVersionResource, WireFormat), HashedSelection>;

/// The units of the cache's limit that the selection of an answered watch takes, as an extension of
/// the answer.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct LimitedUnits(pub(in crate::server) usize);

/// A read that waits for a proof.
pub(in crate::server) type ProofShare = DistinctShare<UserKey, ProofScope>;

/// Counts what was refused because of the limits of one user.
#[derive(Clone)]
pub(in crate::server) struct ShareMetrics {
    refused: IntCounterVec,
}

/// A limit of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Streams,
    Watches,
    ProofScopes,
    UnindexedSelectors,
}

// === impl Shares ===

impl Shares {
    /// Creates the shares. A user may have as much as `limits` permit, and watch half of
    /// `max_unindexed`, the selections without an index that a cache can have.
    pub(in crate::server) fn new(
        limits: UserLimits,
        max_unindexed: usize,
        metrics: ShareMetrics,
    ) -> Self {
        Self {
            limits: Arc::new(ArcSwap::from_pointee(limits)),
            max_units: max_unindexed.div_ceil(2),
            requests: Arc::default(),
            permits: Counts::default(),
            selections: Distinct::default(),
            proof_scopes: Distinct::default(),
            metrics,
        }
    }

    /// Changes the limits. Users lose nothing that they already hold.
    pub(in crate::server) fn set_limits(&self, limits: UserLimits) {
        self.limits.store(Arc::new(limits));
    }

    /// Counts the request of `info` for the user of `caller` and returns its share, or `None` if
    /// kubefan has not determined the user.
    ///
    /// # Errors
    /// [`TooMany`], which is also counted, if the user has too many requests or watches in
    /// progress.
    pub(in crate::server) fn request(
        &self,
        caller: &Caller,
        info: &RequestInfo,
    ) -> Result<Option<RequestShare>, TooMany> {
        let Some(user) = caller.name_key() else {
            return Ok(None);
        };
        let is_watch = is_long_running(info);
        let added = {
            let mut requests = self.requests.lock();
            add_request(requests.entry(user), is_watch, **self.limits.load())
        };
        added.map_err(|limit| self.refuse(limit))?;
        let request = CountedRequest {
            requests: Arc::clone(&self.requests),
            user,
            is_watch,
        };
        Ok(Some(RequestShare {
            _request: Arc::new(request),
        }))
    }

    /// Counts a permit of `limit` for the user of `caller` and returns its share, or `None` if
    /// kubefan has not determined the user. A user may have as many permits as are left, and one in
    /// any case.
    pub(in crate::server) fn permit(
        &self,
        caller: &Caller,
        limit: &Arc<Semaphore>,
    ) -> Result<Option<PermitShare>, TooMany> {
        let Some(user) = caller.name_key() else {
            return Ok(None);
        };
        // Others may take permits after this. Then the semaphore has none left for this user.
        let left = limit.available_permits();
        let key = (user, Arc::as_ptr(limit) as usize);
        let counted = self.permits.add(key, |held| held == 0 || held < left);
        counted.map(|_counted| Some(PermitShare { _counted }))
    }

    /// Counts the watch of `read` for the user of `caller` and returns its share, or `None` if it
    /// needs none. A cache has answered the watch with `answer`.
    ///
    /// # Errors
    /// A 429 if the user watches too many selections without an index.
    pub(in crate::server) fn selection(
        &self,
        caller: &Caller,
        read: &Read,
        answer: &Response<Body>,
    ) -> Result<Option<SelectionShare>, Status> {
        let (Caller::Known(caller), Plan::Watch { selection, .. }) = (caller, &read.plan) else {
            return Ok(None);
        };
        let units = match answer.extensions().get() {
            Some(LimitedUnits(units)) if *units > 0 => *units,
            _ => return Ok(None),
        };
        let (gvr, format) = (read.spec.resource.gvr.clone(), read.spec.format);
        let of_user = (caller.name_key(), gvr, format);
        let share = self.watch(of_user, Arc::clone(selection), units);
        share.map(Some).map_err(|TooMany| {
            self.refuse(Limit::UnindexedSelectors);
            Status::too_many_watched_selectors()
        })
    }

    fn watch(
        &self,
        of_user: (UserKey, GroupVersionResource, WireFormat),
        selection: Arc<Selection>,
        units: usize,
    ) -> Result<SelectionShare, TooMany> {
        let selection = HashedSelection::new(selection);
        self.selections
            .add(of_user, (selection, units), self.max_units)
    }

    /// Counts `read` for the user of `caller` while it waits for the proof of `request`, and
    /// returns its share. Returns `None` if kubefan has not authenticated the caller.
    ///
    /// # Errors
    /// A 429 if reads of the user wait for proofs of too many different scopes.
    pub(in crate::server) fn proof(
        &self,
        caller: &Caller,
        read: &Read,
        request: &ProofRequest,
    ) -> Result<Option<ProofShare>, Status> {
        let Caller::Known(caller) = caller else {
            return Ok(None);
        };
        let gvr = read.spec.resource.gvr.clone();
        let scope = (gvr, read.spec.format, request.clone());
        let share = self.prove(caller.name_key(), scope);
        share.map(Some).map_err(|TooMany| {
            self.refuse(Limit::ProofScopes);
            Status::too_many_consistent_reads()
        })
    }

    fn prove(&self, user: UserKey, scope: ProofScope) -> Result<ProofShare, TooMany> {
        let limit = or_unlimited(self.limits.load().proof_scopes);
        self.proof_scopes.add(user, (scope, 1), limit)
    }

    fn refuse(&self, limit: Limit) -> TooMany {
        let refused = &self.metrics.refused;
        refused.with_label_values(&[limit.name()]).inc();
        TooMany
    }
}

/// Adds a request to the requests `of_user`.
///
/// # Errors
/// The limit that the request would exceed.
fn add_request(
    of_user: Entry<'_, UserKey, InProgress>,
    is_watch: bool,
    limits: UserLimits,
) -> Result<(), Limit> {
    let held = match &of_user {
        Entry::Occupied(held) => *held.get(),
        Entry::Vacant(_) => InProgress::default(),
    };
    if held.streams >= or_unlimited(limits.streams) {
        return Err(Limit::Streams);
    }
    if is_watch && held.watches >= or_unlimited(limits.watches) {
        return Err(Limit::Watches);
    }
    let held = of_user.or_default();
    held.streams += 1;
    held.watches += usize::from(is_watch);
    Ok(())
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        let mut requests = self.requests.lock();
        let Some(held) = requests.get_mut(&self.user) else {
            return;
        };
        held.streams -= 1;
        held.watches -= usize::from(self.is_watch);
        if held.streams == 0 {
            requests.remove(&self.user);
        }
    }
}

/// A share is held until the body of the answer is dropped.
impl BodyGuard for PermitShare {}

// === impl ShareMetrics ===

impl ShareMetrics {
    pub(in crate::server) fn new(registry: &Registry) -> Self {
        let refused = registry.counter_vec(
            "kubefan_user_limit_rejected_total",
            "Requests that got 429 because their user has too many, by limit (streams, watches, \
             proof_scopes, unindexed_selectors).",
            &["limit"],
        );
        for limit in Limit::ALL {
            refused.with_label_values(&[limit.name()]);
        }
        Self { refused }
    }
}

// === impl Limit ===

impl Limit {
    const ALL: [Self; 4] = [
        Self::Streams,
        Self::Watches,
        Self::ProofScopes,
        Self::UnindexedSelectors,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Watches => "watches",
            Self::ProofScopes => "proof_scopes",
            Self::UnindexedSelectors => "unindexed_selectors",
        }
    }
}

#[cfg(test)]
mod tests;
