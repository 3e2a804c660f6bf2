//! What a reflector does after a failure: pure functions over the cause.
//!
//! None is asked about the answers that end a reflector (403, 404, 406).

use super::error::Cause;
use super::session::Life;

/// What to do, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// What to do.
    pub(super) next: Next,
    /// When.
    pub(super) pace: Pace,
}

/// What a reflector can do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
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
pub(super) enum Pace {
    /// Now.
    AtOnce,
    /// After the next backoff, or what `Retry-After` says if that is longer.
    BackOff,
}

/// How far a watch-list came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// It was answered with a failure, or not at all.
    Nothing,
    /// Its stream was open, the end of the initial events had not come.
    Stream,
}

/// After a watch-list that did not come to the end of its initial events.
pub(super) fn after_watch_list(cause: Cause, reached: Reached) -> Verdict {
    match (cause, reached) {
        (Cause::TooManyRequests | Cause::Unauthorized, _)
        | (Cause::Transport | Cause::Decode | Cause::NoAnswer, Reached::Nothing) => {
            Next::Relist.after_backoff()
        }
        _ => Next::ListPages.at_once(),
    }
}

/// True when the failure of a watch-list shows that upstream has none; `worked` if it ever had.
///
/// An API server that is just starting answers 5xx, and a big stream can break: neither may cost it
/// full lists for the rest of this reflector's life.
pub(super) fn denies_watch_list(cause: Cause, reached: Reached, worked: bool) -> bool {
    match (cause, reached) {
        (Cause::Rejected, Reached::Nothing) => true,
        (
            Cause::Rejected
            | Cause::NoInitialEventsEnd
            | Cause::EndOfStream
            | Cause::Silent
            | Cause::Overdue
            | Cause::ServerFault,
            Reached::Stream,
        ) => !worked,
        _ => false,
    }
}

/// After a failed page of a LIST; `is_first_page` of one or more.
pub(super) fn after_list(cause: Cause, is_first_page: bool) -> Verdict {
    match cause {
        Cause::Expired if !is_first_page => Next::ListWhole.at_once(),
        _ => Next::Relist.after_backoff(),
    }
}

/// After upstream was asked for its current resource version before a watch is resumed.
pub(super) fn after_proof(cause: Cause) -> Verdict {
    match cause {
        Cause::WentBack => Next::NewEpoch.at_once(),
        // A watch must not go on unproven, however long upstream doesn't answer.
        _ => Next::Resume.after_backoff(),
    }
}

/// After a watch ended, or could not be opened (then `life` is the default).
pub(super) fn after_watch(cause: Cause, life: &Life, relist_on_early_end: bool) -> Verdict {
    let next = match cause {
        Cause::WentBack => Next::NewEpoch,
        Cause::Expired | Cause::TooLarge | Cause::RelistRequested => Next::Relist,
        Cause::EndOfStream if relist_on_early_end && !life.reached_deadline => Next::Relist,
        _ => Next::Resume,
    };
    let is_at_once = match cause {
        Cause::RelistRequested | Cause::Silent | Cause::Overdue => true,
        // What a list just gave can't be too old: if upstream says so it will say so again.
        Cause::Expired | Cause::TooLarge => life.is_long || !life.follows_list,
        // Whole lists in a row are only for those who come slowly.
        Cause::WentBack => life.is_long,
        Cause::EndOfStream if next == Next::Relist => life.is_long,
        Cause::EndOfStream | Cause::Transport | Cause::Decode => life.is_long || life.changes > 0,
        _ => false,
    };
    match is_at_once {
        true => next.at_once(),
        false => next.after_backoff(),
    }
}

/// True when the same start may bring the same failure for ever, so that only another start helps.
pub(super) fn is_bound_to_start(cause: Cause, life: &Life) -> bool {
    let can_be_bound = matches!(
        cause,
        Cause::Decode | Cause::ServerFault | Cause::Rejected | Cause::EndOfStream
    );
    can_be_bound && life.frames == 0 && !life.is_long
}

impl Next {
    fn at_once(self) -> Verdict {
        Verdict {
            next: self,
            pace: Pace::AtOnce,
        }
    }

    fn after_backoff(self) -> Verdict {
        Verdict {
            next: self,
            pace: Pace::BackOff,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Life = Life {
        follows_list: false,
        frames: 3,
        changes: 2,
        is_long: true,
        reached_deadline: true,
    };
    const EARLY: Life = Life {
        reached_deadline: false,
        ..LONG
    };
    /// Brought a change and ended within a second.
    const SHORT: Life = Life {
        frames: 1,
        changes: 1,
        is_long: false,
        ..EARLY
    };
    /// Ended at once.
    const USELESS: Life = Life {
        frames: 0,
        changes: 0,
        ..SHORT
    };
    const AFTER_LIST: Life = Life {
        follows_list: true,
        ..USELESS
    };

    #[test]
    fn what_follows_a_watch() {
        use Next::NewEpoch;
        use Next::Relist;
        use Next::Resume;
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
            (Cause::ServerFault, LONG, Resume.after_backoff()),
            (Cause::Rejected, LONG, Resume.after_backoff()),
            (Cause::NoAnswer, USELESS, Resume.after_backoff()),
            (Cause::RelistRequested, USELESS, Relist.at_once()),
            (Cause::WentBack, LONG, NewEpoch.at_once()),
            (Cause::WentBack, SHORT, NewEpoch.after_backoff()),
        ];
        for (cause, life, verdict) in rows {
            assert_eq!(
                after_watch(cause, &life, false),
                verdict,
                "{cause:?} {life:?}"
            );
        }
        let end = Cause::EndOfStream;
        assert_eq!(after_watch(end, &LONG, true), Resume.at_once());
        assert_eq!(after_watch(end, &EARLY, true), Relist.at_once());
        assert_eq!(after_watch(end, &SHORT, true), Relist.after_backoff());
    }

    #[test]
    fn what_follows_a_watch_list() {
        use Next::ListPages;
        use Next::Relist;
        use Reached::Nothing;
        use Reached::Stream;
        // Cause, how far it came, what follows, denied if it never worked, denied if it has.
        let rows = [
            (Cause::Rejected, Nothing, ListPages.at_once(), true, true),
            (
                Cause::ServerFault,
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
            (Cause::ServerFault, Stream, ListPages.at_once(), true, false),
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
        for (cause, reached, verdict, denied, denied_later) in rows {
            let row = format!("{cause:?} {reached:?}");
            assert_eq!(after_watch_list(cause, reached), verdict, "{row}");
            assert_eq!(denies_watch_list(cause, reached, false), denied, "{row}");
            assert_eq!(
                denies_watch_list(cause, reached, true),
                denied_later,
                "{row}"
            );
        }
    }
}
