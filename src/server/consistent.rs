//! Reads of the most recent state: from the cache where it is proven, else from the API server, a
//! few at a time.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use http::HeaderValue;
use http::Response;
use tokio::sync::OwnedSemaphorePermit;

use crate::api::Query;
use crate::api::ResourceVersion;
use crate::api::Selection;
use crate::api::Status;
use crate::api::escape_field_value;
use crate::body;
use crate::body::Body;
use crate::body::GuardedBody;
use crate::informer::Asked;
use crate::informer::Informer;
use crate::informer::Proof;
use crate::informer::ProofMethod;
use crate::informer::Unproven;
use crate::upstream::Scope;

use super::handlers::Answer;
use super::handlers::Miss;
use super::handlers::Need;
use super::handlers::ReadRequest;
use super::rescue;

/// Says how an answer from the cache was proven to be the most recent state.
const PROOF: HeaderName = HeaderName::from_static("x-kubefan-proof");

/// How long who opens a watch lets the next ones come, so that they share a question: after a
/// restart, hundreds of informers begin at once, and each is in no hurry.
const WATCHES_GATHER: Duration = Duration::from_millis(300);

/// The proof that `need` calls for, if any.
pub(super) async fn prove(
    need: Need,
    request: &ReadRequest<'_>,
    selection: &Selection,
    informer: &Informer,
) -> Result<Option<Proof>, Unproven> {
    let applied = informer.reader().stats().applied;
    match need {
        Need::Consistent => {}
        // Its version may be of another resource's change, which the watch does not tell.
        Need::NotOlderThan(needed) if applied < Some(needed) => {}
        Need::NotOlderThan(_) | Need::Past => return Ok(None),
    }
    let query = Query::parse(request.query);
    let text = |name| query.first(name).unwrap_or_default().to_owned();
    // A deprecated path names its object itself; a query that says more names it too.
    let field_selector = match (text("fieldSelector"), request.info.name.as_str()) {
        (said, name) if said.is_empty() && request.info.watch_path && !name.is_empty() => {
            format!("metadata.name={}", escape_field_value(name))
        }
        (said, _) => said,
    };
    let asked = Asked {
        scope: Scope {
            namespace: selection.namespace.clone(),
            label_selector: text("labelSelector"),
            field_selector,
        },
        selection: Arc::new(selection.clone()),
    };
    let patience = match request.info.verb.as_str() {
        "watch" => WATCHES_GATHER,
        _ => Duration::ZERO,
    };
    let proof = informer.prove(asked, patience).await;
    if let Err(unproven) = &proof {
        tracing::debug!(%unproven, resource = %informer.resource().gvr, "a read could not be proven");
    }
    proof.map(Some)
}

/// How a LIST goes on without a proof: to the API server, if not too many do.
pub(super) fn forward_unproven(informer: &Informer) -> Miss {
    Miss::ForwardUnproven(Arc::clone(informer.unproven()))
}

/// How a WATCH goes on without a proof: as the API server's whose own cache is too old, in the
/// stream. Where the API server could not be asked, the client had better wait before it tries
/// again, which it would not do after that.
pub(super) fn watch_unproven(
    unproven: &Unproven,
    request: &ReadRequest<'_>,
    informer: &Informer,
) -> Answer {
    if let Unproven::Upstream(_) | Unproven::NotReady = unproven {
        return Err(Status::too_many_consistent_reads().into());
    }
    let applied = informer.reader().stats().applied.unwrap_or_default();
    let newer = ResourceVersion(applied.0 + 1);
    let status = Status::too_large_resource_version(newer, applied);
    let frame = request.encoder(informer).error(&status);
    let media_type = request.format().watch_media_type();
    Ok(rescue::answer(media_type, body::full(frame)))
}

/// `answer` with how it was proven.
pub(super) fn told(answer: Answer, method: Option<ProofMethod>) -> Answer {
    let method = method.map(|method| match method {
        ProofMethod::Barrier => HeaderValue::from_static("barrier"),
        ProofMethod::VerificationList => HeaderValue::from_static("verification-list"),
        ProofMethod::Recent => HeaderValue::from_static("recent"),
        ProofMethod::Any => HeaderValue::from_static("any"),
    });
    answer.map(|mut response| {
        response
            .headers_mut()
            .extend(method.map(|method| (PROOF, method)));
        response
    })
}

/// `response`, which gives up `permit` at its end.
pub(super) fn holding(response: Response<Body>, permit: OwnedSemaphorePermit) -> Response<Body> {
    response.map(|body| body::boxed(GuardedBody::new(body, permit)))
}
