//! A body made of shared slices, of known length.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::Context;
use std::task::Poll;

use bytes::Bytes;
use http_body::Frame;
use http_body::SizeHint;

use crate::codec::Indenter;
use crate::upstream;
use crate::upstream::Body;

/// JSON up to this length, its line break included, is indented before anything is sent. So what is
/// of unknown length is longer than the API server sends without compressing it.
const AT_ONCE: usize = (128 << 10) + 1;
/// About so many bytes of indented JSON are sent at a time.
const INDENTED_CHUNK: usize = 32 << 10;

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

    /// The same JSON text as a response's body, indented. A long one is indented piece by piece
    /// when it is sent; of its length is known that it is at least that of `parts`.
    pub(super) fn indented(parts: VecDeque<Bytes>) -> Body {
        let left: usize = parts.iter().map(Bytes::len).sum();
        let mut body = Indented {
            parts,
            indenter: Indenter::default(),
            // The line break at the end goes.
            left: left.saturating_sub(1) as u64,
        };
        if left > AT_ONCE {
            return upstream::boxed(body);
        }
        Self::new(std::iter::from_fn(|| body.next()).collect()).boxed()
    }

    /// The same as a response's body.
    pub(super) fn boxed(self) -> Body {
        upstream::boxed(self)
    }
}

/// The slices of one JSON text, indented when they are sent.
struct Indented {
    parts: VecDeque<Bytes>,
    indenter: Indenter,
    /// Bytes of what is left, at the least.
    left: u64,
}

impl Indented {
    fn next(&mut self) -> Option<Bytes> {
        let mut printed = Vec::new();
        while printed.len() < INDENTED_CHUNK {
            let Some(part) = self.parts.pop_front() else {
                break;
            };
            self.left = self.left.saturating_sub(part.len() as u64);
            self.indenter.push(&part, &mut printed);
        }
        (!printed.is_empty()).then(|| printed.into())
    }
}

impl http_body::Body for Indented {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next().map(|chunk| Ok(Frame::data(chunk))))
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_lower(self.left);
        hint
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

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use http_body_util::BodyExt;

    use super::*;
    use crate::codec;

    #[tokio::test]
    async fn indented_whether_short_or_long() {
        for items in [1, 10_000] {
            let parts = || {
                let item = Bytes::from_static(b"{\"a\":[1,{}],\"b\":\"c\"}");
                let items = (0..items).flat_map(|_| [item.clone(), Bytes::from_static(b",")]);
                let end = Bytes::from_static(b"null]\n");
                let list = [Bytes::from_static(b"[")].into_iter().chain(items);
                list.chain([end]).collect::<VecDeque<_>>()
            };
            let plain: Vec<u8> = parts().into_iter().flatten().collect();
            let expected = codec::indented(&plain);
            let body = Chunks::indented(parts());
            let hint = body.size_hint();
            assert!(hint.lower() <= expected.len() as u64);
            match plain.len() > AT_ONCE {
                true => assert!(hint.lower() as usize >= plain.len() - 1),
                false => assert_eq!(hint.exact(), Some(expected.len() as u64)),
            }
            let sent = body.collect().await.expect("a body").to_bytes();
            assert!(sent == expected, "{items} items");
        }
    }
}
