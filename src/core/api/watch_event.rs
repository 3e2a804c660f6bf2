//! Pages of a LIST and frames of a watch after decoding.

use bytes::Bytes;

use super::{Object, ResourceVersion};

/// The type of a watch event that carries an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// `ADDED`: the object is new in the watch's selection.
    Added,
    /// `MODIFIED`: the object changed and is still in the watch's selection.
    Modified,
    /// `DELETED`: the object was deleted, or left the watch's selection.
    Deleted,
}

impl EventType {
    /// Returns the event type's name on the wire, such as `ADDED`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One decoded page of a LIST.
#[derive(Debug, PartialEq, Eq)]
pub struct ListPage {
    /// The list's resource version. It is the same on all pages of the list.
    pub resource_version: ResourceVersion,
    /// The `continue` token for the next page; `None` on the last page.
    pub continue_token: Option<String>,
    /// The page's objects, in the order received.
    pub items: Vec<Object>,
}

/// One decoded frame of a watch.
#[derive(Debug)]
pub enum WatchEvent {
    /// An object was added, modified or deleted.
    Change {
        /// Whether the object was added, modified or deleted.
        event_type: EventType,
        /// The object; for DELETED, its last state with the resource version of the deletion.
        object: Object,
        /// The frame as received; clients with this wire format can get it unchanged.
        frame: Bytes,
    },
    /// The API server has sent all changes up to the bookmark's resource version.
    Bookmark(Bookmark),
    /// The watch failed, with the `Status` that the API server sent.
    Error(super::Status),
}

/// A decoded BOOKMARK event.
#[derive(Debug)]
pub struct Bookmark {
    /// The API server has sent all changes up to this resource version.
    pub resource_version: ResourceVersion,
    /// True if the annotation `k8s.io/initial-events-end: "true"` marks the end of initial events.
    pub initial_events_end: bool,
    /// The frame as received; it is the template for bookmarks to clients.
    pub frame: Bytes,
}
