//! Ends forwarded requests that would otherwise have no end.

use std::pin::Pin;
use std::task::{Context, Poll};

use kubefan_core::body::BodyGuard;
use kubefan_core::shutdown::WatchEnd;
use tokio::sync::OwnedSemaphorePermit;

use super::right::{Right, RightToCreate};

/// What a forwarded watch, or another request without an end, holds until it ends.
pub(super) struct ForwardedWatch {
    /// Set for a watch.
    pub(super) end: Option<WatchEnd>,
    /// Set if the caller's right is judged again.
    pub(super) right: Option<Right>,
    /// Set if the caller's right to create the connection is also judged again.
    pub(super) to_create: Option<RightToCreate>,
    pub(super) _permit: Option<OwnedSemaphorePermit>,
}

/// A forwarded watch ends cleanly during a drain, and when the right to it is lost, like a watch
/// from a cache.
impl BodyGuard for ForwardedWatch {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_lost = self.right.as_mut().map(|right| right.poll_end(cx));
        if is_lost.is_some_and(|end| end.is_ready()) {
            return Poll::Ready(());
        }
        match &mut self.end {
            Some(end) => Pin::new(end).poll(cx),
            None => Poll::Pending,
        }
    }

    fn is_held(&self) -> bool {
        self.right.as_ref().is_some_and(BodyGuard::is_held)
    }
}
