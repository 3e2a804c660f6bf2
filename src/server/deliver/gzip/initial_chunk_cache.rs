//! Keeps the compressed chunks of initial events for some seconds: many watches that start together
//! cost one compression.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::IntCounterVec;
use prometheus::IntGauge;
use tokio::time::Instant;
use tokio::time::sleep;

use crate::api::ObjectKey;
use crate::shutdown::Shutdown;
use crate::telemetry::Registry;

use super::gzip_cache::ListKey;
use super::initial_chunk::InitialChunk;

/// Upper limit of the bytes of the chunks that are kept. Chunks beyond it are compressed for each
/// watch that comes later.
const MAX_BYTES: usize = 32 << 20;
/// Upper limit of the number of snapshots and selections whose chunks are kept.
const MAX_STARTS: usize = 256;
/// How long chunks are kept after a watch has read one of the same snapshot and selection.
const TTL: Duration = Duration::from_secs(5);
/// How often chunks that are not used any more are dropped.
const EXPIRY_PERIOD: Duration = Duration::from_secs(1);

/// Metrics of the initial events that are sent as gzip.
#[derive(Clone)]
pub(crate) struct InitialChunkMetrics {
    chunks: IntCounterVec,
    bytes: IntGauge,
}

/// Chunks that are being compressed or were compressed recently. Cheap to clone.
#[derive(Clone)]
pub(crate) struct InitialChunkCache {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    limits: Limits,
    metrics: InitialChunkMetrics,
    shutdown: Shutdown,
}

#[derive(Clone, Copy)]
struct Limits {
    bytes: usize,
    starts: usize,
}

#[derive(Default)]
struct State {
    starts: HashMap<ListKey, Start>,
    /// The bytes of all chunks.
    bytes: usize,
    /// True while a task drops what is not used any more.
    is_expiring: bool,
}

/// The chunks of one snapshot and selection, each by the key after which it begins (`None`: the first
/// one). A position in the sequence would not do: equal objects can have other indexes, by which
/// chunks end elsewhere.
struct Start {
    slots: BTreeMap<Option<ObjectKey>, Slot>,
    last_used: Instant,
}

/// The place of one chunk. Watches that need it at the same time wait for the first of them, which
/// takes as long as they would need to compress it.
#[derive(Default)]
struct Slot {
    chunk: Arc<Mutex<Option<Arc<InitialChunk>>>>,
    /// The bytes of the chunk as they are counted in `State::bytes`.
    bytes: usize,
}

// === impl InitialChunkMetrics ===

impl InitialChunkMetrics {
    /// Registers the metrics in `registry`.
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            chunks: registry.counter_vec(
                "kubefan_gzip_initial_chunks_total",
                "Chunks of initial events of watches sent as gzip, each of about 64 KiB before \
                 compression: compressed for this watch (compressed), or shared with an earlier \
                 one (shared).",
                &["how"],
            ),
            bytes: registry.gauge(
                "kubefan_gzip_initial_chunks_bytes",
                "Bytes of compressed chunks of initial events that are kept for other watches.",
            ),
        }
    }
}

// === impl InitialChunkCache ===

impl InitialChunkCache {
    /// An empty cache, which a task of `shutdown` cleans while it is not empty.
    pub(crate) fn new(metrics: InitialChunkMetrics, shutdown: Shutdown) -> Self {
        let limits = Limits {
            bytes: MAX_BYTES,
            starts: MAX_STARTS,
        };
        Self::with_limits(limits, metrics, shutdown)
    }

    fn with_limits(limits: Limits, metrics: InitialChunkMetrics, shutdown: Shutdown) -> Self {
        let inner = Inner {
            state: Mutex::default(),
            limits,
            metrics,
            shutdown,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The chunk of the watches with `key` that begins after the object `after`, and true if `make`
    /// has made it now.
    ///
    /// # Errors
    ///
    /// That of `make`.
    pub(super) fn chunk(
        &self,
        key: &ListKey,
        after: Option<&ObjectKey>,
        make: impl FnOnce() -> io::Result<InitialChunk>,
    ) -> io::Result<(Arc<InitialChunk>, bool)> {
        let after = after.cloned();
        let slot = self.slot(key, &after);
        let mut place = slot.lock();
        let metrics = &self.inner.metrics;
        if let Some(chunk) = place.as_ref() {
            metrics.chunks.with_label_values(&["shared"]).inc();
            return Ok((Arc::clone(chunk), false));
        }
        let chunk = Arc::new(make()?);
        *place = Some(Arc::clone(&chunk));
        drop(place);
        metrics.chunks.with_label_values(&["compressed"]).inc();
        self.count(key, &after, &slot, chunk.bytes());
        Ok((chunk, true))
    }

    fn slot(
        &self,
        key: &ListKey,
        after: &Option<ObjectKey>,
    ) -> Arc<Mutex<Option<Arc<InitialChunk>>>> {
        let now = Instant::now();
        let mut state = self.inner.state.lock();
        if !state.starts.contains_key(key) {
            while state.starts.len() >= self.inner.limits.starts {
                state.drop_oldest();
            }
            state.starts.insert(key.clone(), Start::new(now));
            if !std::mem::replace(&mut state.is_expiring, true) {
                let inner = Arc::clone(&self.inner);
                let expiry = async move { inner.expire().await };
                self.inner.shutdown.spawn_background(expiry);
            }
        }
        let start = state.starts.entry(key.clone());
        let start = start.or_insert_with(|| Start::new(now));
        start.last_used = now;
        Arc::clone(&start.slots.entry(after.clone()).or_default().chunk)
    }

    /// Counts the `bytes` of a new chunk in `slot`, and drops others until the limit is kept.
    fn count(
        &self,
        key: &ListKey,
        after: &Option<ObjectKey>,
        slot: &Arc<Mutex<Option<Arc<InitialChunk>>>>,
        bytes: usize,
    ) {
        let mut state = self.inner.state.lock();
        let start = state.starts.get_mut(key);
        let place = start.and_then(|start| start.slots.get_mut(after));
        let place = place.filter(|place| Arc::ptr_eq(&place.chunk, slot));
        // The slot may have been dropped meanwhile, and so is the chunk then.
        let Some(place) = place else { return };
        place.bytes = bytes;
        state.bytes += bytes;
        while state.bytes > self.inner.limits.bytes {
            state.drop_chunk();
        }
        self.inner.metrics.set_bytes(state.bytes);
    }
}

impl Inner {
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
            self.metrics.set_bytes(state.bytes);
            drop(state);
            // Freeing many chunks takes time, so it is done after unlocking.
            drop(old);
            if is_over {
                return;
            }
        }
    }
}

impl InitialChunkMetrics {
    fn set_bytes(&self, bytes: usize) {
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

// === impl State ===

impl State {
    fn oldest(&self) -> Option<ListKey> {
        let oldest = self.starts.iter().min_by_key(|(_, start)| start.last_used);
        oldest.map(|(key, _)| key.clone())
    }

    /// Drops all chunks of the snapshot and selection that was not used for the longest time.
    fn drop_oldest(&mut self) {
        let oldest = self.oldest().and_then(|key| self.starts.remove(&key));
        self.bytes -= oldest.map_or(0, |start| start.bytes());
    }

    /// Drops the first chunk of the snapshot and selection that was not used for the longest time:
    /// most watches have read it.
    fn drop_chunk(&mut self) {
        let Some(key) = self.oldest() else { return };
        let start = self.starts.get_mut(&key);
        match start.and_then(|start| start.slots.pop_first()) {
            Some((_, slot)) => self.bytes -= slot.bytes,
            None => drop(self.starts.remove(&key)),
        }
    }
}

// === impl Start ===

impl Start {
    fn new(now: Instant) -> Self {
        Self {
            slots: BTreeMap::new(),
            last_used: now,
        }
    }

    fn bytes(&self) -> usize {
        self.slots.values().map(|slot| slot.bytes).sum()
    }
}

#[cfg(test)]
mod tests;
