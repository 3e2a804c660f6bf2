//! The objects of one kind, in a cache. The cache's writer applies clients' requests
//! instead of an upstream's events.

use std::sync::Arc;
use std::time::Duration;

use kubefan_core::api::{
    EventType, FieldSelector, Object, ObjectKey, ResourceVersion, Selection, Status, WireFormat,
};
use kubefan_core::cache;
use kubefan_core::cache::{EpochCause, Reader, Writer};
use kubefan_core::codec::{Decoder, Encoder};
use kubefan_proxy::server;
use serde_json::Value;

use crate::sim::kinds::{Kind, bookmarks};
use crate::sim::print;

/// Events are dropped at this age if there are more than [`RETENTION_EVENTS`] of them. A compaction
/// drops all events.
const RETENTION_AGE: Duration = Duration::from_secs(300);
const RETENTION_EVENTS: usize = 1024;

/// A kind, and what is needed to read its objects.
pub(crate) struct ServedKind {
    pub(crate) kind: Kind,
    reader: Reader,
    encoder: Arc<Encoder>,
}

/// The objects of one kind, with the writer that changes them.
pub(crate) struct Collection {
    pub(crate) served_kind: Arc<ServedKind>,
    pub(super) writer: Writer,
    decoder: Decoder,
}

impl Collection {
    /// Creates an empty collection at the version `revision`.
    pub(crate) fn new(kind: Kind, revision: ResourceVersion) -> Self {
        let (mut writer, reader) = cache::cache(cache::Config {
            field_count: kind.fields.fields.len(),
            retention_age: RETENTION_AGE,
            retention_events: RETENTION_EVENTS,
            ..cache::Config::default()
        });
        let nothing = writer.relist();
        writer.replace(nothing, revision);
        let resource = &kind.resource;
        let encoder = Encoder::new(WireFormat::Json, &resource.kind, resource.gvr.api_version())
            .with_embedded_type_meta(kind.is_custom);
        let encoder = match bookmarks::template(&kind) {
            Some(template) => encoder.with_bookmark_template(template),
            None => encoder,
        };
        let decoder = Decoder::new(WireFormat::Json, Arc::clone(&kind.fields));
        let served_kind = ServedKind {
            kind,
            reader,
            encoder: Arc::new(encoder),
        };
        Self {
            served_kind: Arc::new(served_kind),
            writer,
            decoder,
        }
    }

    /// Returns the current object at `key`; `None` if there is none.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Value> {
        let snapshot = self.served_kind.reader.snapshot()?;
        self.value(&*snapshot.get(key)?)
    }

    /// Returns the keys of all objects that match `selection`.
    pub(crate) fn keys(&self, selection: &Selection) -> Vec<ObjectKey> {
        let Some(snapshot) = self.served_kind.reader.snapshot() else {
            return Vec::new();
        };
        let objects = snapshot.list(selection, None);
        objects.map(|object| object.key.clone()).collect()
    }

    /// Applies a change with the object `value`, which carries the change's resource version.
    ///
    /// # Errors
    ///
    /// 400 if `value` is not a valid object, 500 if its version is not greater than all earlier
    /// ones.
    pub(crate) fn apply(&mut self, event_type: EventType, value: &Value) -> Result<(), Status> {
        let failed = |error: String| Status::internal_error(error);
        let object = self.decoder.object(print::compact(value).as_bytes());
        let object = object.map_err(|error| Status::bad_request(error.to_string()))?;
        let applied = self.writer.apply(event_type, object, None);
        applied.map_err(|error| failed(error.to_string()))
    }

    /// Records that the collection has no further changes up to `revision`, and moves the
    /// collection's version there.
    pub(crate) fn catch_up(&mut self, revision: ResourceVersion) {
        // This cannot fail: the store's revision only grows, and `restore` starts a new epoch.
        let _ = self.writer.bookmark(revision);
    }

    /// Starts a new epoch with the present objects, all at the version `revision`.
    pub(crate) fn restore(&mut self, revision: ResourceVersion) {
        let objects: Vec<Value> = self
            .keys(&Selection::default())
            .iter()
            .filter_map(|key| self.get(key))
            .collect();
        self.writer.new_epoch(EpochCause::WentBack);
        let mut relist = self.writer.relist();
        for mut value in objects {
            value["metadata"]["resourceVersion"] = revision.to_string().into();
            if let Ok(object) = self.decoder.object(print::compact(&value).as_bytes()) {
                relist.add(object);
            }
        }
        self.writer.replace(relist, revision);
    }

    fn value(&self, object: &Object) -> Option<Value> {
        let parts = self.served_kind.encoder.object_body(object);
        serde_json::from_slice(&parts.concat()).ok()
    }
}

impl ServedKind {
    /// Returns the keys and versions of the objects that a field
    /// selector selects; empty selects all.
    ///
    /// # Errors
    ///
    /// 400 if the selector is not valid.
    pub(crate) fn versions(
        &self,
        field_selector: &str,
    ) -> Result<Vec<(ObjectKey, ResourceVersion)>, Status> {
        let fields = FieldSelector::parse(field_selector, &self.kind.fields);
        let fields = fields.map_err(|error| Status::bad_request(error.to_string()))?;
        let selection = Selection {
            fields,
            ..Selection::default()
        };
        let Some(snapshot) = self.reader.snapshot() else {
            return Ok(Vec::new());
        };
        let objects = snapshot.list(&selection, None);
        Ok(objects
            .map(|object| (object.key.clone(), object.resource_version))
            .collect())
    }
}

impl server::Collection for ServedKind {
    fn reader(&self) -> &Reader {
        &self.reader
    }

    fn encoder(&self) -> Arc<Encoder> {
        Arc::clone(&self.encoder)
    }
}
