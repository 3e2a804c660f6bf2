//! The socket of a connection while its requests are served.
//!
//! What the socket receives is passed to its measure, and output that waits for the peer is
//! measured. A write fails if the peer takes nothing for a long time. The socket of an HTTP/2
//! connection is not read while it has started enough work.
//!
//! The socket of a listener's connection owns its slot, whichever task has the socket: an upgraded
//! connection counts as open until it is closed.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::accept::client_socket::FirstBytes;
use super::accept::file_slots::{ConnectionSlot, FileSlots};
use super::input::paced_reads::PacedReads;
use super::input::received::Reads;
use crate::ledger::{Buffer, Buffers};
use crate::net::Transport;

/// A transport with limits and measures.
pub struct ServedSocket<I> {
    io: I,
    /// The bytes that were read to detect the protocol. Reads begin with them.
    first: FirstBytes,
    /// Bytes that were read and measured, but not used. They are read again before all others.
    again: Bytes,
    /// `None` if the connection is of no listener.
    slot: Option<ConnectionSlot>,
    /// A write fails if the peer takes no byte for this time.
    limit: Duration,
    /// Turns the limit off when the connection has been upgraded. The peer of an upgraded
    /// connection may pause for any time, for example while a person reads the output of exec in a
    /// pager.
    is_upgraded: Arc<AtomicBool>,
    /// True while output waits for the peer, unless the connection was upgraded.
    is_blocked: Arc<AtomicBool>,
    /// True if the kernel does not limit stalls any more.
    allows_stalls: bool,
    /// Runs while a write waits; `None` otherwise.
    timer: Option<Pin<Box<Sleep>>>,
    /// `None` if the bytes of the connection are not measured.
    meter: Option<Meter>,
    /// `None` if the socket may be read at any time.
    pacing: Option<PacedReads>,
}

/// The measure of a socket's input, and of the output that the socket has not taken. A socket
/// usually takes all output at once. Nothing is published then.
pub(super) struct Meter {
    buffers: Arc<Buffers>,
    reads: Reads,
    /// The bytes of output that were last published.
    waiting: usize,
}

// === impl Meter ===

impl Meter {
    pub(super) fn new(buffers: Arc<Buffers>, reads: Reads) -> Self {
        Self {
            buffers,
            reads,
            waiting: 0,
        }
    }

    fn publish(&mut self, waiting: usize) {
        if waiting != self.waiting {
            self.waiting = waiting;
            self.buffers.set(Buffer::Encrypted, waiting as u64);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.publish(0);
    }
}

// === impl ServedSocket ===

impl<I> ServedSocket<I> {
    /// Creates the socket of a connection, upgraded or not. It is not measured. A write fails if
    /// the peer takes no byte for `limit`.
    pub fn new(io: I, limit: Duration) -> Self {
        Self {
            io,
            first: FirstBytes::default(),
            again: Bytes::new(),
            slot: None,
            limit,
            is_upgraded: Arc::default(),
            is_blocked: Arc::default(),
            allows_stalls: false,
            timer: None,
            meter: None,
            pacing: None,
        }
    }

    pub(super) fn accepted(mut self, first: FirstBytes, slot: ConnectionSlot) -> Self {
        self.first = first;
        self.slot = Some(slot);
        self
    }

    pub(super) fn metered(mut self, meter: Meter) -> Self {
        self.meter = Some(meter);
        self
    }

    pub(super) fn paced(mut self, pacing: Option<PacedReads>) -> Self {
        self.pacing = pacing;
        self
    }

    /// Returns the flag that turns off the limit of writes when the connection has been upgraded.
    pub(super) fn is_upgraded(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_upgraded)
    }

    /// Returns the flag that is true while output waits for the peer.
    pub(super) fn is_blocked(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_blocked)
    }

    /// Makes the next reads return `bytes`, which were read before.
    pub(super) fn read_again(&mut self, bytes: Vec<u8>) {
        self.again = bytes.into();
    }

    /// Returns the slots that a request takes a slot for a second file from; `None` if files are
    /// not limited.
    pub(super) fn file_slots(&self) -> Option<FileSlots> {
        self.slot.as_ref().map(|slot| slot.files().clone())
    }

    fn record_sent(&self, bytes: usize) {
        if let Some(pacing) = &self.pacing {
            pacing.limit.record_sent(bytes);
        }
    }
}

impl<I: Transport> ServedSocket<I> {
    /// Removes the kernel's limit once the connection is upgraded. This must not wait for a pending
    /// write: output that fits into the socket's buffer is never pending, but the kernel would end
    /// the connection if the peer does not read the output.
    fn lift_limit_after_upgrade(&mut self) -> io::Result<()> {
        if !self.allows_stalls && self.is_upgraded.load(Ordering::Relaxed) {
            self.io.allow_stalls()?;
            self.allows_stalls = true;
        }
        Ok(())
    }

    fn after_write(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = written {
            self.record_sent(count);
        }
        self.after_output(cx, written)
    }

    fn after_flush(
        &mut self,
        cx: &mut Context<'_>,
        flushed: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        if let (Poll::Ready(_), Some(meter)) = (&flushed, &mut self.meter) {
            meter.publish(0);
        }
        self.after_output(cx, flushed)
    }

    /// Publishes the output that waits if the write is pending. After any other write, a flush
    /// follows. Fails if the write has waited for too long.
    fn after_output<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let (Poll::Pending, Some(meter)) = (&written, &mut self.meter) {
            meter.publish(self.io.waiting());
        }
        self.lift_limit_after_upgrade()?;
        if written.is_ready() || self.allows_stalls {
            if self.timer.take().is_some() {
                self.is_blocked.store(false, Ordering::Relaxed);
            }
            return written;
        }
        self.is_blocked.store(true, Ordering::Relaxed);
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        timer.as_mut().poll(cx).map(|()| {
            let message = format!("the peer read nothing for {limit:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        })
    }
}

impl<I: Transport> AsyncRead for ServedSocket<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.again.is_empty() {
            let length = this.again.len().min(buffer.remaining());
            buffer.put_slice(&this.again.split_to(length));
            return Poll::Ready(Ok(()));
        }
        if let Some(pacing) = &mut this.pacing {
            ready!(pacing.poll_turn(cx));
        }
        this.lift_limit_after_upgrade()?;
        let before = buffer.filled().len();
        if !this.first.replay(buffer) {
            ready!(Pin::new(&mut this.io).poll_read(cx, buffer))?;
        }
        if let Some(meter) = &mut this.meter {
            meter.reads.receive(&buffer.filled()[before..]);
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: Transport> AsyncWrite for ServedSocket<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, data);
        self.after_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, data);
        self.after_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.after_flush(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.after_flush(cx, shut)
    }
}

impl<I: Transport> Transport for ServedSocket<I> {
    const GATHER_SIZE: usize = I::GATHER_SIZE;

    fn buffer(&mut self, data: &[u8]) -> io::Result<usize> {
        let taken = self.io.buffer(data)?;
        self.record_sent(taken);
        Ok(taken)
    }
}

#[cfg(test)]
mod tests;
