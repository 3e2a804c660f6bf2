use std::num::NonZeroU32;
use std::task::Waker;

use futures_util::poll;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, advance};

use super::*;
use crate::net::Protocol;
use crate::net::input::received::Received;
use crate::net::input::resets::{PeerLimit, Unanswered};

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_too_long_fails() {
    let (near, _far) = duplex(4);
    let mut io = ServedSocket::new(near, LIMIT);
    let start = Instant::now();
    let error = io.write_all(b"more than four").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(start.elapsed(), LIMIT);
}

#[tokio::test(start_paused = true)]
async fn a_byte_now_and_then_prevents_the_timeout() {
    let (near, mut far) = duplex(1);
    let mut io = ServedSocket::new(near, LIMIT);
    let reader = tokio::spawn(async move {
        let mut read = Vec::new();
        for _ in 0..5 {
            sleep(LIMIT - Duration::from_secs(1)).await;
            read.push(far.read_u8().await.unwrap());
        }
        read
    });
    io.write_all(b"slow").await.unwrap();
    io.write_all(b"!").await.unwrap();
    assert_eq!(reader.await.unwrap(), b"slow!");
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_pending_writes_never_times_out() {
    let (near, mut far) = duplex(4);
    let mut io = ServedSocket::new(near, LIMIT);
    io.write_all(b"four").await.unwrap();
    advance(100 * LIMIT).await;
    far.read_exact(&mut [0; 4]).await.unwrap();
    io.write_all(b"five").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_upgraded_connection_never_times_out() {
    let (near, mut far) = duplex(4);
    let mut io = ServedSocket::new(near, LIMIT);
    io.is_upgraded().store(true, Ordering::Relaxed);
    let writer = tokio::spawn(async move { io.write_all(b"eightbyt").await });
    sleep(100 * LIMIT).await;
    far.read_exact(&mut [0; 8]).await.unwrap();
    writer.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_upgrade_lifts_the_kernels_limit_at_the_next_read_or_write() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for writes in [false, true] {
        let _peer = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (near, _) = listener.accept().await.unwrap();
        SockRef::from(&near)
            .set_tcp_user_timeout(Some(LIMIT))
            .unwrap();
        let mut io = ServedSocket::new(near, LIMIT);
        let upgraded = io.is_upgraded();
        let limit = |io: &ServedSocket<TcpStream>| SockRef::from(&io.io).tcp_user_timeout();
        io.write_all(b"before").await.unwrap();
        assert_eq!(limit(&io).unwrap(), Some(LIMIT));
        upgraded.store(true, Ordering::Relaxed);
        if writes {
            io.write_all(b"output").await.unwrap();
        } else {
            let reading = std::pin::pin!(io.read_u8());
            assert!(poll!(reading).is_pending());
        }
        assert_eq!(limit(&io).unwrap(), None, "writes: {writes}");
    }
}

/// A transport that has buffered some bytes, with a socket that either takes them or does not.
struct Buffering {
    waiting: usize,
    is_stalled: bool,
}

impl AsyncWrite for Buffering {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.waiting >= 1_000 {
            return Poll::Pending;
        }
        self.waiting += data.len();
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_stalled {
            return Poll::Pending;
        }
        self.waiting = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl AsyncRead for Buffering {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl Transport for Buffering {
    const GATHER_SIZE: usize = 123;

    fn buffer(&mut self, data: &[u8]) -> io::Result<usize> {
        self.waiting += data.len();
        Ok(data.len())
    }

    fn waiting(&mut self) -> usize {
        self.waiting
    }
}

#[tokio::test]
async fn what_waits_for_a_socket_that_takes_nothing_is_published() {
    assert_eq!(<ServedSocket<Buffering> as Transport>::GATHER_SIZE, 123);
    let buffers = Arc::<Buffers>::default();
    let received = Received::new(Arc::clone(&buffers), Protocol::Http2);
    let io = Buffering {
        waiting: 0,
        is_stalled: false,
    };
    let meter = Meter::new(Arc::clone(&buffers), received.reads(100, None));
    let mut io = ServedSocket::new(io, LIMIT).metered(meter);
    let mut cx = Context::from_waker(Waker::noop());
    let published = || buffers.get(Buffer::Encrypted);
    assert!(Pin::new(&mut io).poll_write(&mut cx, &[0; 300]).is_ready());
    assert!(Pin::new(&mut io).poll_flush(&mut cx).is_ready());
    assert_eq!(published(), 0);
    io.io.is_stalled = true;
    assert!(Pin::new(&mut io).poll_write(&mut cx, &[0; 300]).is_ready());
    assert!(Pin::new(&mut io).poll_flush(&mut cx).is_pending());
    assert_eq!(published(), 300);
    assert_eq!(io.buffer(&[0; 700]).ok(), Some(700));
    assert!(
        Pin::new(&mut io)
            .poll_write(&mut cx, &[0; 300])
            .is_pending()
    );
    assert_eq!(published(), 1_000);
    io.io.is_stalled = false;
    assert!(Pin::new(&mut io).poll_flush(&mut cx).is_ready());
    assert_eq!(published(), 0);
    io.io.is_stalled = true;
    assert!(Pin::new(&mut io).poll_write(&mut cx, &[0; 300]).is_ready());
    assert!(Pin::new(&mut io).poll_shutdown(&mut cx).is_pending());
    assert_eq!(published(), 300);
    drop(io);
    assert_eq!(published(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_paced_socket_is_read_when_its_peer_has_reset_few_streams() {
    let one = NonZeroU32::MIN;
    let resets = Arc::new(PeerLimit::new(one, one));
    let (near, mut far) = duplex(4);
    let pacing = PacedReads::new(Arc::clone(&resets));
    let mut io = ServedSocket::new(near, LIMIT).paced(Some(pacing));
    far.write_all(b"four").await.unwrap();
    let start = Instant::now();
    assert_eq!(io.read_u8().await.unwrap(), b'f');
    assert_eq!(start.elapsed(), Duration::ZERO);
    (0..3).for_each(|_| drop(Unanswered(Some(Arc::clone(&resets)))));
    assert_eq!(io.read_u8().await.unwrap(), b'o');
    assert_eq!(start.elapsed(), Duration::from_secs(2));
}
