//! Bridges: the short upstream watches that give clients the history before the log.
//!
//! [`crate::cache::Bridge`] has the rules by which clients get events from a bridge and continue
//! from the log. This module decides when an upstream watch is opened: one for all clients of a
//! selection that wait, at the oldest of their versions. It has bookmarks and a `timeoutSeconds` of
//! 3, so that the API server sends a bookmark after one to two seconds (two seconds before the
//! timeout), even if nothing changes. If none arrives, a barrier precedes the next watch.
//!
//! A bridge sends its requests with kubefan's identity, as informers do. Only watches that the
//! cache may answer get here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio::time::sleep;
use tokio::time::timeout;

use crate::api::ResourceVersion;
use crate::api::Status;
use crate::api::WatchEvent;
use crate::cache::Bridge;
use crate::cache::BridgeProgress;
use crate::cache::BridgeTotals;
use crate::cache::BridgeWriter;
use crate::cache::BridgedWatch;
use crate::cache::EvictedBytes;
use crate::cache::Gap;
use crate::shutdown::Shutdown;
use crate::telemetry::Samples;
use crate::upstream::Error;
use crate::upstream::ListerWatcher;
use crate::upstream::ResumePoint;
use crate::upstream::Scope;
use crate::upstream::WatchCall;

/// How many bridges of the process may read an upstream watch concurrently.
const MAX_OPEN: usize = 64;
/// How long a new bridge waits for more clients, so that it starts at the oldest version.
const GATHER_TIME: Duration = Duration::from_millis(50);
/// How long a bridge waits for its place among those that read an upstream watch.
const PLACE_WAIT: Duration = Duration::from_secs(5);
/// How long a bridge may take from its first upstream watch until it is complete.
const MAX_OPEN_TIME: Duration = Duration::from_secs(10);
/// How long a complete bridge keeps its events for clients that come later.
const KEEP_TIME: Duration = Duration::from_secs(30);
/// How often a complete bridge checks whether others need its memory.
const KEEP_CHECK: Duration = Duration::from_secs(1);
/// The `timeoutSeconds` of the upstream watch.
const WATCH_TIME: Duration = Duration::from_secs(3);
/// How long after its timeout an upstream watch may still be open.
const WATCH_GRACE: Duration = Duration::from_secs(1);
/// The first wait before another upstream watch; each further wait is twice as long.
const FIRST_RETRY: Duration = Duration::from_millis(100);

/// The limits and counters of all bridges of the process.
pub struct BridgeLimits {
    places: Semaphore,
    totals: Arc<BridgeTotals>,
    opened: AtomicU64,
    /// How many bytes of events all bridges of the process may buffer together.
    max_bytes: usize,
}

/// The bridges of one informer, by selection.
pub(super) struct Bridges<L> {
    /// Makes the client that watches the objects of a scope.
    source: Box<dyn Fn(&Scope) -> L + Send + Sync>,
    running: Arc<Mutex<HashMap<Scope, Arc<Bridge>>>>,
    limits: Arc<BridgeLimits>,
    shutdown: Shutdown,
}

/// How an upstream watch ended before the bridge was complete.
enum Broken {
    /// The API server no longer has the events after the requested version.
    Expired(Box<Status>),
    /// Another watch is opened after this wait, or after the usual one if that is longer.
    Retry(Duration),
}

// === impl BridgeLimits ===

impl BridgeLimits {
    /// The limits of bridges that buffer at most `max_bytes` together, and count the bytes of evicted
    /// events in `evicted`.
    pub(super) fn new(max_bytes: usize, evicted: EvictedBytes) -> Self {
        Self {
            places: Semaphore::new(MAX_OPEN),
            totals: Arc::new(BridgeTotals::new(evicted)),
            opened: AtomicU64::new(0),
            max_bytes,
        }
    }

    /// The bytes of the events that bridges have buffered, and their upper limit.
    pub fn buffered_bytes(&self) -> (usize, usize) {
        (self.totals.buffered_bytes(), self.max_bytes)
    }

    /// Adds the current metrics of all bridges to `samples`.
    pub fn sample(&self, samples: &mut Samples) {
        let open = MAX_OPEN - self.places.available_permits();
        samples.gauge(
            "kubefan_bridges",
            "Bridges that read an upstream watch for clients whose version is older than the log.",
            &[],
            open as f64,
        );
        samples.counter(
            "kubefan_bridge_upstream_watches_total",
            "Watches that bridges have opened at the API server.",
            &[],
            self.opened.load(Ordering::Relaxed) as f64,
        );
        for (result, count) in [
            ("joined", self.totals.joined()),
            ("expired", self.totals.expired()),
        ] {
            samples.counter(
                "kubefan_bridged_watches_total",
                "Clients' watches that a bridge has taken to the event log, or ended with an error (410).",
                &[("result", result)],
                count as f64,
            );
        }
    }
}

// === impl Bridges ===

impl<L: ListerWatcher> Bridges<L> {
    /// No bridges yet; each will read watches of `source` in a background task of `shutdown`.
    pub(super) fn new(
        source: impl Fn(&Scope) -> L + Send + Sync + 'static,
        limits: Arc<BridgeLimits>,
        shutdown: Shutdown,
    ) -> Self {
        Self {
            source: Box::new(source),
            running: Arc::default(),
            limits,
            shutdown,
        }
    }

    /// A watch that closes `gap` for the objects in `scope`, which are those that the selection of
    /// the gap selects. Starts a bridge unless a running one can close the gap.
    pub(super) fn watch(&self, mut gap: Gap, scope: &Scope) -> BridgedWatch {
        let mut running = self.running.lock();
        if let Some(bridge) = running.get(scope) {
            gap = match bridge.watch(gap) {
                Ok(watch) => return watch,
                Err(gap) => gap,
            };
        }
        let totals = Arc::clone(&self.limits.totals);
        let (writer, bridge, watch) = Bridge::new(gap, totals, self.limits.max_bytes);
        running.insert(scope.clone(), bridge);
        let source = (self.source)(scope);
        let (limits, scope) = (Arc::clone(&self.limits), scope.clone());
        let all = Arc::clone(&self.running);
        self.shutdown.spawn_background(async move {
            run(&writer, &source, &limits).await;
            {
                // Another bridge may have replaced this one.
                let mut all = all.lock();
                if all.get(&scope).is_some_and(|bridge| writer.is_of(bridge)) {
                    all.remove(&scope);
                }
            }
            // No watch can join any more, but one may have joined just before.
            if writer.is_complete() {
                let _ = timeout(KEEP_TIME, writer.abandoned()).await;
            }
        });
        watch
    }
}

/// Runs a bridge from the first client to the end of the time for which its events are kept.
async fn run<L: ListerWatcher>(writer: &BridgeWriter, source: &L, limits: &BridgeLimits) {
    tokio::select! {
        () = writer.abandoned() => return,
        () = complete(writer, source, limits) => {}
    }
    let end = Instant::now() + KEEP_TIME;
    while writer.is_complete() && Instant::now() < end {
        // A buffer that others need is kept only for the watches that are reading it.
        let is_needed = limits.totals.buffered_bytes() > limits.max_bytes / 2;
        tokio::select! {
            () = writer.abandoned(), if is_needed => {}
            () = sleep(KEEP_CHECK) => {}
        }
    }
}

/// Waits for more clients and for a place, and reads upstream watches until the bridge is complete,
/// cannot continue, or its time is over.
async fn complete<L: ListerWatcher>(writer: &BridgeWriter, source: &L, limits: &BridgeLimits) {
    sleep(GATHER_TIME).await;
    let Ok(Ok(_place)) = timeout(PLACE_WAIT, limits.places.acquire()).await else {
        tracing::debug!("a bridge found no place");
        return;
    };
    if timeout(MAX_OPEN_TIME, follow(writer, source, limits))
        .await
        .is_err()
    {
        tracing::debug!(reached = %writer.reached(), "a bridge did not reach the log in time");
    }
}

/// Reads upstream watches, one after the other, until the bridge needs no more of them.
async fn follow<L: ListerWatcher>(writer: &BridgeWriter, source: &L, limits: &BridgeLimits) {
    let mut after = writer.open();
    let mut pause = FIRST_RETRY;
    // Doubles with each refusal: few requests find a version that the API server still serves, and
    // at most as many servable versions are given up as there were others.
    let mut given_up = 1;
    loop {
        limits.opened.fetch_add(1, Ordering::Relaxed);
        let watch = timeout(WATCH_TIME + WATCH_GRACE, read(writer, source, after)).await;
        match watch.unwrap_or(Err(Broken::Retry(Duration::ZERO))) {
            Ok(()) => return,
            Err(Broken::Expired(status)) => {
                tracing::debug!(%after, "the API server's history does not reach back for a bridge");
                match writer.refuse(*status, given_up) {
                    Some(next) => after = next,
                    None => return,
                }
                given_up *= 2;
            }
            Err(Broken::Retry(wait)) => {
                sleep(pause.max(wait)).await;
                pause *= 2;
                after = writer.reached();
                // The API server sends a bookmark only if its cache of the resource has advanced
                // beyond the last event before the watch. For a quiet resource, only a consistent
                // read makes it advance. Guarded by `a_quiet_resource_is_bridged`.
                if let Err(error) = source.barrier().await {
                    tracing::debug!(%error, "a bridge could not read the current version");
                }
            }
        }
    }
}

/// Reads one upstream watch until the bridge is done.
async fn read<L: ListerWatcher>(
    writer: &BridgeWriter,
    source: &L,
    after: ResourceVersion,
) -> Result<(), Broken> {
    let call = WatchCall {
        start: ResumePoint::After(after),
        timeout: WATCH_TIME,
    };
    let mut events = source.watch(call).await.map_err(Broken::of)?;
    while let Some(event) = events.next().await {
        let progress = match event.map_err(Broken::of)? {
            WatchEvent::Change {
                event_type,
                object,
                frame,
            } => writer.push(event_type, object, frame),
            WatchEvent::Bookmark(bookmark) => writer.bookmark(bookmark.resource_version),
            WatchEvent::Error(status) => return Err(Broken::by(status)),
        };
        if progress == BridgeProgress::Done {
            return Ok(());
        }
    }
    Err(Broken::Retry(Duration::ZERO))
}

// === impl Broken ===

impl Broken {
    fn of(error: Error) -> Self {
        match error {
            Error::Answer { status, .. } if status.is_expired() => Self::Expired(status),
            error => {
                tracing::debug!(%error, "the upstream watch of a bridge failed");
                Self::Retry(error.retry_after().unwrap_or_default())
            }
        }
    }

    fn by(status: Status) -> Self {
        Self::of(Error::Answer {
            status: Box::new(status),
            retry_after: None,
        })
    }
}

#[cfg(test)]
mod tests;
