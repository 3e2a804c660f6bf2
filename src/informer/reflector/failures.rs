//! What a reflector remembers of its failures, as far as the next decision needs it.

use std::ops::ControlFlow;
use std::time::Duration;

use rand::rngs::StdRng;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::config::ReflectorConfig;
use super::end::ReflectorEnd;
use super::error::Cause;
use super::error::Error;
use super::recovery;
use super::recovery::Action;
use super::recovery::Delay;
use super::recovery::Recovery;
use super::session::WatchOutcome;

/// A longer `Retry-After` is cut to this.
const RETRY_AFTER_LIMIT: Duration = Duration::from_secs(60);
/// After this many watches in a row that failed at their very start, another start is tried.
const FUTILE_LIMIT: u32 = 4;

/// The failures so far.
pub(super) struct Failures {
    relist_on_early_end: bool,
    refusal_patience: Duration,
    backoff: Backoff,
    /// Watches in a row that failed at their start in a way that may be bound to it.
    futile_watches: u32,
    /// Since when upstream refuses for good.
    refused_since: Option<Instant>,
    /// What was last warned of; each kind of failure is warned of once until a watch works again.
    last_warned: Option<Cause>,
}

// === impl Failures ===

impl Failures {
    /// None yet; the waits are a function of `rng`'s seed.
    pub(super) fn new(config: &ReflectorConfig, rng: StdRng) -> Self {
        Self {
            relist_on_early_end: config.relist_on_early_end,
            refusal_patience: config.refusal_patience,
            backoff: Backoff::new(config.backoff.clone(), rng),
            futile_watches: 0,
            refused_since: None,
            last_warned: None,
        }
    }

    /// Upstream was seen to have the history that was applied.
    pub(super) fn proof_succeeded(&mut self) {
        self.refused_since = None;
    }

    /// The whole state was fetched.
    pub(super) fn list_succeeded(&mut self) {
        self.futile_watches = 0;
        self.refused_since = None;
    }

    /// A watch told something.
    pub(super) fn watch_succeeded(&mut self) {
        self.futile_watches = 0;
        self.refused_since = None;
        if self.last_warned.take().is_some() {
            tracing::info!("watch works again");
        }
    }

    /// Breaks with the reflector's end if `error` is an answer that no retry will change.
    ///
    /// Once there is content, such an answer has to stand for a while: an API server that starts
    /// says 403 until it knows its roles, and ten thousand watches should not end by that.
    pub(super) fn break_if_final(
        &mut self,
        error: Error,
        is_ready: bool,
    ) -> ControlFlow<ReflectorEnd, Error> {
        let Some(ended) = error.end() else {
            return ControlFlow::Continue(error);
        };
        let refused_since = *self.refused_since.get_or_insert_with(Instant::now);
        if is_ready && refused_since.elapsed() < self.refusal_patience {
            ControlFlow::Continue(error)
        } else {
            ControlFlow::Break(ended)
        }
    }

    /// After a watch ended, or could not be opened (then `outcome` is the default).
    pub(super) fn after_watch(&mut self, cause: Cause, outcome: &WatchOutcome) -> Recovery {
        let mut recovery = recovery::after_watch(cause, outcome, self.relist_on_early_end);
        if recovery::may_recur_from_same_start(cause, outcome) {
            self.futile_watches += 1;
        }
        if recovery.action == Action::Resume && self.futile_watches >= FUTILE_LIMIT {
            self.futile_watches = 0;
            recovery.action = Action::Relist;
        }
        recovery
    }

    /// How long to wait after `error`.
    pub(super) fn next_delay(&mut self, error: &Error) -> Duration {
        let requested = error.retry_after().unwrap_or_default();
        requested
            .min(RETRY_AFTER_LIMIT)
            .max(self.backoff.next_delay())
    }

    /// Logs what is done about `error`.
    pub(super) fn report(&mut self, recovery: Recovery, during: &str, error: &Error) {
        let cause = error.cause();
        let Recovery { action, delay } = recovery;
        let source = error as &(dyn std::error::Error + 'static);
        let is_routine = cause.is_routine() && delay == Delay::AtOnce;
        if is_routine || self.last_warned == Some(cause) {
            tracing::debug!(
                during,
                cause = cause.name(),
                next = ?action,
                pace = ?delay,
                error = source,
                "retrying"
            );
        } else {
            self.last_warned = Some(cause);
            tracing::warn!(
                during,
                cause = cause.name(),
                next = ?action,
                pace = ?delay,
                error = source,
                "retrying"
            );
        }
    }
}
