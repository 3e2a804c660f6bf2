//! Tests with a server whose first connection refuses its first request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::BODY_LIMIT;
use crate::body::{boxed, empty, full};
use crate::upstream::Identity::Kubefan;
use crate::upstream::connect::connection::last_read::LastRead;
use crate::upstream::tests::support::{in_memory_tls, serve_body_length};
use crate::upstream::{Client, Error};

const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 1;
/// SETTINGS, and the acknowledgement of the client's.
const SETTINGS: [u8; 18] = [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0];
/// RST_STREAM of stream 1 with REFUSED_STREAM (7), or with INTERNAL_ERROR (2).
const REFUSED: [u8; 13] = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 7];
const BROKEN: [u8; 13] = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 2];
/// GOAWAY with NO_ERROR, with 0 or 1 as the last processed stream.
const GOAWAY_BEFORE: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const GOAWAY_AFTER: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];

/// Answers the first request of a connection by `frame`, and then closes the connection.
async fn refuse(mut io: impl AsyncRead + AsyncWrite + Unpin, frame: &[u8]) {
    io.read_exact(&mut [0; PREFACE]).await.expect("a preface");
    io.write_all(&SETTINGS).await.expect("written");
    loop {
        let mut head = [0; FRAME_HEAD];
        io.read_exact(&mut head).await.expect("a frame");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        io.read_exact(&mut payload).await.expect("a payload");
        if head[3] == HEADERS {
            break;
        }
    }
    io.write_all(frame).await.expect("written");
    io.flush().await.expect("flushed");
    let _ = io.shutdown().await;
}

/// A client of a server that answers the first request by `frame`, and each later one by the length
/// of its body.
fn client(frame: &'static [u8]) -> Client {
    in_memory_tls(move |number, io| async move {
        match number {
            0 => refuse(io, frame).await,
            _ => serve_body_length(io).await,
        }
    })
}

/// The answer to a write with a body of `length` bytes.
async fn post(client: &Client, length: usize) -> Result<String, Error> {
    let request = Request::post("/api").body(full(vec![b'x'; length]));
    let response = client.request(Kubefan, request.expect("a request")).await?;
    let body = response.into_body().collect().await.expect("a body");
    Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_sent_again_gets_an_http2_connection_of_its_own_again() {
    let watch = Request::get("/api/v1/pods?watch=true").body(empty());
    let watch = watch.expect("a request");
    let response = client(&BROKEN).request_alone(Kubefan, watch).await;
    let response = response.expect("an answer");
    assert!(response.extensions().get::<LastRead>().is_some());
}

/// A body whose sender announced five bytes, and leaves before it has sent them.
struct Abandoned;

impl http_body::Body for Abandoned {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(5)
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_its_sender_breaks_off_is_no_failure_of_the_api_server() {
    let request = Request::post("/api").body(boxed(Abandoned));
    let request = request.expect("a request");
    let failed = client(&REFUSED).request(Kubefan, request).await;
    assert!(matches!(failed, Err(Error::Request(_))), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn only_a_write_that_was_provably_not_processed_is_sent_again() {
    let large = usize::try_from(BODY_LIMIT).expect("a small number") + 1;
    let rows: [(&str, &'static [u8], usize, bool); 6] = [
        ("refused stream", &REFUSED, 5, true),
        ("refused stream, no body", &REFUSED, 0, true),
        ("goaway before it", &GOAWAY_BEFORE, 5, true),
        ("goaway after it", &GOAWAY_AFTER, 5, false),
        ("another error", &BROKEN, 5, false),
        ("large body", &REFUSED, large, false),
    ];
    for (what, frame, length, is_repeated) in rows {
        match post(&client(frame), length).await {
            Ok(answer) => {
                assert!(is_repeated, "{what}");
                assert_eq!(answer, length.to_string(), "{what}");
            }
            Err(error) => {
                assert!(!is_repeated, "{what}: {error:?}");
                assert!(matches!(error, Error::InDoubt(_)), "{what}: {error:?}");
            }
        }
    }
}
