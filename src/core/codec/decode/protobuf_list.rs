//! Reads a protobuf list that is received in chunks.

use bytes::Bytes;

use super::decoder::{Decoder, page};
use crate::api::{ListPage, Object};
use crate::codec::protobuf::{Field, Fields, MAGIC};
use crate::codec::{Error, protobuf};

/// The state of a protobuf list that is partly read.
#[derive(Debug, Default)]
pub(super) struct ProtobufList {
    part: Part,
    items: Vec<Object>,
    /// The bytes of the envelope without its content, which is the list.
    envelope: Vec<u8>,
    /// The bytes of the list's fields except its items.
    head: Vec<u8>,
}

/// The part of the list that is read next.
#[derive(Clone, Copy, Debug, Default)]
enum Part {
    #[default]
    Magic,
    /// The envelope's fields before and after its content.
    Envelope,
    /// The list's fields, which are the envelope's content; `left` bytes of it are unread.
    List { left: usize },
    /// The body does not start with `MAGIC`, so nothing is read; `finish` reports the error.
    Rest,
}

impl ProtobufList {
    /// Reads as much as possible of `bytes`, which is all unread bytes. Returns the number read.
    pub(super) fn read(&mut self, decoder: &Decoder, bytes: &[u8]) -> Result<usize, Error> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let read = match self.part {
                Part::Magic => self.read_magic(rest),
                Part::Envelope => self.read_envelope(rest),
                Part::List { left } => self.read_list(decoder, rest, left)?,
                Part::Rest => None,
            };
            let Some(read) = read else { return Ok(at) };
            at += read;
        }
    }

    /// Makes the page. `unread` is the remaining bytes, which `read` did not consume.
    pub(super) fn finish(mut self, unread: &[u8]) -> Result<ListPage, Error> {
        if matches!(self.part, Part::List { left: 1.. }) {
            return Err(Error::Protobuf("message ends within a field"));
        }
        self.envelope.extend_from_slice(unread);
        protobuf::envelope(&self.envelope)?;
        // `self.head` contains no items.
        let head = protobuf::list(&self.head, |_| Ok(()))?;
        page(head, self.items)
    }

    /// Reads `MAGIC`. Returns the number of bytes read; `None` if too few bytes or other bytes.
    fn read_magic(&mut self, rest: &[u8]) -> Option<usize> {
        if rest.get(..MAGIC.len())? == MAGIC {
            self.envelope.extend_from_slice(MAGIC);
            self.part = Part::Envelope;
            Some(MAGIC.len())
        } else {
            self.part = Part::Rest;
            None
        }
    }

    /// Reads a field of the envelope, or its content's tag and length; `None` if incomplete.
    fn read_envelope(&mut self, rest: &[u8]) -> Option<usize> {
        if let Some((start, left)) = protobuf::content_start(rest) {
            // If the envelope has two contents, the last one wins.
            self.items.clear();
            self.head.clear();
            self.part = Part::List { left };
            return Some(start);
        }
        let field = Fields::new(rest).next()?.ok()?;
        self.envelope.extend_from_slice(field.whole);
        Some(field.whole.len())
    }

    /// Reads a field of the list, which has `left` unread bytes. Returns `None` if the
    /// field is incomplete.
    fn read_list(
        &mut self,
        decoder: &Decoder,
        rest: &[u8],
        left: usize,
    ) -> Result<Option<usize>, Error> {
        if left == 0 {
            self.part = Part::Envelope;
            return Ok(Some(0));
        }
        let is_whole = rest.len() >= left;
        let field = match Fields::new(&rest[..left.min(rest.len())]).next() {
            Some(Ok(field)) => field,
            Some(Err(error)) if is_whole => return Err(error),
            _ => return Ok(None),
        };
        self.take(decoder, &field)?;
        let read = field.whole.len();
        self.part = Part::List { left: left - read };
        Ok(Some(read))
    }

    fn take(&mut self, decoder: &Decoder, field: &Field<'_>) -> Result<(), Error> {
        if field.number == 2 {
            let item = decoder.protobuf_item(field.bytes()?, Bytes::copy_from_slice)?;
            self.items.push(item);
        } else {
            self.head.extend_from_slice(field.whole);
        }
        Ok(())
    }
}
