use std::collections::VecDeque;
use std::future::poll_fn;

use futures::poll;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::io::duplex;

use super::*;

/// Takes what its script allows: so many bytes, or nothing for now, or fails.
#[derive(Default)]
struct Fake {
    script: VecDeque<Step>,
    /// One a write.
    writes: Vec<Vec<u8>>,
    flushes: usize,
    is_shut: bool,
}

enum Step {
    Take(usize),
    Wait,
    Fail,
}

impl AsyncWrite for Fake {
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

impl AsyncRead for Fake {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl Transport for Fake {}

/// Takes up to so many bytes before the socket does, ten at a time.
struct Encrypting {
    socket: Fake,
    room: usize,
    encrypted: Vec<u8>,
    takes: usize,
}

impl AsyncWrite for Encrypting {
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

impl AsyncRead for Encrypting {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl Transport for Encrypting {
    const GATHERED: usize = 10;

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
) -> (Coalesced<Encrypting>, WriteOut<Encrypting>) {
    coalesce(Encrypting {
        socket: Fake {
            script: script.into_iter().collect(),
            ..Fake::default()
        },
        room,
        encrypted: Vec::new(),
        takes: 0,
    })
}

fn fake(script: impl IntoIterator<Item = Step>) -> (Coalesced<Fake>, WriteOut<Fake>) {
    coalesce(Fake {
        script: script.into_iter().collect(),
        ..Fake::default()
    })
}

/// As a connection's task does: polled again whenever it was woken.
async fn write_out<I: Transport>(out: &WriteOut<I>) -> io::Result<()> {
    poll_fn(|cx| out.poll(cx)).await
}

fn numbers(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n % 251) as u8).collect()
}

#[tokio::test]
async fn many_frames_are_one_write() {
    let (mut io, out) = fake([]);
    for part in [&b"head"[..], b"body", b"head", b"body"] {
        io.write_all(part).await.unwrap();
        io.flush().await.unwrap();
    }
    let both = [IoSlice::new(b"head"), IoSlice::new(b"body")];
    assert_eq!(io.write_vectored(&both).await.unwrap(), 8);
    assert!(out.0.lock().io.writes.is_empty());
    write_out(&out).await.unwrap();
    let inner = out.0.lock();
    assert_eq!(inner.io.writes, [b"headbodyheadbodyheadbody"]);
    assert_eq!(inner.io.flushes, 1);
    assert_eq!(inner.gathered.capacity(), 0, "kept while idle");
}

#[tokio::test]
async fn others_have_their_turn_before_a_small_write_and_nothing_is_written_for_nothing() {
    let (mut io, out) = fake([]);
    write_out(&out).await.unwrap();
    io.write_all(b"one").await.unwrap();
    assert!(poll!(pin!(write_out(&out))).is_pending());
    io.write_all(b"two").await.unwrap();
    write_out(&out).await.unwrap();
    assert_eq!(out.0.lock().io.writes, [b"onetwo"]);
    assert_eq!(out.0.lock().io.flushes, 1);
}

#[tokio::test]
async fn much_is_written_at_once() {
    let (mut io, out) = fake([]);
    io.write_all(&numbers(WORTHWHILE)).await.unwrap();
    assert!(poll!(pin!(write_out(&out))).is_ready());
    assert_eq!(out.0.lock().io.writes.len(), 1);
}

#[tokio::test]
async fn all_arrives_in_order_however_slowly_it_is_taken() {
    let script = (0..400).flat_map(|n| [Step::Take(n * 7 % 1500 + 1), Step::Wait]);
    let (mut io, out) = fake(script);
    let all = numbers(5 * LIMIT + 123);
    for part in all.chunks(9_999) {
        // Waits where the buffer is full, and goes on when a part was taken.
        io.write_all(part).await.unwrap();
        assert!(out.0.lock().gathered.len() <= LIMIT);
    }
    write_out(&out).await.unwrap();
    assert_eq!(out.0.lock().io.writes.concat(), all);
}

#[tokio::test]
async fn a_full_buffer_holds_the_connection_back() {
    let (mut io, out) = fake([Step::Wait, Step::Wait, Step::Take(1)]);
    let most = numbers(LIMIT + 1);
    assert_eq!(io.write(&most).await.unwrap(), LIMIT);
    // Twice nothing is taken; then a byte, for which there is room again.
    for _ in 0..2 {
        assert!(poll!(pin!(io.write(&most[LIMIT..]))).is_pending());
    }
    assert_eq!(io.write(&most[LIMIT..]).await.unwrap(), 1);
    write_out(&out).await.unwrap();
    assert_eq!(out.0.lock().io.writes.concat(), most);
}

#[tokio::test]
async fn shutdown_writes_out_first() {
    let (mut io, out) = fake([Step::Take(2), Step::Wait]);
    io.write_all(b"goodbye").await.unwrap();
    io.shutdown().await.unwrap();
    let inner = out.0.lock();
    assert_eq!(inner.io.writes.concat(), b"goodbye");
    assert!(inner.io.is_shut);
}

#[tokio::test]
async fn failures_are_passed_on() {
    let (mut io, out) = fake([Step::Fail]);
    io.write_all(b"lost").await.unwrap();
    let error = write_out(&out).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);

    let (mut io, _out) = fake([Step::Fail]);
    let error = io.write_all(&numbers(LIMIT + 1)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);

    let (mut io, _out) = fake([Step::Fail]);
    io.write_all(b"lost").await.unwrap();
    let error = io.shutdown().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);

    let (mut io, out) = fake([Step::Take(0)]);
    io.write_all(b"lost").await.unwrap();
    let error = write_out(&out).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WriteZero);
}

#[tokio::test]
async fn reads_go_past_what_waits_to_be_written() {
    let (near, mut far) = duplex(1);
    let (mut io, _out) = coalesce(near);
    io.write_all(b"waits").await.unwrap();
    far.write_all(b"!").await.unwrap();
    assert_eq!(io.read_u8().await.unwrap(), b'!');
}

#[tokio::test]
async fn what_is_encrypted_piece_by_piece_is_one_write() {
    let (mut io, out) = encrypting(1_000, []);
    let all = numbers(95);
    for part in all.chunks(7) {
        assert_eq!(io.write(part).await.unwrap(), part.len());
    }
    assert_eq!(out.0.lock().io.takes, 9);
    assert_eq!(out.0.lock().io.socket.writes.len(), 0);
    assert!(poll!(pin!(write_out(&out))).is_pending(), "others first");
    write_out(&out).await.unwrap();
    let inner = out.0.lock();
    assert_eq!(inner.io.socket.writes.concat(), all);
    assert_eq!(inner.io.socket.writes[0].len(), 90);
    assert_eq!((inner.taken, inner.gathered.capacity()), (0, 0));
}

#[tokio::test]
async fn full_of_encrypted_bytes_it_waits_for_the_socket() {
    for room in [0, 5, 10, 33] {
        let script = (0..50).flat_map(|n| [Step::Wait, Step::Take(n % 9 + 1)]);
        let (mut io, out) = encrypting(room, script);
        let all = numbers(300);
        for part in all.chunks(23) {
            io.write_all(part).await.unwrap();
            let inner = out.0.lock();
            assert!(inner.gathered.len() <= 10 && inner.io.encrypted.len() <= room);
        }
        write_out(&out).await.unwrap();
        assert_eq!(out.0.lock().io.socket.writes.concat(), all, "{room}");
    }
}
