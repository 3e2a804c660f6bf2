//! What reflectors have learned about the watch-lists of one upstream.

use tokio::sync::watch;

use super::error::Cause;

/// Whether the watch-lists of an upstream work, as its reflectors have learnt. Clones share it.
///
/// Behind something that drops bookmarks, a watch-list is given up only after 90 s without a frame.
/// No other reflector has to wait for that again. Guarded by
/// `reflectors_of_one_upstream_learn_from_each_other_that_it_has_no_watch_list`.
#[derive(Clone, Debug)]
pub(in crate::informer) struct WatchLists(watch::Sender<WatchListSupport>);

/// Whether upstream supports watch-lists, as far as calls have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchListSupport {
    /// No watch-list has worked or failed conclusively yet, so the next list tries one.
    Unknown,
    /// A watch-list has delivered its initial events.
    Supported,
    /// Watch-lists do not work, so only LISTs are used.
    Unsupported,
}

// === impl WatchLists ===

impl Default for WatchLists {
    fn default() -> Self {
        Self(watch::Sender::new(WatchListSupport::Unknown))
    }
}

impl WatchLists {
    /// Returns true if a reflector has found that watch-lists do not work.
    pub(super) fn fail(&self) -> bool {
        *self.0.borrow() == WatchListSupport::Unsupported
    }

    /// Completes when a reflector has found that watch-lists do not work. Cancel safe.
    pub(super) async fn failing(&self) {
        let mut known = self.0.subscribe();
        let failing = known
            .wait_for(|known| *known == WatchListSupport::Unsupported)
            .await;
        // An error would mean that the sender was dropped, but it is a field of `self`.
        drop(failing);
    }

    /// Records that a watch-list has worked.
    pub(super) fn worked(&self) {
        let works = WatchListSupport::Supported;
        self.0
            .send_if_modified(|known| std::mem::replace(known, works) != works);
    }

    /// Records that a watch-list has failed by `cause`, which showed that they are not supported.
    /// It counts for others only if it does not depend on the resource, if it took long to show,
    /// and if no watch-list has worked.
    pub(super) fn failed(&self, cause: Cause) {
        let concerns_all = matches!(
            cause,
            Cause::NoInitialEventsEnd | Cause::Silent | Cause::Overdue
        );
        self.0.send_if_modified(|known| {
            let is_news = concerns_all && *known == WatchListSupport::Unknown;
            if is_news {
                *known = WatchListSupport::Unsupported;
            }
            is_news
        });
    }

    /// Forgets what reflectors have learned, because upstream may have been upgraded or replaced.
    pub(in crate::informer) fn forget(&self) {
        self.0.send_replace(WatchListSupport::Unknown);
    }
}
