//! Reads a JSON list that is received in chunks.

use bytes::Bytes;
use memchr::memchr;

use super::decoder::{Decoder, page};
use crate::api::{ListPage, Object};
use crate::codec::json::{Scanner, compact};
use crate::codec::{Error, json};

/// The state of a JSON list that is partly read.
#[derive(Debug, Default)]
pub(super) struct JsonList {
    part: Part,
    /// An item is parsed only if this many bytes are available: 3/4 of the previous item's length.
    min_item_length: usize,
    items: Vec<Object>,
    /// The list's text without its items: each item is replaced by `{}`.
    envelope: Vec<u8>,
}

/// The part of the list that is read next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// The text before the first item.
    #[default]
    Before,
    Items,
    /// The text from the first byte that cannot start an item; `finish` parses it.
    Rest,
}

impl JsonList {
    /// Reads as much as possible of `text`, which is all unread bytes. Returns the number read.
    pub(super) fn read(&mut self, decoder: &Decoder, text: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let read = match self.part {
                Part::Before => self.read_before(&text[at..]),
                Part::Items => self.read_item(decoder, &text[at..]),
                Part::Rest => {
                    self.envelope.extend_from_slice(&text[at..]);
                    return text.len();
                }
            };
            let Some(read) = read else { return at };
            at += read;
        }
    }

    /// Declares that no more bytes follow, so that items of any length are parsed.
    pub(super) fn expect_no_more(&mut self) {
        self.min_item_length = 0;
    }

    /// Makes the page. `unread` is the remaining text, which `read` did not consume.
    pub(super) fn finish(mut self, decoder: &Decoder, unread: &[u8]) -> Result<ListPage, Error> {
        self.envelope.extend_from_slice(unread);
        let text = json::on_one_line(self.envelope.trim_ascii_end());
        let mut read = self.items.len();
        let head = json::list(&text, |scanner| {
            if let Some(left) = read.checked_sub(1) {
                read = left;
                return scanner.skip();
            }
            let item = decoder.json_item(scanner, on_one_line)?;
            self.items.push(item);
            Ok(())
        })?;
        page(head, self.items)
    }

    /// Reads up to the opening bracket of the items; `None` if the bracket is not in `text`.
    fn read_before(&mut self, text: &[u8]) -> Option<usize> {
        let start = json::items_start(text)?;
        self.envelope.extend_from_slice(&text[..start]);
        self.part = Part::Items;
        Some(start)
    }

    /// Reads an item or a separator byte; `None` if more bytes are needed.
    fn read_item(&mut self, decoder: &Decoder, text: &[u8]) -> Option<usize> {
        match text.first()? {
            b'{' if text.len() < self.min_item_length => None,
            b'{' => {
                let mut scanner = Scanner::new(text);
                // An item that fails may be incomplete; if it is malformed, `finish` reports that.
                let item = decoder.json_item(&mut scanner, on_one_line).ok()?;
                self.items.push(item);
                // A placeholder with braces cannot merge with adjacent bytes, as a literal could.
                self.envelope.extend_from_slice(b"{}");
                self.min_item_length = scanner.offset() / 4 * 3;
                Some(scanner.offset())
            }
            byte @ (b',' | b' ' | b'\n' | b'\r' | b'\t') => {
                self.envelope.push(*byte);
                Some(1)
            }
            _ => {
                self.part = Part::Rest;
                Some(0)
            }
        }
    }
}

/// Copies `body` without line breaks, which would end a JSON watch frame.
fn on_one_line(body: &[u8]) -> Bytes {
    match memchr(b'\n', body) {
        None => Bytes::copy_from_slice(body),
        Some(_) => compact(body).into(),
    }
}
