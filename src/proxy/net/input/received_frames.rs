//! Measures the unfinished head and the bodies in the frames that an HTTP/2 client sends.
//!
//! The frames are not checked: if they are invalid, the HTTP library ends the connection.

use super::header_block::HeaderBlock;

/// Bytes of a frame in front of its payload: its length, type, flags and stream (RFC 9113, 4.1).
const FRAME_HEAD: usize = 9;
/// Length of the preface (RFC 9113, 3.4).
const PREFACE: usize = 24;
/// Bytes that the HTTP library stores for a frame of a body, in addition to its data.
pub(super) const DATA_FRAME_BYTES: u64 = 256;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Bytes of the priority in a HEADERS frame.
const PRIORITY_BYTES: usize = 5;

/// What an HTTP/2 connection has received, however the data was divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReceivedFrames {
    /// The beginning of the next frame.
    head: [u8; FRAME_HEAD],
    /// The number of bytes of `head` that have arrived.
    arrived: usize,
    payload: Payload,
    /// The header block of a request, until its last frame has arrived.
    block: Option<HeaderBlock>,
    max_header_bytes: u32,
    /// What has arrived since the last [`take_control`](Self::take_control).
    control: ControlFrames,
}

/// The number of frames that start no request and carry no body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ControlFrames {
    /// Frames that open a flow-control window.
    pub(super) updates: u32,
    /// Frames that end a stream.
    pub(super) resets: u32,
    /// PING, SETTINGS, PRIORITY, GOAWAY and unknown frames.
    pub(super) others: u32,
}

/// The rest of the payload of the current frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Payload {
    kind: FrameKind,
    /// True if the next byte is the length of the padding.
    is_padded: bool,
    /// The number of bytes of the priority that are still to come.
    priority: usize,
    /// The number of bytes of the content that are still to come.
    content: usize,
    /// The number of bytes of the padding that are still to come.
    padding: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FrameKind {
    /// A part of a header block, and whether it is the last part.
    Head { is_last: bool },
    /// A part of a body.
    Data,
    #[default]
    Other,
}

// === impl ReceivedFrames ===

impl ReceivedFrames {
    /// Creates the measure of a connection that has received nothing. Heads may have
    /// `max_header_bytes`.
    pub(super) fn new(max_header_bytes: u32) -> Self {
        Self {
            head: [0; FRAME_HEAD],
            arrived: 0,
            // The preface is skipped.
            payload: Payload {
                content: PREFACE,
                ..Payload::default()
            },
            block: None,
            max_header_bytes,
            control: ControlFrames::default(),
        }
    }

    /// Returns the control frames that have arrived since the last call.
    pub(super) fn take_control(&mut self) -> ControlFrames {
        std::mem::take(&mut self.control)
    }

    /// Returns about how many bytes the HTTP library holds of an unfinished head.
    pub(super) fn unfinished_head(&self) -> u64 {
        self.block.as_ref().map_or(0, HeaderBlock::held)
    }

    /// Measures `data`, which was received. Returns about how many bytes the HTTP library holds for
    /// the frames of bodies in it.
    pub(super) fn receive(&mut self, mut data: &[u8]) -> u64 {
        let mut held = 0;
        while !data.is_empty() {
            if self.payload.is_empty() {
                let missing = FRAME_HEAD - self.arrived;
                let (own, rest) = data.split_at(missing.min(data.len()));
                self.head[self.arrived..][..own.len()].copy_from_slice(own);
                self.arrived += own.len();
                data = rest;
                if self.arrived == FRAME_HEAD {
                    self.arrived = 0;
                    held += self.begin_frame();
                }
                continue;
            }
            let (content, rest) = self.payload.take(data);
            data = rest;
            match (self.payload.kind, &mut self.block) {
                (FrameKind::Head { .. }, Some(block)) => block.receive(content),
                (FrameKind::Data, _) => held += content.len() as u64,
                _ => {}
            }
            self.end_block_after_its_last_frame();
        }
        held
    }

    /// Returns the bytes that the HTTP library stores for the new frame, in addition to its data.
    fn begin_frame(&mut self) -> u64 {
        let [a, b, c, kind, flags, ..] = self.head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        match kind {
            DATA | HEADERS | CONTINUATION => {}
            RST_STREAM => self.control.resets += 1,
            WINDOW_UPDATE => self.control.updates += 1,
            _ => self.control.others += 1,
        }
        let is_last = flags & END_HEADERS != 0;
        let kind = match kind {
            DATA => FrameKind::Data,
            HEADERS | CONTINUATION => FrameKind::Head { is_last },
            _ => FrameKind::Other,
        };
        let has_fields = self.head[3] == HEADERS;
        let is_padded =
            (has_fields || kind == FrameKind::Data) && flags & PADDED != 0 && length > 0;
        let own = length - usize::from(is_padded);
        let priority = if has_fields && flags & PRIORITY != 0 {
            PRIORITY_BYTES.min(own)
        } else {
            0
        };
        self.payload = Payload {
            kind,
            is_padded,
            priority,
            content: own - priority,
            padding: 0,
        };
        if kind == (FrameKind::Head { is_last: false }) || self.head[3] == CONTINUATION {
            let max = self.max_header_bytes;
            self.block.get_or_insert_with(|| HeaderBlock::new(max));
        }
        self.end_block_after_its_last_frame();
        // The library drops an empty frame that does not end the body.
        let is_kept = kind == FrameKind::Data && (own > 0 || flags & END_STREAM != 0);
        if is_kept { DATA_FRAME_BYTES } else { 0 }
    }

    fn end_block_after_its_last_frame(&mut self) {
        if self.payload.kind == (FrameKind::Head { is_last: true }) && self.payload.is_empty() {
            self.block = None;
        }
    }
}

// === impl Payload ===

impl Payload {
    fn is_empty(&self) -> bool {
        !self.is_padded && self.priority + self.content + self.padding == 0
    }

    /// Takes the beginning of `data`, which is not empty, as a part of the payload. Returns the
    /// bytes of this part that are content, and the rest of `data`.
    fn take<'a>(&mut self, data: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        if std::mem::take(&mut self.is_padded) {
            self.padding = usize::from(data[0]).min(self.content);
            self.content -= self.padding;
            return (&[], &data[1..]);
        }
        let mut rest = data;
        let mut split = |left: &mut usize| {
            let (own, later) = rest.split_at(rest.len().min(*left));
            *left -= own.len();
            rest = later;
            own
        };
        split(&mut self.priority);
        let content = split(&mut self.content);
        split(&mut self.padding);
        (content, rest)
    }
}

#[cfg(test)]
mod tests;
