//! WATCH of a collection.

use std::sync::Arc;

use crate::api::ListOptions;
use crate::api::ResourceVersion;
use crate::api::Selection;
use crate::api::WatchRequest;
use crate::server::collection::Collection;
use crate::server::rescue;
use crate::server::router;
use crate::server::router::Reason;
use crate::server::router::WatchPlan;
use crate::server::watch_body::WatchBody;
use crate::server::watch_body::WatchTerms;
use crate::shutdown::Shutdown;
use crate::upstream;

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
    /// What the cache must have to answer it.
    pub(crate) fn need(&self) -> Need {
        match self.plan {
            WatchPlan::Forward(_) => Need::Consistent,
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

/// Streams from the cache of `collection`.
///
/// # Errors
///
/// [`Miss`] where the cache can't start the stream. A start older than the event log is no error:
/// the stream says so, as the API server's does.
pub(crate) fn watch(
    request: &ReadRequest<'_>,
    checked: &Checked,
    collection: &Arc<dyn Collection>,
    shutdown: &Shutdown,
) -> Answer {
    let (from, needed) = match checked.plan {
        WatchPlan::Forward(reason) => return Err(Miss::Forward(reason)),
        WatchPlan::Stream {
            from,
            not_older_than,
        } => (from, not_older_than),
    };
    let applied = collection
        .reader()
        .stats()
        .applied
        .ok_or(Reason::NotCached)?;
    router::not_older_than(needed, applied)?;
    let stream = collection
        .reader()
        .watch(from, Arc::clone(&checked.selection));
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
    };
    let body = WatchBody::new(Arc::clone(collection), stream, terms, shutdown.watch_end());
    Ok(rescue::answer(
        request.format().watch_media_type(),
        upstream::boxed(body),
    ))
}
