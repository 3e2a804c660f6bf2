//! Registration: the slot of one reader in a wake list.

use std::sync::Arc;
use std::task::Waker;

use crate::cache::wake::wake_list::WakeList;
use crate::cache::wake::wake_set::WakeSet;

/// The slot of one reader; empty until the reader waits for the first time.
#[derive(Default)]
pub(in crate::cache) struct Registration(Option<ClaimedSlot>);

struct ClaimedSlot {
    list: Arc<WakeList>,
    slot: u32,
}

/// A waker and a slot that are no longer needed. Drop them outside of all locks: dropping a waker
/// may drop its task, and that task may drop a stream.
#[must_use]
#[derive(Default)]
pub(in crate::cache) struct ReplacedWaker {
    _waker: Option<Waker>,
    _slot: Option<ClaimedSlot>,
}

// === impl Registration ===

impl Registration {
    /// Registers `waker` for one wake from `set`. All calls for one registration must pass the same
    /// set.
    ///
    /// After this call the reader must check its condition again, unless a lock prevents a change
    /// of the condition. Otherwise it could miss the wake. Guarded by
    /// `an_event_before_the_waker_is_registered_is_not_missed`.
    pub(in crate::cache) fn register(&mut self, set: &WakeSet, waker: &Waker) -> ReplacedWaker {
        #[cfg(test)]
        BEFORE_REGISTERING.take().into_iter().for_each(|act| act());
        let moved = self.0.take_if(|claimed| !claimed.list.is_local());
        let claimed = self.0.get_or_insert_with(|| {
            let list = set.local();
            let slot = list.slots.lock().claim();
            ClaimedSlot { list, slot }
        });
        ReplacedWaker {
            _waker: claimed.list.arm(claimed.slot, waker),
            _slot: moved,
        }
    }
}

impl Drop for ClaimedSlot {
    fn drop(&mut self) {
        drop(self.list.release(self.slot));
    }
}

#[cfg(test)]
thread_local! {
    static BEFORE_REGISTERING: std::cell::Cell<Option<Box<dyn FnOnce()>>> =
        const { std::cell::Cell::new(None) };
}

/// Runs `act` once on this thread, in the next call of [`Registration::register`] before the waker
/// is registered. At that moment a wake could be lost.
#[cfg(test)]
pub(in crate::cache) fn before_registering(act: impl FnOnce() + 'static) {
    BEFORE_REGISTERING.set(Some(Box::new(act)));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn registering_requests_exactly_one_wake_up() {
        let set = WakeSet::default();
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut registration = Registration::default();
        drop(registration.register(&set, &waker));
        drop(registration.register(&set, &waker));
        set.notify(&mut Vec::new());
        set.notify(&mut Vec::new());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        drop(registration.register(&set, &waker));
        set.notify(&mut Vec::new());
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn dropped_readers_do_not_grow_the_wake_list() {
        let set = WakeSet::default();
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        for _ in 0..1000 {
            drop(Registration::default().register(&set, &waker));
        }
        {
            let lists = set.lists.read();
            assert_eq!(lists.len(), 1);
            let slots = lists[0].slots.lock();
            assert_eq!((slots.slots.len(), slots.armed.len()), (1, 1));
        }
        assert_eq!(Arc::strong_count(&count), 2, "only `count` and `waker`");
        set.notify(&mut Vec::new());
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_reused_slot_wakes_its_new_owner() {
        let set = WakeSet::default();
        let (old, new) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let mut first = Registration::default();
        drop(first.register(&set, &Waker::from(old.clone())));
        drop(first);
        let mut second = Registration::default();
        drop(second.register(&set, &Waker::from(new.clone())));
        set.notify(&mut Vec::new());
        assert_eq!(old.0.load(Ordering::Relaxed), 0);
        assert_eq!(new.0.load(Ordering::Relaxed), 1);
    }
}
