//! Lists as gzip, compressed once for all who ask for the same, by threads that serve nobody.
//!
//! A list's text is shared slices of its snapshot and costs nothing to send again; compressing it
//! costs more than all else together. So what one client waits for is there for the next, and stays
//! for a few seconds: a herd after a restart costs one compression.

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

use super::compress::GzipBody;
use super::compress::GzipWriter;
use super::gzip_stream::GzipStream;
use super::gzip_stream::Remainder;
use super::gzip_stream::StreamEnd;
use crate::server::deliver::chunks::Chunks;

/// Compressed bytes held at most, those that slow clients have yet to read included. With less room,
/// each compresses for itself.
const MAX_BYTES: usize = 64 << 20;
/// Lists cached at most.
const MAX_LISTS: usize = 256;
/// How long one is kept after somebody asked for it, if several did.
const SHARED_TTL: Duration = Duration::from_secs(5);
/// The same if one did: enough for a herd's second.
const UNSHARED_TTL: Duration = Duration::from_secs(1);
/// Bytes compressed between two looks at whether anybody still reads.
const READER_CHECK_BYTES: usize = 64 << 10;
/// Compressed bytes added, and sent, together.
const OUTPUT_CHUNK: usize = 64 << 10;

/// What is counted of lists as gzip.
#[derive(Clone)]
pub struct GzipCacheMetrics {
    lists: IntCounterVec,
    bytes: IntGauge,
}

/// The lists that are compressed, and those that were just now. Cheap to clone.
#[derive(Clone)]
pub(crate) struct GzipCache {
    inner: Arc<Inner>,
}

struct Inner {
    cached: Mutex<HashMap<ListKey, CachedList>>,
    /// Who compresses; the others wait.
    permits: Arc<Semaphore>,
    limits: Limits,
    metrics: GzipCacheMetrics,
    shutdown: Shutdown,
}

#[derive(Clone, Copy)]
struct Limits {
    bytes: usize,
    lists: usize,
}

struct CachedList {
    stream: Arc<GzipStream>,
    last_used: Instant,
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
pub(crate) struct SharedList {
    /// As gzip.
    pub body: Body,
    /// Whether it names a following page.
    pub has_more: bool,
}

/// Compresses one list; dropped before the end, it has given up.
struct Producer {
    inner: Arc<Inner>,
    key: ListKey,
    stream: Arc<GzipStream>,
    chunks: Chunks<ListParts>,
}

// === impl GzipCacheMetrics ===

impl GzipCacheMetrics {
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

    fn bytes_held(&self) -> usize {
        usize::try_from(self.bytes.get()).unwrap_or_default()
    }
}

// === impl GzipCache ===

impl GzipCache {
    /// None so far; they are compressed by tasks of `shutdown`.
    pub(crate) fn new(metrics: GzipCacheMetrics, shutdown: Shutdown) -> Self {
        let limits = Limits {
            bytes: MAX_BYTES,
            lists: MAX_LISTS,
        };
        Self::with_limits(limits, metrics, shutdown)
    }

    fn with_limits(limits: Limits, metrics: GzipCacheMetrics, shutdown: Shutdown) -> Self {
        // Half of them, for others are served meanwhile.
        let threads = available_parallelism().map_or(1, |threads| threads.get().div_ceil(2));
        Self {
            inner: Arc::new(Inner {
                cached: Mutex::default(),
                permits: Arc::new(Semaphore::new(threads)),
                limits,
                metrics,
                shutdown,
            }),
        }
    }

    /// The list of `key`, if somebody asked for it just now.
    pub(crate) fn get(&self, key: &ListKey) -> Option<SharedList> {
        self.inner.find(&mut self.inner.cached.lock(), key)
    }

    /// The list of `key`, which is `chunks`, as gzip: compressed from now on, unless it is already.
    pub(crate) fn compress(&self, key: ListKey, chunks: Chunks<ListParts>, has_more: bool) -> Body {
        let Inner {
            metrics, shutdown, ..
        } = self.inner.as_ref();
        let stream = Arc::new(GzipStream::new(metrics.bytes.clone()));
        let body = stream.new_reader();
        {
            let mut cached = self.inner.cached.lock();
            if let Some(found) = self.inner.find(&mut cached, &key) {
                return found.body;
            }
            if !self.inner.make_room(&mut cached, 1, OUTPUT_CHUNK) {
                metrics.count("alone");
                return body::boxed(GzipBody::new(chunks.boxed()));
            }
            let entry = CachedList {
                stream: Arc::clone(&stream),
                last_used: Instant::now(),
                is_shared: false,
                has_more,
            };
            cached.insert(key.clone(), entry);
        }
        metrics.count("rendered");
        let weak = Arc::downgrade(&stream);
        let producer = Producer {
            inner: Arc::clone(&self.inner),
            key: key.clone(),
            stream,
            chunks,
        };
        let inner = Arc::clone(&self.inner);
        shutdown.spawn_background(async move {
            let permit = Arc::clone(&inner.permits).acquire_owned().await;
            if let Err(error) = spawn_blocking(move || producer.run()).await {
                tracing::error!(%error, "a list could not be compressed");
            }
            drop(permit);
            inner.expire(&key, &weak).await;
        });
        body::boxed(body)
    }
}

impl Inner {
    fn find(&self, cached: &mut HashMap<ListKey, CachedList>, key: &ListKey) -> Option<SharedList> {
        let found = cached.get_mut(key)?;
        self.metrics.count("shared");
        found.last_used = Instant::now();
        found.is_shared = true;
        Some(SharedList {
            body: body::boxed(found.stream.new_reader()),
            has_more: found.has_more,
        })
    }

    /// Forgets what nobody reads, the longest unasked for first, until there is room for
    /// `new_lists` and `new_bytes` more; false where that is not enough.
    fn make_room(
        &self,
        cached: &mut HashMap<ListKey, CachedList>,
        new_lists: usize,
        new_bytes: usize,
    ) -> bool {
        while cached.len() + new_lists > self.limits.lists
            || self.metrics.bytes_held() + new_bytes > self.limits.bytes
        {
            let idle = cached.iter().filter(|(_, list)| !list.stream.has_readers());
            let oldest = idle.min_by_key(|(_, list)| list.last_used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return false;
            };
            cached.remove(&oldest);
        }
        true
    }

    /// Forgets `stream` unless somebody reads it.
    fn forget_if_abandoned(&self, key: &ListKey, stream: &Arc<GzipStream>) -> bool {
        let mut cached = self.cached.lock();
        let is_abandoned = !stream.has_readers();
        if is_abandoned {
            forget(&mut cached, key, stream);
        }
        is_abandoned
    }

    /// Forgets `stream` once nobody has asked for it for long enough.
    async fn expire(&self, key: &ListKey, stream: &Weak<GzipStream>) {
        let ended = Instant::now();
        while let Some(until) = self.expiry_of(key, stream, ended) {
            sleep_until(until).await;
        }
    }

    /// How long `stream`, which ended at `ended`, is kept; `None` once it is not.
    fn expiry_of(
        &self,
        key: &ListKey,
        stream: &Weak<GzipStream>,
        ended: Instant,
    ) -> Option<Instant> {
        let mut cached = self.cached.lock();
        let entry = cached.get(key)?;
        if Arc::as_ptr(&entry.stream) != stream.as_ptr() {
            return None;
        }
        let until = match entry.is_shared {
            true => entry.last_used + SHARED_TTL,
            false => entry.last_used.max(ended) + UNSHARED_TTL,
        };
        if until <= Instant::now() {
            cached.remove(key);
            return None;
        }
        Some(until)
    }
}

/// Takes `stream` out, but no other of its key.
fn forget(cached: &mut HashMap<ListKey, CachedList>, key: &ListKey, stream: &Arc<GzipStream>) {
    let entry = cached.get(key);
    if entry.is_some_and(|list| Arc::ptr_eq(&list.stream, stream)) {
        cached.remove(key);
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
        let mut gzip = GzipWriter::new(OUTPUT_CHUNK);
        while !self.inner.forget_if_abandoned(&self.key, &self.stream) {
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
            let has_room = {
                let mut cached = self.inner.cached.lock();
                self.inner.make_room(&mut cached, 0, output.len())
            };
            self.stream.push(output);
            if !has_room {
                return self.cut(gzip);
            }
        }
        Ok(())
    }

    /// Leaves the rest to each reader, and is forgotten.
    fn cut(&mut self, gzip: GzipWriter) -> io::Result<()> {
        let (output, crc) = gzip.cut()?;
        self.stream.push(output);
        let chunks = self.chunks.clone();
        self.stream
            .end(StreamEnd::Cut(Arc::new(Remainder { chunks, crc })));
        let mut cached = self.inner.cached.lock();
        forget(&mut cached, &self.key, &self.stream);
        Ok(())
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let mut cached = self.inner.cached.lock();
        if !self.stream.has_ended() {
            self.stream.end(StreamEnd::Failed);
            forget(&mut cached, &self.key, &self.stream);
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
