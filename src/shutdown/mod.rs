//! How the process ends: the first signal drains, the second aborts.
//!
//! [`Shutdown`] is a cheap handle that every room may hold: it spawns counted tasks, tells how far the
//! drain is, and ends watches one after another. Only `app` drives it, with [`Shutdown::run`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::task::ready;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Sleep;
use tokio::time::sleep;
use tokio::time::timeout;
use tracing::info;
use tracing::warn;

use waiters::Waiter;
use waiters::Waiters;

pub use signals::Signals;

mod signals;
mod waiters;

/// Clients that lost their watch connect again elsewhere; one end each this long spares the siblings
/// a stampede, while a handful of watches still ends at once.
const WATCH_END_INTERVAL: Duration = Duration::from_millis(5);
/// Background tasks are dropped at their next await point; this is long for that.
const BACKGROUND_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How long each step of a drain may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long new connections are still taken after readiness was withdrawn, so that load
    /// balancers notice first. Default is zero.
    pub not_ready_delay: Duration,
    /// How long requests and watches have to end after that. Watches are ended within the first
    /// four fifths of it. Default is 25 s, less than the 30 s a pod has by default.
    pub grace: Duration,
}

/// Where the process is on its way out. Phases only go forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Serving; no signal was received.
    Serving,
    /// Readiness is withdrawn; everything else goes on.
    NotReady,
    /// Listeners are closed, connections take no further requests.
    StopAccepting,
    /// Watches end, paced; other requests finish by themselves.
    EndWatches,
    /// Nobody is served any more; background tasks are dropped.
    Done,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every task ended by itself.
    Drained,
    /// The grace was over before this many tasks had ended.
    Unfinished {
        /// Connections and the like that were still open.
        tasks: usize,
    },
    /// A second signal came: the caller should exit without waiting for anything.
    Aborted,
}

/// Handle to the process' end; clones share it.
#[derive(Clone)]
pub struct Shutdown {
    state: Arc<State>,
}

struct State {
    config: Config,
    waiters: Waiters,
    /// Where background tasks run; where they are spawned as long as nothing is set.
    background_runtime: OnceLock<Handle>,
    serving: watch::Sender<usize>,
    background: watch::Sender<usize>,
    watches: AtomicUsize,
}

/// Future of [`Shutdown::reached`]. Cancel safe, and may be polled again after it completed; a clone
/// waits for the same phase.
pub struct PhaseReached {
    shutdown: Shutdown,
    phase: Phase,
    waiter: Waiter,
}

/// Future of [`Shutdown::watch_end`]. Cancel safe.
pub struct WatchEnd {
    ending: PhaseReached,
    /// Until the moment of this watch, once watches end.
    pause: Option<Pin<Box<Sleep>>>,
}

/// Counts a task as long as it lives, panics included.
struct CountedTask(watch::Sender<usize>);

// === impl Phase ===

impl Phase {
    /// All, in their order.
    const ALL: [Phase; 5] = [
        Phase::Serving,
        Phase::NotReady,
        Phase::StopAccepting,
        Phase::EndWatches,
        Phase::Done,
    ];
}

// === impl Shutdown ===

impl Shutdown {
    /// A process that serves.
    pub fn new(config: Config) -> Shutdown {
        let state = State {
            config,
            waiters: Waiters::new(),
            background_runtime: OnceLock::new(),
            serving: watch::Sender::new(0),
            background: watch::Sender::new(0),
            watches: AtomicUsize::new(0),
        };
        Shutdown {
            state: Arc::new(state),
        }
    }

    /// The current phase.
    pub fn phase(&self) -> Phase {
        self.state.waiters.phase()
    }

    /// Whether a drain has begun: readiness should be withdrawn.
    pub fn is_draining(&self) -> bool {
        self.phase() > Phase::Serving
    }

    /// Completes when a drain begins.
    pub fn draining(&self) -> PhaseReached {
        self.reached(Phase::NotReady)
    }

    /// Completes when `phase`, or a later one, is reached.
    pub fn reached(&self, phase: Phase) -> PhaseReached {
        PhaseReached {
            shutdown: self.clone(),
            phase,
            waiter: Waiter::default(),
        }
    }

    /// Completes when the watch that holds this future should end.
    ///
    /// Each watch gets a random moment after [`Phase::EndWatches`]; the more watches are open, the
    /// more these moments are spread.
    pub fn watch_end(&self) -> WatchEnd {
        self.state.watches.fetch_add(1, Ordering::Relaxed);
        WatchEnd {
            ending: self.reached(Phase::EndWatches),
            pause: None,
        }
    }

    /// Spawns a task that serves somebody. A drain waits for it as long as the grace lasts.
    ///
    /// Dropping the handle detaches the task.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.spawn_on(&Handle::current(), future)
    }

    /// As [`Shutdown::spawn`], on another runtime than the current one.
    pub fn spawn_on<F>(&self, runtime: &Handle, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let counted = CountedTask::new(&self.state.serving);
        runtime.spawn(async move {
            let _counted = counted;
            future.await
        })
    }

    /// Has all further background tasks run on the current runtime, whoever spawns them: they may
    /// compute for long, which who serves clients must not wait for. Only the first call counts.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn set_background_runtime(&self) {
        self.state.background_runtime.get_or_init(Handle::current);
    }

    /// Spawns a task that serves everybody, such as an informer: it is dropped at
    /// [`Phase::Done`], at an await point, so it needs no end of its own.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn_background<F>(&self, future: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let counted = CountedTask::new(&self.state.background);
        let done = self.reached(Phase::Done);
        let runtime = self.state.background_runtime.get().cloned();
        let runtime = runtime.unwrap_or_else(Handle::current);
        runtime.spawn(async move {
            let _counted = counted;
            tokio::select! {
                () = done => {}
                () = future => {}
            }
        })
    }

    /// How many tasks of [`Shutdown::spawn`] live.
    pub fn serving_tasks(&self) -> usize {
        *self.state.serving.borrow()
    }

    /// Waits for a signal, then drains; a second signal ends the wait.
    pub async fn run(&self, mut signals: Signals) -> Outcome {
        let signal = signals.next().await;
        info!(signal, "draining; a second signal aborts");
        tokio::select! {
            outcome = self.drain() => outcome,
            signal = signals.next() => {
                warn!(signal, tasks = self.serving_tasks(), "aborted");
                Outcome::Aborted
            }
        }
    }

    /// Goes through all phases; returns when every task has ended or the grace is over.
    pub async fn drain(&self) -> Outcome {
        let Config {
            not_ready_delay,
            grace,
        } = self.state.config;
        self.enter(Phase::NotReady);
        sleep(not_ready_delay).await;
        self.enter(Phase::StopAccepting);
        self.enter(Phase::EndWatches);
        let serving_ended = timeout(grace, wait_for_none(&self.state.serving)).await;
        self.enter(Phase::Done);
        let background_ended = timeout(
            BACKGROUND_STOP_TIMEOUT,
            wait_for_none(&self.state.background),
        )
        .await;
        if serving_ended.is_ok() && background_ended.is_ok() {
            return Outcome::Drained;
        }
        let tasks = self.serving_tasks() + *self.state.background.borrow();
        warn!(tasks, "not every task ended within the grace");
        Outcome::Unfinished { tasks }
    }

    fn enter(&self, phase: Phase) {
        let entered = self.state.waiters.enter(phase);
        if entered {
            info!(?phase, tasks = self.serving_tasks(), "shutdown");
        }
    }

    fn watch_end_spread(&self) -> Duration {
        let watches = self.state.watches.load(Ordering::Relaxed);
        let paced = WATCH_END_INTERVAL.saturating_mul(u32::try_from(watches).unwrap_or(u32::MAX));
        paced.min(self.state.config.grace.mul_f64(0.8))
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            not_ready_delay: Duration::ZERO,
            grace: Duration::from_secs(25),
        }
    }
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown")
            .field("phase", &self.phase())
            .field("serving_tasks", &self.serving_tasks())
            .finish_non_exhaustive()
    }
}

async fn wait_for_none(count: &watch::Sender<usize>) {
    // The sender is borrowed for the whole wait: it can't be gone.
    let _ = count.subscribe().wait_for(|tasks| *tasks == 0).await;
}

// === impl PhaseReached, WatchEnd ===

impl Future for PhaseReached {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let PhaseReached {
            shutdown,
            phase,
            waiter,
        } = &mut *self;
        shutdown.state.waiters.poll(*phase, waiter, cx)
    }
}

impl Drop for PhaseReached {
    fn drop(&mut self) {
        self.shutdown.state.waiters.unregister(&mut self.waiter);
    }
}

impl Clone for PhaseReached {
    fn clone(&self) -> PhaseReached {
        self.shutdown.reached(self.phase)
    }
}

impl fmt::Debug for PhaseReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PhaseReached").field(&self.phase).finish()
    }
}

impl Future for WatchEnd {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        ready!(Pin::new(&mut self.ending).poll(cx));
        let WatchEnd { ending, pause } = &mut *self;
        let pause = pause.get_or_insert_with(|| {
            let share = rand::random::<f64>();
            Box::pin(sleep(ending.shutdown.watch_end_spread().mul_f64(share)))
        });
        pause.as_mut().poll(cx)
    }
}

impl Drop for WatchEnd {
    fn drop(&mut self) {
        let watches = &self.ending.shutdown.state.watches;
        watches.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for WatchEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchEnd")
    }
}

// === impl CountedTask ===

impl CountedTask {
    fn new(count: &watch::Sender<usize>) -> CountedTask {
        count.send_modify(|tasks| *tasks += 1);
        CountedTask(count.clone())
    }
}

impl Drop for CountedTask {
    fn drop(&mut self) {
        self.0.send_modify(|tasks| *tasks -= 1);
    }
}

#[cfg(test)]
mod tests;
