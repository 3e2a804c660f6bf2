//! What a reflector asks of the upstream, and nothing more.

use std::future::Future;
use std::time::Duration;

use futures_util::Stream;

use crate::api::ListPage;
use crate::api::ResourceVersion;
use crate::api::WatchEvent;

use crate::upstream::Error;

/// A page of a LIST with resource version unset (most recent).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListCall {
    /// Page size; 0 asks for everything at once.
    pub limit: u32,
    /// Token of the page before; `None` starts a list.
    pub continue_token: Option<String>,
}

/// A WATCH with bookmarks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchCall {
    /// Where to start.
    pub start: ResumePoint,
    /// `timeoutSeconds`.
    pub timeout: Duration,
}

/// Where a [`WatchCall`] starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumePoint {
    /// Watch-list: the most recent state as ADDED events, a bookmark that ends them, then changes.
    InitialEvents,
    /// Changes after this resource version.
    After(ResourceVersion),
}

/// LIST and WATCH of one resource in one wire format, as one identity.
pub trait ListerWatcher: Send + Sync + 'static {
    /// The stream of a watch; dropping it ends the watch. It ends with `None` at a clean end of
    /// body, and with an `Err` as its last item when the connection broke or a frame was cut.
    type Events: Stream<Item = Result<WatchEvent, Error>> + Send + Unpin + 'static;

    /// Fetches one page.
    fn list(&self, request: ListCall) -> impl Future<Output = Result<ListPage, Error>> + Send;

    /// Opens a watch; returns once the response's headers are there.
    fn watch(&self, request: WatchCall)
    -> impl Future<Output = Result<Self::Events, Error>> + Send;

    /// A barrier: the resource version that the most recent state has at the least. Asks for one
    /// object.
    fn current_revision(&self) -> impl Future<Output = Result<ResourceVersion, Error>> + Send {
        let request = ListCall {
            limit: 1,
            continue_token: None,
        };
        async { Ok(self.list(request).await?.resource_version) }
    }
}
