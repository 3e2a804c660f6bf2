//! LIST of a collection.

use std::sync::Arc;

use crate::api::ContinueToken;
use crate::api::ListOptions;
use crate::api::Object;
use crate::api::Selection;
use crate::cache::Snapshot;
use crate::server::collection::Collection;
use crate::server::router;
use crate::server::router::ListPlan;
use crate::server::router::Page;
use crate::server::router::Reason;

use super::Answer;
use super::Miss;
use super::Need;
use super::ReadRequest;

/// A LIST whose parameters are in order.
pub(crate) struct Checked {
    plan: ListPlan,
    selection: Selection,
}

impl Checked {
    /// What the cache must have to answer it.
    pub(crate) fn need(&self) -> Need {
        match &self.plan {
            ListPlan::Forward(Reason::Consistent) => Need::Consistent,
            ListPlan::Forward(_) | ListPlan::At(..) => Need::Past,
            ListPlan::NotOlderThan(needed, _) => Need::NotOlderThan(*needed),
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
    options.check_list()?;
    let namespace = request.namespace()?;
    let selection = super::selection(&options, namespace, request)?;
    let plan = request
        .authority
        .plan_list(options.validate_list()?, namespace);
    Ok(Checked { plan, selection })
}

/// Answers from a snapshot of `collection`.
///
/// # Errors
///
/// [`Miss`] where no snapshot can answer.
pub(crate) fn list(
    request: &ReadRequest<'_>,
    checked: &Checked,
    collection: &dyn Collection,
) -> Answer {
    let reader = collection.reader();
    let (snapshot, page) = match &checked.plan {
        ListPlan::Forward(reason) => return Err(Miss::Forward(*reason)),
        ListPlan::NotOlderThan(needed, page) => {
            let snapshot = reader.snapshot().ok_or(Reason::NotCached)?;
            router::not_older_than(*needed, snapshot.resource_version())?;
            (snapshot, page)
        }
        ListPlan::At(at, page) => {
            let snapshot = reader.snapshot_at(*at).ok_or(Reason::PastState)?;
            (snapshot, page)
        }
    };
    let (items, more) = take_page(&snapshot, &checked.selection, page);
    let continued = more.then(|| items.last()).flatten().map(|last| {
        // The following pages must show this very state.
        reader.pin(&snapshot);
        let namespace = checked.selection.namespace.as_deref();
        ContinueToken::after(&last.key, namespace, snapshot.resource_version()).encode()
    });
    let remaining = (continued.is_some() && checked.selection.is_unfiltered())
        .then(|| remaining(&snapshot, &checked.selection, page, items.len()));
    let parts = request.encoder(collection).list_parts(
        snapshot.resource_version(),
        continued.as_deref(),
        remaining,
        items,
    );
    Ok(request.answer(parts.collect()))
}

/// The page's items, and whether any key of the scope follows its last one.
fn take_page(snapshot: &Snapshot, selection: &Selection, page: &Page) -> (Vec<Arc<Object>>, bool) {
    let selected = snapshot.list(selection, page.after.as_deref());
    let Some(limit) = page.limit else {
        return (selected.collect(), false);
    };
    let items: Vec<_> = selected.take(limit).collect();
    let more = items.len() == limit
        && items.last().is_some_and(|last| {
            let scope = scope_of(selection);
            let mut following = snapshot.list(&scope, Some(last.key.as_str()));
            following.next().is_some()
        })
        // A list of one name has at most one item and no next page.
        && selection.name().is_none();
    (items, more)
}

fn remaining(snapshot: &Snapshot, selection: &Selection, page: &Page, shown: usize) -> u64 {
    let all = snapshot
        .list(&scope_of(selection), page.after.as_deref())
        .count();
    (all - shown) as u64
}

fn scope_of(selection: &Selection) -> Selection {
    Selection {
        namespace: selection.namespace.clone(),
        ..Selection::default()
    }
}
