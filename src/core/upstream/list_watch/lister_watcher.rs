//! The requests that a reflector sends to the upstream, as a trait.

use std::future::Future;
use std::time::Duration;

use futures_util::Stream;

use crate::api::{ListPage, ResourceVersion, WatchEvent};
use crate::upstream::Error;

/// A request for one page of a LIST of the most recent state (resource version unset).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListCall {
    /// The largest number of objects in the page; 0 requests all objects in one page.
    pub limit: u32,
    /// The `continue` token of the page before; `None` for the first page.
    pub continue_token: Option<String>,
}

impl ListCall {
    /// Returns the request of [`ListerWatcher::barrier`].
    pub(super) fn barrier() -> Self {
        Self {
            limit: 1,
            continue_token: None,
        }
    }
}

/// A request for a WATCH with bookmarks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchCall {
    /// The resource version or state that the watch starts from.
    pub start: ResumePoint,
    /// The API server ends the watch after this time (`timeoutSeconds`).
    pub timeout: Duration,
}

/// The resource version or state that a [`WatchCall`] starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumePoint {
    /// The watch is a watch-list: it starts with the most recent state as ADDED events and a
    /// bookmark that ends them, and continues with changes.
    InitialEvents,
    /// The watch starts with the first change after this resource version.
    After(ResourceVersion),
}

/// LIST and WATCH of one resource in one wire format, as one identity.
pub trait ListerWatcher: Send + Sync + 'static {
    /// The stream of a watch's events; dropping it ends the watch. It ends without an error if the
    /// response ends. If the connection broke or a frame was cut off, the last item is an error.
    type Events: Stream<Item = Result<WatchEvent, Error>> + Send + Unpin + 'static;

    /// Fetches one page of a LIST.
    fn list(&self, request: ListCall) -> impl Future<Output = Result<ListPage, Error>> + Send;

    /// Opens a watch, and returns its stream when the response's headers have arrived.
    fn watch(&self, request: WatchCall)
    -> impl Future<Output = Result<Self::Events, Error>> + Send;

    /// Sends a barrier, which returns the API server's current resource version: a LIST of the most
    /// recent state, limited to one object.
    fn barrier(&self) -> impl Future<Output = Result<ResourceVersion, Error>> + Send {
        async { Ok(self.list(ListCall::barrier()).await?.resource_version) }
    }
}
