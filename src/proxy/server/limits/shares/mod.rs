//! Counts what each user holds of limited resources, so that one user does not take all of them.
//! Callers that kubefan does not authenticate are not counted.

mod limits;

use std::sync::Arc;

use arc_swap::ArcSwap;
use kubefan_core::api::{GroupVersionResource, HashedSelection, Selection, WireFormat};
use kubefan_core::body::BodyGuard;
use kubefan_core::informer::ProofRequest;
use kubefan_core::telemetry::Registry;
pub use limits::UserLimits;
use limits::or_unlimited;
use prometheus::IntCounterVec;
use tokio::sync::Semaphore;

use super::counts::{Counted, Counts, Distinct, DistinctShare};
use crate::identity::{Caller, UserKey};
use crate::limit::Limit;
use crate::server::decide::{Plan, Read};
use crate::server::request::RequestInfo;

/// The shares of all users. A clone refers to the original's shares.
#[derive(Clone)]
pub(in crate::server) struct Shares {
    limits: Arc<ArcSwap<UserLimits>>,
    /// The units of a cache's limit for selections without an index that one user may take.
    max_units: usize,
    /// The requests in progress, and how many of them are long-running.
    streams: Counts<UserKey>,
    watches: Counts<UserKey>,
    /// Permits of semaphores. The number in the key is the address of the semaphore.
    permits: Counts<(UserKey, usize)>,
    /// Watched selections that no index finds, of all caches of a resource.
    selections: Distinct<(UserKey, GroupVersionResource, WireFormat), HashedSelection>,
    /// Scopes for which reads wait for a proof.
    proof_scopes: Distinct<UserKey, ProofScope>,
    refused: IntCounterVec,
}

/// What a proof is for: the cache, and the objects.
type ProofScope = (GroupVersionResource, WireFormat, ProofRequest);

/// A user's request in progress, also as a watch if it is long-running. It counts until all clones
/// are dropped.
pub(in crate::server) type RequestShare = (Arc<Counted<UserKey>>, Option<Arc<Counted<UserKey>>>);

/// A user's share of the permits of a semaphore.
pub(in crate::server) type PermitShare = Counted<(UserKey, usize)>;

/// A watch of a selection that no index finds.
pub(in crate::server) type SelectionShare =
    DistinctShare<(UserKey, GroupVersionResource, WireFormat), HashedSelection>;

/// A read that waits for a proof.
pub(in crate::server) type ProofShare = DistinctShare<UserKey, ProofScope>;

/// The limits of one user.
const OF_USERS: [Limit; 5] = [
    Limit::Streams,
    Limit::Watches,
    Limit::ProofScopes,
    Limit::UnindexedSelectors,
    Limit::Questions,
];

// === impl Shares ===

impl Shares {
    /// Creates the shares. A user may have as much as `limits` permit, and watch half of
    /// `max_unindexed`, the selections without an index that a cache can have.
    pub(in crate::server) fn new(
        limits: UserLimits,
        max_unindexed: usize,
        refused: IntCounterVec,
    ) -> Self {
        Self {
            limits: Arc::new(ArcSwap::from_pointee(limits)),
            max_units: max_unindexed.div_ceil(2),
            streams: Counts::default(),
            watches: Counts::default(),
            permits: Counts::default(),
            selections: Distinct::default(),
            proof_scopes: Distinct::default(),
            refused,
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
    /// The limit, which is also counted, if the user has too many requests or watches in progress.
    pub(in crate::server) fn request(
        &self,
        caller: &Caller,
        info: &RequestInfo,
    ) -> Result<Option<RequestShare>, Limit> {
        let Some(user) = caller.name_key() else {
            return Ok(None);
        };
        let limits = self.limits.load();
        let add = |counts: &Counts<UserKey>, max, limit| {
            let counted = counts.add(user, |held, _| held < or_unlimited(max));
            counted.map(Arc::new).ok_or_else(|| self.refuse(limit))
        };
        let stream = add(&self.streams, limits.streams, Limit::Streams)?;
        let watch = if info.is_long_running() {
            Some(add(&self.watches, limits.watches, Limit::Watches)?)
        } else {
            None
        };
        Ok(Some((stream, watch)))
    }

    /// Does the check of [`Shares::request`], and counts nothing.
    ///
    /// # Errors
    /// The limit, if the user has too many requests or watches in progress.
    pub(in crate::server) fn check_request(
        &self,
        caller: &Caller,
        info: &RequestInfo,
    ) -> Result<(), Limit> {
        let Some(user) = caller.name_key() else {
            return Ok(());
        };
        let limits = self.limits.load();
        let is_full = |counts: &Counts<UserKey>, max| counts.of(&user).0 >= or_unlimited(max);
        if is_full(&self.streams, limits.streams) {
            return Err(Limit::Streams);
        }
        if info.is_long_running() && is_full(&self.watches, limits.watches) {
            return Err(Limit::Watches);
        }
        Ok(())
    }

    /// Counts a permit of `limit` for the user of `caller` and returns its share, or `None` if
    /// kubefan has not determined the user. A user may have as many permits as are left, and one in
    /// any case.
    ///
    /// # Errors
    /// [`Limit::UnprovenReads`] if the user has too many.
    pub(in crate::server) fn permit(
        &self,
        caller: &Caller,
        limit: &Arc<Semaphore>,
    ) -> Result<Option<PermitShare>, Limit> {
        let Some(user) = caller.name_key() else {
            return Ok(None);
        };
        // Others may take permits after this. Then the semaphore has none left for this user.
        let left = limit.available_permits();
        let key = (user, Arc::as_ptr(limit) as usize);
        let counted = self.permits.add(key, |held, _| held == 0 || held < left);
        counted.map(Some).ok_or(Limit::UnprovenReads)
    }

    /// Counts the watch of `read` for the user of `caller` and returns its share, or `None` if it
    /// needs none. The watch takes `units` of the cache's limit for selections without an index.
    ///
    /// # Errors
    /// The limit, which is also counted, if the user watches too many selections without an index.
    pub(in crate::server) fn selection(
        &self,
        caller: &Caller,
        read: &Read,
        units: usize,
    ) -> Result<Option<SelectionShare>, Limit> {
        let (Caller::Known(caller), Plan::Watch { selection, .. }) = (caller, &read.plan) else {
            return Ok(None);
        };
        if units == 0 {
            return Ok(None);
        }
        let (gvr, format) = (read.spec.resource.gvr.clone(), read.spec.format);
        let of_user = (caller.name_key(), gvr, format);
        let share = self.watch(of_user, Arc::clone(selection), units);
        share
            .map(Some)
            .ok_or_else(|| self.refuse(Limit::UnindexedSelectors))
    }

    fn watch(
        &self,
        of_user: (UserKey, GroupVersionResource, WireFormat),
        selection: Arc<Selection>,
        units: usize,
    ) -> Option<SelectionShare> {
        let selection = HashedSelection::new(selection);
        self.selections
            .add(of_user, (selection, units), self.max_units)
    }

    /// Counts `read` for the user of `caller` while it waits for the proof of `request`, and
    /// returns its share. Returns `None` if kubefan has not authenticated the caller.
    ///
    /// # Errors
    /// The limit, which is also counted, if reads of the user wait for proofs of too many different
    /// scopes.
    pub(in crate::server) fn proof(
        &self,
        caller: &Caller,
        read: &Read,
        request: &ProofRequest,
    ) -> Result<Option<ProofShare>, Limit> {
        let Caller::Known(caller) = caller else {
            return Ok(None);
        };
        let gvr = read.spec.resource.gvr.clone();
        let scope = (gvr, read.spec.format, request.clone());
        let share = self.prove(caller.name_key(), scope);
        share
            .map(Some)
            .ok_or_else(|| self.refuse(Limit::ProofScopes))
    }

    fn prove(&self, user: UserKey, scope: ProofScope) -> Option<ProofShare> {
        let limit = or_unlimited(self.limits.load().proof_scopes);
        self.proof_scopes.add(user, (scope, 1), limit)
    }

    /// Counts that `limit`, which is one of users, has refused a request, and returns it.
    pub(in crate::server) fn refuse(&self, limit: Limit) -> Limit {
        self.refused.with_label_values(&[limit.name()]).inc();
        limit
    }
}

/// A share is held until the body of the answer is dropped.
impl BodyGuard for PermitShare {}

/// Registers the counter of what is refused because of the limits of one user.
pub(in crate::server) fn refusal_counter(registry: &Registry) -> IntCounterVec {
    let refused = registry.counter_vec(
        "kubefan_user_limit_rejected_total",
        "Requests that got 429 because their user has too many, by limit (streams, watches, \
         proof_scopes, unindexed_selectors, questions).",
        &["limit"],
    );
    for limit in OF_USERS {
        refused.with_label_values(&[limit.name()]);
    }
    refused
}

#[cfg(test)]
mod tests;
