//! WATCH of a collection.

use std::sync::Arc;

use kubefan_core::api::{ResourceVersion, Selection, Status};
use kubefan_core::body::guarded;
use kubefan_core::cache::{InitialObjects, WatchError, WatchFrom};
use kubefan_core::concurrency::Revocable;
use kubefan_core::informer::{Informer, Proof, ProofError};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::Scope;

use crate::limit::Limit;
use crate::server::answers::answer::Answer;
use crate::server::cached::collection::Collection;
use crate::server::cached::miss::{CacheAnswer, Miss};
use crate::server::decide::{Need, Page, Read, Reason, WatchTerms};
use crate::server::deliver::{Delivery, ListKey, WatchBody, WatchSource};

/// Answers with a watch stream from the cache of `collection`. A stream from the most recent state
/// needs `proof`.
///
/// # Errors
/// A [`Miss`] if the cache can't start the stream, for example with 429 if clients watch too many
/// selectors without an index. A start before the event log is not an error: the client gets the
/// events from a bridge, or 410 in the stream, as from the API server.
pub(super) fn watch(
    read: &Read,
    (objects, from, terms): ((&Arc<Selection>, &Scope), WatchFrom, WatchTerms),
    collection: &Arc<dyn Collection>,
    proof: Option<&Proof>,
    delivery: &Delivery<'_>,
    shutdown: &Shutdown,
) -> CacheAnswer {
    let source = open(read, (objects, from), collection.as_ref(), proof, delivery)?;
    let (limited_units, initial) = match &source {
        WatchSource::Stream(stream) => (stream.limited_units(), stream.initial_objects()),
        WatchSource::Bridge(bridged) => (bridged.limited_units(), None),
        WatchSource::Expired(_) => (0, None),
    };
    let selection = objects.0;
    let start = shared_start(
        read,
        selection,
        terms,
        collection,
        delivery,
        initial.as_ref(),
    );
    let registration = initial.and_then(|initial| {
        let age = |initial: &mut InitialObjects| {
            super::snapshot_age(collection.reader(), initial.snapshot())
        };
        let age = initial.with(age)?;
        delivery.register(initial, age)
    });
    let listed = delivery.list_watch(collection.as_ref(), &source);
    let meter = listed.as_ref().map(|listed| Arc::clone(listed.meter()));
    let body = WatchBody::new(
        Arc::clone(collection),
        source,
        read.representation,
        terms,
        delivery.one_event_per_frame,
        shutdown.watch_end(),
    );
    let body = body.registered(registration).listed(listed);
    let response = delivery.watch(body, terms, collection, start);
    Ok(Answer {
        limited_units,
        meter,
        ..guarded(response, collection.watch_end()).into()
    })
}

/// Opens the events of a watch.
///
/// # Errors
/// A [`Miss`] if the cache can't start the watch.
fn open(
    read: &Read,
    ((selection, scope), from): ((&Arc<Selection>, &Scope), WatchFrom),
    collection: &dyn Collection,
    proof: Option<&Proof>,
    delivery: &Delivery<'_>,
) -> Result<WatchSource, Miss> {
    let reader = collection.reader();
    let selected = Arc::clone(selection);
    let stream = match (from, proof) {
        (WatchFrom::Snapshot, Some(proof)) => {
            super::check_not_older_than(read.need, proof.snapshot.resource_version())?;
            reader.watch_snapshot(proof.snapshot.clone(), selected)
        }
        (WatchFrom::Tip, Some(proof)) => reader.watch_after(&proof.snapshot, selected),
        (_, None) if read.need == Need::MostRecent => return Err(Reason::Unproven.into()),
        (from, _) => {
            let applied = reader.applied().ok_or(Reason::NotCached)?;
            super::check_not_older_than(read.need, applied)?;
            reader.watch(from, selected)
        }
    };
    let source = match (stream, from, collection.informer()) {
        (Err(WatchError::Expired(expired)), WatchFrom::After(version), Some(informer)) => informer
            .bridge(version, selection, scope, delivery.asker)
            .and_then(|bridged| Ok(WatchSource::Bridge(bridged.ok_or(expired)?))),
        (stream, ..) => stream.map(WatchSource::Stream),
    };
    match source {
        Ok(source) => Ok(source),
        Err(WatchError::TooManyUnindexed) => Err(Limit::UnindexedSelectors.into()),
        // The cache was closed, or started a new epoch, after it was acquired.
        Err(WatchError::Expired(expired)) if expired.oldest == ResourceVersion::ZERO => {
            Err(Miss::Forward(Reason::NotCached))
        }
        Err(WatchError::Expired(expired)) => Ok(WatchSource::Expired(expired)),
    }
}

/// Returns the initial objects, and the key that is equal for all watches that share their
/// compressed events. Returns `None` if the watch is not compressed, or if no other watch can have
/// its events: the rows of a Table have ages.
fn shared_start(
    read: &Read,
    selection: &Arc<Selection>,
    terms: WatchTerms,
    collection: &Arc<dyn Collection>,
    delivery: &Delivery<'_>,
    initial: Option<&Revocable<InitialObjects>>,
) -> Option<(ListKey, Revocable<InitialObjects>)> {
    delivery.initial_chunks_for(terms)?;
    let initial = initial.filter(|_| !read.representation.view.is_table())?;
    let key = initial.with(|initial| {
        let page = Page::default();
        let shown = (initial.snapshot(), selection, &page);
        super::list_key(read, collection.as_ref(), shown, true)
    });
    Some((key?, initial.clone()))
}

/// Returns the answer to a WATCH if its cache could not be proven fresh. It is an error in the
/// stream (504), as from an API server if its cache is too old. If the API server could not be
/// asked, the client gets 429 instead, so that it waits before it tries again. After a 504 in the
/// stream it would not wait.
///
/// # Errors
///
/// [`Miss::Reject`] with 429 if the call to the API server failed, or the cache is not ready.
pub(super) fn without_proof(
    unproven: &ProofError,
    read: &Read,
    terms: WatchTerms,
    informer: &Informer,
    delivery: &Delivery<'_>,
) -> CacheAnswer {
    if let ProofError::Upstream(_) | ProofError::NotReady = unproven {
        return Err(Limit::UnprovenReads.into());
    }
    let applied = informer.reader().applied().unwrap_or_default();
    let newer = ResourceVersion(applied.0 + 1);
    let status = Status::too_large_resource_version(newer, applied);
    let encoder = informer.encoder_for(read.representation);
    Ok(delivery.watch_error(encoder.error(&status), terms).into())
}
