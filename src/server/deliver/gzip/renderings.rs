//! Lists as gzip, compressed once for all who ask for the same, by threads that serve nobody.
//!
//! A list's text is shared slices of its snapshot and costs nothing to send again; compressing it
//! costs more than all else together. So what one client waits for is there for the next, and stays
//! for a few seconds: a herd after a restart costs one rendering.

use std::collections::HashMap;
use std::hash::Hash;
use std::hash::Hasher;
use std::io;
use std::sync::Arc;
use std::sync::Weak;
use std::thread::available_parallelism;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::IntCounterVec;
use prometheus::IntGauge;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tokio::time::sleep_until;

use crate::api::ResourceVersion;
use crate::api::Selection;
use crate::body;
use crate::body::Body;
use crate::codec::Encoder;
use crate::codec::ListParts;
use crate::codec::Representation;
use crate::shutdown::Shutdown;
use crate::telemetry::Registry;

use super::compress::Gzip;
use super::compress::GzipWriter;
use super::rendering::End;
use super::rendering::Rendering;
use super::rendering::Rest;
use crate::server::deliver::chunks::Chunks;

/// Compressed bytes held at most, those that slow clients have yet to read included. With less room,
/// each compresses for itself.
const MAX_BYTES: usize = 64 << 20;
/// Renderings kept at most.
const MAX_KEPT: usize = 256;
/// How long one is kept after somebody asked for it, if several did.
const KEPT_FOR: Duration = Duration::from_secs(5);
/// The same if one did: enough for a herd's second.
const KEPT_FOR_ONE: Duration = Duration::from_secs(1);
/// Bytes compressed between two looks at whether anybody still reads.
const PIECE: usize = 64 << 10;
/// Compressed bytes added, and sent, together.
const OUTPUT: usize = 64 << 10;

/// What is counted of lists as gzip.
#[derive(Clone)]
pub struct RenderingMetrics {
    lists: IntCounterVec,
    bytes: IntGauge,
}

/// The lists that are compressed, and those that were just now. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Renderings {
    shared: Arc<Shared>,
}

struct Shared {
    kept: Mutex<HashMap<ListKey, Kept>>,
    /// Who compresses; the others wait.
    turns: Arc<Semaphore>,
    limits: Limits,
    metrics: RenderingMetrics,
    shutdown: Shutdown,
}

#[derive(Clone, Copy)]
struct Limits {
    bytes: usize,
    kept: usize,
}

struct Kept {
    rendering: Arc<Rendering>,
    asked: Instant,
    is_shared: bool,
    has_more: bool,
}

/// What makes two lists the same.
#[derive(Clone)]
pub(crate) struct ListKey {
    /// That of the collection: it is no other's, and another one once it prints otherwise.
    pub encoder: Arc<Encoder>,
    /// Of the snapshot.
    pub epoch: u64,
    /// Of the snapshot.
    pub resource_version: ResourceVersion,
    /// How many objects the snapshot has.
    pub objects: usize,
    /// How they are shown.
    pub representation: Representation,
    /// Which of them.
    pub selection: Selection,
    /// Only keys greater than this.
    pub after: Option<String>,
    /// At most so many items.
    pub limit: Option<usize>,
}

/// A list that somebody asked for before.
pub(crate) struct Found {
    /// As gzip.
    pub body: Body,
    /// Whether it names a following page.
    pub has_more: bool,
}

/// Compresses one list; dropped before the end, it has given up.
struct Producer {
    shared: Arc<Shared>,
    key: ListKey,
    rendering: Arc<Rendering>,
    chunks: Chunks<ListParts>,
}

// === impl RenderingMetrics ===

impl RenderingMetrics {
    /// Declares the metrics.
    pub fn new(registry: &Registry) -> Self {
        Self {
            lists: registry.counter_vec(
                "kubefan_gzip_lists_total",
                "Lists answered from a cache as gzip: compressed for this client (rendered), \
                 together with or after another (shared), or for want of memory on the way to it \
                 (alone).",
                &["how"],
            ),
            bytes: registry.gauge(
                "kubefan_gzip_lists_bytes",
                "Bytes of compressed lists in memory, those under way included.",
            ),
        }
    }

    fn count(&self, how: &str) {
        self.lists.with_label_values(&[how]).inc();
    }

    fn held(&self) -> usize {
        usize::try_from(self.bytes.get()).unwrap_or_default()
    }
}

// === impl Renderings ===

impl Renderings {
    /// None so far; they are compressed by tasks of `shutdown`.
    pub(crate) fn new(metrics: RenderingMetrics, shutdown: Shutdown) -> Self {
        let limits = Limits {
            bytes: MAX_BYTES,
            kept: MAX_KEPT,
        };
        Self::with_limits(limits, metrics, shutdown)
    }

    fn with_limits(limits: Limits, metrics: RenderingMetrics, shutdown: Shutdown) -> Self {
        // Half of them, for others are served meanwhile.
        let threads = available_parallelism().map_or(1, |threads| threads.get().div_ceil(2));
        Self {
            shared: Arc::new(Shared {
                kept: Mutex::default(),
                turns: Arc::new(Semaphore::new(threads)),
                limits,
                metrics,
                shutdown,
            }),
        }
    }

    /// The list of `key`, if somebody asked for it just now.
    pub(crate) fn get(&self, key: &ListKey) -> Option<Found> {
        self.shared.find(&mut self.shared.kept.lock(), key)
    }

    /// The list of `key`, which is `chunks`, as gzip: compressed from now on, unless it is already.
    pub(crate) fn render(&self, key: ListKey, chunks: Chunks<ListParts>, has_more: bool) -> Body {
        let Shared {
            metrics, shutdown, ..
        } = self.shared.as_ref();
        let rendering = Arc::new(Rendering::new(metrics.bytes.clone()));
        let body = rendering.read();
        {
            let mut kept = self.shared.kept.lock();
            if let Some(found) = self.shared.find(&mut kept, &key) {
                return found.body;
            }
            if !self.shared.make_room(&mut kept, 1, OUTPUT) {
                metrics.count("alone");
                return body::boxed(Gzip::new(chunks.boxed()));
            }
            let entry = Kept {
                rendering: Arc::clone(&rendering),
                asked: Instant::now(),
                is_shared: false,
                has_more,
            };
            kept.insert(key.clone(), entry);
        }
        metrics.count("rendered");
        let weak = Arc::downgrade(&rendering);
        let producer = Producer {
            shared: Arc::clone(&self.shared),
            key: key.clone(),
            rendering,
            chunks,
        };
        let shared = Arc::clone(&self.shared);
        shutdown.spawn_background(async move {
            let turn = Arc::clone(&shared.turns).acquire_owned().await;
            if let Err(error) = spawn_blocking(move || producer.run()).await {
                tracing::error!(%error, "a list could not be compressed");
            }
            drop(turn);
            shared.expire(&key, &weak).await;
        });
        body::boxed(body)
    }
}

impl Shared {
    fn find(&self, kept: &mut HashMap<ListKey, Kept>, key: &ListKey) -> Option<Found> {
        let found = kept.get_mut(key)?;
        self.metrics.count("shared");
        found.asked = Instant::now();
        found.is_shared = true;
        Some(Found {
            body: body::boxed(found.rendering.read()),
            has_more: found.has_more,
        })
    }

    /// Forgets what nobody reads, the longest unasked for first, until there is room for `lists`
    /// and `bytes` more; false where that is not enough.
    fn make_room(&self, kept: &mut HashMap<ListKey, Kept>, lists: usize, bytes: usize) -> bool {
        while kept.len() + lists > self.limits.kept
            || self.metrics.held() + bytes > self.limits.bytes
        {
            let idle = kept.iter().filter(|(_, kept)| !kept.rendering.is_read());
            let oldest = idle.min_by_key(|(_, kept)| kept.asked);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return false;
            };
            kept.remove(&oldest);
        }
        true
    }

    /// Forgets `rendering` unless somebody reads it.
    fn abandoned(&self, key: &ListKey, rendering: &Arc<Rendering>) -> bool {
        let mut kept = self.kept.lock();
        let is_abandoned = !rendering.is_read();
        if is_abandoned {
            forget(&mut kept, key, rendering);
        }
        is_abandoned
    }

    /// Forgets `rendering` once nobody has asked for it for long enough.
    async fn expire(&self, key: &ListKey, rendering: &Weak<Rendering>) {
        let ended = Instant::now();
        while let Some(until) = self.kept_until(key, rendering, ended) {
            sleep_until(until).await;
        }
    }

    /// How long `rendering`, which ended at `ended`, is kept; `None` once it is not.
    fn kept_until(
        &self,
        key: &ListKey,
        rendering: &Weak<Rendering>,
        ended: Instant,
    ) -> Option<Instant> {
        let mut kept = self.kept.lock();
        let entry = kept.get(key)?;
        if Arc::as_ptr(&entry.rendering) != rendering.as_ptr() {
            return None;
        }
        let until = match entry.is_shared {
            true => entry.asked + KEPT_FOR,
            false => entry.asked.max(ended) + KEPT_FOR_ONE,
        };
        if until <= Instant::now() {
            kept.remove(key);
            return None;
        }
        Some(until)
    }
}

/// Takes `rendering` out, but no other of its key.
fn forget(kept: &mut HashMap<ListKey, Kept>, key: &ListKey, rendering: &Arc<Rendering>) {
    let entry = kept.get(key);
    if entry.is_some_and(|kept| Arc::ptr_eq(&kept.rendering, rendering)) {
        kept.remove(key);
    }
}

// === impl Producer ===

impl Producer {
    fn run(mut self) {
        if let Err(error) = self.compress() {
            tracing::error!(%error, "a list could not be compressed");
        }
    }

    fn compress(&mut self) -> io::Result<()> {
        let mut gzip = GzipWriter::new(OUTPUT);
        while !self.shared.abandoned(&self.key, &self.rendering) {
            let mut left = PIECE;
            while left > 0 {
                let Some(part) = self.chunks.next() else {
                    self.rendering.push(gzip.finish()?);
                    self.rendering.end(End::Whole);
                    return Ok(());
                };
                gzip.push(&part)?;
                left = left.saturating_sub(part.len());
            }
            let Some(output) = gzip.output() else {
                continue;
            };
            let has_room = {
                let mut kept = self.shared.kept.lock();
                self.shared.make_room(&mut kept, 0, output.len())
            };
            self.rendering.push(output);
            if !has_room {
                return self.cut(gzip);
            }
        }
        Ok(())
    }

    /// Leaves the rest to each reader, and is forgotten.
    fn cut(&mut self, gzip: GzipWriter) -> io::Result<()> {
        let (output, crc) = gzip.cut()?;
        self.rendering.push(output);
        let chunks = self.chunks.clone();
        self.rendering.end(End::Cut(Arc::new(Rest { chunks, crc })));
        let mut kept = self.shared.kept.lock();
        forget(&mut kept, &self.key, &self.rendering);
        Ok(())
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let mut kept = self.shared.kept.lock();
        if !self.rendering.has_ended() {
            self.rendering.end(End::Failed);
            forget(&mut kept, &self.key, &self.rendering);
        }
    }
}

// === impl ListKey ===

impl ListKey {
    fn parts(&self) -> impl Hash + PartialEq + '_ {
        (
            Arc::as_ptr(&self.encoder),
            self.epoch,
            self.resource_version,
            self.objects,
            self.representation,
            &self.selection,
            &self.after,
            self.limit,
        )
    }
}

impl PartialEq for ListKey {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for ListKey {}

impl Hash for ListKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

#[cfg(test)]
mod tests;
