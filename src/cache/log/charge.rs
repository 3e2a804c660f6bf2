//! Charge: the bytes that an event counts against its log's limit.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

/// What an event counts in its log, until it is evicted.
#[derive(Debug, Default)]
pub(super) struct Charge {
    bytes: AtomicUsize,
    ledger: OnceLock<Arc<AtomicUsize>>,
}

/// Marks a [`Charge`] that no longer counts.
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
        // The ledger first: an eviction in between takes off only what was put on.
        ledger.fetch_add(more, Ordering::Relaxed);
        let grow = |bytes: usize| (bytes != EVICTED).then(|| bytes + more);
        let grown = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow);
        if grown.is_err() {
            ledger.fetch_sub(more, Ordering::Relaxed);
        }
    }

    /// Lets `ledger` count this charge, now and as it grows.
    pub(super) fn begin(&self, ledger: &Arc<AtomicUsize>) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        ledger.fetch_add(bytes, Ordering::Relaxed);
        self.ledger.get_or_init(|| ledger.clone());
    }

    /// Takes this charge off its ledger for good.
    pub(super) fn end(&self) {
        let bytes = self.bytes.swap(EVICTED, Ordering::Relaxed);
        if let (Some(ledger), true) = (self.ledger.get(), bytes != EVICTED) {
            ledger.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}
