//! Caches the compressed chunks of initial events for some seconds, so that the start of many
//! watches costs one compression.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, WeakShared};
use kubefan_core::api::ObjectKey;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use parking_lot::Mutex;
use prometheus::IntCounterVec;
use tokio::time::{Instant, sleep};

use super::initial_chunk::{InitialChunk, MakingChunk};
use crate::ledger::Budget;
use crate::server::deliver::list_key::ListKey;

/// Upper limit of the number of snapshots and selections with cached chunks.
const MAX_STARTS: usize = 256;
/// How long chunks stay in the cache after a watch has last read a chunk of the same snapshot and
/// selection.
const TTL: Duration = Duration::from_secs(5);
/// How often chunks that are not used any more are dropped.
const EXPIRY_PERIOD: Duration = Duration::from_secs(1);

/// Chunks that are being compressed or were compressed recently. Cheap to clone.
#[derive(Clone)]
pub(crate) struct InitialChunkCache {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    budget: Budget,
    max_starts: usize,
    sent: IntCounterVec,
    shutdown: Shutdown,
}

#[derive(Default)]
struct State {
    starts: HashMap<Arc<ListKey>, Start>,
    /// The bytes of all chunks.
    bytes: usize,
    /// True while a task drops chunks that are not used any more.
    is_expiring: bool,
}

/// The chunks of one snapshot and selection, each by the key after which it begins (`None`: the
/// first one). Positions in the sequence can't identify chunks: snapshots with equal objects can
/// have other indexes, and their chunks then end elsewhere.
struct Start {
    slots: BTreeMap<Option<ObjectKey>, Slot>,
    last_used: Instant,
}

/// The place of one chunk.
enum Slot {
    /// Watches that need the chunk concurrently make it once. The watches own the work. When none
    /// of them is left, the work ends and frees its snapshot.
    Making(WeakShared<BoxFuture<'static, Result<Arc<InitialChunk>, Arc<io::Error>>>>),
    Made(Arc<InitialChunk>),
}

/// What a watch that needs a chunk finds.
pub(super) enum Found {
    Made(Arc<InitialChunk>),
    /// Another watch asked for the chunk earlier.
    Making(MakingChunk),
    /// This watch is the first one.
    New(MakingChunk),
}

/// Registers the counter of chunks of initial events that are sent as gzip.
pub(crate) fn chunk_counter(registry: &Registry) -> IntCounterVec {
    registry.counter_vec(
        "kubefan_gzip_initial_chunks_total",
        "Chunks of initial events of watches sent as gzip, each of about 64 KiB before \
         compression: compressed for this watch (compressed), or shared with an earlier \
         one (shared).",
        &["how"],
    )
}

// === impl InitialChunkCache ===

impl InitialChunkCache {
    /// Creates an empty cache of at most `budget`. A task of `shutdown` cleans it while it is not
    /// empty.
    pub(crate) fn new(budget: Budget, sent: IntCounterVec, shutdown: Shutdown) -> Self {
        let inner = Inner {
            state: Mutex::default(),
            budget,
            max_starts: MAX_STARTS,
            sent,
            shutdown,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns the chunk of the watches with `key` that begins after the object `after`. If no
    /// watch has made it or is making it, `make` makes it. The work advances while one of the
    /// watches polls it.
    pub(super) fn chunk<F: Future<Output = io::Result<InitialChunk>> + Send + 'static>(
        &self,
        key: &Arc<ListKey>,
        after: Option<ObjectKey>,
        make: impl FnOnce() -> F,
    ) -> Found {
        let inner = &self.inner;
        let shared = inner.sent.with_label_values(&["shared"]);
        let mut dropped = Vec::new();
        let mut expiry = None;
        let mut state = inner.state.lock();
        if !state.starts.contains_key(key) {
            while state.starts.len() >= inner.max_starts {
                dropped.extend(state.drop_oldest());
            }
            inner.budget.set_used(state.bytes);
            let start = Start {
                slots: BTreeMap::new(),
                last_used: Instant::now(),
            };
            state.starts.insert(Arc::clone(key), start);
            if !std::mem::replace(&mut state.is_expiring, true) {
                let inner = Arc::clone(inner);
                expiry = Some(async move { inner.expire().await });
            }
        }
        let start = state.starts.get_mut(key);
        let start = start.expect("the start was just inserted");
        start.last_used = Instant::now();
        let found = match start.slots.get(&after) {
            Some(Slot::Made(chunk)) => Some(Found::Made(Arc::clone(chunk))),
            Some(Slot::Making(making)) => making.upgrade().map(Found::Making),
            None => None,
        };
        let found = found.inspect(|_| shared.inc()).unwrap_or_else(|| {
            let making = inner.making(key, &after, make());
            if let Some(weak) = making.downgrade() {
                start.slots.insert(after, Slot::Making(weak));
            }
            Found::New(making)
        });
        drop(state);
        if let Some(expiry) = expiry {
            // Not under the lock: a runtime that is shutting down drops the task here.
            inner.shutdown.spawn_background(expiry);
        }
        // Freeing many chunks takes time, so it is done after unlocking.
        drop(dropped);
        found
    }
}

impl Inner {
    /// Returns the work `made`, extended so that the chunk is stored at the end.
    fn making<F: Future<Output = io::Result<InitialChunk>> + Send + 'static>(
        self: &Arc<Self>,
        key: &Arc<ListKey>,
        after: &Option<ObjectKey>,
        made: F,
    ) -> MakingChunk {
        let (inner, key, after) = (Arc::clone(self), Arc::clone(key), after.clone());
        let making = async move {
            let chunk = Arc::new(made.await.map_err(Arc::new)?);
            inner.keep(&key, &after, &chunk);
            Ok(chunk)
        };
        making.boxed().shared()
    }

    /// Stores a new chunk for other watches, and drops others until the limit is met.
    fn keep(&self, key: &Arc<ListKey>, after: &Option<ObjectKey>, chunk: &Arc<InitialChunk>) {
        self.sent.with_label_values(&["compressed"]).inc();
        let mut dropped = Vec::new();
        let mut state = self.state.lock();
        let start = state.starts.get_mut(key);
        let slot = start.and_then(|start| start.slots.get_mut(after));
        // The slot may have been dropped while the chunk was made.
        let Some(slot) = slot else { return };
        let before = std::mem::replace(slot, Slot::Made(Arc::clone(chunk)));
        state.bytes += chunk.bytes();
        state.bytes -= before.bytes();
        dropped.push(before);
        while state.bytes > self.budget.limit() {
            dropped.extend(state.drop_chunk());
        }
        self.budget.set_used(state.bytes);
        drop(state);
        drop(dropped);
    }

    /// Drops chunks that were not used for some time, until none is left.
    async fn expire(&self) {
        loop {
            sleep(EXPIRY_PERIOD).await;
            let now = Instant::now();
            let mut state = self.state.lock();
            let old = state
                .starts
                .extract_if(|_, start| start.last_used + TTL <= now);
            let old: Vec<_> = old.collect();
            let bytes = old.iter().map(|(_, start)| start.bytes()).sum::<usize>();
            state.bytes -= bytes;
            state.is_expiring = !state.starts.is_empty();
            let is_over = !state.is_expiring;
            self.budget.set_used(state.bytes);
            drop(state);
            // Freeing many chunks takes time, so it is done after unlocking.
            drop(old);
            if is_over {
                return;
            }
        }
    }
}

// === impl State ===

impl State {
    fn oldest(&self) -> Option<Arc<ListKey>> {
        let oldest = self.starts.iter().min_by_key(|(_, start)| start.last_used);
        oldest.map(|(key, _)| Arc::clone(key))
    }

    /// Removes the least recently used snapshot and selection, with its chunks.
    fn drop_oldest(&mut self) -> Option<Start> {
        let oldest = self.oldest().and_then(|key| self.starts.remove(&key))?;
        self.bytes -= oldest.bytes();
        Some(oldest)
    }

    /// Removes the first chunk of the least recently used snapshot and selection: most watches have
    /// read this chunk.
    fn drop_chunk(&mut self) -> Option<Slot> {
        let key = self.oldest()?;
        let start = self.starts.get_mut(&key)?;
        match start.slots.pop_first() {
            Some((_, slot)) => {
                self.bytes -= slot.bytes();
                Some(slot)
            }
            None => {
                self.starts.remove(&key);
                None
            }
        }
    }
}

// === impl Start ===

impl Start {
    fn bytes(&self) -> usize {
        self.slots.values().map(Slot::bytes).sum()
    }
}

// === impl Slot ===

impl Slot {
    /// Returns the bytes that are counted in `State::bytes`.
    fn bytes(&self) -> usize {
        match self {
            Self::Making(_) => 0,
            Self::Made(chunk) => chunk.bytes(),
        }
    }
}

#[cfg(test)]
mod tests;
