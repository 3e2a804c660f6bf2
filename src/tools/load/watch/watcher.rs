//! A watcher opens its watch, checks every event, and resumes from the last version when the watch
//! ends.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use kubefan_core::body::{Body, empty};
use kubefan_core::upstream::Error;
use memchr::memmem;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::checker::{Arrival, Checker};
use super::frames::{FrameCutter, FrameType};
use super::slot::Slot;
use super::tally::Tally;
use crate::load::config::Protocol;
use crate::load::error::with_causes;
use crate::load::run_state::RunState;
use crate::load::target::request;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The annotation of the bookmark that ends the initial objects of a watch-list.
const INITIAL_EVENTS_END: &[u8] = b"k8s.io/initial-events-end";

/// The state that the watchers of a receiving thread share.
pub(crate) struct WatcherContext {
    pub(crate) run_state: Arc<RunState>,
    pub(crate) tally: Mutex<Tally>,
    /// Permits to open a watch, which limit how many watches of the thread are opened concurrently.
    pub(crate) opening_permits: Semaphore,
}

/// The results of one watcher.
#[derive(Debug)]
pub(crate) struct WatcherStats {
    pub(crate) checker: Checker,
    /// The time in nanoseconds from the watcher's request until it had received all objects that it
    /// selects; `None` if it never did.
    pub(crate) synced_after: Option<u64>,
    /// The number of the watcher's watches that the server ended or that broke.
    pub(crate) ends: u64,
    /// How often the watcher had to start again without a version, because an error such as 410
    /// Expired ended its watch or prevented it from resuming.
    pub(crate) expired: u64,
    /// The number of requests for a watch that failed and were sent again.
    pub(crate) retries: u64,
}

/// The state of a running watcher.
struct Watcher {
    context: Arc<WatcherContext>,
    number: u32,
    cutter: FrameCutter,
    result: WatcherStats,
    opened_at: u64,
    is_synced: bool,
    /// True while ADDED events may show the initial state of objects instead of changes.
    is_initial: bool,
    last_version: Option<u64>,
    has_error: bool,
}

/// Runs watcher `number` until the run stops or fails.
pub(crate) async fn watch(
    context: Arc<WatcherContext>,
    slot: Arc<Slot>,
    number: u32,
) -> WatcherStats {
    let run_state = Arc::clone(&context.run_state);
    let mut watcher = Watcher::new(context, number);
    let mut stopped = pin!(run_state.stopped());
    loop {
        let body = tokio::select! {
            biased;
            () = &mut stopped => return watcher.result,
            opened = watcher.open(&slot) => opened,
        };
        let Some(mut body) = body else {
            return watcher.result;
        };
        loop {
            let frame = tokio::select! {
                biased;
                frame = body.frame() => frame,
                () = &mut stopped => return watcher.result,
            };
            let data = match frame {
                Some(Ok(frame)) => frame.into_data(),
                Some(Err(error)) => {
                    tracing::debug!(number, %error, "a watch broke");
                    break;
                }
                None => break,
            };
            // Trailers contain nothing of interest.
            let Ok(data) = data else { continue };
            if let Err(problem) = watcher.take(&data) {
                run_state.fail(format!("watcher {number} got {problem}"));
                return watcher.result;
            }
        }
        watcher.on_end();
        // If the server ends every watch at once, thousands of watchers must not retry in a tight
        // loop.
        tokio::select! {
            () = &mut stopped => return watcher.result,
            () = sleep(FIRST_PAUSE) => {}
        }
        if !matches!(run_state.config.protocol, Protocol::Http2) {
            slot.forget().await;
        }
    }
}

/// The outcome of a request for a watch.
pub(crate) enum OpenOutcome {
    /// The watch is open: its body, and the time of the request in nanoseconds of the run's clock.
    Watch(Body, u64),
    /// The server refused the watch with 410, because the version is too old.
    Expired,
    /// The server refused the watch permanently, and the run has been marked as failed.
    Refused,
}

/// Opens a watch on the connection of `slot`. Retries with backoff after errors that may be
/// temporary, and counts each retry in `retries`. Before the first write, it retries only until the
/// sync deadline.
pub(crate) async fn open(
    context: &WatcherContext,
    slot: &Slot,
    path: &str,
    retries: &mut u64,
) -> OpenOutcome {
    let run_state = &context.run_state;
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match attempt(context, slot, path).await {
            Ok((body, requested_at)) => return OpenOutcome::Watch(body, requested_at),
            Err(error) if error.is_expired() => return OpenOutcome::Expired,
            Err(error) => error,
        };
        let problem = format!("a watch of {path} was refused: {}", with_causes(&error));
        let is_final = error.status().is_some_and(|status| {
            (400..500).contains(&status.code) && !matches!(status.code, 408 | 429)
        });
        let is_syncing = run_state.measured_from().is_none();
        if is_final || is_syncing && Instant::now() + pause > run_state.sync_deadline {
            run_state.fail(problem);
            return OpenOutcome::Refused;
        }
        tracing::debug!(problem, "trying again");
        *retries += 1;
        slot.forget_broken(&error).await;
        sleep(error.retry_after().unwrap_or(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Sends one request for a watch. Returns the response's body, and the time of the request in
/// nanoseconds of the run's clock.
async fn attempt(context: &WatcherContext, slot: &Slot, path: &str) -> Result<(Body, u64), Error> {
    // This cannot fail, because the semaphore is never closed.
    let _permit = context.opening_permits.acquire().await;
    let run_state = &context.run_state;
    // The time is taken after the permit is acquired: the wait for the permit must not
    // count as latency of the server.
    let requested_at = run_state.clock.now();
    let connection = slot.connection(&run_state.client).await?;
    let format = run_state.config.format;
    let request = request(Method::GET, path, format.watch_media_type(), empty())?;
    let response = run_state.client.request_over(&connection, request).await?;
    let content_type = response.headers().get(http::header::CONTENT_TYPE);
    let received = content_type
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let requested = format.media_type();
    if received.starts_with(requested) {
        Ok((response.into_body(), requested_at))
    } else {
        Err(Error::MediaType {
            requested,
            received: received.to_owned(),
        })
    }
}

impl Watcher {
    fn new(context: Arc<WatcherContext>, number: u32) -> Self {
        let config = &context.run_state.config;
        Self {
            number,
            cutter: FrameCutter::new(config.format),
            result: WatcherStats {
                checker: Checker::new(config.selected_objects(number)),
                synced_after: None,
                ends: 0,
                expired: 0,
                retries: 0,
            },
            opened_at: context.run_state.clock.now(),
            is_synced: false,
            is_initial: true,
            last_version: None,
            has_error: false,
            context,
        }
    }

    /// Opens the watcher's next watch, which resumes if possible. Returns `None` if the server
    /// refused it permanently and the run was marked as failed.
    async fn open(&mut self, slot: &Slot) -> Option<Body> {
        let body = loop {
            let path = self
                .context
                .run_state
                .watch_path(self.number, self.last_version);
            match open(&self.context, slot, &path, &mut self.result.retries).await {
                OpenOutcome::Watch(body, requested_at) => {
                    if !self.is_synced {
                        self.opened_at = requested_at;
                    }
                    break body;
                }
                OpenOutcome::Refused => return None,
                OpenOutcome::Expired => {
                    tracing::debug!(number = self.number, path, "a watch has expired");
                    self.on_expired();
                    // If the server answers 410 even without a version, the watcher must not retry
                    // in a tight loop.
                    sleep(FIRST_PAUSE).await;
                }
            }
        };
        let run_state = &self.context.run_state;
        self.cutter = FrameCutter::new(run_state.config.format);
        if !run_state.config.watch_list && self.result.checker.has_seen_all() {
            self.mark_synced(run_state.clock.now());
        }
        Some(body)
    }

    fn mark_synced(&mut self, now: u64) {
        if !self.is_synced {
            self.is_synced = true;
            self.result.synced_after = Some(now - self.opened_at);
            self.context
                .run_state
                .synced
                .fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the end of a watch. The next watch resumes from the last version, or starts again if
    /// the watch delivered an ERROR event.
    fn on_end(&mut self) {
        self.result.ends += 1;
        if std::mem::take(&mut self.has_error) {
            self.on_expired();
        }
    }

    /// Makes the next watch start without a version, from the current objects.
    fn on_expired(&mut self) {
        self.result.expired += 1;
        self.last_version = None;
        self.result.checker.restart();
        self.is_initial = true;
    }

    /// Stores the version to resume from. Ignores it during the initial objects, because their
    /// versions are in no order.
    fn resume_from(&mut self, version: Option<u64>) {
        if !self.is_initial {
            self.last_version = version.or(self.last_version);
        }
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), String> {
        let context = Arc::clone(&self.context);
        let run_state = &context.run_state;
        let now = run_state.clock.now();
        let from = run_state.measured_from();
        let mut tally = context.tally.lock();
        if from.is_some() {
            tally.bytes += chunk.len() as u64;
        }
        let mut cutter =
            std::mem::replace(&mut self.cutter, FrameCutter::new(run_state.config.format));
        let cut = cutter.cut(chunk, |frame| {
            self.take_frame(run_state, &mut tally, now, from, frame);
        });
        self.cutter = cutter;
        drop(tally);
        if !run_state.config.watch_list && self.result.checker.has_seen_all() {
            self.mark_synced(now);
        }
        cut.map_err(|error| error.to_string())
    }

    fn take_frame(
        &mut self,
        run_state: &RunState,
        tally: &mut Tally,
        now: u64,
        from: Option<u64>,
        frame: &[u8],
    ) {
        let frame_type = FrameType::of(run_state.config.format, frame);
        if frame_type == FrameType::Error {
            self.has_error = true;
            tracing::debug!(number = self.number, frame = %String::from_utf8_lossy(frame), "an error");
            return;
        }
        let version = run_state.versions.find(frame);
        if frame_type == FrameType::Bookmark {
            tally.bookmarks += 1;
            if memmem::find(frame, INITIAL_EVENTS_END).is_some() {
                self.is_initial = false;
                self.mark_synced(now);
            }
            // Without a watch-list, the first bookmark comes after the initial objects.
            self.is_initial &= run_state.config.watch_list;
            self.resume_from(version);
            return;
        }
        let Some(marker) = run_state.markers.find(frame) else {
            tally.foreign += 1;
            return;
        };
        if frame_type == FrameType::Deleted {
            self.result.checker.record_deletion();
            return;
        }
        let is_state = self.is_initial && frame_type == FrameType::Added;
        self.is_initial &= is_state;
        self.resume_from(version);
        let checker = &mut self.result.checker;
        let arrival = checker.record(marker.object, marker.sequence, version, is_state);
        if marker.sequence > 0 && matches!(arrival, Arrival::New | Arrival::Late) {
            run_state.delivered.fetch_add(1, Ordering::Relaxed);
            if let Some(from) = from {
                let acknowledged = run_state.acknowledgements.get(marker.number);
                let since = |at: u64| at.saturating_sub(from);
                tally.record(since(now), since(marker.scheduled), acknowledged.map(since));
            }
        }
    }
}
