//! Slots: the wakers of a wake list, one slot per reader.

use std::task::Waker;

#[derive(Default)]
pub(super) struct Slots {
    pub(super) slots: Vec<Slot>,
    free: Vec<u32>,
    /// The indexes of the slots that were armed since the last wake, each once.
    pub(super) armed: Vec<u32>,
}

#[derive(Default)]
pub(super) struct Slot {
    waker: Option<Waker>,
    is_armed: bool,
}

// === impl Slots ===

impl Slots {
    /// Moves the wakers of all armed slots to `into`.
    pub(super) fn take_armed(&mut self, into: &mut Vec<Waker>) {
        for index in self.armed.drain(..) {
            let slot = &mut self.slots[index as usize];
            slot.is_armed = false;
            into.extend(slot.waker.take());
        }
    }

    /// Reserves a slot for a reader and returns its index.
    pub(super) fn claim(&mut self) -> u32 {
        if let Some(index) = self.free.pop() {
            return index;
        }
        if self.slots.is_empty() {
            // Most wake lists have one reader, so reserve memory for exactly one slot.
            self.slots.reserve_exact(1);
            self.armed.reserve_exact(1);
        }
        self.slots.push(Slot::default());
        u32::try_from(self.slots.len() - 1).expect("fewer readers than 2^32")
    }

    /// Puts `waker` into the slot, and returns the waker that it replaces, if there is one.
    pub(super) fn arm(&mut self, index: u32, waker: &Waker) -> Option<Waker> {
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

    /// Frees a reader's slot and returns its waker, if there is one.
    pub(super) fn release(&mut self, index: u32) -> Option<Waker> {
        self.free.push(index);
        self.slots[index as usize].waker.take()
    }
}
