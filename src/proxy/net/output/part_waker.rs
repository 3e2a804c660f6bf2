//! PartWaker: the waker of one part of a task, which notes that this part was woken.
//!
//! The task of a connection waits for several things: events, the socket, the end of the process.
//! Most of its wakes are events. A poll of the other parts would take locks and load their memory
//! into the CPU's cache. So the task polls them only if they were woken themselves.

use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Wake, Waker};

use parking_lot::Mutex;

/// The waker of one part of a task. A wake makes the part due, and wakes the task.
pub(in crate::net) struct PartWaker {
    wakes: Arc<Wakes>,
    bit: u8,
    waker: Waker,
    /// The waker in `wakes`. Comparing wakers costs less than storing one at each poll.
    task: Option<Waker>,
}

/// What the parts of a task share.
struct Wakes {
    /// The bits of the parts that are due.
    due: AtomicU8,
    task: Mutex<Option<Waker>>,
}

struct Part {
    wakes: Arc<Wakes>,
    bit: u8,
}

// === impl PartWaker ===

impl PartWaker {
    /// Creates the wakers of `N` parts of one task, at most eight. All of them are due.
    pub(in crate::net) fn for_parts<const N: usize>() -> [PartWaker; N] {
        let wakes = Arc::new(Wakes {
            due: AtomicU8::new(u8::MAX),
            task: Mutex::default(),
        });
        array::from_fn(|index| {
            let (wakes, bit) = (Arc::clone(&wakes), 1 << index);
            let part = Part {
                wakes: Arc::clone(&wakes),
                bit,
            };
            PartWaker {
                wakes,
                bit,
                waker: Waker::from(Arc::new(part)),
                task: None,
            }
        })
    }

    /// Returns the waker that the part must be polled with.
    pub(in crate::net) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Makes the part due without a wake.
    pub(in crate::net) fn set_due(&self) {
        self.wakes.due.fetch_or(self.bit, Ordering::AcqRel);
    }

    /// Returns true if the part is due, and notes that it is not any more: the caller polls it.
    /// Otherwise the next wake of the part wakes the task of `cx`.
    pub(in crate::net) fn take_due(&mut self, cx: &Context<'_>) -> bool {
        let is_same = |task: &Waker| task.will_wake(cx.waker());
        if !self.task.as_ref().is_some_and(is_same) {
            let replaced = self.wakes.task.lock().replace(cx.waker().clone());
            // Not under the lock, because dropping a waker may drop its task.
            drop(replaced);
            self.task = Some(cx.waker().clone());
        }
        // Most polls find nothing due, and only load the value.
        self.wakes.due.load(Ordering::Acquire) & self.bit != 0
            && self.wakes.due.fetch_and(!self.bit, Ordering::AcqRel) & self.bit != 0
    }
}

// === impl Part ===

impl Wake for Part {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The bit is set before the task is read, and `take_due` stores the task before it reads
        // the bit. So one of them finds the other.
        let due = self.wakes.due.fetch_or(self.bit, Ordering::AcqRel);
        if due & self.bit == 0 {
            let task = self.wakes.task.lock().clone();
            if let Some(task) = task {
                task.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Count {
        fn waker(self: &Arc<Self>) -> Waker {
            Waker::from(Arc::clone(self))
        }

        fn get(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_part_is_due_at_first_and_after_each_wake_of_its_own() {
        let count = Arc::new(Count::default());
        let task = count.waker();
        let cx = Context::from_waker(&task);
        let [mut one, mut other] = PartWaker::for_parts();
        for part in [&mut one, &mut other] {
            assert!(part.take_due(&cx) && !part.take_due(&cx));
        }
        let waker = one.waker().clone();
        waker.wake_by_ref();
        waker.wake();
        assert_eq!(count.get(), 1, "the task is woken once until its poll");
        assert!(!other.take_due(&cx));
        assert!(one.take_due(&cx) && !one.take_due(&cx));
        one.waker().wake_by_ref();
        assert_eq!(count.get(), 2);
        other.set_due();
        assert!(other.take_due(&cx) && !other.take_due(&cx));
        assert_eq!(count.get(), 2);
    }

    #[test]
    fn a_wake_reaches_the_task_of_the_last_poll() {
        let counts = [Count::default(), Count::default()].map(Arc::new);
        let [mut part] = PartWaker::for_parts();
        for count in &counts {
            let task = count.waker();
            part.take_due(&Context::from_waker(&task));
        }
        part.waker().wake_by_ref();
        assert_eq!(counts.map(|count| count.get()), [0, 1]);
    }
}
