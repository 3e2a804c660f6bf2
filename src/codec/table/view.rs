//! The Tables of one answer: prints the rows of cached objects, and encodes lists and events.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::Map;
use serde_json::Value;

use super::kept_rows::KeptRows;
use super::printed_row::PrintedRow;
use super::printer::Printer;
use super::tree::tree;
use super::writer::IncludeObject;
use super::writer::ListMetadata;
use super::writer::TableWriter;
use super::writer::conditions;
use crate::api::Bookmark;
use crate::api::EventType;
use crate::api::Object;
use crate::api::ResourceVersion;
use crate::api::WireFormat;
use crate::codec::Error;
use crate::codec::MetaVersion;
use crate::codec::metadata::hidden_annotation;
use crate::codec::metadata::json_with_resource_version;
use crate::codec::metadata::partial_body;
use crate::codec::type_meta::json_front;

/// How one answer shows the objects of a cache as Tables.
///
/// The rows of a cache are printed once per version of an object, and kept in [`KeptRows`].
#[derive(Debug)]
pub struct TableView {
    printer: Printer,
    writer: TableWriter,
    kept: Arc<KeptRows>,
    /// The time at which ages end; `None` for the time at which a row is encoded.
    now: Option<SystemTime>,
    has_sent_columns: AtomicBool,
    failure: OnceLock<Error>,
}

/// The kind of the objects in a Table.
#[derive(Clone, Copy)]
pub(crate) struct RowKind<'a> {
    pub(crate) kind: &'a str,
    pub(crate) api_version: &'a str,
}

impl TableView {
    /// A view of the cache whose rows are `kept`; they must have been printed by `printer`. Ages end
    /// at `now`, or at the time at which each row is encoded.
    ///
    /// A view without `now` is for a watch: two encodings of one row may differ.
    pub fn new(
        printer: Printer,
        (version, include): (MetaVersion, IncludeObject),
        kept: Arc<KeptRows>,
        now: Option<SystemTime>,
    ) -> Self {
        Self {
            writer: TableWriter::new(version, include, printer.columns()),
            printer,
            kept,
            now,
            has_sent_columns: AtomicBool::new(false),
            failure: OnceLock::new(),
        }
    }

    /// Why an object could not be printed, so that what was encoded must not be sent.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// True if the row of `object` was printed before.
    pub(crate) fn has_row(&self, object: &Object) -> bool {
        self.kept.has(object)
    }

    /// The row of `object`, with the version `at` of its deletion if there is one. If the object
    /// can't be printed, the row is `{}`, and the view has failed.
    pub(crate) fn row(
        &self,
        object: &Object,
        kind: RowKind<'_>,
        at: Option<ResourceVersion>,
    ) -> Bytes {
        self.try_row(object, kind, at).unwrap_or_else(|error| {
            self.failed(error);
            Bytes::from_static(b"{}")
        })
    }

    fn try_row(
        &self,
        object: &Object,
        kind: RowKind<'_>,
        at: Option<ResourceVersion>,
    ) -> Result<Bytes, Error> {
        let row = match at {
            None => self.kept_row(object, kind)?,
            // The deleted object's version may be in its cells too.
            Some(rv) => {
                let body = json_with_resource_version(&object.body, rv)?;
                Arc::new(self.print(&body, kind)?)
            }
        };
        let object = match self.writer.include() {
            IncludeObject::None => Bytes::from_static(b"null"),
            IncludeObject::Metadata => metadata_of(object, kind, at)?,
            IncludeObject::Object => whole(object, kind, at)?,
        };
        let mut text = String::with_capacity(object.len() + 512);
        text.push_str("{\"cells\":[");
        row.put_cells(&mut text, self.now.unwrap_or_else(SystemTime::now));
        text.push(']');
        text.push_str(row.conditions);
        text.push_str(",\"object\":");
        let object = std::str::from_utf8(&object).map_err(|_| Error::Utf8)?;
        match self.writer.include() {
            IncludeObject::Metadata => text.push_str(&self.writer.partial(object)),
            IncludeObject::None | IncludeObject::Object => text.push_str(object),
        }
        text.push('}');
        Ok(text.into())
    }

    fn kept_row(&self, object: &Object, kind: RowKind<'_>) -> Result<Arc<PrintedRow>, Error> {
        if let Some(kept) = self.kept.get(object) {
            return Ok(kept);
        }
        let row = Arc::new(self.print(&object.body, kind)?);
        self.kept.keep(object, &row);
        Ok(row)
    }

    fn print(&self, body: &[u8], kind: RowKind<'_>) -> Result<PrintedRow, Error> {
        let tree = tree(body).map_err(|error| Error::Json {
            expected: "an object",
            offset: error.column(),
        })?;
        let conditions = conditions(kind.api_version, kind.kind, &tree);
        Ok(PrintedRow::new(self.printer.unprinted(&tree), conditions))
    }

    /// The text before and after the rows of a list.
    pub(crate) fn list_ends(&self, metadata: ListMetadata<'_>, is_empty: bool) -> (Bytes, Bytes) {
        let open = self.writer.open(metadata, true);
        if is_empty && self.printer.has_null_rows() {
            return ((open + "null").into(), Bytes::from_static(b"}\n"));
        }
        ((open + "[").into(), Bytes::from_static(b"]}\n"))
    }

    /// A complete watch frame with one row. Only a stream's first frame has the columns.
    pub(crate) fn event(
        &self,
        event_type: EventType,
        resource_version: ResourceVersion,
        row: &[u8],
    ) -> Bytes {
        self.frame(event_type.as_str(), resource_version, row)
    }

    /// A complete BOOKMARK frame with the content of `bookmark`, which is the frame of a plain watch.
    pub(crate) fn bookmark(&self, bookmark: &Bookmark) -> Bytes {
        let nothing = Value::Object(Map::new());
        let now = self.now.unwrap_or_else(SystemTime::now);
        let cells = self.printer.cells(&nothing, now);
        let row = self.writer.bookmark_row(&cells, bookmark);
        let row = row.unwrap_or_else(|error| {
            self.failed(error);
            "{}".to_owned()
        });
        self.frame("BOOKMARK", bookmark.resource_version, row.as_bytes())
    }

    fn failed(&self, error: Error) {
        // Only the first failure is needed.
        self.failure.set(error).ok();
    }

    fn frame(&self, event_type: &str, rv: ResourceVersion, row: &[u8]) -> Bytes {
        let has_columns = !self.has_sent_columns.swap(true, Ordering::Relaxed);
        let row = String::from_utf8_lossy(row);
        self.writer.event_frame(event_type, rv, &row, has_columns)
    }
}

impl PartialEq for TableView {
    /// A view is equal only to itself: it belongs to one answer.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for TableView {}

/// The metadata of `object` in the order of a PartialObjectMetadata.
fn metadata_of(
    object: &Object,
    kind: RowKind<'_>,
    at: Option<ResourceVersion>,
) -> Result<Bytes, Error> {
    let hidden = hidden_annotation(kind.api_version, kind.kind);
    partial_body(WireFormat::Json, WireFormat::Json, hidden, &object.body, at)
}

fn whole(object: &Object, kind: RowKind<'_>, at: Option<ResourceVersion>) -> Result<Bytes, Error> {
    let body = match at {
        None => object.body.clone(),
        Some(rv) => json_with_resource_version(&object.body, rv)?.into(),
    };
    Ok(match body.first() {
        Some(b'{') => body,
        _ => {
            let front = json_front(kind.kind, kind.api_version);
            [front.as_bytes(), &body].concat().into()
        }
    })
}
