//! The body of an answer over HTTP/2: as the HTTP library reads it, or for a [`BodySink`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http_body::Frame;
use parking_lot::Mutex;

use super::streams::{BodySink, Streams};

/// A stream from its request on; closed in its [`Streams`] when it is dropped.
pub(super) struct OpenStream {
    number: u32,
    streams: Arc<Mutex<Streams>>,
}

/// The body of an answer. If a sink gets it, nothing is read from it but its end or its error.
pub(super) struct StreamBody {
    open: OpenStream,
    stream: RecvStream,
    is_read: bool,
}

/// The body of an answer over HTTP/2, as an extension of the answer. A [`BodySink`] may take it.
#[derive(Clone)]
pub(crate) struct SinkableBody {
    number: u32,
    streams: Arc<Mutex<Streams>>,
}

impl OpenStream {
    /// Takes over the stream `number`, which is open in `streams`.
    pub(super) fn new(number: u32, streams: &Arc<Mutex<Streams>>) -> Self {
        Self {
            number,
            streams: Arc::clone(streams),
        }
    }

    /// Returns the body of the answer, which arrives as `stream`.
    pub(super) fn into_body(self, stream: RecvStream) -> StreamBody {
        StreamBody {
            open: self,
            stream,
            is_read: false,
        }
    }
}

impl StreamBody {
    pub(super) fn sinkable(&self) -> SinkableBody {
        SinkableBody {
            number: self.open.number,
            streams: Arc::clone(&self.open.streams),
        }
    }
}

impl SinkableBody {
    /// Gives the answer's body to `sink`, from its first byte on. This costs less than reading the
    /// body, and copies nothing. The answer's body must still be read: it has no data any more, but
    /// it ends or fails when the stream does. Dropping it ends the stream.
    ///
    /// Has no effect if the HTTP library already has the body: the body was read or dropped, or
    /// trailers, a reset or the end of the connection came after its first bytes. Then the answer's
    /// body has the data. The answer must not have the header `Content-Length`, or its body fails at
    /// the end.
    pub(crate) fn send_to(self, sink: Box<dyn BodySink>) {
        self.streams.lock().give_to_sink(self.number, sink);
    }
}

impl http_body::Body for StreamBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let this = &mut *self;
        if !this.is_read {
            this.is_read = true;
            let open = &this.open;
            open.streams.lock().give_to_library(open.number);
        }
        let Some(data) = ready!(this.stream.poll_data(cx)) else {
            return Poll::Ready(None);
        };
        let data = data.and_then(|data| {
            this.stream.flow_control().release_capacity(data.len())?;
            Ok(Frame::data(data))
        });
        Poll::Ready(Some(data))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.lock().close(self.number);
    }
}
