//! Signals from other tasks to a running reflector: stop and relist.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use tokio::sync::watch;

/// The signals that a running reflector obeys.
pub struct Signals {
    /// The reflector ends when this completes.
    pub stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The relist requests of other tasks; see [`relist_channel`].
    pub relists: RelistRequests,
}

/// Why a relist was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelistReason {
    /// By [`RelistHandle::request`], without a reason.
    Unspecified,
    /// A verification list and the cache have equal versions, but different objects.
    CacheDiffers,
    /// The API server has answered with a version below the applied one.
    OtherHistory,
    /// The definition of the resource or the API server's version has changed, or may have.
    DefinitionChanged,
}

/// Makes one reflector relist. Clones belong to the same reflector.
#[derive(Clone, Debug)]
pub struct RelistHandle(watch::Sender<RelistReason>);

/// The receiver of a [`RelistHandle`]'s requests, owned by the reflector.
#[derive(Debug)]
pub struct RelistRequests(watch::Receiver<RelistReason>);

/// Returns a handle for tasks that find out that a relist is necessary, and the
/// receiver for the reflector.
pub fn relist_channel() -> (RelistHandle, RelistRequests) {
    let (sender, receiver) = watch::channel(RelistReason::Unspecified);
    (RelistHandle(sender), RelistRequests(receiver))
}

impl fmt::Display for RelistReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "no reason was given",
            Self::CacheDiffers => "the cache differs from the API server",
            Self::OtherHistory => "the API server has another history",
            Self::DefinitionChanged => "the definition or the API server may have changed",
        })
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals")
            .field("relists", &self.relists)
            .finish_non_exhaustive()
    }
}

impl RelistHandle {
    /// Requests a list that begins after this call. All requests before the next list begins are
    /// answered by that list. The cache stays readable during the relist.
    pub fn request(&self) {
        self.request_because(RelistReason::Unspecified);
    }

    /// Does what [`RelistHandle::request`] does, for `reason`, which the log and the recent
    /// recoveries show. Of several requests that one list answers, the last reason is shown.
    pub(in crate::informer) fn request_because(&self, reason: RelistReason) {
        self.0.send_replace(reason);
    }
}

impl RelistRequests {
    /// Returns the reason when a relist is requested; never completes after all handles were
    /// dropped. Cancel safe.
    pub(super) async fn requested(&mut self) -> RelistReason {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
        *self.0.borrow()
    }

    /// Returns true if a relist was requested after the last [`RelistRequests::acknowledge`].
    pub(in crate::informer) fn is_requested(&self) -> bool {
        self.0.has_changed().unwrap_or(false)
    }

    /// Marks all requests made so far as answered, because a list begins now.
    pub(in crate::informer) fn acknowledge(&mut self) {
        self.0.mark_unchanged();
    }
}
