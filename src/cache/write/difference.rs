//! Difference: what a relist changes, and how that is told.

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

/// What has to be told so that `before` becomes the list.
pub(super) struct Difference {
    pub(super) store: Store,
    /// In key order.
    pub(super) deleted: Vec<Arc<Object>>,
    /// With the object before, in order of resource versions.
    pub(super) changed: Vec<(Arc<Object>, Option<Arc<Object>>)>,
}

/// What [`Writer::replace`](crate::cache::Writer::replace) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaceOutcome {
    /// The list is the cache's first content.
    First,
    /// The difference was appended to the log; watches go on.
    Diffed {
        /// Objects that are new, or anew.
        added: usize,
        /// Objects with a newer version.
        modified: usize,
        /// Objects that are gone, or gone and created anew.
        deleted: usize,
    },
    /// The list is the first content of a new epoch; all watches expired.
    NewEpoch(EpochCause),
}

// === impl Difference ===

impl Difference {
    /// The update from the state at `applied` to the list, which is complete at `list`.
    pub(super) fn into_update(self, applied: ResourceVersion, list: ResourceVersion) -> Update {
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
            opens_hole: list > applied,
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

    /// How many objects it is about.
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
