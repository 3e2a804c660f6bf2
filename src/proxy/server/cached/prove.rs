//! Proves that a cache is fresh enough for a read of the most recent state.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use kubefan_core::api::{ObjectKey, Selection};
use kubefan_core::informer::{
    Informer, InformerSet, LiveRestMapper, Proof, ProofError, ProofMethod, ProofRequest,
};
use tokio::time::Instant;

use crate::limit::Limit;
use crate::server::decide::{Need, Plan, Read};

/// How long the proof for a watch may wait after the previous proof began, if several callers wait.
/// Watches then share calls to the API server: after a restart, hundreds of informers open watches,
/// and this short wait does not matter to them.
const WATCH_BATCH_WAIT: Duration = Duration::from_millis(300);

/// The proof that a read needs, or `None` if the read needs no proof or can't get one. The error
/// says why the cache could not be proven fresh enough.
pub(super) type ProofResult = Result<Option<Proof>, ProofError>;

/// How a read gets the proof that it needs.
pub(super) enum Way<'a> {
    /// It needs no further call to the API server: it needs no proof, or has this one, or is a GET
    /// that the API server itself is asked for.
    WithoutCall(Option<Proof>),
    /// It is a GET of a crowd, which shares proofs.
    InCrowd,
    /// It is a lone list, which gets at most a barrier.
    Soon,
    /// A proof of these objects is requested. It may wait for this time after the previous one began.
    Prove(Cow<'a, ProofRequest>, Duration),
}

/// Returns how `read` gets the proof that it needs: of all writes that were acknowledged by
/// `asked_at`, which is when the read arrived, or the moment that its session needs. A GET of the
/// most recent state gets a proof if the resource's freshness policy gives one without a call, or
/// serves sessions, or unless the GET `is_lone`: otherwise the API server is asked for the object
/// itself. A lone list that it answers for less than a verification list gets at most a barrier.
pub(super) fn way<'a>(
    read: &'a Read,
    (asked_at, is_lone): (Instant, bool),
    informer: &Informer,
) -> Way<'a> {
    let (request, min_interval) = match &read.plan {
        Plan::Get { name, .. } if read.need == Need::MostRecent => {
            let serves_sessions = informer.serves_sessions();
            if (informer.isolated_selections() == 0 || !serves_sessions)
                && let Some(proof) = informer.proof_by_policy(asked_at)
            {
                return Way::WithoutCall(Some(proof));
            }
            if !serves_sessions {
                return if is_lone {
                    Way::WithoutCall(None)
                } else {
                    Way::InCrowd
                };
            }
            let object = Selection::of_object(read.namespace.as_deref(), name);
            let of_object = ProofRequest {
                scope: read.spec.upstream_scope(&object),
                selection: Arc::new(object),
            };
            (Cow::Owned(of_object), Duration::ZERO)
        }
        Plan::Get { .. } => return Way::WithoutCall(None),
        Plan::List { proof_request, .. }
            if is_lone
                && informer.needs_call(asked_at)
                && !informer.is_isolated(&proof_request.selection) =>
        {
            return Way::Soon;
        }
        Plan::List { proof_request, .. } => (Cow::Borrowed(proof_request), Duration::ZERO),
        Plan::Watch { proof_request, .. } => (Cow::Borrowed(proof_request), WATCH_BATCH_WAIT),
    };
    match read.need {
        Need::MostRecent => {}
        // The cache is wrong in this selection at every version, until a proof finds the selection
        // equal again.
        _ if informer.is_isolated(&request.selection) => {}
        // The version may belong to a change of another resource, which this watch does not report.
        Need::NotOlderThan(needed) if informer.reader().applied() < Some(needed) => {}
        Need::NotOlderThan(_) | Need::At(_) => return Way::WithoutCall(None),
    }
    Way::Prove(request, min_interval)
}

/// Returns the proof that `read` needs, in the [`Way`] that [`way`] chooses. The proof of a custom
/// resource includes its definition. The result of `share` is held while the read waits.
///
/// # Errors
///
/// The error of `share`, which is called if the read has to wait for a proof. A GET is forwarded
/// instead.
pub(super) async fn prove<S>(
    read: &Read,
    (asked_at, is_lone): (Instant, bool),
    informer: &Informer,
    definitions: (&InformerSet, &LiveRestMapper),
    share: impl FnOnce(&ProofRequest) -> Result<S, Limit>,
) -> Result<ProofResult, Limit> {
    let (proof_request, min_interval) = match way(read, (asked_at, is_lone), informer) {
        Way::WithoutCall(proof) => return Ok(Ok(proof)),
        Way::InCrowd => return Ok(Ok(prove_in_crowd(read, informer, share).await)),
        Way::Soon => {
            let proof = match share(&ProofRequest::default()) {
                Ok(_share) => informer.prove_soon().await,
                // The limit is for proofs; the API server answers this list for less.
                Err(_) => None,
            };
            return Ok(proof.map(Some).ok_or(ProofError::TooCostly));
        }
        Way::Prove(request, min_interval) => (request, min_interval),
    };
    let _share = match share(&proof_request) {
        Ok(share) => share,
        // The API server answers a GET for what its proof would cost.
        Err(_) if matches!(read.plan, Plan::Get { .. }) => return Ok(Ok(None)),
        Err(limit) => return Err(limit),
    };
    let request = (proof_request.as_ref(), asked_at, min_interval);
    // Boxed, so that reads without a call have a short future.
    let proof = Box::pin(prove_by_call(read, request, informer, definitions)).await;
    if let Err(unproven) = &proof {
        let resource = &informer.resource().gvr;
        tracing::debug!(%unproven, %resource, "the cache could not be proven fresh");
    }
    Ok(proof.map(Some))
}

/// Returns a proof for a GET of the most recent state in a crowd, or `None` if the GET must be
/// forwarded. The GETs of a crowd share the proof of all objects of the cache.
async fn prove_in_crowd<S>(
    read: &Read,
    informer: &Informer,
    share: impl FnOnce(&ProofRequest) -> Result<S, Limit>,
) -> Option<Proof> {
    if !is_provable_in_crowd(read, informer) {
        return None;
    }
    let _share = share(&ProofRequest::default()).ok()?;
    informer.prove_soon().await
}

/// Returns true if a proof of all objects of the cache could answer the GET `read`.
pub(super) fn is_provable_in_crowd(read: &Read, informer: &Informer) -> bool {
    let Plan::Get { name, is_in_scope } = &read.plan else {
        return false;
    };
    let has_object = || {
        let object = ObjectKey::new(read.namespace.as_deref(), name);
        let snapshot = informer.reader().snapshot();
        snapshot.is_some_and(|snapshot| snapshot.get(&object).is_some())
    };
    // The proof of a definition often takes longer than the GET: definitions change rarely, so the
    // API server's own cache of them waits for etcd's next progress notification.
    !read.spec.custom && (*is_in_scope || has_object())
}

/// Returns the proof of `request`, and if `read` needs it, of its definition, by calls to the API
/// server.
async fn prove_by_call(
    read: &Read,
    (request, asked_at, min_interval): (&ProofRequest, Instant, Duration),
    informer: &Informer,
    (informers, rest_mapper): (&InformerSet, &LiveRestMapper),
) -> Result<Proof, ProofError> {
    let prove = || informer.prove(request.clone(), asked_at, min_interval);
    let needs_definition = read.spec.custom && read.need == Need::MostRecent;
    if !needs_definition || !informer.needs_call(asked_at) {
        return prove().await;
    }
    if informer.is_isolated(&request.selection) {
        // If the isolation ends here, later reads prove the definition, too.
        return prove().await.and(Err(ProofError::Isolated));
    }
    let gvr = &informer.resource().gvr;
    let definition = rest_mapper.prove_definition(informers, gvr, asked_at, min_interval);
    match join(definition, prove()).await {
        // The list began after the read.
        (_, Ok(proof)) if proof.method == ProofMethod::InformerList => Ok(proof),
        (Err(error), Ok(_)) => Err(error),
        (_, Ok(proof)) if informer.is_in_doubt(&proof) => prove().await,
        (_, proof) => proof,
    }
}
