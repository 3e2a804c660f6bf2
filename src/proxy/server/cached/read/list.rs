//! LIST of a collection.

use std::sync::Arc;

use kubefan_core::api::{ContinueToken, HashedSelection, Selection};
use kubefan_core::cache::Snapshot;
use kubefan_core::codec::{Encoder, ListMetadata, ListParts};
use kubefan_core::concurrency::CoopBudget;

use super::snapshot_age;
use crate::ledger::SnapshotAge;
use crate::server::answers::answer::Answer;
use crate::server::cached::collection::Collection;
use crate::server::cached::miss::CacheAnswer;
use crate::server::decide::{Page, Read};
use crate::server::deliver::{Delivery, ListBodies, ListKey, RoomForBodies};

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
    let key = delivery
        .shares_lists()
        .then(|| list_key(read, collection, snapshot, selection, page));
    // The answer holds the snapshot, or objects of it, until the client has read it.
    let age = snapshot_age(collection.reader(), snapshot);
    if let Some(found) = key.as_ref().and_then(|key| delivery.shared_list(key)) {
        pin(found.has_more);
        let answer = delivery.compressed(found.body).into();
        return Ok(holding(answer, age));
    }
    let encoder = collection.encoder_for(read.representation);
    let turn = delivery.turn().await;
    let room = delivery.room_for_bodies();
    let (parts, has_more) = parts(&encoder, snapshot, selection, page, room).await;
    drop(turn);
    super::check_printed(collection, &encoder)?;
    pin(has_more);
    let length = parts.length();
    let answer = delivery.list(key, delivery.chunks(parts, length), has_more);
    Ok(holding(answer, age))
}

/// Returns `answer`, which holds a snapshot of this age.
fn holding(answer: Answer, age: SnapshotAge) -> Answer {
    Answer {
        snapshot: Some(age),
        ..answer
    }
}

fn list_key(
    read: &Read,
    collection: &dyn Collection,
    snapshot: &Snapshot,
    selection: &Arc<Selection>,
    page: &Page,
) -> ListKey {
    ListKey {
        encoder: collection.encoder(),
        epoch: snapshot.epoch(),
        resource_version: snapshot.resource_version(),
        objects: snapshot.len(),
        representation: read.representation,
        selection: HashedSelection::new(Arc::clone(selection)),
        after: page.after.clone(),
        limit: page.limit,
        printed: collection.printed(),
    }
}

/// Returns the text of the page, and whether it names a next page.
///
/// The objects of a long page are examined twice unless there is room for their bodies: here for
/// the length of the page, and again while the page is sent. So a client that does not read costs a
/// position in the snapshot instead of a list.
async fn parts(
    encoder: &Arc<Encoder>,
    snapshot: &Snapshot,
    selection: &Arc<Selection>,
    page: &Page,
    mut room: RoomForBodies,
) -> (ListParts<ListBodies>, bool) {
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
    // The API server, too, counts the rest only of lists without selectors.
    let counted = following.filter(|_| selection.is_unfiltered());
    let remaining = counted.map(|last| {
        let namespace = selection.namespace.as_deref();
        snapshot.count_after(namespace, last.key.as_str()) as u64
    });
    let bodies = match items.take_bodies() {
        Some(bodies) => room.holding(bodies),
        None => ListBodies::from_snapshot(snapshot, selection, encoder, page.after.clone()),
    };
    let metadata = ListMetadata {
        resource_version: snapshot.resource_version(),
        continue_token: continued.as_deref().unwrap_or_default(),
        remaining_item_count: remaining,
        shard: selection.shard.as_ref(),
    };
    let parts = items.finish(metadata, bodies);
    (parts, continued.is_some())
}

fn scope_of(selection: &Selection) -> Selection {
    Selection {
        namespace: selection.namespace.clone(),
        ..Selection::default()
    }
}
