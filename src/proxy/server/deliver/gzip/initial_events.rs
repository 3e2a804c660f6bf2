//! The initial events of a watch. The watch reads them as chunks, which it shares with other
//! watches.
//!
//! A watch is a position in a snapshot: the key after which its next chunk begins. So a slow client
//! holds no chunk, and a client that comes late finds the chunks that are still in the cache.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use kubefan_core::cache::InitialObjects;
use kubefan_core::codec::Encoder;
use kubefan_core::concurrency::Revocable;

use super::initial_chunk::{InitialChunk, MakingChunk};
use super::initial_chunk_cache::{Found, InitialChunkCache};
use crate::server::cached::collection::Collection;
use crate::server::deliver::list_key::ListKey;

/// The initial events of one watch, in compressed chunks.
pub(crate) struct InitialEvents {
    cache: InitialChunkCache,
    key: Arc<ListKey>,
    objects: Revocable<InitialObjects>,
    encoder: Arc<Encoder>,
    collection: Arc<dyn Collection>,
    /// The chunk that the watch waits for, and true if the watch was the first to ask for it.
    waiting: Option<(MakingChunk, bool)>,
}

/// What a watch reads next: a chunk, and true if it was compressed for this watch first. `None` if
/// the ledger has revoked the objects.
pub(super) type NextChunk = Option<(Arc<InitialChunk>, bool)>;

impl InitialEvents {
    /// Creates the events of all `objects` of `collection`. Watches with an equal `key` have equal
    /// events.
    pub(crate) fn new(
        cache: InitialChunkCache,
        key: ListKey,
        objects: Revocable<InitialObjects>,
        collection: Arc<dyn Collection>,
    ) -> Self {
        Self {
            encoder: collection.encoder_for(key.representation),
            cache,
            key: Arc::new(key),
            objects,
            collection,
            waiting: None,
        }
    }

    /// Returns the next chunk. There is none after the last chunk. Pending while another thread
    /// works on the chunk, or if other tasks must run first.
    ///
    /// # Errors
    ///
    /// If the compressor reports an internal error.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<NextChunk, Arc<io::Error>>> {
        let (mut making, is_first) = match self.waiting.take() {
            Some(waiting) => waiting,
            None => match self.find() {
                None => return Poll::Ready(Ok(None)),
                Some(Found::Made(chunk)) => {
                    return Poll::Ready(Ok(self.received(chunk, false)));
                }
                Some(Found::Making(making)) => (making, false),
                Some(Found::New(making)) => (making, true),
            },
        };
        match making.poll_unpin(cx) {
            Poll::Ready(made) => Poll::Ready(Ok(self.received(made?, is_first))),
            Poll::Pending => {
                self.waiting = Some((making, is_first));
                Poll::Pending
            }
        }
    }

    /// Returns the next chunk, or the work that makes it; `None` if the objects were revoked.
    fn find(&self) -> Option<Found> {
        let position = |objects: &mut InitialObjects| {
            let after = objects.after().cloned();
            (objects.snapshot().clone(), after)
        };
        let (snapshot, after) = self.objects.with(position)?;
        let (key, encoder) = (Arc::clone(&self.key), Arc::clone(&self.encoder));
        let start = after.clone();
        let make = || InitialChunk::make(snapshot, start, key, encoder);
        Some(self.cache.chunk(&self.key, after, make))
    }

    fn received(&self, chunk: Arc<InitialChunk>, is_first: bool) -> NextChunk {
        if let Some(last) = &chunk.last {
            self.objects.with(|objects| objects.skip_to(last.clone()));
        }
        if let Some(informer) = self.collection.informer() {
            informer.count_sent(chunk.events);
        }
        Some((chunk, is_first))
    }
}
