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

/// Makes one reflector relist. Clones belong to the same reflector.
#[derive(Clone, Debug)]
pub struct RelistHandle(watch::Sender<()>);

/// The receiver of a [`RelistHandle`]'s requests, owned by the reflector.
#[derive(Debug)]
pub struct RelistRequests(watch::Receiver<()>);

/// Returns a handle for tasks that find out that a relist is necessary, and the
/// receiver for the reflector.
pub fn relist_channel() -> (RelistHandle, RelistRequests) {
    let (sender, receiver) = watch::channel(());
    (RelistHandle(sender), RelistRequests(receiver))
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
        self.0.send_replace(());
    }
}

impl RelistRequests {
    /// Completes when a relist is requested; never completes after all handles were dropped. Cancel
    /// safe.
    pub(super) async fn requested(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
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
