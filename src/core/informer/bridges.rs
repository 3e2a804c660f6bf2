//! Bridges: the short upstream watches that give clients the history before the log.
//!
//! [`crate::cache::Bridge`] has the rules for how clients get events from a bridge and continue
//! from the log. This module decides when an upstream watch is opened: one for all waiting clients
//! of a selection, from the oldest of their versions. It has bookmarks and a `timeoutSeconds` of 3,
//! so that the API server sends a bookmark after one to two seconds (two seconds before the
//! timeout), even if nothing changes. If none arrives, a barrier precedes the next watch.
//!
//! Few bridges read an upstream watch concurrently. Those with clients of a user wait for their
//! places together, and users take turns.
//!
//! A bridge sends its requests with kubefan's identity, as informers do. Only watches that the
//! cache may answer get here.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::api::{ResourceVersion, Status, WatchEvent};
use crate::cache::{
    Bridge, BridgeProgress, BridgeTotals, BridgeWriter, BridgedWatch, EvictedBytes, Gap,
};
use crate::concurrency::{AskerId, FairQueue, Permit};
use crate::shutdown::Shutdown;
use crate::telemetry::Samples;
use crate::upstream::{Error, ListerWatcher, ResumePoint, Scope, WatchCall};

/// How many bridges of the process may read an upstream watch concurrently.
const MAX_OPEN: usize = 64;
/// How many bridges may read an upstream watch or wait to do so. The bridges of one user may take
/// at most half of both numbers.
const MAX_STARTED: usize = 64 * MAX_OPEN;
/// How long a new bridge waits for more clients, so that it starts at the oldest version.
const GATHER_TIME: Duration = Duration::from_millis(50);
/// How long a bridge waits for its place among those that read an upstream watch.
const PLACE_WAIT: Duration = Duration::from_secs(5);
/// How long a bridge may take from its first upstream watch until it is complete.
const MAX_OPEN_TIME: Duration = Duration::from_secs(10);
/// How long a bridge may take if no bookmarks come: only a later change completes it. This is less
/// than [`PLACE_WAIT`], so a bridge that waits for the place of such a bridge still gets it.
const MAX_OPEN_TIME_WITHOUT_BOOKMARKS: Duration = Duration::from_secs(4);
/// How long a complete bridge stores its events for clients that come later.
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
    places: FairQueue<AskerId>,
    totals: Arc<BridgeTotals>,
    opened: AtomicU64,
    /// How many bytes of events all bridges of the process may buffer together.
    max_bytes: usize,
}

/// The bridges of one informer, by selection.
pub(super) struct Bridges<L> {
    /// Makes the client that watches the objects of a scope.
    source: Box<dyn Fn(&Scope) -> L + Send + Sync>,
    running: Arc<Mutex<HashMap<Scope, Running>>>,
    limits: Arc<BridgeLimits>,
    shutdown: Shutdown,
}

/// A bridge that clients may join.
struct Running {
    bridge: Arc<Bridge>,
    /// The askers with a client of the bridge.
    askers: HashSet<AskerId>,
    /// Receives each new asker, until the bridge has a place.
    waiting: mpsc::UnboundedSender<AskerId>,
}

/// How an upstream watch ended before the bridge was complete.
enum Broken {
    /// The API server no longer has the events after the requested version.
    Expired(Box<Status>),
    /// Another watch is opened after this wait, or after the usual wait if that is longer.
    Retry(Duration),
}

// === impl BridgeLimits ===

impl BridgeLimits {
    /// Creates limits for bridges that buffer at most `max_bytes` together, and count the bytes of
    /// evicted events in `evicted`.
    pub(super) fn new(max_bytes: usize, evicted: EvictedBytes) -> Self {
        Self {
            places: FairQueue::new(MAX_OPEN, MAX_STARTED),
            totals: Arc::new(BridgeTotals::new(evicted)),
            opened: AtomicU64::new(0),
            max_bytes,
        }
    }

    /// Returns the bytes of the events that bridges have buffered, and their upper limit.
    pub fn buffered_bytes(&self) -> (usize, usize) {
        (self.totals.buffered_bytes(), self.max_bytes)
    }

    /// Adds the current metrics of all bridges to `samples`.
    pub fn sample(&self, samples: &mut Samples) {
        let open = MAX_OPEN - self.places.free();
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
    /// Creates a set without bridges. Each bridge will read watches of `source` in a background
    /// task of `shutdown`.
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

    /// Opens a watch that closes `gap`. `scope` must select the objects of the gap's selection.
    /// Starts a bridge unless a running one can close the gap. The bridge waits for its place among
    /// the bridges of `asker`.
    pub(super) fn watch(&self, mut gap: Gap, scope: &Scope, asker: AskerId) -> BridgedWatch {
        let mut running = self.running.lock();
        if let Some(running) = running.get_mut(scope) {
            gap = match running.bridge.watch(gap) {
                Ok(watch) => {
                    running.add(asker);
                    return watch;
                }
                Err(gap) => gap,
            };
        }
        let totals = Arc::clone(&self.limits.totals);
        let (writer, bridge, watch) = Bridge::new(gap, totals, self.limits.max_bytes);
        let (waiting, askers) = mpsc::unbounded_channel();
        let mut started = Running {
            bridge,
            askers: HashSet::new(),
            waiting,
        };
        started.add(asker);
        let replaced = running.insert(scope.clone(), started);
        // Spawn the task and free the events without the lock: a runtime that is shutting down
        // drops a task while it is spawned.
        drop(running);
        drop(replaced);
        let source = (self.source)(scope);
        let (limits, scope) = (Arc::clone(&self.limits), scope.clone());
        let all = Arc::clone(&self.running);
        self.shutdown.spawn_background(async move {
            run(&writer, &source, &limits, askers).await;
            {
                // Another bridge may have replaced this one.
                let mut all = all.lock();
                if all
                    .get(&scope)
                    .is_some_and(|running| writer.is_of(&running.bridge))
                {
                    all.remove(&scope);
                }
            }
            // No watch can join any more, but a watch may have joined just before.
            if writer.is_complete() {
                let _ = timeout(KEEP_TIME, writer.abandoned()).await;
            }
        });
        watch
    }
}

impl Running {
    /// Lets the bridge also wait for its place among the bridges of `asker`.
    fn add(&mut self, asker: AskerId) {
        if self.askers.insert(asker) {
            // Fails if the bridge waits no more.
            self.waiting.send(asker).ok();
        }
    }
}

/// Runs a bridge from its first client until its events are no longer stored.
async fn run<L: ListerWatcher>(
    writer: &BridgeWriter,
    source: &L,
    limits: &BridgeLimits,
    askers: mpsc::UnboundedReceiver<AskerId>,
) {
    tokio::select! {
        () = writer.abandoned() => return,
        () = complete(writer, source, limits, askers) => {}
    }
    let end = Instant::now() + KEEP_TIME;
    while writer.is_complete() && Instant::now() < end {
        // If other bridges need the memory, the buffer stays only while watches read it.
        let is_needed = limits.totals.buffered_bytes() > limits.max_bytes / 2;
        tokio::select! {
            () = writer.abandoned(), if is_needed => {}
            () = sleep(KEEP_CHECK) => {}
        }
    }
}

/// Waits for more clients and for a place, and reads upstream watches until the bridge is complete,
/// the bridge cannot continue, or its time is over.
async fn complete<L: ListerWatcher>(
    writer: &BridgeWriter,
    source: &L,
    limits: &BridgeLimits,
    askers: mpsc::UnboundedReceiver<AskerId>,
) {
    sleep(GATHER_TIME).await;
    let Ok(_place) = timeout(PLACE_WAIT, place(&limits.places, askers)).await else {
        tracing::debug!("a bridge found no place");
        return;
    };
    let limit = if writer.shares_versions() {
        MAX_OPEN_TIME_WITHOUT_BOOKMARKS
    } else {
        MAX_OPEN_TIME
    };
    if timeout(limit, follow(writer, source, limits))
        .await
        .is_err()
    {
        tracing::debug!(reached = %writer.reached(), "a bridge did not reach the log in time");
    }
}

/// Returns the place of a bridge, for the first of `askers` that may have one.
async fn place(
    places: &FairQueue<AskerId>,
    mut askers: mpsc::UnboundedReceiver<AskerId>,
) -> Permit<AskerId> {
    let mut waiting = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(asker) = askers.recv() => waiting.push(places.admit(asker)),
            Some(place) = waiting.next() => {
                // Another one may have room if there is none for the bridges of this one.
                if let Ok(place) = place {
                    return place;
                }
            }
            else => std::future::pending().await,
        }
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
            WatchEvent::Error(status) => return Err(Broken::of(Error::answered(status))),
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
}

#[cfg(test)]
mod tests;
