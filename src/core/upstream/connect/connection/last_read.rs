//! The time of the last bytes from the peer of a connection, which prove that the peer still runs,
//! the end of the connection, and the open connection that records both.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::Instant;

/// The time of a connection's last received bytes. Clones share it.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct LastRead(Arc<ReadTime>);

#[derive(Debug)]
struct ReadTime {
    opened: Instant,
    /// Milliseconds from `opened` to the last received bytes.
    last_read_ms: AtomicU64,
    /// True after the first bytes.
    has_read: watch::Sender<bool>,
    /// True when the connection was closed.
    is_closed: watch::Sender<bool>,
}

/// A byte stream that carries a connection: TCP, a tunnel, TLS or memory.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// An open connection, with TLS or without. It records when bytes are received.
pub(in crate::upstream) struct TimedIo {
    io: Box<dyn Io>,
    /// True if ALPN chose HTTP/2; always false without TLS.
    pub(in crate::upstream) http2: bool,
    /// It is updated even after the stream was given away.
    pub(in crate::upstream) last_read: LastRead,
}

// === impl LastRead ===

impl LastRead {
    fn at_open() -> Self {
        Self(Arc::new(ReadTime {
            opened: Instant::now(),
            last_read_ms: AtomicU64::new(0),
            has_read: watch::Sender::new(false),
            is_closed: watch::Sender::new(false),
        }))
    }

    fn set_now(&self) {
        let now = self.0.opened.elapsed().as_millis() as u64;
        self.0.last_read_ms.store(now, Ordering::Relaxed);
        if !*self.0.has_read.borrow() {
            self.0.has_read.send_replace(true);
        }
    }

    /// Completes when the first bytes were received. Cancel safe.
    pub(in crate::upstream::connect) async fn first(&self) {
        let mut has_read = self.0.has_read.subscribe();
        // The sender is in `self`, so this cannot fail.
        let _ = has_read.wait_for(|has_read| *has_read).await;
    }

    /// Completes when the connection was closed, or was upgraded and then closed. Cancel safe.
    pub(in crate::upstream::connect) async fn closed(&self) {
        let mut is_closed = self.0.is_closed.subscribe();
        // The sender is in `self`, so this cannot fail.
        let _ = is_closed.wait_for(|is_closed| *is_closed).await;
    }

    /// Returns true if both belong to one connection.
    pub(in crate::upstream::connect) fn is_of_same_connection(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the time when bytes were last received, or when the connection was
    /// opened if there were none.
    pub(in crate::upstream) fn at(&self) -> Instant {
        let after = self.0.last_read_ms.load(Ordering::Relaxed);
        self.0.opened + Duration::from_millis(after)
    }
}

// === impl TimedIo ===

impl TimedIo {
    pub(in crate::upstream) fn new(io: Box<dyn Io>, http2: bool) -> Self {
        let last_read = LastRead::at_open();
        Self {
            io,
            http2,
            last_read,
        }
    }
}

impl Connection for TimedIo {
    fn connected(&self) -> Connected {
        let connected = Connected::new().extra(self.last_read.clone());
        if self.http2 {
            connected.negotiated_h2()
        } else {
            connected
        }
    }
}

impl Drop for TimedIo {
    fn drop(&mut self) {
        self.last_read.0.is_closed.send_replace(true);
    }
}

impl AsyncRead for TimedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        // The end of the stream is not counted: a proxy may close the connection of a dead server.
        if buf.filled().len() > before {
            self.last_read.set_now();
        }
        read
    }
}

impl AsyncWrite for TimedIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}
