//! An HTTP/1.1 connection. The HTTP library serves its requests, and this module sends the rest of
//! an answer that waits.
//!
//! The library has two buffers of 8 KiB for each connection, and still has the state of the
//! request. Over HTTP/1.1 each watch has a connection, and most watches are silent most of the
//! time. So once the head of a chunked answer was sent and the body waits, the connection is taken
//! from the library. It then has no buffers, and each frame of the body is sent as one chunk (RFC
//! 9112, 7.1). Chunks that are due together are written together. After the answer, the library
//! serves the connection again.

use std::future::Future;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::{io, mem};

use bytes::Buf;
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::server::conn::http1::UpgradeableConnection;
use hyper::service::HttpService;
use hyper_util::rt::{TokioIo, TokioTimer};
use kubefan_core::body::BoxError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::answer_body::AnswerBody;
use super::answer_slot::{AnswerSlot, SlotBody};
use super::chunks::{Chunks, MAX_SLICES};
use super::part_waker::PartWaker;
use crate::net::input::received::Received;
use crate::net::served_socket::ServedSocket;
use crate::net::{Config, Transport};

/// The most header fields of a request. An authenticating proxy sends one field for each group of a
/// user. While a head is parsed, every field up to this number takes memory, even if the request
/// does not have it: 56 KiB in all.
const MAX_HEADERS: usize = 1_024;
/// The most bytes that a client may send before the answer has ended. More stay in the socket.
const READ_AHEAD: usize = 512;

/// Serves an HTTP/1.1 connection, as a future that completes with the connection.
pub(in crate::net) struct Http1<I, S: HttpService<Incoming>, B: Body> {
    builder: http1::Builder,
    state: State<I, S, B>,
    /// The answer that the library sends.
    slot: AnswerSlot<B>,
    received: Received,
    /// True while output waits for the peer.
    is_blocked: Arc<AtomicBool>,
    /// The waker of the socket's input during a long answer.
    reads: PartWaker,
    /// False if the connection ends after its current answer.
    keeps_alive: bool,
}

enum State<I, S: HttpService<Incoming>, B: Body> {
    /// The library serves the connection.
    Requests(Box<UpgradeableConnection<TokioIo<ServedSocket<I>>, S>>),
    /// The rest of an answer is sent.
    Answer(Box<LongAnswer<I, S, B>>),
    Ended,
}

/// The rest of an answer, and what the library needs after it.
struct LongAnswer<I, S, B: Body> {
    socket: ServedSocket<I>,
    service: S,
    /// `None` after its end.
    body: Option<AnswerBody<B>>,
    /// Why the body has failed. The connection ends when the chunks before that were written.
    failure: Option<BoxError>,
    /// The chunks that the socket has not taken; `None` if it has taken all.
    blocked: Option<Box<Chunks<B::Data>>>,
    /// What the client has sent after its request.
    unread: Vec<u8>,
}

/// Returns the builder of connections with `config`.
pub(in crate::net) fn builder(config: &Config) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(config.head_timeout)
        .max_buf_size(config.max_header_bytes as usize)
        .max_headers(MAX_HEADERS)
        .title_case_headers(true);
    builder
}

// === impl Http1 ===

impl<I, S, B> Http1<I, S, B>
where
    I: Transport + Send + 'static,
    S: HttpService<Incoming, ResBody = SlotBody<B>>,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    /// Creates the connection on `socket`. `service` must put its answers into `slot`. `received` is
    /// the measure of what the socket reads. The connection uses `reads` during long answers.
    pub(in crate::net) fn new(
        builder: &http1::Builder,
        socket: ServedSocket<I>,
        service: S,
        slot: AnswerSlot<B>,
        received: Received,
        reads: PartWaker,
    ) -> Self {
        let is_blocked = socket.is_blocked();
        let connection = builder.serve_connection(TokioIo::new(socket), service);
        Self {
            builder: builder.clone(),
            state: State::Requests(Box::new(connection.with_upgrades())),
            slot,
            received,
            is_blocked,
            reads,
            keeps_alive: true,
        }
    }

    /// Ends the connection after its current answer, or at once if it waits for a request. If it has
    /// received a part of the first head that the library reads on a new connection or after a long
    /// answer, it ends after that request, or when the time limit for the head is over.
    pub(in crate::net) fn finish(&mut self) {
        self.keeps_alive = false;
        if let State::Requests(connection) = &mut self.state {
            Pin::new(&mut **connection).graceful_shutdown();
        }
    }

    /// Takes the connection from the library if the rest of its answer can be sent here: the body
    /// waits, and the socket has taken all output. The library writes what it has before it
    /// returns, unless the socket is blocked. Returns false if the connection was not taken.
    fn take_answer(&mut self) -> bool {
        if self.is_blocked.load(Ordering::Relaxed) {
            return false;
        }
        let Some(body) = self.slot.take_waiting() else {
            return false;
        };
        let before = mem::replace(&mut self.state, State::Ended);
        // A connection without parts was upgraded, and has no answer.
        if let State::Requests(connection) = before
            && let Some(parts) = (*connection).into_parts()
        {
            // Until now, the socket had the waker of the task.
            self.reads.set_due();
            self.state = State::Answer(Box::new(LongAnswer {
                socket: parts.io.into_inner(),
                service: parts.service,
                body: Some(body),
                failure: None,
                blocked: None,
                // A copy, because the bytes may hold the library's buffer.
                unread: parts.read_buf.to_vec(),
            }));
        }
        true
    }

    /// Makes the library serve the connection again after an answer, unless it ends.
    fn resume(&mut self) {
        let before = mem::replace(&mut self.state, State::Ended);
        if let State::Answer(answer) = before
            && self.keeps_alive
        {
            let mut socket = answer.socket;
            socket.read_again(answer.unread);
            // Not when the answer was taken: until its end, its record may share the old buffer.
            self.received.renew_buffer();
            let io = TokioIo::new(socket);
            let connection = self.builder.serve_connection(io, answer.service);
            self.state = State::Requests(Box::new(connection.with_upgrades()));
        }
    }
}

impl<I, S, B> Future for Http1<I, S, B>
where
    I: Transport + Send + 'static,
    S: HttpService<Incoming, ResBody = SlotBody<B>>,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    type Output = Result<(), BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Requests(connection) => {
                    if let Poll::Ready(ended) = Pin::new(&mut **connection).poll(cx) {
                        return Poll::Ready(ended.map_err(BoxError::from));
                    }
                    if !this.take_answer() {
                        return Poll::Pending;
                    }
                }
                State::Answer(answer) => {
                    ready!(answer.poll_rest(cx, this.keeps_alive, &mut this.reads))?;
                    this.resume();
                }
                State::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}

// === impl LongAnswer ===

impl<I, S, B> LongAnswer<I, S, B>
where
    I: Transport,
    B: Body<Error: Into<BoxError>> + Unpin,
{
    /// Sends the rest of the answer, and closes the connection after it unless it `keeps_alive`.
    fn poll_rest(
        &mut self,
        cx: &mut Context<'_>,
        keeps_alive: bool,
        reads: &mut PartWaker,
    ) -> Poll<Result<(), BoxError>> {
        self.read_ahead(cx, reads)?;
        // On the stack, because the socket usually takes all of an event's chunk at once.
        let mut chunks = self
            .blocked
            .take()
            .map_or_else(Chunks::default, |chunks| *chunks);
        let sent = self.poll_chunks(cx, &mut chunks);
        if chunks.has_remaining() {
            self.blocked = Some(Box::new(chunks));
        }
        ready!(sent)?;
        let socket = Pin::new(&mut self.socket);
        if self.body.is_some() {
            ready!(socket.poll_flush(cx))?;
            return Poll::Pending;
        }
        if let Some(error) = self.failure.take() {
            return Poll::Ready(Err(error));
        }
        let ended = if keeps_alive {
            socket.poll_flush(cx)
        } else {
            socket.poll_shutdown(cx)
        };
        ended.map_err(BoxError::from)
    }

    /// Writes `chunks` and those that the body has. Ready when the socket has taken all, and the
    /// body waits or has ended.
    fn poll_chunks(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &mut Chunks<B::Data>,
    ) -> Poll<io::Result<()>> {
        let mut is_waiting = false;
        loop {
            if chunks.has_remaining() {
                ready!(self.poll_write(cx, chunks))?;
            }
            // Not before the socket has taken something, so that a blocked one gets no more chunks.
            if !is_waiting {
                is_waiting = self.poll_body(cx, chunks).is_pending();
            }
            if !chunks.has_remaining() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Notices that the client has left, and reads what it sends before the answer has ended. Does
    /// nothing unless the socket has woken the task, because most wakes are events of a watch.
    fn read_ahead(&mut self, cx: &mut Context<'_>, reads: &mut PartWaker) -> io::Result<()> {
        if !reads.take_due(cx) || !self.unread.is_empty() {
            return Ok(());
        }
        let cx = &mut Context::from_waker(reads.waker());
        let mut bytes = [MaybeUninit::uninit(); READ_AHEAD];
        let mut buffer = ReadBuf::uninit(&mut bytes);
        if let Poll::Ready(read) = Pin::new(&mut self.socket).poll_read(cx, &mut buffer) {
            read?;
            if buffer.filled().is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.unread.extend_from_slice(buffer.filled());
        }
        Ok(())
    }

    /// Takes from the body what there is room for. Pending if the body waits.
    fn poll_body(&mut self, cx: &mut Context<'_>, chunks: &mut Chunks<B::Data>) -> Poll<()> {
        while chunks.have_room()
            && let Some(body) = &mut self.body
        {
            match ready!(Pin::new(body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    // Trailers need a `TE` in the request, and this one has none.
                    if let Ok(data) = frame.into_data() {
                        chunks.push(data);
                    }
                }
                Some(Err(error)) => {
                    self.failure = Some(error.into());
                    self.body = None;
                }
                None => {
                    chunks.end();
                    self.body = None;
                }
            }
        }
        Poll::Ready(())
    }

    /// Writes as much of the chunks as the socket takes in one write.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &mut Chunks<B::Data>,
    ) -> Poll<io::Result<()>> {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let count = chunks.chunks_vectored(&mut slices);
        let socket = Pin::new(&mut self.socket);
        let written = ready!(socket.poll_write_vectored(cx, &slices[..count]))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        chunks.advance(written);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
