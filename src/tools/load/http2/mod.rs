//! HTTP/2 connections for answers with many small DATA frames. A [`BodySink`] takes the body of an
//! answer on the connection's own task. So a DATA frame needs no other task, no wake and no lock of
//! the HTTP library, and is usually not copied. The library handles all other frames.

mod filtered_io;
mod frames;
mod received_frames;
mod stream_body;
mod streams;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use filtered_io::FilteredIo;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use h2::client::{Builder, SendRequest};
use http::{Request, Response};
use http_body::Body as _;
use kubefan_core::body;
use kubefan_core::body::{Body, BoxError};
use kubefan_core::upstream::{Client, DedicatedConnection, Error, RequestSender};
use parking_lot::Mutex;
use stream_body::OpenStream;
use streams::Streams;

pub(super) use self::stream_body::SinkableBody;
pub(super) use self::streams::{BodySink, Windows};

/// The number of concurrent streams until the server has said how many it allows.
const FIRST_STREAMS: usize = 100;

/// Sends requests without bodies over one connection. Their answers have a [`SinkableBody`] as an
/// extension.
struct Sender {
    requests: SendRequest<Bytes>,
    streams: Arc<Mutex<Streams>>,
}

/// Opens a connection with these windows, on the current runtime. Its requests may not have bodies,
/// and their answers have a [`SinkableBody`] as an extension.
pub(super) async fn open(client: &Client, windows: Windows) -> Result<DedicatedConnection, Error> {
    let io = client.open_http2_stream().await?;
    let streams = Arc::new(Mutex::new(Streams::new(windows)));
    let io = FilteredIo::new(io, Arc::clone(&streams));
    let opened = Builder::new()
        .initial_window_size(windows.stream)
        .initial_connection_window_size(windows.connection)
        .initial_max_send_streams(FIRST_STREAMS)
        .enable_push(false)
        .handshake(io)
        .await;
    let (requests, connection) = opened.map_err(|error| Error::Unreachable(error.into()))?;
    Ok(DedicatedConnection::new(
        Sender { requests, streams },
        connection,
    ))
}

impl Sender {
    async fn send_request(&self, request: Request<()>) -> Result<Response<Body>, BoxError> {
        let mut requests = self.requests.clone().ready().await?;
        let (number, response) = {
            // The answer is not received before its stream is known here.
            let mut streams = self.streams.lock();
            let (response, _) = requests.send_request(request, true)?;
            let number = response.stream_id().as_u32();
            streams.open(number);
            (number, response)
        };
        let stream = OpenStream::new(number, &self.streams);
        let (mut parts, received) = response.await?.into_parts();
        let body = stream.into_body(received);
        parts.extensions.insert(body.sinkable());
        Ok(Response::from_parts(parts, body::boxed(body)))
    }
}

impl RequestSender for Sender {
    fn is_closed(&self) -> bool {
        // After the server has announced the end of the connection, the library refuses requests
        // while the connection still has streams.
        let ready = self.requests.clone().ready().now_or_never();
        ready.is_some_and(|ready| ready.is_err())
    }

    fn send(&self, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, BoxError>> {
        if !request.body().is_end_stream() {
            let error: BoxError = "the connection sends no bodies".into();
            return Box::pin(std::future::ready(Err(error)));
        }
        Box::pin(self.send_request(request.map(drop)))
    }
}
