//! The threads that receive: each has a runtime of its own, and its share of the connections.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio::time::timeout;

use crate::body::Body;
use crate::shutdown::Shutdown;
use crate::tools::load::config::Protocol;
use crate::tools::load::run_state::RunState;

use super::slot::Slot;
use super::tally::Tally;
use super::watcher::OpenOutcome;
use super::watcher::WatcherContext;
use super::watcher::WatcherStats;
use super::watcher::open;
use super::watcher::watch;

/// Watches that a thread opens at a time.
const MAX_OPENING: usize = 32;
/// Slow watchers on an HTTP/2 connection.
const SLOW_PER_CONNECTION: u32 = 100;
/// Time in which the end of a stream that nobody has read must show.
const SLOW_SILENCE: Duration = Duration::from_millis(500);
const SLOW_LIMIT: Duration = Duration::from_secs(10);

/// The threads at work.
pub(crate) struct Receivers(Vec<oneshot::Receiver<ReceiverStats>>);

/// What a thread, or all, received.
pub(crate) struct ReceiverStats {
    pub(crate) watchers: Vec<WatcherStats>,
    pub(crate) tally: Tally,
    pub(crate) slow: SlowWatchers,
}

/// What became of the watchers that don't read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlowWatchers {
    pub(crate) opened: u64,
    /// Those that the server had ended.
    pub(crate) ended: u64,
}

impl Receivers {
    /// Starts the threads; `step` is that of the tallies, in nanoseconds.
    pub(crate) fn start(
        run_state: &Arc<RunState>,
        shutdown: &Shutdown,
        step: u64,
    ) -> io::Result<Self> {
        let threads = run_state.config.threads;
        let started = (0..threads).map(|thread| {
            let (sender, received) = oneshot::channel();
            let (run_state, shutdown) = (Arc::clone(run_state), shutdown.clone());
            let runtime = Builder::new_current_thread().enable_all().build()?;
            std::thread::Builder::new()
                .name(format!("load-{thread}"))
                .spawn(move || {
                    let done = runtime.block_on(receive(run_state, shutdown, thread, step));
                    // Nobody is there when the run was aborted.
                    let _ = sender.send(done);
                })?;
            Ok(received)
        });
        Ok(Self(started.collect::<io::Result<_>>()?))
    }

    /// What all received, after [`RunState::stop`].
    pub(crate) async fn finish(self, step: u64) -> io::Result<ReceiverStats> {
        let mut all = ReceiverStats {
            watchers: Vec::new(),
            tally: Tally::new(step),
            slow: SlowWatchers::default(),
        };
        for thread in self.0 {
            let received = thread.await.map_err(io::Error::other)?;
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
    let config = &run_state.config;
    let is_shared = config.protocol == Protocol::Http2;
    let mut tasks = Vec::new();
    // Slots of this thread, by the number of their connection.
    let mut slots: Vec<Arc<Slot>> = Vec::new();
    for number in 0..config.watchers {
        let connection = if is_shared {
            number % config.connections
        } else {
            number
        };
        if connection % config.threads != thread {
            continue;
        }
        let at = (connection / config.threads) as usize;
        if at >= slots.len() {
            slots.resize_with(at + 1, || Arc::new(Slot::new(run_state.http_version())));
        }
        let (context, slot) = (Arc::clone(&context), Arc::clone(&slots[at]));
        tasks.push(shutdown.spawn(watch(context, slot, number)));
    }
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

/// Watches that nobody reads; they select as the first watchers do.
async fn open_slow(context: &WatcherContext) -> Vec<Body> {
    let config = &context.run_state.config;
    let mut slow = Vec::new();
    let version = context.run_state.slow_http_version();
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
        match open(context, &slot, &path, &mut 0).await {
            OpenOutcome::Watch(body, _) => {
                slow.push(body);
                context
                    .run_state
                    .open_slow_watches
                    .fetch_add(1, Ordering::Relaxed);
            }
            OpenOutcome::Refused => break,
            OpenOutcome::Expired => {
                let problem = "a watch that names no version was refused as expired";
                context.run_state.fail(format!("{problem}: {path}"));
                break;
            }
        }
    }
    slow
}

/// Reads what lies there, to see whether the server has ended the streams.
async fn count_ended(slow: Vec<Body>) -> SlowWatchers {
    let opened = slow.len() as u64;
    let deadline = Instant::now() + SLOW_LIMIT;
    let looked = slow.into_iter().map(|mut body| async move {
        while Instant::now() < deadline {
            match timeout(SLOW_SILENCE, body.frame()).await {
                Ok(Some(Ok(_))) => {}
                Ok(_) => return 1,
                Err(_) => return 0,
            }
        }
        0
    });
    let ended = futures_util::future::join_all(looked).await;
    SlowWatchers {
        opened,
        ended: ended.into_iter().sum(),
    }
}
