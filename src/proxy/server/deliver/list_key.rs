//! ListKey: what requests must have in common to share a list, or the initial events of a watch.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use kubefan_core::api::{HashedSelection, ResourceVersion};
use kubefan_core::codec::{Encoder, Representation};

use crate::server::cached::collection::PrintedList;
use crate::server::decide::Page;

/// Everything that two requests must have in common to share a list.
#[derive(Clone)]
pub(crate) struct ListKey {
    /// The collection's encoder, compared by pointer; it is replaced when the encoding changes.
    pub encoder: Arc<Encoder>,
    /// Epoch of the snapshot.
    pub epoch: u64,
    /// Resource version of the snapshot.
    pub resource_version: ResourceVersion,
    /// Number of objects in the snapshot.
    pub objects: usize,
    pub representation: Representation,
    pub selection: HashedSelection,
    pub page: Page,
    /// The printed rows, if the list is a Table.
    pub printed: Option<PrintedList>,
    /// True if the clients get gzip.
    pub is_gzip: bool,
}

impl ListKey {
    fn parts(&self) -> impl Hash + PartialEq + '_ {
        let printed = self.printed.as_ref();
        (
            Arc::as_ptr(&self.encoder),
            self.epoch,
            self.resource_version,
            self.objects,
            self.representation,
            &self.selection,
            &self.page,
            printed.map(|printed| (Arc::as_ptr(&printed.rows), printed.second)),
            self.is_gzip,
        )
    }
}

impl PartialEq for ListKey {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for ListKey {}

impl Hash for ListKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}
