//! Whether a right to all objects of a resource covers each of them by its name. If it does, reads
//! by name need no question each.
//!
//! The operator may say whether it does. Otherwise kubefan asks the API server, while clients read
//! by name: see [`Reviewer::name_coverage`]. An answer counts no longer than a decision, because the
//! API server's authorizers may change while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kubefan_core::shutdown::Shutdown;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::identity::asking::reviews::{NameCoverage, Reviewer};
use crate::identity::{Config, User};

/// Says whether names are covered.
pub(in crate::identity) enum CoveredNames {
    /// The same for all users, because the operator says so. It is false if no decision is
    /// remembered: then each read asks anyway.
    Fixed(bool),
    /// As the API server says.
    Found(Arc<Finding>),
}

/// The API server's last answers, and the question that is in flight.
pub(in crate::identity) struct Finding {
    reviewer: Arc<Reviewer>,
    shutdown: Shutdown,
    /// How long an answer counts from its question on.
    validity: Duration,
    started: Instant,
    /// When the last question was asked: the milliseconds from `started`, and one more. It is 0
    /// before the first question.
    asked_at: AtomicU64,
    /// When the last question was asked whose answer is that names are covered. It is 0 if a later
    /// clear answer is that they are not. Atomic, because each read by name looks at it.
    covered_at: AtomicU64,
    /// Has the permit to ask, so that one question is in flight at a time.
    asking: Arc<Semaphore>,
    /// Whether names are covered by the last clear answer, which was logged.
    logged: Mutex<Option<bool>>,
}

// === impl CoveredNames ===

impl CoveredNames {
    /// Finds out whether names are covered from the API server of `reviewer`, unless `config` says
    /// it.
    pub(in crate::identity) fn new(
        config: &Config,
        reviewer: Arc<Reviewer>,
        shutdown: Shutdown,
    ) -> Self {
        match config.names_covered {
            Some(covered) => Self::Fixed(covered),
            // Each read asks, because no decision is remembered. A question about all names would
            // be one more.
            None if config.allowed_ttl.is_zero() => Self::Fixed(false),
            None => Self::Found(Arc::new(Finding {
                reviewer,
                shutdown,
                validity: config.allowed_ttl,
                started: Instant::now(),
                asked_at: AtomicU64::new(0),
                covered_at: AtomicU64::new(0),
                asking: Arc::new(Semaphore::new(1)),
                logged: Mutex::new(None),
            })),
        }
    }

    /// Returns true if a right of `user` to all names covers each name. If the API server decides,
    /// returns false for nodes, and while there is no answer that counts. The API server is then
    /// asked in the background. It is asked again before an answer expires.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(in crate::identity) fn cover(&self, user: &User) -> bool {
        match self {
            Self::Fixed(covered) => *covered,
            Self::Found(finding) => !user.is_node() && finding.is_covered(),
        }
    }

    /// Returns the same as [`cover`](Self::cover), but waits for an answer if the last one is old.
    /// Returns `None` if that has expired, and the API server has not answered since.
    pub(in crate::identity) async fn confirmed(&self, user: &User) -> Option<bool> {
        match self {
            Self::Fixed(covered) => Some(*covered),
            Self::Found(_) if user.is_node() => Some(false),
            Self::Found(finding) => {
                finding.ask_if_due().await;
                finding.last()
            }
        }
    }

    /// Returns true if the last clear answer was asked for within `age`, and says that names are
    /// covered. Asks nothing. For an outage of the API server.
    pub(in crate::identity) fn covered_within(&self, user: &User, age: Duration) -> bool {
        match self {
            Self::Fixed(covered) => *covered,
            Self::Found(finding) => {
                !user.is_node() && is_within(&finding.covered_at, age, finding.now())
            }
        }
    }
}

// === impl Finding ===

impl Finding {
    fn is_covered(self: &Arc<Self>) -> bool {
        let now = self.now();
        if self.is_due(now)
            && let Ok(turn) = Arc::clone(&self.asking).try_acquire_owned()
        {
            let finding = Arc::clone(self);
            self.shutdown.spawn_background(async move {
                finding.ask().await;
                drop(turn);
            });
        }
        is_within(&self.covered_at, self.validity, now)
    }

    /// Returns the last clear answer, or `None` if it was a yes that has expired. A no counts until
    /// there is a yes.
    fn last(&self) -> Option<bool> {
        let is_covered = is_within(&self.covered_at, self.validity, self.now());
        let was_covered = self.covered_at.load(Ordering::Relaxed) > 0;
        (is_covered || !was_covered).then_some(is_covered)
    }

    async fn ask_if_due(&self) {
        // Fails only if the semaphore is closed, which it never is.
        let Ok(_turn) = self.asking.acquire().await else {
            return;
        };
        if self.is_due(self.now()) {
            self.ask().await;
        }
    }

    async fn ask(&self) {
        let asked_at = self.now();
        self.asked_at.store(asked_at, Ordering::Relaxed);
        match self.reviewer.name_coverage().await {
            NameCoverage::Covered => {
                self.covered_at.store(asked_at, Ordering::Relaxed);
                self.log(None);
            }
            NameCoverage::Uncovered(reason) => {
                self.covered_at.store(0, Ordering::Relaxed);
                self.log(Some(&reason));
            }
            // The last answer counts until it expires, as decisions do.
            NameCoverage::NoAnswer => {}
        }
    }

    /// Logs an answer if it is not the same as the last one.
    fn log(&self, reason: Option<&str>) {
        let covered = reason.is_none();
        if self.logged.lock().replace(covered) == Some(covered) {
            return;
        }
        match reason {
            None => tracing::info!(
                "names are covered: no authorizer of the API server forbids single names, so the \
                 permission to read all objects of a resource includes each of them"
            ),
            Some(reason) => tracing::info!(
                reason,
                "names are not covered: an authorizer of the API server may forbid single names, \
                 so each name is asked about"
            ),
        }
    }

    /// Returns true if half of the time has passed for which an answer counts.
    fn is_due(&self, now: u64) -> bool {
        !is_within(&self.asked_at, self.validity / 2, now)
    }

    /// Returns the present moment, in the unit of `asked_at`.
    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64 + 1
    }
}

/// Returns true if less than `age` has passed at `now` since `at`.
fn is_within(at: &AtomicU64, age: Duration, now: u64) -> bool {
    let at = at.load(Ordering::Relaxed);
    at > 0 && Duration::from_millis(now.saturating_sub(at)) < age
}
