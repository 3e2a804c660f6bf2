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
use crate::tools::load::shared::Shared;

use super::slot::Slot;
use super::tally::Tally;
use super::watcher::Opened;
use super::watcher::Ward;
use super::watcher::Watched;
use super::watcher::open;
use super::watcher::watch;

/// Watches that a thread opens at a time.
const OPENING: usize = 32;
/// Slow watchers on an HTTP/2 connection.
const SLOW_PER_CONNECTION: u32 = 100;
/// Time in which the end of a stream that nobody has read must show.
const SLOW_SILENCE: Duration = Duration::from_millis(500);
const SLOW_LIMIT: Duration = Duration::from_secs(10);

/// The threads at work.
pub(crate) struct Receivers(Vec<oneshot::Receiver<Received>>);

/// What a thread, or all, received.
pub(crate) struct Received {
    pub(crate) watched: Vec<Watched>,
    pub(crate) tally: Tally,
    pub(crate) slow: Slow,
}

/// What became of the watchers that don't read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slow {
    pub(crate) opened: u64,
    /// Those that the server had ended.
    pub(crate) ended: u64,
}

impl Receivers {
    /// Starts the threads; `step` is that of the tallies, in nanoseconds.
    pub(crate) fn start(shared: &Arc<Shared>, shutdown: &Shutdown, step: u64) -> io::Result<Self> {
        let threads = shared.config.threads;
        let started = (0..threads).map(|thread| {
            let (told, received) = oneshot::channel();
            let (shared, shutdown) = (Arc::clone(shared), shutdown.clone());
            let runtime = Builder::new_current_thread().enable_all().build()?;
            std::thread::Builder::new()
                .name(format!("load-{thread}"))
                .spawn(move || {
                    let done = runtime.block_on(receive(shared, shutdown, thread, step));
                    // Nobody is there when the run was aborted.
                    let _ = told.send(done);
                })?;
            Ok(received)
        });
        Ok(Self(started.collect::<io::Result<_>>()?))
    }

    /// What all received, after [`Shared::stop`].
    pub(crate) async fn finish(self, step: u64) -> io::Result<Received> {
        let mut all = Received {
            watched: Vec::new(),
            tally: Tally::new(step),
            slow: Slow::default(),
        };
        for thread in self.0 {
            let received = thread.await.map_err(io::Error::other)?;
            all.watched.extend(received.watched);
            all.tally.add(&received.tally);
            all.slow.opened += received.slow.opened;
            all.slow.ended += received.slow.ended;
        }
        Ok(all)
    }
}

async fn receive(shared: Arc<Shared>, shutdown: Shutdown, thread: u32, step: u64) -> Received {
    let ward = Arc::new(Ward {
        shared: Arc::clone(&shared),
        tally: parking_lot::Mutex::new(Tally::new(step)),
        opening: Semaphore::new(OPENING),
    });
    let config = &shared.config;
    let is_shared = config.protocol == Protocol::Http2;
    let mut watchers = Vec::new();
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
            slots.resize_with(at + 1, || Arc::new(Slot::new(shared.version())));
        }
        let (ward, slot) = (Arc::clone(&ward), Arc::clone(&slots[at]));
        watchers.push(shutdown.spawn(watch(ward, slot, number)));
    }
    let slow = async {
        match thread {
            0 => open_slow(&ward).await,
            _ => Vec::new(),
        }
    };
    let slow = tokio::select! {
        slow = slow => slow,
        () = shared.stopped() => Vec::new(),
    };
    let mut watched = Vec::with_capacity(watchers.len());
    for watcher in watchers {
        match watcher.await {
            Ok(result) => watched.push(result),
            Err(error) => shared.fail(format!("a watcher ended early: {error}")),
        }
    }
    let slow = look_after(slow).await;
    let tally = std::mem::replace(&mut *ward.tally.lock(), Tally::new(step));
    Received {
        watched,
        tally,
        slow,
    }
}

/// Watches that nobody reads; they select as the first watchers do.
async fn open_slow(ward: &Ward) -> Vec<Body> {
    let config = &ward.shared.config;
    let mut slow = Vec::new();
    let version = ward.shared.slow_version();
    let mut slot = Slot::new(version);
    for number in 0..config.slow_watchers {
        let is_full = match config.protocol {
            Protocol::Http1 => true,
            Protocol::Http2 => number.is_multiple_of(SLOW_PER_CONNECTION),
        };
        if is_full {
            slot = Slot::new(version);
        }
        let path = ward.shared.watch_path(number % config.watchers, None);
        match open(ward, &slot, &path, &mut 0).await {
            Opened::Watch(body, _) => {
                slow.push(body);
                ward.shared.slow.fetch_add(1, Ordering::Relaxed);
            }
            Opened::Refused => break,
            Opened::Expired => {
                let problem = "a watch that names no version was refused as expired";
                ward.shared.fail(format!("{problem}: {path}"));
                break;
            }
        }
    }
    slow
}

/// Reads what lies there, to see whether the server has ended the streams.
async fn look_after(slow: Vec<Body>) -> Slow {
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
    Slow {
        opened,
        ended: ended.into_iter().sum(),
    }
}
