//! The gathered output of an HTTP/2 connection, and its writes to the socket.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::{io, mem};

use crate::ledger::{Buffer, Buffers};
use crate::net::{Transport, pieces};

thread_local! {
    /// A buffer that connections of this thread take in turn, each for the duration of a write.
    static SPARE_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A shorter rest of the output is kept in a buffer of its own length.
pub(super) const SHORT_REST: usize = 4 << 10;

/// The output of a connection that its socket has not taken.
pub(super) struct Gathered {
    buffers: Arc<Buffers>,
    /// The memory of `bytes` that was last published in `buffers`.
    published: usize,
    bytes: Vec<u8>,
    /// The number of bytes of `bytes` that are already written.
    written: usize,
    /// The bytes that the socket has buffered since all output was last written.
    taken: usize,
    /// False if the socket may hold bytes that it has not flushed.
    is_flushed: bool,
}

/// Returns the socket of a connection that has not ended.
pub(super) fn socket<I>(io: &mut Option<I>) -> io::Result<&mut I> {
    io.as_mut()
        .ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// Returns a buffer to the thread, which keeps the larger of two.
fn give_back(mut buffer: Vec<u8>) {
    buffer.clear();
    let spare = SPARE_BUFFER.take();
    let is_larger = buffer.capacity() > spare.capacity();
    SPARE_BUFFER.set(if is_larger { buffer } else { spare });
}

// === impl Gathered ===

impl Gathered {
    /// The bytes that wait to be written are published in `buffers`.
    pub(super) fn new(buffers: Arc<Buffers>) -> Self {
        Self {
            buffers,
            published: 0,
            bytes: Vec::new(),
            written: 0,
            taken: 0,
            is_flushed: true,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns how many bytes are gathered, or buffered by the socket.
    pub(super) fn waiting(&self) -> usize {
        self.bytes.len() + self.taken
    }

    /// Returns true if no more bytes can be gathered.
    pub(super) fn is_full<I: Transport>(&self) -> bool {
        self.room::<I>() == 0
    }

    /// Returns how many bytes can be gathered.
    pub(super) fn room<I: Transport>(&self) -> usize {
        I::GATHER_SIZE - self.bytes.len()
    }

    /// Takes the buffer of the thread, unless the connection has it already. This must be called
    /// before [`add`](Self::add).
    pub(super) fn take_buffer<I: Transport>(&mut self) {
        if self.bytes.capacity() < I::GATHER_SIZE {
            let mut buffer = SPARE_BUFFER.take();
            buffer.reserve_exact(I::GATHER_SIZE);
            pieces::append(&mut buffer, &self.bytes[self.written..]);
            self.written = 0;
            self.bytes = buffer;
        }
    }

    /// Gathers bytes, for which there must be [`room`](Self::room).
    pub(super) fn add(&mut self, bytes: &[u8]) {
        pieces::append(&mut self.bytes, bytes);
    }

    /// Passes gathered bytes to the buffer of the socket. Returns true if it has taken some.
    pub(super) fn pass_to_io<I: Transport>(&mut self, io: &mut Option<I>) -> io::Result<bool> {
        let taken = socket(io)?.buffer(&self.bytes[self.written..])?;
        if taken == 0 {
            return Ok(false);
        }
        self.bytes.drain(..self.written + taken);
        self.written = 0;
        self.taken += taken;
        self.is_flushed = false;
        Ok(true)
    }

    /// Writes gathered bytes; ready when at least some were written.
    pub(super) fn poll_make_room<I: Transport>(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut Option<I>,
    ) -> Poll<io::Result<()>> {
        let written = self.poll_write_buffer(cx, io);
        if let Poll::Ready(Err(error)) = written {
            return Poll::Ready(Err(error));
        }
        if self.written == 0 {
            return Poll::Pending;
        }
        self.bytes.drain(..self.written);
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_write_buffer<I: Transport>(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut Option<I>,
    ) -> Poll<io::Result<()>> {
        while self.written < self.bytes.len() {
            let rest = &self.bytes[self.written..];
            let written = ready!(Pin::new(socket(io)?).poll_write(cx, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
            self.is_flushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes all gathered bytes, flushes the socket, and returns the buffer to the thread.
    pub(super) fn poll_drain<I: Transport>(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut Option<I>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_write_buffer(cx, io))?;
        if self.bytes.capacity() > 0 {
            self.written = 0;
            give_back(mem::take(&mut self.bytes));
        }
        if !self.is_flushed {
            ready!(Pin::new(socket(io)?).poll_flush(cx))?;
            self.is_flushed = true;
        }
        self.taken = 0;
        Poll::Ready(Ok(()))
    }

    /// Keeps a short rest of the output in a buffer of its own length, and returns the large buffer
    /// to the thread. Otherwise each connection that waits would hold a large one.
    pub(super) fn shrink(&mut self) {
        let rest = self.bytes.len() - self.written;
        if rest < SHORT_REST && self.bytes.capacity() >= SHORT_REST {
            let mut kept = Vec::with_capacity(rest);
            pieces::append(&mut kept, &self.bytes[self.written..]);
            self.written = 0;
            give_back(mem::replace(&mut self.bytes, kept));
        }
    }

    /// Publishes the memory of the gathered bytes. The memory is returned when all bytes were
    /// written, so there is usually nothing to publish.
    pub(super) fn publish(&mut self) {
        let held = self.bytes.capacity();
        if held != self.published {
            self.published = held;
            self.buffers.set(Buffer::Gathered, held as u64);
        }
    }

    /// Removes the gathered bytes, which are not written any more.
    pub(super) fn remove(&mut self) -> Vec<u8> {
        let removed = mem::take(&mut self.bytes);
        self.publish();
        removed
    }

    /// Returns the gathered bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> &Vec<u8> {
        &self.bytes
    }
}
