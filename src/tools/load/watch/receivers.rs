//! The receiving threads. Each has its own runtime and its share of the connections.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http_body_util::BodyExt;
use kubefan_core::body::Body;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::HttpVersion;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::slot::Slot;
use super::tally::Tally;
use super::watcher::{OpenOutcome, WatcherContext, WatcherStats, open, watch};
use crate::load::config::Protocol;
use crate::load::http2::Windows;
use crate::load::run_state::{RunState, SLOW_STREAM_WINDOW, STREAM_WINDOW};
use crate::load::workers::Worker;

/// The number of watches that a thread opens concurrently.
const MAX_OPENING: usize = 32;
/// The number of slow watchers per HTTP/2 connection.
const SLOW_PER_CONNECTION: u32 = 100;
/// At the end of a run, a slow watcher's stream counts as still open if it delivers nothing for
/// this time.
const OPEN_STREAM_SILENCE: Duration = Duration::from_millis(500);
/// The total time, at the end of a run, for reading the streams of the slow watchers.
const SLOW_READ_LIMIT: Duration = Duration::from_secs(10);

/// The running receiving threads.
pub(crate) struct Receivers(Vec<Worker<ReceiverStats>>);

/// The results of one receiving thread, or of all threads together.
pub(crate) struct ReceiverStats {
    pub(crate) watchers: Vec<WatcherStats>,
    pub(crate) tally: Tally,
    pub(crate) slow: SlowWatchers,
}

/// The numbers of slow watchers, which open a watch and do not read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlowWatchers {
    pub(crate) opened: u64,
    /// The number of slow watchers that had lost their watch because the server ended it.
    pub(crate) ended: u64,
}

impl Receivers {
    /// Starts the threads. `step` is the length of a step of the tallies' timelines, in
    /// nanoseconds.
    pub(crate) fn start(
        run_state: &Arc<RunState>,
        shutdown: &Shutdown,
        step: u64,
    ) -> io::Result<Self> {
        let threads = run_state.config.threads;
        let started = (0..threads).map(|thread| {
            let (run_state, shutdown) = (Arc::clone(run_state), shutdown.clone());
            let receive = move || receive(run_state, shutdown, thread, step);
            Worker::start(format!("load-{thread}"), receive)
        });
        Ok(Self(started.collect::<io::Result<_>>()?))
    }

    /// Collects the results of all threads; call it after [`RunState::stop`].
    pub(crate) async fn finish(self, step: u64) -> io::Result<ReceiverStats> {
        let mut all = ReceiverStats {
            watchers: Vec::new(),
            tally: Tally::new(step),
            slow: SlowWatchers::default(),
        };
        for thread in self.0 {
            let received = thread.finish().await?;
            all.watchers.extend(received.watchers);
            all.tally.add(&received.tally);
            all.slow.opened += received.slow.opened;
            all.slow.ended += received.slow.ended;
        }
        Ok(all)
    }
}

async fn receive(
    run_state: Arc<RunState>,
    shutdown: Shutdown,
    thread: u32,
    step: u64,
) -> ReceiverStats {
    let context = Arc::new(WatcherContext {
        run_state: Arc::clone(&run_state),
        tally: parking_lot::Mutex::new(Tally::new(step)),
        opening_permits: Semaphore::new(MAX_OPENING),
    });
    let (tasks, slots) = start_watches(&context, &shutdown, thread);
    let slow = async {
        match thread {
            0 => open_slow(&context).await,
            _ => Vec::new(),
        }
    };
    let slow = tokio::select! {
        slow = slow => slow,
        () = run_state.stopped() => Vec::new(),
    };
    tokio::select! {
        () = cut(&run_state, &slots) => {}
        () = run_state.stopped() => {}
    }
    let mut watchers = Vec::with_capacity(tasks.len());
    for task in tasks {
        match task.await {
            Ok(result) => watchers.push(result),
            Err(error) => run_state.fail(format!("a watcher ended early: {error}")),
        }
    }
    let slow = count_ended(slow).await;
    let tally = std::mem::replace(&mut *context.tally.lock(), Tally::new(step));
    ReceiverStats {
        watchers,
        tally,
        slow,
    }
}

/// Cuts the connections of this thread's watchers when the run says so.
async fn cut(run_state: &RunState, slots: &[Arc<Slot>]) {
    run_state.connections_cut().await;
    for slot in slots {
        slot.cut().await;
    }
}

/// Starts the watches on this thread's share of the connections. Returns them and the connections.
fn start_watches(
    context: &Arc<WatcherContext>,
    shutdown: &Shutdown,
    thread: u32,
) -> (Vec<JoinHandle<WatcherStats>>, Vec<Arc<Slot>>) {
    let config = &context.run_state.config;
    let mut tasks = Vec::new();
    // The connections of this thread, ordered by connection number.
    let mut slots: Vec<Arc<Slot>> = Vec::new();
    for number in 0..config.watchers {
        let connection = match config.protocol {
            Protocol::Http1 => number,
            Protocol::Http2 => number % config.connections,
        };
        if connection % config.threads != thread {
            continue;
        }
        let at = (connection / config.threads) as usize;
        if at >= slots.len() {
            let slot = || Arc::new(watcher_slot(&context.run_state));
            slots.resize_with(at + 1, slot);
        }
        let (context, slot) = (Arc::clone(context), Arc::clone(&slots[at]));
        tasks.push(shutdown.spawn(watch(context, slot, number)));
    }
    (tasks, slots)
}

/// Returns a slot for a connection of watchers.
fn watcher_slot(run_state: &RunState) -> Slot {
    match run_state.http_version(STREAM_WINDOW) {
        HttpVersion::Http2 {
            stream_window,
            connection_window,
        } => Slot::with_sinks(Windows {
            stream: stream_window,
            connection: connection_window,
        }),
        http1 => Slot::new(http1),
    }
}

/// Opens the watches of the slow watchers, with the selectors of the first watchers.
async fn open_slow(context: &WatcherContext) -> Vec<Body> {
    let config = &context.run_state.config;
    let mut slow = Vec::new();
    let version = context.run_state.http_version(SLOW_STREAM_WINDOW);
    let mut slot = Slot::new(version);
    for number in 0..config.slow_watchers {
        let is_full = match config.protocol {
            Protocol::Http1 => true,
            Protocol::Http2 => number.is_multiple_of(SLOW_PER_CONNECTION),
        };
        if is_full {
            slot = Slot::new(version);
        }
        let path = context.run_state.watch_path(number % config.watchers, None);
        match open(context, &slot, &path, || ()).await {
            OpenOutcome::Watch(opened) => {
                slow.push(opened.response.into_body());
                context
                    .run_state
                    .open_slow_watches
                    .fetch_add(1, Ordering::Relaxed);
            }
            OpenOutcome::Refused => break,
            OpenOutcome::Expired => {
                let problem = "a watch without a version was refused as expired";
                context.run_state.fail(format!("{problem}: {path}"));
                break;
            }
        }
    }
    slow
}

/// Reads what the slow watchers have buffered, and counts the streams that the server has ended.
async fn count_ended(slow: Vec<Body>) -> SlowWatchers {
    let opened = slow.len() as u64;
    let deadline = Instant::now() + SLOW_READ_LIMIT;
    let checks = slow.into_iter().map(|mut body| async move {
        while Instant::now() < deadline {
            match timeout(OPEN_STREAM_SILENCE, body.frame()).await {
                Ok(Some(Ok(_))) => {}
                Ok(_) => return 1,
                Err(_) => return 0,
            }
        }
        0
    });
    let ended = futures_util::future::join_all(checks).await;
    SlowWatchers {
        opened,
        ended: ended.into_iter().sum(),
    }
}
