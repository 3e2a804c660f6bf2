//! What the machine does after a failure: it counts and reports it, and enters the state that recovers.

use std::ops::ControlFlow;

use super::{Flow, Machine, State};
use crate::cache::EpochCause;
use crate::informer::reflector::end::ReflectorEnd;
use crate::informer::reflector::error::{Cause, Error};
use crate::informer::reflector::metrics::{Activity, increment};
use crate::informer::reflector::recovery;
use crate::informer::reflector::recovery::{Action, Delay, Recovery, WatchListProgress};
use crate::informer::reflector::session::WatchOutcome;
use crate::informer::reflector::watch_lists::WatchListSupport;
use crate::upstream::ListerWatcher;

impl<L: ListerWatcher> Machine<L> {
    pub(super) fn watch_list_failed(
        &mut self,
        error: Error,
        progress: WatchListProgress,
    ) -> Flow<L> {
        let cause = error.cause();
        if progress == WatchListProgress::Stream {
            self.metrics.watch_ended(cause);
        }
        self.failed("watch-list", &error);
        self.metrics.list_failed(&error);
        let error = self.break_if_final(error)?;
        let worked = self.watch_list_support == WatchListSupport::Supported;
        if recovery::is_watch_list_unsupported(cause, progress, worked) {
            tracing::info!(
                cause = cause.name(),
                "upstream has no watch-list, using lists"
            );
            self.watch_list_support = WatchListSupport::Unsupported;
            self.watch_lists.failed(cause);
        }
        let recovery = recovery::after_watch_list(cause, progress);
        self.recover(recovery, "watch-list", &error)
    }

    pub(super) fn list_failed(&mut self, error: Error, is_first_page: bool) -> Flow<L> {
        self.failed("list", &error);
        self.metrics.list_failed(&error);
        let error = self.break_if_final(error)?;
        let recovery = recovery::after_list(error.cause(), is_first_page);
        self.recover(recovery, "list", &error)
    }

    pub(super) fn watch_failed(&mut self, error: Error, outcome: WatchOutcome) -> Flow<L> {
        let cause = error.cause();
        self.metrics.watch_ended(cause);
        self.failed("watch", &error);
        if let Some(on_early_end) = &self.on_early_end
            && cause == Cause::EndOfStream
            && !outcome.reached_deadline
        {
            on_early_end();
        }
        let error = self.break_if_final(error)?;
        let recovery = self.failures.after_watch(cause, &outcome);
        self.recover(recovery, "watch", &error)
    }

    pub(super) fn recover(&mut self, recovery: Recovery, during: &str, error: &Error) -> Flow<L> {
        if error.cause() == Cause::Decode {
            increment(&self.metrics.decode_errors);
        }
        self.failures.report(recovery, during, error);
        if let Some(recoveries) = &mut self.recoveries {
            recoveries.failed(error);
        }
        if recovery.action == Action::NewEpoch {
            // The content is wrong, so it is dropped before any wait.
            increment(&self.metrics.epochs);
            if let Some(recoveries) = &mut self.recoveries {
                recoveries.epoch_began(self.writer.reader().watchers());
            }
            self.writer.new_epoch(EpochCause::WentBack);
        }
        ControlFlow::Continue(match recovery.delay {
            Delay::AtOnce => self.enter(recovery.action),
            Delay::BackOff => {
                increment(&self.metrics.backoffs);
                self.metrics.begin(Activity::Waiting);
                State::BackingOff {
                    delay: self.failures.next_delay(error),
                    then: recovery.action,
                }
            }
        })
    }

    /// Breaks with the reflector's end if `error` is final; see `Failures::break_if_final`.
    pub(super) fn break_if_final(&mut self, error: Error) -> ControlFlow<ReflectorEnd, Error> {
        let is_ready = self.writer.applied().is_some();
        self.failures.break_if_final(error, is_ready)
    }

    pub(super) fn failed(&self, during: &'static str, error: &Error) {
        if let Some(hooks) = &self.hooks {
            hooks.failed(during, error);
        }
    }
}
