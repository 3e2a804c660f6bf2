//! Charge: the bytes of an event, which its log counts while it retains the event, and the process
//! while only readers hold it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The bytes of the events that logs have evicted while a client's stream, or the HTTP
/// library, still holds them or one of their frames. Cheap to clone; caches with clones of one
/// value count together.
#[derive(Clone, Debug, Default)]
pub struct EvictedBytes(Arc<AtomicI64>);

/// The bytes of the events of one log, or of several that share a byte limit.
#[derive(Debug, Default)]
pub(in crate::cache) struct LogBytes {
    /// Of the events that the log retains.
    retained: AtomicI64,
    evicted: EvictedBytes,
}

/// The bytes of one event. The event and its frames share this value, so it is dropped when the
/// last of them is.
#[derive(Debug, Default)]
pub(super) struct Charge {
    /// The bytes, with [`EVICTED`] once the log has evicted the event.
    bytes: AtomicU64,
    log: OnceLock<Arc<LogBytes>>,
}

/// The bit of [`Charge::bytes`] that says that the event was evicted.
const EVICTED: u64 = 1 << 63;

// === impl EvictedBytes ===

impl EvictedBytes {
    /// Returns the bytes now.
    pub fn get(&self) -> u64 {
        clamped(&self.0)
    }
}

// === impl LogBytes ===

impl LogBytes {
    pub(in crate::cache) fn new(evicted: EvictedBytes) -> Self {
        Self {
            retained: AtomicI64::new(0),
            evicted,
        }
    }

    /// Returns the bytes of the events that the log retains.
    pub(in crate::cache) fn retained(&self) -> usize {
        usize::try_from(clamped(&self.retained)).unwrap_or(usize::MAX)
    }

    /// Returns the count that an event with `bits` in [`Charge::bytes`] is a part of.
    fn count(&self, bits: u64) -> &AtomicI64 {
        match bits & EVICTED {
            0 => &self.retained,
            _ => &self.evicted.0,
        }
    }
}

/// Returns a count, which is below zero for a moment if an event is evicted while a
/// frame is added to it.
fn clamped(count: &AtomicI64) -> u64 {
    u64::try_from(count.load(Ordering::Relaxed)).unwrap_or(0)
}

// === impl Charge ===

impl Charge {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            bytes: AtomicU64::new(bytes as u64),
            log: OnceLock::new(),
        }
    }

    /// Adds `more` bytes, those of a frame that was encoded.
    pub(super) fn add(&self, more: usize) {
        let Some(log) = self.log.get() else {
            return;
        };
        // An eviction in between moves these bytes before they are counted, and the count is right
        // again after the next line.
        let bits = self.bytes.fetch_add(more as u64, Ordering::Relaxed);
        log.count(bits).fetch_add(more as i64, Ordering::Relaxed);
    }

    /// Counts the bytes as retained by the log of `log`.
    pub(super) fn begin(&self, log: &Arc<LogBytes>) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        log.retained.fetch_add(bytes as i64, Ordering::Relaxed);
        self.log.get_or_init(|| Arc::clone(log));
    }

    /// Counts the bytes as evicted.
    pub(super) fn end(&self) {
        let Some(log) = self.log.get() else {
            return;
        };
        let bits = self.bytes.fetch_or(EVICTED, Ordering::Relaxed);
        if bits & EVICTED == 0 {
            log.retained.fetch_sub(bits as i64, Ordering::Relaxed);
            log.evicted.0.fetch_add(bits as i64, Ordering::Relaxed);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(log) = self.log.get() {
            let bits = *self.bytes.get_mut();
            let bytes = (bits & !EVICTED) as i64;
            log.count(bits).fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_move_from_the_log_to_the_process_and_vanish_at_the_end() {
        let evicted = EvictedBytes::default();
        let log = Arc::new(LogBytes::new(evicted.clone()));
        let counts = || (log.retained(), evicted.get());
        let charge = Charge::new(100);
        charge.add(7);
        assert_eq!(counts(), (0, 0), "not in a log yet");
        charge.begin(&log);
        charge.add(10);
        assert_eq!(counts(), (110, 0));
        charge.end();
        charge.end();
        assert_eq!(counts(), (0, 110));
        charge.add(5);
        assert_eq!(counts(), (0, 115));
        drop(charge);
        assert_eq!(counts(), (0, 0));
        let unevicted = Charge::new(3);
        unevicted.begin(&log);
        drop(unevicted);
        assert_eq!(counts(), (0, 0));
    }
}
