//! HTTP/2 frames as bytes (RFC 9113, section 4.1): their heads, and where a client may send another
//! frame between its own.

/// Bytes of a frame in front of its payload.
pub(super) const HEAD_BYTES: usize = 9;
/// Bytes of the preface that a client sends first (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
/// The bits of a stream's number; the bit above them is reserved.
const STREAM_MASK: u32 = u32::MAX >> 1;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The bytes of the payload.
    pub(super) length: usize,
    kind: u8,
    flags: u8,
    pub(super) stream: u32,
}

/// Finds the places between the frames that a client sends where another frame may be sent.
#[derive(Debug)]
pub(super) struct SentFrames {
    /// The beginning of the next frame.
    head: [u8; HEAD_BYTES],
    /// The number of bytes of `head` that were sent.
    sent: usize,
    /// The number of bytes of the current frame's payload that are still to come.
    left: usize,
    /// True if the headers in the current or last frame go on in the next one.
    is_continued: bool,
}

// === impl Head ===

impl Head {
    /// Reads the head of the frame that begins with `frame`; `None` if a part of it is missing.
    pub(super) fn of(frame: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, stream @ ..] = *frame.first_chunk::<HEAD_BYTES>()?;
        Some(Self {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & STREAM_MASK,
        })
    }

    pub(super) fn is_data(self) -> bool {
        self.kind == DATA
    }

    /// Returns true if a DATA frame is the last frame of its stream.
    pub(super) fn is_last(self) -> bool {
        self.flags & END_STREAM != 0
    }

    pub(super) fn is_padded(self) -> bool {
        self.flags & PADDED != 0
    }

    /// Returns true if the headers in a frame go on in the next frame. No other frame may come
    /// before that (RFC 9113, section 6.10).
    pub(super) fn is_continued(self) -> bool {
        matches!(self.kind, HEADERS | PUSH_PROMISE | CONTINUATION) && self.flags & END_HEADERS == 0
    }
}

/// Returns the part of a DATA frame that belongs to the body: its payload without padding.
pub(super) fn content(head: Head, frame: &[u8]) -> &[u8] {
    let payload = frame.get(HEAD_BYTES..).unwrap_or_default();
    if !head.is_padded() {
        return payload;
    }
    let Some((padding, rest)) = payload.split_first() else {
        return &[];
    };
    let content = rest.len().saturating_sub(usize::from(*padding));
    &rest[..content]
}

/// Returns an empty DATA frame that ends `stream`.
pub(super) fn end_of(stream: u32) -> [u8; HEAD_BYTES] {
    let [a, b, c, d] = stream.to_be_bytes();
    [0, 0, 0, DATA, END_STREAM, a, b, c, d]
}

/// Returns a frame that opens the flow-control window of `stream` by `bytes`. Stream 0 is the whole
/// connection.
pub(super) fn window_update(stream: u32, bytes: u32) -> [u8; HEAD_BYTES + 4] {
    let [a, b, c, d] = stream.to_be_bytes();
    let [e, f, g, h] = bytes.to_be_bytes();
    [0, 0, 4, WINDOW_UPDATE, 0, a, b, c, d, e, f, g, h]
}

// === impl SentFrames ===

impl SentFrames {
    /// Creates the state of a connection on which nothing was sent.
    pub(super) fn new() -> Self {
        Self {
            head: [0; HEAD_BYTES],
            sent: 0,
            left: PREFACE_BYTES,
            is_continued: false,
        }
    }

    /// Takes note of bytes that were sent.
    pub(super) fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let missing = HEAD_BYTES - self.sent;
            let (own, rest) = bytes.split_at(missing.min(bytes.len()));
            self.head[self.sent..][..own.len()].copy_from_slice(own);
            self.sent += own.len();
            bytes = rest;
            if self.sent == HEAD_BYTES {
                self.sent = 0;
                let head = Head::of(&self.head);
                self.left = head.map_or(0, |head| head.length);
                self.is_continued = head.is_some_and(Head::is_continued);
            }
        }
    }

    /// Returns true if another frame may be sent now.
    pub(super) fn is_between_frames(&self) -> bool {
        self.sent + self.left == 0 && !self.is_continued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_no_content() {
        let padded = |length: u8, payload: &[u8]| {
            let head = [0, 0, length, DATA, PADDED, 0, 0, 0, 1];
            [&head, payload].concat()
        };
        let table: [(Vec<u8>, &[u8]); 5] = [
            (padded(6, b"\x02abc\0\0"), b"abc"),
            (padded(3, b"\x00ab"), b"ab"),
            (padded(0, b""), b""),
            // More padding than payload is an error of the server; nothing is left.
            (padded(2, b"\x09a"), b""),
            (
                [&[0, 0, 2, DATA, 0, 0, 0, 0, 1], &b"ab"[..]].concat(),
                b"ab",
            ),
        ];
        for (frame, expected) in table {
            let head = Head::of(&frame).expect("a head");
            assert_eq!(content(head, &frame), expected, "{frame:?}");
        }
    }

    #[test]
    fn the_ends_of_sent_frames_are_found_however_they_are_divided() {
        let update = window_update(3, 5);
        let headers = [0, 0, 1, HEADERS, END_STREAM, 0, 0, 0, 3, b'h'];
        let rest = [0, 0, 1, CONTINUATION, END_HEADERS, 0, 0, 0, 3, b'r'];
        let headers = [headers, rest].concat();
        let frames: [&[u8]; 5] = [
            &[b'P'; PREFACE_BYTES],
            &update,
            &headers,
            &end_of(3),
            &update,
        ];
        let sent = frames.concat();
        let mut ends = vec![PREFACE_BYTES];
        for frame in &frames[1..] {
            ends.push(ends[ends.len() - 1] + frame.len());
        }
        for size in 1..sent.len() {
            let mut state = SentFrames::new();
            let mut at = 0;
            for part in sent.chunks(size) {
                state.advance(part);
                at += part.len();
                assert_eq!(
                    state.is_between_frames(),
                    ends.contains(&at),
                    "{size}: {at}"
                );
            }
        }
    }
}
