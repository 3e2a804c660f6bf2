//! Interest: all groups of a cache, and the groups that a change concerns.
//!
//! The index finds a group by a condition that all objects of its selection meet: a key, a name,
//! the value of a field or label, or the namespace. If a selection has several such conditions, the
//! group is indexed by the one that the fewest groups have. If it has none, the group is checked
//! for each change.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::api::Selection;
use crate::cache::groups::group::Group;
use crate::cache::groups::group::QUEUED_EVENT_BYTES;
use crate::cache::groups::group::shrink;
use crate::cache::groups::group_index::GroupIndex;
use crate::cache::groups::group_index::Groups;
use crate::cache::groups::group_index::IndexedBy;
use crate::cache::log::Event;
use crate::cache::log::EventLog;
use crate::mutation;
use crate::mutation::Mutation;

/// All groups of the current epoch.
#[derive(Default)]
pub(in crate::cache) struct Interest {
    ids: HashMap<Arc<Selection>, u64>,
    members: HashMap<u64, Member>,
    index: GroupIndex,
    /// Log position and group id of each queued event of all groups, in the order of positions.
    queue_order: VecDeque<(u64, u64)>,
    next_id: u64,
}

struct Member {
    group: Arc<Group>,
    streams: usize,
    indexed_by: IndexedBy,
}

/// A group and the number of the next event in its queue.
pub(in crate::cache) type GroupPosition = (Arc<Group>, u64);

// === impl Interest ===

impl Interest {
    pub(in crate::cache) fn len(&self) -> usize {
        self.members.len()
    }

    /// Adds a stream, whose next event is at log position `position`, to the group of `selection`.
    /// Returns `None` if the group's queue does not cover all events from there; then the stream
    /// must read the log up to the tip first.
    ///
    /// Borrowing `log` means that the caller holds the state's lock, so the tip cannot move.
    /// Guarded by `model_needs_the_log_read_to_the_tip_before_joining`.
    pub(in crate::cache) fn join(
        &mut self,
        selection: &Arc<Selection>,
        position: u64,
        log: &EventLog,
    ) -> Option<GroupPosition> {
        let tip = log.tip();
        if position == tip || mutation::is_active(Mutation::JoinedBeforeTip) {
            return Some(self.join_at_tip(selection, tip));
        }
        let member = self.members.get_mut(self.ids.get(selection)?)?;
        let number = member.group.number_at(position)?;
        member.streams += 1;
        Some((Arc::clone(&member.group), number))
    }

    /// Adds a stream that has read the log up to `tip` to its group, which is created if necessary.
    fn join_at_tip(&mut self, selection: &Arc<Selection>, tip: u64) -> GroupPosition {
        let id = self.ids.get(selection);
        if let Some(member) = id.and_then(|id| self.members.get_mut(id)) {
            member.streams += 1;
            return (Arc::clone(&member.group), member.group.end());
        }
        let id = self.next_id;
        self.next_id += 1;
        let group = Arc::new(Group::new(id, Arc::clone(selection), tip));
        let indexed_by = self.index.insert(&group);
        let member = Member {
            group: Arc::clone(&group),
            streams: 1,
            indexed_by,
        };
        self.ids.insert(Arc::clone(selection), id);
        self.members.insert(id, member);
        (group, 0)
    }

    /// Removes a stream from its group, and the group if this was its last stream.
    pub(in crate::cache) fn leave(&mut self, group: &Arc<Group>) {
        // A group of an earlier epoch is no longer a member.
        let Some(member) = self.members.get_mut(&group.id) else {
            return;
        };
        member.streams -= 1;
        if member.streams > 0 {
            return;
        }
        self.ids.remove(&group.selection);
        if let Some(member) = self.members.remove(&group.id) {
            self.index.remove(group, &member.indexed_by);
        }
    }

    /// Queues `event`, at log position `position`, in all groups concerned; adds them to `to_wake`.
    pub(in crate::cache) fn publish(
        &mut self,
        position: u64,
        event: &Arc<Event>,
        to_wake: &mut Groups,
    ) {
        let Self {
            index, queue_order, ..
        } = self;
        let mut queued = 0;
        index.find(event, |group| {
            if group.offer(position, event) {
                queue_order.push_back((position, group.id));
                queued += 1;
                to_wake.push(Arc::clone(group));
            }
        });
        event.charge(queued * QUEUED_EVENT_BYTES);
    }

    /// Drops the events before log position `first` from all queues. Only streams that still need
    /// one of them expire. Guarded by `model_needs_unrelated_changes_to_expire_no_watch`.
    pub(in crate::cache) fn evict(&mut self, first: u64) {
        if first > 0 && mutation::is_active(Mutation::EvictionExpiresAll) {
            self.groups().for_each(|group| group.expire());
        }
        while let Some((_, id)) = self
            .queue_order
            .pop_front_if(|(position, _)| *position < first)
        {
            if let Some(member) = self.members.get(&id) {
                member.group.evict(first);
            }
        }
        shrink(&mut self.queue_order);
    }

    pub(in crate::cache) fn groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.members.values().map(|member| &member.group)
    }

    /// Ends the epoch: expires all streams and removes all groups. Returns the removed groups, so
    /// that the caller can drop them outside of its locks.
    pub(in crate::cache) fn expire(&mut self) -> Self {
        self.groups().for_each(|group| group.expire());
        let next_id = self.next_id;
        let fresh = Self {
            next_id,
            ..Self::default()
        };
        std::mem::replace(self, fresh)
    }
}

#[cfg(test)]
mod tests;
