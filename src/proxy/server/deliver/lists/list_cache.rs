//! Caches long lists, so that many clients that ask for the same list cost the work of one.
//!
//! The text of a list consists of shared slices of its snapshot, so sending it again costs almost
//! nothing. Compressing it costs more than all other work, and so does converting the objects to
//! metadata or to the rows of a Table. So lists are kept as gzip, and lists of metadata and Tables
//! also as text, for clients that do not accept gzip.
//!
//! Requests that come while a list is made wait for it. A list stays in the cache while its objects
//! are the current ones, as long as clients ask for it.

use std::sync::Arc;
use std::thread::available_parallelism;

use kubefan_core::body;
use kubefan_core::codec::ListParts;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use prometheus::IntCounterVec;
use tokio::sync::{OwnedMutexGuard, Semaphore};

use super::compression::{Compression, OUTPUT_CHUNK};
use super::gzip_stream::GzipStream;
use super::kept_lists::{Added, Content, KeptLists, ListBytes, ListInfo, SharedList};
use super::list_text::{ListText, TextChunks};
use crate::ledger::{Account, Budget};
use crate::server::deliver::chunks::Chunks;
use crate::server::deliver::gzip::GzipBody;
use crate::server::deliver::list_bodies::ListBodies;
use crate::server::deliver::list_key::ListKey;

/// Lists that are being made or were made recently. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ListCache {
    kept: Arc<KeptLists>,
    /// One permit for each list that may be compressed concurrently.
    permits: Arc<Semaphore>,
    sent: ListCounters,
    shutdown: Shutdown,
}

/// The metrics of the cache.
#[derive(Clone)]
pub(crate) struct ListCounters {
    gzip: IntCounterVec,
    text: IntCounterVec,
}

/// Held while a list is made. Equal requests wait until it is dropped.
pub(crate) type Making = OwnedMutexGuard<()>;

impl ListCounters {
    /// Registers the counters of lists that were sent.
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            gzip: registry.counter_vec(
                "kubefan_gzip_lists_total",
                "Lists sent from a cache as gzip: compressed for this client first (rendered), \
                 shared with an earlier client (shared), or compressed for one client only because \
                 memory was short (alone).",
                &["how"],
            ),
            text: registry.counter_vec(
                "kubefan_text_lists_total",
                "Long lists of metadata and long Tables sent from a cache without compression: \
                 made for this client first (rendered), shared with an earlier client (shared), or \
                 made for one client only because memory was short (alone).",
                &["how"],
            ),
        }
    }

    fn count(&self, is_gzip: bool, how: &str) {
        let counter = if is_gzip { &self.gzip } else { &self.text };
        counter.with_label_values(&[how]).inc();
    }
}

impl ListCache {
    /// Creates an empty cache of at most `budget`. Lists are compressed, and dropped, by tasks of
    /// `shutdown`.
    pub(crate) fn new(budget: Budget, sent: ListCounters, shutdown: Shutdown) -> Self {
        // Only half of the cores compress, so that the others can serve clients.
        let threads = available_parallelism().map_or(1, |threads| threads.get().div_ceil(2));
        Self {
            kept: Arc::new(KeptLists::new(budget)),
            permits: Arc::new(Semaphore::new(threads)),
            sent,
            shutdown,
        }
    }

    /// Returns the list of `key` for the client of `account`, if there is one. If another request
    /// is making it, waits until it is made. Cancel safe.
    ///
    /// # Errors
    ///
    /// If the caller must make the list. It holds what is returned until the list is made, so that
    /// equal requests wait. Nothing is returned after a wait for a list that can't be shared.
    pub(crate) async fn get(
        &self,
        key: &ListKey,
        account: Option<&Arc<Account>>,
    ) -> Result<SharedList, Option<Making>> {
        if let Some(found) = self.find(key, account) {
            return Ok(found);
        }
        let lock = self.kept.lock_of(key);
        let making = Arc::clone(&lock).try_lock_owned().ok();
        if making.is_none() {
            drop(lock.lock().await);
        }
        self.find(key, account).ok_or(making)
    }

    fn find(&self, key: &ListKey, account: Option<&Arc<Account>>) -> Option<SharedList> {
        let found = self.kept.find(key, account)?;
        self.sent.count(key.is_gzip, "shared");
        Some(found)
    }

    /// Returns the list of `key` as gzip, for the client of `account`. Starts to compress `chunks`,
    /// of which `info` is known, unless the cache already has the list.
    pub(crate) fn compress(
        &self,
        key: ListKey,
        chunks: Chunks<ListParts<ListBodies>>,
        info: &ListInfo,
        account: Option<&Arc<Account>>,
    ) -> SharedList {
        let stream = Arc::new(GzipStream::new(self.kept.budget.gauge().clone()));
        let body = body::boxed(stream.new_reader(account.cloned()));
        let list = |body, has_compressor| SharedList {
            bytes: ListBytes::Gzip(body),
            has_more: info.has_more,
            shown: info.shown,
            has_compressor,
        };
        let content = (Content::Gzip(Arc::clone(&stream)), OUTPUT_CHUNK);
        match self.kept.add(&key, content, info.clone(), account) {
            Added::Found(found) => {
                self.sent.count(true, "shared");
                return found;
            }
            Added::NoRoom => {
                self.sent.count(true, "alone");
                return list(body::boxed(GzipBody::new(chunks.boxed())), true);
            }
            Added::New { starts_expiry } => self.expire_if(starts_expiry),
        }
        self.sent.count(true, "rendered");
        let compression = Compression {
            kept: Arc::clone(&self.kept),
            key,
            stream,
            chunks,
        };
        let permits = Arc::clone(&self.permits);
        self.shutdown.spawn_background(compression.run(permits));
        list(body, false)
    }

    /// Returns an empty text for a list of `length` bytes, or `None` if memory is short.
    pub(crate) fn empty_text(&self, length: u64) -> Option<ListText> {
        let text = usize::try_from(length).ok();
        let text = text.and_then(|length| self.kept.text(length));
        self.sent
            .count(false, if text.is_some() { "rendered" } else { "alone" });
        text
    }

    /// Returns the list of `key` as `text`, which is filled with `parts`, and adds it to the cache.
    /// Cancel safe.
    pub(crate) async fn fill(
        &self,
        key: &ListKey,
        text: ListText,
        parts: ListParts<ListBodies>,
        info: ListInfo,
    ) -> SharedList {
        let text = Arc::new(text.filled(parts).await);
        let list = SharedList {
            bytes: ListBytes::Text(TextChunks::new(Arc::clone(&text))),
            has_more: info.has_more,
            shown: info.shown,
            has_compressor: false,
        };
        if let Added::New { starts_expiry } =
            self.kept.add(key, (Content::Text(text), 0), info, None)
        {
            self.expire_if(starts_expiry);
        }
        list
    }

    /// Starts the task that drops old lists, if it does not run.
    fn expire_if(&self, starts_expiry: bool) {
        if starts_expiry {
            let kept = Arc::clone(&self.kept);
            self.shutdown
                .spawn_background(async move { kept.expire().await });
        }
    }
}

#[cfg(test)]
mod tests;
