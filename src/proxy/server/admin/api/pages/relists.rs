//! The page of the recent relists and resumed watches.

use std::sync::Arc;

use kubefan_core::api::Status;
use kubefan_core::cache::ReplaceOutcome;
use kubefan_core::informer::{RecoveryEnd, RecoveryRecord, RelistReason};
use schemars::JsonSchema;
use serde::Serialize;

use super::cache_id::CacheId;
use crate::server::admin::api::page::{Page, now, seconds, seconds_since};
use crate::server::admin::api::sources::Sources;

/// The most relists, and the most resumed watches, of the page.
const MOST: usize = 64;

/// The last recoveries of caches, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::server::admin::api) struct Relists {
    /// When the page was made, by RFC 3339.
    time: String,
    /// The last relists, and first lists that failed before; at most 64, or 16 in a snapshot.
    relists: Vec<Recovery>,
    /// The last watches that were resumed, without those that ended as every watch does; at most
    /// 64, or 16 in a snapshot.
    resumes: Vec<Recovery>,
}

/// How a cache has come to follow the API server again.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Recovery {
    cache: CacheId,
    /// What the cache has done: resumed its watch; taken its first list; relisted, and its watches
    /// went on; or begun a new epoch, which ended all watches: resumed, listed, relisted or
    /// newEpoch.
    result: &'static str,
    /// The causes in order, without repetitions in sequence, at most 8: the label cause of the
    /// metric kubefan_upstream_watch_ends_total.
    causes: Vec<&'static str>,
    /// Why a relist was requested: cacheDiffers, otherHistory, definitionChanged or unspecified.
    /// Absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_because: Option<&'static str>,
    /// The last error, as text for people.
    error: String,
    /// The number of calls and watches that failed.
    failures: u32,
    /// Seconds since the end of the recovery.
    age_seconds: f64,
    /// Seconds from the first failure to the end.
    took_seconds: f64,
    /// Objects in the list; absent if the watch was resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<usize>,
    /// What the list has changed; absent if it was not compared with an earlier content.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Changes>,
    /// Watches of clients that ended because of a new epoch.
    ended_watches: usize,
}

/// The differences between a list and the content before it.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Changes {
    /// Objects that were new or recreated.
    added: usize,
    /// Objects that had a newer version.
    modified: usize,
    /// Objects that were gone or recreated.
    deleted: usize,
}

impl Page for Relists {
    const NAME: &'static str = "relists";
    const SUMMARY: &'static str =
        "The last relists and resumed watches of the caches, with their causes.";

    fn read(sources: &Sources) -> Result<Self, Status> {
        Self::newest(sources, MOST)
    }
}

impl Relists {
    /// Reads the page with at most `most` recoveries of each kind.
    pub(super) fn newest(sources: &Sources, most: usize) -> Result<Self, Status> {
        let recoveries = sources
            .started()?
            .server
            .inner
            .caches
            .informers
            .recoveries();
        let shown = |records: Vec<Arc<RecoveryRecord>>| {
            let records = records.iter().take(most);
            records.map(|record| Recovery::of(record)).collect()
        };
        Ok(Self {
            time: now(),
            relists: shown(recoveries.relists()),
            resumes: shown(recoveries.resumes()),
        })
    }
}

impl Recovery {
    fn of(record: &RecoveryRecord) -> Self {
        let interruption = &record.interruption;
        let (result, objects, changes) = match record.end {
            RecoveryEnd::Resumed => ("resumed", None, None),
            RecoveryEnd::Listed { outcome, objects } => {
                let (result, changes) = result_of(outcome);
                (result, Some(objects), changes)
            }
        };
        let took = record.ended_at.duration_since(interruption.began_at);
        Self {
            cache: CacheId::from(&*record.cache),
            result,
            causes: interruption
                .causes
                .iter()
                .map(|cause| cause.name())
                .collect(),
            requested_because: interruption.relist_reason.map(name_of),
            error: interruption.error.clone(),
            failures: interruption.failures,
            age_seconds: seconds_since(record.ended_at),
            took_seconds: seconds(took),
            objects,
            changes,
            ended_watches: interruption.ended_watches,
        }
    }
}

/// Returns the name of `outcome`, and the changes that it has.
fn result_of(outcome: ReplaceOutcome) -> (&'static str, Option<Changes>) {
    match outcome {
        ReplaceOutcome::First => ("listed", None),
        ReplaceOutcome::NewEpoch(_) => ("newEpoch", None),
        ReplaceOutcome::Diffed {
            added,
            modified,
            deleted,
        } => {
            let changes = Changes {
                added,
                modified,
                deleted,
            };
            ("relisted", Some(changes))
        }
    }
}

fn name_of(reason: RelistReason) -> &'static str {
    match reason {
        RelistReason::CacheDiffers => "cacheDiffers",
        RelistReason::OtherHistory => "otherHistory",
        RelistReason::DefinitionChanged => "definitionChanged",
        _ => "unspecified",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kubefan_core::api::{GroupVersionResource, WireFormat};
    use kubefan_core::cache::EpochCause;
    use kubefan_core::informer::{CacheName, Cause, Interruption, ObjectContent};
    use kubefan_core::upstream::Scope;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;

    /// Returns what the page shows of a recovery that took 2 s and ended 3 s ago.
    async fn shown(end: RecoveryEnd) -> Value {
        let cache = CacheName {
            resource: GroupVersionResource::new("", "v1", "pods"),
            format: WireFormat::Json,
            content: ObjectContent::Whole,
            scope: Scope::default(),
        };
        let began_at = Instant::now();
        tokio::time::advance(Duration::from_secs(2)).await;
        let record = RecoveryRecord {
            cache: Arc::new(cache),
            interruption: Interruption {
                began_at,
                failures: 4,
                causes: vec![Cause::Transport, Cause::RelistRequested],
                relist_reason: Some(RelistReason::CacheDiffers),
                error: "refused".to_owned(),
                ended_watches: 5,
            },
            end,
            ended_at: Instant::now(),
        };
        tokio::time::advance(Duration::from_secs(3)).await;
        serde_json::to_value(Recovery::of(&record)).expect("JSON")
    }

    #[tokio::test(start_paused = true)]
    async fn a_recovery_has_its_causes_and_its_result() {
        let diffed = ReplaceOutcome::Diffed {
            added: 1,
            modified: 2,
            deleted: 3,
        };
        let changes = json!({"added": 1, "modified": 2, "deleted": 3});
        let listed = |outcome| RecoveryEnd::Listed {
            outcome,
            objects: 9,
        };
        let new_epoch = ReplaceOutcome::NewEpoch(EpochCause::WentBack);
        for (end, result, objects, changes) in [
            (RecoveryEnd::Resumed, "resumed", None, None),
            (listed(ReplaceOutcome::First), "listed", Some(9), None),
            (listed(diffed), "relisted", Some(9), Some(changes)),
            (listed(new_epoch), "newEpoch", Some(9), None),
        ] {
            let mut expected = json!({
                "cache": {
                    "group": "", "version": "v1", "resource": "pods",
                    "format": "json", "content": "whole",
                },
                "result": result, "causes": ["transport", "relist_requested"],
                "requestedBecause": "cacheDiffers", "error": "refused", "failures": 4,
                "ageSeconds": 3.0, "tookSeconds": 2.0, "endedWatches": 5,
            });
            if let Some(objects) = objects {
                expected["objects"] = objects.into();
            }
            if let Some(changes) = changes {
                expected["changes"] = changes;
            }
            assert_eq!(shown(end).await, expected);
        }
    }
}
