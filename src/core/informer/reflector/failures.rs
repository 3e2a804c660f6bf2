//! The reflector's record of recent failures. It determines backoff, logging and
//! the reflector's end.

use std::ops::ControlFlow;
use std::time::Duration;

use rand::rngs::StdRng;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::config::ReflectorConfig;
use super::end::ReflectorEnd;
use super::error::{Cause, Error};
use super::recovery;
use super::recovery::{Action, Delay, Recovery};
use super::session::WatchOutcome;

/// Upper limit of the `Retry-After` that the reflector obeys.
const RETRY_AFTER_LIMIT: Duration = Duration::from_secs(60);
/// How many times in sequence the reflector obeys a 429 with `Retry-After` before it counts as a
/// failure that makes the backoff grow. client-go retries such an answer as often. The API server
/// answers so for a moment while it builds the watch cache of a resource that was redefined.
/// Guarded by `a_429_is_waited_for_by_its_retry_after_before_it_counts`.
const OBEYED_LIMIT: u32 = 10;
/// After this number of futile watches, the reflector relists instead of resuming once more from
/// the same version. Guarded by `a_relist_skips_a_frame_that_can_never_be_decoded`.
const FUTILE_LIMIT: u32 = 4;

/// The failures since the last success, and the backoff between retries.
pub(super) struct Failures {
    config: ReflectorConfig,
    backoff: Backoff,
    /// The answers 429 with `Retry-After` since the last list.
    obeyed: u32,
    /// Watches since the last success that failed without a frame, perhaps due to their start.
    futile_watches: u32,
    /// When upstream began to answer 403, 404 or 406; `None` after a success.
    refused_since: Option<Instant>,
    /// When upstream began to answer 401; `None` after a success.
    unauthorized_since: Option<Instant>,
    /// The cause of the last logged warning; `None` once a watch works again. Further failures with
    /// this cause are logged at debug level.
    last_warned: Option<Cause>,
}

// === impl Failures ===

impl Failures {
    /// Creates a record without failures. The jitter of the backoff depends on `rng`.
    pub(super) fn new(config: &ReflectorConfig, rng: StdRng) -> Self {
        Self {
            config: config.clone(),
            backoff: Backoff::new(config.backoff.clone(), rng),
            obeyed: 0,
            futile_watches: 0,
            refused_since: None,
            unauthorized_since: None,
            last_warned: None,
        }
    }

    /// Records that a list was completed.
    pub(super) fn list_succeeded(&mut self) {
        self.obeyed = 0;
        self.futile_watches = 0;
        self.accepted();
    }

    /// Records that a frame of a watch was applied.
    pub(super) fn watch_succeeded(&mut self) {
        self.futile_watches = 0;
        self.accepted();
        if self.last_warned.take().is_some() {
            tracing::info!("watch works again");
        }
    }

    /// Records that upstream has accepted a call, such as a barrier.
    pub(super) fn accepted(&mut self) {
        self.refused_since = None;
        self.unauthorized_since = None;
    }

    /// Breaks with the reflector's end if `error` is final: 403, 404 or 406, or 401 for longer than
    /// `unauthorized_patience`.
    ///
    /// If the cache is ready, such answers must continue for `refusal_patience` first: an API
    /// server that is starting answers 403 until it has loaded its roles, and this must not end ten
    /// thousand watches. Guarded by `a_ready_cache_survives_a_short_refusal`. A 401 may have other
    /// temporary causes too, such as an expired token or a webhook that is down, so it has a
    /// separate limit. Guarded by `a_lasting_401_ends_the_reflector`.
    pub(super) fn break_if_final(
        &mut self,
        error: Error,
        is_ready: bool,
    ) -> ControlFlow<ReflectorEnd, Error> {
        let Some(ended) = error.end() else {
            return ControlFlow::Continue(error);
        };
        let config = &self.config;
        let (since, patience) = match error.cause() {
            Cause::Unauthorized => (&mut self.unauthorized_since, config.unauthorized_patience),
            _ if is_ready => (&mut self.refused_since, config.refusal_patience),
            _ => (&mut self.refused_since, Duration::ZERO),
        };
        if since.get_or_insert_with(Instant::now).elapsed() < patience {
            ControlFlow::Continue(error)
        } else {
            ControlFlow::Break(ended)
        }
    }

    /// Returns the recovery after a watch ended. If it could not be opened,
    /// `outcome` has no frames.
    pub(super) fn after_watch(&mut self, cause: Cause, outcome: &WatchOutcome) -> Recovery {
        let mut recovery = recovery::after_watch(cause, outcome, self.config.relist_on_early_end);
        if outcome.reached_useful_time {
            self.obeyed = 0;
            self.backoff.reset();
        }
        if recovery::may_recur_from_same_start(cause, outcome) {
            self.futile_watches += 1;
        }
        if recovery.action == Action::Resume && self.futile_watches >= FUTILE_LIMIT {
            self.futile_watches = 0;
            recovery.action = Action::Relist;
        }
        recovery
    }

    /// Returns the wait after `error`: the next backoff, or `Retry-After` (at most a minute) if it
    /// is longer. For the first ten answers 429 with `Retry-After`, the wait is `Retry-After` and
    /// the backoff does not grow.
    pub(super) fn next_delay(&mut self, error: &Error) -> Duration {
        let requested = error.retry_after().unwrap_or_default();
        let requested = requested.min(RETRY_AFTER_LIMIT);
        let is_obeyed = error.cause() == Cause::TooManyRequests && !requested.is_zero();
        if is_obeyed && self.obeyed < OBEYED_LIMIT {
            self.obeyed += 1;
            return requested;
        }
        requested.max(self.backoff.next_delay())
    }

    /// Logs `error` and the recovery from it: a warning for the first failure of its cause, else at
    /// debug level.
    pub(super) fn report(&mut self, recovery: Recovery, during: &str, error: &Error) {
        let cause = error.cause();
        let Recovery { action, delay } = recovery;
        let source = error as &(dyn std::error::Error + 'static);
        let is_routine = cause.is_routine() && delay == Delay::AtOnce;
        macro_rules! log {
            ($level:ident) => {
                tracing::$level!(
                    during, cause = cause.name(), next = ?action, pace = ?delay, error = source,
                    "retrying"
                )
            };
        }
        if is_routine || self.last_warned == Some(cause) {
            log!(debug);
        } else {
            self.last_warned = Some(cause);
            log!(warn);
        }
    }
}
