//! Reads a source of truth, such as the simulator's store, by the code that reads caches.

use std::sync::Arc;

use http::Response;
use kubefan_core::api::{Query, Resource, SelectableFields};
use kubefan_core::body::Body;
use kubefan_core::codec::Representation;
use kubefan_core::informer::{InformerSpec, Proof, ProofMethod};
use kubefan_core::shutdown::Shutdown;

use super::collection::Collection;
use super::miss::Miss;
use super::read;
use crate::server::decide::{Need, plan};
use crate::server::deliver::Delivery;
use crate::server::request::RequestInfo;

/// Answers the `get`, `list` or `watch` that `info` and `query` describe from `collection`, which
/// has the objects of `resource` with these `fields` for selectors. The collection is a source of
/// truth: its current state is always the most recent one and needs no proof.
///
/// # Errors
///
/// A [`Miss`] if the collection can't answer.
pub async fn read_authoritative(
    collection: &Arc<dyn Collection>,
    (resource, fields): (&Arc<Resource>, &Arc<SelectableFields>),
    representation: Representation,
    info: &RequestInfo,
    query: &str,
    shutdown: &Shutdown,
) -> Result<Response<Body>, Miss> {
    let spec = InformerSpec {
        resource: Arc::clone(resource),
        format: collection.encoder().format(),
        fields: Arc::clone(fields),
        custom: false,
        list_kind: None,
        settings: Arc::default(),
    };
    let read = plan(spec, representation, info, &Query::parse(query))?;
    let newest = collection.reader().snapshot();
    let proof = newest
        .filter(|_| read.need == Need::MostRecent)
        .map(|snapshot| Proof {
            snapshot,
            method: ProofMethod::Any,
            as_of: None,
            call: None,
        });
    let delivery = Delivery::plain(representation);
    let answer = read::read(&read, collection, proof.as_ref(), &delivery, shutdown).await?;
    Ok(answer.response)
}
