//! The body of a request as the HTTP library receives it, over HTTP/1.1 or HTTP/2.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Method, Request};
use http_body::{Body, Frame, SizeHint};
use kubefan_core::body::BoxError;

/// The body of a request.
#[derive(Debug)]
pub(in crate::net) enum Incoming {
    Http1(hyper::body::Incoming),
    Http2(Http2Body),
}

/// The body of a request over HTTP/2.
#[derive(Debug)]
pub(in crate::net) struct Http2Body {
    /// `None` after the end of the body.
    stream: Option<RecvStream>,
    /// The bytes that are still to come; `None` if the client has not announced the length.
    remaining: Option<u64>,
}

// === impl Incoming ===

impl Incoming {
    /// Returns a request over HTTP/2 with its body.
    pub(in crate::net) fn http2(request: Request<RecvStream>) -> Request<Self> {
        let (head, stream) = request.into_parts();
        let body = Http2Body::new(&head, stream);
        Request::from_parts(head, Self::Http2(body))
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Http1(body) => Pin::new(body).poll_frame(cx).map_err(BoxError::from),
            Self::Http2(body) => body.poll_frame(cx).map_err(BoxError::from),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
        }
    }
}

// === impl Http2Body ===

impl Http2Body {
    /// Creates the body of a request with this head. A CONNECT has no body, only a tunnel, and
    /// tunnels are not served.
    fn new(head: &Parts, stream: RecvStream) -> Self {
        let has_ended = head.method == Method::CONNECT || stream.is_end_stream();
        Self {
            remaining: if has_ended {
                Some(0)
            } else {
                announced_length(head)
            },
            stream: (!has_ended).then_some(stream),
        }
    }

    /// Returns the next frame. The client may at once send as many bytes again.
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(None);
        };
        let end = match ready!(stream.poll_data(cx)) {
            Some(Ok(data)) => {
                // Fails only for more bytes than were received.
                let _ = stream.flow_control().release_capacity(data.len());
                if let Some(remaining) = &mut self.remaining {
                    *remaining = remaining.saturating_sub(data.len() as u64);
                }
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            Some(Err(error)) => Err(error),
            None => ready!(stream.poll_trailers(cx)),
        };
        self.stream = None;
        Poll::Ready(match end {
            Ok(trailers) => trailers.map(Frame::trailers).map(Ok),
            // A reset without an error only stops the body (RFC 9113, 8.1).
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => None,
            Err(error) => Some(Err(error)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.stream.as_ref().is_none_or(RecvStream::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Returns the `content-length` of a request. `h2` has refused one that is no number, and different
/// ones.
fn announced_length(head: &Parts) -> Option<u64> {
    let length = head.headers.get(CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}
