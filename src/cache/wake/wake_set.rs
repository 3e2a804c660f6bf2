//! WakeSet: all who wait for the same, on whatever thread.

use std::sync::Arc;
use std::task::Waker;

use parking_lot::RwLock;

use crate::cache::wake::wake_list::WakeList;

/// All who wait for the same.
#[derive(Default)]
pub(in crate::cache) struct WakeSet {
    /// A list for each thread that has a dispatcher, and one for all others.
    lists: RwLock<Vec<Arc<WakeList>>>,
}

// === impl WakeSet ===

impl WakeSet {
    /// Has everyone woken who registered since the last call; `wakers` is lent for its memory.
    pub(in crate::cache) fn notify(&self, wakers: &mut Vec<Waker>) {
        // One by one: no lock is held while foreign code runs.
        let mut index = 0;
        while let Some(list) = self.list(index) {
            list.notify(wakers);
            index += 1;
        }
    }

    fn list(&self, index: usize) -> Option<Arc<WakeList>> {
        self.lists.read().get(index).map(Arc::clone)
    }

    /// The list of the current thread.
    pub(super) fn local(&self) -> Arc<WakeList> {
        if let Some(list) = self.lists.read().iter().find(|list| list.is_local()) {
            return Arc::clone(list);
        }
        let list = Arc::new(WakeList::new());
        let mut lists = self.lists.write();
        // In place, as someone may be counting through them.
        match lists.iter_mut().find(|list| list.is_abandoned()) {
            Some(abandoned) => *abandoned = Arc::clone(&list),
            None => {
                lists.reserve_exact(1);
                lists.push(Arc::clone(&list));
            }
        }
        list
    }

    #[cfg(test)]
    pub(super) fn lists(&self) -> Vec<Arc<WakeList>> {
        self.lists.read().clone()
    }
}
