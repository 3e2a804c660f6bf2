//! Ends connections whose peer reads nothing for a long time, and charges their output until then.
//!
//! What waits in the buffers of a connection is charged to its account when its peer has taken no
//! byte for a second. So a peer that reads costs no charge, however much it is sent. Without memory
//! for it, the connection ends then.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
use tokio::io::ReadBuf;
use tokio::time::Sleep;
use tokio::time::sleep;

use crate::ledger::Account;
use crate::ledger::Charge;
use crate::ledger::Kind;
use crate::net::Transport;

/// How long a write may wait before the output of its connection is charged.
const FREE_STALL: Duration = Duration::from_secs(1);

/// A socket on which a write fails if the peer takes no byte for `limit`.
pub(super) struct WriteTimeout<I> {
    io: I,
    limit: Duration,
    is_upgraded: Arc<AtomicBool>,
    /// True if the kernel does not limit stalls any more either.
    allows_stalls: bool,
    /// `None` charges nothing.
    account: Option<Arc<Account>>,
    /// Upper limit of the bytes of output that wait.
    waiting: usize,
    /// `None` while no write waits.
    stall: Option<Box<Stall>>,
}

/// A write that waits.
struct Stall {
    timer: Pin<Box<Sleep>>,
    /// What is left of the limit when the timer has run.
    left: Duration,
    charge: Option<Charge>,
}

/// A connection, upgraded or not, on which a write fails if the peer takes no byte for `limit`.
pub fn limit_stalls<I: Transport + Send>(
    io: I,
    limit: Duration,
) -> impl AsyncRead + AsyncWrite + Send + Unpin {
    WriteTimeout::new(io, limit, None).0
}

/// Switches off the timeout of a [`WriteTimeout`] when its connection has been upgraded: the peer
/// may pause for any time, such as while a person pages through the output of exec.
pub(super) struct UpgradeFlag(Arc<AtomicBool>);

impl UpgradeFlag {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<I: Transport> WriteTimeout<I> {
    /// A socket whose output is charged to `account`.
    pub(super) fn new(
        io: I,
        limit: Duration,
        account: Option<Arc<Account>>,
    ) -> (WriteTimeout<I>, UpgradeFlag) {
        let is_upgraded = Arc::new(AtomicBool::new(false));
        let upgraded = UpgradeFlag(Arc::clone(&is_upgraded));
        let io_with_timeout = WriteTimeout {
            io,
            limit,
            is_upgraded,
            allows_stalls: false,
            account,
            waiting: I::BUFFER_SIZE,
            stall: None,
        };
        (io_with_timeout, upgraded)
    }
}

impl<I: Transport> WriteTimeout<I> {
    /// Lifts the kernel's limit once the connection is upgraded. It must not wait for a write that
    /// is pending: output that fits into the socket's buffer is never pending, but the kernel ends
    /// the connection if the peer does not read it.
    fn lift_after_upgrade(&mut self) -> io::Result<()> {
        if !self.allows_stalls && self.is_upgraded.load(Ordering::Relaxed) {
            self.io.allow_stalls()?;
            self.allows_stalls = true;
        }
        Ok(())
    }

    fn check_timeout<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.lift_after_upgrade()?;
        if written.is_ready() || self.allows_stalls {
            self.stall = None;
            return written;
        }
        let limit = self.limit;
        let stall = self
            .stall
            .get_or_insert_with(|| Box::new(Stall::new(limit)));
        while stall.timer.as_mut().poll(cx).is_ready() {
            if stall.left.is_zero() {
                let message = format!("the peer read nothing for {limit:?}");
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)));
            }
            stall.timer = Box::pin(sleep(std::mem::take(&mut stall.left)));
        }
        let is_long = stall.left.is_zero();
        match &self.account {
            Some(account) if is_long => stall.charge(account, self.waiting)?,
            _ => {}
        }
        Poll::Pending
    }
}

// === impl Stall ===

impl Stall {
    fn new(limit: Duration) -> Self {
        let first = limit.min(FREE_STALL);
        Self {
            timer: Box::pin(sleep(first)),
            left: limit - first,
            charge: None,
        }
    }

    /// Charges at least `bytes`.
    fn charge(&mut self, account: &Arc<Account>, bytes: usize) -> io::Result<()> {
        /// Bytes that are charged together.
        const STEP: u64 = 16 << 10;
        let bytes = (bytes as u64).next_multiple_of(STEP);
        let charged = match &mut self.charge {
            Some(charge) if charge.bytes() < bytes => charge.resize(bytes),
            None if bytes > 0 => account
                .charge(Kind::Output, bytes)
                .map(|charge| self.charge = Some(charge)),
            _ => Ok(()),
        };
        charged.map_err(io::Error::other)
    }
}

impl<I: Transport> AsyncWrite for WriteTimeout<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, data);
        self.check_timeout(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, data);
        self.check_timeout(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.check_timeout(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.check_timeout(cx, shut)
    }
}

impl<I: Transport> AsyncRead for WriteTimeout<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.lift_after_upgrade()?;
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<I: Transport> Transport for WriteTimeout<I> {
    const GATHER_SIZE: usize = I::GATHER_SIZE;
    const BUFFER_SIZE: usize = I::BUFFER_SIZE;

    fn buffer(&mut self, data: &[u8]) -> io::Result<usize> {
        self.io.buffer(data)
    }

    fn note_waiting(&mut self, bytes: usize) {
        self.waiting = bytes;
    }

    fn allow_stalls(&self) -> io::Result<()> {
        self.io.allow_stalls()
    }
}

#[cfg(test)]
mod tests;
