//! GET of one object.

use crate::api::GetOptions;
use crate::api::ObjectKey;
use crate::api::ResourceVersion;
use crate::api::Status;
use crate::informer::Proof;
use crate::server::collection::Collection;
use crate::server::router;
use crate::server::router::Reason;

use super::Answer;
use super::Miss;
use super::ReadRequest;

/// How new the state must be.
///
/// # Errors
///
/// [`Miss`] for a fault in the parameters, and where no cache can tell.
pub(crate) fn needed(request: &ReadRequest<'_>) -> Result<ResourceVersion, Miss> {
    let options = GetOptions::parse(request.query)?;
    Ok(request.authority.plan_get(options.consistency)?)
}

/// Answers from the newest snapshot of `collection`, or from that of `proof`.
///
/// # Errors
///
/// [`Miss`] where the snapshot can't answer.
pub(crate) fn get(
    request: &ReadRequest<'_>,
    collection: &dyn Collection,
    needed: ResourceVersion,
    proof: Option<&Proof>,
) -> Answer {
    let newest = || collection.reader().snapshot();
    let proven = proof.map(|proof| proof.snapshot.clone());
    let snapshot = proven.or_else(newest).ok_or(Reason::NotCached)?;
    router::not_older_than(needed, snapshot.resource_version())?;
    let name = request.info.name.as_str();
    let namespace = request.namespace()?;
    // The API server has words of its own for names and scopes that no object can have.
    let is_possible = !name.contains(['%', '/']) && !matches!(name, "." | "..");
    if !is_possible || request.resource().namespaced != namespace.is_some() {
        return Err(Miss::Forward(Reason::NotCacheable));
    }
    match snapshot.get(&ObjectKey::new(namespace, name)) {
        None => Err(Status::not_found(&request.resource().gvr, name).into()),
        Some(object) => {
            let parts = request.encoder(collection).object_body(&object);
            let length = parts.iter().map(|part| part.len() as u64).sum();
            let chunks = request.chunks(parts.into_iter(), length);
            Ok(request.answer(chunks))
        }
    }
}
