//! The recent recoveries of reflectors: relists and resumed watches, each with its causes.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::error::{Cause, Error};
use super::signals::RelistReason;
use crate::cache::ReplaceOutcome;
use crate::informer::CacheName;

/// How many relists are remembered, and how many resumed watches.
const MOST_RECORDS: usize = 64;
/// How many different causes of one recovery are remembered.
const MOST_CAUSES: usize = 8;
/// The most characters of an error that are remembered.
const MOST_CHARACTERS: usize = 500;

/// The last recoveries of all reflectors of a process. A watch that the API server has ended as it
/// does with every watch, and that was resumed, is none.
#[derive(Debug, Default)]
pub struct RecentRecoveries(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    relists: VecDeque<Arc<RecoveryRecord>>,
    resumes: VecDeque<Arc<RecoveryRecord>>,
}

/// A recovery that has ended.
#[derive(Clone, Debug)]
pub struct RecoveryRecord {
    /// The cache of the reflector.
    pub cache: Arc<CacheName>,
    /// What the reflector recovered from.
    pub interruption: Interruption,
    /// How it recovered.
    pub end: RecoveryEnd,
    /// When the cache had the new list, or the watch was open again.
    pub ended_at: Instant,
}

/// The failures from the first one to the recovery.
#[derive(Clone, Debug)]
pub struct Interruption {
    /// When the first call failed.
    pub began_at: Instant,
    /// The number of failures.
    pub failures: u32,
    /// The causes of the failures in their order, without repetitions in sequence; at most 8.
    pub causes: Vec<Cause>,
    /// Why a relist was requested, if one was.
    pub relist_reason: Option<RelistReason>,
    /// The last error.
    pub error: String,
    /// The number of clients' watches that ended because a new epoch began.
    pub ended_watches: usize,
}

/// How a reflector recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryEnd {
    /// A watch continues after the applied version.
    Resumed,
    /// A new list is the content of the cache.
    Listed {
        /// What the list was to the content before.
        outcome: ReplaceOutcome,
        /// The number of objects in the list.
        objects: usize,
    },
}

/// The current interruption of one reflector, and where its end is recorded.
#[derive(Debug)]
pub(in crate::informer) struct RecoveryLog {
    cache: Arc<CacheName>,
    recent: Arc<RecentRecoveries>,
    interruption: Option<Interruption>,
}

// === impl RecentRecoveries ===

impl RecentRecoveries {
    /// Returns the last 64 relists, the newest first. A first list is one of them if it failed
    /// before.
    pub fn relists(&self) -> Vec<Arc<RecoveryRecord>> {
        self.0.lock().relists.iter().rev().cloned().collect()
    }

    /// Returns the last 64 resumed watches, the newest first.
    pub fn resumes(&self) -> Vec<Arc<RecoveryRecord>> {
        self.0.lock().resumes.iter().rev().cloned().collect()
    }

    fn add(&self, record: RecoveryRecord) {
        let mut recent = self.0.lock();
        let records = match record.end {
            RecoveryEnd::Listed { .. } => &mut recent.relists,
            RecoveryEnd::Resumed => &mut recent.resumes,
        };
        if records.len() == MOST_RECORDS {
            records.pop_front();
        }
        records.push_back(Arc::new(record));
    }
}

// === impl RecoveryLog ===

impl RecoveryLog {
    /// Creates the log of the reflector of `cache`, which adds to `recent`.
    pub(in crate::informer) fn new(cache: CacheName, recent: Arc<RecentRecoveries>) -> Self {
        Self {
            cache: Arc::new(cache),
            recent,
            interruption: None,
        }
    }

    /// Records that a call or a watch failed.
    pub(super) fn failed(&mut self, error: &Error) {
        let interruption = self.interruption.get_or_insert_with(|| Interruption {
            began_at: Instant::now(),
            failures: 0,
            causes: Vec::new(),
            relist_reason: None,
            error: String::new(),
            ended_watches: 0,
        });
        let cause = error.cause();
        let causes = &mut interruption.causes;
        if causes.last() != Some(&cause) && causes.len() < MOST_CAUSES {
            causes.push(cause);
        }
        if let Error::RelistRequested(reason) = error {
            interruption.relist_reason = Some(*reason);
        }
        interruption.failures += 1;
        interruption.error = error.to_string().chars().take(MOST_CHARACTERS).collect();
    }

    /// Records that a new epoch began, which ended `watches` watches.
    pub(super) fn epoch_began(&mut self, watches: usize) {
        if let Some(interruption) = &mut self.interruption {
            interruption.ended_watches += watches;
        }
    }

    /// Records that the cache has the content of a new list of `objects` objects.
    pub(super) fn listed(&mut self, outcome: ReplaceOutcome, objects: usize) {
        self.end(RecoveryEnd::Listed { outcome, objects });
    }

    /// Records that a watch was opened.
    pub(super) fn watched(&mut self) {
        self.end(RecoveryEnd::Resumed);
    }

    fn end(&mut self, end: RecoveryEnd) {
        let Some(interruption) = self.interruption.take() else {
            return;
        };
        let is_routine = interruption.causes == [Cause::EndOfStream];
        if is_routine && end == RecoveryEnd::Resumed {
            return;
        }
        self.recent.add(RecoveryRecord {
            cache: Arc::clone(&self.cache),
            interruption,
            end,
            ended_at: Instant::now(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{GroupVersionResource, WireFormat};
    use crate::informer::ObjectContent;
    use crate::upstream::Scope;

    fn log(recent: &Arc<RecentRecoveries>, resource: &str) -> RecoveryLog {
        let cache = CacheName {
            resource: GroupVersionResource::new("", "v1", resource),
            format: WireFormat::Json,
            content: ObjectContent::Whole,
            scope: Scope::default(),
        };
        RecoveryLog::new(cache, Arc::clone(recent))
    }

    #[test]
    fn a_recovery_has_its_causes_in_order_and_a_usual_end_of_a_watch_is_none() {
        let recent = Arc::new(RecentRecoveries::default());
        let mut log = log(&recent, "pods");
        log.watched();
        log.failed(&Error::EndOfStream);
        log.watched();
        assert!(recent.resumes().is_empty() && recent.relists().is_empty());

        log.failed(&Error::EndOfStream);
        log.failed(&Error::Overdue);
        log.failed(&Error::Overdue);
        log.watched();
        log.failed(&Error::RelistRequested(RelistReason::CacheDiffers));
        log.epoch_began(3);
        let outcome = ReplaceOutcome::First;
        log.listed(outcome, 7);
        // The list is followed by the first watch, which is no recovery.
        log.watched();

        let (resumes, relists) = (recent.resumes(), recent.relists());
        assert_eq!((resumes.len(), relists.len()), (1, 1));
        let resumed = &resumes[0].interruption;
        assert_eq!(resumed.causes, [Cause::EndOfStream, Cause::Overdue]);
        assert_eq!(resumed.failures, 3);
        assert_eq!(resumed.error, Error::Overdue.to_string());
        let relisted = &relists[0].interruption;
        assert_eq!(relisted.causes, [Cause::RelistRequested]);
        assert_eq!(relisted.relist_reason, Some(RelistReason::CacheDiffers));
        assert_eq!(relisted.ended_watches, 3);
        let end = RecoveryEnd::Listed {
            outcome,
            objects: 7,
        };
        assert_eq!(relists[0].end, end);
    }

    #[test]
    fn relists_and_resumed_watches_do_not_displace_each_other() {
        let recent = Arc::new(RecentRecoveries::default());
        let (mut pods, mut nodes) = (log(&recent, "pods"), log(&recent, "nodes"));
        nodes.failed(&Error::Overdue);
        nodes.listed(ReplaceOutcome::First, 1);
        for _ in 0..=MOST_RECORDS {
            pods.failed(&Error::Overdue);
            pods.watched();
        }
        nodes.failed(&Error::Overdue);
        nodes.watched();
        let resumes = recent.resumes();
        assert_eq!(resumes.len(), MOST_RECORDS);
        assert_eq!(resumes[0].cache.resource.resource, "nodes");
        assert_eq!(resumes[1].cache.resource.resource, "pods");
        assert_eq!(recent.relists().len(), 1);
    }

    #[test]
    fn what_is_remembered_of_an_interruption_is_bounded() {
        let recent = Arc::new(RecentRecoveries::default());
        let mut log = log(&recent, "pods");
        for _ in 0..100 {
            log.failed(&Error::Overdue);
            log.failed(&Error::EndOfStream);
        }
        let status = crate::api::Status::failure(500, "", "x".repeat(10_000));
        log.failed(&Error::from(status));
        log.watched();
        let interruption = &recent.resumes()[0].interruption;
        assert_eq!(interruption.causes.len(), MOST_CAUSES);
        assert_eq!(interruption.failures, 201);
        assert!(interruption.error.len() <= MOST_CHARACTERS);
    }
}
