//! WatchProgress: how far a watch is behind its cache, for observers of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::cache::groups::Group;
use crate::cache::state::SharedCache;

/// Set in [`WatchProgress::reached`] if the rest is a position in the log, and not the number of an
/// event in the group's queue.
const IN_LOG: u64 = 1 << 63;

/// What a [`WatchStream`](crate::cache::WatchStream) had fetched when its reader last recorded it.
///
/// The reader of the stream records this now and then, and not for each event. So a stream that has
/// not recorded its last events seems to be behind by them.
pub struct WatchProgress {
    shared: Arc<SharedCache>,
    group: Arc<Group>,
    reached: AtomicU64,
}

/// What a watch has not fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// The number of events.
    pub events: u64,
    /// When the first of them that the event log still has was appended to it. `None` if there is
    /// none.
    pub since: Option<Instant>,
}

// === impl WatchProgress ===

impl WatchProgress {
    /// Creates the progress of a stream in `group` that needs event `number` of the group's queue
    /// next, or without a number the event at `position` of the log.
    pub(super) fn new(
        shared: &Arc<SharedCache>,
        group: &Arc<Group>,
        (number, position): (Option<u64>, u64),
    ) -> Self {
        let progress = Self {
            shared: Arc::clone(shared),
            group: Arc::clone(group),
            reached: AtomicU64::default(),
        };
        progress.set((number, position));
        progress
    }

    /// Sets what the stream needs next, as for [`WatchProgress::new`].
    pub(super) fn set(&self, (number, position): (Option<u64>, u64)) {
        let reached = number.unwrap_or(position | IN_LOG);
        self.reached.store(reached, Ordering::Relaxed);
    }

    /// Returns for how long the event log retains events, unless it exceeds its limit of bytes.
    pub fn retention_age(&self) -> Duration {
        self.shared.config.retention_age
    }

    /// Returns what the stream has not fetched. Initial objects do not count. Returns `None` if the
    /// stream is about to end, because the cache was closed or a new epoch has begun.
    pub fn behind(&self) -> Option<Behind> {
        let reached = self.reached.load(Ordering::Relaxed);
        if reached & IN_LOG == 0 {
            let (events, first) = self.group.not_fetched(reached)?;
            let since = first.and_then(|first| self.shared.state.read().log.appended_at(first));
            return Some(Behind { events, since });
        }
        let position = reached & !IN_LOG;
        let state = self.shared.state.read();
        Some(Behind {
            events: state.log.tip().saturating_sub(position),
            since: state.log.appended_at(position),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{EventType, ResourceVersion};
    use crate::cache::tests::support::{config, object};
    use crate::cache::{Reader, WatchFrom, Writer, cache};

    /// Returns a cache that has an empty list at version 1.
    fn ready() -> (Writer, Reader) {
        let (mut writer, reader) = cache(config());
        let relist = writer.relist();
        writer.replace(relist, ResourceVersion(1));
        (writer, reader)
    }

    /// Applies the change of an object at `version`.
    fn change(writer: &mut Writer, version: u64) {
        let event_type = match version {
            2 => EventType::Added,
            _ => EventType::Modified,
        };
        let applied = writer.apply(event_type, object("a", "1", version, "x"), None);
        applied.expect("a newer version");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_behind_by_the_events_that_it_has_not_fetched() {
        let (mut writer, reader) = ready();
        let watch = reader.watch(WatchFrom::Tip, Arc::default());
        let mut watch = watch.expect("the cache is ready");
        let progress = watch.progress();
        assert_eq!(progress.behind(), Some(Behind::default()));

        tokio::time::advance(Duration::from_secs(1)).await;
        let since = Some(Instant::now());
        for version in 2..=4 {
            change(&mut writer, version);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let three = Some(Behind { events: 3, since });
        assert_eq!(progress.behind(), three);

        // All three events are fetched together, and recorded later.
        watch.next().await.expect("an event");
        assert_eq!(progress.behind(), three);
        watch.record(&progress);
        assert_eq!(progress.behind(), Some(Behind::default()));

        drop(writer);
        assert_eq!(progress.behind(), None);
    }

    #[test]
    fn a_watch_of_the_past_is_behind_by_events_of_the_log() {
        let (mut writer, reader) = ready();
        for version in 2..=4 {
            change(&mut writer, version);
        }
        let from = WatchFrom::After(ResourceVersion(2));
        let watch = reader.watch(from, Arc::default());
        let watch = watch.expect("the log has the events");
        let behind = watch.progress().behind().expect("the cache is open");
        assert_eq!(behind.events, 2);
        assert!(behind.since.is_some());
    }
}
