//! Chunks of the initial events of a watch, each of which is compressed once for all watches that
//! begin with the same objects.
//!
//! A watch is a position in a snapshot: the key after which its next chunk begins. So a slow client
//! holds no chunk, and one that comes late finds those that are still kept.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use kubefan_core::api::{EventType, ObjectKey, Selection};
use kubefan_core::cache::{InitialObjects, Snapshot};
use kubefan_core::codec::Encoder;
use kubefan_core::concurrency::{CoopBudget, Revocable};

use super::compress::BYTE_UNITS;
use super::gzip_cache::ListKey;
use super::initial_chunk_cache::{Found, InitialChunkCache};
use super::member::{Members, SharedMember};
use crate::server::collection::Collection;

/// Number of bytes before compression at which a chunk ends.
const CHUNK: usize = 64 << 10;
/// Maximum number of objects that are examined for one chunk. A selector that no index answers may
/// select few of them.
pub(super) const MAX_EXAMINED: usize = 2048;
/// Units of a task's budget that an examined object costs.
const EXAMINED_UNITS: usize = CoopBudget::UNITS / MAX_EXAMINED;

/// A chunk that is being made. Each watch that waits for it advances it, so that it does not depend
/// on the client that asked for it first. It ends its work when no watch waits any more.
pub(super) type MakingChunk = Shared<BoxFuture<'static, Result<Arc<InitialChunk>, Arc<io::Error>>>>;

/// The compressed events of successive objects of a snapshot.
pub(super) struct InitialChunk {
    /// `None` if none of the examined objects is selected.
    pub(super) member: Option<SharedMember>,
    /// The number of events.
    pub(super) events: u64,
    /// The number of bytes before compression.
    pub(super) length: usize,
    /// The number of objects that were examined.
    pub(super) examined: usize,
    /// The key of the last object that was examined.
    last: Option<ObjectKey>,
    /// True if the snapshot has no more objects.
    pub(super) is_last: bool,
}

/// The initial events of one watch, which it reads as compressed chunks.
pub(crate) struct InitialEvents {
    cache: InitialChunkCache,
    key: Arc<ListKey>,
    objects: Revocable<InitialObjects>,
    encoder: Arc<Encoder>,
    collection: Arc<dyn Collection>,
    /// The chunk that the watch waits for, and true if the watch was the first to ask for it.
    waiting: Option<(MakingChunk, bool)>,
}

/// The events of a chunk that is not compressed yet.
struct Selected {
    events: Vec<Bytes>,
    length: usize,
    examined: usize,
    last: Option<ObjectKey>,
    is_last: bool,
}

/// What a watch reads next.
pub(super) enum NextChunk {
    /// A chunk, and true if it was compressed for this watch first.
    Chunk(Arc<InitialChunk>, bool),
    /// The ledger has revoked the objects.
    Revoked,
}

impl InitialEvents {
    /// The events of all `objects` of `collection`. Watches with an equal `key` have the same ones.
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

    /// The next chunk. There is none after the last one. Pending while another thread works on it,
    /// or if other tasks must run first.
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
                None => return Poll::Ready(Ok(NextChunk::Revoked)),
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

    /// The chunk that follows, or the work that makes it; `None` if the objects were revoked.
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
        self.collection.count_sent(chunk.events);
        NextChunk::Chunk(chunk, is_first)
    }
}

impl Selected {
    /// Selects from the objects of `snapshot` with keys above `after`. Where a chunk ends depends on
    /// the indexes of the snapshot too: they decide which objects are examined. The watch goes on
    /// from there, so chunks of snapshots with equal objects can follow each other without a gap.
    fn of(
        snapshot: &Snapshot,
        after: Option<&ObjectKey>,
        selection: &Selection,
        encoder: &Encoder,
    ) -> Self {
        let mut candidates = snapshot.candidates(selection, after.map(ObjectKey::as_str));
        let mut events: Vec<Bytes> = Vec::new();
        let (mut length, mut examined, mut last) = (0, 0, None);
        let is_last = loop {
            if length >= CHUNK || examined >= MAX_EXAMINED {
                break false;
            }
            let Some(object) = candidates.next() else {
                break true;
            };
            (examined, last) = (examined + 1, Some(&object.key));
            if selection.matches(object) {
                let event = encoder.event(EventType::Added, object);
                length += event.len();
                events.push(event);
            }
        };
        Self {
            last: last.cloned(),
            events,
            length,
            examined,
            is_last,
        }
    }
}

impl InitialChunk {
    /// The chunk of the objects of `snapshot` with keys above `after`. Yields by the work that it
    /// has done, so that other clients of the thread are served meanwhile.
    async fn make(
        snapshot: Snapshot,
        after: Option<ObjectKey>,
        key: Arc<ListKey>,
        encoder: Arc<Encoder>,
    ) -> io::Result<Self> {
        let selection = key.selection.selection();
        let selected = Selected::of(&snapshot, after.as_ref(), selection, &encoder);
        drop(snapshot);
        let mut budget = CoopBudget::new();
        budget.charge(selected.examined * EXAMINED_UNITS + selected.length);
        let events = selected.events.len() as u64;
        let mut members = Members::of(selected.events);
        while !members.is_complete() {
            budget.proceed().await;
            budget.charge(members.compress_next()? * BYTE_UNITS);
        }
        Ok(Self {
            member: (events > 0).then(|| members.finish()),
            events,
            length: selected.length,
            examined: selected.examined,
            last: selected.last,
            is_last: selected.is_last,
        })
    }

    /// The units of a task's budget that making the chunk has cost.
    pub(super) fn units(&self) -> usize {
        self.length * BYTE_UNITS + self.examined * EXAMINED_UNITS
    }

    /// A chunk with one event.
    #[cfg(test)]
    pub(super) fn for_test(member: SharedMember) -> Self {
        Self {
            member: Some(member),
            events: 1,
            length: 1,
            examined: 1,
            last: None,
            is_last: true,
        }
    }

    /// The number of bytes that the chunk occupies.
    pub(super) fn bytes(&self) -> usize {
        let key = self.last.as_ref().map_or(0, |key| key.as_str().len());
        size_of::<Self>() + key + self.member.as_ref().map_or(0, SharedMember::len)
    }
}
