//! A watcher opens its watch, checks every event, and resumes from the last version when the watch
//! ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Method, Response};
use http_body_util::BodyExt;
use kubefan_core::body::{Body, empty};
use kubefan_core::upstream::Error;
use memchr::memmem;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::checker::{Arrival, Checker};
use super::frames::{FrameCutter, FrameType};
use super::slot::{Slot, SlotConnection};
use super::tally::Tally;
use crate::load::config::Protocol;
use crate::load::error::with_causes;
use crate::load::http2::{BodySink, SinkableBody};
use crate::load::run_state::RunState;
use crate::load::target::request;
use crate::load::write::marker::Marker;

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
#[derive(Clone, Debug)]
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

/// A running watcher.
struct Watcher {
    context: Arc<WatcherContext>,
    cutter: FrameCutter,
    watch: Watch,
}

/// What a watcher knows of its watch and of the events so far.
struct Watch {
    number: u32,
    result: WatcherStats,
    opened_at: u64,
    is_synced: bool,
    /// True while ADDED events may show the initial state of objects instead of changes.
    is_initial: bool,
    last_version: Option<u64>,
    has_error: bool,
    /// True after a frame that was too long; nothing more is read then.
    has_failed: bool,
    /// True if the watch's connection was opened after the test had cut the one before.
    is_after_cut: bool,
    /// True after an event of a write after the cut, in a watch after the cut.
    is_live: bool,
}

/// Takes the body of a watch. Under HTTP/2, the connection's task calls it, so that no other task is
/// woken for an event.
struct WatcherSink(Arc<Mutex<Watcher>>);

impl BodySink for WatcherSink {
    fn take(&mut self, part: &[u8], read_at: Instant) {
        self.0.lock().take(part, read_at);
    }
}

/// Runs watcher `number` until the run stops or fails.
pub(crate) async fn watch(
    context: Arc<WatcherContext>,
    slot: Arc<Slot>,
    number: u32,
) -> WatcherStats {
    let run_state = Arc::clone(&context.run_state);
    let watcher = Arc::new(Mutex::new(Watcher::new(context, number)));
    tokio::select! {
        biased;
        () = run_state.stopped() => {}
        () = follow(&run_state, &slot, &watcher) => {}
    }
    let watcher = watcher.lock();
    watcher.watch.result.clone()
}

/// Opens a watch again and again, until the server refuses it permanently.
async fn follow(run_state: &RunState, slot: &Slot, watcher: &Arc<Mutex<Watcher>>) {
    // Boxed, so that the memory of the request's future is freed while the watch is open. It takes
    // many times the memory of all else.
    while let Some(mut body) = Box::pin(open_next(slot, watcher)).await {
        // Under HTTP/2, the sink gets all data.
        loop {
            match body.frame().await {
                // Trailers contain nothing of interest.
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        watcher.lock().take(data, Instant::now());
                    }
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "a watch broke");
                    break;
                }
                None => break,
            }
        }
        drop(body);
        let was_cut = watcher.lock().on_end();
        if !was_cut {
            // If the server ends every watch at once, thousands of watchers must not retry in a
            // tight loop.
            sleep(FIRST_PAUSE).await;
        }
        if !matches!(run_state.config.protocol, Protocol::Http2) {
            slot.forget().await;
        }
    }
}

/// Opens the watcher's next watch, which resumes if possible. Returns its body, or `None` if the
/// server refused the watch permanently and the run was marked as failed.
async fn open_next(slot: &Slot, watcher: &Arc<Mutex<Watcher>>) -> Option<Body> {
    let context = Arc::clone(&watcher.lock().context);
    loop {
        let path = watcher.lock().path();
        let count_retry = || watcher.lock().watch.result.retries += 1;
        match open(&context, slot, &path, count_retry).await {
            OpenOutcome::Watch(mut opened) => {
                watcher.lock().on_open(&opened);
                let response = &mut opened.response;
                if let Some(body) = response.extensions_mut().remove::<SinkableBody>() {
                    body.send_to(Box::new(WatcherSink(Arc::clone(watcher))));
                }
                return Some(opened.response.into_body());
            }
            OpenOutcome::Refused => return None,
            OpenOutcome::Expired => {
                tracing::debug!(path, "a watch has expired");
                watcher.lock().on_expired();
                // If the server answers 410 even without a version, the watcher must not retry in a
                // tight loop.
                sleep(FIRST_PAUSE).await;
            }
        }
    }
}

/// The outcome of a request for a watch.
pub(crate) enum OpenOutcome {
    Watch(OpenedWatch),
    /// The server refused the watch with 410, because the version is too old.
    Expired,
    /// The server refused the watch permanently, and the run has been marked as failed.
    Refused,
}

/// An open watch.
pub(crate) struct OpenedWatch {
    pub(crate) response: Response<Body>,
    /// The time of the request, in nanoseconds of the run's clock.
    requested_at: u64,
    /// True if the connection was opened after the test had cut the one before.
    is_after_cut: bool,
}

/// Opens a watch on the connection of `slot`. Retries with backoff after errors that may be
/// temporary, and reports each retry to `on_retry`. Before the first write, it retries only until
/// the sync deadline.
pub(crate) async fn open(
    context: &WatcherContext,
    slot: &Slot,
    path: &str,
    mut on_retry: impl FnMut(),
) -> OpenOutcome {
    let run_state = &context.run_state;
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match attempt(context, slot, path).await {
            Ok(opened) => return OpenOutcome::Watch(opened),
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
        on_retry();
        sleep(error.retry_after().unwrap_or(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Sends one request for a watch.
async fn attempt(context: &WatcherContext, slot: &Slot, path: &str) -> Result<OpenedWatch, Error> {
    let run_state = &context.run_state;
    // After the cut, the watchers come all at once, as they do after a restart of the server.
    let _permit = match run_state.cut_at() {
        // This cannot fail, because the semaphore is never closed.
        None => context.opening_permits.acquire().await.ok(),
        Some(_) => None,
    };
    // The time is taken after the permit is acquired: the wait for the permit must not
    // count as latency of the server.
    let requested_at = run_state.clock.now();
    let SlotConnection {
        connection,
        is_after_cut,
    } = slot.acquire(&run_state.client).await?;
    let format = run_state.config.format;
    let request = request(Method::GET, path, format.watch_media_type(), empty())?;
    let response = run_state.client.request_over(&connection, request).await?;
    let content_type = response.headers().get(http::header::CONTENT_TYPE);
    let received = content_type
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let requested = format.media_type();
    if received.starts_with(requested) {
        Ok(OpenedWatch {
            response,
            requested_at,
            is_after_cut,
        })
    } else {
        Err(Error::MediaType {
            requested,
            received: received.to_owned(),
        })
    }
}

// === impl Watcher ===

impl Watcher {
    fn new(context: Arc<WatcherContext>, number: u32) -> Self {
        let config = &context.run_state.config;
        Self {
            cutter: FrameCutter::new(config.format),
            watch: Watch {
                number,
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
                has_failed: false,
                is_after_cut: false,
                is_live: false,
            },
            context,
        }
    }

    /// Returns the path of the next watch.
    fn path(&self) -> String {
        let (number, version) = (self.watch.number, self.watch.last_version);
        self.context.run_state.watch_path(number, version)
    }

    /// Begins a watch.
    fn on_open(&mut self, opened: &OpenedWatch) {
        let run_state = &self.context.run_state;
        self.cutter = FrameCutter::new(run_state.config.format);
        self.watch.is_after_cut = opened.is_after_cut;
        if !self.watch.is_synced {
            self.watch.opened_at = opened.requested_at;
        }
        self.watch.check_synced(run_state, run_state.clock.now());
    }

    /// Counts the end of a watch, and returns true if the test itself has cut its connection. The
    /// next watch resumes from the last version, or starts again if the watch delivered an ERROR
    /// event.
    fn on_end(&mut self) -> bool {
        let is_cut = self.context.run_state.cut_at().is_some() && !self.watch.is_after_cut;
        self.watch.result.ends += u64::from(!is_cut);
        if std::mem::take(&mut self.watch.has_error) {
            self.on_expired();
        }
        is_cut
    }

    /// Makes the next watch start without a version, from the current objects.
    fn on_expired(&mut self) {
        self.watch.result.expired += 1;
        if self.context.run_state.cut_at().is_some() {
            self.context.tally.lock().expired_after_cut += 1;
        }
        self.watch.last_version = None;
        self.watch.result.checker.restart();
        self.watch.is_initial = true;
    }

    /// Takes bytes of the watch's body, which were read at `read_at`.
    fn take(&mut self, chunk: &[u8], read_at: Instant) {
        let Self {
            context,
            cutter,
            watch,
        } = self;
        if watch.has_failed {
            return;
        }
        let run_state = &*context.run_state;
        let received = Received {
            now: run_state.clock.since_start(read_at),
            measured_from: run_state.measured_from(),
            cut_at: run_state.cut_at(),
        };
        let mut tally = context.tally.lock();
        if received.is_measured() {
            tally.bytes += chunk.len() as u64;
        }
        let cut = cutter.cut(chunk, |frame| {
            watch.take_frame(run_state, &mut tally, &received, frame);
        });
        drop(tally);
        watch.check_synced(run_state, received.now);
        if let Err(problem) = cut {
            watch.has_failed = true;
            run_state.fail(format!("watcher {} got {problem}", watch.number));
        }
    }
}

/// When bytes were received, and the phase of the run then. All times are in nanoseconds of the
/// run's clock.
struct Received {
    now: u64,
    measured_from: Option<u64>,
    cut_at: Option<u64>,
}

impl Received {
    /// Returns true between the first write and the cut of the connections.
    fn is_measured(&self) -> bool {
        self.measured_from.is_some() && self.cut_at.is_none()
    }
}

// === impl Watch ===

impl Watch {
    /// Without a watch-list, a watcher is in sync when it has seen all objects.
    fn check_synced(&mut self, run_state: &RunState, now: u64) {
        if !self.is_synced && !run_state.config.watch_list && self.result.checker.has_seen_all() {
            self.mark_synced(run_state, now);
        }
    }

    fn mark_synced(&mut self, run_state: &RunState, now: u64) {
        if !self.is_synced {
            self.is_synced = true;
            self.result.synced_after = Some(now.saturating_sub(self.opened_at));
            run_state.synced.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Stores the version to resume from. Ignores it during the initial objects, because their
    /// versions are in no order.
    fn resume_from(&mut self, version: Option<u64>) {
        if !self.is_initial {
            self.last_version = version.or(self.last_version);
        }
    }

    fn take_frame(
        &mut self,
        run_state: &RunState,
        tally: &mut Tally,
        received: &Received,
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
                self.mark_synced(run_state, received.now);
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
            self.record(run_state, tally, received, marker);
        }
    }

    /// Records the time of an event that arrived for the first time.
    fn record(
        &mut self,
        run_state: &RunState,
        tally: &mut Tally,
        received: &Received,
        marker: Marker,
    ) {
        let now = received.now;
        match (received.cut_at, received.measured_from) {
            // An event may still arrive over the old connection.
            (Some(cut_at), _)
                if self.is_after_cut && !self.is_live && marker.scheduled >= cut_at =>
            {
                self.is_live = true;
                tally.live.record(now.saturating_sub(cut_at));
                run_state.live.fetch_add(1, Ordering::Relaxed);
            }
            (None, Some(from)) => {
                let acknowledged = run_state.acknowledgements.get(marker.number);
                let since = |at: u64| at.saturating_sub(from);
                tally.record(since(now), since(marker.scheduled), acknowledged.map(since));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
