//! A JSON list that comes in chunks.

use bytes::Bytes;
use memchr::memchr;

use super::decoder::Decoder;
use super::decoder::page;
use crate::api::ListPage;
use crate::api::Object;
use crate::codec::Error;
use crate::codec::json;
use crate::codec::json::Scanner;
use crate::codec::json::compact;

/// What was read of it.
#[derive(Debug, Default)]
pub(super) struct JsonList {
    part: Part,
    /// An item with fewer bytes is likely not whole yet: most are about as long as the one before.
    min_item_length: usize,
    items: Vec<Object>,
    /// What stands around the items, each of which is a zero in it.
    envelope: Vec<u8>,
}

/// What is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// What stands before the items.
    #[default]
    Before,
    Items,
    /// What stands behind the items, and what nobody can read.
    Rest,
}

impl JsonList {
    /// Reads on; returns how many bytes were read.
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

    /// Nothing more comes, so that each item is as whole as it will be.
    pub(super) fn expect_no_more(&mut self) {
        self.min_item_length = 0;
    }

    /// The page, when `unread` is all that could not be read.
    pub(super) fn finish(mut self, decoder: &Decoder, unread: &[u8]) -> Result<ListPage, Error> {
        self.envelope.extend_from_slice(unread);
        let text = json::on_one_line(self.envelope.trim_ascii_end());
        let mut read = self.items.len();
        let head = json::list(&text, |scanner| {
            if let Some(left) = read.checked_sub(1) {
                read = left;
                return scanner.skip().map(|_| ());
            }
            let item = decoder.json_object(scanner, on_one_line)?;
            self.items.push(item);
            Ok(())
        })?;
        page(head, self.items)
    }

    /// Reads as far as the items; `None` when they don't begin in `text`.
    fn read_before(&mut self, text: &[u8]) -> Option<usize> {
        let start = json::items_start(text)?;
        self.envelope.extend_from_slice(&text[..start]);
        self.part = Part::Items;
        Some(start)
    }

    /// Reads an item or what stands between two; `None` when more has to come first.
    fn read_item(&mut self, decoder: &Decoder, text: &[u8]) -> Option<usize> {
        match text.first()? {
            b'{' if text.len() < self.min_item_length => None,
            b'{' => {
                let mut scanner = Scanner::new(text);
                // It may lack its end. If that is not why, it can't be read at the end either.
                let item = decoder.json_object(&mut scanner, on_one_line).ok()?;
                self.items.push(item);
                // So that it can't run into what stands beside it.
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

/// A copy of `body` that breaks no watch frame in two.
fn on_one_line(body: &[u8]) -> Bytes {
    match memchr(b'\n', body) {
        None => Bytes::copy_from_slice(body),
        Some(_) => compact(body).into(),
    }
}
