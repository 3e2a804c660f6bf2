//! One gzip text made for several clients: each reads it from the start, however far it is.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;

use bytes::Bytes;
use flate2::Crc;
use http_body::Frame;
use parking_lot::Mutex;
use prometheus::IntGauge;

use crate::body::Body;
use crate::body::BoxError;
use crate::codec::ListParts;

use super::compress::Gzip;
use super::compress::GzipWriter;
use crate::server::deliver::chunks::Chunks;

/// What of a text was compressed so far.
pub(super) struct Rendering {
    progress: Mutex<Progress>,
    /// Bytes of all renderings in memory.
    held: IntGauge,
}

#[derive(Default)]
struct Progress {
    chunks: Vec<Bytes>,
    end: Option<End>,
    readers: usize,
    /// Numbers the readers.
    next_reader: u64,
    /// Those who wait for more.
    waiting: BTreeMap<u64, Waker>,
}

/// How a rendering ended.
#[derive(Clone)]
pub(super) enum End {
    /// With the text.
    Whole,
    /// It became too long to be kept: each reader compresses the rest for itself.
    Cut(Arc<Rest>),
    /// It was given up.
    Failed,
}

/// What a cut rendering lacks.
pub(super) struct Rest {
    /// The text that was not compressed.
    pub chunks: Chunks<ListParts>,
    /// Of the text that was.
    pub crc: Crc,
}

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
#[error("compressing the answer was given up")]
struct GivenUp;

/// A rendering as one client's body.
pub(super) struct RenderedBody {
    rendering: Arc<Rendering>,
    number: u64,
    /// Chunks sent.
    sent: usize,
    /// What was not rendered, if it was cut.
    rest: Option<Gzip>,
}

// === impl Rendering ===

impl Rendering {
    /// One of nothing so far, which counts its bytes in `held`.
    pub(super) fn new(held: IntGauge) -> Self {
        Self {
            progress: Mutex::default(),
            held,
        }
    }

    /// A body that reads it from the start.
    pub(super) fn read(self: &Arc<Self>) -> RenderedBody {
        let mut progress = self.progress.lock();
        progress.readers += 1;
        progress.next_reader += 1;
        RenderedBody {
            rendering: Arc::clone(self),
            number: progress.next_reader,
            sent: 0,
            rest: None,
        }
    }

    /// True while somebody reads it.
    pub(super) fn is_read(&self) -> bool {
        self.progress.lock().readers > 0
    }

    /// True when nothing will be added.
    pub(super) fn has_ended(&self) -> bool {
        self.progress.lock().end.is_some()
    }

    /// Adds compressed bytes.
    pub(super) fn push(&self, chunk: Bytes) {
        self.change(|progress| progress.chunks.push(chunk.clone()));
        self.held.add(chunk.len() as i64);
    }

    /// Adds nothing more. The first end counts.
    pub(super) fn end(&self, end: End) {
        self.change(|progress| {
            progress.end.get_or_insert(end);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Progress)) {
        let waiting = {
            let mut progress = self.progress.lock();
            change(&mut progress);
            std::mem::take(&mut progress.waiting)
        };
        for waker in waiting.into_values() {
            waker.wake();
        }
    }
}

impl Drop for Rendering {
    fn drop(&mut self) {
        let chunks = &self.progress.get_mut().chunks;
        let bytes: usize = chunks.iter().map(Bytes::len).sum();
        self.held.sub(bytes as i64);
    }
}

// === impl RenderedBody ===

impl RenderedBody {
    /// The next chunk; how it ended where there is none.
    fn next(&mut self, cx: &Context<'_>) -> Poll<Result<Bytes, End>> {
        let mut progress = self.rendering.progress.lock();
        if let Some(chunk) = progress.chunks.get(self.sent) {
            self.sent += 1;
            return Poll::Ready(Ok(chunk.clone()));
        }
        if let Some(end) = &progress.end {
            return Poll::Ready(Err(end.clone()));
        }
        progress.waiting.insert(self.number, cx.waker().clone());
        Poll::Pending
    }
}

impl http_body::Body for RenderedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.rest.is_none() {
            match self.next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(chunk)) => return Poll::Ready(Some(Ok(Frame::data(chunk)))),
                Poll::Ready(Err(End::Whole)) => return Poll::Ready(None),
                Poll::Ready(Err(End::Failed)) => return Poll::Ready(Some(Err(GivenUp.into()))),
                Poll::Ready(Err(End::Cut(rest))) => {
                    let body: Body = rest.chunks.clone().boxed();
                    self.rest = Some(Gzip::with(body, GzipWriter::resume(&rest.crc)));
                }
            }
        }
        match &mut self.rest {
            Some(rest) => Pin::new(rest).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }
}

impl Drop for RenderedBody {
    fn drop(&mut self) {
        let mut progress = self.rendering.progress.lock();
        progress.readers -= 1;
        progress.waiting.remove(&self.number);
    }
}
