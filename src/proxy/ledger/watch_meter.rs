//! WatchMeter: what an open watch has delivered, and how far its reader is behind.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kubefan_core::cache::{WatchProgress, WatchStream};

/// What an open watch has delivered. Its body writes it once for each wake, and whatever shows
/// clients or counts what they use reads it. There is one for each watch, so it is small.
#[derive(Default)]
pub struct WatchMeter {
    /// Unknown while the watch gets older events than the cache has, and if no cache answers it.
    progress: OnceLock<WatchProgress>,
    events: AtomicU64,
    bytes: AtomicU64,
    is_expired: AtomicBool,
}

// === impl WatchMeter ===

impl WatchMeter {
    /// Creates the meter of a watch with the events of `stream`. Without a stream, nothing is known
    /// about its progress before [`WatchMeter::record`].
    pub fn new(stream: Option<&WatchStream>) -> Self {
        let meter = Self::default();
        if let Some(stream) = stream {
            meter.record(stream);
        }
        meter
    }

    /// Notes what `stream`, which has the events of the watch, has fetched.
    pub fn record(&self, stream: &WatchStream) {
        match self.progress.get() {
            Some(progress) => stream.record(progress),
            None => {
                self.progress.get_or_init(|| stream.progress());
            }
        }
    }

    /// Notes that `more` events were sent. Only the task that sends them calls it.
    pub fn add_events(&self, more: u64) {
        let events = self.events.load(Ordering::Relaxed);
        self.events.store(events + more, Ordering::Relaxed);
    }

    /// Notes that `bytes` bytes were sent since the start of the watch.
    pub fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Notes that the watch ends with 410 in its stream.
    pub fn set_expired(&self) {
        self.is_expired.store(true, Ordering::Relaxed);
    }

    /// Returns how far the watch is behind its cache, if that is known.
    pub fn watch_progress(&self) -> Option<&WatchProgress> {
        self.progress.get()
    }

    /// Returns the events that were sent, including initial events and the bookmark after them.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Returns the bytes that were sent, compressed if the client gets them compressed.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns true if the watch has ended with 410 in its stream.
    pub fn is_expired(&self) -> bool {
        self.is_expired.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_is_small() {
        assert!(size_of::<WatchMeter>() <= 64, "{}", size_of::<WatchMeter>());
    }
}
