//! HTTP/2 frames as bytes (RFC 9113, section 4.1).

/// Bytes of a frame in front of its payload: its length, type, flags and stream.
pub(super) const HEAD_BYTES: usize = 9;
/// Bytes of a WINDOW_UPDATE frame (RFC 9113, section 6.9).
pub(super) const UPDATE_BYTES: usize = HEAD_BYTES + 4;
/// The place of the type in a frame.
const KIND: usize = 3;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
/// A type without a meaning. A receiver ignores such a frame (RFC 9113, section 4.1).
pub(super) const UNKNOWN: u8 = 0xff;

pub(super) const ACK: u8 = 0x1;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;

/// The bits of a stream's number or of an increment. The bit above them is reserved.
const NUMBER_MASK: u32 = u32::MAX >> 1;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The bytes of the payload.
    pub(super) length: usize,
    pub(super) kind: u8,
    flags: u8,
    pub(super) stream: u32,
}

/// A received WINDOW_UPDATE frame, which the HTTP library has not got yet.
#[derive(Debug)]
pub(super) struct WindowUpdate<'a>(&'a mut [u8; UPDATE_BYTES]);

/// Returns the head of a DATA frame that does not end its stream.
pub(super) fn data_head(stream: u32, length: usize) -> [u8; HEAD_BYTES] {
    let [.., a, b, c] = length.to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    [a, b, c, DATA, 0, d, e, f, g]
}

/// Returns a WINDOW_UPDATE frame for the connection.
pub(super) fn connection_update(increment: u32) -> [u8; UPDATE_BYTES] {
    let [a, b, c, d] = increment.to_be_bytes();
    [0, 0, 4, WINDOW_UPDATE, 0, 0, 0, 0, 0, a, b, c, d]
}

// === impl Head ===

impl Head {
    pub(super) fn read(head: [u8; HEAD_BYTES]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = head;
        Self {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & NUMBER_MASK,
        }
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns true if the header block in the frame goes on in the next frame. No other frame may
    /// come before that one (RFC 9113, section 6.10).
    pub(super) fn is_continued(self) -> bool {
        matches!(self.kind, HEADERS | CONTINUATION) && !self.has(END_HEADERS)
    }

    /// Returns true if the frame is the last one that its sender sends for the stream's message.
    pub(super) fn ends_message(self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.has(END_STREAM)
    }
}

// === impl WindowUpdate ===

impl<'a> WindowUpdate<'a> {
    pub(super) fn new(frame: &'a mut [u8; UPDATE_BYTES]) -> Self {
        Self(frame)
    }

    /// Returns the stream; 0 is the connection.
    pub(super) fn stream(&self) -> u32 {
        let [_, _, _, _, _, a, b, c, d, ..] = *self.0;
        u32::from_be_bytes([a, b, c, d]) & NUMBER_MASK
    }

    pub(super) fn increment(&self) -> u32 {
        let [.., a, b, c, d] = *self.0;
        u32::from_be_bytes([a, b, c, d]) & NUMBER_MASK
    }

    pub(super) fn set_increment(&mut self, increment: u32) {
        self.0[HEAD_BYTES..].copy_from_slice(&increment.to_be_bytes());
    }

    /// Makes the HTTP library ignore the frame.
    pub(super) fn hide(&mut self) {
        self.0[KIND] = UNKNOWN;
    }
}
