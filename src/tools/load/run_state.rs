//! What the threads of a run share.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::WireFormat;
use crate::upstream::Client;
use crate::upstream::HttpVersion;

use super::clock::Acknowledgements;
use super::clock::Clock;
use super::config::Config;
use super::config::Protocol;
use super::watch::frames::VersionFinder;
use super::write::marker::MarkerFinder;

/// Time until every watcher has to have seen all objects.
pub(super) const SYNC_LIMIT: Duration = Duration::from_secs(120);
/// Time after a signal in which answers to what was begun are still waited for.
pub(super) const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// Unread bytes that a stream takes; and all streams of a connection together.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;
/// The same of a stream that nobody reads: HTTP/2's own default, so that the server soon has to wait.
const SLOW_STREAM_WINDOW: u32 = (1 << 16) - 1;
/// Longest that a watch is asked to last, at least.
const WATCH_SECONDS: u64 = 3_600;

/// One run's common state.
pub(super) struct RunState {
    pub(super) config: Config,
    pub(super) client: Client,
    /// The path that is watched and listed.
    pub(super) collection: String,
    pub(super) clock: Clock,
    pub(super) acknowledgements: Acknowledgements,
    pub(super) markers: MarkerFinder,
    pub(super) versions: VersionFinder,
    /// Nanoseconds of the clock from which events count; none yet when it is the maximum.
    measured_from: AtomicU64,
    /// Watchers that have seen every object.
    pub(super) synced: AtomicUsize,
    /// Watchers that don't read and whose watches are open.
    pub(super) open_slow_watches: AtomicU32,
    /// Writes that were sent, where they are limited by what came.
    pub(super) sent: AtomicU64,
    /// True until the window is full; then false until half of it has reached every watcher.
    is_window_open: AtomicBool,
    /// Changes that came.
    pub(super) delivered: AtomicU64,
    pub(super) sync_deadline: Instant,
    fatal: Mutex<Option<String>>,
    is_cut_short: AtomicBool,
    /// True when no more is to be written.
    writing_over: watch::Sender<bool>,
    stop: watch::Sender<bool>,
}

impl RunState {
    pub(super) fn new(config: &Config, client: Client, collection: String, run: &str) -> Self {
        Self {
            config: config.clone(),
            client,
            collection,
            clock: Clock::start(),
            acknowledgements: Acknowledgements::default(),
            markers: MarkerFinder::new(run),
            versions: VersionFinder::new(config.format),
            measured_from: AtomicU64::new(u64::MAX),
            synced: AtomicUsize::new(0),
            open_slow_watches: AtomicU32::new(0),
            sent: AtomicU64::new(0),
            is_window_open: AtomicBool::new(true),
            delivered: AtomicU64::new(0),
            sync_deadline: Instant::now() + SYNC_LIMIT,
            fatal: Mutex::new(None),
            is_cut_short: AtomicBool::new(false),
            writing_over: watch::Sender::new(false),
            stop: watch::Sender::new(false),
        }
    }

    /// From now on, events count; gives the moment.
    pub(super) fn start_measuring(&self) -> u64 {
        let now = self.clock.now();
        self.measured_from.store(now, Ordering::Release);
        now
    }

    /// From when on events count, if they do.
    pub(super) fn measured_from(&self) -> Option<u64> {
        let from = self.measured_from.load(Ordering::Acquire);
        (from != u64::MAX).then_some(from)
    }

    /// Ends everything, for a reason that more tries would not change. The first one counts.
    pub(super) fn fail(&self, problem: String) {
        self.fatal.lock().get_or_insert(problem);
        self.writing_over.send_replace(true);
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.fatal.lock().clone()
    }

    /// Takes a place in the window of writes that have not reached every watcher; false when it is full.
    pub(super) fn try_enter_window(&self) -> bool {
        let Some(window) = self.config.window else {
            return true;
        };
        let everywhere =
            self.delivered.load(Ordering::Relaxed) / self.config.watchers_of_an_object();
        let is_half_empty = self.sent.load(Ordering::Relaxed) <= everywhere + u64::from(window / 2);
        if !is_half_empty && !self.is_window_open.load(Ordering::Relaxed) {
            return false;
        }
        let most = everywhere + u64::from(window);
        let enter = |sent| (sent < most).then_some(sent + 1);
        let entered = self
            .sent
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter)
            .is_ok();
        self.is_window_open.store(entered, Ordering::Relaxed);
        entered
    }

    /// Gives up the rest of the schedule.
    pub(super) fn cut_short(&self) {
        self.is_cut_short.store(true, Ordering::Relaxed);
        self.writing_over.send_replace(true);
    }

    pub(super) fn is_cut_short(&self) -> bool {
        self.is_cut_short.load(Ordering::Relaxed)
    }

    /// True when no more is to be written: the rest is given up, or the run has failed.
    pub(super) fn is_writing_over(&self) -> bool {
        *self.writing_over.borrow()
    }

    /// Completes when [`RunState::is_writing_over`] does.
    pub(super) async fn writing_over(&self) {
        let mut writing_over = self.writing_over.subscribe();
        // The sender lives here, so it can't be gone.
        let _ = writing_over.wait_for(|writing_over| *writing_over).await;
    }

    /// Lets the watchers end.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Completes when the watchers should end.
    pub(super) async fn stopped(&self) {
        let mut stop = self.stop.subscribe();
        // The sender lives here, so it can't be gone.
        let _ = stop.wait_for(|stop| *stop).await;
    }

    /// What the watchers' connections speak.
    pub(super) fn http_version(&self) -> HttpVersion {
        self.http_version_with_window(STREAM_WINDOW)
    }

    /// The same of watchers that don't read: little is taken for them.
    pub(super) fn slow_http_version(&self) -> HttpVersion {
        self.http_version_with_window(SLOW_STREAM_WINDOW)
    }

    fn http_version_with_window(&self, stream_window: u32) -> HttpVersion {
        match self.config.protocol {
            Protocol::Http1 => HttpVersion::Http1,
            Protocol::Http2 => HttpVersion::Http2 {
                stream_window,
                connection_window: CONNECTION_WINDOW,
            },
        }
    }

    pub(super) fn accept(&self) -> &'static str {
        match self.config.format {
            WireFormat::Json => "application/json",
            WireFormat::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    /// The path of a watch by watcher `number`, which goes on at `version` if there is one.
    pub(super) fn watch_path(&self, number: u32, version: Option<u64>) -> String {
        let seconds = WATCH_SECONDS.max(2 * self.config.duration.as_secs());
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("watch", "true");
        query.append_pair("allowWatchBookmarks", "true");
        query.append_pair("timeoutSeconds", &seconds.to_string());
        match version {
            Some(version) => {
                query.append_pair("resourceVersion", &version.to_string());
            }
            None if self.config.watch_list => {
                query.append_pair("sendInitialEvents", "true");
                query.append_pair("resourceVersionMatch", "NotOlderThan");
            }
            None => {
                query.append_pair("resourceVersion", "0");
            }
        }
        if let Some(selector) = &self.config.selector {
            query.append_pair(selector.parameter(), &selector.for_watcher(number));
        }
        format!("{}?{}", self.collection, query.finish())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;
    use crate::upstream::Dial;

    fn run_state(config: &Config) -> RunState {
        let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
        RunState::new(config, Client::in_memory(&dial), "/x".to_owned(), "r")
    }

    #[tokio::test]
    async fn the_window_limits_writes_in_flight() {
        let selector = || "app=a-{i}".parse().expect("a selector");
        for (selector, events_of_a_write) in [(None, 3), (Some(selector()), 1)] {
            let run_state = run_state(&Config {
                watchers: 3,
                window: Some(2),
                selector,
                ..Config::for_tests()
            });
            let entered = || (0..9).filter(|_| run_state.try_enter_window()).count();
            assert_eq!(entered(), 2);
            run_state
                .delivered
                .fetch_add(events_of_a_write - 1, Ordering::Relaxed);
            assert_eq!(entered(), 0);
            run_state.delivered.fetch_add(1, Ordering::Relaxed);
            assert_eq!(entered(), 1);
        }
        // A larger one opens again when half of it is empty.
        let shared_by_four = run_state(&Config {
            window: Some(4),
            ..Config::for_tests()
        });
        let entered = || (0..9).filter(|_| shared_by_four.try_enter_window()).count();
        let mut counts = vec![entered()];
        for _ in 0..2 {
            shared_by_four.delivered.fetch_add(1, Ordering::Relaxed);
            counts.push(entered());
        }
        assert_eq!(counts, [4, 0, 2]);
        let endless = run_state(&Config::for_tests());
        assert!((0..100_000).all(|_| endless.try_enter_window()));
    }

    #[tokio::test]
    async fn writing_is_over_after_a_signal_and_after_a_failure() {
        type End = fn(&RunState);
        let ends: [(End, bool); 2] = [
            (RunState::cut_short, true),
            (|run_state| run_state.fail("x".to_owned()), false),
        ];
        for (end, is_cut_short) in ends {
            let run_state = run_state(&Config::for_tests());
            assert!(!run_state.is_writing_over());
            end(&run_state);
            run_state.writing_over().await;
            assert!(run_state.is_writing_over());
            assert_eq!(run_state.is_cut_short(), is_cut_short);
        }
    }
}
