//! Reads of a collection that follows nothing, by the same code as a cache's.

use std::sync::Arc;

use crate::codec::Representation;
use crate::informer::Proof;
use crate::informer::ProofMethod;
use crate::shutdown::Shutdown;

use super::collection::Collection;
use super::decide::Need;
use super::decide::plan;
use super::deliver::Delivery;
use super::miss::CacheAnswer;
use super::read;
use super::request::RequestInfo;

/// Answers the `get`, `list` or `watch` that `info` and `query` describe from a collection that
/// follows nothing: whatever it has now is the most recent state.
///
/// # Errors
///
/// [`Miss`](super::miss::Miss) where the collection can't answer.
pub async fn read_authoritative(
    collection: &Arc<dyn Collection>,
    representation: Representation,
    info: &RequestInfo,
    query: &str,
    shutdown: &Shutdown,
) -> CacheAnswer {
    let read = plan(collection.spec(), representation, info, query)?;
    let newest = collection.reader().snapshot();
    let proof = newest
        .filter(|_| read.need == Need::MostRecent)
        .map(|snapshot| Proof {
            snapshot,
            method: ProofMethod::Any,
            is_whole: true,
        });
    let delivery = Delivery::plain(representation);
    read::read(&read, collection, proof.as_ref(), &delivery, shutdown).await
}
