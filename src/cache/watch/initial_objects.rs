//! InitialObjects: a snapshot's objects that a watch begins with, some at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::api::Object;
use crate::api::ObjectKey;
use crate::api::Selection;
use crate::cache::objects::Snapshot;

/// The objects of one snapshot that are selected, in order.
pub(super) struct InitialObjects {
    snapshot: Snapshot,
    /// The last key that was fetched.
    after: Option<ObjectKey>,
    fetched: VecDeque<Arc<Object>>,
}

impl InitialObjects {
    pub(super) fn new(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            after: None,
            fetched: VecDeque::new(),
        }
    }

    /// The next of those that were fetched.
    pub(super) fn take(&mut self) -> Option<Arc<Object>> {
        self.fetched.pop_front()
    }

    /// Fetches up to `max` more objects; false when there are none.
    pub(super) fn fill(&mut self, selection: &Selection, max: usize) -> bool {
        let after = self.after.as_ref().map(ObjectKey::as_str);
        self.fetched
            .extend(self.snapshot.list(selection, after).take(max));
        if let Some(last) = self.fetched.back() {
            self.after = Some(last.key.clone());
        }
        !self.fetched.is_empty()
    }
}
