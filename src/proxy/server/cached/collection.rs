//! The collection that answers a read: an informer's cache, or a store that is the source of truth.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use kubefan_core::api::{Resource, ResourceVersion, SelectableFields, Selection, WireFormat};
use kubefan_core::body::BodyGuard;
use kubefan_core::cache::{BridgedWatch, Reader, WatchError};
use kubefan_core::codec::{Encoder, KeptRows, Representation, View};
use kubefan_core::concurrency::AskerId;
use kubefan_core::informer::{Informer, InformerSpec};
use kubefan_core::upstream::Scope;
use tokio::sync::watch;

/// One resource's objects in one wire format, and everything that is needed to read them.
pub trait Collection: Send + Sync {
    /// Returns the reader of the cache that holds the objects and their recent history.
    fn reader(&self) -> &Reader;

    /// Returns the encoder of the resource's objects, lists and events. No two collections share an
    /// encoder, and a collection replaces its encoder only when the encoding changes. So the
    /// pointer can identify the collection.
    fn encoder(&self) -> Arc<Encoder>;

    /// Returns the resource of the objects.
    fn resource(&self) -> &Arc<Resource>;

    /// Returns the fields that field selectors can use.
    fn fields(&self) -> &Arc<SelectableFields>;

    /// Returns the wire format of the stored objects.
    fn format(&self) -> WireFormat;

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

    /// Returns the informer spec for planning reads. The default is the spec of a built-in
    /// resource.
    fn spec(&self) -> InformerSpec {
        InformerSpec {
            resource: Arc::clone(self.resource()),
            format: self.format(),
            fields: Arc::clone(self.fields()),
            custom: false,
            list_kind: None,
            settings: Arc::default(),
        }
    }

    /// Opens a watch that gets the history before the event log from upstream. Returns `None`, the
    /// default, if there is no such history; the client then gets 410. Askers take turns.
    ///
    /// # Errors
    ///
    /// As for a watch without a bridge.
    fn bridge(
        &self,
        _version: ResourceVersion,
        _selection: &Arc<Selection>,
        _scope: &Scope,
        _asker: AskerId,
    ) -> Result<Option<BridgedWatch>, WatchError> {
        Ok(None)
    }

    /// Counts events that were sent to a client. The default does nothing.
    fn count_sent(&self, _events: u64) {}
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

    fn resource(&self) -> &Arc<Resource> {
        self.resource()
    }

    fn fields(&self) -> &Arc<SelectableFields> {
        self.fields()
    }

    fn format(&self) -> WireFormat {
        self.format()
    }

    fn bridge(
        &self,
        version: ResourceVersion,
        selection: &Arc<Selection>,
        scope: &Scope,
        asker: AskerId,
    ) -> Result<Option<BridgedWatch>, WatchError> {
        self.bridge(version, selection, scope, asker)
    }

    fn count_sent(&self, events: u64) {
        self.count_sent(events);
    }
}
