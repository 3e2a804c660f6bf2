//! The page of the caches.

use std::time::Duration;

use kubefan_core::api::Status;
use kubefan_core::cache::Stats;
use kubefan_core::informer::{Activity, CacheName};
use schemars::JsonSchema;
use serde::Serialize;

use super::cache_id::CacheId;
use crate::server::admin::api::page::{Page, now, seconds, seconds_since};
use crate::server::admin::api::sources::{ReadCache, Sources};
use crate::server::filters::RequestCounts;

/// The most caches of the page.
const MOST: usize = 1_000;
/// A cache is stale if its watch was not proven alive for this long, and `limits.maxStaleness` is
/// not set. The API server sends a bookmark each minute.
const STALE_AFTER: Duration = Duration::from_secs(120);

/// The caches, those with the most bytes first.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::server::admin::api) struct Caches {
    /// When the page was made, by RFC 3339.
    time: String,
    /// Whether the API server responds to pings and handshakes.
    upstream_responding: bool,
    /// The number of caches, even if the list has fewer.
    total: usize,
    /// The caches; at most 1,000, or 100 in a snapshot.
    items: Vec<Cache>,
    /// The requests of clients by resource, for all formats and scopes together.
    requests: Vec<ResourceRequests>,
}

/// A cache.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Cache {
    cache: CacheId,
    state: CacheState,
    /// What the cache's task does: listing, resuming, watching or waiting; absent before it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    activity: Option<&'static str>,
    /// Seconds since the task began this activity.
    #[serde(skip_serializing_if = "Option::is_none")]
    activity_seconds: Option<f64>,
    /// Whether the cache ends when no client has used it for some time.
    on_demand: bool,
    /// The resource version up to which the cache is complete; absent before the first list.
    #[serde(skip_serializing_if = "Option::is_none")]
    applied_version: Option<String>,
    /// Objects in the cache.
    objects: usize,
    /// Bytes of the objects.
    object_bytes: usize,
    event_log: EventLog,
    /// Open watches that the cache serves, with kubefan's own.
    watchers: usize,
    /// Different selections that are watched.
    selections: usize,
    /// Bytes of the queues of the watched selections; the events are those of the event log.
    queue_bytes: usize,
    /// Seconds since the newest change; absent if the event log has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_change_seconds: Option<f64>,
    /// Seconds since the watch of the API server was last proven alive.
    #[serde(skip_serializing_if = "Option::is_none")]
    watch_age_seconds: Option<f64>,
    /// Events that were added to the event log since the cache began.
    events_total: u64,
    /// Events that were sent to clients, initial events included.
    sent_events_total: u64,
    /// Lists that became the content of the cache, the first one included.
    lists_total: u64,
    /// New epochs, each of which ended all watches.
    epochs_total: u64,
}

/// The state of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum CacheState {
    /// It has no complete list yet, or none of a new epoch, and serves nothing.
    Syncing,
    /// It follows the API server.
    Live,
    /// It serves its content, while the watch is opened again or the objects are listed again.
    Reconnecting,
    /// It serves its content, but its watch was not proven alive for too long: two minutes, or
    /// limits.maxStaleness.
    Stale,
}

/// The recent changes of a cache.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EventLog {
    /// Events in the log.
    events: usize,
    /// Bytes of the events.
    bytes: usize,
    /// Seconds since the oldest event was added; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    span_seconds: Option<f64>,
    /// The oldest resource version from which a watch can start.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_version: Option<String>,
}

/// The requests for a resource since kubefan began.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ResourceRequests {
    /// The API group; empty for the core group.
    group: String,
    /// The plural name of the resource; empty for requests for no known resource.
    resource: String,
    /// Requests that a cache answered.
    cache: u64,
    /// Requests that were forwarded to the API server.
    forwarded: u64,
    /// Requests that kubefan refused.
    rejected: u64,
}

impl Page for Caches {
    const NAME: &'static str = "caches";
    const SUMMARY: &'static str =
        "The caches: their state, size, event log and watchers, and the requests of clients.";

    fn read(sources: &Sources) -> Result<Self, Status> {
        Self::largest(sources, &sources.read_caches()?, MOST)
    }
}

impl Caches {
    /// Reads the page with at most `most` of the caches `all`.
    pub(super) fn largest(
        sources: &Sources,
        all: &[ReadCache],
        most: usize,
    ) -> Result<Self, Status> {
        let server = &sources.started()?.server.inner;
        let informers = &server.caches.informers;
        let limit = informers.max_staleness().unwrap_or(STALE_AFTER);
        let id = |cache: &ReadCache| CacheId::from(&CacheName::of(&cache.informer));
        let mut shown: Vec<_> = all.iter().collect();
        shown.sort_by(|a, b| {
            let by_size = b.stats.bytes.cmp(&a.stats.bytes);
            by_size.then_with(|| id(a).cmp(&id(b)))
        });
        shown.truncate(most);
        let counts = server.records.metrics.by_resource();
        Ok(Self {
            time: now(),
            upstream_responding: informers.is_upstream_responding(),
            total: all.len(),
            items: shown.iter().map(|cache| Cache::of(cache, limit)).collect(),
            requests: counts.into_iter().map(ResourceRequests::from).collect(),
        })
    }
}

impl Cache {
    fn of(ReadCache { informer, stats }: &ReadCache, stale_after: Duration) -> Self {
        let activity = informer.metrics().activity();
        let age = informer.metrics().watch_liveness.age();
        let is_ready = stats.applied.is_some();
        let does = activity.map(|(activity, _)| activity);
        Self {
            cache: CacheId::from(&CacheName::of(informer)),
            state: CacheState::of(is_ready, does, age, stale_after),
            activity: does.map(name_of),
            activity_seconds: activity.map(|(_, since)| seconds_since(since)),
            on_demand: !informer.is_pinned(),
            applied_version: stats.applied.map(|version| version.to_string()),
            objects: stats.objects,
            object_bytes: stats.bytes,
            event_log: EventLog::of(stats),
            watchers: stats.watchers,
            selections: stats.groups,
            queue_bytes: stats.queue_bytes,
            last_change_seconds: informer.reader().changed_at().map(seconds_since),
            watch_age_seconds: age.map(seconds),
            events_total: stats.events,
            sent_events_total: informer.events_sent(),
            lists_total: stats.relists,
            epochs_total: stats.epochs,
        }
    }
}

impl EventLog {
    fn of(stats: &Stats) -> Self {
        Self {
            events: stats.log_events,
            bytes: stats.log_bytes,
            span_seconds: stats.log_oldest.map(seconds_since),
            start_version: stats.log_start.map(|version| version.to_string()),
        }
    }
}

impl CacheState {
    /// Returns the state of a cache that has content if `is_ready`, and with a watch that was last
    /// proven alive at the given age.
    fn of(
        is_ready: bool,
        activity: Option<Activity>,
        age: Option<Duration>,
        stale_after: Duration,
    ) -> Self {
        match activity {
            _ if !is_ready => Self::Syncing,
            _ if age.is_some_and(|age| age > stale_after) => Self::Stale,
            Some(Activity::Watching) => Self::Live,
            _ => Self::Reconnecting,
        }
    }
}

fn name_of(activity: Activity) -> &'static str {
    match activity {
        Activity::Listing => "listing",
        Activity::Resuming => "resuming",
        Activity::Watching => "watching",
        Activity::Waiting => "waiting",
    }
}

impl From<RequestCounts> for ResourceRequests {
    fn from(counts: RequestCounts) -> Self {
        Self {
            group: counts.group,
            resource: counts.resource,
            cache: counts.cache,
            forwarded: counts.forwarded,
            rejected: counts.rejected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_cache() {
        use Activity::{Listing, Resuming, Waiting, Watching};
        use CacheState::{Live, Reconnecting, Stale, Syncing};
        let rows = [
            (false, None, None, Syncing),
            (false, Some(Listing), None, Syncing),
            (false, Some(Waiting), Some(500), Syncing),
            (true, Some(Watching), Some(0), Live),
            (true, Some(Watching), Some(120), Live),
            (true, Some(Watching), Some(121), Stale),
            (true, Some(Resuming), Some(1), Reconnecting),
            (true, Some(Waiting), Some(1), Reconnecting),
            (true, Some(Waiting), Some(500), Stale),
            // A relist was requested.
            (true, Some(Listing), Some(1), Reconnecting),
        ];
        for (is_ready, activity, age, expected) in rows {
            let age = age.map(Duration::from_secs);
            let state = CacheState::of(is_ready, activity, age, STALE_AFTER);
            assert_eq!(state, expected, "{is_ready} {activity:?} {age:?}");
        }
    }
}
