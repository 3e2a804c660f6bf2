//! What a reflector does after a failure: pure functions over the cause.
//!
//! None is asked about the answers that end a reflector (403, 404, 406).

use super::error::Cause;
use super::session::WatchOutcome;

/// What to do, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recovery {
    /// What to do.
    pub(super) action: Action,
    /// When.
    pub(super) delay: Delay,
}

/// What a reflector can do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Fetch the state anew, by watch-list if upstream has it.
    Relist,
    /// Fetch the state by LIST in pages.
    ListPages,
    /// Fetch the state by one LIST without limit.
    ListWhole,
    /// Throw the cache's content away at once, and fetch the state anew.
    NewEpoch,
    /// Go on after the last applied change, once upstream is known to still have it.
    Resume,
}

/// When to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delay {
    /// Now.
    AtOnce,
    /// After the next backoff, or what `Retry-After` says if that is longer.
    BackOff,
}

/// How far a watch-list came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchListProgress {
    /// It was answered with a failure, or not at all.
    Nothing,
    /// Its stream was open, the end of the initial events had not come.
    Stream,
}

/// After a watch-list that did not come to the end of its initial events.
pub(super) fn after_watch_list(cause: Cause, progress: WatchListProgress) -> Recovery {
    match (cause, progress) {
        (Cause::TooManyRequests | Cause::Unauthorized, _)
        | (Cause::Transport | Cause::Decode | Cause::NoAnswer, WatchListProgress::Nothing) => {
            Action::Relist.after_backoff()
        }
        _ => Action::ListPages.at_once(),
    }
}

/// True when the failure of a watch-list shows that upstream has none; `worked` if it ever had.
///
/// An API server that is just starting answers 5xx, and a big stream can break: neither may cost it
/// full lists for the rest of this reflector's life.
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

/// After a failed page of a LIST; `is_first_page` of one or more.
pub(super) fn after_list(cause: Cause, is_first_page: bool) -> Recovery {
    match cause {
        Cause::Expired if !is_first_page => Action::ListWhole.at_once(),
        _ => Action::Relist.after_backoff(),
    }
}

/// After upstream was asked for its current resource version before a watch is resumed.
pub(super) fn after_proof(cause: Cause) -> Recovery {
    match cause {
        Cause::WentBack => Action::NewEpoch.at_once(),
        // A watch must not go on unproven, however long upstream doesn't answer.
        _ => Action::Resume.after_backoff(),
    }
}

/// After a watch ended, or could not be opened (then `outcome` is the default).
pub(super) fn after_watch(
    cause: Cause,
    outcome: &WatchOutcome,
    relist_on_early_end: bool,
) -> Recovery {
    let action = match cause {
        Cause::WentBack => Action::NewEpoch,
        Cause::Expired | Cause::TooLarge | Cause::RelistRequested => Action::Relist,
        Cause::EndOfStream if relist_on_early_end && !outcome.reached_deadline => Action::Relist,
        _ => Action::Resume,
    };
    let is_at_once = match cause {
        Cause::RelistRequested | Cause::Silent | Cause::Overdue => true,
        // What a list just gave can't be too old: if upstream says so it will say so again.
        Cause::Expired | Cause::TooLarge => outcome.is_long || !outcome.follows_list,
        // Whole lists in a row are only for those who come slowly.
        Cause::WentBack => outcome.is_long,
        Cause::EndOfStream if action == Action::Relist => outcome.is_long,
        Cause::EndOfStream | Cause::Transport | Cause::Decode => {
            outcome.is_long || outcome.changes > 0
        }
        _ => false,
    };
    match is_at_once {
        true => action.at_once(),
        false => action.after_backoff(),
    }
}

/// True when the same start may bring the same failure for ever, so that only another start helps.
pub(super) fn may_recur_from_same_start(cause: Cause, outcome: &WatchOutcome) -> bool {
    let may_recur = matches!(
        cause,
        Cause::Decode | Cause::ServerError | Cause::Rejected | Cause::EndOfStream
    );
    may_recur && outcome.frames == 0 && !outcome.is_long
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
        is_long: true,
        reached_deadline: true,
    };
    const EARLY: WatchOutcome = WatchOutcome {
        reached_deadline: false,
        ..LONG
    };
    /// Brought a change and ended within a second.
    const SHORT: WatchOutcome = WatchOutcome {
        frames: 1,
        changes: 1,
        is_long: false,
        ..EARLY
    };
    /// Ended at once.
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
        use Action::NewEpoch;
        use Action::Relist;
        use Action::Resume;
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

    #[test]
    fn recovery_after_a_watch_list() {
        use Action::ListPages;
        use Action::Relist;
        use WatchListProgress::Nothing;
        use WatchListProgress::Stream;
        // Cause, how far it came, what follows, denied if it never worked, denied if it has.
        let rows = [
            (Cause::Rejected, Nothing, ListPages.at_once(), true, true),
            (
                Cause::ServerError,
                Nothing,
                ListPages.at_once(),
                false,
                false,
            ),
            (
                Cause::TooManyRequests,
                Nothing,
                Relist.after_backoff(),
                false,
                false,
            ),
            (
                Cause::Unauthorized,
                Nothing,
                Relist.after_backoff(),
                false,
                false,
            ),
            (
                Cause::Transport,
                Nothing,
                Relist.after_backoff(),
                false,
                false,
            ),
            (
                Cause::NoAnswer,
                Nothing,
                Relist.after_backoff(),
                false,
                false,
            ),
            (
                Cause::TooManyRequests,
                Stream,
                Relist.after_backoff(),
                false,
                false,
            ),
            (Cause::Transport, Stream, ListPages.at_once(), false, false),
            (Cause::Decode, Stream, ListPages.at_once(), false, false),
            (Cause::TooLarge, Stream, ListPages.at_once(), false, false),
            (Cause::Expired, Stream, ListPages.at_once(), false, false),
            (Cause::ServerError, Stream, ListPages.at_once(), true, false),
            (Cause::EndOfStream, Stream, ListPages.at_once(), true, false),
            (Cause::Silent, Stream, ListPages.at_once(), true, false),
            (
                Cause::NoInitialEventsEnd,
                Stream,
                ListPages.at_once(),
                true,
                false,
            ),
        ];
        for (cause, progress, recovery, denied, denied_later) in rows {
            let row = format!("{cause:?} {progress:?}");
            assert_eq!(after_watch_list(cause, progress), recovery, "{row}");
            assert_eq!(
                is_watch_list_unsupported(cause, progress, false),
                denied,
                "{row}"
            );
            assert_eq!(
                is_watch_list_unsupported(cause, progress, true),
                denied_later,
                "{row}"
            );
        }
    }
}
