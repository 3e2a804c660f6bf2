//! Caches long lists, so that many clients that ask for the same list cost the work of one.
//!
//! The text of a list consists of shared slices of its snapshot, so sending it again costs almost
//! nothing. Compressing it costs more than all other work, and so does converting the objects to
//! metadata or to the rows of a Table. So lists are kept as gzip, and lists of metadata and Tables
//! also as text, for clients that do not accept gzip.
//!
//! One request makes a list, and equal requests wait for it. If its client leaves, one of those that
//! wait makes the list. A list stays in the cache while the cache of the objects has no newer
//! version, as long as clients ask for it.

use std::sync::Arc;
use std::thread::available_parallelism;

use kubefan_core::body;
use kubefan_core::codec::ListParts;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use prometheus::IntCounterVec;
use tokio::sync::Semaphore;

use super::compression::{Compression, OUTPUT_CHUNK};
use super::gzip_stream::GzipStream;
use super::kept_lists::{Added, Content, KeptLists, ListBytes, ListInfo, SharedList};
use super::list_text::{ListText, TextChunks};
use super::making::{Making, MakingLists, Unshared, Waiting};
use crate::ledger::{Account, Budget};
use crate::server::deliver::chunks::Chunks;
use crate::server::deliver::gzip::GzipBody;
use crate::server::deliver::list_bodies::ListBodies;
use crate::server::deliver::list_key::ListKey;

/// Lists that are being made or were made recently. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ListCache {
    kept: Arc<KeptLists>,
    making: MakingLists,
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

/// What a request for a list does next.
pub(crate) enum Begun {
    Found(SharedList),
    /// The request makes the list.
    Make(Making),
    /// Another request makes the list.
    Wait(Waiting),
}

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
            making: MakingLists::default(),
            permits: Arc::new(Semaphore::new(threads)),
            sent,
            shutdown,
        }
    }

    /// Returns the list of `key` for the client of `account`, if there is one.
    pub(crate) fn find(&self, key: &ListKey, account: Option<&Arc<Account>>) -> Option<SharedList> {
        let found = self.kept.find(key, account)?;
        self.sent.count(key.is_gzip, "shared");
        Some(found)
    }

    /// Returns the list of `key` for the client of `account`, if there is one. Otherwise begins to
    /// make it, unless another request does.
    pub(crate) fn begin(&self, key: &ListKey, account: Option<&Arc<Account>>) -> Begun {
        let making = match self.making.begin(key) {
            Ok(making) => making,
            Err(waiting) => return Begun::Wait(waiting),
        };
        // From now on no other request adds the list, but one may have done so before.
        match self.find(key, account) {
            Some(found) => Begun::Found(found),
            None => Begun::Make(making),
        }
    }

    /// Returns the list in `chunks` as gzip, for the client of `account`. With `making`, other
    /// clients share the compression. `info` is what is known of the list.
    pub(crate) fn compress(
        &self,
        making: Option<Making>,
        chunks: Chunks<ListParts<ListBodies>>,
        info: ListInfo,
        account: Option<&Arc<Account>>,
    ) -> SharedList {
        let stream = Arc::new(GzipStream::new(self.kept.budget.gauge().clone()));
        let body = body::boxed(stream.new_reader(account.cloned()));
        let (has_more, shown) = (info.has_more, info.shown);
        let list = |body, has_compressor| SharedList {
            bytes: ListBytes::Gzip(body),
            has_more,
            shown,
            has_compressor,
        };
        let content = (Content::Gzip(Arc::clone(&stream)), OUTPUT_CHUNK);
        let Some(making) = making.and_then(|making| self.keep(making, content, info)) else {
            self.sent.count(true, "alone");
            return list(body::boxed(GzipBody::new(chunks.boxed())), true);
        };
        self.sent.count(true, "rendered");
        let compression = Compression {
            kept: Arc::clone(&self.kept),
            key: making.key().clone(),
            stream,
            chunks,
        };
        let permits = Arc::clone(&self.permits);
        self.shutdown.spawn_background(compression.run(permits));
        list(body, false)
    }

    /// Returns an empty text of `length` bytes for the list that `making` makes. Returns `None` if
    /// the list is for one client only, or if memory is short.
    pub(crate) fn empty_text(
        &self,
        making: Option<Making>,
        length: u64,
    ) -> Option<(Making, ListText)> {
        let text = making.and_then(|making| {
            let length = usize::try_from(length).ok();
            let text = length.and_then(|length| self.kept.text(length));
            let Some(text) = text else {
                making.end(Unshared::Alone);
                return None;
            };
            Some((making, text))
        });
        self.sent
            .count(false, if text.is_some() { "rendered" } else { "alone" });
        text
    }

    /// Returns the list that `making` makes, as `text`, which is filled with `parts`, and adds it to
    /// the cache. Cancel safe.
    pub(crate) async fn fill(
        &self,
        (making, text): (Making, ListText),
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
        drop(self.keep(making, (Content::Text(text), 0), info));
        list
    }

    /// Adds the list that `making` makes to the cache. If there is no room for it, ends `making`, so
    /// that each equal request makes its own.
    fn keep(&self, making: Making, content: (Content, usize), info: ListInfo) -> Option<Making> {
        match self.kept.add(making.key(), content, info) {
            Added::New { starts_expiry } => {
                if starts_expiry {
                    let kept = Arc::clone(&self.kept);
                    self.shutdown
                        .spawn_background(async move { kept.expire().await });
                }
                Some(making)
            }
            Added::NoRoom => {
                making.end(Unshared::Alone);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
