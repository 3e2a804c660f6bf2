//! Answers GET, LIST and WATCH from a collection, which is a cache or the simulator's store.
//!
//! Each read follows the plan that `decide` made. GET and LIST need one snapshot; WATCH opens a
//! stream.

mod get;
mod list;
mod watch;

use std::sync::Arc;

use kubefan_core::api::{HashedSelection, ResourceVersion, Selection};
use kubefan_core::cache::{Reader, Snapshot};
use kubefan_core::codec::{Encoder, TableView};
use kubefan_core::informer::{Informer, Proof, ProofError};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::Scope;

use super::collection::Collection;
use super::miss::{CacheAnswer, Miss};
use crate::ledger::SnapshotAge;
use crate::server::decide::{Need, Page, Plan, Read, Reason};
use crate::server::deliver::{Delivery, ListKey};

/// Longest text, in bytes, of a selection that a pinned snapshot of a list stores. The next pages
/// of a list with a longer selection are forwarded.
const MAX_PINNED_SELECTION: usize = 512;

/// Answers `read` from `collection`. A read of the most recent state is answered only from the
/// snapshot of `proof`.
///
/// # Errors
///
/// A [`Miss`] if the collection can't answer.
pub(super) async fn read(
    read: &Read,
    collection: &Arc<dyn Collection>,
    proof: Option<&Proof>,
    delivery: &Delivery<'_>,
    shutdown: &Shutdown,
) -> CacheAnswer {
    match &read.plan {
        Plan::Get { name, is_in_scope } => {
            let snapshot = snapshot_for(read, proof, collection.reader())?;
            let object = (name.as_str(), *is_in_scope);
            get::get(read, object, collection.as_ref(), &snapshot, delivery)
        }
        Plan::List {
            selection,
            proof_request,
            page,
        } => {
            let snapshot = snapshot_for(read, proof, collection.reader())?;
            // The next pages must show exactly this state, so the snapshot is pinned at its
            // version. If only a part of the objects is proven, the pin also stores the selection.
            let can_page = snapshot.is_whole() || has_short_selectors(&proof_request.scope);
            let collection = collection.as_ref();
            let list = list::list(
                read, selection, page, collection, &snapshot, can_page, delivery,
            );
            // Boxed, so that the futures of GETs are short.
            Box::pin(list).await
        }
        Plan::Watch {
            selection,
            proof_request,
            from,
            terms,
        } => {
            let objects = (selection, &proof_request.scope);
            let wanted = (objects, *from, *terms);
            watch::watch(read, wanted, collection, proof, delivery, shutdown)
        }
    }
}

/// Returns the answer to `read` if the cache of `informer` could not be proven fresh.
///
/// # Errors
///
/// A [`Miss`]. Only some WATCHes get an answer: the error, in their stream.
pub(super) fn without_proof(
    unproven: &ProofError,
    read: &Read,
    informer: &Informer,
    delivery: &Delivery<'_>,
) -> CacheAnswer {
    let too_costly = match read.need {
        Need::MostRecent => Reason::Consistent,
        Need::NotOlderThan(_) | Need::At(_) => Reason::AheadOfCache,
    };
    let lasting = match (unproven, &read.plan) {
        (ProofError::TooCostly, Plan::Watch { .. }) => Some(too_costly),
        (ProofError::TooCostly, _) => return Err(too_costly.into()),
        (_, Plan::Get { .. }) => return Err(Reason::Unproven.into()),
        (unproven, _) => lasting_reason(unproven),
    };
    if let Some(reason) = lasting {
        return Err(Miss::lasting(reason, &read.plan, informer));
    }
    match read.plan {
        Plan::Watch { terms, .. } => {
            watch::without_proof(unproven, read, terms, informer, delivery)
        }
        Plan::Get { .. } | Plan::List { .. } => Err(Miss::without_proof(informer)),
    }
}

/// Returns why reads are forwarded if `unproven` will last, so that a later proof is unlikely, too.
fn lasting_reason(unproven: &ProofError) -> Option<Reason> {
    match unproven {
        ProofError::Isolated => Some(Reason::CacheDiffers),
        ProofError::UpstreamUnproven => Some(Reason::Unproven),
        _ => None,
    }
}

/// Returns true if a pin may store the selection; `scope` is the selection in the API server's
/// syntax.
fn has_short_selectors(scope: &Scope) -> bool {
    let namespace = scope.namespace.as_deref().unwrap_or_default();
    let texts = [namespace, &scope.label_selector, &scope.field_selector];
    texts.map(str::len).iter().sum::<usize>() <= MAX_PINNED_SELECTION
}

/// Checks that all rows were printed that `encoder` has encoded for `collection`, if it encodes
/// Tables. If one was not, all later Tables of the collection are forwarded.
fn check_printed(collection: &dyn Collection, encoder: &Encoder) -> Result<(), Reason> {
    match encoder.table_view().and_then(TableView::failure) {
        None => Ok(()),
        Some(error) => {
            tracing::warn!(%error, "cannot print a row of a Table");
            collection.cannot_print();
            Err(Reason::Table)
        }
    }
}

/// Returns the age of `snapshot`. From the age, the ledger finds out what the snapshot costs.
fn snapshot_age(reader: &Reader, snapshot: &Snapshot) -> SnapshotAge {
    SnapshotAge::new(
        Arc::clone(reader.replaced_bytes()),
        snapshot.replaced_bytes(),
    )
}

/// Returns the key that is equal for all answers with the same page of selected objects in a
/// snapshot.
fn list_key(
    read: &Read,
    collection: &dyn Collection,
    (snapshot, selection, page): (&Snapshot, &Arc<Selection>, &Page),
    is_gzip: bool,
) -> ListKey {
    ListKey {
        encoder: collection.encoder(),
        epoch: snapshot.epoch(),
        resource_version: snapshot.resource_version(),
        objects: snapshot.len(),
        representation: read.representation,
        selection: HashedSelection::new(Arc::clone(selection)),
        page: page.clone(),
        printed: collection.printed(),
        is_gzip,
    }
}

/// Returns the snapshot that meets the need of `read`. For the most recent state this is only the
/// snapshot of `proof`.
pub(super) fn snapshot_for(
    read: &Read,
    proof: Option<&Proof>,
    reader: &Reader,
) -> Result<Snapshot, Reason> {
    let proven = proof.map(|proof| proof.snapshot.clone());
    let need = read.need;
    match need {
        Need::MostRecent => proven.ok_or(Reason::Consistent),
        Need::At(version) => {
            // This is read before the snapshot, because the cache may reach the version in between.
            let is_ahead = reader.applied() < Some(version);
            let selection = read.selection().cloned().unwrap_or_default();
            let snapshot = reader.snapshot_at(version, &selection);
            // No API server answers for a shard, so this error must show its client that it can try
            // again.
            snapshot.ok_or(if is_ahead && read.is_of_shard() {
                Reason::AheadOfCache
            } else {
                Reason::PastState
            })
        }
        Need::NotOlderThan(_) => {
            let snapshot = proven.or_else(|| reader.snapshot());
            let snapshot = snapshot.ok_or(Reason::NotCached)?;
            check_not_older_than(need, snapshot.resource_version())?;
            Ok(snapshot)
        }
    }
}

/// Checks that a state at `version` is as new as `need` requires.
pub(super) fn check_not_older_than(need: Need, version: ResourceVersion) -> Result<(), Reason> {
    match need {
        Need::NotOlderThan(needed) if needed > version => Err(Reason::AheadOfCache),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests;
