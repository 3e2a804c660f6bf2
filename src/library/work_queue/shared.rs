//! What the handles of a queue and its runs share.

use std::hash::Hash;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::metrics::{Load, Measured, QueueMetrics};
use super::schedule::{Change, Run, Schedule};

/// The state that the handles of a queue and its runs share.
pub(super) struct Shared<K> {
    pub(super) state: Mutex<State<K>>,
    pub(super) metrics: Option<QueueMetrics>,
    /// Wakes one worker for each key that becomes ready, and all workers at a shutdown.
    pub(super) wake: Notify,
    /// Wakes the worker that has the timer, because a key is due earlier.
    pub(super) earlier: Notify,
    /// Wakes the calls that wait for a drain.
    pub(super) drained: Notify,
}

/// Returns what `look` returns when it first returns a value. Calls it at once, and after each wake
/// of `notify`. Cancel safe.
pub(crate) async fn until_some<T>(notify: &Notify, mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        let woken = notify.notified();
        tokio::pin!(woken);
        // From here on, a wake for a change that `look` does not see is stored in `woken`.
        woken.as_mut().enable();
        if let Some(found) = look() {
            return found;
        }
        woken.await;
    }
}

pub(super) struct State<K> {
    pub(super) schedule: Schedule<K>,
    /// The time of the queue's timer. Only one waiting worker has the timer, so that other workers
    /// are not woken in vain.
    pub(super) timer: Option<Instant>,
    pub(super) is_draining: bool,
}

// === impl Shared ===

impl<K: Eq + Hash + 'static> Shared<K> {
    /// Ends `run`.
    pub(super) fn done(&self, run: &Run<K>) {
        let (now, is_drained) = {
            let mut state = self.state.lock();
            let now = Instant::now();
            let change = state.schedule.done(run, now);
            self.publish(&mut state, change);
            let is_drained = state.is_draining && state.schedule.is_drained();
            (now, is_drained)
        };
        if is_drained {
            self.wake.notify_waiters();
            self.drained.notify_waiters();
        }
        if let Some(metrics) = &self.metrics {
            let lasted = now.saturating_duration_since(run.started);
            metrics.work_duration.observe(lasted.as_secs_f64());
        }
    }

    /// Makes due keys ready, and wakes a worker for each.
    pub(super) fn advance(&self, state: &mut State<K>, now: Instant) {
        for _ in 0..state.schedule.advance(now) {
            self.wake.notify_one();
        }
        self.count(state);
    }

    /// Counts the keys that became ready, and wakes a worker if one has to act on the change.
    pub(super) fn publish(&self, state: &mut State<K>, change: Change) {
        self.count(state);
        match (change, state.timer) {
            (Change::None, _) => {}
            (Change::Ready, _) => self.wake.notify_one(),
            // The woken worker sets the timer.
            (Change::Due(_), None) => self.wake.notify_one(),
            (Change::Due(due), Some(timer)) if due < timer => self.earlier.notify_one(),
            (Change::Due(_), Some(_)) => {}
        }
    }

    /// Wakes another worker, if one has to take a key or to set the timer.
    pub(super) fn wake_another(&self, state: &State<K>) {
        let schedule = &state.schedule;
        let needs_timer = state.timer.is_none() && schedule.next_due().is_some();
        if schedule.len() > 0 || needs_timer {
            self.wake.notify_one();
        }
    }

    pub(super) fn count(&self, state: &mut State<K>) {
        let entered = state.schedule.take_entered();
        if let Some(metrics) = &self.metrics
            && entered > 0
        {
            metrics.adds.inc_by(entered);
        }
    }
}

impl<K: Eq + Hash + Send + Sync + 'static> Measured for Shared<K> {
    fn load(&self) -> Load {
        let mut state = self.state.lock();
        let now = Instant::now();
        self.advance(&mut state, now);
        state.schedule.load(now)
    }
}
