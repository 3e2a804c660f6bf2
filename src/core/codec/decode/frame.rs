//! Splits the chunks of a watch response into complete frames.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use memchr::memchr;

use crate::api::WireFormat;
use crate::codec::Error;

/// Size in bytes of the length before each protobuf message.
const LENGTH_PREFIX: usize = 4;

/// The buffer retains at most this capacity between frames. Most frames fit into it.
const IDLE_CAPACITY: usize = 16 << 10;

/// Splits a watch response into frames, independent of the boundaries of its chunks.
///
/// Each frame is copied out of its chunks, so that an event in the cache does not hold a complete
/// read buffer in memory.
#[derive(Debug)]
pub struct FrameSplitter {
    format: WireFormat,
    limit: usize,
    chunks: VecDeque<Bytes>,
    /// The received start of a frame that is not complete. Its memory is used again.
    partial: Vec<u8>,
    failed: bool,
}

impl FrameSplitter {
    /// Makes a splitter that fails on a frame longer than `max_frame_bytes`.
    pub fn new(format: WireFormat, max_frame_bytes: usize) -> Self {
        Self {
            format,
            limit: max_frame_bytes,
            chunks: VecDeque::new(),
            partial: Vec::new(),
            failed: false,
        }
    }

    /// Adds the next chunk of the response; ignored after an error.
    pub fn push(&mut self, chunk: Bytes) {
        if !self.failed && !chunk.is_empty() {
            self.chunks.push_back(chunk);
        }
    }

    /// Returns the next complete frame, including its line break (JSON) or its length prefix
    /// (protobuf). Returns `None` until more chunks are pushed.
    ///
    /// # Errors
    ///
    /// If a frame is too long. All later calls return `None`.
    #[expect(clippy::should_implement_trait, reason = "None does not mean the end")]
    pub fn next(&mut self) -> Option<Result<Bytes, Error>> {
        let next = match self.format {
            WireFormat::Json => self.next_line(),
            WireFormat::Protobuf => self.next_message(),
        };
        if let Err(error) = next {
            self.failed = true;
            self.chunks.clear();
            self.partial = Vec::new();
            return Some(Err(error));
        }
        next.transpose()
    }

    /// Returns true if every pushed byte was returned in a frame or skipped as an empty line.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.partial.is_empty()
    }

    /// Checks at the end of the stream that it ended between two frames.
    ///
    /// # Errors
    ///
    /// [`Error::TruncatedFrame`] if the stream ended inside a frame.
    pub fn finish(&self) -> Result<(), Error> {
        let rest = self.partial.len() + self.chunks.iter().map(Bytes::len).sum::<usize>();
        let is_blank = |bytes: &[u8]| bytes.trim_ascii().is_empty();
        let all_blank = is_blank(&self.partial) && self.chunks.iter().all(|chunk| is_blank(chunk));
        match self.format {
            WireFormat::Json if all_blank => Ok(()),
            _ if rest == 0 => Ok(()),
            _ => Err(Error::TruncatedFrame(rest)),
        }
    }

    fn next_line(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(chunk) = self.chunks.front() {
            let end = memchr(b'\n', chunk).map(|position| position + 1);
            let length = end.unwrap_or(chunk.len());
            self.check(self.partial.len() + length)?;
            let frame = self.take(length, end.is_some());
            if let Some(line) = frame.filter(|line| !line.trim_ascii().is_empty()) {
                return Ok(Some(line));
            }
        }
        Ok(None)
    }

    fn next_message(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(chunk) = self.chunks.front() {
            let known = self.partial.iter().chain(chunk).take(LENGTH_PREFIX);
            let is_known = self.partial.len() + chunk.len() >= LENGTH_PREFIX;
            let message = known.fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
            let frame = if is_known {
                message.saturating_add(LENGTH_PREFIX)
            } else {
                LENGTH_PREFIX
            };
            self.check(frame)?;
            let missing = frame - self.partial.len();
            let length = missing.min(chunk.len());
            if let Some(frame) = self.take(length, is_known && length == missing) {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    fn check(&self, length: usize) -> Result<(), Error> {
        if length > self.limit {
            return Err(Error::FrameTooLarge { limit: self.limit });
        }
        Ok(())
    }

    /// Takes `length` bytes from the first chunk. Returns the frame if `completes` is true.
    fn take(&mut self, length: usize, completes: bool) -> Option<Bytes> {
        let chunk = self.chunks.front_mut()?;
        let frame = if completes && self.partial.is_empty() {
            Some(Bytes::copy_from_slice(&chunk[..length]))
        } else {
            self.partial.extend_from_slice(&chunk[..length]);
            completes.then(|| {
                // The cache may hold the frame for a long time, so it has no unused capacity.
                let frame = Bytes::copy_from_slice(&self.partial);
                self.partial.clear();
                self.partial.shrink_to(IDLE_CAPACITY);
                frame
            })
        };
        chunk.advance(length);
        if chunk.is_empty() {
            self.chunks.pop_front();
        }
        frame
    }
}

#[cfg(test)]
mod tests;
