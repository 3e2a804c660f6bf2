//! LeaderElector: the task of a candidate, and the handle to it.

use std::cmp::min;
use std::time::Duration;

use jiff::Timestamp;
use kubefan_core::shutdown::Shutdown;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::machine::{Answer, Call, Machine, Next, Now};
use super::{Config, InvalidConfig, LeaseStore, StoreError};

/// A candidate of an election. Dropping it leaves the election without giving the Lease back.
#[derive(Debug)]
pub struct LeaderElector {
    identity: String,
    status: watch::Receiver<Status>,
    leave: oneshot::Sender<oneshot::Sender<Result<(), NotReleased>>>,
}

/// The state of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// It does not lead yet.
    Waiting {
        /// The identity of the leader that was seen last; `None` if none was.
        leader: Option<String>,
    },
    /// It leads.
    Leading {
        /// It leads until this time, unless it renews the Lease before.
        until: Instant,
    },
    /// It led, and does not lead again.
    Lost,
    /// It has left the election.
    Left,
}

/// The Lease could not be given back, so the other candidates wait until it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease was not released in time, and expires")]
pub struct NotReleased;

/// The task of a candidate.
struct Candidate<S> {
    store: S,
    machine: Machine,
    status: watch::Sender<Status>,
}

/// The request to leave, with the sender of its result.
type Leave = oneshot::Receiver<oneshot::Sender<Result<(), NotReleased>>>;

// === impl LeaderElector ===

impl LeaderElector {
    /// Joins the election with the record in `store`. The candidate's task belongs to
    /// `shutdown`. The task continues until the last phase, so that the Lease is renewed while
    /// the work of a leader is stopped.
    ///
    /// # Errors
    ///
    /// If the settings contradict each other.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(
        store: impl LeaseStore,
        config: Config,
        shutdown: &Shutdown,
    ) -> Result<Self, InvalidConfig> {
        config.validate()?;
        let (status, receiver) = watch::channel(Status::Waiting { leader: None });
        let (leave, leaving) = oneshot::channel();
        let identity = config.identity.clone();
        let candidate = Candidate {
            store,
            machine: Machine::new(config),
            status,
        };
        shutdown.spawn_background(candidate.run(leaving));
        Ok(Self {
            identity,
            status: receiver,
            leave,
        })
    }

    /// Returns the name of this candidate in the Lease.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the present state.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Returns a receiver of the states.
    pub fn statuses(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Returns true if this candidate leads now, by the clock. This is exact even if
    /// its task cannot run.
    pub fn is_leading(&self) -> bool {
        matches!(*self.status.borrow(), Status::Leading { until } if Instant::now() < until)
    }

    /// Waits until this candidate leads, and returns true. Returns false if it can
    /// never lead. Cancel safe.
    pub async fn elected(&self) -> bool {
        let mut status = self.status.clone();
        let is_decided = |status: &Status| !matches!(status, Status::Waiting { .. });
        let decided = status.wait_for(is_decided).await;
        decided.is_ok_and(|status| matches!(*status, Status::Leading { .. }))
    }

    /// Completes when this candidate has led and no longer leads. The work of a leader must then
    /// stop before another candidate can take the Lease, which is possible
    /// [`Config::lease_duration`] less [`Config::renew_deadline`] later. Cancel safe.
    pub async fn lost(&self) {
        let mut status = self.status.clone();
        loop {
            let until = match *status.borrow_and_update() {
                Status::Waiting { .. } => None,
                Status::Leading { until } => Some(until),
                Status::Lost | Status::Left => return,
            };
            tokio::select! {
                biased;
                changed = status.changed() => match changed {
                    Ok(()) => {}
                    Err(_) => return,
                },
                () = reached(until) => return,
            }
        }
    }

    /// Leaves the election. If this candidate leads, it stops leading and gives the Lease back, so
    /// that another candidate can lead at once: stop the work of the leader before this call. This
    /// takes up to the renew deadline, and a request that is in flight.
    ///
    /// # Errors
    ///
    /// [`NotReleased`] if the API server did not confirm in time that the Lease is free.
    pub async fn leave(self) -> Result<(), NotReleased> {
        let (sender, receiver) = oneshot::channel();
        // The task has ended if the Lease was lost, or at the last phase of a shutdown.
        if self.leave.send(sender).is_err() {
            return match *self.status.borrow() {
                Status::Lost | Status::Left => Ok(()),
                Status::Waiting { .. } | Status::Leading { .. } => Err(NotReleased),
            };
        }
        receiver.await.unwrap_or(Err(NotReleased))
    }
}

// === impl Candidate ===

impl<S: LeaseStore> Candidate<S> {
    async fn run(mut self, mut leave: Leave) {
        loop {
            let until = self.machine.leading_until;
            let next = tokio::select! {
                biased;
                // A leader first ends its attempt, at `until` at the latest.
                left = &mut leave, if until.is_none() => return self.leave(left.ok()).await,
                next = self.attempt(until) => next,
            };
            if next == Next::Lost {
                return self.enter(Status::Lost);
            }
            self.publish();
            let pause = match self.machine.leading_until {
                Some(_) => self.machine.config.retry_period,
                None => {
                    let jitter = Config::JITTER * rand::random::<f64>();
                    self.machine.config.retry_period.mul_f64(1.0 + jitter)
                }
            };
            tokio::select! {
                biased;
                left = &mut leave => return self.leave(left.ok()).await,
                () = reached(self.machine.leading_until) => return self.enter(Status::Lost),
                () = sleep(pause) => {}
            }
        }
    }

    /// Makes the calls of one attempt. It ends at `deadline` at the latest.
    async fn attempt(&mut self, deadline: Option<Instant>) -> Next {
        let mut call = self.machine.begin(now());
        loop {
            let sent = Instant::now();
            let limit = sent + self.machine.config.call_limit();
            let limit = deadline.map_or(limit, |deadline| min(deadline, limit));
            let answered = timeout_at(limit, self.call(call)).await;
            let answer = answered.unwrap_or_else(|_| {
                tracing::warn!("the lease was not answered for in time");
                Answer::Failed
            });
            match self.machine.proceed(answer, sent, now()) {
                Next::Call(next) => call = next,
                next => return next,
            }
        }
    }

    async fn call(&self, call: Call) -> Answer {
        let answered = match call {
            Call::Get => self.store.get().await.map(Answer::Found),
            Call::Create(record) => self.store.create(&record).await.map(Answer::Written),
            Call::Update(record, version) => {
                let updated = self.store.update(&record, &version).await;
                updated.map(Answer::Written)
            }
        };
        answered.unwrap_or_else(|error| failed(&error))
    }

    fn publish(&self) {
        let status = match self.machine.leading_until {
            Some(until) => Status::Leading { until },
            None => Status::Waiting {
                leader: self.machine.holder().map(str::to_owned),
            },
        };
        self.enter(status);
    }

    fn enter(&self, status: Status) {
        let is_leading = matches!(status, Status::Leading { .. });
        if let Some(metrics) = &self.machine.config.metrics {
            metrics.set(is_leading);
        }
        let identity = &self.machine.config.identity;
        self.status.send_if_modified(|last| {
            let led = matches!(last, Status::Leading { .. });
            match (led, is_leading) {
                (false, true) => tracing::info!(identity, "this candidate leads"),
                (true, false) => tracing::info!(identity, "this candidate leads no longer"),
                _ => {}
            }
            let is_new = *last != status;
            *last = status;
            is_new
        });
    }

    /// Gives the Lease back if `left` is a sender. Without it, the handle was dropped.
    async fn leave(mut self, left: Option<oneshot::Sender<Result<(), NotReleased>>>) {
        let until = self.machine.leading_until;
        let has_lost = until.is_some_and(|until| until <= Instant::now());
        self.enter(if has_lost { Status::Lost } else { Status::Left });
        let Some(left) = left else { return };
        if has_lost || !self.machine.may_hold {
            // The caller may no longer wait.
            let _ = left.send(Ok(()));
            return;
        }
        let deadline = Instant::now() + self.machine.config.renew_deadline;
        self.machine.release();
        let mut result = Err(NotReleased);
        while Instant::now() < deadline {
            if self.attempt(Some(deadline)).await == Next::Released {
                result = Ok(());
                break;
            }
            sleep_until(min(deadline, Instant::now() + RELEASE_PAUSE)).await;
        }
        if result.is_err() {
            tracing::warn!("the lease was not released in time, and expires");
        }
        // The caller may no longer wait.
        let _ = left.send(result);
    }
}

/// The pause before another attempt to give the Lease back.
const RELEASE_PAUSE: Duration = Duration::from_millis(200);

/// Completes at `until`, or never if it is `None`.
async fn reached(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

fn failed(error: &StoreError) -> Answer {
    if let StoreError::Conflict = error {
        return Answer::Conflict;
    }
    let source = error as &(dyn std::error::Error + 'static);
    tracing::warn!(error = source, "an attempt for the lease failed");
    Answer::Failed
}

fn now() -> Now {
    Now {
        instant: Instant::now(),
        wall: Timestamp::now(),
    }
}
