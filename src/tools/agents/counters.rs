//! Counts of requests and of their answers, by clients and by the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start, and the number of open watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests: lists and watches.
    pub requests: u64,
    /// Watches that are open now.
    pub watches: u64,
    /// Events of watches, including bookmarks and the events for initial objects.
    pub events: u64,
    /// Bytes of all answers' bodies.
    pub bytes: u64,
    /// Watches that ended or broke after they had been open.
    pub ended: u64,
    /// Requests that were refused or got no answer; all of them are sent again. Only clients count
    /// them.
    pub refused: u64,
}

/// The running counts of [`Totals`].
#[derive(Default)]
pub struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) watches: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) ended: AtomicU64,
    pub(crate) refused: AtomicU64,
}

/// Counts an open watch until it is dropped, and then as ended.
pub(crate) struct OpenWatch(Arc<Counters>);

impl Counters {
    /// Returns the counts so far.
    pub fn totals(&self) -> Totals {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            requests: value(&self.requests),
            watches: value(&self.watches),
            events: value(&self.events),
            bytes: value(&self.bytes),
            ended: value(&self.ended),
            refused: value(&self.refused),
        }
    }

    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

impl OpenWatch {
    pub(crate) fn new(counters: &Arc<Counters>) -> Self {
        Counters::add(&counters.watches, 1);
        Self(Arc::clone(counters))
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::Relaxed);
        Counters::add(&self.0.ended, 1);
    }
}
