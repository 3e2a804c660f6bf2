//! Interest: which groups of streams a change concerns, without asking all of them.
//!
//! A group is found by one condition that all objects of its selection meet: a name, the value of a
//! field or label, a namespace. Of several the one is taken that fewest groups have. A selection
//! without such a condition is asked each time.

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
    /// Log position and group of what is queued somewhere, in order.
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
    /// How many groups there are.
    pub(in crate::cache) fn len(&self) -> usize {
        self.members.len()
    }

    /// Joins the group of `selection` from log position `position` on; `None` when it hasn't all events
    /// from there on, and the caller must read the log up to its tip first.
    ///
    /// The log is only borrowed while the state's lock is held, so its tip stays where it is.
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

    /// Joins the group of `selection` at the log's `tip`, or makes it.
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

    /// Takes a stream out of its group, which is gone with its last one.
    pub(in crate::cache) fn leave(&mut self, group: &Arc<Group>) {
        // It may be of an earlier epoch.
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

    /// Queues `event` of log position `position` wherever it belongs, and adds the groups to `to_wake`.
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

    /// Forgets what is queued of events before log position `first`.
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

    /// All groups.
    pub(in crate::cache) fn groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.members.values().map(|member| &member.group)
    }

    /// Ends the epoch: all streams expire, and all groups are given back.
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
