//! WakeSet: all readers that are woken together, on any thread.

use std::sync::Arc;
use std::task::Waker;

use crate::cache::sync::RwLock;
use crate::cache::wake::wake_list::WakeList;

#[derive(Default)]
pub(in crate::cache) struct WakeSet {
    /// One list for each thread that has a dispatcher, and one list for all other threads.
    pub(super) lists: RwLock<Vec<Arc<WakeList>>>,
}

// === impl WakeSet ===

impl WakeSet {
    /// Wakes all readers that registered since the last call, or makes their dispatchers do it.
    /// `wakers` is empty before and after; passing it reuses its memory.
    pub(in crate::cache) fn notify(&self, wakers: &mut Vec<Waker>) {
        // Fetch the lists one by one, so that no lock is held while wakers run.
        let mut index = 0;
        while let Some(list) = self.list(index) {
            list.notify(wakers);
            index += 1;
        }
    }

    fn list(&self, index: usize) -> Option<Arc<WakeList>> {
        self.lists.read().get(index).map(Arc::clone)
    }

    /// Returns the list for readers on the current thread, created if necessary.
    pub(super) fn local(&self) -> Arc<WakeList> {
        if let Some(list) = self.lists.read().iter().find(|list| list.is_local()) {
            return Arc::clone(list);
        }
        let list = Arc::new(WakeList::new());
        let mut lists = self.lists.write();
        // Replace an abandoned list in place: `notify` may be iterating by index concurrently.
        match lists.iter_mut().find(|list| list.is_abandoned()) {
            Some(abandoned) => *abandoned = Arc::clone(&list),
            None => {
                lists.reserve_exact(1);
                lists.push(Arc::clone(&list));
            }
        }
        list
    }
}
