//! Wake-ups: the only signal from the writer to its readers.
//!
//! A reader that has caught up leaves its waker in a slot of its own and then looks again; the
//! writer takes all wakers that were left. Slots are freed when their owner is dropped, so the list
//! is as long as the readers alive.

use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;

/// All wakers left since the last wake-up.
#[derive(Default)]
pub(super) struct WakeList(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// The slots that were armed since the last wake-up, each once.
    armed: Vec<usize>,
}

#[derive(Default)]
struct Slot {
    waker: Option<Waker>,
    is_armed: bool,
}

/// One reader's slot.
pub(super) struct Registration {
    list: Arc<WakeList>,
    slot: Option<usize>,
}

// === impl WakeList ===

impl WakeList {
    /// Wakes everyone who registered since the last call.
    pub(super) fn wake_all(&self) {
        let wakers = self.0.lock().take_armed();
        for waker in wakers {
            waker.wake();
        }
    }

    #[cfg(test)]
    pub(super) fn slot_count(&self) -> usize {
        self.0.lock().slots.len()
    }

    #[cfg(test)]
    pub(super) fn armed_count(&self) -> usize {
        self.0.lock().armed.len()
    }
}

impl Slots {
    fn take_armed(&mut self) -> Vec<Waker> {
        let Self { slots, armed, .. } = self;
        let mut disarm = |index: usize| {
            slots[index].is_armed = false;
            slots[index].waker.take()
        };
        armed.drain(..).filter_map(&mut disarm).collect()
    }

    fn claim(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        })
    }

    fn arm(&mut self, index: usize, waker: &Waker) -> Option<Waker> {
        let slot = &mut self.slots[index];
        if !slot.is_armed {
            slot.is_armed = true;
            self.armed.push(index);
        }
        match &slot.waker {
            Some(left) if left.will_wake(waker) => None,
            _ => slot.waker.replace(waker.clone()),
        }
    }
}

// === impl Registration ===

impl Registration {
    pub(super) fn new(list: &Arc<WakeList>) -> Self {
        Self {
            list: list.clone(),
            slot: None,
        }
    }

    /// Asks for one wake-up. What it waits for must be looked at again after this.
    pub(super) fn register(&mut self, waker: &Waker) {
        #[cfg(test)]
        BEFORE_REGISTERING.take().into_iter().for_each(|act| act());
        let replaced = {
            let mut slots = self.list.0.lock();
            let index = *self.slot.get_or_insert_with(|| slots.claim());
            slots.arm(index, waker)
        };
        // Outside of the lock, since dropping a waker may drop a task, and that task its stream.
        drop(replaced);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Some(index) = self.slot else { return };
        let left = {
            let mut slots = self.list.0.lock();
            slots.free.push(index);
            slots.slots[index].waker.take()
        };
        drop(left);
    }
}

#[cfg(test)]
thread_local! {
    static BEFORE_REGISTERING: std::cell::Cell<Option<Box<dyn FnOnce()>>> =
        const { std::cell::Cell::new(None) };
}

/// Has `act` done once, on this thread, at the moment when a wake-up could be lost.
#[cfg(test)]
pub(super) fn before_registering(act: impl FnOnce() + 'static) {
    BEFORE_REGISTERING.set(Some(Box::new(act)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn registering_asks_for_exactly_one_wake_up() {
        let list = Arc::new(WakeList::default());
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut registration = Registration::new(&list);
        registration.register(&waker);
        registration.register(&waker);
        list.wake_all();
        list.wake_all();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        registration.register(&waker);
        list.wake_all();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn dropped_readers_leave_nothing_that_grows() {
        let list = Arc::new(WakeList::default());
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        for _ in 0..1000 {
            let mut registration = Registration::new(&list);
            registration.register(&waker);
        }
        assert_eq!((list.slot_count(), list.armed_count()), (1, 1));
        assert_eq!(Arc::strong_count(&count), 2, "only `count` and `waker`");
        list.wake_all();
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_reused_slot_wakes_its_new_owner() {
        let list = Arc::new(WakeList::default());
        let (old, new) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let mut first = Registration::new(&list);
        first.register(&Waker::from(old.clone()));
        drop(first);
        let mut second = Registration::new(&list);
        second.register(&Waker::from(new.clone()));
        list.wake_all();
        assert_eq!(old.0.load(Ordering::Relaxed), 0);
        assert_eq!(new.0.load(Ordering::Relaxed), 1);
    }
}
