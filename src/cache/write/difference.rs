//! Difference: the objects that a relist adds, changes and deletes, and the events for them.
//!
//! `Relist::difference` finds these objects by comparing the list with the store. This file turns
//! them into the block and the changes that the log gets.

use std::sync::Arc;

use crate::api::EventType;
use crate::api::Object;
use crate::api::ResourceVersion;
use crate::cache::log::Event;
use crate::cache::objects::Store;
use crate::cache::stats::EpochCause;
use crate::cache::update::Update;
use crate::mutation;
use crate::mutation::Mutation;

/// The changes that turn the store before a relist into the new list.
pub(super) struct Difference {
    pub(super) store: Store,
    /// The objects that are gone or were recreated with another uid, in key order.
    pub(super) deleted: Vec<Arc<Object>>,
    /// The new and changed objects in the order of their resource versions, each with the stored
    /// object before the change. That is `None` for a new or recreated object.
    pub(super) changed: Vec<(Arc<Object>, Option<Arc<Object>>)>,
}

/// The result of [`Writer::replace`](crate::cache::Writer::replace).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaceOutcome {
    /// The list is the cache's first content.
    First,
    /// The difference was appended to the log, and watches continue.
    Diffed {
        /// Number of objects that are new or were recreated.
        added: usize,
        /// Number of objects that have a newer version.
        modified: usize,
        /// Number of objects that are gone or were recreated.
        deleted: usize,
    },
    /// The list is the first content of a new epoch, and all watches have expired.
    NewEpoch(EpochCause),
}

// === impl Difference ===

impl Difference {
    /// Creates the update from the state at `applied` to the relist that is complete at `list`:
    /// first the block at version `applied`, then the changes. A list of a later version opens a
    /// hole even if nothing differs. Guarded by `model_needs_the_block_at_the_previous_version`,
    /// `unseen_departures_from_a_selection_are_sent_before_other_changes` and
    /// `model_needs_a_hole_for_a_relist_that_finds_no_difference`.
    pub(super) fn into_update(self, applied: ResourceVersion, list: ResourceVersion) -> Update {
        let is_unchanged = self.deleted.is_empty() && self.changed.is_empty();
        let is_hole_ignored =
            is_unchanged && mutation::is_active(Mutation::UnchangedListWithoutHole);
        let has_departures = !mutation::is_active(Mutation::DepartureWithChange);
        let departure = |(object, previous): &(Arc<Object>, Option<Arc<Object>>)| {
            Event::implied_departure(object, previous.as_ref()?, applied)
        };
        let changed = self.changed.iter().filter(|_| has_departures);
        let departures: Vec<_> = changed.filter_map(departure).collect();
        let change = |(object, previous): (Arc<Object>, Option<Arc<Object>>)| {
            let event_type = match previous {
                Some(_) => EventType::Modified,
                None => EventType::Added,
            };
            let event = Event::new(event_type, object, previous, None);
            if has_departures {
                event.without_departure()
            } else {
                event
            }
        };
        let imply = |missed| Event::implied_deletion(missed, applied);
        let deletions = self.deleted.into_iter().map(imply);
        let mut update = Update {
            opens_hole: list > applied && !is_hole_ignored,
            block: deletions.chain(departures).collect(),
            changes: self.changed.into_iter().map(change).collect(),
            ..Update::without_events(Arc::new(self.store), list)
        };
        if mutation::is_active(Mutation::BlockAtList) {
            for mut event in update.block.drain(..) {
                event.resource_version = list;
                update.changes.push(event);
            }
        }
        update
    }

    pub(super) fn outcome(&self) -> ReplaceOutcome {
        let previous = self
            .changed
            .iter()
            .filter_map(|(_, previous)| previous.as_ref());
        let modified = previous.count();
        ReplaceOutcome::Diffed {
            added: self.changed.len() - modified,
            modified,
            deleted: self.deleted.len(),
        }
    }
}
