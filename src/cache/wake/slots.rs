//! Slots: the wakers of a list, each in the slot of the reader that left it.

use std::task::Waker;

#[derive(Default)]
pub(super) struct Slots {
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

// === impl Slots ===

impl Slots {
    /// Takes all wakers that were left since the last time.
    pub(super) fn take_armed(&mut self, into: &mut Vec<Waker>) {
        let Self { slots, armed, .. } = self;
        let mut disarm = |index: u32| {
            let slot = &mut slots[index as usize];
            slot.is_armed = false;
            slot.waker.take()
        };
        into.extend(armed.drain(..).filter_map(&mut disarm));
    }

    /// A slot for a reader.
    pub(super) fn claim(&mut self) -> u32 {
        if let Some(index) = self.free.pop() {
            return index;
        }
        if self.slots.is_empty() {
            // Most lists have one reader.
            self.slots.reserve_exact(1);
            self.armed.reserve_exact(1);
        }
        self.slots.push(Slot::default());
        u32::try_from(self.slots.len() - 1).expect("fewer readers than 2^32")
    }

    /// Leaves `waker`; gives the one that it replaces.
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

    /// Takes a reader's slot back, and its waker.
    pub(super) fn release(&mut self, index: u32) -> Option<Waker> {
        self.free.push(index);
        self.slots[index as usize].waker.take()
    }

    /// How many slots there are, and how many are armed.
    #[cfg(test)]
    pub(super) fn lengths(&self) -> (usize, usize) {
        (self.slots.len(), self.armed.len())
    }
}
