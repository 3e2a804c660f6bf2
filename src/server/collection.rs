//! What reads read from: the cache of an informer, or a store that is itself the truth.

use std::sync::Arc;

use crate::api::Resource;
use crate::api::SelectableFields;
use crate::api::WireFormat;
use crate::cache::Reader;
use crate::codec::Encoder;
use crate::codec::Representation;
use crate::codec::View;
use crate::informer::Informer;
use crate::informer::InformerSpec;

/// One resource's objects in one wire format, with what is needed to answer reads of them.
pub trait Collection: Send + Sync {
    /// The objects and their recent history.
    fn reader(&self) -> &Reader;

    /// Prints objects, lists and events of the resource. It is shared with no other collection, and
    /// stays the same as long as it prints the same: so it tells whose a list is.
    fn encoder(&self) -> Arc<Encoder>;

    /// The resource.
    fn resource(&self) -> &Arc<Resource>;

    /// The fields by which its objects can be selected.
    fn fields(&self) -> &Arc<SelectableFields>;

    /// The wire format.
    fn format(&self) -> WireFormat;

    /// Prints the same as `representation` shows it.
    fn encoder_for(&self, representation: Representation) -> Arc<Encoder> {
        let encoder = self.encoder();
        match representation.view {
            View::Whole => encoder,
            View::Metadata(version) => Arc::new(encoder.partial(representation.format, version)),
        }
    }

    /// What an informer of it would need to know.
    fn spec(&self) -> InformerSpec {
        InformerSpec {
            resource: Arc::clone(self.resource()),
            format: self.format(),
            fields: Arc::clone(self.fields()),
            custom: false,
            list_kind: None,
        }
    }

    /// Counts events given to a client; by default nobody does.
    fn count_sent(&self, _events: u64) {}
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

    fn count_sent(&self, events: u64) {
        self.count_sent(events);
    }
}
