//! Reads a page of a LIST chunk by chunk, while it is received.

use super::decoder::Decoder;
use super::json_list::JsonList;
use super::protobuf_list::ProtobufList;
use crate::api::{ListPage, WireFormat};
use crate::codec::Error;

/// Reads one page of a LIST chunk by chunk; made by `Decoder::list_decoder`.
///
/// Besides the decoded objects it holds at most one chunk and twice the largest item. Its result
/// equals the result of `Decoder::list` for the whole body.
#[derive(Debug)]
pub struct ListDecoder {
    decoder: Decoder,
    /// Received bytes that could not be read yet.
    unread: Vec<u8>,
    /// Number of unread bytes below which `push` does not try to read. It doubles after each try,
    /// so that a large item is not parsed again for each chunk.
    min_unread: usize,
    list: List,
}

#[derive(Debug)]
enum List {
    Json(JsonList),
    Protobuf(ProtobufList),
}

impl Decoder {
    /// Makes a decoder for one page of a LIST that is received in chunks.
    pub fn list_decoder(&self) -> ListDecoder {
        ListDecoder {
            decoder: self.clone(),
            unread: Vec::new(),
            min_unread: 0,
            list: match self.format {
                WireFormat::Json => List::Json(JsonList::default()),
                WireFormat::Protobuf => List::Protobuf(ProtobufList::default()),
            },
        }
    }
}

impl ListDecoder {
    /// Adds the next chunk and reads the complete items.
    ///
    /// # Errors
    ///
    /// If an item of a protobuf list is malformed. [`ListDecoder::finish`] reports other errors.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), Error> {
        self.unread.extend_from_slice(chunk);
        if self.unread.len() < self.min_unread {
            return Ok(());
        }
        let read = match &mut self.list {
            List::Json(list) => list.read(&self.decoder, &self.unread),
            List::Protobuf(list) => list.read(&self.decoder, &self.unread)?,
        };
        self.unread.drain(..read);
        self.min_unread = 2 * self.unread.len();
        Ok(())
    }

    /// Reads the remaining bytes and returns the page.
    ///
    /// # Errors
    ///
    /// If the pushed bytes are not a list, or if an item has no name or no resource version.
    pub fn finish(mut self) -> Result<ListPage, Error> {
        self.min_unread = 0;
        if let List::Json(list) = &mut self.list {
            list.expect_no_more();
        }
        self.push(&[])?;
        match self.list {
            List::Json(list) => list.finish(&self.decoder, &self.unread),
            List::Protobuf(list) => list.finish(&self.unread),
        }
    }
}

#[cfg(test)]
mod tests;
