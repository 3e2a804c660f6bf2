//! Finds the frames in what the HTTP library writes.

use super::frames::{HEAD_BYTES, Head};

/// The place in what the library has written, however it is divided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WrittenFrames {
    /// The beginning of the next frame.
    head: [u8; HEAD_BYTES],
    /// The number of bytes of `head` that were written.
    arrived: usize,
    /// The bytes of the current frame's payload that are still to come.
    left: usize,
    /// True if the header block in the current or last frame goes on in the next one.
    is_continued: bool,
}

// === impl WrittenFrames ===

impl WrittenFrames {
    /// Returns true if another frame may be written now.
    pub(super) fn is_between_frames(&self) -> bool {
        self.arrived + self.left == 0 && !self.is_continued
    }

    /// Returns the next head that is complete, and removes it from `bytes`, with what is before it.
    /// The payload follows.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Option<Head> {
        let payload = self.left.min(bytes.len());
        self.left -= payload;
        *bytes = &bytes[payload..];
        let missing = HEAD_BYTES - self.arrived;
        let (own, rest) = bytes.split_at(missing.min(bytes.len()));
        self.head[self.arrived..][..own.len()].copy_from_slice(own);
        self.arrived += own.len();
        *bytes = rest;
        if self.arrived < HEAD_BYTES {
            return None;
        }
        self.arrived = 0;
        let head = Head::read(self.head);
        self.left = head.length;
        self.is_continued = head.is_continued();
        Some(head)
    }
}
