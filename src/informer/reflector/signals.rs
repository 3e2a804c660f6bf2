//! What reaches a running reflector from outside: stop, and relist.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use tokio::sync::watch;

/// What reaches a running reflector from outside.
pub struct Signals {
    /// The reflector ends when this completes.
    pub stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Requests to relist.
    pub relists: RelistRequests,
}

/// Makes a reflector relist; clones ask the same one.
#[derive(Clone, Debug)]
pub struct RelistHandle(watch::Sender<()>);

/// The reflector's end of a [`RelistHandle`].
#[derive(Debug)]
pub struct RelistRequests(watch::Receiver<()>);

/// Connects those who know that a relist is due with the reflector that does it.
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
    /// Asks for a list that begins after this call. Requests that no list has begun for yet are
    /// one; the cache stays readable meanwhile.
    pub fn request(&self) {
        self.0.send_replace(());
    }
}

impl RelistRequests {
    /// Completes when a relist is asked for; never once all handles are gone. Cancel safe.
    pub(super) async fn requested(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// True when a relist was asked for.
    pub(in crate::informer) fn is_requested(&self) -> bool {
        self.0.has_changed().unwrap_or(false)
    }

    /// A list begins: it answers all requests made so far.
    pub(in crate::informer) fn acknowledge(&mut self) {
        self.0.mark_unchanged();
    }
}
