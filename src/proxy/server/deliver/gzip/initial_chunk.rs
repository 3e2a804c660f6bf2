//! Chunks of the initial events of a watch. Each chunk is compressed once for all watches that
//! begin with equal objects.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, Shared};
use kubefan_core::api::{EventType, ObjectKey, Selection};
use kubefan_core::cache::Snapshot;
use kubefan_core::codec::Encoder;
use kubefan_core::concurrency::CoopBudget;

use super::compress::BYTE_UNITS;
use super::member::{Members, SharedMember};
use crate::server::deliver::list_key::ListKey;

/// Number of bytes before compression at which a chunk ends.
const CHUNK: usize = 64 << 10;
/// Maximum number of objects that are examined for one chunk. A selector without an index may
/// select few of them.
pub(super) const MAX_EXAMINED: usize = 2048;
/// Units of a task's budget that an examined object costs.
const EXAMINED_UNITS: usize = CoopBudget::UNITS / MAX_EXAMINED;

/// A chunk that is being made. Each watch that waits for the chunk advances it, so the chunk does
/// not depend on the client that asked for it first. When no watch waits any more, the work is
/// dropped.
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
    pub(super) last: Option<ObjectKey>,
    /// True if the snapshot has no more objects.
    pub(super) is_last: bool,
}

impl InitialChunk {
    /// Selects the events of a chunk from the objects of `snapshot` with keys above `after`. The
    /// chunk has no member yet. Its end also depends on the indexes of the snapshot, because they
    /// decide which objects are examined. A watch continues after the last examined object, so
    /// chunks of snapshots with equal objects can follow each other without a gap.
    fn select(
        snapshot: &Snapshot,
        after: Option<&ObjectKey>,
        selection: &Selection,
        encoder: &Encoder,
    ) -> (Self, Vec<Bytes>) {
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
        let chunk = Self {
            member: None,
            events: events.len() as u64,
            length,
            examined,
            last: last.cloned(),
            is_last,
        };
        (chunk, events)
    }

    /// Makes the chunk of the objects of `snapshot` with keys above `after`. Yields after a certain
    /// amount of work, so that the thread can serve other clients.
    pub(super) async fn make(
        snapshot: Snapshot,
        after: Option<ObjectKey>,
        key: Arc<ListKey>,
        encoder: Arc<Encoder>,
    ) -> io::Result<Self> {
        let selection = key.selection.selection();
        let (mut chunk, events) = Self::select(&snapshot, after.as_ref(), selection, &encoder);
        drop(snapshot);
        let mut budget = CoopBudget::new();
        budget.charge(chunk.examined * EXAMINED_UNITS + chunk.length);
        let mut members = Members::of(events);
        while !members.is_complete() {
            budget.proceed().await;
            budget.charge(members.compress_next()? * BYTE_UNITS);
        }
        chunk.member = (chunk.events > 0).then(|| members.finish());
        Ok(chunk)
    }

    /// Returns the units of a task's budget that making the chunk has cost.
    pub(super) fn units(&self) -> usize {
        self.length * BYTE_UNITS + self.examined * EXAMINED_UNITS
    }

    /// Returns the number of bytes that the chunk occupies.
    pub(super) fn bytes(&self) -> usize {
        let key = self.last.as_ref().map_or(0, |key| key.as_str().len());
        size_of::<Self>() + key + self.member.as_ref().map_or(0, SharedMember::len)
    }
}
