//! Interest: all groups of a cache, and the groups that a change concerns.
//!
//! The index finds a group by a condition that all objects of its selection meet: a key, a name,
//! the value of a field or label, or the namespace. If a selection has several such conditions, the
//! group is indexed by the one that the fewest groups have. If it has none, the group is checked
//! for each change.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::Selection;
use crate::cache::config::Config;
use crate::cache::groups::group::Group;
use crate::cache::groups::group::QUEUED_EVENT_BYTES;
use crate::cache::groups::group::QueuedEvent;
use crate::cache::groups::group::shrink;
use crate::cache::groups::group_index::GroupIndex;
use crate::cache::groups::group_index::IndexedBy;
use crate::cache::groups::idle_groups::IdleGroups;
use crate::cache::groups::limits::GroupLimits;
use crate::cache::groups::limits::TooManyUnindexed;
use crate::cache::log::Event;
use crate::cache::log::EventLog;
use crate::mutation;
use crate::mutation::Mutation;

/// Maximum number of idle groups that are dropped in one critical section. A change drops no more,
/// which limits its delay.
pub(in crate::cache) const DROPPED_AT_ONCE: usize = 256;

/// All groups of the current epoch.
#[derive(Default)]
pub(in crate::cache) struct Interest {
    limits: GroupLimits,
    /// How long a group without streams is kept.
    idle_age: Duration,
    ids: HashMap<Arc<Selection>, u64>,
    members: HashMap<u64, Member>,
    index: GroupIndex,
    idle: IdleGroups,
    /// The queued events by log position, each with the ids of the groups that have it queued. Ids
    /// of removed groups stay until the event is the oldest.
    queue_order: VecDeque<(u64, Vec<u64>)>,
    /// Number of ids in `queue_order`.
    ordered: usize,
    /// Number of events in the queues of all groups.
    queued: usize,
    /// Number of streams that were refused since the start.
    refused: u64,
    next_id: u64,
}

struct Member {
    group: Arc<Group>,
    streams: usize,
    indexed_by: IndexedBy,
    /// When the last stream left; `None` while there are streams.
    idle_since: Option<Instant>,
}

/// The result of [`Interest::join`].
pub(in crate::cache) struct Joined {
    pub(in crate::cache) group: Arc<Group>,
    /// The group that gave way. Freeing its queue may take long.
    pub(in crate::cache) replaced: Option<Arc<Group>>,
}

/// The result of [`Interest::evict`].
pub(in crate::cache) struct QueueEviction {
    /// The number of groups whose queue was shortened; a group counts once for each event.
    pub(in crate::cache) visited: usize,
    /// True if there is more to drop.
    pub(in crate::cache) has_more: bool,
}

/// The result of [`Interest::expire`].
pub(in crate::cache) struct ExpiredGroups {
    interest: Interest,
    /// The events that were queued in the groups.
    _queues: Vec<VecDeque<QueuedEvent>>,
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

    /// The number of streams that were refused since the start.
    pub(in crate::cache) fn refused(&self) -> u64 {
        self.refused
    }

    /// The number of groups that have streams.
    pub(in crate::cache) fn len(&self) -> usize {
        self.members.len() - self.idle.len()
    }

    /// Adds a stream to the group of `selection`, which is created if necessary. A group without
    /// streams may give way; it is returned too, to be dropped outside of the locks.
    ///
    /// Borrowing `log` means that the caller holds the state's lock, so the tip cannot move: the
    /// writer offers a new group all events that it appends from then on.
    pub(in crate::cache) fn join(
        &mut self,
        selection: &Arc<Selection>,
        log: &EventLog,
    ) -> Result<Joined, TooManyUnindexed> {
        let id = self.ids.get(selection);
        if let Some(member) = id.and_then(|id| self.members.get_mut(id)) {
            member.streams += 1;
            if let Some(since) = member.idle_since.take() {
                let is_indexed = member.indexed_by.is_indexed();
                self.idle.remove(since, member.group.id, is_indexed);
            }
            return Ok(Joined {
                group: Arc::clone(&member.group),
                replaced: None,
            });
        }
        let indexed_by = self.index.entries_for(selection);
        let replaced = match indexed_by.is_indexed() {
            true => None,
            false => self.make_room_for_unindexed(selection)?,
        };
        let id = self.next_id;
        self.next_id += 1;
        let group = Arc::new(Group::new(id, Arc::clone(selection), log.tip()));
        self.index.insert(&group, &indexed_by);
        let member = Member {
            group: Arc::clone(&group),
            streams: 1,
            indexed_by,
            idle_since: None,
        };
        self.ids.insert(Arc::clone(selection), id);
        self.members.insert(id, member);
        Ok(Joined { group, replaced })
    }

    /// Adds a stream to `group`, which another stream keeps.
    pub(in crate::cache) fn add_stream(&mut self, group: &Arc<Group>) {
        if let Some(member) = self.members.get_mut(&group.id) {
            member.streams += 1;
        }
    }

    /// Removes and returns an idle group if there are too many groups that are checked for each
    /// change.
    fn make_room_for_unindexed(
        &mut self,
        selection: &Selection,
    ) -> Result<Option<Arc<Group>>, TooManyUnindexed> {
        let has_room = self.index.unindexed_groups() < self.limits.unindexed;
        // All watches of everything share one group, and other clients must not keep it out.
        if has_room || selection.is_everything() {
            return Ok(None);
        }
        let Some(idle) = self.idle.oldest_unindexed() else {
            self.refused += 1;
            return Err(TooManyUnindexed);
        };
        Ok(self.remove(idle))
    }

    /// Removes a stream from its group. The group stays for streams that resume, unless there are
    /// too many; then returns the oldest group, to be dropped outside of the lock.
    pub(in crate::cache) fn leave(
        &mut self,
        group: &Arc<Group>,
        now: Instant,
    ) -> Option<Arc<Group>> {
        // A group of an earlier epoch is no longer a member.
        let member = self.members.get_mut(&group.id)?;
        member.streams -= 1;
        if member.streams > 0 {
            return None;
        }
        member.idle_since = Some(now);
        let is_indexed = member.indexed_by.is_indexed();
        self.idle.add(now, group.id, is_indexed);
        let (_, oldest) = self.idle.oldest()?;
        let is_full = self.idle.len() > self.limits.idle;
        is_full.then(|| self.remove(oldest)).flatten()
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
        if let Some(since) = member.idle_since {
            let is_indexed = member.indexed_by.is_indexed();
            self.idle.remove(since, id, is_indexed);
        }
        self.ids.remove(&member.group.selection);
        self.index.remove(&member.group, &member.indexed_by);
        self.queued -= member.group.len();
        Some(member.group)
    }

    /// Queues `event`, at log position `position`, in all groups concerned, and adds these to
    /// `to_wake`. Returns the number of groups that were checked.
    pub(in crate::cache) fn publish(
        &mut self,
        position: u64,
        event: &Arc<Event>,
        to_wake: &mut Vec<Arc<Group>>,
    ) -> usize {
        let (mut checked, mut ids) = (0, Vec::new());
        self.index.find(event, |group| {
            checked += 1;
            if group.offer(position, event) {
                ids.push(group.id);
                to_wake.push(Arc::clone(group));
            }
        });
        if !ids.is_empty() {
            ids.shrink_to_fit();
            self.queued += ids.len();
            self.ordered += ids.len();
            self.queue_order.push_back((position, ids));
        }
        checked
    }

    /// Drops the events before log position `first` from all queues, and more of the oldest events
    /// if the queues take too much memory. Only streams that still need one of them are concerned.
    /// Guarded by `model_needs_unrelated_changes_to_expire_no_watch`.
    ///
    /// Stops after about `at_once` groups. Queues may keep events that the log has dropped, so the
    /// caller can unlock before it goes on.
    pub(in crate::cache) fn evict(&mut self, first: u64, at_once: usize) -> QueueEviction {
        if first > 0 && mutation::is_active(Mutation::EvictionExpiresAll) {
            self.groups().for_each(|group| drop(group.expire()));
        }
        let mut visited = 0;
        while let Some((position, _)) = self.queue_order.front()
            && (*position < first || self.queue_bytes() > self.limits.queue_bytes)
        {
            if visited >= at_once {
                return QueueEviction {
                    visited,
                    has_more: true,
                };
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
        QueueEviction {
            visited,
            has_more: false,
        }
    }

    fn queue_bytes(&self) -> usize {
        self.queued * QUEUED_EVENT_BYTES
            + self.ordered * size_of::<u64>()
            + self.queue_order.len() * size_of::<(u64, Vec<u64>)>()
    }

    pub(in crate::cache) fn groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.members.values().map(|member| &member.group)
    }

    /// Ends the epoch: expires all streams and removes all groups. Returns the removed groups and
    /// their events, so that the caller can drop them outside of its locks.
    pub(in crate::cache) fn expire(&mut self) -> ExpiredGroups {
        let queues = self.groups().map(|group| group.expire());
        let queues = queues.filter(|queue| !queue.is_empty()).collect();
        let fresh = Self {
            limits: self.limits,
            idle_age: self.idle_age,
            refused: self.refused,
            next_id: self.next_id,
            ..Self::default()
        };
        let interest = std::mem::replace(self, fresh);
        ExpiredGroups {
            interest,
            _queues: queues,
        }
    }
}

// === impl ExpiredGroups ===

impl ExpiredGroups {
    pub(in crate::cache) fn groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.interest.groups()
    }
}

#[cfg(test)]
mod tests;
