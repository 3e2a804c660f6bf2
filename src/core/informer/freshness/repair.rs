//! Repair: the relist of a cache that was found wrong, at most once a minute. Guarded by
//! `a_wrong_cache_is_relisted_but_not_for_each_reader`.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cache::Snapshot;
use crate::informer::{RelistHandle, RelistReason};

/// Minimum time between relists of a cache that was found wrong.
const RELIST_PAUSE: Duration = Duration::from_secs(60);

/// Requests relists, and knows whether the cache still continues from a list that was found wrong.
pub(super) struct Repair {
    pub(super) relist: RelistHandle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    wrong: Option<Wrong>,
    requested_at: Option<Instant>,
}

/// The epoch of a content, and when its list began.
type Content = (u64, Instant);

/// The content of the cache that was found wrong.
struct Wrong {
    content: Content,
    /// True if the relist is requested only after the pause.
    owes_relist: bool,
}

// === impl Repair ===

impl Repair {
    pub(super) fn new(relist: RelistHandle) -> Self {
        Self {
            relist,
            state: Mutex::default(),
        }
    }

    /// Records that the content of `snapshot` is wrong. Requests a relist, or leaves the request to
    /// [`Repair::proceed`] if the last one was less than a minute ago. Does nothing if the content
    /// of a later relist was found wrong already.
    pub(super) fn begin(&self, snapshot: &Snapshot) {
        let state = &mut *self.state.lock();
        let content = content_of(snapshot);
        let known = state.wrong.as_ref();
        if known.is_some_and(|known| known.content > content) {
            return;
        }
        let is_known = state.is_wrong(snapshot);
        let owed = state.wrong.take().is_some_and(|wrong| wrong.owes_relist);
        state.wrong = Some(Wrong {
            content,
            owes_relist: !is_known || owed,
        });
        if state.pause_end().is_none() {
            self.request(state);
        }
    }

    /// Returns true if the list that `snapshot` continues was found wrong. A
    /// relist starts new content.
    pub(super) fn is_wrong(&self, snapshot: &Snapshot) -> bool {
        self.state.lock().is_wrong(snapshot)
    }

    /// Returns true if the content of `snapshot` is wrong, and the relist that may repair it is not
    /// requested yet.
    pub(super) fn owes_relist(&self, snapshot: &Snapshot) -> bool {
        self.state.lock().owes_relist(snapshot)
    }

    /// Requests the relist for the wrong content of `snapshot`, if it was not requested yet. If the
    /// pause is not over yet, returns its end, when the caller must call this again.
    pub(super) fn proceed(&self, snapshot: &Snapshot) -> Option<Instant> {
        let state = &mut *self.state.lock();
        if !state.owes_relist(snapshot) {
            return None;
        }
        let pause_end = state.pause_end();
        if pause_end.is_none() {
            self.request(state);
        }
        pause_end
    }

    fn request(&self, state: &mut State) {
        state.requested_at = Some(Instant::now());
        if let Some(wrong) = &mut state.wrong {
            wrong.owes_relist = false;
        }
        self.relist.request_because(RelistReason::CacheDiffers);
    }
}

fn content_of(snapshot: &Snapshot) -> Content {
    (snapshot.epoch(), snapshot.list_began())
}

// === impl State ===

impl State {
    fn is_wrong(&self, snapshot: &Snapshot) -> bool {
        let wrong = self.wrong.as_ref();
        wrong.is_some_and(|wrong| wrong.content == content_of(snapshot))
    }

    fn owes_relist(&self, snapshot: &Snapshot) -> bool {
        let is_owed = self.wrong.as_ref().is_some_and(|wrong| wrong.owes_relist);
        is_owed && self.is_wrong(snapshot)
    }

    /// Returns the earliest time for the next request of a relist, or `None` if a relist may be
    /// requested now.
    fn pause_end(&self) -> Option<Instant> {
        let end = self.requested_at? + RELIST_PAUSE;
        (end > Instant::now()).then_some(end)
    }
}
