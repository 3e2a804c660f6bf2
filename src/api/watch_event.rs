//! What a LIST page and a watch frame say once decoded.

use bytes::Bytes;

use super::Object;
use super::ResourceVersion;

/// The type of a watch event that carries an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// `ADDED`
    Added,
    /// `MODIFIED`
    Modified,
    /// `DELETED`
    Deleted,
}

impl EventType {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One page of a LIST.
#[derive(Debug, PartialEq, Eq)]
pub struct ListPage {
    /// The list's resource version.
    pub resource_version: ResourceVersion,
    /// Token of the next page; `None` on the last.
    pub continue_token: Option<String>,
    /// Items in the order received.
    pub items: Vec<Object>,
}

/// A decoded watch frame.
#[derive(Debug)]
pub enum WatchEvent {
    /// An object was added, modified or deleted.
    Change {
        /// What happened.
        event_type: EventType,
        /// The object; for a deletion its last state at the deletion's resource version.
        object: Object,
        /// The frame as received, which is byte for byte what a client of the same format needs.
        frame: Bytes,
    },
    /// All changes up to a resource version were sent.
    Bookmark(Bookmark),
    /// The stream failed; the body is the API's Status.
    Error(super::Status),
}

/// A decoded BOOKMARK.
#[derive(Debug)]
pub struct Bookmark {
    /// All changes up to here were sent.
    pub resource_version: ResourceVersion,
    /// True when it carries `k8s.io/initial-events-end: "true"`.
    pub initial_events_end: bool,
    /// The frame as received, the model for bookmarks sent to clients.
    pub frame: Bytes,
}
