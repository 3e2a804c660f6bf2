//! Retention: the limits of the log and of the pinned snapshots.

use std::time::Duration;

use crate::cache::config::Config;

/// The default byte limit is `STORES` times the size of the objects, but at least this.
const MIN_RETENTION_BYTES: usize = 64 << 20;

/// A change of every object must fit, or a relist that finds one ends the watches that it should
/// bring up to date. It holds the old and the new objects, and about as many bytes of frames.
const STORES: usize = 4;

/// The limits of the log, which also apply to the pinned snapshots.
#[derive(Clone, Copy, Debug)]
pub(in crate::cache) struct Retention {
    pub(in crate::cache) age: Duration,
    /// Number of newest events (and of newest holes) that are retained regardless of `age`.
    pub(in crate::cache) events: usize,
    pub(in crate::cache) bytes: usize,
}

// === impl Retention ===

impl Retention {
    /// Returns the limits from `config`, or the default byte limit for a store of
    /// `store_bytes` bytes.
    pub(in crate::cache) fn new(config: &Config, store_bytes: usize) -> Self {
        let default = || MIN_RETENTION_BYTES.max(store_bytes.saturating_mul(STORES));
        Self {
            age: config.retention_age,
            events: config.retention_events,
            bytes: config.retention_bytes.unwrap_or_else(default),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;
    use crate::api::{EventType, Object, ObjectKey, ObjectValues, ResourceVersion};
    use crate::cache::log::Event;
    use crate::cache::log::event_log::EventLog;
    use crate::cache::tests::support::config;

    #[test]
    fn a_change_of_every_object_fits_with_its_frames() {
        for (count, body) in [(100_000, 400), (20_000, 4_000)] {
            let object = |version: u64| {
                let body = vec![b'x'; body].into();
                let values = ObjectValues::default();
                let key = ObjectKey::new(Some("default"), "a");
                Arc::new(Object::new(key, ResourceVersion(version), &values, body))
            };
            let mut log = EventLog::new(ResourceVersion(1), Arc::default());
            let mut entries = log.new_entries(count);
            let (before, after) = (object(1), object(2));
            for _ in 0..count {
                let previous = Some(Arc::clone(&before));
                let event = Event::new(EventType::Modified, Arc::clone(&after), previous, None);
                let event = Arc::new(event);
                entries.push(&event);
                event.frame(EventType::Modified, || vec![b'x'; body + 40].into());
            }
            let now = Instant::now();
            log.append(entries, now);
            let retention = Retention::new(&config(), count * after.size());
            assert_eq!(
                log.evict(retention, now, count, ResourceVersion(2)).len(),
                0,
                "{body}"
            );
        }
    }
}
