//! An HTTP/2 connection. The crate `h2` has the protocol, and this module starts a stream for each
//! request.
//!
//! The bodies of most answers are sent by `h2`. For each of their frames it locks and changes the
//! state of the stream and that of the connection. A watch has frames as long as it lasts, and most
//! of its cost would be this memory. So the data of an answer that may be long is written beside
//! `h2`, by `data_frames`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::{Builder, Connection, Handshake};
use http::{Request, Response};
use http_body::Body;
use kubefan_core::body::BoxError;

use self::keep_alive::KeepAlive;
use self::request_stream::{RequestStream, Responder};
use super::answer_body::AnswerBody;
use super::coalesce::CoalescedIo;
use super::data_frames::DataFrames;
use super::streams::{OpenStreams, StreamHandle};
use crate::net::config::{CONNECTION_WINDOW, STREAM_WINDOW};
use crate::net::input::incoming::Incoming;
use crate::net::{Config, Transport};

mod answer;
mod head;
mod keep_alive;
mod request_stream;

/// An HTTP/2 connection of a client.
pub(in crate::net) struct Http2<I> {
    state: State<I>,
    data_frames: DataFrames<I>,
    ping_interval: Duration,
    ping_timeout: Duration,
    /// True if the connection ends after the answers to its current requests.
    is_finishing: bool,
}

/// Boxed, so that the memory of the handshake is freed.
enum State<I> {
    Handshake(Box<Handshake<CoalescedIo<I>, Bytes>>),
    Open(Box<Open<I>>),
}

struct Open<I> {
    connection: Connection<CoalescedIo<I>, Bytes>,
    /// `None` after a peer has not answered in time.
    keep_alive: Option<KeepAlive>,
}

// === impl Http2 ===

impl<I: Transport + Send + 'static> Http2<I> {
    /// Creates the connection on `io`.
    pub(in crate::net) fn new(config: &Config, io: CoalescedIo<I>) -> Self {
        Self {
            data_frames: DataFrames::new(&io),
            state: State::Handshake(Box::new(builder(config).handshake(io))),
            ping_interval: config.ping_interval,
            ping_timeout: config.ping_timeout,
            is_finishing: false,
        }
    }

    /// Ends the connection after the answers to its current requests.
    pub(in crate::net) fn finish(&mut self) {
        self.is_finishing = true;
        if let State::Open(open) = &mut self.state {
            open.connection.graceful_shutdown();
        }
    }

    /// Reads and writes, and starts a stream with the future of `answer` for each request. Ready at
    /// the end of the connection.
    ///
    /// # Errors
    /// If the peer breaks the protocol, or the socket fails.
    pub(in crate::net) fn poll<F, B, E>(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut OpenStreams,
        answer: &mut impl FnMut(Request<Incoming>, &Arc<StreamHandle>) -> F,
    ) -> Poll<Result<(), BoxError>>
    where
        F: Future<Output = Result<Response<AnswerBody<B>>, E>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
        E: Into<BoxError>,
    {
        loop {
            match &mut self.state {
                State::Handshake(handshake) => {
                    let connection = ready!(Pin::new(&mut **handshake).poll(cx))?;
                    self.open(connection);
                }
                State::Open(open) => return open.poll(cx, streams, &self.data_frames, answer),
            }
        }
    }

    fn open(&mut self, mut connection: Connection<CoalescedIo<I>, Bytes>) {
        let pings = connection.ping_pong();
        let keep_alive =
            pings.map(|pings| KeepAlive::new(pings, self.ping_interval, self.ping_timeout));
        if self.is_finishing {
            connection.graceful_shutdown();
        }
        self.state = State::Open(Box::new(Open {
            connection,
            keep_alive,
        }));
    }
}

// === impl Open ===

impl<I: Transport + Send + 'static> Open<I> {
    fn poll<F, B, E>(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut OpenStreams,
        data_frames: &DataFrames<I>,
        answer: &mut impl FnMut(Request<Incoming>, &Arc<StreamHandle>) -> F,
    ) -> Poll<Result<(), BoxError>>
    where
        F: Future<Output = Result<Response<AnswerBody<B>>, E>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
        E: Into<BoxError>,
    {
        self.poll_keep_alive(cx, data_frames);
        while let Some(accepted) = ready!(self.connection.poll_accept(cx)) {
            let (request, respond) = accepted?;
            let responder = Responder::new(&request, respond, data_frames.clone());
            let request = Incoming::http2(request);
            streams.start(|handle| RequestStream::new(answer(request, handle), responder));
        }
        Poll::Ready(Ok(()))
    }

    /// Pings a silent peer, and closes the connection if the peer does not answer.
    fn poll_keep_alive(&mut self, cx: &mut Context<'_>, data_frames: &DataFrames<I>) {
        let received_at = || data_frames.received_at();
        let late = |keep_alive: &mut KeepAlive| keep_alive.poll_late(cx, received_at).is_ready();
        if self.keep_alive.take_if(late).is_some() {
            self.connection.abrupt_shutdown(Reason::NO_ERROR);
        }
    }
}

fn builder(config: &Config) -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(config.max_concurrent_streams.get())
        .max_send_buffer_size(config.max_send_buffer)
        .max_header_list_size(config.max_header_bytes)
        .max_pending_accept_reset_streams(config.max_early_resets)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    builder
}

#[cfg(test)]
mod tests;
