//! Whether one watcher got every event that its selector wants, once and in order.

use serde::Serialize;

/// Gaps that are remembered, so that an event which comes late is told from one that comes twice.
const MAX_GAPS: usize = 256;

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The next one of its object, or a later one: then those between are missed.
    New,
    /// One that was missed until now.
    Late,
    /// One that was there already.
    Duplicate,
    /// The state of an object, told again by a watch that began anew.
    Repeated,
    /// One that the selector does not want.
    Unwanted,
}

/// What went wrong with events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeliveryErrors {
    /// Events that did not come.
    pub missed: u64,
    /// Events that came twice.
    pub duplicated: u64,
    /// Events that came after later ones.
    pub out_of_order: u64,
    /// Events that the watcher's selector does not want, and deletions that nobody asked for.
    pub unwanted: u64,
}

/// The numbers of the objects that a watcher wants: `first`, and every `step`th after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SelectedObjects {
    pub(crate) first: u32,
    pub(crate) step: u32,
    /// Objects that there are.
    pub(crate) objects: u32,
}

/// The state of one watcher.
#[derive(Debug)]
pub(crate) struct Checker {
    selected_objects: SelectedObjects,
    /// Of each object that is wanted: the number of the write that comes next; 0 until it was seen.
    next: Box<[u32]>,
    unseen: usize,
    gaps: Vec<(u32, u32)>,
    errors: DeliveryErrors,
    /// The greatest version that came on this connection.
    last_version: u64,
}

/// How far the writes to an object are acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectWrites {
    /// The last write that was.
    pub(crate) acknowledged: u32,
    /// True when one more was sent, of which nobody knows.
    pub(crate) has_unknown_outcome: bool,
}

// === impl DeliveryErrors ===

impl DeliveryErrors {
    /// True when nothing went wrong.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.missed += other.missed;
        self.duplicated += other.duplicated;
        self.out_of_order += other.out_of_order;
        self.unwanted += other.unwanted;
    }
}

// === impl SelectedObjects ===

impl SelectedObjects {
    pub(crate) fn count(self) -> usize {
        (self.first..self.objects).step_by(self.step as usize).len()
    }

    fn position(self, object: u32) -> Option<usize> {
        let behind = object.checked_sub(self.first)?;
        let is_wanted = object < self.objects && behind.is_multiple_of(self.step);
        is_wanted.then_some((behind / self.step) as usize)
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

    /// True when every object that is wanted was seen.
    pub(crate) fn has_seen_all(&self) -> bool {
        self.unseen == 0
    }

    /// Takes the write `sequence` of `object`, told at `version` if that is a number; `is_state` when it may be
    /// an object's state rather than a change, at the beginning of a watch. An event has one fault at most.
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
        // States come by name, not by version.
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

    /// Takes a deletion, which nobody has asked for while this is open.
    pub(crate) fn record_deletion(&mut self) {
        self.errors.unwanted += 1;
    }

    /// Forgets the order of versions, as a watch begins anew.
    pub(crate) fn restart(&mut self) {
        self.last_version = 0;
    }

    /// The faults, with what is still missing of what was written.
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
