//! A body made of shared slices.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use kubefan_core::body;
use kubefan_core::body::{Body, YieldingBody};
use kubefan_core::codec::Indenter;
use kubefan_core::concurrency::CoopBudget;

use super::PolledFrame;
use super::chunk_size::ChunkSize;

/// Longest answer, in bytes, that is sent uncompressed, as at the API server.
pub(crate) const GZIP_THRESHOLD: u64 = 128 << 10;
/// Number of bytes that are indented together. Deeply nested JSON becomes many times longer.
const INDENTED_PIECE: usize = 512;

/// A body of slices, sent without copying. A clone sends what the original has not sent yet.
#[derive(Clone, Debug)]
pub(crate) struct Chunks<P> {
    parts: P,
    form: Form,
    /// Bytes that are left to send. Indented JSON is longer, so for indented JSON this is a lower
    /// bound.
    left: u64,
}

/// The form in which the parts are sent.
#[derive(Clone, Debug)]
enum Form {
    /// Unchanged.
    Plain,
    /// As JSON that is indented for people while it is sent.
    Indented(Indented),
    /// With short parts copied together, for use if a frame costs more than the copying.
    Gathered(Gathered),
}

/// The progress of indenting JSON.
#[derive(Clone, Debug, Default)]
struct Indented {
    indenter: Indenter,
    /// The rest of a part, which is not indented yet.
    rest: Bytes,
    /// Bytes of indented JSON that are left to send; `None` if their number was not determined.
    left: Option<u64>,
    size: ChunkSize,
}

/// The progress of copying short parts together.
#[derive(Clone, Debug, Default)]
struct Gathered {
    /// A part that did not fit into the last frame.
    pending: Option<Bytes>,
    size: ChunkSize,
}

impl<P: Iterator<Item = Bytes> + Clone + Send + Unpin + 'static> Chunks<P> {
    /// Creates a body of `parts`, which have `length` bytes in total.
    pub(crate) fn new(parts: P, length: u64) -> Self {
        Self {
            parts,
            form: Form::Plain,
            left: length,
        }
    }

    /// Indents the JSON text of the parts.
    pub(crate) fn indented(self) -> Self {
        Self {
            form: Form::Indented(Indented::default()),
            // Indented JSON has no line break at its end.
            left: self.left.saturating_sub(1),
            ..self
        }
    }

    /// Returns true if the answer is longer than [`GZIP_THRESHOLD`]. Shorter JSON is indented
    /// twice, to determine its length before it is sent.
    pub(crate) fn is_long(&self) -> bool {
        self.left > GZIP_THRESHOLD
    }

    /// Returns the body of a response. JSON is indented while it is sent, so if the reader takes
    /// nothing, only one chunk is in memory.
    pub(crate) fn boxed(mut self) -> Body {
        if matches!(self.form, Form::Indented(_)) && !self.is_long() {
            let length = self.clone().map(|chunk| chunk.len() as u64).sum();
            if let Form::Indented(indented) = &mut self.form {
                indented.left = Some(length);
            }
        }
        body::boxed(YieldingBody::new(self))
    }

    /// Returns the body of a response, with short parts copied together (but not those of indented
    /// JSON).
    pub(crate) fn gathered(mut self) -> Body {
        if let Form::Plain = self.form {
            self.form = Form::Gathered(Gathered::default());
        }
        self.boxed()
    }
}

impl<P> Chunks<P> {
    /// Returns the bytes that are left to send; `None` if their number was not determined.
    fn exactly_left(&self) -> Option<u64> {
        match &self.form {
            Form::Plain => Some(self.left),
            Form::Indented(indented) => indented.left,
            Form::Gathered(gathered) => Some(gathered.pending_bytes() + self.left),
        }
    }
}

impl<P: Iterator<Item = Bytes>> Iterator for Chunks<P> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let Self { parts, form, left } = self;
        let unread = *left;
        let mut taken = parts.inspect(|part| *left = left.saturating_sub(part.len() as u64));
        match form {
            Form::Plain => taken.next(),
            Form::Indented(indented) => indented.next(&mut taken),
            Form::Gathered(gathered) => gathered.next(&mut taken, unread),
        }
    }
}

impl Indented {
    /// Returns the next chunk of the indented `parts`.
    fn next(&mut self, parts: &mut impl Iterator<Item = Bytes>) -> Option<Bytes> {
        let size = self.size.next();
        let mut printed = Vec::with_capacity(size);
        while printed.len() < size {
            if self.rest.is_empty() {
                let Some(part) = parts.next() else {
                    break;
                };
                self.rest = part;
            }
            let piece = self.rest.len().min(INDENTED_PIECE);
            self.indenter.push(&self.rest.split_to(piece), &mut printed);
        }
        self.size.record(printed.len());
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(printed.len() as u64);
        }
        (!printed.is_empty()).then(|| printed.into())
    }
}

impl<P: Iterator<Item = Bytes> + Unpin> http_body::Body for Chunks<P> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame<Infallible> {
        frame_or_yield(self.next(), cx)
    }

    fn is_end_stream(&self) -> bool {
        self.exactly_left() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.exactly_left();
        left.map(SizeHint::with_exact).unwrap_or_else(|| {
            let mut hint = SizeHint::new();
            hint.set_lower(self.left);
            hint
        })
    }
}

impl Gathered {
    /// Returns the bytes that were taken from the parts, but not sent yet.
    fn pending_bytes(&self) -> u64 {
        self.pending.as_ref().map_or(0, |part| part.len() as u64)
    }

    /// Returns the next chunk of the `parts`, which have `unread` bytes. It is empty if the next
    /// part is empty.
    fn next(&mut self, parts: &mut impl Iterator<Item = Bytes>, unread: u64) -> Option<Bytes> {
        let whole = self.pending_bytes() + unread;
        let first = self.pending.take().or_else(|| parts.next())?;
        let size = self.size.next();
        if first.is_empty() || first.len() >= size {
            self.size.record(first.len());
            return Some(first);
        }
        let whole = usize::try_from(whole).unwrap_or(size);
        let mut gathered = Vec::with_capacity(whole.min(size));
        gathered.extend_from_slice(&first);
        for part in parts {
            if gathered.len() + part.len() > size {
                self.pending = Some(part);
                break;
            }
            if part.is_empty() {
                break;
            }
            gathered.extend_from_slice(&part);
        }
        self.size.record(gathered.len());
        Some(gathered.into())
    }
}

/// Returns a frame with `chunk`. An empty `chunk` means that the parts need more time. The poll is
/// then pending, and the task is woken at once, so that other tasks can run in between.
fn frame_or_yield(chunk: Option<Bytes>, cx: &mut Context<'_>) -> PolledFrame<Infallible> {
    match chunk {
        Some(chunk) if chunk.is_empty() => {
            let mut spent = CoopBudget::new();
            spent.charge(CoopBudget::UNITS);
            spent.poll_proceed(cx).map(|()| None)
        }
        chunk => Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk)))),
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use http_body_util::BodyExt;
    use kubefan_core::codec;

    use super::*;
    use crate::server::deliver::chunk_size;

    #[tokio::test]
    async fn indented_whether_short_or_long() {
        for items in [1, 10_000] {
            let item = Bytes::from_static(b"{\"a\":[1,{}],\"b\":\"c\"}");
            let list = (0..items).flat_map(|_| [item.clone(), Bytes::from_static(b",")]);
            let mut parts = vec![Bytes::from_static(b"[")];
            parts.extend(list);
            parts.push(Bytes::from_static(b"null]\n"));
            let plain = parts.concat();
            assert_eq!(plain.len() as u64 - 1 > GZIP_THRESHOLD, items > 1);
            let expected = codec::indented(&plain);
            let chunks = Chunks::new(parts.into_iter(), plain.len() as u64).indented();
            assert_eq!(chunks.is_long(), items > 1);
            let body = chunks.boxed();
            let hint = body.size_hint();
            assert!(hint.lower() <= expected.len() as u64);
            if items > 1 {
                assert!(hint.lower() as usize >= plain.len() - 1)
            } else {
                assert_eq!(hint.exact(), Some(expected.len() as u64))
            }
            let sent = body.collect().await.expect("a body").to_bytes();
            assert!(sent == expected, "{items} items");
        }
    }

    #[tokio::test]
    async fn a_short_indented_answer_is_not_made_before_the_reader_takes_it() {
        let text = format!("[{}null]\n", "{\"a\":[1,{}],\"b\":\"c\"},".repeat(4_000));
        let parts = vec![Bytes::from(text.clone())];
        let chunks = Chunks::new(parts.into_iter(), text.len() as u64).indented();
        assert!(!chunks.is_long());
        let mut body = chunks.boxed();
        let length = body.size_hint().exact().expect("a known length");
        assert_eq!(length, codec::indented(text.as_bytes()).len() as u64);
        let mut sent = 0;
        while !body.is_end_stream() {
            let frame = body.frame().await.expect("a frame").expect("no failure");
            let frame = frame.into_data().expect("data");
            let largest = chunk_size::FIRST.max(sent) + 4 * INDENTED_PIECE;
            assert!(frame.len() <= largest, "{} bytes after {sent}", frame.len());
            sent += frame.len();
            assert_eq!(body.size_hint().exact(), Some(length - sent as u64));
        }
        assert_eq!(sent as u64, length);
    }

    #[tokio::test]
    async fn gathered_sends_the_same_bytes_in_fewer_frames() {
        let sizes = [
            1,
            chunk_size::LARGEST,
            70_000,
            1,
            7_000,
            1,
            60_000,
            chunk_size::LARGEST - 1,
            1,
            1,
            // Empty parts: the iterator needs more time.
            0,
            0,
            2,
        ];
        let parts = sizes.map(|size| Bytes::from(vec![size as u8; size]));
        let whole = parts.concat();
        let mut body = Chunks::new(parts.into_iter(), whole.len() as u64).gathered();
        let mut sent = Vec::new();
        let mut frames = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.expect("no failure").into_data().expect("data");
            assert!(frame.len() <= 70_000);
            sent.extend_from_slice(&frame);
            frames += 1;
            assert_eq!(
                body.size_hint().exact(),
                Some((whole.len() - sent.len()) as u64)
            );
        }
        assert!(sent == whole);
        assert!(body.is_end_stream());
        assert_eq!(frames, 8);
    }

    #[tokio::test]
    async fn the_size_hint_is_exact_to_the_end() {
        let parts = ["ab", "c", "def"].map(|part| Bytes::from_static(part.as_bytes()));
        let mut chunks = Chunks::new(parts.into_iter(), 6);
        for left in [6, 4, 3] {
            assert_eq!(http_body::Body::size_hint(&chunks).exact(), Some(left));
            assert!(!chunks.is_end_stream());
            chunks.frame().await.expect("a frame").expect("no failure");
        }
        assert!(chunks.is_end_stream());
        assert!(chunks.frame().await.is_none());
    }
}
