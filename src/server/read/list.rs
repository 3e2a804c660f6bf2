//! LIST of a collection.

use crate::api::ContinueToken;
use crate::api::Selection;
use crate::cache::Snapshot;
use crate::codec::Encoder;
use crate::codec::ListParts;
use crate::concurrency::CoopBudget;
use crate::server::collection::Collection;
use crate::server::decide::Page;
use crate::server::decide::Read;
use crate::server::deliver::Delivery;
use crate::server::deliver::ListKey;
use crate::server::outcome::Answer;

/// What looking at an object costs of a task's budget: half a microsecond or so.
const OBJECT_UNITS: usize = 1 << 10;

/// A page of `selection` as `snapshot` has it. A long list is prepared in turns with others who use
/// the thread. Cancel safe.
///
/// `can_page` says that the next page may be had of this very state.
///
/// # Errors
///
/// None.
pub(super) async fn list(
    read: &Read,
    selection: &Selection,
    page: &Page,
    collection: &dyn Collection,
    snapshot: &Snapshot,
    can_page: bool,
    delivery: &Delivery<'_>,
) -> Answer {
    let pin = |has_more| {
        if has_more && can_page {
            collection.reader().pin(snapshot);
        }
    };
    let key = delivery
        .shares_lists()
        .then(|| key(read, collection, snapshot, selection, page));
    if let Some(found) = key.as_ref().and_then(|key| delivery.shared_list(key)) {
        pin(found.has_more);
        return Ok(delivery.compressed(found.body));
    }
    let encoder = collection.encoder_for(read.representation);
    let (parts, has_more) = parts(&encoder, snapshot, selection, page).await;
    pin(has_more);
    let length = parts.length();
    Ok(delivery.list(key, delivery.chunks(parts, length), has_more))
}

fn key(
    read: &Read,
    collection: &dyn Collection,
    snapshot: &Snapshot,
    selection: &Selection,
    page: &Page,
) -> ListKey {
    ListKey {
        encoder: collection.encoder(),
        epoch: snapshot.epoch(),
        resource_version: snapshot.resource_version(),
        objects: snapshot.len(),
        representation: read.representation,
        selection: selection.clone(),
        after: page.after.clone(),
        limit: page.limit,
    }
}

/// The page's text, and whether any key of the scope follows its last one.
async fn parts(
    encoder: &Encoder,
    snapshot: &Snapshot,
    selection: &Selection,
    page: &Page,
) -> (ListParts, bool) {
    let mut budget = CoopBudget::new();
    let mut items = encoder.list_items();
    let mut last = None;
    let limit = page.limit.unwrap_or(usize::MAX);
    let mut candidates = snapshot.candidates(selection, page.after.as_deref());
    while items.len() < limit
        && let Some(item) = candidates.next()
    {
        if selection.matches(item) {
            items.push(item);
            last = Some(item);
        }
        budget.charge(OBJECT_UNITS);
        budget.proceed().await;
    }
    let scope = scope_of(selection);
    let following = last.filter(|last| {
        let follows = || {
            let mut following = snapshot.candidates(&scope, Some(last.key.as_str()));
            following.next().is_some()
        };
        // A list of one name has at most one item and no next page.
        items.len() == limit && selection.name().is_none() && follows()
    });
    let continued = following.as_ref().map(|last| {
        let namespace = selection.namespace.as_deref();
        ContinueToken::after(&last.key, namespace, snapshot.resource_version()).encode()
    });
    let remaining = match &following {
        Some(last) if selection.is_unfiltered() => {
            let mut count = 0;
            for _ in snapshot.candidates(&scope, Some(last.key.as_str())) {
                count += 1;
                budget.charge(OBJECT_UNITS);
                budget.proceed().await;
            }
            Some(count)
        }
        _ => None,
    };
    let parts = items.finish(snapshot.resource_version(), continued.as_deref(), remaining);
    (parts, continued.is_some())
}

fn scope_of(selection: &Selection) -> Selection {
    Selection {
        namespace: selection.namespace.clone(),
        ..Selection::default()
    }
}
