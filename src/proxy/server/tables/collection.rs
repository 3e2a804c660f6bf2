//! The collection of an informer that shows the objects as Tables.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use kubefan_core::cache::Reader;
use kubefan_core::codec::{
    Clock, Encoder, IncludeObject, KeptRows, MetaVersion, Printer, Representation, TableView,
};
use kubefan_core::informer::Informer;
use tokio::sync::watch;

use super::kind::TableKind;
use crate::server::cached::collection::{Collection, CollectionEnd, PrintedList};

/// The objects of one informer for one answer, which shows them as Tables.
pub(super) struct TableCollection {
    informer: Arc<Informer>,
    kind: Arc<TableKind>,
    view: Arc<TableView>,
    kept: Arc<KeptRows>,
    /// Changes when the watch must end; `None` for a GET or LIST.
    end: Option<watch::Receiver<()>>,
}

impl TableCollection {
    /// Creates the collection of `informer`. `printer` prints the rows, and `kept` stores them.
    /// Ages end at the time of `clock`.
    ///
    /// All ages of a GET or LIST end at the same moment, after its proof. A WATCH has an `end`. Its
    /// ages end when an event is encoded.
    pub(super) fn new(
        informer: Arc<Informer>,
        (kind, printer): (Arc<TableKind>, Printer),
        (kept, clock): (Arc<KeptRows>, Clock),
        shown: (MetaVersion, IncludeObject),
        end: Option<watch::Receiver<()>>,
    ) -> Self {
        let view = TableView::new(printer, shown, Arc::clone(&kept), clock, end.is_some());
        Self {
            informer,
            kind,
            view: Arc::new(view),
            kept,
            end,
        }
    }
}

impl Collection for TableCollection {
    fn reader(&self) -> &Reader {
        self.informer.reader()
    }

    fn encoder(&self) -> Arc<Encoder> {
        self.informer.encoder()
    }

    fn encoder_for(&self, _: Representation) -> Arc<Encoder> {
        Arc::new(self.encoder().table(Arc::clone(&self.view)))
    }

    fn printed(&self) -> Option<PrintedList> {
        let since_1970 = self.view.now().duration_since(UNIX_EPOCH);
        Some(PrintedList {
            rows: Arc::clone(&self.kept),
            second: since_1970.unwrap_or_default().as_secs(),
        })
    }

    fn cannot_print(&self) {
        self.kind.cannot_print();
    }

    fn watch_end(&self) -> Option<CollectionEnd> {
        self.end.clone().map(CollectionEnd::new)
    }

    fn informer(&self) -> Option<&Informer> {
        Some(&self.informer)
    }
}
