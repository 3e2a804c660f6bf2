//! GET of one object.

use kubefan_core::api::{ObjectKey, Status};
use kubefan_core::cache::Snapshot;

use crate::server::answers::answer::{Answer, Shown};
use crate::server::cached::collection::Collection;
use crate::server::cached::miss::{CacheAnswer, Miss};
use crate::server::decide::{Read, Reason};
use crate::server::deliver::Delivery;

/// Answers with the object `name` in `snapshot`. `is_in_scope` is false if the object may exist
/// although the snapshot does not have it.
///
/// # Errors
///
/// [`Miss::Absent`] if the object does not exist; another miss if it may exist, or if its row of a
/// Table could not be printed.
pub(super) fn get(
    read: &Read,
    (name, is_in_scope): (&str, bool),
    collection: &dyn Collection,
    snapshot: &Snapshot,
    delivery: &Delivery<'_>,
) -> CacheAnswer {
    let Some(object) = snapshot.get(&ObjectKey::new(read.namespace.as_deref(), name)) else {
        if !is_in_scope {
            return Err(Reason::OutOfScope.into());
        }
        let absent = Status::not_found(&read.spec.resource.gvr, name);
        return Err(Miss::Absent(Box::new(absent)));
    };
    let encoder = collection.encoder_for(read.representation);
    let parts = encoder.object_body(&object);
    super::check_printed(collection, &encoder)?;
    let bytes = parts.iter().map(|part| part.len() as u64).sum();
    let response = delivery.answer(delivery.chunks(parts.into_iter(), bytes));
    Ok(Answer {
        shown: Shown { objects: 0, bytes },
        ..response.into()
    })
}
