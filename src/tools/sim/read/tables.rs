//! Answers as Tables, which kubectl prints.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use kubefan_core::api::{Object, Query, Resource, Status, WatchEvent, WireFormat};
use kubefan_core::codec;
use kubefan_core::codec::{
    Decoder, IncludeObject, ListMetadata, MetaVersion, Printer, RowObject, TableWriter,
};
use serde_json::Value;

use crate::sim::kinds::Kind;
use crate::sim::{metadata, print};

/// The form of Table that a request asks for.
pub(crate) struct Table {
    version: MetaVersion,
    include: IncludeObject,
}

/// Converts objects of one resource to rows of a Table.
pub(crate) struct RowConverter {
    resource: Arc<Resource>,
    printer: Printer,
    decoder: Decoder,
    writer: TableWriter,
    /// The annotation that is removed from the metadata in rows; `None` to remove nothing.
    hidden: Option<&'static str>,
}

impl Table {
    /// Determines the form of Table from `accept`, which must ask for a Table, and from `query`.
    ///
    /// # Errors
    ///
    /// 400 if `includeObject` has an unknown value.
    pub(crate) fn negotiate(accept: &str, query: &str) -> Result<Self, Status> {
        let is_v1 = |clause: &str| {
            let mut parameters = clause.split(';').map(str::trim);
            clause.contains("as=Table") && parameters.any(|parameter| parameter == "v=v1")
        };
        let version = if accept.split(',').any(is_v1) {
            MetaVersion::V1
        } else {
            MetaVersion::V1Beta1
        };
        let include = IncludeObject::parse(Query::parse(query).first("includeObject"));
        Ok(Self {
            version,
            include: include.map_err(Status::bad_request)?,
        })
    }

    /// Returns the converter from plain answers to this Table.
    pub(crate) fn row_converter(&self, kind: &Kind, printer: Printer) -> RowConverter {
        let hidden = kind.hidden_annotation();
        RowConverter {
            resource: Arc::clone(&kind.resource),
            decoder: Decoder::new(WireFormat::Json, Arc::default()),
            writer: TableWriter::new(self.version, self.include, printer.columns()),
            hidden: hidden.filter(|_| self.include == IncludeObject::Metadata),
            printer,
        }
    }
}

impl RowConverter {
    /// Converts the body of a LIST.
    pub(crate) fn list(&self, plain: &Bytes) -> Result<Bytes, codec::Error> {
        let page = self.decoder.list(plain)?;
        let rows = page.items.iter().map(|item| self.row(item));
        let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
        let list: Value = serde_json::from_slice(plain).unwrap_or_default();
        let metadata = ListMetadata {
            continue_token: page.continue_token.as_deref().unwrap_or_default(),
            remaining_item_count: list["metadata"]["remainingItemCount"].as_u64(),
            ..page.resource_version.into()
        };
        Ok(self.writer.list(metadata, &rows))
    }

    /// Converts the body of a GET.
    pub(crate) fn object(&self, plain: &Bytes) -> Result<Bytes, codec::Error> {
        let object = self.decoder.object(plain)?;
        let row = self.row(&object)?;
        Ok(self.writer.list(object.resource_version.into(), &[row]))
    }

    /// Converts one frame of a WATCH.
    pub(crate) fn event(&mut self, frame: Bytes) -> Result<Bytes, codec::Error> {
        match self.decoder.event(frame.clone())? {
            WatchEvent::Change {
                event_type, object, ..
            } => {
                let row = self.row(&object)?;
                Ok(self.writer.event(event_type, object.resource_version, &row))
            }
            WatchEvent::Bookmark(bookmark) => {
                let nothing = Value::Object(serde_json::Map::new());
                let cells = self.printer.cells(&nothing, SystemTime::now());
                self.writer.bookmark(&cells, &bookmark)
            }
            // The Status of an ERROR event is never converted to a row.
            WatchEvent::Error(_) => Ok(frame),
        }
    }

    fn row(&self, object: &Object) -> Result<String, codec::Error> {
        let api_version = self.resource.gvr.api_version();
        let mut row = RowObject {
            body: &object.body,
            kind: &self.resource.kind,
            api_version: &api_version,
            resource_version: None,
        };
        let mut parsed = row.parsed()?;
        let cells = self.printer.cells(&parsed, SystemTime::now());
        let shown;
        if let Some(hidden) = self.hidden {
            metadata::hide_annotation(&mut parsed["metadata"], hidden);
            shown = print::compact(&parsed);
            row.body = shown.as_bytes();
        }
        self.writer.row(&cells, row)
    }
}
