//! A counter that several threads add to at a high rate.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number of parts. If there are more threads, some of them share a part.
const PARTS: usize = 8;

/// A counter with a part for each thread. If threads added to one number, its cache line would move
/// between their cores, which takes much longer than the addition.
#[derive(Debug, Default)]
pub struct ThreadCounter([Part; PARTS]);

/// A number with cache lines of its own. Processors fetch two neighbouring lines of 64 bytes.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Part(AtomicU64);

thread_local! {
    /// The index of this thread's part.
    static PART: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % PARTS
    };
}

impl ThreadCounter {
    /// Adds `more` to the part of this thread.
    pub fn add(&self, more: u64) {
        let part = PART.with(|part| *part);
        self.0[part].0.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the sum of all parts. A later call never returns less.
    pub fn sum(&self) -> u64 {
        let parts = self.0.iter();
        parts.map(|part| part.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_all_threads_add_is_counted() {
        let counter = ThreadCounter::default();
        let threads = 2 * PARTS;
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..1_000).for_each(|_| counter.add(3)));
            }
        });
        assert_eq!(counter.sum(), 3_000 * threads as u64);
    }
}
