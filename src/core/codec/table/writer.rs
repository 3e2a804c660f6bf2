//! Encodes Tables as a kube-apiserver does, in lists and watch events.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;

use super::cells::go_number::{put_json, put_separated};
use super::cells::value::text;
use super::column::ColumnDefinition;
use super::include_object::IncludeObject;
use super::part::{Document, Part};
use crate::api::{Bookmark, EventType, ResourceVersion, escape_as_go};
use crate::codec::json::{quoted, raw_event};
use crate::codec::metadata::{in_declared_order, json_with_resource_version, metadata};
use crate::codec::type_meta::{json_front, partial_front};
use crate::codec::{Error, ListMetadata, MetaVersion};

const POD_SUCCEEDED: &str = ",\"conditions\":[{\"type\":\"Completed\",\"status\":\"True\",\
    \"reason\":\"Succeeded\",\"message\":\"The pod has completed successfully.\"}]";
const POD_FAILED: &str = ",\"conditions\":[{\"type\":\"Completed\",\"status\":\"True\",\
    \"reason\":\"Failed\",\"message\":\"The pod failed.\"}]";

/// The end of a watch frame after its row.
pub(super) const EVENT_BACK: &str = "]}}\n";

/// The object that a row is made from.
#[derive(Clone, Copy, Debug)]
pub struct RowObject<'a> {
    /// The object's canonical JSON body (see `api::Object`).
    pub body: &'a [u8],
    /// The object's kind, such as `Pod`.
    pub kind: &'a str,
    /// The object's group and version, such as `apps/v1`.
    pub api_version: &'a str,
    /// The version of a deletion, which replaces the object's version; `None` for other rows.
    pub resource_version: Option<ResourceVersion>,
}

/// Encodes the Tables of one response.
#[derive(Clone, Debug)]
pub struct TableWriter {
    version: MetaVersion,
    /// The object that a row contains besides its cells.
    pub(super) include: IncludeObject,
    /// The column definitions in JSON; `null` after the first watch frame, which contains them.
    columns: String,
}

impl TableWriter {
    /// Makes a writer of Tables with these columns.
    ///
    /// # Panics
    ///
    /// Never: a struct of strings and numbers always serializes.
    pub fn new(version: MetaVersion, include: IncludeObject, columns: &[ColumnDefinition]) -> Self {
        let json = serde_json::to_string(columns).expect("column definitions serialize to JSON");
        Self {
            version,
            include,
            columns: escape_as_go(&json),
        }
    }

    /// Encodes one row of a Table.
    ///
    /// # Errors
    ///
    /// If the object's body is not the canonical JSON of an object with metadata.
    pub fn row(&self, cells: &[Value], object: RowObject<'_>) -> Result<String, Error> {
        let printed = match self.include {
            IncludeObject::None => "null".to_owned(),
            IncludeObject::Metadata => self.partial(&object.metadata()?),
            IncludeObject::Object => object.whole()?,
        };
        Ok(row(cells, object.conditions(), &printed))
    }

    /// Encodes a Table that is the complete body of a LIST or GET.
    pub fn list(&self, metadata: ListMetadata<'_>, rows: &[String]) -> Bytes {
        let open = self.open(metadata, true);
        format!("{open}[{}]}}\n", rows.join(",")).into()
    }

    /// Encodes a complete watch frame with one row. Only a stream's first frame has the columns.
    pub fn event(
        &mut self,
        event_type: EventType,
        resource_version: ResourceVersion,
        row: &str,
    ) -> Bytes {
        self.frame(event_type.as_str(), resource_version, row)
    }

    /// Encodes a complete BOOKMARK frame. `cells` are the cells of an empty object.
    ///
    /// The bookmark that ends the initial events always has an object, even for
    /// [`IncludeObject::None`], because clients find the annotation there.
    ///
    /// # Errors
    ///
    /// If the bookmark's frame is not a watch event in JSON.
    pub fn bookmark(&mut self, cells: &[Value], bookmark: &Bookmark) -> Result<Bytes, Error> {
        let row = self.bookmark_row(cells, bookmark)?;
        Ok(self.frame("BOOKMARK", bookmark.resource_version, &row))
    }

    /// Returns the row of a bookmark, with the cells `cells`.
    pub(super) fn bookmark_row(
        &self,
        cells: &[Value],
        bookmark: &Bookmark,
    ) -> Result<String, Error> {
        let rv = bookmark.resource_version;
        let object = match (self.include, bookmark.initial_events_end) {
            (IncludeObject::None, false) => "null".to_owned(),
            (IncludeObject::Object, _) => text_of(raw_event(&bookmark.frame)?.object)?.to_owned(),
            _ => {
                let mark = if bookmark.initial_events_end {
                    ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}"
                } else {
                    ""
                };
                self.partial(&format!("{{\"resourceVersion\":\"{rv}\"{mark}}}"))
            }
        };
        Ok(row(cells, "", &object))
    }

    fn frame(&mut self, event_type: &str, rv: ResourceVersion, row: &str) -> Bytes {
        let front = self.event_front(event_type, rv, true);
        self.columns = "null".to_owned();
        (front + row + EVENT_BACK).into()
    }

    /// Returns a watch frame up to its row, with or without the columns.
    /// [`EVENT_BACK`] follows the row.
    pub(super) fn event_front(
        &self,
        event_type: &str,
        rv: ResourceVersion,
        has_columns: bool,
    ) -> String {
        let open = self.open(rv.into(), has_columns);
        format!("{{\"type\":\"{event_type}\",\"object\":{open}[")
    }

    /// Returns the start of a Table, up to the value of `rows`.
    pub(super) fn open(&self, metadata: ListMetadata<'_>, has_columns: bool) -> String {
        let columns = if has_columns { &self.columns } else { "null" };
        let version = self.version.as_str();
        let mut list = format!("\"resourceVersion\":\"{}\"", metadata.resource_version);
        if !metadata.continue_token.is_empty() {
            list = list + ",\"continue\":" + &quoted(metadata.continue_token);
        }
        if let Some(count) = metadata.remaining_item_count {
            list = list + ",\"remainingItemCount\":" + &count.to_string();
        }
        format!(
            "{{\"kind\":\"Table\",\"apiVersion\":\"{version}\",\"metadata\":{{{list}}},\
             \"columnDefinitions\":{columns},\"rows\":"
        )
    }

    fn partial(&self, metadata: &str) -> String {
        String::from_utf8_lossy(self.partial_front()).into_owned() + metadata + "}"
    }

    /// Returns the text of a PartialObjectMetadata before the value of its metadata. After the
    /// value, only a brace follows.
    pub(super) fn partial_front(&self) -> &'static [u8] {
        partial_front(self.version).as_bytes()
    }
}

impl<'a> RowObject<'a> {
    /// Parses the object into a tree for a `Printer`.
    ///
    /// # Errors
    ///
    /// If the body is not the canonical JSON of an object.
    pub fn parsed(&self) -> Result<Value, Error> {
        let parsed = if self.is_whole() {
            serde_json::from_slice(self.body)
        } else {
            serde_json::from_slice(&[b"{", self.body].concat())
        };
        parsed.map_err(|error| Error::Json {
            expected: "an object",
            offset: error.column(),
        })
    }

    /// Returns the `conditions` member of a row, with a comma before it. Only rows of pods that
    /// succeeded or failed have it; otherwise the text is empty.
    fn conditions(&self) -> &'static str {
        let document = Document::new(self.body);
        conditions(self.api_version, self.kind, document.root())
    }

    /// Returns true if the body is a complete JSON object; the body of a built-in
    /// kind lacks its start.
    fn is_whole(&self) -> bool {
        self.body.first() == Some(&b'{')
    }

    fn current_body(&self) -> Result<Cow<'a, [u8]>, Error> {
        Ok(match self.resource_version {
            Some(rv) => json_with_resource_version(self.body, rv)?.into(),
            None => self.body.into(),
        })
    }

    fn whole(&self) -> Result<String, Error> {
        let body = self.current_body()?;
        let front = if self.is_whole() {
            String::new()
        } else {
            json_front(self.kind, self.api_version)
        };
        Ok(front + text_of(&body)?)
    }

    fn metadata(&self) -> Result<String, Error> {
        let body = self.current_body()?;
        let metadata = &body[metadata(&body)?];
        // The keys of a custom resource are sorted; a PartialObjectMetadata's keys are not.
        let metadata = if self.is_whole() {
            in_declared_order(metadata)?
        } else {
            metadata.to_vec()
        };
        String::from_utf8(metadata).map_err(|_| Error::Utf8)
    }
}

/// Returns the member `conditions` of an object's row, with a comma before it. Only rows of pods
/// that succeeded or failed have it; otherwise the text is empty.
pub(super) fn conditions(api_version: &str, kind: &str, object: Part<'_>) -> &'static str {
    if (api_version, kind) != ("v1", "Pod") {
        return "";
    }
    match &*text(object.at("status").at("phase")) {
        "Succeeded" => POD_SUCCEEDED,
        "Failed" => POD_FAILED,
        _ => "",
    }
}

fn row(cells: &[Value], conditions: &str, object: &str) -> String {
    let mut row = "{\"cells\":[".to_owned();
    put_separated(&mut row, cells, put_json);
    row + "]" + conditions + ",\"object\":" + object + "}"
}

fn text_of(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::Utf8)
}
