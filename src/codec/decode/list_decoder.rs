//! ListDecoder: a page of a LIST, read from its chunks while they come.

use memchr::memchr;

use super::decoder::Decoder;
use super::decoder::page;
use crate::api::ListPage;
use crate::api::Object;
use crate::api::WireFormat;
use crate::codec::Error;
use crate::codec::json;
use crate::codec::json::Scanner;
use crate::codec::json::compact;
use crate::codec::protobuf;
use crate::codec::protobuf::Fields;

/// Reads one page of a LIST; made by `Decoder::list_decoder`.
///
/// Beside the objects it holds no more than a chunk and twice the largest item. It gives what
/// `Decoder::list` gives of the whole body.
#[derive(Debug)]
pub struct ListDecoder {
    decoder: Decoder,
    /// What has come and could not be read so far.
    unread: Vec<u8>,
    /// With fewer bytes unread it is not tried to read on, so that a large item is not begun anew
    /// with each chunk.
    worthwhile: usize,
    /// A JSON item with fewer bytes is likely not whole yet: most are about as long as the one before.
    likely_whole: usize,
    part: Part,
    items: Vec<Object>,
    /// What stands around the items. In JSON each of `items` is a zero in it.
    frame: Vec<u8>,
    /// The fields of a protobuf list beside its items.
    head: Vec<u8>,
}

/// What is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// What stands before the items; in protobuf also what stands behind them.
    Around,
    /// The items; of a protobuf list so many bytes are left.
    Items { left: usize },
    /// What stands behind a JSON list's items, and what nobody can read.
    Rest,
}

impl Decoder {
    /// Begins to read a page of a LIST that comes in chunks.
    pub fn list_decoder(&self) -> ListDecoder {
        ListDecoder {
            decoder: self.clone(),
            unread: Vec::new(),
            worthwhile: 0,
            likely_whole: 0,
            part: Part::Around,
            items: Vec::new(),
            frame: Vec::new(),
            head: Vec::new(),
        }
    }
}

impl ListDecoder {
    /// Reads what came next.
    ///
    /// # Errors
    ///
    /// When an item can never be read. Other faults are found by [`ListDecoder::finish`].
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), Error> {
        self.unread.extend_from_slice(chunk);
        if self.unread.len() < self.worthwhile {
            return Ok(());
        }
        let mut unread = std::mem::take(&mut self.unread);
        let read = match self.decoder.format() {
            WireFormat::Json => self.read_json(&unread),
            WireFormat::Protobuf => self.read_protobuf(&unread)?,
        };
        unread.drain(..read);
        self.worthwhile = 2 * unread.len();
        self.unread = unread;
        Ok(())
    }

    /// Ends the page.
    ///
    /// # Errors
    ///
    /// When what was pushed is no list, or an item lacks its name or resource version.
    pub fn finish(mut self) -> Result<ListPage, Error> {
        self.worthwhile = 0;
        self.likely_whole = 0;
        self.push(&[])?;
        self.frame.append(&mut self.unread);
        match self.decoder.format() {
            WireFormat::Json => self.finish_json(),
            WireFormat::Protobuf => self.finish_protobuf(),
        }
    }

    /// Reads on in JSON; returns how many bytes were read.
    fn read_json(&mut self, text: &[u8]) -> usize {
        let mut at = 0;
        if self.part == Part::Around {
            let Some(start) = json::items_start(text) else {
                return 0;
            };
            self.frame.extend_from_slice(&text[..start]);
            self.part = Part::Items { left: 0 };
            at = start;
        }
        while let (Part::Items { .. }, Some(byte)) = (self.part, text.get(at)) {
            match byte {
                b'{' if text.len() - at < self.likely_whole => return at,
                b'{' => {
                    let mut scanner = Scanner::new(&text[at..]);
                    // It may lack its end. If that is not why, it can't be read at the end either.
                    let Ok(item) = self.decoder.json_object(&mut scanner, on_one_line) else {
                        return at;
                    };
                    self.items.push(item);
                    // So that it can't run into what stands beside it.
                    self.frame.extend_from_slice(b"{}");
                    at += scanner.offset();
                    self.likely_whole = scanner.offset() / 4 * 3;
                }
                b',' | b' ' | b'\n' | b'\r' | b'\t' => {
                    self.frame.push(*byte);
                    at += 1;
                }
                _ => self.part = Part::Rest,
            }
        }
        if self.part == Part::Rest {
            self.frame.extend_from_slice(&text[at..]);
            at = text.len();
        }
        at
    }

    fn finish_json(mut self) -> Result<ListPage, Error> {
        let frame = std::mem::take(&mut self.frame);
        let text = json::on_one_line(frame.trim_ascii_end());
        let mut read = self.items.len();
        let head = json::list(&text, |scanner| {
            if let Some(left) = read.checked_sub(1) {
                read = left;
                return scanner.skip().map(|_| ());
            }
            let item = self.decoder.json_object(scanner, on_one_line)?;
            self.items.push(item);
            Ok(())
        })?;
        page(head, self.items)
    }

    /// Reads on in protobuf; returns how many bytes were read.
    fn read_protobuf(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            match self.part {
                Part::Rest => return Ok(at),
                Part::Around if self.frame.is_empty() => match rest.get(..protobuf::MAGIC.len()) {
                    Some(protobuf::MAGIC) => {
                        self.frame.extend_from_slice(protobuf::MAGIC);
                        at += protobuf::MAGIC.len();
                    }
                    Some(_) => self.part = Part::Rest,
                    None => return Ok(at),
                },
                Part::Around => {
                    let mut fields = Fields::new(rest);
                    if let Some((start, left)) = protobuf::content_start(rest) {
                        // Of two contents the last counts.
                        self.items.clear();
                        self.head.clear();
                        self.part = Part::Items { left };
                        at += start;
                    } else if let Some(Ok(field)) = fields.next() {
                        self.frame.extend_from_slice(field.whole);
                        at += field.whole.len();
                    } else {
                        return Ok(at);
                    }
                }
                Part::Items { left: 0 } => self.part = Part::Around,
                Part::Items { left } => {
                    let is_whole = rest.len() >= left;
                    let rest = &rest[..left.min(rest.len())];
                    let field = match Fields::new(rest).next() {
                        Some(Ok(field)) => field,
                        Some(Err(error)) if is_whole => return Err(error),
                        _ => return Ok(at),
                    };
                    match field.number {
                        2 => {
                            let item = field.bytes()?;
                            let keep = bytes::Bytes::copy_from_slice;
                            self.items.push(self.decoder.protobuf_object(item, keep)?);
                        }
                        _ => self.head.extend_from_slice(field.whole),
                    }
                    let left = left - field.whole.len();
                    self.part = Part::Items { left };
                    at += field.whole.len();
                }
            }
        }
    }

    fn finish_protobuf(self) -> Result<ListPage, Error> {
        if matches!(self.part, Part::Items { left: 1.. }) {
            return Err(Error::Protobuf("message ends within a field"));
        }
        protobuf::envelope(&self.frame)?;
        // All items were taken out of it.
        let head = protobuf::list(&self.head, |_| Ok(()))?;
        page(head, self.items)
    }
}

/// A copy of `body` that breaks no watch frame in two.
fn on_one_line(body: &[u8]) -> bytes::Bytes {
    match memchr(b'\n', body) {
        None => bytes::Bytes::copy_from_slice(body),
        Some(_) => compact(body).into(),
    }
}

#[cfg(test)]
mod tests;
