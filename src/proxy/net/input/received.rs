//! Measures what a connection has received, but nothing has read yet: the unfinished head of a
//! request, and the bodies of requests.
//!
//! The HTTP library holds these bytes before there is a request that could be charged or refused.
//! So they are measured, in the [`Buffers`] of the connection's account.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;

use super::paced_reads::Starts;
use super::received_bytes::{ReceivedBytes, length_of_head};
use super::received_frames::{ControlFrames, DATA_FRAME_BYTES, ReceivedFrames};
use super::resets::PeerLimit;
use crate::ledger::{Buffer, Buffers};
use crate::net::Protocol;
use crate::net::config::{CONNECTION_WINDOW, STREAM_WINDOW};

/// The measure of what a connection has received. Clones share it.
#[derive(Clone, Debug)]
pub(in crate::net) struct Received {
    buffers: Arc<Buffers>,
    by_protocol: ByProtocol,
}

#[derive(Clone, Debug)]
enum ByProtocol {
    Http1(Arc<Mutex<ReceivedBytes>>),
    /// The number of bodies that have not ended.
    Http2(Arc<AtomicUsize>),
}

/// Measures what is read from a connection's socket.
#[derive(Debug)]
pub(in crate::net) struct Reads {
    received: Received,
    frames: ReceivedFrames,
    /// Over HTTP/2, the counters of control frames.
    pacing: Option<(Arc<Starts>, Arc<PeerLimit>)>,
}

/// Over HTTP/1.1, a body or an answer that has not ended.
#[derive(Debug)]
pub(in crate::net) struct InProgress(Arc<Mutex<ReceivedBytes>>, Arc<Buffers>);

/// The body of a request.
#[derive(Debug)]
pub struct RequestBody {
    body: Incoming,
    /// `None` after the end of the body.
    open: Option<Open>,
}

/// The measure of a request's body until the body has ended.
#[derive(Debug)]
enum Open {
    Http1(InProgress),
    Http2(OpenBody),
}

/// Over HTTP/2, a body that has not ended.
#[derive(Debug)]
struct OpenBody(Arc<AtomicUsize>, Arc<Buffers>);

// === impl Received ===

impl Received {
    /// Creates the measure of a connection that has received nothing.
    pub(in crate::net) fn new(buffers: Arc<Buffers>, protocol: Protocol) -> Self {
        let by_protocol = match protocol {
            Protocol::Http1 => ByProtocol::Http1(Arc::default()),
            Protocol::Http2 => ByProtocol::Http2(Arc::default()),
        };
        Self {
            buffers,
            by_protocol,
        }
    }

    /// Returns the measure of the connection's reads. A head may have `max_header_bytes`.
    pub(in crate::net) fn reads(&self, max_header_bytes: u32) -> Reads {
        Reads {
            received: self.clone(),
            frames: ReceivedFrames::new(max_header_bytes),
            pacing: None,
        }
    }

    /// Begins a request with a complete head. The second value must live as long as the request's
    /// answer.
    pub(in crate::net) fn begin_request(
        &self,
        request: Request<Incoming>,
    ) -> (Request<RequestBody>, Option<InProgress>) {
        let mut answer = None;
        if let ByProtocol::Http1(received) = &self.by_protocol {
            received.lock().begin_request(length_of_head(&request));
            answer = Some(InProgress::begin(received, &self.buffers));
        }
        let request = request.map(|body| RequestBody {
            open: (!body.is_end_stream()).then(|| self.open()),
            body,
        });
        (request, answer)
    }

    fn open(&self) -> Open {
        match &self.by_protocol {
            ByProtocol::Http1(received) => Open::Http1(InProgress::begin(received, &self.buffers)),
            ByProtocol::Http2(open) => {
                open.fetch_add(1, Ordering::Relaxed);
                Open::Http2(OpenBody(Arc::clone(open), Arc::clone(&self.buffers)))
            }
        }
    }

    /// Notes that the connection has ended, or is not HTTP any more.
    pub(in crate::net) fn end_connection(&self) {
        if let ByProtocol::Http1(received) = &self.by_protocol {
            received.lock().end_connection();
        }
        self.buffers.set(Buffer::Head, 0);
        self.buffers.set(Buffer::Upload, 0);
    }

    /// Corrects the count of uploads over HTTP/2. Must be called when all requests that were read
    /// have begun. Data that arrives after its body was dropped is counted, although the library
    /// drops it. But the open bodies hold no more than their windows permit.
    pub(in crate::net) fn settle(&self) {
        let ByProtocol::Http2(open) = &self.by_protocol else {
            return;
        };
        if self.buffers.get(Buffer::Upload) > 0 {
            let most = most_of_bodies(open.load(Ordering::Relaxed) as u64);
            self.buffers.limit(Buffer::Upload, most);
        }
    }
}

/// Returns the upper limit of the count for `open` bodies of an HTTP/2 connection. Frames of at
/// least [`DATA_FRAME_BYTES`] count at most twice their data. The library accepts a few thousand
/// shorter frames, which add at most half of the connection's window.
fn most_of_bodies(open: u64) -> u64 {
    let connection = u64::from(CONNECTION_WINDOW);
    match open.saturating_mul(u64::from(STREAM_WINDOW)) {
        0 => 0,
        windows => 2 * windows.min(connection) + connection / 2,
    }
}

fn publish(received: &ReceivedBytes, buffers: &Buffers) {
    let (head, body) = received.held();
    buffers.set(Buffer::Head, head);
    buffers.set(Buffer::Upload, body);
}

// === impl Reads ===

impl Reads {
    /// Counts control frames in `starts` and `limit` from now on.
    pub(in crate::net) fn paced(mut self, starts: &Arc<Starts>, limit: &Arc<PeerLimit>) -> Self {
        self.pacing = Some((Arc::clone(starts), Arc::clone(limit)));
        self
    }

    /// Measures `data`, which the HTTP library has read.
    pub(in crate::net) fn receive(&mut self, data: &[u8]) {
        let buffers = &self.received.buffers;
        match &self.received.by_protocol {
            ByProtocol::Http1(received) => {
                let mut received = received.lock();
                received.read(data.len() as u64);
                publish(&received, buffers);
            }
            ByProtocol::Http2(_) => {
                let bodies = self.frames.receive(data);
                let control = self.frames.take_control();
                if control != ControlFrames::default()
                    && let Some((starts, limit)) = &self.pacing
                {
                    starts.record_control(control);
                    limit.record_control(control);
                }
                if bodies > 0 {
                    buffers.add(Buffer::Upload, bodies);
                }
                let head = self.frames.unfinished_head();
                if head != buffers.get(Buffer::Head) {
                    buffers.set(Buffer::Head, head);
                }
            }
        }
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        self.received.end_connection();
    }
}

// === impl InProgress ===

impl InProgress {
    fn begin(received: &Arc<Mutex<ReceivedBytes>>, buffers: &Arc<Buffers>) -> Self {
        let mut locked = received.lock();
        locked.begin();
        publish(&locked, buffers);
        Self(Arc::clone(received), Arc::clone(buffers))
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let mut received = self.0.lock();
        received.end();
        publish(&received, &self.1);
    }
}

// === impl Open ===

impl Open {
    /// Notes that a frame of a body with `count` bytes of data was taken.
    fn take(&self, count: u64) {
        match self {
            Self::Http1(InProgress(received, buffers)) => {
                let mut received = received.lock();
                received.take(count);
                publish(&received, buffers);
            }
            Self::Http2(OpenBody(_, buffers)) => {
                buffers.subtract(Buffer::Upload, count + DATA_FRAME_BYTES);
            }
        }
    }
}

impl Drop for OpenBody {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl RequestBody ===

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let has_ended = match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(data), Some(open)) = (frame.data_ref(), &self.open) {
                    open.take(data.len() as u64);
                }
                self.body.is_end_stream()
            }
            Poll::Ready(_) => true,
            Poll::Pending => false,
        };
        if has_ended {
            self.open = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    /// Over HTTP/2, takes the frames that have arrived, to subtract their bytes. Otherwise these
    /// frames would be dropped uncounted with the body. Over HTTP/1.1, the next read shows what is
    /// left.
    fn drop(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        while matches!(self.open, Some(Open::Http2(_)))
            && let Poll::Ready(_) = Pin::new(&mut *self).poll_frame(&mut cx)
        {}
    }
}
