//! Divides what an HTTP/2 client receives into frames, and gives them to [`Streams`].

use tokio::time::Instant;

use super::frames::{HEAD_BYTES, Head};
use super::streams::Streams;

/// The frames that a connection receives, however the bytes are divided.
#[derive(Debug, Default)]
pub(super) struct ReceivedFrames {
    /// The beginning of a frame that is given away as a whole, and of each frame until its head is
    /// complete.
    frame: Vec<u8>,
    /// A DATA frame that is given away in parts.
    parts: Option<Parts>,
}

/// The rest of a DATA frame for a sink.
#[derive(Debug)]
struct Parts {
    stream: u32,
    /// The number of bytes that are still to come; at least one.
    left: usize,
    is_last: bool,
}

impl ReceivedFrames {
    /// Takes bytes that were read at `read_at`. The payload of a DATA frame for a sink is not
    /// copied; all other frames are collected first.
    pub(super) fn receive(&mut self, mut bytes: &[u8], streams: &mut Streams, read_at: Instant) {
        while !bytes.is_empty() {
            let Some(parts) = &mut self.parts else {
                bytes = self.collect(bytes, streams, read_at);
                continue;
            };
            let (own, rest) = bytes.split_at(parts.left.min(bytes.len()));
            parts.left -= own.len();
            streams.take_part(parts.stream, own, own.len(), read_at);
            if parts.left == 0 {
                if parts.is_last {
                    streams.end(parts.stream);
                }
                self.parts = None;
            }
            bytes = rest;
        }
    }

    /// Collects the missing bytes of the current frame's head, or else those of its payload.
    /// Returns the rest of `bytes`.
    fn collect<'a>(
        &mut self,
        bytes: &'a [u8],
        streams: &mut Streams,
        read_at: Instant,
    ) -> &'a [u8] {
        let end = Head::of(&self.frame).map_or(HEAD_BYTES, |head| HEAD_BYTES + head.length);
        let missing = end - self.frame.len();
        let (own, rest) = bytes.split_at(missing.min(bytes.len()));
        self.frame.extend_from_slice(own);
        let Some(head) = Head::of(&self.frame) else {
            return rest;
        };
        if self.frame.len() == HEAD_BYTES + head.length {
            streams.take_frame(head, &self.frame, read_at);
            self.frame.clear();
        } else if self.frame.len() == HEAD_BYTES
            && head.is_data()
            && !head.is_padded()
            && streams.has_sink(head.stream)
        {
            self.parts = Some(Parts {
                stream: head.stream,
                left: head.length,
                is_last: head.is_last(),
            });
            self.frame.clear();
        }
        rest
    }
}
