//! The collection that answers a read: an informer's cache, or a store that is the source of truth.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use kubefan_core::body::BodyGuard;
use kubefan_core::cache::Reader;
use kubefan_core::codec::{Encoder, KeptRows, Representation, View};
use kubefan_core::informer::Informer;
use tokio::sync::watch;

/// One resource's objects in one wire format, and everything that is needed to read them.
pub trait Collection: Send + Sync {
    /// Returns the reader of the cache that holds the objects and their recent history.
    fn reader(&self) -> &Reader;

    /// Returns the encoder of the resource's objects, lists and events. No two collections share an
    /// encoder, and a collection replaces its encoder only when the encoding changes. So the
    /// pointer can identify the collection.
    fn encoder(&self) -> Arc<Encoder>;

    /// Returns the encoder for `representation`: of complete objects, or of their metadata only.
    fn encoder_for(&self, representation: Representation) -> Arc<Encoder> {
        let encoder = self.encoder();
        match representation.view {
            // Only the collection of a Table can print rows; others encode errors for it.
            View::Whole | View::Table(..) => encoder,
            View::Metadata(version) => Arc::new(encoder.partial(representation.format, version)),
        }
    }

    /// Returns what a list shows besides the objects, if it prints them as rows of a Table. The
    /// default is `None`, for collections that print no rows.
    fn printed(&self) -> Option<PrintedList> {
        None
    }

    /// Records that an object could not be printed as a row of a Table, so that later Tables are
    /// forwarded. The default does nothing.
    fn cannot_print(&self) {}

    /// Returns what ends a watch of this collection before its time. `None`, the default, if
    /// nothing does.
    fn watch_end(&self) -> Option<CollectionEnd> {
        None
    }

    /// Returns the informer whose objects these are. It gets the history before the event log from
    /// upstream, and counts the events that were sent to clients. The default is `None`, for a
    /// source of truth: a watch from before its event log gets 410.
    fn informer(&self) -> Option<&Informer> {
        None
    }
}

/// Ends a watch when the server no longer shows the collection in the form of the watch.
pub struct CollectionEnd {
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// What two lists of equal objects must have in common to be equal Tables.
#[derive(Clone, Debug)]
pub struct PrintedList {
    /// The rows, compared by pointer; all of them come from one printer.
    pub rows: Arc<KeptRows>,
    /// The time to which the ages in the list are computed, in seconds since 1970. The list may
    /// show ages that were computed earlier in this second.
    pub second: u64,
}

impl CollectionEnd {
    /// Ends the watch when `end` changes, or when its sender is dropped.
    pub fn new(mut end: watch::Receiver<()>) -> Self {
        let ended = Box::pin(async move { end.changed().await.unwrap_or_default() });
        Self { ended }
    }
}

impl BodyGuard for CollectionEnd {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.ended.as_mut().poll(cx)
    }
}

impl Collection for Informer {
    fn reader(&self) -> &Reader {
        self.reader()
    }

    fn encoder(&self) -> Arc<Encoder> {
        self.encoder()
    }

    fn informer(&self) -> Option<&Informer> {
        Some(self)
    }
}
