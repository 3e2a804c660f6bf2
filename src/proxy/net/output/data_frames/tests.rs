use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, ready};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use h2::server::SendResponse;
use h2::{RecvStream, client, server};
use http::{Request, Response};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::time::timeout;

use super::*;
use crate::net::output::coalesce::{Flusher, coalesce};

/// A run that takes longer than this waits for ever.
const DEADLINE: Duration = Duration::from_secs(120);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A frame that opens the connection's window by 1 GiB.
const UPDATE: &[u8] = &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0x40, 0, 0, 0];
/// The heads of a request and of its answer, on stream 1.
const REQUEST: &[u8] = &[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x82];
const ANSWER: &[u8] = &[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88];
const RESET: &[u8] = &[0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8];

/// A socket whose reads and writes are cut at random, or wait. It buffers output in front of the
/// socket if it has `room`, as TLS does.
struct CutSocket {
    socket: DuplexStream,
    random: StdRng,
    buffered: Vec<u8>,
    room: usize,
}

impl CutSocket {
    fn new(socket: DuplexStream, seed: u64, room: usize) -> Self {
        Self {
            socket,
            random: StdRng::seed_from_u64(seed),
            buffered: Vec::new(),
            room,
        }
    }

    /// Waits sometimes. Otherwise returns how many of `most` bytes to read or write.
    fn poll_cut(&mut self, cx: &Context<'_>, most: usize) -> Poll<usize> {
        if self.random.random_bool(0.1) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let most = most.clamp(1, if self.random.random() { 40 } else { 9_000 });
        Poll::Ready(self.random.random_range(1..=most))
    }

    fn poll_write_cut(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let length = ready!(self.poll_cut(cx, data.len())).min(data.len());
        Pin::new(&mut self.socket).poll_write(cx, &data[..length])
    }
}

impl AsyncRead for CutSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = ready!(self.poll_cut(cx, buffer.remaining()));
        let mut part = vec![0; length.min(buffer.remaining())];
        let mut part = ReadBuf::new(&mut part);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut part))?;
        buffer.put_slice(part.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CutSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.as_mut().poll_flush(cx))?;
        self.poll_write_cut(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let buffered = std::mem::take(&mut self.buffered);
        let mut written = 0;
        while written < buffered.len() {
            match self.poll_write_cut(cx, &buffered[written..]) {
                Poll::Ready(count) => written += count?,
                Poll::Pending => {
                    self.buffered = buffered[written..].to_vec();
                    return Poll::Pending;
                }
            }
        }
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

impl Transport for CutSocket {
    const GATHER_SIZE: usize = 16 << 10;

    fn buffer(&mut self, data: &[u8]) -> io::Result<usize> {
        let taken = data.len().min(self.room - self.buffered.len());
        self.buffered.extend_from_slice(&data[..taken]);
        Ok(taken)
    }
}

/// The answer to a request for `path`: bytes that depend on the path, so that a mix-up is noticed.
fn content(path: &str) -> Vec<u8> {
    let (_, length) = path.rsplit_once('/').unwrap();
    let first = path.bytes().fold(0, u8::wrapping_add);
    let length: usize = length.parse().unwrap();
    (0..length).map(|n| ((n * 31) >> 3) as u8 ^ first).collect()
}

/// Answers requests until the client closes the connection. Paths that begin with `/long` are
/// answered by [`DataFrames`], others by the library alone. Returns how many answers were reset.
async fn serve(socket: CutSocket, seed: u64) -> usize {
    let resets = AtomicUsize::new(0);
    let (io, flusher) = coalesce(socket, Arc::default());
    let frames = DataFrames::new(&io);
    let mut handshake = pin!(server::Builder::new().handshake::<_, Bytes>(io));
    let mut connection = poll_fn(|cx| {
        let polled = handshake.as_mut().poll(cx);
        flush(&flusher, cx);
        polled
    })
    .await
    .unwrap();
    let mut answers = FuturesUnordered::new();
    poll_fn(|cx| {
        loop {
            while answers.poll_next_unpin(cx) == Poll::Ready(Some(())) {}
            match connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    answers.push(answer(&frames, &resets, request, respond, seed));
                }
                // The client fails if the server has found an error of the protocol.
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        flush(&flusher, cx);
        Poll::Pending
    })
    .await;
    while answers.next().await.is_some() {}
    drop(answers);
    resets.into_inner()
}

/// Writes what was gathered. Fails only after the client has left.
fn flush<I: Transport>(flusher: &Flusher<I>, cx: &mut Context<'_>) {
    let _ = flusher.poll_flush(cx, false);
}

async fn answer<I: Transport>(
    frames: &DataFrames<I>,
    resets: &AtomicUsize,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    seed: u64,
) {
    let path = request.uri().path().to_owned();
    let stream = respond.stream_id().as_u32();
    if !path.starts_with("/long") {
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        body.send_data(content(&path).into(), true).unwrap();
        return;
    }
    let data = poll_fn(|cx| Poll::Ready(frames.take_over(stream, cx.waker().clone()))).await;
    let mut data = data.expect("a window that is large enough");
    let mut end = respond.send_response(Response::new(()), false).unwrap();
    let mut random = StdRng::seed_from_u64(seed ^ u64::from(stream));
    let mut rest = Bytes::from(content(&path));
    while !rest.is_empty() {
        let length = random.random_range(1..=rest.len().min(40_000));
        let mut part = rest.split_to(length);
        let ready = poll_fn(|_| data.poll_ready()).await;
        if ready.is_err() || poll_fn(|_| data.write(&mut part)).await.is_err() {
            resets.fetch_add(1, Ordering::Relaxed);
            return;
        }
        assert!(part.is_empty());
    }
    drop(data);
    end.send_data(Bytes::new(), true).unwrap();
}

/// Reads an answer, and opens the windows late. Resets the stream after `most` bytes.
async fn receive(mut body: RecvStream, path: &str, most: usize, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut received = Vec::new();
    while received.len() < most
        && let Some(data) = body.data().await
    {
        let data = data.unwrap();
        received.extend_from_slice(&data);
        for _ in 0..random.random_range(0..20) {
            tokio::task::yield_now().await;
        }
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    let expected = content(path);
    assert!(expected.starts_with(&received), "{path}");
    assert!(received.len() >= most.min(expected.len()), "{path}");
}

/// Sends requests as a client with the given windows for a stream and for the connection, and checks
/// the answers. Some long answers are reset in the middle if `resets`.
async fn run(seed: u64, room: usize, windows: (u32, u32), resets: bool) {
    let (near, far) = duplex(20_000);
    let server = tokio::spawn(serve(CutSocket::new(near, seed, room), seed));
    let mut builder = client::Builder::new();
    builder.initial_window_size(windows.0);
    builder.initial_connection_window_size(windows.1);
    let (mut sender, connection) = builder.handshake::<_, Bytes>(far).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut answers = Vec::new();
    for number in 0..24_usize {
        let length = [0, 1, 3_000, 70_000, 300_000][number % 5];
        let kind = if number.is_multiple_of(2) {
            "long"
        } else {
            "short"
        };
        let path = format!("/{kind}/{number}/{length}");
        let is_reset = resets && number.is_multiple_of(4) && length > 3_000;
        let uri = format!("http://localhost{path}");
        let request = Request::get(uri).body(()).unwrap();
        sender = sender.ready().await.unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        answers.push(async move {
            let body = response.await.unwrap().into_body();
            let most = if is_reset { 2_000 } else { usize::MAX };
            receive(body, &path, most, seed + number as u64).await;
            usize::from(is_reset)
        });
    }
    let expected: usize = join_all(answers).await.into_iter().sum();
    drop(sender);
    connection.await.unwrap().unwrap();
    assert_eq!(server.await.unwrap(), expected);
}

#[tokio::test]
async fn all_bytes_arrive_beside_those_of_the_library() {
    for (seed, windows) in [
        (1, (65_535, 262_140)),
        (2, (500, 300_000)),
        (3, (1_000, 5 << 20)),
        (4, (1 << 20, 1 << 20)),
        (5, (20_000, 262_140)),
        (6, (2 << 20, 1 << 30)),
    ] {
        for room in [0, 40_000] {
            let run = run(seed, room, windows, false);
            timeout(DEADLINE, run).await.expect("all answers end");
        }
    }
}

#[tokio::test]
async fn answers_end_when_the_client_resets_them() {
    for seed in 0..4 {
        let run = run(seed, 20_000, (10_000, 300_000), true);
        timeout(DEADLINE, run).await.expect("all answers end");
    }
}

/// A connection on which a client with a large window has sent a request.
async fn requested() -> (
    CoalescedIo<DuplexStream>,
    Flusher<DuplexStream>,
    DuplexStream,
) {
    let (near, mut far) = duplex(100_000);
    let (mut io, flusher) = coalesce(near, Arc::default());
    far.write_all(&[PREFACE, UPDATE, REQUEST].concat())
        .await
        .unwrap();
    let mut received = vec![0; PREFACE.len() + UPDATE.len() + REQUEST.len()];
    io.read_exact(&mut received).await.unwrap();
    assert!(received.ends_with(REQUEST));
    (io, flusher, far)
}

/// A waker that counts.
#[derive(Default)]
struct Count(AtomicUsize);

impl std::task::Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Count {
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

fn flush_once<I: Transport>(flusher: &Flusher<I>) -> Poll<io::Result<()>> {
    flusher.poll_flush(&mut Context::from_waker(Waker::noop()), false)
}

#[tokio::test]
async fn frames_follow_the_head_of_the_answer_in_one_write() {
    let (mut io, flusher, mut far) = requested().await;
    let frames = DataFrames::new(&io);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    assert!(frames.take_over(3, waker.clone()).is_none(), "not open");
    let mut data = frames.take_over(1, waker).unwrap();
    let mut one = Bytes::from_static(b"one");
    assert_eq!(data.poll_ready(), Poll::Ready(Ok(())));
    assert_eq!(data.write(&mut one), Poll::Pending);
    io.write_all(ANSWER).await.unwrap();
    assert_eq!(count.take(), 1);
    for mut part in [one, Bytes::from_static(b"two")] {
        assert_eq!(data.write(&mut part), Poll::Ready(Ok(())));
        assert!(part.is_empty());
    }
    assert!(flush_once(&flusher).is_ready());
    let expected = [
        ANSWER,
        &[0, 0, 3, 0, 0, 0, 0, 0, 1],
        b"one",
        &[0, 0, 3, 0, 0, 0, 0, 0, 1],
        b"two",
    ]
    .concat();
    let mut received = vec![0; expected.len()];
    far.read_exact(&mut received).await.unwrap();
    assert_eq!(received, expected);
    assert_eq!(count.take(), 0);
}

#[tokio::test]
async fn a_stream_waits_for_a_socket_that_takes_nothing() {
    let (mut io, flusher, mut far) = requested().await;
    far.write_all(&[0, 0, 4, 8, 0, 0, 0, 0, 1, 1, 0, 0, 0])
        .await
        .unwrap();
    let mut update = [0; 13];
    io.read_exact(&mut update).await.unwrap();
    let count = Arc::new(Count::default());
    let frames = DataFrames::new(&io);
    let mut data = frames
        .take_over(1, Waker::from(Arc::clone(&count)))
        .unwrap();
    io.write_all(ANSWER).await.unwrap();
    let all = content("/long/400000");
    let mut rest = Bytes::from(all.clone());
    assert_eq!(data.write(&mut rest), Poll::Pending);
    assert!(!rest.is_empty() && rest.len() < all.len());
    assert!(flush_once(&flusher).is_pending());
    let left = rest.len();
    assert_eq!(data.poll_ready(), Poll::Pending);
    assert_eq!(data.write(&mut rest), Poll::Pending);
    assert_eq!((rest.len(), count.take()), (left, 0));
    // The rest is written when the client has read enough.
    let mut received = Vec::new();
    let mut buffer = vec![0; 70_000];
    loop {
        let is_drained = flush_once(&flusher).is_ready();
        if is_drained && rest.is_empty() {
            break;
        }
        assert_eq!(count.take(), usize::from(is_drained));
        if is_drained {
            assert_eq!(data.write(&mut rest), Poll::Ready(Ok(())));
        } else {
            let read = far.read(&mut buffer).await.unwrap();
            received.extend_from_slice(&buffer[..read]);
        }
    }
    drop((io, flusher, frames, data));
    far.read_to_end(&mut received).await.unwrap();
    let mut frames = received.strip_prefix(ANSWER).unwrap();
    let mut payload = Vec::new();
    while let Some((&[a, b, c, ..], rest)) = frames.split_first_chunk::<9>() {
        let (own, rest) = rest.split_at(u32::from_be_bytes([0, a, b, c]) as usize);
        assert!(own.len() <= 16 << 10);
        payload.extend_from_slice(own);
        frames = rest;
    }
    assert_eq!(payload, all);
}

#[tokio::test]
async fn a_reset_ends_a_stream_that_waits() {
    let (mut io, _flusher, mut far) = requested().await;
    let count = Arc::new(Count::default());
    let frames = DataFrames::new(&io);
    let mut data = frames
        .take_over(1, Waker::from(Arc::clone(&count)))
        .unwrap();
    let mut part = Bytes::from_static(b"late");
    assert_eq!(data.write(&mut part), Poll::Pending);
    far.write_all(RESET).await.unwrap();
    io.read_exact(&mut [0; 13]).await.unwrap();
    assert_eq!(count.take(), 1);
    assert_eq!(data.poll_ready(), Poll::Ready(Err(StreamReset)));
    assert_eq!(data.write(&mut part), Poll::Ready(Err(StreamReset)));
}

#[tokio::test]
async fn the_end_of_the_connection_ends_its_streams_and_closes_the_socket() {
    let (io, _flusher, mut far) = requested().await;
    let count = Arc::new(Count::default());
    let frames = DataFrames::new(&io);
    let mut data = frames
        .take_over(1, Waker::from(Arc::clone(&count)))
        .unwrap();
    drop(io);
    assert_eq!(count.take(), 1);
    assert_eq!(data.poll_ready(), Poll::Ready(Err(StreamReset)));
    assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
}
