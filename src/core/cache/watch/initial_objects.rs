//! InitialObjects: the objects of a snapshot that a watch begins with, read in batches.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::api::{Object, ObjectKey, Selection};
use crate::cache::objects::Snapshot;

/// Maximum number of objects that one call of [`InitialObjects::fill`] examines. A selector that no
/// index answers may select few of them.
const MAX_EXAMINED: usize = 256;

/// The selected objects of one snapshot, in key order.
pub struct InitialObjects {
    snapshot: Snapshot,
    /// The last key that was examined; `None` before the first batch.
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

    /// Returns the snapshot that the objects are read from.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns the last key that was examined, or `None` if none was.
    pub fn after(&self) -> Option<&ObjectKey> {
        self.after.as_ref()
    }

    /// Continues after `key`, because the client gets the objects up to `key` from elsewhere. This
    /// is only for a stream that has not fetched any objects.
    pub fn skip_to(&mut self, key: ObjectKey) {
        self.after = Some(key);
    }

    /// Returns the next fetched object, or `None` if it has more than `room` bytes, or if another
    /// batch must be fetched first.
    pub(super) fn take(&mut self, room: usize) -> Option<Arc<Object>> {
        let fits = |object: &mut Arc<Object>| object.body.len() <= room;
        self.fetched.pop_front_if(fits)
    }

    /// Fetches up to `max` more objects. Returns the number of objects that it examined, which is 0
    /// if there are no more.
    pub(super) fn fill(&mut self, selection: &Selection, max: usize) -> usize {
        let after = self.after.as_ref().map(ObjectKey::as_str);
        let candidates = self.snapshot.candidates(selection, after);
        let (mut examined, mut last) = (0, None);
        for object in candidates.take(MAX_EXAMINED) {
            (examined, last) = (examined + 1, Some(object));
            if selection.matches(object) {
                self.fetched.push_back(Arc::clone(object));
            }
            if self.fetched.len() >= max {
                break;
            }
        }
        if let Some(last) = last {
            self.after = Some(last.key.clone());
        }
        examined
    }
}
