//! Encodes objects, frames and Statuses for clients, byte for byte as a kube-apiserver does.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::bookmark::BookmarkTemplate;
use super::work::Work;
use crate::api::{Bookmark, EventType, Object, ResourceVersion, Status, WireFormat};
use crate::codec::metadata::{
    bare_body, hidden_annotation, json_with_resource_version, partial_body,
};
use crate::codec::protobuf::put_bytes;
use crate::codec::table::{Row, RowKind, TableView};
use crate::codec::type_meta::{TypeMeta, json_front, partial_front};
use crate::codec::{MetaVersion, json, protobuf, status};

/// Encodes the objects of one resource in one wire format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoder {
    pub(super) format: WireFormat,
    pub(super) kind: Cow<'static, str>,
    pub(super) api_version: Cow<'static, str>,
    pub(super) list_kind: Cow<'static, str>,
    /// True for JSON with sorted keys: bodies contain `kind` and `apiVersion`.
    pub(super) is_embedded: bool,
    /// The text `{"kind":…,"apiVersion":…,`, which precedes the body of a built-in object. For
    /// metadata it ends with `"metadata":`.
    json_front: Bytes,
    bookmark: Option<Arc<BookmarkTemplate>>,
    /// Set if the encoder produces PartialObjectMetadata; `None` for complete objects.
    pub(super) partial: Option<Partial>,
    /// Set if the encoder produces Tables; `None` for complete objects and metadata.
    pub(super) table: Option<Arc<TableView>>,
}

/// How an encoder makes PartialObjectMetadata from cached objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partial {
    /// The wire format of the cached objects.
    from: WireFormat,
    /// The annotation that is left out, because the API server adds it only to complete objects.
    hidden: Option<&'static str>,
    pub(super) version: MetaVersion,
}

impl Encoder {
    /// Makes an encoder for a built-in kind. The kind of its lists is `kind` plus `List`.
    pub fn new(
        format: WireFormat,
        kind: impl Into<String>,
        api_version: impl Into<String>,
    ) -> Self {
        let kind = kind.into();
        let api_version = api_version.into();
        Self {
            format,
            list_kind: format!("{kind}List").into(),
            is_embedded: false,
            json_front: json_front(&kind, &api_version).into(),
            kind: kind.into(),
            api_version: api_version.into(),
            bookmark: None,
            partial: None,
            table: None,
        }
    }

    /// Makes an encoder for the kind that the upstream's answers have.
    pub fn from_type_meta(format: WireFormat, type_meta: &TypeMeta) -> Self {
        let (kind, api_version) = (&type_meta.kind, &type_meta.api_version);
        Self::new(format, kind, api_version)
            .with_embedded_type_meta(type_meta.is_embedded)
            .with_list_kind(&type_meta.list_kind)
    }

    /// Sets whether JSON bodies have sorted keys, including `kind`, as custom resources do.
    pub fn with_embedded_type_meta(mut self, is_embedded: bool) -> Self {
        self.is_embedded = is_embedded;
        self
    }

    /// Sets the kind of lists, such as `PodList`.
    pub fn with_list_kind(mut self, list_kind: impl Into<String>) -> Self {
        self.list_kind = list_kind.into().into();
        self
    }

    /// Sets the template for bookmarks; without one, bookmarks are minimal.
    pub fn with_bookmark_template(mut self, template: BookmarkTemplate) -> Self {
        self.bookmark = Some(Arc::new(template));
        self
    }

    /// Makes an encoder that encodes this encoder's objects as PartialObjectMetadata in `format`.
    ///
    /// Objects in JSON can be encoded in both formats, objects in protobuf only in protobuf.
    pub fn partial(&self, format: WireFormat, version: MetaVersion) -> Self {
        Self {
            format,
            kind: "PartialObjectMetadata".into(),
            api_version: version.as_str().into(),
            list_kind: "PartialObjectMetadataList".into(),
            is_embedded: false,
            json_front: Bytes::from_static(partial_front(version).as_bytes()),
            bookmark: self.bookmark.clone(),
            partial: Some(Partial {
                from: self.format,
                hidden: hidden_annotation(&self.api_version, &self.kind),
                version,
            }),
            table: None,
        }
    }

    /// Makes an encoder that encodes this encoder's objects as Tables in JSON,
    /// with the rows of `view`.
    ///
    /// If [`TableView::failure`] returns an error afterwards, the encoded bytes must not be sent.
    ///
    /// # Panics
    ///
    /// If the objects are in protobuf, or if this is an encoder of metadata.
    #[must_use]
    pub fn table(&self, view: Arc<TableView>) -> Self {
        assert!(
            self.format == WireFormat::Json && self.partial.is_none(),
            "Tables are made from whole objects in JSON"
        );
        Self {
            table: Some(view),
            ..self.clone()
        }
    }

    /// Returns the view, if the encoder produces Tables.
    pub fn table_view(&self) -> Option<&TableView> {
        self.table.as_deref()
    }

    /// Returns the wire format of the output.
    pub fn format(&self) -> WireFormat {
        self.format
    }

    /// Encodes a complete watch frame with `object`.
    pub fn event(&self, event_type: EventType, object: &Object) -> Bytes {
        if let Some(table) = &self.table {
            let row = table.row(object, self.row_kind());
            return table.event(event_type, object.resource_version, row.as_ref());
        }
        self.frame(event_type, &self.body_of(object))
    }

    /// Encodes a complete DELETED frame with `object` at `rv`, the version of its deletion.
    ///
    /// If the version in the object's body cannot be replaced, because the body is malformed, a
    /// complete object is sent with its old version, and metadata is rebuilt from the values that
    /// the cache has.
    pub fn deleted_at(&self, object: &Object, rv: ResourceVersion) -> Bytes {
        if let Some(table) = &self.table {
            let row = table.deleted_row(object, self.row_kind(), rv);
            return table.event(EventType::Deleted, rv, row.as_ref());
        }
        let body = &object.body;
        let patched = match (self.partial, self.format) {
            (Some(partial), format) => {
                partial_body(partial.from, format, partial.hidden, body, Some(rv))
            }
            (None, WireFormat::Json) => json_with_resource_version(body, rv).map(Bytes::from),
            (None, WireFormat::Protobuf) => {
                protobuf::with_resource_version(body, rv).map(Bytes::from)
            }
        };
        let body = patched.unwrap_or_else(|_| match self.partial {
            Some(_) => bare_body(self.format, object, rv),
            None => body.clone(),
        });
        self.frame(EventType::Deleted, &body)
    }

    /// Returns the length of the row of `object` in a Table, and the work that was done to print
    /// the row, or `None` if this encoder does not produce Tables.
    pub(super) fn row_length(&self, object: &Object) -> Option<(usize, Work)> {
        let row = self.row(object)?;
        // The length of a row that can't be printed doesn't matter: the list is not sent.
        let length = row.as_ref().map_or(0, Row::length);
        Some((length, row.map_or(Work::Printed, |row| row.work())))
    }

    /// Returns the bytes of [`body_of`](Self::body_of), and the work that was done to make them.
    #[doc(hidden)]
    pub fn made_body(&self, object: &Object) -> (Bytes, Work) {
        match self.row(object) {
            Some(row) => row.map_or((Bytes::new(), Work::Printed), |row| {
                (row.encoded(), row.work())
            }),
            None => (self.body_of(object).into_owned(), self.work()),
        }
    }

    /// Returns the work to make the bytes of one object, if the encoder does not produce Tables.
    pub(crate) fn work(&self) -> Work {
        match self.partial {
            Some(_) => Work::Converted,
            None => Work::None,
        }
    }

    /// Returns the bytes of the object between the constant parts of an answer: its
    /// body, metadata or row.
    #[doc(hidden)]
    pub fn body_of<'a>(&self, object: &'a Object) -> Cow<'a, Bytes> {
        if let Some(row) = self.row(object) {
            return Cow::Owned(row.map(|row| row.encoded()).unwrap_or_default());
        }
        match self.partial {
            None => Cow::Borrowed(&object.body),
            Some(partial) => {
                let body = &object.body;
                let partial = partial_body(partial.from, self.format, partial.hidden, body, None);
                Cow::Owned(
                    partial.unwrap_or_else(|_| {
                        bare_body(self.format, object, object.resource_version)
                    }),
                )
            }
        }
    }

    fn frame(&self, event_type: EventType, body: &[u8]) -> Bytes {
        let event_type = event_type.as_str();
        match self.format {
            WireFormat::Json => {
                let start = format!("{{\"type\":\"{event_type}\",\"object\":");
                let (front, back) = (self.front_of(body), self.json_back());
                [start.as_bytes(), &front, body, back.as_bytes(), b"}\n"]
                    .concat()
                    .into()
            }
            WireFormat::Protobuf => {
                let start = self.envelope_start(body.len());
                let object = [start.as_slice(), body, protobuf::ENVELOPE_END];
                protobuf::frame(event_type, &object).into()
            }
        }
    }

    /// Copies a frame and replaces its event type; `None` if `frame` is not a watch event.
    pub fn retarget(&self, frame: &Bytes, event_type: EventType) -> Option<Bytes> {
        match self.format {
            WireFormat::Json => {
                let object = json::raw_event(frame).ok()?.object;
                let start = format!("{{\"type\":\"{}\",\"object\":", event_type.as_str());
                Some([start.as_bytes(), object, b"}\n"].concat().into())
            }
            WireFormat::Protobuf => {
                let mut message = Vec::with_capacity(frame.len() + 4);
                message.extend_from_slice(&[0; 4]);
                put_bytes(&mut message, 1, event_type.as_str().as_bytes());
                for field in protobuf::Fields::new(protobuf::unframed(frame).ok()?) {
                    let field = field.ok()?;
                    if field.number != 1 {
                        message.extend_from_slice(field.whole);
                    }
                }
                let length = u32::try_from(message.len() - 4).ok()?;
                message[..4].copy_from_slice(&length.to_be_bytes());
                Some(message.into())
            }
        }
    }

    /// Encodes a complete BOOKMARK frame, from the upstream's template if one is set.
    pub fn bookmark(&self, rv: ResourceVersion, initial_events_end: bool) -> Bytes {
        let frame = self.plain_bookmark(rv, initial_events_end);
        match &self.table {
            None => frame,
            Some(table) => table.bookmark(&Bookmark {
                resource_version: rv,
                initial_events_end,
                frame,
            }),
        }
    }

    fn plain_bookmark(&self, rv: ResourceVersion, initial_events_end: bool) -> Bytes {
        let (kind, api_version) = (&self.kind, &self.api_version);
        let template = match (self.bookmark.as_deref(), self.partial) {
            (Some(template), None) => Some(Cow::Borrowed(template)),
            (Some(template), Some(_)) => {
                let partial = template.partial(self.format, kind, api_version);
                partial.map(Cow::Owned)
            }
            (None, _) => None,
        };
        let template = template.unwrap_or_else(|| {
            let minimal =
                BookmarkTemplate::minimal(self.format, kind, api_version, self.is_embedded);
            Cow::Owned(minimal)
        });
        template.frame(rv, initial_events_end)
    }

    /// Encodes a complete ERROR frame with `status`.
    pub fn error(&self, status: &Status) -> Bytes {
        match self.format {
            WireFormat::Json => {
                let status = status::encode_json(status);
                format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into()
            }
            WireFormat::Protobuf => {
                protobuf::frame("ERROR", &[&status::encode_enveloped(status)]).into()
            }
        }
    }

    /// Encodes the body of an error answer in `format`.
    pub fn status_body(format: WireFormat, status: &Status) -> Bytes {
        match format {
            WireFormat::Json => (status::encode_json(status) + "\n").into(),
            WireFormat::Protobuf => status::encode_enveloped(status).into(),
        }
    }

    /// Encodes the body of a GET, in parts; the object's body is not copied.
    pub fn object_body(&self, object: &Object) -> Vec<Bytes> {
        let body = self.body_of(object);
        if let Some(table) = &self.table {
            let (start, end) = table.list_ends(object.resource_version.into(), false);
            return vec![start, body.into_owned(), end];
        }
        let (start, end) = match self.format {
            WireFormat::Json => {
                let end = match self.partial {
                    None => b"\n".as_slice(),
                    Some(_) => b"}\n",
                };
                (self.front_of(&body), end)
            }
            WireFormat::Protobuf => (
                self.envelope_start(body.len()).into(),
                protobuf::ENVELOPE_END,
            ),
        };
        let mut parts = vec![start, body.into_owned(), Bytes::from_static(end)];
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// Returns the text before the body of a JSON object. The text is empty if the body is a
    /// complete object.
    pub(super) fn front_of(&self, body: &[u8]) -> Bytes {
        match body.first() {
            Some(b'{') if self.partial.is_none() => Bytes::new(),
            _ => self.json_front.clone(),
        }
    }

    /// Returns the text after the body of a JSON object: a brace for metadata, otherwise empty.
    pub(super) fn json_back(&self) -> &'static str {
        match self.partial {
            None => "",
            Some(_) => "}",
        }
    }

    /// Returns the row of `object` in a Table. Returns `Some(None)` if the object can't be printed,
    /// and `None` if this encoder does not produce Tables.
    fn row<'a>(&'a self, object: &'a Object) -> Option<Option<Row<'a>>> {
        let table = self.table.as_ref()?;
        Some(table.row(object, self.row_kind()))
    }

    fn row_kind(&self) -> RowKind<'_> {
        RowKind {
            kind: &self.kind,
            api_version: &self.api_version,
            front: &self.json_front,
        }
    }

    fn envelope_start(&self, raw_length: usize) -> Vec<u8> {
        protobuf::envelope_start(&self.api_version, &self.kind, raw_length)
    }
}
