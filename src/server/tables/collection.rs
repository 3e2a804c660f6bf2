//! The collection of an informer, whose objects are shown as Tables.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use tokio::sync::watch;

use crate::api::Resource;
use crate::api::ResourceVersion;
use crate::api::SelectableFields;
use crate::api::Selection;
use crate::api::WireFormat;
use crate::cache::BridgedWatch;
use crate::cache::Reader;
use crate::cache::WatchError;
use crate::codec::Clock;
use crate::codec::Encoder;
use crate::codec::IncludeObject;
use crate::codec::KeptRows;
use crate::codec::MetaVersion;
use crate::codec::Printer;
use crate::codec::Representation;
use crate::codec::TableView;
use crate::concurrency::AskerId;
use crate::informer::Informer;
use crate::server::collection::Collection;
use crate::server::collection::CollectionEnd;
use crate::server::collection::PrintedList;
use crate::upstream::Scope;

use super::kind::Kind;

/// The objects of one informer for one answer, which shows them as Tables.
pub(super) struct TableCollection {
    informer: Arc<Informer>,
    kind: Arc<Kind>,
    view: Arc<TableView>,
    kept: Arc<KeptRows>,
    /// Changes when the watch must end; `None` for a GET or LIST.
    end: Option<watch::Receiver<()>>,
}

impl TableCollection {
    /// The collection of `informer`, whose rows are printed by `printer` and `kept`. Ages
    /// end at the time of `clock`.
    ///
    /// All ages of a GET or LIST end at the same moment, after its proof. In a WATCH, which has an `end`, ages end
    /// when an event is encoded.
    pub(super) fn new(
        informer: Arc<Informer>,
        (kind, printer): (Arc<Kind>, Printer),
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

    fn resource(&self) -> &Arc<Resource> {
        self.informer.resource()
    }

    fn fields(&self) -> &Arc<SelectableFields> {
        self.informer.fields()
    }

    fn format(&self) -> WireFormat {
        self.informer.format()
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

    fn bridge(
        &self,
        version: ResourceVersion,
        selection: &Arc<Selection>,
        scope: &Scope,
        asker: AskerId,
    ) -> Result<Option<BridgedWatch>, WatchError> {
        self.informer.bridge(version, selection, scope, asker)
    }

    fn count_sent(&self, events: u64) {
        self.informer.count_sent(events);
    }
}
