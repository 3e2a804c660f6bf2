//! A LIST body in parts, of which the objects' are shared with the cache.

use std::sync::Arc;

use bytes::Bytes;

use crate::api::Object;

/// The parts of a LIST body, in order.
///
/// Made by `Encoder::list_parts`.
#[derive(Debug)]
pub struct ListParts<I> {
    pub(super) head: Option<Bytes>,
    pub(super) items: I,
    pub(super) separators: Separators,
    /// The body of an item whose separator was given.
    pub(super) body: Option<Bytes>,
    pub(super) tail: Option<Bytes>,
}

/// What stands before each item's body.
#[derive(Debug)]
pub(super) enum Separators {
    Json {
        /// Written before bodies that lack their opening brace.
        open: Bytes,
        is_first: bool,
    },
    /// Tag and length of each item, one behind the other, with their lengths.
    Protobuf {
        prefixes: Bytes,
        lengths: std::vec::IntoIter<u8>,
    },
}

impl Separators {
    fn next(&mut self, body: &[u8]) -> Bytes {
        match self {
            Self::Json { open, is_first } => {
                let skip = usize::from(std::mem::take(is_first));
                match body.first() {
                    // `open` is a comma and what is missing of the object.
                    Some(b'{') => open.slice(skip..1),
                    _ => open.slice(skip..),
                }
            }
            Self::Protobuf { prefixes, lengths } => {
                let length = lengths.next().unwrap_or_default();
                prefixes.split_to(usize::from(length))
            }
        }
    }
}

impl<I: Iterator<Item = Arc<Object>>> Iterator for ListParts<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(part) = self.head.take().or_else(|| self.body.take()) {
            return Some(part);
        }
        match self.items.next() {
            None => self.tail.take(),
            Some(object) => {
                let separator = self.separators.next(&object.body);
                match separator.is_empty() {
                    true => Some(object.body.clone()),
                    false => {
                        self.body = Some(object.body.clone());
                        Some(separator)
                    }
                }
            }
        }
    }
}
