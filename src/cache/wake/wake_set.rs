//! Wake-ups: the only signal from the writer to its readers.
//!
//! A reader that has caught up leaves its waker in a slot of its own, in the list of those who wait
//! for the same on the same thread. The writer takes all wakers that were left, or has the thread's
//! dispatcher take them. Slots are freed when their owner is dropped, so a list is as long as the
//! readers alive.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::task::Waker;

use parking_lot::Mutex;
use parking_lot::RwLock;

use crate::cache::wake::dispatcher::Inbox;

/// All who wait for the same.
#[derive(Default)]
pub(in crate::cache) struct WakeSet {
    /// A list for each thread that has a dispatcher, and one for all others.
    lists: RwLock<Vec<Arc<WakeList>>>,
}

/// The wakers left since the last wake-up by those who are woken together.
pub(in crate::cache) struct WakeList {
    /// Who wakes them; `None`: the writer itself.
    inbox: Option<Arc<Inbox>>,
    /// True when someone may have registered since the last notice.
    is_armed: AtomicBool,
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The slots that were armed since the last wake-up, each once.
    armed: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    waker: Option<Waker>,
    is_armed: bool,
}

/// One reader's slot.
#[derive(Default)]
pub(in crate::cache) struct Registration(Option<Place>);

struct Place {
    list: Arc<WakeList>,
    slot: u32,
}

/// A waker that is no longer needed. To be dropped outside of all locks, since that may drop a task,
/// and that task its stream.
#[must_use]
#[derive(Default)]
pub(in crate::cache) struct Replaced {
    _waker: Option<Waker>,
    _place: Option<Place>,
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
    fn local(&self) -> Arc<WakeList> {
        let is_local = |list: &&Arc<WakeList>| Inbox::is_installed(list.inbox.as_ref());
        if let Some(list) = self.lists.read().iter().find(is_local) {
            return Arc::clone(list);
        }
        let list = Arc::new(WakeList {
            inbox: Inbox::installed(),
            is_armed: AtomicBool::new(false),
            slots: Mutex::default(),
        });
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
    fn lists(&self) -> Vec<Arc<WakeList>> {
        self.lists.read().clone()
    }
}

// === impl WakeList ===

impl WakeList {
    /// Wakes everyone who registered since the last call; `wakers` is lent for its memory.
    pub(in crate::cache) fn wake_all(&self, wakers: &mut Vec<Waker>) {
        self.slots.lock().take_armed(wakers);
        wakers.drain(..).for_each(Waker::wake);
    }

    fn notify(self: Arc<Self>, wakers: &mut Vec<Waker>) {
        if !self.is_armed.swap(false, Ordering::SeqCst) {
            return;
        }
        match self.inbox.clone() {
            Some(inbox) => inbox.put(self),
            None => self.wake_all(wakers),
        }
    }

    /// True when its dispatcher is gone and nobody else holds it, so that nobody can register.
    fn is_abandoned(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && self.inbox.as_ref().is_some_and(|inbox| inbox.is_gone())
    }
}

impl Slots {
    fn take_armed(&mut self, into: &mut Vec<Waker>) {
        let Self { slots, armed, .. } = self;
        let mut disarm = |index: u32| {
            let slot = &mut slots[index as usize];
            slot.is_armed = false;
            slot.waker.take()
        };
        into.extend(armed.drain(..).filter_map(&mut disarm));
    }

    fn claim(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            if self.slots.is_empty() {
                // Most lists have one reader.
                self.slots.reserve_exact(1);
                self.armed.reserve_exact(1);
            }
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("fewer readers than 2^32")
        })
    }

    fn arm(&mut self, index: u32, waker: &Waker) -> Option<Waker> {
        let slot = &mut self.slots[index as usize];
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
    /// Asks for one wake-up from `set`, the same each time.
    ///
    /// What it waits for must be looked at again after this, unless it can't change meanwhile.
    pub(in crate::cache) fn register(&mut self, set: &WakeSet, waker: &Waker) -> Replaced {
        #[cfg(test)]
        BEFORE_REGISTERING.take().into_iter().for_each(|act| act());
        let is_local = |place: &mut Place| Inbox::is_installed(place.list.inbox.as_ref());
        let moved = self.0.take_if(|place| !is_local(place));
        let place = self.0.get_or_insert_with(|| {
            let list = set.local();
            let slot = list.slots.lock().claim();
            Place { list, slot }
        });
        let waker = {
            let mut slots = place.list.slots.lock();
            let replaced = slots.arm(place.slot, waker);
            place.list.is_armed.store(true, Ordering::SeqCst);
            replaced
        };
        Replaced {
            _waker: waker,
            _place: moved,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let left = {
            let mut slots = self.list.slots.lock();
            slots.free.push(self.slot);
            slots.slots[self.slot as usize].waker.take()
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
pub(in crate::cache) fn before_registering(act: impl FnOnce() + 'static) {
    BEFORE_REGISTERING.set(Some(Box::new(act)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
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
    fn dropped_readers_leave_nothing_that_grows() {
        let set = WakeSet::default();
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        for _ in 0..1000 {
            drop(Registration::default().register(&set, &waker));
        }
        let lists = set.lists();
        assert_eq!(lists.len(), 1);
        let slots = lists[0].slots.lock();
        assert_eq!((slots.slots.len(), slots.armed.len()), (1, 1));
        drop(slots);
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
