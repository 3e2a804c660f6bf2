//! The body of a LIST in parts. The parts with the objects share memory with the cache.

use std::sync::Arc;

use bytes::Bytes;

use super::encoder::Encoder;
use super::list_metadata::ListMetadata;
use super::work::Work;
use crate::api::{Object, WireFormat};
use crate::codec::protobuf::{put_bytes, put_number, put_prefix, texts, varint_length};
use crate::codec::{MetaVersion, json, protobuf};

/// Longest prefix, in bytes, of an item in a protobuf list: a tag and a length.
const MAX_PREFIX: usize = 11;

/// An iterator over the parts of a LIST body. The objects' bodies are not copied.
///
/// A clone returns the remaining parts. [`Encoder::list_parts`] and [`ListItems::finish`] return
/// this iterator.
///
/// `B` returns the items' bodies. An empty body is not an item: it is returned as an empty part.
#[derive(Clone, Debug)]
pub struct ListParts<B = std::vec::IntoIter<Bytes>> {
    head: Option<Bytes>,
    bodies: B,
    separators: Separators,
    /// The body of the current item, if its separator was returned already; it is the next part.
    body: Option<Bytes>,
    /// Number of items that `bodies` has not returned yet.
    left: usize,
    tail: Option<Bytes>,
    /// Length in bytes of the remaining parts.
    length: u64,
}

/// Counts and collects the items of a LIST body one by one.
///
/// A list may have many items, and finding the metadata of each takes time, so a caller can yield
/// to other tasks between two items.
#[derive(Debug)]
pub struct ListItems<'a> {
    encoder: &'a Encoder,
    /// The bodies of all items; `None` if only their lengths are counted.
    bodies: Option<Vec<Bytes>>,
    count: usize,
    /// Sum of the lengths of the bodies in bytes.
    length: usize,
    /// Sum of the lengths of the prefixes that the bodies have in a protobuf list.
    prefixes_length: usize,
    /// Number of bodies that start with `{`, which are complete JSON objects.
    whole_count: usize,
}

/// The bytes before each item's body.
#[derive(Clone, Debug)]
enum Separators {
    Json {
        /// The end of the previous item, a comma, and the start that an incomplete body lacks.
        open: Bytes,
        /// Number of bytes of `open` before a body that starts with `{`.
        whole: usize,
        /// Number of bytes of `open` that are left out before the first item.
        skip: usize,
    },
    /// A tag with this field number, and the length of the body.
    Protobuf { number: u32 },
}

impl Encoder {
    /// Encodes the body of a LIST, in parts.
    pub fn list_parts<I>(&self, metadata: ListMetadata<'_>, items: I) -> ListParts
    where
        I: IntoIterator<Item = Arc<Object>>,
    {
        let mut list = self.list_items();
        list.bodies = Some(Vec::new());
        for item in items {
            list.push(&item);
        }
        let bodies = list.bodies.take().unwrap_or_default();
        list.finish(metadata, bodies.into_iter())
    }

    /// Starts the body of a LIST, without items. The rows of a Table are not stored, because they
    /// are quickly made again.
    pub fn list_items(&self) -> ListItems<'_> {
        ListItems {
            encoder: self,
            bodies: self.table.is_none().then(Vec::new),
            count: 0,
            length: 0,
            prefixes_length: 0,
            whole_count: 0,
        }
    }

    fn json_separators(&self) -> Separators {
        let (back, front) = (self.json_back(), self.item_front());
        let whole = match self.partial {
            None => 1,
            Some(_) => back.len() + 1 + front.len(),
        };
        Separators::Json {
            open: [back.as_bytes(), b",", &front].concat().into(),
            whole,
            skip: back.len() + 1,
        }
    }

    /// Returns the text before the body of a list item. It is not used for an object with a
    /// complete body.
    fn item_front(&self) -> Bytes {
        if self.is_embedded || self.partial.is_some() {
            self.front_of(b"")
        } else {
            Bytes::from_static(b"{")
        }
    }

    /// Returns the text before and after the items of a JSON list.
    fn json_list_ends(&self, list: ListMetadata<'_>, is_empty: bool) -> (Bytes, Bytes) {
        if let Some(table) = &self.table {
            return table.list_ends(list, is_empty);
        }
        let ListMetadata {
            resource_version: rv,
            continue_token,
            remaining_item_count: remaining,
            shard,
        } = list;
        let kind = json::quoted(&self.list_kind);
        let api_version = json::quoted(&self.api_version);
        let token = json::quoted(continue_token);
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
        if !continue_token.is_empty() {
            metadata = metadata + ",\"continue\":" + &token;
        }
        if let Some(count) = count {
            metadata = metadata + "," + &count;
        }
        // The API server repeats the selector only in lists of complete objects of built-in kinds.
        if let (Some(shard), None) = (shard, self.partial) {
            let selector = json::quoted(&shard.to_string());
            metadata = format!("{metadata},\"shardInfo\":{{\"selector\":{selector}}}");
        }
        let (open, close) = match (self.partial, is_empty) {
            (None, _) => ("[", "]}\n"),
            (Some(_), false) => ("[", "}]}\n"),
            // In an empty list of metadata, the API server encodes the items as `null`, because it
            // allocates the slice only when it adds the first item.
            (Some(_), true) => ("null", "}\n"),
        };
        let head = format!(
            "{{\"kind\":{kind},\"apiVersion\":{api_version},\"metadata\":{metadata}}},\"items\":{open}"
        );
        (head.into(), Bytes::from_static(close.as_bytes()))
    }

    /// Returns the bytes before and after a protobuf list's items, which have `items_length` bytes.
    fn protobuf_list_ends(&self, list: ListMetadata<'_>, items_length: usize) -> (Bytes, Bytes) {
        let rv = list.resource_version.to_string();
        let mut metadata = texts(["", &rv, list.continue_token]);
        if let Some(count) = list.remaining_item_count {
            put_number(&mut metadata, 4, count);
        }
        if let (Some(shard), None) = (list.shard, self.partial) {
            put_bytes(&mut metadata, 5, &texts([&shard.to_string()]));
        }
        let items_first = self.item_number() == 1;
        let mut field = Vec::new();
        put_bytes(&mut field, if items_first { 2 } else { 1 }, &metadata);
        let raw_length = field.len() + items_length;
        let mut head = protobuf::envelope_start(&self.api_version, &self.list_kind, raw_length);
        let tail = protobuf::ENVELOPE_END;
        if items_first {
            field.extend_from_slice(tail);
            return (head.into(), field.into());
        }
        head.extend_from_slice(&field);
        (head.into(), Bytes::from_static(tail))
    }

    /// Returns the field number, 1 or 2, of a protobuf list's items; the metadata
    /// has the other number.
    fn item_number(&self) -> u32 {
        match self.partial.map(|partial| partial.version) {
            Some(MetaVersion::V1Beta1) => 1,
            Some(MetaVersion::V1) | None => 2,
        }
    }
}

impl ListItems<'_> {
    /// Adds the next item. Returns the work that it took.
    pub fn push(&mut self, item: &Object) -> Work {
        if self.bodies.is_none()
            && let Some((length, work)) = self.encoder.row_length(item)
        {
            self.count += 1;
            self.length += length;
            self.whole_count += 1;
            return work;
        }
        let body = self.encoder.body_of(item);
        self.count += 1;
        self.length += body.len();
        self.prefixes_length += 1 + varint_length(body.len() as u64);
        self.whole_count += usize::from(body.first() == Some(&b'{'));
        if let Some(bodies) = &mut self.bodies {
            bodies.push(body.into_owned());
        }
        self.encoder.work()
    }

    /// Drops the bodies of the added items, and stores none of further items.
    pub fn forget_bodies(&mut self) {
        self.bodies = None;
    }

    /// Takes the bodies of the added items, or returns `None` if they are not stored.
    pub fn take_bodies(&mut self) -> Option<Vec<Bytes>> {
        self.bodies.take()
    }

    /// Returns the number of bytes of the bodies that were added, or `None` if only their lengths
    /// were counted.
    pub fn kept(&self) -> Option<usize> {
        self.bodies.as_ref().map(|_| self.length)
    }

    /// Returns the number of items added.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if no item was added.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Encodes the list of the added items, in parts. `bodies` must return the bodies of exactly
    /// these items, in the order of the items. If `bodies` ends too early, the parts end without
    /// the end of the list.
    pub fn finish<B: Iterator<Item = Bytes>>(
        self,
        metadata: ListMetadata<'_>,
        bodies: B,
    ) -> ListParts<B> {
        let encoder = self.encoder;
        let (head, separators, tail) = match encoder.format {
            WireFormat::Json => {
                let (head, tail) = encoder.json_list_ends(metadata, self.is_empty());
                (head, encoder.json_separators(), tail)
            }
            WireFormat::Protobuf => {
                let items_length = self.prefixes_length + self.length;
                let number = encoder.item_number();
                let (head, tail) = encoder.protobuf_list_ends(metadata, items_length);
                (head, Separators::Protobuf { number }, tail)
            }
        };
        let between = match &separators {
            Separators::Protobuf { .. } => self.prefixes_length,
            Separators::Json { .. } if self.is_empty() => 0,
            Separators::Json { open, whole, skip } => {
                whole * self.whole_count + open.len() * (self.count - self.whole_count) - skip
            }
        };
        let length = head.len() + between + self.length + tail.len();
        ListParts {
            head: Some(head),
            bodies,
            separators,
            body: None,
            left: self.count,
            tail: Some(tail),
            length: length as u64,
        }
    }
}

impl Separators {
    fn next(&mut self, body: &[u8]) -> Bytes {
        match self {
            Self::Json { open, whole, skip } => {
                let skip = std::mem::take(skip);
                match body.first() {
                    Some(b'{') => open.slice(skip..*whole),
                    _ => open.slice(skip..),
                }
            }
            Self::Protobuf { number } => {
                let mut prefix = Vec::with_capacity(MAX_PREFIX);
                put_prefix(&mut prefix, *number, body.len());
                prefix.into()
            }
        }
    }
}

impl<B: Iterator<Item = Bytes>> ListParts<B> {
    /// Returns the length in bytes of the remaining parts.
    pub fn length(&self) -> u64 {
        self.length
    }

    fn part(&mut self) -> Option<Bytes> {
        if let Some(part) = self.head.take().or_else(|| self.body.take()) {
            return Some(part);
        }
        if self.left == 0 {
            return self.tail.take();
        }
        match self.bodies.next()? {
            body if body.is_empty() => Some(body),
            body => {
                self.left -= 1;
                let separator = self.separators.next(&body);
                if separator.is_empty() {
                    Some(body)
                } else {
                    self.body = Some(body);
                    Some(separator)
                }
            }
        }
    }
}

impl<B: Iterator<Item = Bytes>> Iterator for ListParts<B> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let part = self.part()?;
        self.length -= part.len() as u64;
        Some(part)
    }
}
