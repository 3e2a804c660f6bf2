//! The recovery from each failure: pure functions of its cause and of the progress so far.
//!
//! They are not called with 401, 403, 404 and 406, unless these answers are tolerated for a while.

use super::error::Cause;
use super::session::WatchOutcome;

/// The reflector's reaction to a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recovery {
    pub(super) action: Action,
    pub(super) delay: Delay,
}

/// The next step of a reflector after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// List again, by watch-list if upstream supports it.
    Relist,
    /// List again, by LIST in pages.
    ListPages,
    /// List again, by one LIST without a page limit.
    ListWhole,
    /// Drop the cache's content at once, and list again.
    NewEpoch,
    /// Watch from the applied version, after a barrier has shown that upstream's version is not
    /// below it.
    Resume,
}

/// The wait before the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delay {
    /// Without a wait.
    AtOnce,
    /// After the next backoff, or after `Retry-After` if that is longer.
    BackOff,
}

/// The progress of a watch-list that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchListProgress {
    /// The watch-list was answered with an error, or not at all.
    Nothing,
    /// The stream was open, but the initial events had not ended.
    Stream,
}

/// Returns the recovery after a watch-list that failed before the end of its initial events.
pub(super) fn after_watch_list(cause: Cause, progress: WatchListProgress) -> Recovery {
    match (cause, progress) {
        (Cause::TooManyRequests | Cause::Unauthorized, _)
        | (Cause::Transport | Cause::Decode | Cause::NoAnswer, WatchListProgress::Nothing) => {
            Action::Relist.after_backoff()
        }
        _ => Action::ListPages.at_once(),
    }
}

/// Returns true if the failure of a watch-list shows that upstream does not support watch-lists.
/// `worked` is true if an earlier watch-list of this reflector worked.
///
/// A 5xx answer, as an API server gives while it starts, and a broken connection show nothing:
/// otherwise the reflector would use LISTs until it ends. Guarded by
/// `an_early_end_disables_watch_list_only_if_it_never_worked`.
pub(super) fn is_watch_list_unsupported(
    cause: Cause,
    progress: WatchListProgress,
    worked: bool,
) -> bool {
    match (cause, progress) {
        (Cause::Rejected, WatchListProgress::Nothing) => true,
        (
            Cause::Rejected
            | Cause::NoInitialEventsEnd
            | Cause::EndOfStream
            | Cause::Silent
            | Cause::Overdue
            | Cause::ServerError,
            WatchListProgress::Stream,
        ) => !worked,
        _ => false,
    }
}

/// Returns the recovery after a page of a LIST failed; `is_first_page` is true if no
/// page came before it.
pub(super) fn after_list(cause: Cause, is_first_page: bool) -> Recovery {
    match cause {
        Cause::Expired if !is_first_page => Action::ListWhole.at_once(),
        _ => Action::Relist.after_backoff(),
    }
}

/// Returns the recovery after the barrier before a resumed watch failed, or showed a lower version.
pub(super) fn after_proof(cause: Cause) -> Recovery {
    match cause {
        Cause::WentBack => Action::NewEpoch.at_once(),
        // The barrier is tried again: no watch is resumed without it, even after a long outage. The
        // test `a_watch_is_never_resumed_unproven` guards this.
        _ => Action::Resume.after_backoff(),
    }
}

/// Returns the recovery after a watch ended. If it could not be opened, `outcome` has no frames.
pub(super) fn after_watch(
    cause: Cause,
    outcome: &WatchOutcome,
    relist_on_early_end: bool,
) -> Recovery {
    let action = match cause {
        Cause::WentBack => Action::NewEpoch,
        // The deletion of an object that upstream cannot read is not watched, only a list lacks it.
        Cause::Expired | Cause::StorageReadError | Cause::TooLarge | Cause::RelistRequested => {
            Action::Relist
        }
        Cause::EndOfStream if relist_on_early_end && !outcome.reached_deadline => Action::Relist,
        _ => Action::Resume,
    };
    let is_at_once = match cause {
        Cause::RelistRequested | Cause::Silent | Cause::Overdue => true,
        // The version of a list that was just completed cannot be too old. If upstream answers so
        // nevertheless, it would do so again at once.
        Cause::Expired | Cause::StorageReadError | Cause::TooLarge => {
            outcome.reached_useful_time || !outcome.follows_list
        }
        // A short watch means that full lists follow each other quickly, so the next one waits.
        Cause::WentBack => outcome.reached_useful_time,
        Cause::EndOfStream if action == Action::Relist => outcome.reached_useful_time,
        Cause::EndOfStream | Cause::Transport | Cause::Decode => {
            outcome.reached_useful_time || outcome.changes > 0
        }
        _ => false,
    };
    if is_at_once {
        action.at_once()
    } else {
        action.after_backoff()
    }
}

/// Returns true if each watch from this version may fail in this way again, for example at a frame
/// that cannot be decoded. Only a relist, which gives another start version, helps then.
pub(super) fn may_recur_from_same_start(cause: Cause, outcome: &WatchOutcome) -> bool {
    let may_recur = matches!(
        cause,
        Cause::Decode | Cause::ServerError | Cause::Rejected | Cause::EndOfStream
    );
    may_recur && outcome.frames == 0 && !outcome.reached_useful_time
}

impl Action {
    fn at_once(self) -> Recovery {
        Recovery {
            action: self,
            delay: Delay::AtOnce,
        }
    }

    fn after_backoff(self) -> Recovery {
        Recovery {
            action: self,
            delay: Delay::BackOff,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: WatchOutcome = WatchOutcome {
        follows_list: false,
        frames: 3,
        changes: 2,
        reached_useful_time: true,
        reached_deadline: true,
    };
    const EARLY: WatchOutcome = WatchOutcome {
        reached_deadline: false,
        ..LONG
    };
    /// A watch that delivered a change and ended within a second.
    const SHORT: WatchOutcome = WatchOutcome {
        frames: 1,
        changes: 1,
        reached_useful_time: false,
        ..EARLY
    };
    /// A watch that ended at once, without a frame.
    const USELESS: WatchOutcome = WatchOutcome {
        frames: 0,
        changes: 0,
        ..SHORT
    };
    const AFTER_LIST: WatchOutcome = WatchOutcome {
        follows_list: true,
        ..USELESS
    };

    #[test]
    fn recovery_after_a_watch() {
        use Action::{NewEpoch, Relist, Resume};
        let rows = [
            (Cause::EndOfStream, LONG, Resume.at_once()),
            (Cause::EndOfStream, EARLY, Resume.at_once()),
            (Cause::EndOfStream, SHORT, Resume.at_once()),
            (Cause::EndOfStream, USELESS, Resume.after_backoff()),
            (Cause::Transport, LONG, Resume.at_once()),
            (Cause::Transport, SHORT, Resume.at_once()),
            (Cause::Transport, USELESS, Resume.after_backoff()),
            (Cause::Decode, SHORT, Resume.at_once()),
            (Cause::Decode, USELESS, Resume.after_backoff()),
            (Cause::Silent, LONG, Resume.at_once()),
            (Cause::Overdue, LONG, Resume.at_once()),
            (Cause::Expired, LONG, Relist.at_once()),
            (Cause::Expired, USELESS, Relist.at_once()),
            (Cause::Expired, AFTER_LIST, Relist.after_backoff()),
            (Cause::StorageReadError, LONG, Relist.at_once()),
            (Cause::StorageReadError, AFTER_LIST, Relist.after_backoff()),
            (Cause::TooLarge, USELESS, Relist.at_once()),
            (Cause::TooLarge, AFTER_LIST, Relist.after_backoff()),
            (Cause::TooManyRequests, LONG, Resume.after_backoff()),
            (Cause::Unauthorized, LONG, Resume.after_backoff()),
            (Cause::ServerError, LONG, Resume.after_backoff()),
            (Cause::Rejected, LONG, Resume.after_backoff()),
            (Cause::NoAnswer, USELESS, Resume.after_backoff()),
            (Cause::RelistRequested, USELESS, Relist.at_once()),
            (Cause::WentBack, LONG, NewEpoch.at_once()),
            (Cause::WentBack, SHORT, NewEpoch.after_backoff()),
        ];
        for (cause, outcome, recovery) in rows {
            assert_eq!(
                after_watch(cause, &outcome, false),
                recovery,
                "{cause:?} {outcome:?}"
            );
        }
        let end = Cause::EndOfStream;
        assert_eq!(after_watch(end, &LONG, true), Resume.at_once());
        assert_eq!(after_watch(end, &EARLY, true), Relist.at_once());
        assert_eq!(after_watch(end, &SHORT, true), Relist.after_backoff());
    }

    /// When the failure of a watch-list means that upstream does not support them.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Unsupported {
        Always,
        /// Unless an earlier watch-list worked.
        AtFirst,
        Never,
    }

    #[test]
    fn recovery_after_a_watch_list() {
        use Action::{ListPages, Relist};
        use Unsupported::{Always, AtFirst, Never};
        use WatchListProgress::{Nothing, Stream};
        let list = ListPages.at_once();
        let later = Relist.after_backoff();
        let rows = [
            (Cause::Rejected, Nothing, list, Always),
            (Cause::ServerError, Nothing, list, Never),
            (Cause::TooManyRequests, Nothing, later, Never),
            (Cause::Unauthorized, Nothing, later, Never),
            (Cause::Transport, Nothing, later, Never),
            (Cause::NoAnswer, Nothing, later, Never),
            (Cause::TooManyRequests, Stream, later, Never),
            (Cause::Transport, Stream, list, Never),
            (Cause::Decode, Stream, list, Never),
            (Cause::TooLarge, Stream, list, Never),
            (Cause::Expired, Stream, list, Never),
            (Cause::ServerError, Stream, list, AtFirst),
            (Cause::EndOfStream, Stream, list, AtFirst),
            (Cause::Silent, Stream, list, AtFirst),
            (Cause::NoInitialEventsEnd, Stream, list, AtFirst),
        ];
        for (cause, progress, recovery, unsupported) in rows {
            let row = format!("{cause:?} {progress:?}");
            assert_eq!(after_watch_list(cause, progress), recovery, "{row}");
            let is_unsupported = |worked| is_watch_list_unsupported(cause, progress, worked);
            assert_eq!(is_unsupported(false), unsupported != Never, "{row}");
            assert_eq!(is_unsupported(true), unsupported == Always, "{row}");
        }
    }
}
