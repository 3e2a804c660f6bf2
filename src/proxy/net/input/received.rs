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
use kubefan_core::body::BoxError;
use parking_lot::Mutex;

use super::incoming::Incoming;
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
    /// Over HTTP/2, the limit of control frames.
    limit: Option<Arc<PeerLimit>>,
}

/// A body that has not ended. Over HTTP/1.1, also an answer that has not ended.
#[derive(Debug)]
pub(in crate::net) struct InProgress(Received);

/// The body of a request.
#[derive(Debug)]
pub struct RequestBody {
    body: Incoming,
    /// `None` after the end of the body.
    open: Option<InProgress>,
}

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

    /// Returns the measure of the connection's reads. A head may have `max_header_bytes`. Control
    /// frames are counted in `limit`.
    pub(in crate::net) fn reads(
        &self,
        max_header_bytes: u32,
        limit: Option<Arc<PeerLimit>>,
    ) -> Reads {
        Reads {
            received: self.clone(),
            frames: ReceivedFrames::new(max_header_bytes),
            limit,
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
            answer = Some(InProgress::begin(self));
        }
        let request = request.map(|body| RequestBody {
            open: (!body.is_end_stream()).then(|| InProgress::begin(self)),
            body,
        });
        (request, answer)
    }

    /// Changes the measure of an HTTP/1.1 connection, and publishes it.
    fn update(&self, received: &Mutex<ReceivedBytes>, change: impl FnOnce(&mut ReceivedBytes)) {
        let mut received = received.lock();
        change(&mut received);
        let (head, body) = received.held();
        self.buffers.set(Buffer::Head, head);
        self.buffers.set(Buffer::Upload, body);
    }

    /// Notes that the HTTP library has a new buffer for an HTTP/1.1 connection.
    pub(in crate::net) fn renew_buffer(&self) {
        if let ByProtocol::Http1(received) = &self.by_protocol {
            self.update(received, ReceivedBytes::renew_buffer);
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

// === impl Reads ===

impl Reads {
    /// Measures `data`, which the HTTP library has read.
    pub(in crate::net) fn receive(&mut self, data: &[u8]) {
        let buffers = &self.received.buffers;
        match &self.received.by_protocol {
            ByProtocol::Http1(received) => {
                let count = data.len() as u64;
                self.received
                    .update(received, |received| received.read(count));
            }
            ByProtocol::Http2(_) => {
                let bodies = self.frames.receive(data);
                let control = self.frames.take_control();
                if control != ControlFrames::default()
                    && let Some(limit) = &self.limit
                {
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
    fn begin(received: &Received) -> Self {
        match &received.by_protocol {
            ByProtocol::Http1(bytes) => received.update(bytes, ReceivedBytes::begin),
            ByProtocol::Http2(open) => {
                open.fetch_add(1, Ordering::Relaxed);
            }
        }
        Self(received.clone())
    }

    /// Notes that a frame of a body with `count` bytes of data was taken.
    fn take(&self, count: u64) {
        let Self(received) = self;
        match &received.by_protocol {
            ByProtocol::Http1(bytes) => received.update(bytes, |bytes| bytes.take(count)),
            ByProtocol::Http2(_) => {
                let buffers = &received.buffers;
                buffers.subtract(Buffer::Upload, count + DATA_FRAME_BYTES);
            }
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        match &self.0.by_protocol {
            ByProtocol::Http1(bytes) => self.0.update(bytes, ReceivedBytes::end),
            ByProtocol::Http2(open) => {
                open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

// === impl RequestBody ===

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
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
        let is_http2 = |open: &InProgress| matches!(open.0.by_protocol, ByProtocol::Http2(_));
        while self.open.as_ref().is_some_and(is_http2)
            && let Poll::Ready(_) = Pin::new(&mut *self).poll_frame(&mut cx)
        {}
    }
}
