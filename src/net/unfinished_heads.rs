//! Charges the head of a request while it is unfinished.
//!
//! The HTTP library keeps what it has received of a head, and there is no request yet that could be
//! charged or refused. A short head is part of what each connection costs. For a longer one the
//! most that the library may keep is charged, until the head is finished. Without memory for it, the
//! connection ends.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::task::ready;

use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
use tokio::io::ReadBuf;

use crate::ledger::Account;
use crate::ledger::Charge;
use crate::ledger::Kind;

/// Bytes of an unfinished head over HTTP/1.1 that are not charged. Over HTTP/2 a head in one frame,
/// of 16 KiB at most, is not.
const FREE_BYTES: usize = 16 << 10;

/// A transport whose account is charged for the unfinished head of a request.
pub(super) struct UnfinishedHeads<I> {
    io: I,
    /// `None` charges nothing.
    account: Option<Arc<Account>>,
    /// The most bytes that the HTTP library keeps of one head.
    most: u64,
    heads: Heads,
    charge: Option<Charge>,
}

/// What is known of the current head.
pub(super) enum Heads {
    Http1(Http1Head),
    Http2(HeaderBlock),
}

/// Over HTTP/1.1 all bytes between two requests are of a head.
pub(super) struct Http1Head {
    requests: Arc<Requests>,
    /// `requests.started` when `received` was 0.
    started: usize,
    received: usize,
}

/// Over HTTP/2 a head is a HEADERS frame, which CONTINUATION frames follow unless it has all of it
/// (RFC 9113, 4.3).
pub(super) struct HeaderBlock {
    /// The beginning of a frame: its length, its type and its flags.
    frame_head: [u8; HeaderBlock::FRAME_HEAD],
    received: usize,
    /// Bytes until the next frame.
    skipped: usize,
    is_unfinished: bool,
}

/// The requests of an HTTP/1.1 connection.
#[derive(Debug, Default)]
pub(super) struct Requests {
    started: AtomicUsize,
    ended: AtomicUsize,
}

/// A request whose answer has not been sent.
#[derive(Debug)]
pub(super) struct InProgress(Arc<Requests>);

// === impl Requests ===

impl Requests {
    /// Counts a request until the returned value is dropped.
    pub(super) fn start(self: &Arc<Self>) -> InProgress {
        self.started.fetch_add(1, Ordering::Relaxed);
        InProgress(Arc::clone(self))
    }
}

impl InProgress {
    /// Counts the request for ever, because no head follows it. Returns `None`.
    pub(super) fn keep(self) -> Option<InProgress> {
        std::mem::forget(self);
        None
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

// === impl Heads ===

impl Heads {
    /// The heads of an HTTP/1.1 connection that has these requests.
    pub(super) fn http1(requests: Arc<Requests>) -> Self {
        Self::Http1(Http1Head {
            requests,
            started: 0,
            received: 0,
        })
    }

    /// The heads of an HTTP/2 connection, which begins with the preface.
    pub(super) fn http2() -> Self {
        /// Length of the preface (RFC 9113, 3.4).
        const PREFACE: usize = 24;
        Self::Http2(HeaderBlock {
            frame_head: [0; HeaderBlock::FRAME_HEAD],
            received: 0,
            skipped: PREFACE,
            is_unfinished: false,
        })
    }

    /// Takes note of `data`, which was received. Returns true if an unfinished head is long.
    fn receive(&mut self, data: &[u8]) -> bool {
        match self {
            Self::Http1(head) => head.receive(data.len()),
            Self::Http2(block) => block.receive(data),
        }
    }
}

impl Http1Head {
    fn receive(&mut self, count: usize) -> bool {
        let started = self.requests.started.load(Ordering::Relaxed);
        if started != self.started {
            self.started = started;
            self.received = 0;
        }
        // What arrives during a request is its body.
        if started == self.requests.ended.load(Ordering::Relaxed) {
            self.received += count;
        }
        self.received > FREE_BYTES
    }
}

impl HeaderBlock {
    /// Bytes of a frame's length, type and flags.
    const FRAME_HEAD: usize = 5;
    /// Bytes of a frame's stream identifier, which follows the flags.
    const STREAM: usize = 4;
    const HEADERS: u8 = 1;
    const CONTINUATION: u8 = 9;
    const END_HEADERS: u8 = 4;

    fn receive(&mut self, mut data: &[u8]) -> bool {
        while !data.is_empty() {
            let skipped = self.skipped.min(data.len());
            self.skipped -= skipped;
            data = &data[skipped..];
            let missing = Self::FRAME_HEAD - self.received;
            let (own, rest) = data.split_at(missing.min(data.len()));
            self.frame_head[self.received..][..own.len()].copy_from_slice(own);
            self.received += own.len();
            data = rest;
            if self.received == Self::FRAME_HEAD {
                self.received = 0;
                let [a, b, c, kind, flags] = self.frame_head;
                let length = u32::from_be_bytes([0, a, b, c]) as usize;
                self.skipped = length + Self::STREAM;
                if matches!(kind, Self::HEADERS | Self::CONTINUATION) {
                    self.is_unfinished = flags & Self::END_HEADERS == 0;
                }
            }
        }
        self.is_unfinished
    }
}

// === impl UnfinishedHeads ===

impl<I> UnfinishedHeads<I> {
    /// Charges `most` bytes to `account` for each long head in what is read from `io`.
    pub(super) fn new(io: I, account: Option<Arc<Account>>, most: u64, heads: Heads) -> Self {
        Self {
            io,
            account,
            most,
            heads,
            charge: None,
        }
    }

    /// Charges what `data` has begun, and ends the charge for what it has finished.
    fn receive(&mut self, data: &[u8]) -> io::Result<()> {
        let Some(account) = &self.account else {
            return Ok(());
        };
        match (self.heads.receive(data), &self.charge) {
            (true, None) => {
                let charge = account.charge(Kind::Head, self.most);
                self.charge = Some(charge.map_err(io::Error::other)?);
            }
            (false, Some(_)) => self.charge = None,
            _ => {}
        }
        Ok(())
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for UnfinishedHeads<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The read after a head that was finished meanwhile ends its charge.
        self.receive(&[])?;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        Poll::Ready(self.receive(&buffer.filled()[before..]))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for UnfinishedHeads<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::ledger::Ledger;
    use crate::ledger::Limits;

    const MOST: u64 = 256 << 10;

    fn ledger() -> Ledger {
        Ledger::new(Limits::new(Some(16 << 20), Some(1 << 20), 0))
    }

    fn charged(ledger: &Ledger) -> u64 {
        let usage = ledger.usage();
        let head = usage.iter().find(|(kind, _)| *kind == "head");
        head.expect("the kind").1
    }

    /// An HTTP/2 frame.
    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let [_, a, b, c] = u32::try_from(payload).expect("short").to_be_bytes();
        let mut frame = vec![a, b, c, kind, flags, 0, 0, 0, 1];
        frame.resize(frame.len() + payload, b'x');
        frame
    }

    /// Reads `count` bytes, which are there.
    fn read(io: &mut UnfinishedHeads<&[u8]>, count: usize) -> io::Result<usize> {
        let mut buffer = vec![0; count];
        let read = io.read_exact(&mut buffer).now_or_never();
        read.expect("nothing to wait for")
    }

    #[test]
    fn a_head_of_several_frames_is_charged_until_the_last_one() {
        for step in [1, 7, 10_000] {
            let ledger = ledger();
            let parts = [
                (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), 0),
                (frame(4, 0, 0), 0),
                (frame(1, 5, 300), 0),
                (frame(1, 1, 16_384), MOST),
                (frame(9, 0, 16_384), MOST),
                (frame(9, 4, 10), 0),
                // Data whose flag is the same bit.
                (frame(0, 0, 16_384), 0),
                (frame(1, 0, 1), MOST),
            ];
            let bytes: Vec<_> = parts.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
            let account = Some(ledger.open_account());
            let mut io = UnfinishedHeads::new(&bytes[..], account, MOST, Heads::http2());
            for (index, (bytes, expected)) in parts.iter().enumerate() {
                let mut left = bytes.len();
                while left > 0 {
                    let count = left.min(step);
                    read(&mut io, count).expect("memory");
                    left -= count;
                }
                assert_eq!(charged(&ledger), *expected, "part {index} by {step}");
            }
            drop(io);
            assert_eq!(ledger.leased(), 0);
        }
    }

    #[test]
    fn over_http1_what_arrives_between_requests_is_a_head() {
        let ledger = ledger();
        let requests = Arc::<Requests>::default();
        let bytes = vec![b'x'; 1 << 20];
        let (account, heads) = (ledger.open_account(), Heads::http1(Arc::clone(&requests)));
        let mut io = UnfinishedHeads::new(&bytes[..], Some(account), MOST, heads);
        read(&mut io, FREE_BYTES).expect("memory");
        assert_eq!(charged(&ledger), 0);
        read(&mut io, 1).expect("memory");
        assert_eq!(charged(&ledger), MOST);
        let request = requests.start();
        read(&mut io, 100_000).expect("memory");
        assert_eq!(charged(&ledger), 0, "it is a body");
        drop(request);
        // Many short requests are not one long head.
        for _ in 0..10 {
            read(&mut io, FREE_BYTES - 1).expect("memory");
            drop(requests.start());
        }
        assert_eq!(charged(&ledger), 0);
        assert!(requests.start().keep().is_none());
        read(&mut io, 100_000).expect("memory");
        assert_eq!(charged(&ledger), 0, "it is not HTTP any more");
    }

    #[test]
    fn without_memory_for_a_long_head_the_connection_ends() {
        let ledger = ledger();
        let account = ledger.open_account();
        let all = account.charge(Kind::Stream, 900 << 10).expect("memory");
        let bytes = vec![b'x'; 2 * FREE_BYTES];
        let heads = || Heads::http1(Arc::default());
        let mut io = UnfinishedHeads::new(&bytes[..], Some(Arc::clone(&account)), MOST, heads());
        assert!(read(&mut io, bytes.len()).is_err());
        drop(all);
        let mut io = UnfinishedHeads::new(&bytes[..], Some(account), MOST, heads());
        assert!(read(&mut io, bytes.len()).is_ok());
    }
}
