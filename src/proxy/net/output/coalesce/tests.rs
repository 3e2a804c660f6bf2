use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Waker;

use futures::poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;
use crate::net::transport::MAX_BUFFERED;

/// A socket that follows a script: each write takes some bytes, waits, or fails; then it takes all.
#[derive(Default)]
struct FakeIo {
    script: VecDeque<Step>,
    /// The bytes of each write.
    writes: Vec<Vec<u8>>,
    flushes: usize,
    is_shut: bool,
}

enum Step {
    Take(usize),
    Wait,
    Fail,
}

impl AsyncWrite for FakeIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let taken = match self.script.pop_front() {
            None => data.len(),
            Some(Step::Take(most)) => most.min(data.len()),
            Some(Step::Wait) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(Step::Fail) => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        };
        self.writes.push(data[..taken].to_vec());
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flushes += 1;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_shut = true;
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for FakeIo {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl Transport for FakeIo {}

/// A socket with an encryption buffer of `room` bytes, which takes up to ten bytes per call.
struct EncryptingIo {
    socket: FakeIo,
    room: usize,
    encrypted: Vec<u8>,
    takes: usize,
}

impl AsyncWrite for EncryptingIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.socket).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while !this.encrypted.is_empty() {
            let written = Pin::new(&mut this.socket).poll_write(cx, &this.encrypted);
            let written = ready!(written)?;
            this.encrypted.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

impl AsyncRead for EncryptingIo {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl Transport for EncryptingIo {
    const GATHER_SIZE: usize = 10;

    fn buffer(&mut self, data: &[u8]) -> io::Result<usize> {
        let taken = data.len().min(self.room - self.encrypted.len());
        self.encrypted.extend_from_slice(&data[..taken]);
        self.takes += usize::from(taken > 0);
        Ok(taken)
    }
}

fn encrypting(
    room: usize,
    script: impl IntoIterator<Item = Step>,
) -> (CoalescedIo<EncryptingIo>, Flusher<EncryptingIo>) {
    coalesce(
        EncryptingIo {
            socket: FakeIo {
                script: script.into_iter().collect(),
                ..FakeIo::default()
            },
            room,
            encrypted: Vec::new(),
            takes: 0,
        },
        Arc::default(),
    )
}

fn fake(script: impl IntoIterator<Item = Step>) -> (CoalescedIo<FakeIo>, Flusher<FakeIo>) {
    coalesce(
        FakeIo {
            script: script.into_iter().collect(),
            ..FakeIo::default()
        },
        Arc::default(),
    )
}

async fn flush<I: Transport>(flusher: &Flusher<I>) -> io::Result<()> {
    poll_fn(|cx| flusher.poll_flush(cx, false)).await
}

/// Flushes before another poll of the connection, and returns true if nothing waits any more.
fn flush_before_more<I: Transport>(flusher: &Flusher<I>) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    let flushed = flusher.poll_flush(&mut cx, true);
    flushed.map(Result::unwrap).is_ready()
}

fn numbers(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n % 251) as u8).collect()
}

/// Returns the socket of a connection that has not ended.
fn socket<I>(inner: &Inner<I>) -> &I {
    inner.io.as_ref().expect("a socket")
}

#[tokio::test]
async fn many_frames_are_one_write() {
    let (mut io, flusher) = fake([]);
    for part in [&b"head"[..], b"body", b"head", b"body"] {
        io.write_all(part).await.unwrap();
        io.flush().await.unwrap();
    }
    let both = [IoSlice::new(b"head"), IoSlice::new(b"body")];
    assert_eq!(io.write_vectored(&both).await.unwrap(), 8);
    assert!(socket(&flusher.0.lock()).writes.is_empty());
    flush(&flusher).await.unwrap();
    let inner = flusher.0.lock();
    assert_eq!(socket(&inner).writes, [b"headbodyheadbodyheadbody"]);
    assert_eq!(socket(&inner).flushes, 1);
    assert_eq!(inner.gathered.bytes().capacity(), 0, "kept while idle");
}

#[tokio::test]
async fn a_short_write_is_put_off_once_while_more_follows() {
    let (mut io, flusher) = fake([]);
    assert!(flush_before_more(&flusher), "nothing to write");
    io.write_all(b"one").await.unwrap();
    assert!(!flush_before_more(&flusher));
    io.write_all(b"two").await.unwrap();
    assert!(flush_before_more(&flusher), "put off twice");
    assert_eq!(socket(&flusher.0.lock()).writes, [b"onetwo"]);
    // The next output is put off again.
    io.write_all(b"three").await.unwrap();
    assert!(!flush_before_more(&flusher));
    flush(&flusher).await.unwrap();
    let inner = flusher.0.lock();
    assert_eq!(socket(&inner).writes.concat(), b"onetwothree");
    assert_eq!(socket(&inner).flushes, 2);
}

#[tokio::test]
async fn short_output_that_waits_leaves_the_buffer_to_others() {
    let short = SHORT_REST - 1;
    for script in [vec![], vec![Step::Take(100), Step::Wait]] {
        let is_blocked = !script.is_empty();
        let (mut io, flusher) = fake(script);
        let buffer = || {
            let inner = flusher.0.lock();
            let bytes = inner.gathered.bytes();
            (bytes.as_ptr(), bytes.capacity())
        };
        io.write_all(&numbers(short)).await.unwrap();
        let large = buffer();
        assert_eq!(large.1, MAX_BUFFERED);
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(flusher.poll_flush(cx, !is_blocked).is_pending());
        assert!(buffer().1 < SHORT_REST, "{} bytes", buffer().1);
        // Another connection of the thread uses the buffer and returns it.
        let (mut other, other_flusher) = fake([]);
        other.write_all(b"other").await.unwrap();
        let bytes = other_flusher.0.lock().gathered.bytes().as_ptr();
        assert_eq!(bytes, large.0);
        flush(&other_flusher).await.unwrap();
        // The connection takes the buffer again for further output.
        let all = numbers(MAX_BUFFERED);
        io.write_all(&all[short..]).await.unwrap();
        assert_eq!(buffer(), large);
        flush(&flusher).await.unwrap();
        assert_eq!(socket(&flusher.0.lock()).writes.concat(), all);
        // Returned, although the connection had a smaller one in between.
        io.write_all(b"more").await.unwrap();
        assert_eq!(buffer(), large);
        flush(&flusher).await.unwrap();
    }
}

#[tokio::test]
async fn large_output_is_written_although_more_follows() {
    let (mut io, flusher) = fake([]);
    io.write_all(&numbers(LONG_WRITE)).await.unwrap();
    assert!(flush_before_more(&flusher));
    assert_eq!(socket(&flusher.0.lock()).writes.len(), 1);
}

#[tokio::test]
async fn all_bytes_arrive_in_order_with_a_slow_peer() {
    let script = (0..400).flat_map(|n| [Step::Take(n * 7 % 1500 + 1), Step::Wait]);
    let (mut io, flusher) = fake(script);
    let all = numbers(5 * MAX_BUFFERED + 123);
    for part in all.chunks(9_999) {
        // Waits while the buffer is full, and continues when the socket has taken a part.
        io.write_all(part).await.unwrap();
        assert!(flusher.0.lock().gathered.bytes().len() <= MAX_BUFFERED);
    }
    flush(&flusher).await.unwrap();
    assert_eq!(socket(&flusher.0.lock()).writes.concat(), all);
}

#[tokio::test]
async fn a_full_buffer_holds_the_connection_back() {
    let (mut io, flusher) = fake([Step::Wait, Step::Wait, Step::Take(1)]);
    let most = numbers(MAX_BUFFERED + 1);
    assert_eq!(io.write(&most).await.unwrap(), MAX_BUFFERED);
    // The socket takes nothing twice, and then a byte, so that there is room for one.
    for _ in 0..2 {
        assert!(poll!(pin!(io.write(&most[MAX_BUFFERED..]))).is_pending());
    }
    assert_eq!(io.write(&most[MAX_BUFFERED..]).await.unwrap(), 1);
    flush(&flusher).await.unwrap();
    assert_eq!(socket(&flusher.0.lock()).writes.concat(), most);
}

#[tokio::test]
async fn shutdown_flushes_first() {
    let (mut io, flusher) = fake([Step::Take(2), Step::Wait]);
    io.write_all(b"goodbye").await.unwrap();
    io.shutdown().await.unwrap();
    let inner = flusher.0.lock();
    assert_eq!(socket(&inner).writes.concat(), b"goodbye");
    assert!(socket(&inner).is_shut);
}

#[tokio::test]
async fn failures_are_passed_on() {
    let (mut io, flusher) = fake([Step::Fail]);
    io.write_all(b"lost").await.unwrap();
    let error = flush(&flusher).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);

    let (mut io, _out) = fake([Step::Fail]);
    let error = io.write_all(&numbers(MAX_BUFFERED + 1)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);

    let (mut io, _out) = fake([Step::Fail]);
    io.write_all(b"lost").await.unwrap();
    let error = io.shutdown().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);

    let (mut io, flusher) = fake([Step::Take(0)]);
    io.write_all(b"lost").await.unwrap();
    let error = flush(&flusher).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WriteZero);
}

#[tokio::test]
async fn reads_do_not_wait_for_pending_writes() {
    let (near, mut far) = duplex(1);
    let (mut io, _out) = coalesce(near, Arc::default());
    io.write_all(b"waits").await.unwrap();
    far.write_all(b"!").await.unwrap();
    assert_eq!(io.read_u8().await.unwrap(), b'!');
}

#[tokio::test]
async fn bytes_encrypted_in_pieces_are_one_write() {
    let (mut io, flusher) = encrypting(1_000, []);
    let all = numbers(95);
    for part in all.chunks(7) {
        assert_eq!(io.write(part).await.unwrap(), part.len());
    }
    assert_eq!(socket(&flusher.0.lock()).takes, 9);
    assert_eq!(socket(&flusher.0.lock()).socket.writes.len(), 0);
    assert!(!flush_before_more(&flusher), "more follows");
    flush(&flusher).await.unwrap();
    let inner = flusher.0.lock();
    assert_eq!(socket(&inner).socket.writes.concat(), all);
    assert_eq!(socket(&inner).socket.writes[0].len(), 90);
    assert_eq!(inner.gathered.waiting(), 0);
    assert_eq!(inner.gathered.bytes().capacity(), 0);
}

#[tokio::test]
async fn a_full_encryption_buffer_waits_for_the_socket() {
    for room in [0, 5, 10, 33] {
        let script = (0..50).flat_map(|n| [Step::Wait, Step::Take(n % 9 + 1)]);
        let (mut io, flusher) = encrypting(room, script);
        let all = numbers(300);
        for part in all.chunks(23) {
            io.write_all(part).await.unwrap();
            let inner = flusher.0.lock();
            assert!(inner.gathered.bytes().len() <= 10 && socket(&inner).encrypted.len() <= room);
        }
        flush(&flusher).await.unwrap();
        assert_eq!(
            socket(&flusher.0.lock()).socket.writes.concat(),
            all,
            "{room}"
        );
    }
}
