//! Encoder: what clients receive, byte for byte as a kube-apiserver prints it.

use std::sync::Arc;

use bytes::Bytes;

use super::Error;
use super::bookmark::BookmarkTemplate;
use super::json;
use super::list_parts::ListParts;
use super::list_parts::Separators;
use super::protobuf;
use super::protobuf_writer;
use super::protobuf_writer::put_bytes;
use super::protobuf_writer::put_number;
use super::protobuf_writer::put_prefix;
use super::protobuf_writer::varint_length;
use super::scanner::Members;
use super::scanner::Scanner;
use super::status;
use super::type_meta::TypeMeta;
use super::type_meta::json_front;
use crate::api::EventType;
use crate::api::Object;
use crate::api::ResourceVersion;
use crate::api::Status;
use crate::api::WireFormat;

/// Prints the objects of one resource in one format.
#[derive(Clone, Debug)]
pub struct Encoder {
    format: WireFormat,
    kind: String,
    api_version: String,
    list_kind: String,
    is_embedded: bool,
    /// `{"kind":…,"apiVersion":…,`
    json_front: Bytes,
    bookmark: Option<BookmarkTemplate>,
}

impl Encoder {
    /// Makes an encoder for a built-in kind; its lists' kind is `kind` plus `List`.
    pub fn new(
        format: WireFormat,
        kind: impl Into<String>,
        api_version: impl Into<String>,
    ) -> Self {
        let kind = kind.into();
        let api_version = api_version.into();
        Self {
            format,
            list_kind: format!("{kind}List"),
            is_embedded: false,
            json_front: json_front(&kind, &api_version).into(),
            kind,
            api_version,
            bookmark: None,
        }
    }

    /// Makes an encoder for what was learnt from upstream.
    pub fn from_type_meta(format: WireFormat, type_meta: &TypeMeta) -> Self {
        let (kind, api_version) = (&type_meta.kind, &type_meta.api_version);
        Self::new(format, kind, api_version)
            .with_embedded_type_meta(type_meta.is_embedded)
            .with_list_kind(&type_meta.list_kind)
    }

    /// The same, for JSON whose keys are sorted, as custom resources' are, when `is_embedded`.
    pub fn with_embedded_type_meta(mut self, is_embedded: bool) -> Self {
        self.is_embedded = is_embedded;
        self
    }

    /// The same, with the kind that lists carry.
    pub fn with_list_kind(mut self, list_kind: impl Into<String>) -> Self {
        self.list_kind = list_kind.into();
        self
    }

    /// The same, with the shape that bookmarks have.
    pub fn with_bookmark_template(mut self, template: BookmarkTemplate) -> Self {
        self.bookmark = Some(template);
        self
    }

    /// The format printed.
    pub fn format(&self) -> WireFormat {
        self.format
    }

    /// A whole watch frame that carries `object`.
    pub fn event(&self, event_type: EventType, object: &Object) -> Bytes {
        self.frame(event_type, &object.body)
    }

    /// A whole DELETED frame that carries `object` at the resource version of its deletion.
    ///
    /// # Panics
    ///
    /// When the object's body did not come from a `Decoder` of the same format.
    pub fn deleted_at(&self, object: &Object, rv: ResourceVersion) -> Bytes {
        let patched = match self.format {
            WireFormat::Json => json_with_resource_version(&object.body, rv),
            WireFormat::Protobuf => protobuf_writer::with_resource_version(&object.body, rv),
        };
        let body = patched.expect("a decoded object has metadata with a resource version");
        self.frame(EventType::Deleted, &body)
    }

    fn frame(&self, event_type: EventType, body: &[u8]) -> Bytes {
        let event_type = event_type.as_str();
        match self.format {
            WireFormat::Json => {
                let start = format!("{{\"type\":\"{event_type}\",\"object\":");
                let front = self.front_of(body);
                [start.as_bytes(), &front, body, b"}\n"].concat().into()
            }
            WireFormat::Protobuf => {
                let start = self.envelope_start(body.len());
                let object = [start.as_slice(), body, protobuf_writer::ENVELOPE_END];
                protobuf_writer::frame(event_type, &object).into()
            }
        }
    }

    /// The same frame with another event type; `None` when `frame` is no watch event.
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

    /// A whole BOOKMARK frame, in upstream's shape when a template was given.
    pub fn bookmark(&self, rv: ResourceVersion, initial_events_end: bool) -> Bytes {
        match &self.bookmark {
            Some(template) => template.frame(rv, initial_events_end),
            None => {
                let (kind, api_version) = (&self.kind, &self.api_version);
                BookmarkTemplate::minimal(self.format, kind, api_version, self.is_embedded)
                    .frame(rv, initial_events_end)
            }
        }
    }

    /// A whole ERROR frame.
    pub fn error(&self, status: &Status) -> Bytes {
        match self.format {
            WireFormat::Json => {
                let status = status::encode_json(status);
                format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into()
            }
            WireFormat::Protobuf => {
                protobuf_writer::frame("ERROR", &[&status::encode_enveloped(status)]).into()
            }
        }
    }

    /// The body of an error answer in `format`.
    pub fn status_body(format: WireFormat, status: &Status) -> Bytes {
        match format {
            WireFormat::Json => (status::encode_json(status) + "\n").into(),
            WireFormat::Protobuf => status::encode_enveloped(status).into(),
        }
    }

    /// The body of a GET, in parts.
    pub fn object_body(&self, object: &Object) -> Vec<Bytes> {
        let body = &object.body;
        let (start, end) = match self.format {
            WireFormat::Json => (self.front_of(body), Bytes::from_static(b"\n")),
            WireFormat::Protobuf => (
                self.envelope_start(body.len()).into(),
                Bytes::from_static(protobuf_writer::ENVELOPE_END),
            ),
        };
        let mut parts = vec![start, body.clone(), end];
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// The body of a LIST, in parts; `remaining` is `remainingItemCount`.
    pub fn list_parts<I>(
        &self,
        rv: ResourceVersion,
        continue_token: Option<&str>,
        remaining: Option<u64>,
        items: I,
    ) -> ListParts<std::vec::IntoIter<Arc<Object>>>
    where
        I: IntoIterator<Item = Arc<Object>>,
    {
        let items: Vec<_> = items.into_iter().collect();
        let token = continue_token.unwrap_or_default();
        let (head, separators, tail) = match self.format {
            WireFormat::Json => {
                let (head, tail) = self.json_list_ends(rv, token, remaining);
                (head, self.json_separators(), tail)
            }
            WireFormat::Protobuf => {
                let bodies = items.iter().map(|item| item.body.len());
                let separators = protobuf_separators(bodies.clone());
                let items_length = bodies.map(protobuf_item_length).sum();
                let head = self.protobuf_list_start(rv, token, remaining, items_length);
                (
                    head.into(),
                    separators,
                    Bytes::from_static(protobuf_writer::ENVELOPE_END),
                )
            }
        };
        ListParts {
            head: Some(head),
            items: items.into_iter(),
            separators,
            body: None,
            tail: Some(tail),
        }
    }

    /// Length in bytes of the body that [`Encoder::list_parts`] gives for the same list.
    pub fn list_len<'a>(
        &self,
        rv: ResourceVersion,
        continue_token: Option<&str>,
        remaining: Option<u64>,
        items: impl IntoIterator<Item = &'a Object>,
    ) -> usize {
        let token = continue_token.unwrap_or_default();
        let bodies = items.into_iter().map(|item| &item.body);
        match self.format {
            WireFormat::Json => {
                let (head, tail) = self.json_list_ends(rv, token, remaining);
                let item = |body: &Bytes| 1 + self.item_front(body).len() + body.len();
                let items = bodies.map(item).sum::<usize>();
                head.len() + items.saturating_sub(1) + tail.len()
            }
            WireFormat::Protobuf => {
                let items = bodies.map(|body| protobuf_item_length(body.len())).sum();
                let start = self.protobuf_list_start(rv, token, remaining, items);
                start.len() + items + protobuf_writer::ENVELOPE_END.len()
            }
        }
    }

    /// What is missing at the start of a JSON object's body.
    fn front_of(&self, body: &[u8]) -> Bytes {
        match body.first() {
            Some(b'{') => Bytes::new(),
            _ => self.json_front.clone(),
        }
    }

    /// What is missing at the start of a list item's body.
    fn item_front(&self, body: &[u8]) -> Bytes {
        match (body.first(), self.is_embedded) {
            (Some(b'{'), _) => Bytes::new(),
            (_, true) => self.json_front.clone(),
            (_, false) => Bytes::from_static(b"{"),
        }
    }

    fn json_separators(&self) -> Separators {
        Separators::Json {
            open: [b",", self.item_front(b"").as_ref()].concat().into(),
            is_first: true,
        }
    }

    /// What stands before and behind a JSON list's items.
    fn json_list_ends(
        &self,
        rv: ResourceVersion,
        token: &str,
        remaining: Option<u64>,
    ) -> (Bytes, Bytes) {
        let kind = json::quoted(&self.list_kind);
        let api_version = json::quoted(&self.api_version);
        let token = json::quoted(token);
        let count = remaining.map(|count| format!("\"remainingItemCount\":{count}"));
        if self.is_embedded {
            let count = count.map(|count| count + ",").unwrap_or_default();
            let metadata = format!("{{\"continue\":{token},{count}\"resourceVersion\":\"{rv}\"}}");
            return (
                format!("{{\"apiVersion\":{api_version},\"items\":[").into(),
                format!("],\"kind\":{kind},\"metadata\":{metadata}}}\n").into(),
            );
        }
        let mut metadata = format!("{{\"resourceVersion\":\"{rv}\"");
        if token != "\"\"" {
            metadata = metadata + ",\"continue\":" + &token;
        }
        if let Some(count) = count {
            metadata = metadata + "," + &count;
        }
        let head = format!(
            "{{\"kind\":{kind},\"apiVersion\":{api_version},\"metadata\":{metadata}}},\"items\":["
        );
        (head.into(), Bytes::from_static(b"]}\n"))
    }

    /// What stands before a protobuf list's items, which are `items_length` bytes.
    fn protobuf_list_start(
        &self,
        rv: ResourceVersion,
        token: &str,
        remaining: Option<u64>,
        items_length: usize,
    ) -> Vec<u8> {
        let mut metadata = Vec::new();
        put_bytes(&mut metadata, 1, b"");
        put_bytes(&mut metadata, 2, rv.to_string().as_bytes());
        put_bytes(&mut metadata, 3, token.as_bytes());
        if let Some(count) = remaining {
            put_number(&mut metadata, 4, count);
        }
        let mut list = Vec::new();
        put_bytes(&mut list, 1, &metadata);
        let raw_length = list.len() + items_length;
        let mut start =
            protobuf_writer::envelope_start(&self.api_version, &self.list_kind, raw_length);
        start.extend_from_slice(&list);
        start
    }

    fn envelope_start(&self, raw_length: usize) -> Vec<u8> {
        protobuf_writer::envelope_start(&self.api_version, &self.kind, raw_length)
    }
}

/// Length of a list item with tag and length.
fn protobuf_item_length(body: usize) -> usize {
    1 + varint_length(body as u64) + body
}

fn protobuf_separators(bodies: impl Iterator<Item = usize>) -> Separators {
    let mut prefixes = Vec::new();
    let mut lengths = Vec::new();
    for body in bodies {
        let start = prefixes.len();
        put_prefix(&mut prefixes, 2, body);
        // A tag of one byte and at most ten of length.
        lengths.push((prefixes.len() - start) as u8);
    }
    Separators::Protobuf {
        prefixes: prefixes.into(),
        lengths: lengths.into_iter(),
    }
}

/// The canonical body with another resource version.
pub(super) fn json_with_resource_version(
    body: &[u8],
    rv: ResourceVersion,
) -> Result<Vec<u8>, Error> {
    let mut scanner = Scanner::new(body);
    let mut members = match body.first() {
        Some(b'{') => scanner.object()?,
        _ => Members::default(),
    };
    while let Some(key) = scanner.next_key(&mut members)? {
        if !key.text.is("metadata") || scanner.peek() != Some(b'{') {
            scanner.skip()?;
            continue;
        }
        let mut fields = scanner.object()?;
        while let Some(field) = scanner.next_key(&mut fields)? {
            let value = scanner.skip()?;
            if field.text.is("resourceVersion") {
                let quoted = format!("\"{rv}\"");
                let (before, behind) = (&body[..value.start], &body[value.end..]);
                return Ok([before, quoted.as_bytes(), behind].concat());
            }
        }
    }
    Err(Error::Missing("metadata.resourceVersion"))
}
