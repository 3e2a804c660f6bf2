//! Bodies that sinks take, and the frames that the HTTP library gets.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, stream};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use kubefan_core::body;
use kubefan_core::body::{Body, empty, full};
use kubefan_core::upstream::{Client, Error};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::filtered_io::FilteredIo;
use super::received_frames::ReceivedFrames;
use super::streams::{BodySink, Streams, Windows};
use super::{SinkableBody, open};
use crate::load::test_server;
use crate::load::test_server::{endless, in_time};

/// Smaller than the body of `/long`, so that both windows must be opened again.
const WINDOW: u32 = 1 << 16;
const WINDOWS: Windows = Windows {
    stream: WINDOW,
    connection: 8 * WINDOW,
};
const LINES: u32 = 20_000;

/// Keeps what it gets.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl BodySink for Kept {
    fn take(&mut self, part: &[u8], _: Instant) {
        self.0.lock().extend_from_slice(part);
    }
}

impl Kept {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().clone()
    }
}

fn line(number: u32) -> Bytes {
    format!("{number:>60}\n").into()
}

/// Returns a body of many lines, which has no announced length.
fn lines() -> Body {
    let frames = (0..LINES).map(|number| Ok::<_, Infallible>(Frame::data(line(number))));
    body::boxed(StreamBody::new(stream::iter(frames)))
}

fn answer(request: &Request<Incoming>) -> Response<Body> {
    match request.uri().path() {
        "/long" => Response::new(lines()),
        "/endless" => Response::new(endless(line(0))),
        _ => {
            let mut missing = Response::new(full("no such thing"));
            *missing.status_mut() = StatusCode::NOT_FOUND;
            missing
        }
    }
}

fn client() -> Client {
    test_server::client(answer, &Arc::default())
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(empty()).expect("a request")
}

/// Gives the body of `response` to a sink.
fn keep(response: &mut Response<Body>) -> Kept {
    let kept = Kept::default();
    let body = response.extensions_mut().remove::<SinkableBody>();
    body.expect("over HTTP/2").send_to(Box::new(kept.clone()));
    kept
}

#[tokio::test]
async fn sinks_get_whole_bodies_and_the_library_reads_all_others() {
    let client = client();
    let connection = open(&client, WINDOWS).await.expect("a connection");
    let long = || client.request_over(&connection, get("/long"));
    let all: Vec<u8> = (0..LINES).flat_map(line).collect();
    in_time(async {
        let mut first = long().await.expect("an answer");
        let mut second = long().await.expect("an answer");
        let read = long().await.expect("an answer");
        let kept = [keep(&mut first), keep(&mut second)];
        // Nothing reads this body, and the others must not wait for it.
        let unread = long().await.expect("an answer");
        for response in [first, second] {
            let left = response.into_body().collect().await.expect("an end");
            assert_eq!(left.to_bytes(), "");
        }
        assert!(kept.iter().all(|kept| kept.bytes() == all));
        let read = read.into_body().collect().await.expect("a body");
        assert!(read.to_bytes() == all);
        drop(unread);
        let missing = client.request_over(&connection, get("/missing")).await;
        let Err(Error::Answer { status, .. }) = &missing else {
            panic!("{missing:?}");
        };
        assert_eq!(status.code, 404);
        assert_eq!(status.message, "no such thing");
    })
    .await;
}

#[tokio::test]
async fn an_aborted_connection_fails_its_bodies() {
    let client = client();
    let connection = open(&client, WINDOWS).await.expect("a connection");
    let answer = client.request_over(&connection, get("/endless")).await;
    let mut response = answer.expect("an answer");
    let kept = keep(&mut response);
    assert!(!connection.is_closed());
    connection.abort();
    assert!(connection.is_closed());
    let ended = in_time(response.into_body().collect()).await;
    assert!(ended.is_err(), "{ended:?}");
    // The line may have arrived before.
    assert!(line(0).starts_with(&kept.bytes()));
    let refused = client.request_over(&connection, get("/endless")).await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn a_connection_is_closed_to_requests_when_the_server_has_announced_its_end() {
    let drain = Arc::new(Notify::new());
    let client = test_server::client(answer, &drain);
    let connection = open(&client, WINDOWS).await.expect("a connection");
    let endless = || client.request_over(&connection, get("/endless"));
    let mut body = endless().await.expect("an answer").into_body();
    let first = in_time(body.frame()).await.expect("a frame");
    assert_eq!(first.expect("no error").into_data().ok(), Some(line(0)));
    assert!(!connection.is_closed());
    drain.notify_one();
    let closed = async {
        while !connection.is_closed() {
            tokio::task::yield_now().await;
        }
    };
    in_time(closed).await;
    assert!(endless().await.is_err());
    // The connection lasts as long as its stream.
    assert!(body.frame().now_or_never().is_none());
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("a short payload");
    let head = [0, 0, length, kind, flags, 0, 0, 0, stream];
    [&head, payload].concat()
}

/// Returns what `streams` has for the library.
fn read_passed(streams: &mut Streams) -> Vec<u8> {
    let mut read = Vec::new();
    let mut space = [0; 7];
    loop {
        let mut buffer = ReadBuf::new(&mut space);
        if !streams.read_passed(&mut buffer, Waker::noop()) {
            return read;
        }
        read.extend_from_slice(buffer.filled());
    }
}

#[test]
fn frames_reach_their_receivers_however_they_are_divided() {
    let (data, headers, ping, end, padded) = (0, 1, 6, 1, 8);
    let received = [
        frame(headers, 4, 1, b"\x88"),
        frame(data, 0, 1, b"first "),
        frame(data, 0, 3, b"early "),
        frame(ping, 0, 0, &[7; 8]),
        frame(data, padded, 1, b"\x03second \0\0\0"),
        frame(data, 0, 5, b"other"),
        frame(data, 0, 1, b""),
        frame(data, end, 1, b"last"),
        frame(data, end, 3, b"late"),
        frame(data, end | padded, 7, b"\x01x\0"),
    ];
    let passed = [
        frame(headers, 4, 1, b"\x88"),
        frame(ping, 0, 0, &[7; 8]),
        frame(data, 0, 5, b"other"),
        frame(data, end, 1, b""),
        frame(data, end, 7, b""),
    ];
    let received = received.concat();
    for size in 1..=received.len() {
        let mut streams = Streams::new(Windows {
            stream: 40,
            connection: 54,
        });
        let sinks = [(1, Kept::default()), (7, Kept::default())];
        for (stream, sink) in &sinks {
            streams.open(*stream);
            streams.give_to_sink(*stream, Box::new(sink.clone()));
        }
        streams.open(3);
        let mut frames = ReceivedFrames::default();
        for part in received.chunks(size) {
            frames.receive(part, &mut streams, Instant::now());
        }
        let kept = sinks.map(|(_, kept)| kept.bytes());
        assert_eq!(kept, [&b"first second last"[..], b"x"], "{size}");
        assert_eq!(read_passed(&mut streams), passed.concat(), "{size}");
        // The frames of an undecided stream wait for its receiver.
        let late = Kept::default();
        streams.give_to_sink(3, Box::new(late.clone()));
        assert_eq!(late.bytes(), b"early late");
        assert_eq!(read_passed(&mut streams), frame(data, end, 3, b""));
        // The streams 1, 3 and 7 have taken 6 + 11 + 4, 10 and 3 bytes, padding included.
        let mut updates = BytesMut::new();
        streams.take_updates(&mut updates);
        let opened = opened(&updates);
        assert!(opened[&1] >= 20, "{size}: {opened:?}");
        assert!(opened[&0] >= 27 && opened[&0] <= 34, "{size}: {opened:?}");
        assert_eq!(opened.len(), 2, "{size}: {opened:?}");
    }
}

/// Returns by how many bytes each stream's window was opened; stream 0 is the connection.
fn opened(updates: &[u8]) -> HashMap<u8, u8> {
    let mut opened = HashMap::new();
    for update in updates.chunks(13) {
        assert_eq!(update[..5], [0, 0, 4, 8, 0]);
        *opened.entry(update[8]).or_default() += update[12];
    }
    opened
}

/// The kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
/// The flags of frames.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Returns what the library gets of these frames.
fn passed(received: &[Vec<u8>], streams: &mut Streams) -> Vec<u8> {
    let mut frames = ReceivedFrames::default();
    frames.receive(&received.concat(), streams, Instant::now());
    read_passed(streams)
}

#[test]
fn nothing_overtakes_the_data_of_an_undecided_stream() {
    let head = frame(HEADERS, END_HEADERS, 1, b"\x88");
    let data = frame(DATA, 0, 1, b"data");
    let ends = [
        frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]),
        frame(HEADERS, END_STREAM | END_HEADERS, 1, b"trailers"),
    ];
    for end in ends {
        let mut streams = Streams::new(WINDOWS);
        streams.open(1);
        let received = [head.clone(), data.clone(), end];
        assert_eq!(passed(&received, &mut streams), received.concat());
        // The library has the body, so a sink gets nothing of it.
        let late = Kept::default();
        streams.give_to_sink(1, Box::new(late.clone()));
        assert_eq!(passed(std::slice::from_ref(&data), &mut streams), data);
        assert_eq!(late.bytes(), b"");
    }
    // Without data, a sink may still take the body.
    let mut streams = Streams::new(WINDOWS);
    streams.open(1);
    passed(&[head], &mut streams);
    let kept = Kept::default();
    streams.give_to_sink(1, Box::new(kept.clone()));
    assert_eq!(passed(&[data], &mut streams), b"");
    assert_eq!(kept.bytes(), b"data");
}

#[tokio::test]
async fn the_library_gets_kept_data_before_the_end_of_the_connection() {
    let received = [
        frame(HEADERS, END_HEADERS, 1, b"\x88"),
        frame(DATA, 0, 1, b"data"),
    ];
    let (near, mut far) = tokio::io::duplex(1 << 10);
    let streams = Arc::new(Mutex::new(Streams::new(WINDOWS)));
    streams.lock().open(1);
    let mut io = FilteredIo::new(near, streams);
    far.write_all(&received.concat()).await.expect("no error");
    drop(far);
    let mut read = Vec::new();
    in_time(io.read_to_end(&mut read)).await.expect("an end");
    assert_eq!(read, received.concat());
}

#[test]
fn no_frame_divides_headers_that_are_received() {
    let (begin, rest) = (
        frame(HEADERS, 0, 1, b"begin"),
        frame(CONTINUATION, 0, 1, b"more"),
    );
    let end = frame(CONTINUATION, END_HEADERS, 1, b"end");
    let kept = [
        frame(DATA, 0, 3, b"read"),
        frame(DATA, 0, 5, b"closed"),
        frame(DATA, END_STREAM, 7, b""),
    ];
    let mut streams = Streams::new(WINDOWS);
    for stream in [1, 3, 5, 7] {
        streams.open(stream);
    }
    assert_eq!(passed(&kept, &mut streams), b"");
    let received = [begin, rest];
    assert_eq!(passed(&received, &mut streams), received.concat());
    streams.give_to_library(3);
    streams.close(5);
    streams.give_to_sink(7, Box::new(Kept::default()));
    assert_eq!(read_passed(&mut streams), b"");
    let expected = [end.clone(), kept.concat()].concat();
    assert_eq!(passed(&[end], &mut streams), expected);
}

#[tokio::test]
async fn no_frame_divides_headers_that_are_sent() {
    let (near, mut far) = tokio::io::duplex(1 << 10);
    let streams = Arc::new(Mutex::new(Streams::new(Windows {
        stream: 8,
        connection: 8,
    })));
    streams.lock().open(1);
    streams.lock().give_to_sink(1, Box::new(Kept::default()));
    let mut io = FilteredIo::new(near, streams);
    let parts = [
        vec![b'P'; 24],
        frame(HEADERS, END_STREAM, 3, b"begin"),
        frame(CONTINUATION, END_HEADERS, 3, b"end"),
    ];
    io.write_all(&parts[..2].concat()).await.expect("no error");
    // The windows of the stream and of the connection are to be opened again.
    let data = frame(DATA, 0, 1, b"12345678");
    far.write_all(&data).await.expect("no error");
    let mut space = [0; 16];
    assert!(io.read(&mut space).now_or_never().is_none());
    io.flush().await.expect("no error");
    io.write_all(&parts[2]).await.expect("no error");
    io.flush().await.expect("no error");
    drop(io);
    let mut sent = Vec::new();
    in_time(far.read_to_end(&mut sent)).await.expect("an end");
    let updates = sent
        .strip_prefix(&*parts.concat())
        .expect("all headers first");
    assert_eq!(opened(updates), HashMap::from([(0, 8), (1, 8)]));
}

#[test]
fn a_closed_stream_leaves_its_frames_to_the_library() {
    let mut streams = Streams::new(Windows {
        stream: WINDOW,
        connection: WINDOW,
    });
    let kept = Kept::default();
    streams.open(1);
    streams.open(3);
    streams.give_to_sink(3, Box::new(kept.clone()));
    let mut frames = ReceivedFrames::default();
    let mut receive = |bytes: &[u8], streams: &mut Streams| {
        frames.receive(bytes, streams, Instant::now());
    };
    let unread = frame(0, 0, 1, b"unread");
    receive(&unread, &mut streams);
    streams.close(1);
    assert_eq!(read_passed(&mut streams), unread);
    let (begun, rest) = (frame(0, 0, 3, b"begun, not ended"), 14);
    receive(&begun[..rest], &mut streams);
    streams.close(3);
    // The library has not seen the beginning of this frame, so it does not get the rest.
    receive(&begun[rest..], &mut streams);
    assert_eq!(kept.bytes(), b"begun");
    let later = frame(0, 1, 3, b"later");
    receive(&later, &mut streams);
    assert_eq!(read_passed(&mut streams), later);
}
