//! The end of the process: the first signal starts a drain, the second one aborts it.
//!
//! [`Shutdown`] is a cheap handle that any module may hold. It spawns counted tasks, reports the
//! phase of the drain, and spreads the ends of watches over time. Only the owner of the process
//! calls [`Shutdown::run`], which goes through the phases.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

pub use signals::Signals;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep, timeout};
use tracing::{info, warn};
use waiters::{Waiter, Waiters};

mod last_resort;
mod signals;
mod waiters;

/// Average time between the ends of two watches. Clients reconnect to other instances, which many
/// simultaneous ends would overload; a few watches still end almost at once.
const WATCH_END_INTERVAL: Duration = Duration::from_millis(5);
/// Limit for background tasks to reach their next await point, where they are dropped.
const BACKGROUND_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Limits for the steps of a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long everything is still served after `/readyz` fails, so that load balancers notice
    /// first. Default is zero.
    pub not_ready_delay: Duration,
    /// How long requests and watches may take to end after `not_ready_delay`. Watches are ended
    /// within the first four fifths of this time. Default is 25 s, because a pod has 30 s by
    /// default.
    pub grace: Duration,
}

/// The progress of a drain. Phases never go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No signal was received, and everything is served.
    Serving,
    /// `/readyz` fails; everything else continues.
    NotReady,
    /// Listeners are closed, and connections accept no further requests.
    StopAccepting,
    /// Watches are ended at random moments; other requests finish by themselves.
    EndWatches,
    /// No client is served any more, and background tasks are dropped.
    Done,
}

/// The result of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All tasks ended in time.
    Drained,
    /// Some tasks were still running when their time limit was over.
    Unfinished {
        /// The number of running tasks, such as connections and background tasks.
        tasks: usize,
    },
    /// A second signal arrived: the caller should exit without waiting for anything.
    Aborted,
}

/// A handle to the shutdown of the process. Clones share the phase and the task counts.
#[derive(Clone)]
pub struct Shutdown {
    state: Arc<State>,
}

struct State {
    config: Config,
    waiters: Waiters,
    /// The runtime of background tasks. While unset, they run on the runtime that spawns them.
    background_runtime: OnceLock<Handle>,
    serving: watch::Sender<usize>,
    background: watch::Sender<usize>,
    watches: AtomicUsize,
}

/// The future that [`Shutdown::reached`] returns. Cancel safe. It may be polled again after it
/// completed. A clone waits for this phase too.
pub struct PhaseReached {
    shutdown: Shutdown,
    phase: Phase,
    waiter: Waiter,
}

/// The future that [`Shutdown::watch_end`] returns. Cancel safe.
pub struct WatchEnd {
    ending: PhaseReached,
    /// The random wait before this watch ends; `None` before [`Phase::EndWatches`].
    pause: Option<Pin<Box<Sleep>>>,
}

/// Counts as a running task until it is dropped, also after a panic. One from [`Shutdown::hold`]
/// makes a drain wait, as a task of [`Shutdown::spawn`] does.
#[derive(Debug)]
pub struct Hold(watch::Sender<usize>);

// === impl Phase ===

impl Phase {
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
    /// Creates a handle in [`Phase::Serving`], without tasks.
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

    /// Returns the current phase of the shutdown.
    pub fn phase(&self) -> Phase {
        self.state.waiters.phase()
    }

    /// Returns true once a drain has begun, so that `/readyz` should fail.
    pub fn is_draining(&self) -> bool {
        self.phase() > Phase::Serving
    }

    /// Returns a future that completes when a drain begins.
    pub fn draining(&self) -> PhaseReached {
        self.reached(Phase::NotReady)
    }

    /// Returns a future that completes when `phase` or a later phase is reached.
    pub fn reached(&self, phase: Phase) -> PhaseReached {
        PhaseReached {
            shutdown: self.clone(),
            phase,
            waiter: Waiter::default(),
        }
    }

    /// Returns a future that completes when the watch that holds it should end.
    ///
    /// Each watch ends at a random moment after [`Phase::EndWatches`]. With more open watches,
    /// these moments are spread over a longer time.
    pub fn watch_end(&self) -> WatchEnd {
        self.state.watches.fetch_add(1, Ordering::Relaxed);
        WatchEnd {
            ending: self.reached(Phase::EndWatches),
            pause: None,
        }
    }

    /// Spawns a task that serves a client. A drain waits for it up to [`Config::grace`].
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

    /// Does what [`Shutdown::spawn`] does, but on `runtime`; the caller need not be in a runtime.
    pub fn spawn_on<F>(&self, runtime: &Handle, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let counted = Hold::new(&self.state.serving);
        runtime.spawn(async move {
            let _counted = counted;
            future.await
        })
    }

    /// Makes a drain wait until the returned value is dropped, up to [`Config::grace`].
    pub fn hold(&self) -> Hold {
        Hold::new(&self.state.serving)
    }

    /// Returns how long a drain waits; see [`Config::grace`].
    pub fn grace(&self) -> Duration {
        self.state.config.grace
    }

    /// Makes all further background tasks run on the current runtime, independent of the thread
    /// that spawns them, because they may compute for a long time and would delay clients on a
    /// serving thread. Only the first call has an effect.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn set_background_runtime(&self) {
        self.state.background_runtime.get_or_init(Handle::current);
    }

    /// Spawns a task that does not belong to one client, such as an informer. The task need not
    /// end: it is dropped at an await point when [`Phase::Done`] is reached.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn_background<F>(&self, future: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let counted = Hold::new(&self.state.background);
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

    /// Returns the number of tasks of [`Shutdown::spawn`] that have not ended, and of [`Hold`]s.
    pub fn serving_tasks(&self) -> usize {
        *self.state.serving.borrow()
    }

    /// Waits for a signal, and then drains. A second signal ends the drain with
    /// [`Outcome::Aborted`].
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

    /// Goes through all phases. Returns when all tasks have ended or their time is over.
    pub async fn drain(&self) -> Outcome {
        self.enter(Phase::NotReady);
        sleep(self.state.config.not_ready_delay).await;
        self.enter(Phase::StopAccepting);
        self.enter(Phase::EndWatches);
        let serving_ended = timeout(self.grace(), wait_for_none(&self.state.serving)).await;
        self.enter(Phase::Done);
        let background_ended = wait_for_none(&self.state.background);
        let background_ended = timeout(BACKGROUND_STOP_TIMEOUT, background_ended).await;
        if serving_ended.is_ok() && background_ended.is_ok() {
            return Outcome::Drained;
        }
        let tasks = self.serving_tasks() + *self.state.background.borrow();
        warn!(tasks, "some tasks did not end within the grace period");
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
    // The sender is borrowed during the wait, so it is not dropped and the wait cannot fail.
    let _ = count.subscribe().wait_for(|tasks| *tasks == 0).await;
}

// === impl PhaseReached, WatchEnd ===

impl Future for PhaseReached {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let waiters = &this.shutdown.state.waiters;
        waiters.poll(this.phase, &mut this.waiter, cx)
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

// === impl Hold ===

impl Hold {
    fn new(count: &watch::Sender<usize>) -> Hold {
        count.send_modify(|tasks| *tasks += 1);
        Hold(count.clone())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.send_modify(|tasks| *tasks -= 1);
    }
}

#[cfg(test)]
mod tests;
