//! One watcher: opens its watch, checks what comes, and goes on where it was when the watch ends.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use memchr::memmem;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio::time::sleep;

use crate::api::WireFormat;
use crate::body::Body;
use crate::body::empty;
use crate::tools::load::config::Protocol;
use crate::tools::load::error::with_causes;
use crate::tools::load::run_state::RunState;
use crate::tools::load::selector::selected_objects;
use crate::tools::load::target::request;
use crate::upstream::Error;

use super::checker::Arrival;
use super::checker::Checker;
use super::frames::FrameCutter;
use super::frames::FrameType;
use super::slot::Slot;
use super::tally::Tally;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// What the bookmark behind the initial objects carries.
const INITIAL_EVENTS_END: &[u8] = b"k8s.io/initial-events-end";

/// What the watchers of a thread share.
pub(crate) struct WatcherContext {
    pub(crate) run_state: Arc<RunState>,
    pub(crate) tally: Mutex<Tally>,
    /// So that not all connect at once.
    pub(crate) opening_permits: Semaphore,
}

/// What became of a watcher.
#[derive(Debug)]
pub(crate) struct WatcherStats {
    pub(crate) checker: Checker,
    /// Nanoseconds from its request until it had seen everything.
    pub(crate) synced_after: Option<u64>,
    /// Watches that the server ended, or that broke.
    pub(crate) ends: u64,
    /// Times that it had to begin anew, as an error such as 410 Expired ended it or kept it from going on.
    pub(crate) expired: u64,
    /// Requests that failed and were sent again.
    pub(crate) retries: u64,
}

/// A watcher at work.
struct Watcher {
    context: Arc<WatcherContext>,
    number: u32,
    cutter: FrameCutter,
    result: WatcherStats,
    opened_at: u64,
    is_synced: bool,
    /// While what comes may be the state of objects rather than a change.
    is_initial: bool,
    last_version: Option<u64>,
    has_error: bool,
}

/// Watches until it is told to stop.
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
            // Trailers tell nothing.
            let Ok(data) = data else { continue };
            if let Err(problem) = watcher.take(&data) {
                run_state.fail(format!("watcher {number} got {problem}"));
                return watcher.result;
            }
        }
        watcher.on_end();
        // A server that ends each watch at once must not be asked in a tight loop by thousands.
        tokio::select! {
            () = &mut stopped => return watcher.result,
            () = sleep(FIRST_PAUSE) => {}
        }
        if !matches!(run_state.config.protocol, Protocol::Http2) {
            slot.forget().await;
        }
    }
}

/// What a request for a watch came to.
pub(crate) enum OpenOutcome {
    /// It runs; and when it was asked for, in nanoseconds of the run's clock.
    Watch(Body, u64),
    /// The version that it should go on at is too old for the server: 410.
    Expired,
    /// It is refused for good, and the run has been told.
    Refused,
}

/// Opens a watch over `slot`; patient with servers that are busy.
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
            Ok((body, asked_at)) => return OpenOutcome::Watch(body, asked_at),
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

/// The answer's body, and when it was asked for.
async fn attempt(context: &WatcherContext, slot: &Slot, path: &str) -> Result<(Body, u64), Error> {
    // The semaphore is never closed.
    let _permit = context.opening_permits.acquire().await;
    let run_state = &context.run_state;
    // Not before: waiting for the turn is this program's doing.
    let asked_at = run_state.clock.now();
    let connection = slot.connection(run_state).await?;
    let request = request(Method::GET, path, run_state.accept(), empty());
    let request = request.map_err(|error| Error::Request(error.into()))?;
    let response = run_state.client.request_over(&connection, request).await?;
    let content_type = response.headers().get(http::header::CONTENT_TYPE);
    let answered = content_type
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let requested = match run_state.config.format {
        WireFormat::Json => "application/json",
        WireFormat::Protobuf => "application/vnd.kubernetes.protobuf",
    };
    match answered.starts_with(requested) {
        true => Ok((response.into_body(), asked_at)),
        false => Err(Error::MediaType {
            requested,
            answered: answered.to_owned(),
        }),
    }
}

impl Watcher {
    fn new(context: Arc<WatcherContext>, number: u32) -> Self {
        let config = &context.run_state.config;
        let selected_objects = selected_objects(
            config.selector.as_ref(),
            number,
            config.watchers,
            config.objects,
        );
        Self {
            number,
            cutter: FrameCutter::new(config.format),
            result: WatcherStats {
                checker: Checker::new(selected_objects),
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

    /// `None` when it gave up, and said why.
    async fn open(&mut self, slot: &Slot) -> Option<Body> {
        let body = loop {
            let path = self
                .context
                .run_state
                .watch_path(self.number, self.last_version);
            match open(&self.context, slot, &path, &mut self.result.retries).await {
                OpenOutcome::Watch(body, asked_at) => {
                    if !self.is_synced {
                        self.opened_at = asked_at;
                    }
                    break body;
                }
                OpenOutcome::Refused => return None,
                OpenOutcome::Expired => {
                    tracing::debug!(number = self.number, path, "a watch has expired");
                    self.on_expired();
                    // A server that refuses what asks for no version, too, must not be asked in a tight loop.
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

    /// The watch is over: the next one goes on where it was, or, after an error, begins anew.
    fn on_end(&mut self) {
        self.result.ends += 1;
        if std::mem::take(&mut self.has_error) {
            self.on_expired();
        }
    }

    /// The next watch begins anew, from the objects as they are then.
    fn on_expired(&mut self) {
        self.result.expired += 1;
        self.last_version = None;
        self.result.checker.restart();
        self.is_initial = true;
    }

    /// Remembers where to go on; not while states come, whose versions are in no order.
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
            // Where the states begin without a list, the first bookmark comes behind them.
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
