//! Difference: the objects that a relist adds, changes and deletes, and the events for them.
//!
//! `Relist::difference` finds these objects by comparing the list with the store. This file turns
//! them into the block and the changes that the log gets.

use std::sync::Arc;

use crate::api::{EventType, Object, ResourceVersion};
use crate::cache::log::Event;
use crate::cache::objects::Store;
use crate::cache::stats::EpochCause;
use crate::cache::update::{NewObjects, Update};
use crate::cache::write::pace::{COMPARED, Pace};
use crate::mutation;
use crate::mutation::Mutation;

/// The changes that turn the store before a relist into the new list.
pub(super) struct Difference {
    pub(super) store: Store,
    /// The objects that are gone or were recreated with another uid, in key order.
    pub(super) deleted: Vec<Arc<Object>>,
    /// The new and changed objects in the order of their resource versions, each with the stored
    /// object before the change, which is `None` for a new or recreated object.
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
    pub(super) async fn into_update(
        self,
        applied: ResourceVersion,
        list: ResourceVersion,
        pace: &mut Pace,
    ) -> Update {
        let is_unchanged = self.deleted.is_empty() && self.changed.is_empty();
        let is_hole_ignored =
            is_unchanged && mutation::is_active(Mutation::UnchangedListWithoutHole);
        let has_departures = !mutation::is_active(Mutation::DepartureWithChange);
        let block_version = if mutation::is_active(Mutation::BlockAtList) {
            list
        } else {
            applied
        };
        let mut events = Vec::with_capacity(self.deleted.len() + self.changed.len());
        for missed in self.deleted {
            events.push(Arc::new(Event::implied_deletion(missed, block_version)));
            pace.spend(COMPARED).await;
        }
        for (object, previous) in self.changed.iter().filter(|_| has_departures) {
            let departs = |previous| Event::implied_departure(object, previous, block_version);
            events.extend(previous.as_ref().and_then(departs).map(Arc::new));
            pace.spend(COMPARED).await;
        }
        let block = events.len();
        for (object, previous) in self.changed {
            let event_type = match previous {
                Some(_) => EventType::Modified,
                None => EventType::Added,
            };
            let event = Event::new(event_type, object, previous, None);
            events.push(Arc::new(if has_departures {
                event.without_departure()
            } else {
                event
            }));
            pace.spend(COMPARED).await;
        }
        if mutation::is_active(Mutation::BlockAtList) {
            events.rotate_left(block);
        }
        Update {
            hole_after: (list > applied && !is_hole_ignored).then_some(applied),
            events,
            ..Update::without_events(NewObjects::All(Arc::new(self.store)), list)
        }
    }

    pub(super) fn outcome(&self) -> ReplaceOutcome {
        let changed = self.changed.iter();
        let modified = changed.filter(|(_, previous)| previous.is_some()).count();
        ReplaceOutcome::Diffed {
            added: self.changed.len() - modified,
            modified,
            deleted: self.deleted.len(),
        }
    }
}
