use std::convert::Infallible;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender};
use futures_util::poll;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::service::service_fn;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::net::Protocol;
use crate::net::input::resets::Unanswered;
use crate::net::output::answer_slot::permits_plain_chunks;

type Frames = UnboundedReceiver<Result<Frame<Bytes>, BoxError>>;
type TestBody = StreamBody<Frames>;

const LIMIT: Duration = Duration::from_secs(60);

/// A transport that counts its reads and writes.
struct Counting {
    io: DuplexStream,
    reads: Arc<AtomicUsize>,
    writes: Arc<AtomicUsize>,
}

impl Counting {
    fn new(io: DuplexStream) -> Self {
        Self {
            io,
            reads: Arc::default(),
            writes: Arc::default(),
        }
    }
}

impl AsyncRead for Counting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Counting {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(data)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.io).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl Transport for Counting {}

/// Serves `near`. The first request gets the bodies' `chunks`; further ones get an answer that
/// ends at once.
fn serve<I: Transport + Send + 'static>(
    near: I,
    chunks: Frames,
) -> Http1<I, impl HttpService<Incoming, ResBody = SlotBody<TestBody>>, TestBody> {
    let slot = AnswerSlot::default();
    let (answers, first) = (slot.clone(), Mutex::new(Some(chunks)));
    let service = service_fn(move |request: Request<Incoming>| {
        let chunks = first.lock().take();
        let chunks = chunks.unwrap_or_else(|| mpsc::unbounded().1);
        let body = AnswerBody::new(StreamBody::new(chunks), Unanswered(None), None, None);
        let answer = answers.put(Response::new(body), permits_plain_chunks(&request));
        async move { Ok::<_, Infallible>(answer) }
    });
    let socket = ServedSocket::new(near, LIMIT);
    let received = Received::new(Arc::default(), Protocol::Http1);
    let [reads] = PartWaker::for_parts();
    let builder = http1::Builder::new();
    Http1::new(&builder, socket, service, slot, received, reads)
}

fn send(chunks: &UnboundedSender<Result<Frame<Bytes>, BoxError>>, data: impl Into<Bytes>) {
    let frame = Frame::data(data.into());
    chunks.unbounded_send(Ok(frame)).unwrap();
}

async fn read(far: &mut DuplexStream) -> String {
    let mut buffer = vec![0; 16 << 10];
    let count = far.read(&mut buffer).await.unwrap();
    buffer.truncate(count);
    String::from_utf8(buffer).unwrap()
}

/// Returns the bytes of a long answer that were taken from its body and are not written.
fn waiting<I, S: HttpService<Incoming>, B: Body>(connection: &Http1<I, S, B>) -> usize {
    match &connection.state {
        State::Answer(answer) => answer
            .blocked
            .as_ref()
            .map_or(0, |chunks| chunks.remaining()),
        State::Requests(_) | State::Ended => 0,
    }
}

/// Sends a request, and polls the connection until the body of its answer waits. Returns the head.
async fn begin<I, S, B>(connection: &mut Http1<I, S, B>, far: &mut DuplexStream) -> String
where
    S: HttpService<Incoming>,
    B: Body,
    Http1<I, S, B>: Future + Unpin,
{
    far.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(poll!(&mut *connection).is_pending());
    assert!(matches!(connection.state, State::Answer(_)));
    read(far).await
}

#[tokio::test]
async fn a_long_answer_is_sent_without_the_library_which_then_serves_the_next_request() {
    let (near, mut far) = duplex(16 << 10);
    let (sender, chunks) = mpsc::unbounded();
    let mut connection = serve(near, chunks);
    let head = begin(&mut connection, &mut far).await;
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    for (data, expected) in [
        ("one", "3\r\none\r\n".to_owned()),
        ("", String::new()),
        (
            "xxxxxxxxxxxxxxxxx",
            "11\r\nxxxxxxxxxxxxxxxxx\r\n".to_owned(),
        ),
    ] {
        send(&sender, data);
        assert!(poll!(&mut connection).is_pending());
        if !expected.is_empty() {
            assert_eq!(read(&mut far).await, expected);
        }
    }
    // What the client sends before the end waits for the end.
    far.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    assert!(poll!(&mut connection).is_pending());
    far.write_all(b"\r\n").await.unwrap();
    send(&sender, "two");
    sender.close_channel();
    assert!(poll!(&mut connection).is_pending());
    assert!(matches!(connection.state, State::Requests(_)));
    let rest = read(&mut far).await;
    let next = rest.strip_prefix("3\r\ntwo\r\n0\r\n\r\n").unwrap();
    assert!(next.starts_with("HTTP/1.1 200 OK\r\n"), "{next}");
    drop(far);
    assert!(poll!(&mut connection).is_ready());
}

#[tokio::test]
async fn a_finished_connection_ends_after_its_long_answer() {
    let (near, mut far) = duplex(16 << 10);
    let (sender, chunks) = mpsc::unbounded();
    let mut connection = serve(near, chunks);
    far.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(poll!(&mut connection).is_pending());
    connection.finish();
    send(&sender, "one");
    assert!(poll!(&mut connection).is_pending());
    sender.close_channel();
    assert!(matches!(poll!(&mut connection), Poll::Ready(Ok(()))));
    let mut all = String::new();
    far.read_to_string(&mut all).await.unwrap();
    assert!(all.ends_with("\r\n\r\n3\r\none\r\n0\r\n\r\n"), "{all}");
}

#[tokio::test]
async fn a_long_answer_that_fails_and_one_whose_client_leaves_end_the_connection() {
    for fails in [true, false] {
        let (near, mut far) = duplex(16 << 10);
        let (sender, chunks) = mpsc::unbounded();
        let mut connection = serve(near, chunks);
        begin(&mut connection, &mut far).await;
        if fails {
            sender.unbounded_send(Err("broken".into())).unwrap();
        } else {
            far.shutdown().await.unwrap();
        }
        assert!(matches!(poll!(&mut connection), Poll::Ready(Err(_))));
        drop(connection);
        assert_eq!(read(&mut far).await, "", "a clean end");
    }
}

#[tokio::test]
async fn chunks_that_are_due_together_are_written_together() {
    for (count, length, expected) in [
        (1, 100, 1),
        (9, 4 << 10, 1),
        (40, 4 << 10, 4),
        (6, 16 << 10, 2),
        (4, 64 << 10, 4),
    ] {
        let (near, mut far) = duplex(1 << 20);
        let (sender, chunks) = mpsc::unbounded();
        let near = Counting::new(near);
        let writes = Arc::clone(&near.writes);
        let mut connection = serve(near, chunks);
        begin(&mut connection, &mut far).await;
        writes.store(0, Ordering::Relaxed);
        let mut all = String::new();
        for _ in 0..count {
            let data = "x".repeat(length);
            all += &format!("{length:x}\r\n{data}\r\n");
            send(&sender, data);
        }
        assert!(poll!(&mut connection).is_pending());
        let written = writes.load(Ordering::Relaxed);
        assert_eq!(written, expected, "{count} chunks of {length} bytes");
        let mut received = vec![0; all.len()];
        far.read_exact(&mut received).await.unwrap();
        assert!(
            received == all.as_bytes(),
            "{count} chunks of {length} bytes"
        );
    }
}

#[tokio::test]
async fn a_long_answer_reads_the_socket_only_when_the_socket_has_woken_it() {
    let (near, mut far) = duplex(16 << 10);
    let (sender, chunks) = mpsc::unbounded();
    let near = Counting::new(near);
    let reads = Arc::clone(&near.reads);
    let mut connection = serve(near, chunks);
    begin(&mut connection, &mut far).await;
    let before = reads.load(Ordering::Relaxed);
    for _ in 0..3 {
        send(&sender, "one");
        assert!(poll!(&mut connection).is_pending());
        assert_eq!(read(&mut far).await, "3\r\none\r\n");
    }
    assert_eq!(reads.load(Ordering::Relaxed), before);
    far.shutdown().await.unwrap();
    assert!(matches!(poll!(&mut connection), Poll::Ready(Err(_))));
    assert_eq!(reads.load(Ordering::Relaxed), before + 1);
}

#[tokio::test]
async fn chunks_before_a_failure_are_sent_and_a_blocked_socket_gets_no_more() {
    let (near, mut far) = duplex(1 << 10);
    let (sender, chunks) = mpsc::unbounded();
    let mut connection = serve(near, chunks);
    begin(&mut connection, &mut far).await;
    send(&sender, "x".repeat(2 << 10));
    assert!(poll!(&mut connection).is_pending());
    let before = waiting(&connection);
    assert!(before > 0);
    send(&sender, "one");
    sender.unbounded_send(Err("broken".into())).unwrap();
    assert!(poll!(&mut connection).is_pending());
    assert_eq!(waiting(&connection), before);
    let mut all = String::new();
    loop {
        all += &read(&mut far).await;
        if poll!(&mut connection).is_ready() {
            break;
        }
    }
    drop(connection);
    far.read_to_string(&mut all).await.unwrap();
    assert!(all.ends_with("x\r\n3\r\none\r\n"), "{all}");
}

#[tokio::test]
async fn the_library_sends_what_is_not_plain_chunks_or_still_waits_for_the_socket() {
    for (request, capacity) in [
        ("GET / HTTP/1.0\r\n\r\n", 16 << 10),
        ("GET / HTTP/1.1\r\nconnection: close\r\n\r\n", 16 << 10),
        ("GET / HTTP/1.1\r\n\r\n", 64),
    ] {
        let (near, mut far) = duplex(capacity);
        let (sender, chunks) = mpsc::unbounded();
        let mut connection = serve(near, chunks);
        far.write_all(request.as_bytes()).await.unwrap();
        assert!(poll!(&mut connection).is_pending());
        assert!(
            matches!(connection.state, State::Requests(_)),
            "{request:?}, {capacity}"
        );
        send(&sender, "one");
        sender.close_channel();
        let mut all = String::new();
        while !all.contains("one") {
            let _ = poll!(&mut connection);
            all += &read(&mut far).await;
        }
    }
}
