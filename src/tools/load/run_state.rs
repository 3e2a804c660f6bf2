//! The state of a run that all its threads share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use kubefan_core::upstream::{Client, HttpVersion};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::clock::{Acknowledgements, Clock};
use super::config::{Config, Protocol};
use super::error::Error;
use super::watch::frames::VersionFinder;
use super::write::marker::MarkerFinder;

/// The time within which every watcher must receive all objects.
pub(super) const SYNC_LIMIT: Duration = Duration::from_secs(120);
/// How long the run waits for answers to pending requests after a signal.
pub(super) const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// The HTTP/2 flow-control window of a stream of a watcher or listing client, in bytes.
pub(super) const STREAM_WINDOW: u32 = 4 << 20;
/// The HTTP/2 flow-control window of a connection, in bytes, shared by all its streams.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// The flow-control window, in bytes, of a stream that is never read. It is HTTP/2's default, which
/// is so small that the server must wait soon.
pub(super) const SLOW_STREAM_WINDOW: u32 = (1 << 16) - 1;
/// The lower limit of the `timeoutSeconds` that watches ask for; long writing phases ask for more.
const WATCH_SECONDS: u64 = 3_600;

/// The state that all threads of one run share.
pub(super) struct RunState {
    pub(super) config: Config,
    pub(super) client: Client,
    /// The URL path of the collection that the clients watch and list.
    pub(super) collection: String,
    pub(super) clock: Clock,
    pub(super) acknowledgements: Acknowledgements,
    pub(super) markers: MarkerFinder,
    pub(super) versions: VersionFinder,
    /// The start of the measurement, in nanoseconds of the run's clock: later events count.
    /// `u64::MAX` before the first write.
    measured_from: AtomicU64,
    /// The number of watchers that have received every object that they select.
    pub(super) synced: AtomicUsize,
    /// The number of open watches of slow watchers, which never read.
    pub(super) open_slow_watches: AtomicU32,
    /// The writes that have entered the window, and those before it; stays 0 without a window.
    pub(super) sent: AtomicU64,
    /// False after the window has become full, until it is at most half full.
    is_window_open: AtomicBool,
    /// The number of events that all watchers together have received for the run's writes. An event
    /// that a watcher receives again does not count.
    pub(super) delivered: AtomicU64,
    pub(super) sync_deadline: Instant,
    /// The time when all connections were cut, in nanoseconds of the run's clock; `u64::MAX` before
    /// the cut.
    cut_at: AtomicU64,
    /// True after the cut.
    cut: watch::Sender<bool>,
    /// The number of watchers that have received an event of a write after the cut.
    pub(super) live: AtomicUsize,
    failure: Mutex<Option<String>>,
    is_cut_short: AtomicBool,
    /// True when the writers must stop.
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
            cut_at: AtomicU64::new(u64::MAX),
            cut: watch::Sender::new(false),
            live: AtomicUsize::new(0),
            failure: Mutex::new(None),
            is_cut_short: AtomicBool::new(false),
            writing_over: watch::Sender::new(false),
            stop: watch::Sender::new(false),
        }
    }

    /// Starts to count events, and returns the current time of the run's clock in nanoseconds.
    pub(super) fn start_measuring(&self) -> u64 {
        let now = self.clock.now();
        self.measured_from.store(now, Ordering::Release);
        now
    }

    /// Returns the start of the measurement, in nanoseconds of the run's clock: later events count.
    /// `None` before the first write.
    pub(super) fn measured_from(&self) -> Option<u64> {
        let from = self.measured_from.load(Ordering::Acquire);
        (from != u64::MAX).then_some(from)
    }

    /// Cuts all connections of watchers, and ends the measurement of events. Returns the current
    /// time of the run's clock in nanoseconds. No writer may run.
    pub(super) fn cut_connections(&self) -> u64 {
        if self.config.window.is_some() {
            // Writes that were not sent, or that a watcher has missed, must not fill the window for
            // ever.
            self.sent.store(self.received_writes(), Ordering::Relaxed);
        }
        let now = self.clock.now();
        self.cut_at.store(now, Ordering::Release);
        self.cut.send_replace(true);
        now
    }

    /// Returns the time when all connections were cut, in nanoseconds of the run's clock; `None`
    /// before the cut.
    pub(super) fn cut_at(&self) -> Option<u64> {
        let at = self.cut_at.load(Ordering::Acquire);
        (at != u64::MAX).then_some(at)
    }

    /// Completes after [`RunState::cut_connections`] was called.
    pub(super) async fn connections_cut(&self) {
        let mut cut = self.cut.subscribe();
        // This cannot fail, because `self` owns the sender.
        let _ = cut.wait_for(|cut| *cut).await;
    }

    /// Fails the run because of a problem that a retry would not solve. Only the
    /// first problem is remembered.
    pub(super) fn fail(&self, problem: String) {
        self.failure.lock().get_or_insert(problem);
        self.writing_over.send_replace(true);
    }

    /// Returns the problem of [`RunState::fail`] as an error.
    pub(super) fn check(&self) -> Result<(), Error> {
        let problem = self.failure.lock().clone();
        problem.map_or(Ok(()), |problem| Err(Error::Refused(problem)))
    }

    /// Returns the number of writes that the watchers have received, on average.
    fn received_writes(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed) / self.config.watchers_of_an_object()
    }

    /// Tries to add a write to the window. The window limits how many writes the watchers, on
    /// average, have not received yet. Returns false if the window is full, or was full and is not
    /// half empty yet. Always returns true without a window.
    pub(super) fn try_enter_window(&self) -> bool {
        let Some(window) = self.config.window else {
            return true;
        };
        let received = self.received_writes();
        let is_half_empty = self.sent.load(Ordering::Relaxed) <= received + u64::from(window / 2);
        if !is_half_empty && !self.is_window_open.load(Ordering::Relaxed) {
            return false;
        }
        let most = received + u64::from(window);
        let enter = |sent| (sent < most).then_some(sent + 1);
        let entered = self
            .sent
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter)
            .is_ok();
        self.is_window_open.store(entered, Ordering::Relaxed);
        entered
    }

    /// Stops the writers before the end of their schedule, because of a signal.
    pub(super) fn cut_short(&self) {
        self.is_cut_short.store(true, Ordering::Relaxed);
        self.writing_over.send_replace(true);
    }

    /// Stops the writers, because enough was written.
    pub(super) fn end_writing(&self) {
        self.writing_over.send_replace(true);
    }

    pub(super) fn is_cut_short(&self) -> bool {
        self.is_cut_short.load(Ordering::Relaxed)
    }

    /// Returns true if the writers must stop: because of a signal, because the run has failed, or
    /// because enough was written.
    pub(super) fn is_writing_over(&self) -> bool {
        *self.writing_over.borrow()
    }

    /// Completes as soon as [`RunState::is_writing_over`] is true.
    pub(super) async fn writing_over(&self) {
        let mut writing_over = self.writing_over.subscribe();
        // This cannot fail, because `self` owns the sender.
        let _ = writing_over.wait_for(|writing_over| *writing_over).await;
    }

    /// Ends the watchers, the list storm and the sampling of memory.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Completes after [`RunState::stop`] was called.
    pub(super) async fn stopped(&self) {
        let mut stop = self.stop.subscribe();
        // This cannot fail, because `self` owns the sender.
        let _ = stop.wait_for(|stop| *stop).await;
    }

    /// Returns the HTTP version and windows of connections whose streams have this window.
    pub(super) fn http_version(&self, stream_window: u32) -> HttpVersion {
        match self.config.protocol {
            Protocol::Http1 => HttpVersion::Http1,
            Protocol::Http2 => HttpVersion::Http2 {
                stream_window,
                connection_window: CONNECTION_WINDOW,
            },
        }
    }

    /// Returns the path and query of a watch by watcher `number`. The watch resumes at `version`.
    /// Without a version, the watch starts with the initial objects.
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

    use kubefan_core::upstream::Dial;

    use super::*;

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
        // A window of four writes opens again when two of them have reached every watcher.
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
        // Writes that did not reach the watchers before the cut take no room after it.
        shared_by_four.cut_connections();
        assert_eq!(entered(), 4);
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
