//! The answer to one question, and the turns of the callers that ask it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How many callers may ask equal questions concurrently, after answers that were not definite.
pub(super) const MAX_ASKERS: usize = 8;

pub(super) struct Entry<V> {
    pub(super) known: RwLock<Option<Known<V>>>,
    /// Returns how much more the entry weighs with an answer.
    weight_of: fn(&V) -> usize,
    pub(super) weight: Weight,
    /// A semaphore with a permit for each caller that may ask.
    pub(super) asking: Arc<Semaphore>,
    /// The number of permits of `asking`, including those that callers hold.
    askers: Mutex<usize>,
}

/// The weight of one entry. It counts in the weight of the entry's shard until it is dropped.
pub(super) struct Weight {
    of_shard: Arc<AtomicUsize>,
    of_question: usize,
    of_answer: AtomicUsize,
}

#[derive(Clone)]
pub(super) struct Known<V> {
    pub(super) value: V,
    pub(super) asked_at: Instant,
    pub(super) until: Instant,
}

// === impl Known ===

impl<V> Known<V> {
    /// Creates an answer that is valid for `validity` after `asked_at`.
    pub(super) fn new(value: V, asked_at: Instant, validity: Duration) -> Self {
        Self {
            value,
            asked_at,
            until: asked_at + validity,
        }
    }

    pub(super) fn is_current(&self, earliest: impl FnOnce(&V) -> Option<Instant>) -> bool {
        earliest(&self.value).is_none_or(|earliest| self.asked_at >= earliest)
    }
}

// === impl Weight ===

impl Weight {
    pub(super) fn of_question(of_shard: &Arc<AtomicUsize>, of_question: usize) -> Self {
        of_shard.fetch_add(of_question, Ordering::Relaxed);
        Self {
            of_shard: Arc::clone(of_shard),
            of_question,
            of_answer: AtomicUsize::new(0),
        }
    }

    pub(super) fn set_answer(&self, weight: usize) {
        // Added first, so that the sum is never below 0.
        self.of_shard.fetch_add(weight, Ordering::Relaxed);
        let before = self.of_answer.swap(weight, Ordering::Relaxed);
        self.of_shard.fetch_sub(before, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> usize {
        self.of_question + self.of_answer.load(Ordering::Relaxed)
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.of_shard.fetch_sub(self.get(), Ordering::Relaxed);
    }
}

// === impl Entry ===

impl<V: Clone> Entry<V> {
    pub(super) fn new(weight: Weight, weight_of: fn(&V) -> usize) -> Self {
        Self {
            known: RwLock::new(None),
            weight_of,
            weight,
            asking: Arc::new(Semaphore::new(1)),
            askers: Mutex::new(1),
        }
    }

    /// Returns the answer if it is valid. For its value, `earliest` returns the moment before which
    /// it must not have been asked for.
    pub(super) fn known(&self, earliest: impl FnOnce(&V) -> Option<Instant>) -> Option<V> {
        self.last_if(|known| known.until > Instant::now() && known.is_current(earliest))
    }

    /// Returns the last answer if `counts` returns true for it.
    pub(super) fn last_if(&self, counts: impl FnOnce(&Known<V>) -> bool) -> Option<V> {
        let known = self.known.read();
        let known = known.as_ref().filter(|known| counts(known))?;
        Some(known.value.clone())
    }

    /// Remembers `answer`, unless the remembered answer was asked for later.
    pub(super) fn remember(&self, answer: Known<V>) {
        let mut known = self.known.write();
        let is_newer = |known: &Known<V>| known.asked_at > answer.asked_at;
        if !known.as_ref().is_some_and(is_newer) {
            self.weight.set_answer((self.weight_of)(&answer.value));
            *known = Some(answer);
        }
    }

    /// Ends a `turn` after an answer that is not definite. One more caller may ask then.
    pub(super) fn widen(&self, turn: OwnedSemaphorePermit) {
        let mut askers = self.askers.lock();
        if *askers < MAX_ASKERS {
            *askers += 1;
            self.asking.add_permits(1);
        }
        drop(turn);
    }

    /// Ends a `turn` after a definite answer. From then on, one caller asks at a time.
    pub(super) fn narrow(&self, turn: OwnedSemaphorePermit) {
        let mut askers = self.askers.lock();
        if *askers > 1 {
            turn.forget();
            *askers -= 1;
            *askers -= self.asking.forget_permits(*askers - 1);
        }
    }
}
