//! Reads from the socket of an HTTP/2 connection, and changes what the HTTP library must not get.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use super::flow_control::FlowControl;

/// The bytes that were read, but that the library has not got.
#[derive(Debug)]
pub(super) struct FilteredReads {
    /// An incomplete frame head or WINDOW_UPDATE frame, or a frame that is complete by now.
    kept: [u8; FlowControl::UPDATE_BYTES],
    /// The number of bytes of `kept` that are used.
    length: usize,
    /// The number of bytes of `kept` that the library may get.
    ready: usize,
    /// True if the peer sends no more.
    has_ended: bool,
    /// When the peer has last sent something, or when this value was created.
    received_at: Instant,
}

// === impl FilteredReads ===

impl FilteredReads {
    /// Returns the state of a connection that was opened at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            kept: [0; FlowControl::UPDATE_BYTES],
            length: 0,
            ready: 0,
            has_ended: false,
            received_at: now,
        }
    }

    /// Returns when the socket has last had bytes. What kubefan adds does not count.
    pub(super) fn received_at(&self) -> Instant {
        self.received_at
    }

    /// Reads into `buffer`. As for any read, no bytes are the end.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut (impl AsyncRead + Unpin),
        flow: &mut FlowControl,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.length == 0
                && !self.has_ended
                && let Some(frame) = flow.refill()
            {
                self.kept = frame;
                self.length = frame.len();
                self.ready = frame.len();
            }
            if self.ready > 0 {
                self.give(buffer);
                return Poll::Ready(Ok(()));
            }
            if self.length > 0 {
                ready!(self.poll_complete(cx, io, flow))?;
                continue;
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut *io).poll_read(cx, buffer))?;
            let received = &mut buffer.filled_mut()[before..];
            if received.is_empty() {
                self.has_ended = true;
                return Poll::Ready(Ok(()));
            }
            self.received_at = Instant::now();
            let passed = flow.receive(received);
            let rest = &received[passed..];
            self.kept[..rest.len()].copy_from_slice(rest);
            self.length = rest.len();
            buffer.set_filled(before + passed);
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Moves bytes that the library may get to `buffer`, as many as it has room for.
    fn give(&mut self, buffer: &mut ReadBuf<'_>) {
        let given = self.ready.min(buffer.remaining());
        buffer.put_slice(&self.kept[..given]);
        self.kept.copy_within(given..self.length, 0);
        self.length -= given;
        self.ready -= given;
    }

    /// Reads what follows the incomplete bytes.
    fn poll_complete(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut (impl AsyncRead + Unpin),
        flow: &mut FlowControl,
    ) -> Poll<io::Result<()>> {
        let mut missing = ReadBuf::new(&mut self.kept[self.length..]);
        ready!(Pin::new(io).poll_read(cx, &mut missing))?;
        let read = missing.filled().len();
        self.length += read;
        if read == 0 {
            // The peer has left within a frame. The library reports it.
            self.has_ended = true;
            self.ready = self.length;
        } else {
            self.received_at = Instant::now();
            self.ready = flow.receive(&mut self.kept[..self.length]);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
