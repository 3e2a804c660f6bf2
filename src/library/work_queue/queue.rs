//! WorkQueue: the handle of producers and workers, and the waits of workers.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until};

use super::options::{AddOptions, Config};
use super::schedule::{Run, Schedule};
use super::shared::{Shared, State, until_some};
use super::work::Work;

/// A queue of keys that are to be worked on; see the [module's documentation](super). Clones are
/// handles of one queue.
pub struct WorkQueue<K: Eq + Hash + Send + Sync + 'static>(Arc<Shared<K>>);

/// A worker's wait for a key. Dropping it releases the timer.
struct Turn<'a, K: Eq + Hash + 'static> {
    shared: &'a Shared<K>,
    has_timer: bool,
}

enum Step<K> {
    Take(Run<K>),
    End,
    Wait,
    /// Wait, and set the timer for this time.
    WaitUntil(Instant),
}

// === impl WorkQueue ===

impl<K: Eq + Hash + Send + Sync + 'static> WorkQueue<K> {
    /// Creates an empty queue.
    pub fn new(config: Config<K>) -> Self {
        let schedule = Schedule::new(config.rate_limiter, config.ageing, Instant::now());
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                schedule,
                timer: None,
                is_draining: false,
            }),
            metrics: config.metrics,
            wake: Notify::new(),
            earlier: Notify::new(),
            drained: Notify::new(),
        });
        if let Some(metrics) = &shared.metrics {
            let weak = Arc::downgrade(&shared);
            metrics.measure(weak);
        }
        Self(shared)
    }

    /// Requests a run of `key` that begins after this call: at once, or when the present run of
    /// `key` is done, or when the backoff of `key` ends. Does nothing after a shutdown.
    pub fn add(&self, key: K) {
        self.add_with(key, AddOptions::default());
    }

    /// Requests a run of `key` that begins `delay` after this call at the earliest, unless another
    /// request asks for an earlier run.
    pub fn add_after(&self, key: K, delay: Duration) {
        let options = AddOptions {
            after: delay,
            ..AddOptions::default()
        };
        self.add_with(key, options);
    }

    /// Counts a failure of `key`, puts `key` in backoff for the time that the rate limiter returns,
    /// and requests a run at the end of the backoff.
    ///
    /// A failure is counted once per run: if `key` was put in backoff and has not run since, this
    /// call only requests the run.
    pub fn add_rate_limited(&self, key: K) {
        let options = AddOptions {
            is_rate_limited: true,
            ..AddOptions::default()
        };
        self.add_with(key, options);
    }

    /// Requests a run of `key` with options.
    pub fn add_with(&self, key: K, options: AddOptions) {
        let is_retry = options.is_rate_limited || !options.after.is_zero();
        let mut state = self.0.state.lock();
        let change = state.schedule.add(key, options, Instant::now());
        self.0.publish(&mut state, change);
        if let Some(metrics) = &self.0.metrics
            && is_retry
            && !state.schedule.is_shutting_down
        {
            metrics.retries.inc();
        }
    }

    /// Waits for a key that is ready, and begins its run. Returns `None` after a shutdown, when no
    /// key is ready.
    ///
    /// The run ends when the returned [`Work`] is dropped. Until then no other worker gets the key.
    ///
    /// Cancel safe: a dropped call has taken no key.
    pub async fn get(&self) -> Option<Work<K>> {
        // A worker that finds a key at each call must let other tasks run, too.
        consume_budget().await;
        let mut turn = Turn {
            shared: &self.0,
            has_timer: false,
        };
        // Most calls find a key at once, and need not register for a wake.
        let mut step = turn.step();
        loop {
            match step {
                Step::Take(run) => {
                    drop(turn);
                    if let Some(metrics) = &self.0.metrics {
                        metrics.queue_duration.observe(run.waited.as_secs_f64());
                    }
                    return Some(Work {
                        run,
                        queue: Arc::clone(&self.0),
                    });
                }
                Step::End => return None,
                Step::Wait | Step::WaitUntil(_) => {}
            }
            let woken = self.0.wake.notified();
            tokio::pin!(woken);
            // From here on, a wake for a key that the next step does not see is stored in `woken`.
            woken.as_mut().enable();
            step = turn.step();
            match step {
                Step::Take(_) | Step::End => continue,
                Step::Wait => woken.await,
                Step::WaitUntil(due) => tokio::select! {
                    () = woken => {}
                    () = self.0.earlier.notified() => {}
                    () = sleep_until(due) => {}
                },
            }
            step = turn.step();
        }
    }

    /// Forgets the failures of `key`, because it has succeeded or is not retried any more. This
    /// ends its backoff: a run that waits only for the end of the backoff is ready at once.
    pub fn forget(&self, key: &K) {
        let mut state = self.0.state.lock();
        let change = state.schedule.forget(key, Instant::now());
        self.0.publish(&mut state, change);
    }

    /// Returns the number of failures of `key` that were counted since it was last forgotten.
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.0.state.lock().schedule.rate_limiter.num_requeues(key)
    }

    /// Counts the keys that are ready and wait for a worker. This does not include keys that run,
    /// and keys that are not due.
    pub fn len(&self) -> usize {
        let mut state = self.0.state.lock();
        self.0.advance(&mut state, Instant::now());
        state.schedule.len()
    }

    /// Returns true if no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the queue: ignores keys that are added from now on, and drops keys that are not due or
    /// are in backoff. Workers still get the keys that are ready, and then `None`.
    ///
    /// This also ends the wait of [`WorkQueue::shut_down_with_drain`].
    pub fn shut_down(&self) {
        self.begin_shutdown(false);
    }

    /// Like [`WorkQueue::shut_down`], and waits until no key is ready and none runs. Workers must
    /// therefore continue until they get `None`, which [`WorkQueue::get`] returns once the queue is
    /// drained: a key that was added during its run is ready when this run is done.
    ///
    /// Dropping the future ends only the wait; the queue remains shut down.
    pub async fn shut_down_with_drain(&self) {
        self.begin_shutdown(true);
        until_some(&self.0.drained, || {
            let state = self.0.state.lock();
            (!state.is_draining || state.schedule.is_drained()).then_some(())
        })
        .await;
    }

    /// Returns true after a call of [`WorkQueue::shut_down`] or
    /// [`WorkQueue::shut_down_with_drain`].
    pub fn is_shutting_down(&self) -> bool {
        self.0.state.lock().schedule.is_shutting_down
    }

    fn begin_shutdown(&self, is_draining: bool) {
        {
            let mut state = self.0.state.lock();
            let now = Instant::now();
            self.0.advance(&mut state, now);
            state.schedule.shut_down(now);
            state.is_draining = is_draining;
        }
        self.0.wake.notify_waiters();
        self.0.drained.notify_waiters();
    }
}

impl<K: Eq + Hash + Send + Sync + 'static> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

debug_fields!([K: Eq + Hash + Send + Sync + 'static] WorkQueue<K>, |it| len: it.len());

// === impl Turn ===

impl<K: Eq + Hash + 'static> Turn<'_, K> {
    /// Takes a key, or decides how to wait for one.
    fn step(&mut self) -> Step<K> {
        let mut state = self.shared.state.lock();
        let now = Instant::now();
        self.release(&mut state);
        // This worker takes one of the keys that are due now, and wakes another worker for the
        // rest.
        state.schedule.advance(now);
        self.shared.count(&mut state);
        if let Some(run) = state.schedule.take(now) {
            self.shared.wake_another(&state);
            return Step::Take(run);
        }
        if state.schedule.is_shutting_down {
            // A key that was added during its run is ready at the end of this run.
            let may_follow = state.is_draining && !state.schedule.is_drained();
            return if may_follow { Step::Wait } else { Step::End };
        }
        match state.schedule.next_due() {
            Some(due) if state.timer.is_none() => {
                state.timer = Some(due);
                self.has_timer = true;
                Step::WaitUntil(due)
            }
            _ => Step::Wait,
        }
    }

    fn release(&mut self, state: &mut State<K>) {
        if self.has_timer {
            state.timer = None;
            self.has_timer = false;
        }
    }
}

impl<K: Eq + Hash + 'static> Drop for Turn<'_, K> {
    fn drop(&mut self) {
        if self.has_timer {
            let mut state = self.shared.state.lock();
            self.release(&mut state);
            self.shared.wake_another(&state);
        }
    }
}
