//! Interest: all groups of a cache, and the search for the groups that need an event.
//!
//! The index finds a group by a condition that all objects of its selection meet: a key, a name,
//! the value of a field or label, or the namespace. If a selection has several such conditions, the
//! group is indexed by the one that the fewest groups have. If it has none, the group is checked
//! for each change. The number of such groups is limited, together with the groups that share their
//! condition with too many others.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::HashedSelection;
use crate::cache::config::Config;
use crate::cache::groups::candidate::Candidate;
use crate::cache::groups::group::{Group, QUEUED_EVENT_BYTES, QueuedEvent, shrink};
use crate::cache::groups::group_index::{GroupIndex, Place};
use crate::cache::groups::idle_groups::{IdleGroup, IdleGroups};
use crate::cache::groups::limits::GroupLimits;
use crate::cache::log::{Event, EventLog};
use crate::mutation;
use crate::mutation::Mutation;

/// Maximum number of idle groups that are dropped in one critical section. A change drops no more,
/// which limits its delay.
pub(in crate::cache) const DROPPED_AT_ONCE: usize = 256;
/// A group without streams is removed at once if it has at least this part of
/// [`GroupLimits::idle_bytes`]. So a group that becomes idle displaces a limited number of other
/// idle groups.
const IDLE_PARTS: usize = 256;

/// All groups of the current epoch.
#[derive(Default)]
pub(in crate::cache) struct Interest {
    limits: GroupLimits,
    /// How long a group may have no streams before it is removed.
    idle_age: Duration,
    ids: HashMap<HashedSelection, u64>,
    members: HashMap<u64, Member>,
    index: GroupIndex,
    idle: IdleGroups,
    /// The units of all groups with a limited place.
    limited_units: usize,
    /// The queued events by log position, each with the ids of the groups that have it queued. Ids
    /// of removed groups stay until the event is the oldest.
    queue_order: VecDeque<(u64, Vec<u64>)>,
    /// Number of ids in `queue_order`.
    ordered: usize,
    /// The capacities of all groups' queues together, in events.
    queued: usize,
    /// Number of streams that were refused since the start.
    pub(in crate::cache) refused: u64,
    next_id: u64,
}

struct Member {
    group: Arc<Group>,
    selection: HashedSelection,
    streams: usize,
    place: Place,
    /// See [`Candidate::weight`].
    weight: usize,
    /// When the last stream left; `None` while there are streams.
    idle_since: Option<Instant>,
}

/// The result of [`Interest::join`].
pub(in crate::cache) struct Joined {
    pub(in crate::cache) group: Arc<Group>,
    /// The part of [`GroupLimits::unindexed`] that the group has; 0 for a group that needs none.
    pub(in crate::cache) limited_units: usize,
    /// The idle groups that were removed to make room. Freeing their queues may take long.
    pub(in crate::cache) replaced: Vec<Arc<Group>>,
}

// === impl Interest ===

impl Interest {
    pub(in crate::cache) fn new(config: &Config) -> Self {
        Self {
            limits: config.groups,
            idle_age: config.retention_age,
            ..Self::default()
        }
    }

    /// Returns the number of groups that have streams.
    pub(in crate::cache) fn len(&self) -> usize {
        self.members.len() - self.idle.len()
    }

    /// Adds a stream to the group of `candidate`, which is created if necessary. Groups without
    /// streams may be removed to make room; they are returned too, so that the caller can drop them
    /// outside of the locks.
    ///
    /// Borrowing `log` means that the caller holds the state's lock, so the tip cannot move. The
    /// writer offers a new group all events that are appended after this tip.
    pub(in crate::cache) fn join(
        &mut self,
        candidate: &Candidate,
        log: &EventLog,
    ) -> Option<Joined> {
        let selection = &candidate.selection;
        let id = self.ids.get(selection);
        if let Some(member) = id.and_then(|id| self.members.get_mut(id)) {
            member.streams += 1;
            if let Some(idle) = member.idle() {
                self.idle.remove(idle);
            }
            member.idle_since = None;
            return Some(Joined {
                group: Arc::clone(&member.group),
                limited_units: member.limited_units(),
                replaced: Vec::new(),
            });
        }
        let mut place = self.index.place_for(&candidate.sets, candidate.units);
        // All watches of everything share one group, and all unfiltered watches of a namespace
        // share another one. The limit must not refuse them because of other clients' selections.
        place.is_limited &= !selection.selection().is_unfiltered();
        let replaced = if place.is_limited {
            self.make_room_for(candidate)?
        } else {
            Vec::new()
        };
        let id = self.next_id;
        self.next_id += 1;
        let group = Arc::new(Group::new(id, Arc::clone(selection.selection()), log.tip()));
        self.index.insert(&group, &place);
        let member = Member {
            group: Arc::clone(&group),
            selection: selection.clone(),
            streams: 1,
            place,
            weight: candidate.weight,
            idle_since: None,
        };
        let limited_units = member.limited_units();
        self.limited_units += limited_units;
        self.ids.insert(selection.clone(), id);
        self.members.insert(id, member);
        Some(Joined {
            group,
            limited_units,
            replaced,
        })
    }

    /// Adds a stream to `group`, which already has another stream.
    pub(in crate::cache) fn add_stream(&mut self, group: &Arc<Group>) {
        if let Some(member) = self.members.get_mut(&group.id) {
            member.streams += 1;
        }
    }

    /// Removes and returns idle groups if there are too many groups that are checked for many
    /// changes. Returns `None` if there is no room even without idle groups.
    fn make_room_for(&mut self, candidate: &Candidate) -> Option<Vec<Arc<Group>>> {
        let mut removed = Vec::new();
        let limit = self.limits.unindexed;
        let in_use = self.limited_units - self.idle.limited_units;
        if in_use.saturating_add(candidate.units) > limit {
            self.refused += 1;
            return None;
        }
        while self.limited_units + candidate.units > limit
            && let Some(idle) = self.idle.oldest_limited()
        {
            removed.extend(self.remove(idle));
        }
        Some(removed)
    }

    /// Removes a stream from its group. The group stays for streams that resume, unless it is
    /// large. If there are too many, returns the oldest groups, to be dropped outside of the lock.
    pub(in crate::cache) fn leave(&mut self, group: &Arc<Group>, now: Instant) -> Vec<Arc<Group>> {
        let mut removed = Vec::new();
        // A group of an earlier epoch is no longer a member.
        let Some(member) = self.members.get_mut(&group.id) else {
            return removed;
        };
        member.streams -= 1;
        if member.streams > 0 {
            return removed;
        }
        if member.weight >= self.limits.idle_bytes / IDLE_PARTS {
            removed.extend(self.remove(group.id));
            return removed;
        }
        member.idle_since = Some(now);
        if let Some(idle) = member.idle() {
            self.idle.add(idle);
        }
        while (self.idle.len() > self.limits.idle || self.idle.weight > self.limits.idle_bytes)
            && removed.len() < DROPPED_AT_ONCE
            && let Some((_, oldest)) = self.idle.oldest()
        {
            removed.extend(self.remove(oldest));
        }
        removed
    }

    /// Removes some of the groups that had no streams for the retention age, and returns them, so
    /// that the caller can drop them outside of the lock.
    pub(in crate::cache) fn remove_idle(&mut self, now: Instant) -> Vec<Arc<Group>> {
        let mut removed = Vec::new();
        while removed.len() < DROPPED_AT_ONCE
            && let Some((since, id)) = self.idle.oldest()
            && now.duration_since(since) >= self.idle_age
        {
            removed.extend(self.remove(id));
        }
        removed
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Group>> {
        let member = self.members.remove(&id)?;
        if let Some(idle) = member.idle() {
            self.idle.remove(idle);
        }
        self.ids.remove(&member.selection);
        self.index.remove(&member.group, &member.place);
        self.limited_units -= member.limited_units();
        self.queued -= member.group.capacity();
        Some(member.group)
    }

    /// Queues `event`, at log position `position`, in all groups that need it, and adds these
    /// groups to `to_wake`, unless they are there from an earlier event. Returns the units of the
    /// groups that were checked.
    pub(in crate::cache) fn publish(
        &mut self,
        position: u64,
        event: &Arc<Event>,
        to_wake: &mut Vec<Arc<Group>>,
    ) -> usize {
        let (mut checked, mut ids) = (0, Vec::new());
        self.index.find(event, |group| {
            checked += group.units;
            if let Some(grown) = group.offer(position, event) {
                self.queued += grown;
                ids.push(group.id);
                if group.begin_wake() {
                    to_wake.push(Arc::clone(group));
                }
            }
        });
        if !ids.is_empty() {
            ids.shrink_to_fit();
            self.ordered += ids.len();
            self.queue_order.push_back((position, ids));
        }
        checked
    }

    /// Drops the events before log position `first` from all queues, and more of the oldest events
    /// if the queues take too much memory. This affects only streams that still need one of the
    /// dropped events. Guarded by `model_needs_unrelated_changes_to_expire_no_watch`.
    ///
    /// Stops after about `at_once` groups. Queues may hold events that the log has dropped, so the
    /// caller can release the lock before it calls this again.
    ///
    /// Returns the number of queue entries that were visited (a group counts once for each event
    /// that left its queue), and true if there is more to drop.
    pub(in crate::cache) fn evict(&mut self, first: u64, at_once: usize) -> (usize, bool) {
        if first > 0 && mutation::is_active(Mutation::EvictionExpiresAll) {
            self.groups().for_each(|group| drop(group.expire()));
        }
        let mut visited = 0;
        while let Some(&(position, _)) = self.queue_order.front()
            && (position < first || self.exceeds_bytes())
        {
            if visited >= at_once {
                return (visited, true);
            }
            let Some((position, ids)) = self.queue_order.pop_front() else {
                break;
            };
            self.ordered -= ids.len();
            visited += ids.len();
            for id in ids {
                if let Some(member) = self.members.get(&id) {
                    self.queued -= member.group.evict(position + 1);
                }
            }
        }
        shrink(&mut self.queue_order);
        (visited, false)
    }

    /// Returns true if the queues take too much memory, even after the order of the queued events
    /// has released what it does not use. Otherwise events would be dropped because of unused
    /// memory, and dropping events does not release that memory.
    fn exceeds_bytes(&mut self) -> bool {
        let limit = self.limits.queue_bytes;
        if self.queue_bytes() > limit {
            let events = self.queue_order.len();
            if self.queue_order.capacity() > events + events / 4 {
                self.queue_order.shrink_to(events + events / 8);
            }
        }
        self.queue_bytes() > limit
    }

    /// Returns the bytes that are allocated for all queues.
    pub(in crate::cache) fn queue_bytes(&self) -> usize {
        self.queued * QUEUED_EVENT_BYTES
            + self.ordered * size_of::<u64>()
            + self.queue_order.capacity() * size_of::<(u64, Vec<u64>)>()
    }

    pub(in crate::cache) fn groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.members.values().map(|member| &member.group)
    }

    /// Ends the epoch: expires all streams and removes all groups. Returns the removed groups and
    /// their events, so that the caller can drop them outside of its locks.
    pub(in crate::cache) fn expire(&mut self) -> (Self, Vec<VecDeque<QueuedEvent>>) {
        let queues = self.groups().map(|group| group.expire());
        let queues = queues.filter(|queue| !queue.is_empty()).collect();
        let fresh = Self {
            limits: self.limits,
            idle_age: self.idle_age,
            refused: self.refused,
            next_id: self.next_id,
            ..Self::default()
        };
        (std::mem::replace(self, fresh), queues)
    }
}

// === impl Member ===

impl Member {
    /// Returns the part of [`GroupLimits::unindexed`] that the group has.
    fn limited_units(&self) -> usize {
        if self.place.is_limited {
            self.group.units
        } else {
            0
        }
    }

    /// Returns the group's entry in the list of idle groups, or `None` while the group has streams.
    fn idle(&self) -> Option<IdleGroup> {
        let since = self.idle_since?;
        Some(IdleGroup {
            id: self.group.id,
            since,
            weight: self.weight,
            limited_units: self.limited_units(),
        })
    }
}

#[cfg(test)]
mod tests;
