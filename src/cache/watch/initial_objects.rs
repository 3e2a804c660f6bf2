//! InitialObjects: the objects of a snapshot that a watch begins with, read in batches.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::api::Object;
use crate::api::ObjectKey;
use crate::api::Selection;
use crate::cache::objects::Snapshot;

/// The selected objects of one snapshot, in key order.
pub(super) struct InitialObjects {
    snapshot: Snapshot,
    /// The last key that was fetched; `None` before the first batch.
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

    /// The next fetched object; `None` if another batch must be fetched first.
    pub(super) fn take(&mut self) -> Option<Arc<Object>> {
        self.fetched.pop_front()
    }

    /// Fetches up to `max` more objects. Returns false if there are no more.
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
