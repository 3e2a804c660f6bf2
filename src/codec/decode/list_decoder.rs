//! ListDecoder: a page of a LIST, read from its chunks while they come.

use super::decoder::Decoder;
use super::json_list::JsonList;
use super::protobuf_list::ProtobufList;
use crate::api::ListPage;
use crate::api::WireFormat;
use crate::codec::Error;

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
    list: List,
}

/// What was read of the list.
#[derive(Debug)]
enum List {
    Json(JsonList),
    Protobuf(ProtobufList),
}

impl Decoder {
    /// Begins to read a page of a LIST that comes in chunks.
    pub fn list_decoder(&self) -> ListDecoder {
        ListDecoder {
            decoder: self.clone(),
            unread: Vec::new(),
            worthwhile: 0,
            list: match self.format() {
                WireFormat::Json => List::Json(JsonList::default()),
                WireFormat::Protobuf => List::Protobuf(ProtobufList::default()),
            },
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
        let read = match &mut self.list {
            List::Json(list) => list.read(&self.decoder, &self.unread),
            List::Protobuf(list) => list.read(&self.decoder, &self.unread)?,
        };
        self.unread.drain(..read);
        self.worthwhile = 2 * self.unread.len();
        Ok(())
    }

    /// Ends the page.
    ///
    /// # Errors
    ///
    /// When what was pushed is no list, or an item lacks its name or resource version.
    pub fn finish(mut self) -> Result<ListPage, Error> {
        self.worthwhile = 0;
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
