//! Charge: the bytes that an event adds to its log's total, which the byte limit applies to.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

/// The bytes that one event adds to the log's total until the event is evicted.
#[derive(Debug, Default)]
pub(super) struct Charge {
    bytes: AtomicUsize,
    ledger: OnceLock<Arc<AtomicUsize>>,
}

/// The value of [`Charge::bytes`] after the event was evicted.
const EVICTED: usize = usize::MAX;

// === impl Charge ===

impl Charge {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(bytes),
            ledger: OnceLock::new(),
        }
    }

    pub(super) fn add(&self, more: usize) {
        let Some(ledger) = self.ledger.get() else {
            return;
        };
        // Add to the ledger first. An eviction at the same time subtracts the event's bytes, and
        // must never subtract bytes that the ledger does not contain yet.
        ledger.fetch_add(more, Ordering::Relaxed);
        let grow = |bytes: usize| (bytes != EVICTED).then(|| bytes + more);
        let grown = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow);
        if grown.is_err() {
            ledger.fetch_sub(more, Ordering::Relaxed);
        }
    }

    /// Adds the bytes to `ledger`, and makes later [`Charge::add`] calls add to it too.
    pub(super) fn begin(&self, ledger: &Arc<AtomicUsize>) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        ledger.fetch_add(bytes, Ordering::Relaxed);
        self.ledger.get_or_init(|| ledger.clone());
    }

    /// Subtracts the bytes from the ledger. Later [`Charge::add`] calls have no effect.
    pub(super) fn end(&self) {
        let bytes = self.bytes.swap(EVICTED, Ordering::Relaxed);
        if let (Some(ledger), true) = (self.ledger.get(), bytes != EVICTED) {
            ledger.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}
