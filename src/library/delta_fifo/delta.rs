//! Deltas: what happened to one object.

use std::ops::Deref;

/// One change of an object, with the object after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta<T> {
    /// The object was added.
    Added(T),
    /// The object changed.
    Updated(T),
    /// The object is part of a list that replaced all objects: the first list, or a later one. The
    /// list does not show whether the object changed.
    Replaced(T),
    /// A resync: the object did not change since it was last processed.
    Sync(T),
    /// The object was deleted. Holds its last state.
    Deleted(T),
    /// The object was deleted while no watch was open. Holds the last state that was received,
    /// which may not be the object's last state.
    DeletedFinalStateUnknown(T),
}

/// The changes of one object that were not processed, oldest first. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deltas<T>(Vec<Delta<T>>);

// === impl Delta ===

impl<T> Delta<T> {
    /// Returns the object after the change; for a deletion, the last state that was received.
    pub fn object(&self) -> &T {
        match self {
            Self::Added(object)
            | Self::Updated(object)
            | Self::Replaced(object)
            | Self::Sync(object)
            | Self::Deleted(object)
            | Self::DeletedFinalStateUnknown(object) => object,
        }
    }

    /// Returns true for both kinds of deletions.
    pub fn is_deletion(&self) -> bool {
        matches!(self, Self::Deleted(_) | Self::DeletedFinalStateUnknown(_))
    }
}

// === impl Deltas ===

impl<T> Deltas<T> {
    pub(super) fn new(first: Delta<T>) -> Self {
        Self(vec![first])
    }

    /// Appends a delta. Merges two deletions in a row, into one with the final state if possible.
    pub(super) fn push(&mut self, delta: Delta<T>) {
        match self.0.last_mut() {
            Some(last) if last.is_deletion() && delta.is_deletion() => {
                if matches!(last, Delta::DeletedFinalStateUnknown(_)) {
                    *last = delta;
                }
            }
            _ => self.0.push(delta),
        }
    }

    /// Returns the first of the changes.
    #[allow(clippy::missing_panics_doc)] // deltas are never empty
    pub fn oldest(&self) -> &Delta<T> {
        self.0.first().expect(NOT_EMPTY)
    }

    /// Returns the last of the changes, which has the newest state of the object.
    #[allow(clippy::missing_panics_doc)] // deltas are never empty
    pub fn newest(&self) -> &Delta<T> {
        self.0.last().expect(NOT_EMPTY)
    }
}

const NOT_EMPTY: &str = "deltas are made with one, and never removed";

impl<T> Deref for Deltas<T> {
    type Target = [Delta<T>];

    fn deref(&self) -> &[Delta<T>] {
        &self.0
    }
}

impl<T> IntoIterator for Deltas<T> {
    type Item = Delta<T>;
    type IntoIter = std::vec::IntoIter<Delta<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Deltas<T> {
    type Item = &'a Delta<T>;
    type IntoIter = std::slice::Iter<'a, Delta<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
