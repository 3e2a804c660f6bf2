//! Checks that one watcher gets every event that matches its selector, once and in order.

use serde::Serialize;

/// The maximum number of gaps that a checker remembers, in order to distinguish
/// a late event from a duplicate.
const MAX_GAPS: usize = 256;

/// How an event that a watcher received relates to the events before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The event shows the object's next write, or a later one; then the writes between are missed.
    New,
    /// The event shows a write that had been counted as missed.
    Late,
    /// The event shows a write that the watcher has already received.
    Duplicate,
    /// An initial object that the watcher had already received; sent again because the watch
    /// started again.
    Repeated,
    /// The event's object does not match the watcher's selector.
    Unwanted,
}

/// The numbers of events that were not delivered correctly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeliveryErrors {
    /// Events that were not delivered.
    pub missed: u64,
    /// Events that were delivered more than once.
    pub duplicated: u64,
    /// Events that were delivered after later events.
    pub out_of_order: u64,
    /// Events that do not match the watcher's selector, deletions (the test deletes nothing while
    /// watches are open), and events of writes that were never sent.
    pub unwanted: u64,
}

/// The numbers of the objects that a watcher selects: `first`, and every `step`th after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SelectedObjects {
    pub(crate) first: u32,
    pub(crate) step: u32,
    /// The number of all objects of the run.
    pub(crate) objects: u32,
}

/// Checks one watcher: remembers which writes its events have shown so far, and counts the events
/// that were missed, duplicated, out of order or unwanted.
#[derive(Clone, Debug)]
pub(crate) struct Checker {
    selected_objects: SelectedObjects,
    /// For each selected object, the number of the write that must come next; 0 if the watcher has
    /// not received the object yet.
    next: Box<[u32]>,
    /// The number of selected objects that the watcher has not received yet.
    unseen: usize,
    /// Missed writes, as object and number of the write; at most [`MAX_GAPS`].
    gaps: Vec<(u32, u32)>,
    errors: DeliveryErrors,
    /// The greatest resource version received since the checker was created or restarted.
    last_version: u64,
}

/// The acknowledged writes of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectWrites {
    /// The number of the last acknowledged write; 0 if there is none.
    pub(crate) acknowledged: u32,
    /// True if the next write was sent too, but its outcome is unknown.
    pub(crate) has_unknown_outcome: bool,
}

// === impl DeliveryErrors ===

impl DeliveryErrors {
    /// Returns true if there were no errors.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Formats the counts; `events` follows the first of them.
    pub(crate) fn describe(&self, events: &str) -> String {
        format!(
            "{}{events} missed, {} duplicated, {} out of order, {} unwanted",
            self.missed, self.duplicated, self.out_of_order, self.unwanted
        )
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.missed += other.missed;
        self.duplicated += other.duplicated;
        self.out_of_order += other.out_of_order;
        self.unwanted += other.unwanted;
    }
}

// === impl ObjectWrites ===

impl ObjectWrites {
    /// Returns these writes together with `later` ones to the same object.
    pub(crate) fn followed_by(self, later: Self) -> Self {
        match later.acknowledged {
            0 => Self {
                acknowledged: self.acknowledged,
                has_unknown_outcome: self.has_unknown_outcome || later.has_unknown_outcome,
            },
            _ => later,
        }
    }
}

// === impl SelectedObjects ===

impl SelectedObjects {
    pub(crate) fn count(self) -> usize {
        (self.first..self.objects).step_by(self.step as usize).len()
    }

    fn position(self, object: u32) -> Option<usize> {
        let offset = object.checked_sub(self.first)?;
        let is_wanted = object < self.objects && offset.is_multiple_of(self.step);
        is_wanted.then_some((offset / self.step) as usize)
    }

    fn object(self, position: usize) -> usize {
        self.first as usize + position * self.step as usize
    }
}

// === impl Checker ===

impl Checker {
    pub(crate) fn new(selected_objects: SelectedObjects) -> Self {
        let count = selected_objects.count();
        Self {
            selected_objects,
            next: vec![0; count].into(),
            unseen: count,
            gaps: Vec::new(),
            errors: DeliveryErrors::default(),
            last_version: 0,
        }
    }

    /// Returns true if the watcher has received every object that it selects.
    pub(crate) fn has_seen_all(&self) -> bool {
        self.unseen == 0
    }

    /// Checks an event that shows the write `sequence` of `object`, and counts at most one error
    /// for it. `version` is the object's resource version if it is a number. `is_state` is true if
    /// the event may be one of a watch's initial objects instead of a change.
    pub(crate) fn record(
        &mut self,
        object: u32,
        sequence: u32,
        version: Option<u64>,
        is_state: bool,
    ) -> Arrival {
        let Some(position) = self.selected_objects.position(object) else {
            self.errors.unwanted += 1;
            return Arrival::Unwanted;
        };
        // Initial objects are ordered by name, not by version.
        let is_behind = !is_state && version.is_some_and(|version| version <= self.last_version);
        self.last_version = self.last_version.max(version.unwrap_or_default());
        let next = self.next[position];
        if sequence >= next {
            if next == 0 {
                self.unseen -= 1;
            }
            for missed in next..sequence {
                self.errors.missed += 1;
                if self.gaps.len() < MAX_GAPS {
                    self.gaps.push((object, missed));
                }
            }
            self.next[position] = sequence + 1;
            self.errors.out_of_order += u64::from(is_behind);
            return Arrival::New;
        }
        if is_state && sequence + 1 == next {
            return Arrival::Repeated;
        }
        match self.gaps.iter().position(|gap| *gap == (object, sequence)) {
            Some(gap) => {
                self.gaps.swap_remove(gap);
                self.errors.missed -= 1;
                self.errors.out_of_order += 1;
                Arrival::Late
            }
            None => {
                self.errors.duplicated += 1;
                Arrival::Duplicate
            }
        }
    }

    /// Counts a DELETED event, which is always an error: the test deletes nothing while watches are
    /// open.
    pub(crate) fn record_deletion(&mut self) {
        self.errors.unwanted += 1;
    }

    /// Resets the order of versions, because a new watch starts with initial objects.
    pub(crate) fn restart(&mut self) {
        self.last_version = 0;
    }

    /// Returns all errors: those counted so far, the acknowledged writes that never arrived, and
    /// the events beyond the last write of their object.
    pub(crate) fn finish(&self, writes: &[ObjectWrites]) -> DeliveryErrors {
        let mut errors = self.errors;
        for (position, next) in self.next.iter().enumerate() {
            let writes = writes[self.selected_objects.object(position)];
            let end = writes.acknowledged + 1;
            errors.missed += u64::from(end.saturating_sub(*next));
            let most = end + u32::from(writes.has_unknown_outcome);
            errors.unwanted += u64::from(next.saturating_sub(most));
        }
        errors
    }
}

#[cfg(test)]
mod tests;
