//! Compression: compresses one list for all clients that ask for it, on a thread that serves no
//! connection.

use std::io;
use std::sync::Arc;

use kubefan_core::codec::ListParts;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::gzip_stream::{GzipStream, Remainder, StreamEnd};
use super::kept_lists::KeptLists;
use crate::server::deliver::chunks::Chunks;
use crate::server::deliver::gzip::GzipWriter;
use crate::server::deliver::list_bodies::ListBodies;
use crate::server::deliver::list_key::ListKey;

/// Bytes that are compressed between two checks whether a client still reads the list.
const READER_CHECK_BYTES: usize = 64 << 10;
/// Size, in bytes, of the compressed chunks that are stored and sent.
pub(super) const OUTPUT_CHUNK: usize = 64 << 10;

/// The compression of one list. If it is dropped before the end, the readers of the list get an
/// error.
pub(super) struct Compression {
    pub(super) kept: Arc<KeptLists>,
    pub(super) key: ListKey,
    pub(super) stream: Arc<GzipStream>,
    pub(super) chunks: Chunks<ListParts<ListBodies>>,
}

impl Compression {
    /// Compresses the list when one of the `permits` is free.
    pub(super) async fn run(self, permits: Arc<Semaphore>) {
        let permit = permits.acquire_owned().await;
        if let Err(error) = spawn_blocking(move || self.compress_or_fail()).await {
            tracing::error!(%error, "a list could not be compressed");
        }
        drop(permit);
    }

    fn compress_or_fail(mut self) {
        if let Err(error) = self.compress() {
            tracing::error!(%error, "a list could not be compressed");
        }
    }

    fn compress(&mut self) -> io::Result<()> {
        let mut gzip = GzipWriter::new(OUTPUT_CHUNK);
        while !self.kept.forget_if_abandoned(&self.key, &self.stream) {
            let mut left = READER_CHECK_BYTES;
            while left > 0 {
                let Some(part) = self.chunks.next() else {
                    self.stream.push(gzip.finish()?);
                    self.stream.end(StreamEnd::Complete);
                    return Ok(());
                };
                gzip.push(&part)?;
                left = left.saturating_sub(part.len());
            }
            let Some(output) = gzip.output() else {
                continue;
            };
            let has_room = self.kept.has_room(output.len());
            self.stream.push(output);
            if !has_room {
                return self.cut(gzip);
            }
        }
        Ok(())
    }

    /// Stops early: each reader compresses the rest for itself, and the list leaves the cache.
    fn cut(&mut self, gzip: GzipWriter) -> io::Result<()> {
        let (output, crc) = gzip.cut()?;
        self.stream.push(output);
        let chunks = self.chunks.clone();
        self.stream
            .end(StreamEnd::Cut(Arc::new(Remainder { chunks, crc })));
        self.kept.forget(&self.key, &self.stream);
        Ok(())
    }
}

impl Drop for Compression {
    fn drop(&mut self) {
        if !self.stream.has_ended() {
            // Nobody may find the stream after its end.
            self.kept.forget(&self.key, &self.stream);
            self.stream.end(StreamEnd::Failed);
        }
    }
}
