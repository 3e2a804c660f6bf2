//! Fresh enough, or not: reads of the most recent state are answered from a cache that is proven to
//! have it.

use std::time::Duration;

use crate::informer::Informer;
use crate::informer::Proof;
use crate::informer::ProofError;

use super::decide::Need;
use super::decide::Plan;
use super::decide::Read;

/// How long who opens a watch lets the next ones come, so that they share a question: after a
/// restart, hundreds of informers begin at once, and each is in no hurry.
const WATCH_BATCH_WAIT: Duration = Duration::from_millis(300);

/// The proof that `read` calls for, if any. Of one object there is none but by the resource's
/// freshness policy: the API server is asked for the object itself.
///
/// # Errors
///
/// When the cache could not be proven to be fresh enough.
pub(super) async fn prove(read: &Read, informer: &Informer) -> Result<Option<Proof>, ProofError> {
    let (proof_request, min_interval) = match &read.plan {
        Plan::Get { .. } if read.need == Need::MostRecent => return Ok(informer.proof_by_policy()),
        Plan::Get { .. } => return Ok(None),
        Plan::List { proof_request, .. } => (proof_request, Duration::ZERO),
        Plan::Watch { proof_request, .. } => (proof_request, WATCH_BATCH_WAIT),
    };
    match read.need {
        Need::MostRecent => {}
        // Its version may be of another resource's change, which the watch does not tell.
        Need::NotOlderThan(needed) if informer.reader().stats().applied < Some(needed) => {}
        Need::NotOlderThan(_) | Need::At(_) => return Ok(None),
    }
    let proof = informer.prove(proof_request.clone(), min_interval).await;
    if let Err(unproven) = &proof {
        tracing::debug!(%unproven, resource = %informer.resource().gvr, "a read could not be proven");
    }
    proof.map(Some)
}
