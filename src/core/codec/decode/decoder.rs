//! Decodes the LIST pages, watch frames and single objects of the upstream.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::bookmark;
use super::bookmark::BookmarkFields;
use crate::api::{
    Bookmark, EventType, ListPage, Object, ObjectKey, ObjectValues, ResourceVersion,
    SelectableFields, WatchEvent, WireFormat,
};
use crate::codec::field_tree::{FieldTree, Values};
use crate::codec::head::{Head, ListHead};
use crate::codec::json::Scanner;
use crate::codec::{Error, json, protobuf, status};

/// Decodes the upstream's objects of one resource in one wire format. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Decoder {
    pub(super) format: WireFormat,
    trees: Arc<FieldTrees>,
    /// True to remove the managed fields of the objects in lists and events.
    strips_managed_fields: bool,
}

#[derive(Debug)]
struct FieldTrees {
    count: usize,
    json: FieldTree<String>,
    protobuf: FieldTree<u32>,
    /// See [`SelectableFields::substitutes`].
    substitutes: Vec<(usize, usize)>,
}

/// The object of a JSON event: decoded for a change, raw bytes for any other event type.
enum Payload {
    Change(EventType, Object),
    Other(Bytes),
}

impl Decoder {
    /// Makes a decoder that extracts the values of `fields` from each object.
    pub fn new(format: WireFormat, fields: Arc<SelectableFields>) -> Self {
        let trees = FieldTrees {
            count: fields.fields.len(),
            substitutes: fields.substitutes.clone(),
            json: FieldTree::new(&fields, |field| &field.json_path),
            protobuf: FieldTree::new(&fields, |field| &field.protobuf_path),
        };
        Self {
            format,
            trees: Arc::new(trees),
            strips_managed_fields: false,
        }
    }

    /// Sets whether the decoder removes `metadata.managedFields` from the objects in lists and
    /// events. The frames of events are changed as well.
    #[must_use]
    pub fn stripping_managed_fields(mut self, strips: bool) -> Self {
        self.strips_managed_fields = strips;
        self
    }

    /// Reads one page of a LIST. Each item's body is a separate allocation.
    ///
    /// # Errors
    ///
    /// If the body is not a list, or if an item has no name or no resource version.
    pub fn list(&self, body: &Bytes) -> Result<ListPage, Error> {
        self.page(body, Bytes::copy_from_slice)
    }

    /// Reads one page of a LIST, and leaves each item's body empty.
    ///
    /// For callers that need only the keys, versions and selectable values of the objects.
    ///
    /// # Errors
    ///
    /// If the body is not a list, or if an item has no name or no resource version.
    pub fn list_without_bodies(&self, body: &Bytes) -> Result<ListPage, Error> {
        self.page(body, |_| Bytes::new())
    }

    fn page(&self, body: &Bytes, keep: impl Fn(&[u8]) -> Bytes) -> Result<ListPage, Error> {
        let mut items = Vec::new();
        let head = match self.format {
            WireFormat::Json => {
                let text = json::on_one_line(body.trim_ascii_end());
                json::list(&text, |scanner| {
                    items.push(self.json_item(scanner, &keep)?);
                    Ok(())
                })?
            }
            WireFormat::Protobuf => {
                let envelope = protobuf::envelope(body)?;
                protobuf::list(envelope.raw, |item| {
                    items.push(self.protobuf_item(item, &keep)?);
                    Ok(())
                })?
            }
        };
        page(head, items)
    }

    /// Reads the body of a GET. The object's body is a separate allocation.
    ///
    /// # Errors
    ///
    /// If the body is not an object, or if the object has no name or no resource version.
    pub fn object(&self, body: &[u8]) -> Result<Object, Error> {
        match self.format {
            WireFormat::Json => {
                let text = json::on_one_line(body.trim_ascii_end());
                self.json_object(&mut Scanner::new(&text), Bytes::copy_from_slice)
            }
            WireFormat::Protobuf => {
                let envelope = protobuf::envelope(body)?;
                self.protobuf_object(envelope.raw, Bytes::copy_from_slice)
            }
        }
    }

    /// Reads one complete watch frame. The object's body is a slice of the
    /// event's frame, not a copy.
    ///
    /// # Errors
    ///
    /// If the frame is not a watch event, or if its object has no name or no resource version.
    pub fn event(&self, frame: Bytes) -> Result<WatchEvent, Error> {
        match (self.format, self.strips_managed_fields) {
            (WireFormat::Json, false) => self.json_event(frame),
            (WireFormat::Json, true) => self.json_event(stripped_json(frame)?),
            (WireFormat::Protobuf, false) => self.protobuf_event(frame),
            (WireFormat::Protobuf, true) => self.protobuf_event(stripped_protobuf(frame)?),
        }
    }

    fn json_event(&self, frame: Bytes) -> Result<WatchEvent, Error> {
        let frame = match json::on_one_line(frame.trim_ascii_end()) {
            Cow::Borrowed(_) => frame,
            Cow::Owned(line) => [line.as_slice(), b"\n"].concat().into(),
        };
        let event = json::event(&frame, |scanner, event_type| match change(event_type) {
            Some(event_type) => {
                let object = self.json_object(scanner, |body| frame.slice_ref(body))?;
                Ok(Payload::Change(event_type, object))
            }
            None => Ok(Payload::Other(frame.slice_ref(scanner.value()?))),
        })?;
        match (event.object, event.event_type.as_ref()) {
            (Payload::Change(event_type, object), _) => Ok(WatchEvent::Change {
                event_type,
                object,
                frame,
            }),
            (Payload::Other(object), "BOOKMARK") => bookmark(bookmark::read_json(&object)?, frame),
            (Payload::Other(object), "ERROR") => {
                Ok(WatchEvent::Error(status::decode_json_or_text(&object)))
            }
            (_, other) => Err(Error::UnknownEventType(other.to_owned())),
        }
    }

    fn protobuf_event(&self, frame: Bytes) -> Result<WatchEvent, Error> {
        let event = protobuf::event(&frame)?;
        let raw = event.envelope.raw;
        if let Some(event_type) = change(event.event_type) {
            let object = self.protobuf_object(raw, |body| frame.slice_ref(body))?;
            return Ok(WatchEvent::Change {
                event_type,
                object,
                frame,
            });
        }
        match event.event_type {
            "BOOKMARK" => bookmark(bookmark::read_protobuf(raw)?, frame),
            "ERROR" => Ok(WatchEvent::Error(status::decode_message(raw)?)),
            other => Err(Error::UnknownEventType(other.to_owned())),
        }
    }

    pub(super) fn json_object(
        &self,
        scanner: &mut Scanner<'_>,
        keep: impl Fn(&[u8]) -> Bytes,
    ) -> Result<Object, Error> {
        let (mut head, body) = json::object(scanner, &self.trees.json, self.no_values())?;
        self.substitute(&mut head.values);
        object(head, body, keep(body))
    }

    pub(super) fn protobuf_object(
        &self,
        message: &[u8],
        keep: impl Fn(&[u8]) -> Bytes,
    ) -> Result<Object, Error> {
        let mut head = protobuf::object(message, &self.trees.protobuf, self.no_values())?;
        self.substitute(&mut head.values);
        object(head, message, keep(message))
    }

    /// Replaces each empty value of [`SelectableFields::substitutes`] by that of its second field.
    fn substitute(&self, values: &mut Values<'_>) {
        for &(field, substitute) in &self.trees.substitutes {
            if values[field].as_deref().is_none_or(str::is_empty) {
                values[field] = values[substitute].clone();
            }
        }
    }

    /// Reads an item of a list.
    pub(super) fn json_item(
        &self,
        scanner: &mut Scanner<'_>,
        keep: impl Fn(&[u8]) -> Bytes,
    ) -> Result<Object, Error> {
        if !self.strips_managed_fields {
            return self.json_object(scanner, keep);
        }
        let item = scanner.value()?;
        match json::managed_fields(item)? {
            Some(range) => {
                let item = [&item[..range.start], &item[range.end..]].concat();
                self.json_object(&mut Scanner::new(&item), keep)
            }
            None => self.json_object(&mut Scanner::new(item), keep),
        }
    }

    /// Reads an item of a list.
    pub(super) fn protobuf_item(
        &self,
        item: &[u8],
        keep: impl Fn(&[u8]) -> Bytes,
    ) -> Result<Object, Error> {
        let stripped = if self.strips_managed_fields {
            protobuf::without_managed_fields(item)?
        } else {
            None
        };
        self.protobuf_object(stripped.as_deref().unwrap_or(item), keep)
    }

    fn no_values(&self) -> Values<'static> {
        vec![None; self.trees.count]
    }
}

/// Returns the frame without the managed fields of its object.
fn stripped_json(frame: Bytes) -> Result<Bytes, Error> {
    let object = json::raw_event(&frame)?.object;
    let range = match object.first() {
        Some(b'{') => json::managed_fields(object)?,
        _ => None,
    };
    let Some(range) = range else { return Ok(frame) };
    let start = object.as_ptr() as usize - frame.as_ptr() as usize;
    let (before, after) = (&frame[..start + range.start], &frame[start + range.end..]);
    Ok([before, after].concat().into())
}

/// Returns the frame without the managed fields of its object.
fn stripped_protobuf(frame: Bytes) -> Result<Bytes, Error> {
    let event = protobuf::event(&frame)?;
    if change(event.event_type).is_none() {
        return Ok(frame);
    }
    let envelope = event.envelope;
    let Some(raw) = protobuf::without_managed_fields(envelope.raw)? else {
        return Ok(frame);
    };
    let object = protobuf::enveloped(envelope.api_version, envelope.kind, &raw);
    Ok(protobuf::frame(event.event_type, &[&object]).into())
}

/// Returns the event type if it is a change of an object, or `None` for other
/// types, such as BOOKMARK.
fn change(event_type: &str) -> Option<EventType> {
    [EventType::Added, EventType::Modified, EventType::Deleted]
        .into_iter()
        .find(|known| known.as_str() == event_type)
}

/// Makes an object. `text` is the text that `head` was read from; `body` equals `text` or is empty.
fn object(head: Head<'_>, text: &[u8], body: Bytes) -> Result<Object, Error> {
    if head.name.is_empty() {
        return Err(Error::Missing("metadata.name"));
    }
    let key = ObjectKey::new(Some(&head.namespace), &head.name);
    let version = resource_version(&head.resource_version)?;
    let fields = head.values.into_iter();
    let values = ObjectValues {
        uid: head.uid,
        labels: head.labels,
        fields: fields.map(Option::unwrap_or_default).collect(),
    };
    Ok(Object::from_source(key, version, &values, text, body))
}

pub(super) fn page(head: ListHead, items: Vec<Object>) -> Result<ListPage, Error> {
    Ok(ListPage {
        resource_version: resource_version(&head.resource_version)?,
        continue_token: head.continue_token,
        items,
    })
}

fn bookmark(fields: BookmarkFields, frame: Bytes) -> Result<WatchEvent, Error> {
    Ok(WatchEvent::Bookmark(Bookmark {
        resource_version: resource_version(&fields.resource_version)?,
        initial_events_end: fields.initial_events_end,
        frame,
    }))
}

fn resource_version(text: &str) -> Result<ResourceVersion, Error> {
    match text {
        "" => Err(Error::Missing("metadata.resourceVersion")),
        text => Ok(text.parse()?),
    }
}
