//! WATCH of a collection.

use std::sync::Arc;

use crate::api::ListOptions;
use crate::api::ResourceVersion;
use crate::api::Selection;
use crate::api::WatchRequest;
use crate::body;
use crate::body::YieldingBody;
use crate::cache::WatchFrom;
use crate::informer::Proof;
use crate::server::collection::Collection;
use crate::server::rescue;
use crate::server::router;
use crate::server::router::Reason;
use crate::server::router::WatchPlan;
use crate::server::watch_body::WatchBody;
use crate::server::watch_body::WatchTerms;
use crate::shutdown::Shutdown;

use super::Answer;
use super::Miss;
use super::Need;
use super::ReadRequest;

/// A WATCH whose parameters are in order.
pub(crate) struct Checked {
    request: WatchRequest,
    plan: WatchPlan,
    selection: Arc<Selection>,
}

impl Checked {
    /// What is selected.
    pub(crate) fn selection(&self) -> &Arc<Selection> {
        &self.selection
    }

    /// What the cache must have to answer it.
    pub(crate) fn need(&self) -> Need {
        match self.plan {
            WatchPlan::MostRecent { .. } => Need::Consistent,
            WatchPlan::Stream { not_older_than, .. } => Need::NotOlderThan(not_older_than),
        }
    }
}

/// Checks the parameters, in the API server's order.
///
/// # Errors
///
/// [`Miss::Reject`] for a fault in them.
pub(crate) fn check(request: &ReadRequest<'_>) -> Result<Checked, Miss> {
    let options = ListOptions::parse(request.query)?;
    options.check_watch()?;
    let selection = super::selection(&options, request.namespace()?, request)?;
    let checked = options.validate_watch()?;
    Ok(Checked {
        plan: request.authority.plan_watch(checked.start),
        request: checked,
        selection: Arc::new(selection),
    })
}

/// Streams from the cache of `collection`; from the most recent state on with `proof` only.
///
/// # Errors
///
/// [`Miss`] where the cache can't start the stream. A start older than the event log is no error:
/// the stream says so, as the API server's does.
pub(crate) fn watch(
    request: &ReadRequest<'_>,
    checked: &Checked,
    collection: &Arc<dyn Collection>,
    proof: Option<Proof>,
    shutdown: &Shutdown,
) -> Answer {
    let reader = collection.reader();
    let selection = Arc::clone(&checked.selection);
    let stream = match checked.plan {
        WatchPlan::Stream {
            from: WatchFrom::Snapshot,
            not_older_than,
        } if let Some(proof) = &proof => {
            let snapshot = proof.snapshot.clone();
            router::not_older_than(not_older_than, snapshot.resource_version())?;
            reader.watch_snapshot(snapshot, selection)
        }
        WatchPlan::Stream {
            from,
            not_older_than,
        } => {
            let applied = reader.stats().applied.ok_or(Reason::NotCached)?;
            router::not_older_than(not_older_than, applied)?;
            reader.watch(from, selection)
        }
        WatchPlan::MostRecent { initial_events } => {
            let snapshot = proof.ok_or(Reason::Unproven)?.snapshot;
            match initial_events {
                true => reader.watch_snapshot(snapshot, selection),
                false => reader.watch_after(&snapshot, selection),
            }
        }
    };
    if let Err(expired) = stream
        && expired.oldest == ResourceVersion::ZERO
    {
        // It was closed, or began anew, since we looked.
        return Err(Miss::Forward(Reason::NotCached));
    }
    let terms = WatchTerms {
        representation: request.representation,
        bookmarks: checked.request.allow_bookmarks,
        initial_events_end: checked.request.initial_events_end,
        timeout: checked.request.timeout,
        one_by_one: request.one_by_one,
    };
    let body = WatchBody::new(Arc::clone(collection), stream, terms, shutdown.watch_end());
    Ok(rescue::answer(
        request.format().watch_media_type(),
        body::boxed(YieldingBody::new(body)),
    ))
}
