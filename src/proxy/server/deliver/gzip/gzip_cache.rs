//! Caches lists as gzip. Each list is compressed once for all clients that ask for it, on threads
//! that serve no connections.
//!
//! The text of a list consists of shared slices of its snapshot, so sending it again costs almost
//! nothing. Compressing it costs more than all other work. The compressed list is therefore sent to
//! all clients that wait for it, and cached for a few seconds: many clients that restart together
//! cost one compression.

#![expect(
    clippy::mutable_key_type,
    reason = "keys compare what can change by its address"
)]

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::io;
use std::sync::{Arc, Weak};
use std::thread::available_parallelism;
use std::time::Duration;

use kubefan_core::api::{HashedSelection, ResourceVersion};
use kubefan_core::body;
use kubefan_core::body::Body;
use kubefan_core::codec::{Encoder, ListParts, Representation};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use parking_lot::Mutex;
use prometheus::IntCounterVec;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::compress::{GzipBody, GzipWriter};
use super::gzip_stream::{GzipStream, Remainder, StreamEnd};
use crate::ledger::{Account, Budget};
use crate::server::answers::answer::Shown;
use crate::server::cached::collection::PrintedList;
use crate::server::decide::Page;
use crate::server::deliver::chunks::Chunks;
use crate::server::deliver::list_bodies::ListBodies;

/// Upper limit of the number of cached lists.
const MAX_LISTS: usize = 256;
/// How long a list stays in the cache after its last use, if several clients have used it.
const SHARED_TTL: Duration = Duration::from_secs(5);
/// How long a list stays in the cache if only one client has used it. Clients often restart
/// together, so another client may request the same list within this second.
const UNSHARED_TTL: Duration = Duration::from_secs(1);
/// Bytes that are compressed between two checks whether a client still reads the list.
const READER_CHECK_BYTES: usize = 64 << 10;
/// Size, in bytes, of the compressed chunks that are stored and sent.
const OUTPUT_CHUNK: usize = 64 << 10;

/// Lists that are being compressed or were compressed recently. Cheap to clone.
#[derive(Clone)]
pub(crate) struct GzipCache {
    inner: Arc<Inner>,
}

struct Inner {
    cached: Mutex<HashMap<ListKey, CachedList>>,
    /// One permit for each list that may be compressed concurrently.
    permits: Arc<Semaphore>,
    /// The compressed bytes in memory, including those that slow clients have not read yet.
    budget: Budget,
    max_lists: usize,
    sent: IntCounterVec,
    shutdown: Shutdown,
}

struct CachedList {
    stream: Arc<GzipStream>,
    last_used: Instant,
    is_shared: bool,
    has_more: bool,
    shown: Shown,
}

/// Everything that two requests must have in common to share a list.
#[derive(Clone)]
pub(crate) struct ListKey {
    /// The collection's encoder, compared by pointer; it is replaced when the encoding changes.
    pub encoder: Arc<Encoder>,
    /// Epoch of the snapshot.
    pub epoch: u64,
    /// Resource version of the snapshot.
    pub resource_version: ResourceVersion,
    /// Number of objects in the snapshot.
    pub objects: usize,
    pub representation: Representation,
    pub selection: HashedSelection,
    pub page: Page,
    /// The printed rows, if the list is a Table.
    pub printed: Option<PrintedList>,
}

/// A list as gzip.
pub(crate) struct CompressedList {
    /// The bytes, which may still be being compressed.
    pub body: Body,
    /// True if the list has a next page.
    pub has_more: bool,
    /// What the list shows.
    pub shown: Shown,
    /// True if the list is compressed for one client only.
    pub has_compressor: bool,
}

/// Compresses one list. If it is dropped before the end, the readers of the list get an error.
struct Producer {
    inner: Arc<Inner>,
    key: ListKey,
    stream: Arc<GzipStream>,
    chunks: Chunks<ListParts<ListBodies>>,
}

/// Registers the counter of lists that are sent as gzip.
pub(crate) fn list_counter(registry: &Registry) -> IntCounterVec {
    registry.counter_vec(
        "kubefan_gzip_lists_total",
        "Lists sent from a cache as gzip: compressed for this client first (rendered), shared \
         with an earlier client (shared), or compressed for one client only because memory \
         was short (alone).",
        &["how"],
    )
}

// === impl GzipCache ===

impl GzipCache {
    /// Creates an empty cache of at most `budget`. Lists are compressed by tasks of `shutdown`.
    pub(crate) fn new(budget: Budget, sent: IntCounterVec, shutdown: Shutdown) -> Self {
        // Only half of the cores compress, so that the others can serve clients.
        let threads = available_parallelism().map_or(1, |threads| threads.get().div_ceil(2));
        Self {
            inner: Arc::new(Inner {
                cached: Mutex::default(),
                permits: Arc::new(Semaphore::new(threads)),
                budget,
                max_lists: MAX_LISTS,
                sent,
                shutdown,
            }),
        }
    }

    /// Returns the list of `key` if another client has recently asked for it. Its body is for the
    /// client of `account`.
    pub(crate) fn get(
        &self,
        key: &ListKey,
        account: Option<&Arc<Account>>,
    ) -> Option<CompressedList> {
        self.inner.find(&mut self.inner.cached.lock(), key, account)
    }

    /// Returns the list of `key` as gzip, for the client of `account`. Starts to compress `chunks`,
    /// which show `shown`, unless the cache already has the list.
    pub(crate) fn compress(
        &self,
        key: ListKey,
        chunks: Chunks<ListParts<ListBodies>>,
        (has_more, shown): (bool, Shown),
        account: Option<&Arc<Account>>,
    ) -> CompressedList {
        let list = |body, has_compressor| CompressedList {
            body,
            has_more,
            shown,
            has_compressor,
        };
        let stream = Arc::new(GzipStream::new(self.inner.budget.gauge().clone()));
        let body = stream.new_reader(account.cloned());
        {
            let mut cached = self.inner.cached.lock();
            if let Some(found) = self.inner.find(&mut cached, &key, account) {
                return found;
            }
            if !self.inner.make_room(&mut cached, 1, OUTPUT_CHUNK) {
                self.inner.count("alone");
                return list(body::boxed(GzipBody::new(chunks.boxed())), true);
            }
            let entry = CachedList {
                stream: Arc::clone(&stream),
                last_used: Instant::now(),
                is_shared: false,
                has_more,
                shown,
            };
            cached.insert(key.clone(), entry);
        }
        self.inner.count("rendered");
        let producer = Producer {
            inner: Arc::clone(&self.inner),
            key,
            stream,
            chunks,
        };
        self.inner.shutdown.spawn_background(producer.produce());
        list(body::boxed(body), false)
    }
}

impl Inner {
    fn count(&self, how: &str) {
        self.sent.with_label_values(&[how]).inc();
    }

    fn find(
        &self,
        cached: &mut HashMap<ListKey, CachedList>,
        key: &ListKey,
        account: Option<&Arc<Account>>,
    ) -> Option<CompressedList> {
        let found = cached.get_mut(key)?;
        self.count("shared");
        found.last_used = Instant::now();
        found.is_shared = true;
        Some(CompressedList {
            body: body::boxed(found.stream.new_reader(account.cloned())),
            has_more: found.has_more,
            shown: found.shown,
            has_compressor: false,
        })
    }

    /// Removes lists that no client reads, the least recently used first, until there is room for
    /// `new_lists` and `new_bytes` more. Returns false if there is not enough room.
    fn make_room(
        &self,
        cached: &mut HashMap<ListKey, CachedList>,
        new_lists: usize,
        new_bytes: usize,
    ) -> bool {
        while cached.len() + new_lists > self.max_lists
            || self.budget.used() + new_bytes > self.budget.limit()
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

    /// Removes `stream` from the cache and returns true if no client reads it.
    fn forget_if_abandoned(&self, key: &ListKey, stream: &Arc<GzipStream>) -> bool {
        let mut cached = self.cached.lock();
        let is_abandoned = !stream.has_readers();
        if is_abandoned {
            forget(&mut cached, key, stream);
        }
        is_abandoned
    }

    /// Removes `stream` from the cache after no client has asked for it for some time.
    async fn expire(&self, key: &ListKey, stream: &Weak<GzipStream>) {
        let ended = Instant::now();
        while let Some(until) = self.expiry_of(key, stream, ended) {
            sleep_until(until).await;
        }
    }

    /// Returns the time until which `stream` stays in the cache; its compression ended at `ended`.
    /// If this time has passed, removes the stream and returns `None`.
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
        let until = if entry.is_shared {
            entry.last_used + SHARED_TTL
        } else {
            entry.last_used.max(ended) + UNSHARED_TTL
        };
        if until <= Instant::now() {
            cached.remove(key);
            return None;
        }
        Some(until)
    }
}

/// Removes `stream` from the cache, but not a newer list with an equal key.
fn forget(cached: &mut HashMap<ListKey, CachedList>, key: &ListKey, stream: &Arc<GzipStream>) {
    let entry = cached.get(key);
    if entry.is_some_and(|list| Arc::ptr_eq(&list.stream, stream)) {
        cached.remove(key);
    }
}

// === impl Producer ===

impl Producer {
    /// Compresses the list, and removes it from the cache some time later.
    async fn produce(self) {
        let (inner, key) = (Arc::clone(&self.inner), self.key.clone());
        let stream = Arc::downgrade(&self.stream);
        let permit = Arc::clone(&inner.permits).acquire_owned().await;
        if let Err(error) = spawn_blocking(move || self.run()).await {
            tracing::error!(%error, "a list could not be compressed");
        }
        drop(permit);
        inner.expire(&key, &stream).await;
    }

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

    /// Stops early: each reader compresses the rest for itself, and the list leaves the cache.
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
        let printed = self.printed.as_ref();
        (
            Arc::as_ptr(&self.encoder),
            self.epoch,
            self.resource_version,
            self.objects,
            self.representation,
            &self.selection,
            &self.page,
            printed.map(|printed| (Arc::as_ptr(&printed.rows), printed.second)),
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
