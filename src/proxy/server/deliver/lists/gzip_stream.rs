//! A gzip text that is compressed once for several clients. Each client reads it from the start,
//! even while it is still being compressed.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use flate2::Crc;
use http_body::Frame;
use kubefan_core::body::{Body, BoxError};
use kubefan_core::codec::ListParts;
use parking_lot::Mutex;
use prometheus::IntGauge;

use crate::ledger::{Account, Charge, MemoryKind};
use crate::server::deliver::PolledFrame;
use crate::server::deliver::chunks::Chunks;
use crate::server::deliver::gzip::{COMPRESSOR_BYTES, GzipBody, GzipWriter};
use crate::server::deliver::list_bodies::ListBodies;

/// The compressed part of a text, and its readers.
pub(super) struct GzipStream {
    progress: Mutex<Progress>,
    /// Gauge of the compressed bytes of all streams in memory.
    bytes_held: IntGauge,
}

#[derive(Default)]
struct Progress {
    chunks: Vec<Bytes>,
    end: Option<StreamEnd>,
    readers: usize,
    /// Number of the newest reader; numbers identify the readers.
    last_reader: u64,
    /// Wakers of the readers that wait for more, by reader.
    wakers: BTreeMap<u64, Waker>,
}

/// How a stream ended.
#[derive(Clone)]
pub(super) enum StreamEnd {
    /// All of the text was compressed.
    Complete,
    /// The cache had no room for more of the text: each reader compresses the rest for itself.
    Cut(Arc<Remainder>),
    /// The compression was aborted.
    Failed,
}

/// Everything that is needed to compress the rest of a cut stream.
pub(super) struct Remainder {
    /// The text that was not compressed yet.
    pub chunks: Chunks<ListParts<ListBodies>>,
    /// Checksum of the text before the cut.
    pub crc: Crc,
}

/// The error of a body if its compression was aborted.
#[derive(Debug, thiserror::Error)]
#[error("compression of the answer was aborted")]
struct CompressionAborted;

/// The body that sends a stream to one client.
pub(super) struct GzipStreamBody {
    stream: Arc<GzipStream>,
    reader: u64,
    /// Number of chunks of the stream that were sent.
    sent: usize,
    /// Compresses the rest of the text; `None` until the end of a stream that was cut.
    remainder: Option<GzipBody>,
    /// The account of the client's connection. A compressor of the body is charged to it.
    account: Option<Arc<Account>>,
    charge: Option<Charge>,
}

// === impl GzipStream ===

impl GzipStream {
    /// Creates an empty stream, which counts its bytes in `bytes_held`.
    pub(super) fn new(bytes_held: IntGauge) -> Self {
        Self {
            progress: Mutex::default(),
            bytes_held,
        }
    }

    /// Returns a body that reads the stream from the start. If the stream is cut, the body needs a
    /// separate compressor. If the ledger refuses the memory for it, the body fails.
    pub(super) fn new_reader(self: &Arc<Self>, account: Option<Arc<Account>>) -> GzipStreamBody {
        let mut progress = self.progress.lock();
        progress.readers += 1;
        progress.last_reader += 1;
        GzipStreamBody {
            stream: Arc::clone(self),
            reader: progress.last_reader,
            sent: 0,
            remainder: None,
            account,
            charge: None,
        }
    }

    /// Returns true if a client is reading the stream.
    pub(super) fn has_readers(&self) -> bool {
        self.progress.lock().readers > 0
    }

    /// Returns the compressed bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.progress.lock().bytes()
    }

    /// Returns true if nothing more will be added to the stream.
    pub(super) fn has_ended(&self) -> bool {
        self.progress.lock().end.is_some()
    }

    /// Adds compressed bytes, and wakes the readers.
    pub(super) fn push(&self, chunk: Bytes) {
        self.update(|progress| progress.chunks.push(chunk.clone()));
        self.bytes_held.add(chunk.len() as i64);
    }

    /// Ends the stream, and wakes the readers. Only the first end counts.
    pub(super) fn end(&self, end: StreamEnd) {
        self.update(|progress| {
            progress.end.get_or_insert(end);
        });
    }

    fn update(&self, update: impl FnOnce(&mut Progress)) {
        let wakers = {
            let mut progress = self.progress.lock();
            update(&mut progress);
            std::mem::take(&mut progress.wakers)
        };
        for waker in wakers.into_values() {
            waker.wake();
        }
    }
}

impl Drop for GzipStream {
    fn drop(&mut self) {
        let bytes = self.progress.get_mut().bytes();
        self.bytes_held.sub(bytes as i64);
    }
}

impl Progress {
    fn bytes(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }
}

// === impl GzipStreamBody ===

impl GzipStreamBody {
    /// Returns the next chunk, or how the stream ended if there are no more chunks.
    fn next(&mut self, cx: &Context<'_>) -> Poll<Result<Bytes, StreamEnd>> {
        let mut progress = self.stream.progress.lock();
        if let Some(chunk) = progress.chunks.get(self.sent) {
            self.sent += 1;
            return Poll::Ready(Ok(chunk.clone()));
        }
        if let Some(end) = &progress.end {
            return Poll::Ready(Err(end.clone()));
        }
        progress.wakers.insert(self.reader, cx.waker().clone());
        Poll::Pending
    }
}

impl http_body::Body for GzipStreamBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        if self.remainder.is_none() {
            match ready!(self.next(cx)) {
                Ok(chunk) => return Poll::Ready(Some(Ok(Frame::data(chunk)))),
                Err(StreamEnd::Complete) => return Poll::Ready(None),
                Err(StreamEnd::Failed) => {
                    return Poll::Ready(Some(Err(CompressionAborted.into())));
                }
                Err(StreamEnd::Cut(remainder)) => {
                    let account = self.account.take();
                    let charge = |account: &Arc<_>| {
                        Account::charge(account, MemoryKind::Gzip, COMPRESSOR_BYTES)
                    };
                    match account.as_ref().map(charge).transpose() {
                        Ok(charge) => self.charge = charge,
                        Err(short) => return Poll::Ready(Some(Err(short.into()))),
                    }
                    let body: Body = remainder.chunks.clone().boxed();
                    self.remainder = Some(GzipBody::with(body, GzipWriter::resume(&remainder.crc)));
                }
            }
        }
        match &mut self.remainder {
            Some(remainder) => Pin::new(remainder).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }
}

impl Drop for GzipStreamBody {
    fn drop(&mut self) {
        let mut progress = self.stream.progress.lock();
        progress.readers -= 1;
        progress.wakers.remove(&self.reader);
    }
}
