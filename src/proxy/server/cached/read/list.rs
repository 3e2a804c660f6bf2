//! LIST of a collection.

use std::sync::Arc;

use kubefan_core::api::{ContinueToken, ObjectKey, Selection};
use kubefan_core::cache::Snapshot;
use kubefan_core::codec::{Encoder, ListMetadata, ListParts};
use kubefan_core::concurrency::CoopBudget;

use super::snapshot_age;
use crate::server::answers::answer::Shown;
use crate::server::cached::collection::Collection;
use crate::server::cached::miss::CacheAnswer;
use crate::server::decide::{Page, Read, Reason};
use crate::server::deliver::{Delivery, ListBodies, ListInfo, ListStart, RoomForBodies, Unshared};

/// Units of a task's budget that one item of a list costs; about half a microsecond.
const ITEM_UNITS: usize = 1 << 10;
/// Units that an object costs if it is only tested or counted.
const VISIT_UNITS: usize = ITEM_UNITS / 16;

/// Answers with a page of the objects that `selection` selects in `snapshot`. Between objects of a
/// long list, other tasks on the thread get their turn. Cancel safe.
///
/// If `can_page` is true and there is a next page, pins the snapshot for it.
///
/// # Errors
///
/// A `Miss` if a row of a Table could not be printed.
pub(super) async fn list(
    read: &Read,
    selection: &Arc<Selection>,
    page: &Page,
    collection: &dyn Collection,
    snapshot: &Snapshot,
    can_page: bool,
    delivery: &Delivery<'_>,
) -> CacheAnswer {
    let pin = |has_more| {
        if has_more && can_page {
            collection.reader().pin(snapshot);
        }
    };
    let age = snapshot_age(collection.reader(), snapshot);
    let key = delivery.shares_lists().then(|| {
        let shown = (snapshot, selection, page);
        super::list_key(read, collection, shown, delivery.accepts_gzip())
    });
    let (turn, making) = match delivery.start_list(key.as_ref()).await {
        ListStart::Found(list) => {
            pin(list.has_more);
            return Ok(delivery.with_list(list, age));
        }
        ListStart::Make { turn, making } => (turn, making),
        ListStart::Failed => return Err(Reason::Table.into()),
    };
    let encoder = collection.encoder_for(read.representation);
    let room = delivery.room_for_bodies();
    let (parts, shown, has_more) = parts(&encoder, snapshot, read, (selection, page), room).await;
    if let Err(reason) = super::check_printed(collection, &encoder) {
        if let Some(making) = making {
            making.end(Unshared::Failed);
        }
        return Err(reason.into());
    }
    pin(has_more);
    let info = ListInfo {
        has_more,
        shown,
        reader: collection.reader().clone(),
    };
    let answer = delivery.list(making, parts, info, age).await;
    drop(turn);
    Ok(answer)
}

/// Returns the text of the page, what it shows, and whether it names a next page.
///
/// The objects of a long page are examined twice unless there is room for their bodies: here for
/// the length of the page, and again while the page is sent. So a client that does not read costs a
/// position in the snapshot instead of a list.
async fn parts(
    encoder: &Arc<Encoder>,
    snapshot: &Snapshot,
    read: &Read,
    (selection, page): (&Arc<Selection>, &Page),
    mut room: RoomForBodies,
) -> (ListParts<ListBodies>, Shown, bool) {
    let mut budget = CoopBudget::new();
    let mut items = encoder.list_items();
    let mut last = None;
    let limit = page.limit.unwrap_or(usize::MAX);
    let mut candidates = snapshot.candidates(selection, page.after.as_deref());
    while items.len() < limit
        && let Some(item) = candidates.next()
    {
        let mut units = VISIT_UNITS;
        if selection.matches(item) {
            let work = items.push(item);
            if let Some(bytes) = items.kept()
                && !room.fits(items.len(), bytes)
            {
                items.forget_bodies();
            }
            last = Some(item);
            units = ITEM_UNITS + work.units(item);
        }
        budget.charge(units);
        budget.proceed().await;
    }
    let last = last.filter(|_| items.len() == limit);
    let next = last.and_then(|last| next_page(snapshot, selection, &last.key));
    let (token, remaining) = match &next {
        None => (String::new(), None),
        Some((token, remaining)) if read.spec.resource.gvr.is_events() => {
            (token.encode_of_etcd(), *remaining)
        }
        Some((token, remaining)) => (token.encode(), *remaining),
    };
    let bodies = match items.take_bodies() {
        Some(bodies) => room.holding(bodies),
        None => {
            let after = page.after.as_deref();
            ListBodies::from_snapshot(snapshot, selection, encoder, after)
        }
    };
    let metadata = ListMetadata {
        resource_version: snapshot.resource_version(),
        continue_token: &token,
        remaining_item_count: remaining,
        shard: selection.shard.as_ref(),
    };
    let objects = items.len() as u64;
    let parts = items.finish(metadata, bodies);
    let bytes = parts.length();
    (parts, Shown { objects, bytes }, next.is_some())
}

/// Returns the token of the page after the object `last`, and the number of objects after it if
/// clients get this number. Returns `None` if there is no next page.
fn next_page(
    snapshot: &Snapshot,
    selection: &Selection,
    last: &ObjectKey,
) -> Option<(ContinueToken, Option<u64>)> {
    // A list of one name has at most one item and no next page.
    if selection.name().is_some() {
        return None;
    }
    let namespace = selection.namespace.as_deref();
    let scope = Selection {
        namespace: selection.namespace.clone(),
        ..Selection::default()
    };
    snapshot.candidates(&scope, Some(last.as_str())).next()?;
    let token = ContinueToken::after(last, namespace, snapshot.resource_version());
    // The API server, too, counts the rest only of lists without selectors.
    let remaining = selection
        .is_unfiltered()
        .then(|| snapshot.count_after(namespace, last.as_str()) as u64);
    Some((token, remaining))
}
