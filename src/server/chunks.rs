//! A body made of shared slices, of known length.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::Context;
use std::task::Poll;

use bytes::Bytes;
use http_body::Frame;
use http_body::SizeHint;

use crate::upstream;
use crate::upstream::Body;

/// Slices that are sent one after another; nothing is copied together.
pub(super) struct Chunks {
    parts: VecDeque<Bytes>,
    left: u64,
}

impl Chunks {
    /// A body of `parts`.
    pub(super) fn new(parts: VecDeque<Bytes>) -> Self {
        let left = parts.iter().map(|part| part.len() as u64).sum();
        Self { parts, left }
    }

    /// The same as a response's body.
    pub(super) fn boxed(self) -> Body {
        upstream::boxed(self)
    }
}

impl http_body::Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.parts.pop_front();
        self.left -= part.as_ref().map_or(0, |part| part.len() as u64);
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
