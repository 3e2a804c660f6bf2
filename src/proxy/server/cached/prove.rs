//! Proves that a cache is fresh enough for a read of the most recent state.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use kubefan_core::api::Selection;
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

/// Returns the proof that `read` needs: of all writes that were acknowledged by `asked_at`, which is
/// when the read arrived, or the moment that its session needs. A GET of the most recent state gets
/// a proof only if the resource's freshness policy gives one without a call, or serves sessions:
/// otherwise the API server is asked for the object itself. The proof of a custom resource includes
/// its definition. The result of `share` is held while the read waits.
///
/// # Errors
///
/// The error of `share`, which is called if the read has to wait for a proof. A GET is forwarded
/// instead.
pub(super) async fn prove<S>(
    read: &Read,
    asked_at: Instant,
    informer: &Informer,
    (informers, rest_mapper): (&InformerSet, &LiveRestMapper),
    share: impl FnOnce(&ProofRequest) -> Result<S, Limit>,
) -> Result<ProofResult, Limit> {
    let of_object;
    let (proof_request, min_interval) = match &read.plan {
        Plan::Get { name, .. } if read.need == Need::MostRecent => {
            if informer.isolated_selections() == 0 || !informer.serves_sessions() {
                let proof = informer.proof_by_policy(asked_at);
                if proof.is_some() || !informer.serves_sessions() {
                    return Ok(Ok(proof));
                }
            }
            let object = Selection::of_object(read.namespace.as_deref(), name);
            of_object = ProofRequest {
                scope: read.spec.upstream_scope(&object),
                selection: Arc::new(object),
            };
            (&of_object, Duration::ZERO)
        }
        Plan::Get { .. } => return Ok(Ok(None)),
        Plan::List { proof_request, .. } => (proof_request, Duration::ZERO),
        Plan::Watch { proof_request, .. } => (proof_request, WATCH_BATCH_WAIT),
    };
    match read.need {
        Need::MostRecent => {}
        // The cache is wrong in this selection at every version, until a proof finds the selection
        // equal again.
        _ if informer.is_isolated(&proof_request.selection) => {}
        // The version may belong to a change of another resource, which this watch does not report.
        Need::NotOlderThan(needed) if informer.reader().applied() < Some(needed) => {}
        Need::NotOlderThan(_) | Need::At(_) => return Ok(Ok(None)),
    }
    let _share = match share(proof_request) {
        Ok(share) => share,
        // The API server answers a GET for what its proof would cost.
        Err(_) if matches!(read.plan, Plan::Get { .. }) => return Ok(Ok(None)),
        Err(limit) => return Err(limit),
    };
    let prove = || informer.prove(proof_request.clone(), asked_at, min_interval);
    let gvr = &informer.resource().gvr;
    let needs_definition = read.spec.custom && read.need == Need::MostRecent;
    let proof = if !needs_definition || !informer.needs_call(asked_at) {
        prove().await
    } else if informer.is_isolated(&proof_request.selection) {
        // If the isolation ends here, later reads prove the definition, too.
        prove().await.and(Err(ProofError::Isolated))
    } else {
        let definition = rest_mapper.prove_definition(informers, gvr, asked_at, min_interval);
        match join(definition, prove()).await {
            // The list began after the read.
            (_, Ok(proof)) if proof.method == ProofMethod::InformerList => Ok(proof),
            (Err(error), Ok(_)) => Err(error),
            (_, Ok(proof)) if informer.is_in_doubt(&proof) => prove().await,
            (_, proof) => proof,
        }
    };
    if let Err(unproven) = &proof {
        tracing::debug!(%unproven, resource = %gvr, "the cache could not be proven fresh");
    }
    Ok(proof.map(Some))
}
