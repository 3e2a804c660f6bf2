//! Chunks of the initial events of a watch, each of which is compressed once for all watches that
//! begin with the same objects.
//!
//! A watch is a position in a snapshot: the key after which its next chunk begins. So a slow client
//! holds no chunk, and one that comes late finds those that are still kept.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::api::EventType;
use crate::api::ObjectKey;
use crate::api::Selection;
use crate::cache::InitialObjects;
use crate::cache::Snapshot;
use crate::codec::Encoder;
use crate::concurrency::Revocable;
use crate::server::collection::Collection;

use super::gzip_cache::ListKey;
use super::initial_chunk_cache::InitialChunkCache;
use super::member;
use super::member::SharedMember;

/// Number of bytes before compression at which a chunk ends.
const CHUNK: usize = 64 << 10;
/// Maximum number of objects that are examined for one chunk. A selector that no index answers may
/// select few of them.
pub(super) const MAX_EXAMINED: usize = 2048;

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
    key: ListKey,
    objects: Revocable<InitialObjects>,
    encoder: Arc<Encoder>,
    collection: Arc<dyn Collection>,
}

/// What a watch reads next.
pub(super) enum NextChunk {
    /// A chunk, and true if it was compressed now.
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
            key,
            objects,
            collection,
        }
    }

    /// The next chunk. There is none after the last one.
    ///
    /// # Errors
    ///
    /// If the compressor reports an internal error.
    pub(super) fn next(&mut self) -> io::Result<NextChunk> {
        let position = |objects: &mut InitialObjects| {
            let after = objects.after().cloned();
            (objects.snapshot().clone(), after)
        };
        let Some((snapshot, after)) = self.objects.with(position) else {
            return Ok(NextChunk::Revoked);
        };
        let make = || {
            let selection = &self.key.selection;
            InitialChunk::of(&snapshot, after.as_ref(), selection, &self.encoder)
        };
        let (chunk, was_made) = self.cache.chunk(&self.key, after.as_ref(), make)?;
        if let Some(last) = &chunk.last {
            self.objects.with(|objects| objects.skip_to(last.clone()));
        }
        self.collection.count_sent(chunk.events);
        Ok(NextChunk::Chunk(chunk, was_made))
    }
}

impl InitialChunk {
    /// The chunk of the objects of `snapshot` with keys above `after`. Where it ends depends on the
    /// indexes of the snapshot too: they decide which objects are examined. The watch goes on from
    /// there, so chunks of snapshots with equal objects can follow each other without a gap.
    fn of(
        snapshot: &Snapshot,
        after: Option<&ObjectKey>,
        selection: &Selection,
        encoder: &Encoder,
    ) -> io::Result<Self> {
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
        let member = (!events.is_empty()).then(|| member::compressed(&events));
        Ok(Self {
            member: member.transpose()?,
            events: events.len() as u64,
            length,
            examined,
            last: last.cloned(),
            is_last,
        })
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
