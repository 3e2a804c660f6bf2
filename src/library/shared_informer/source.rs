//! Source: the cache that a shared informer reads, which may be replaced by another one.

use kubefan_core::api::ResourceVersion;
use kubefan_core::cache::Reader;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The reader of the present cache. A clone belongs to one task, which sees each cache once.
#[derive(Clone)]
pub(super) struct Source {
    readers: watch::Receiver<Option<Reader>>,
    /// The cache that [`Source::next_ready`] waits for.
    next: Option<Reader>,
}

// === impl Source ===

impl Source {
    /// Creates a source that ends with the cache of `reader`.
    pub(super) fn fixed(reader: Reader) -> Self {
        Self::new(watch::channel(Some(reader)).1)
    }

    /// Creates a source of the caches that `readers` read; `None` while there is no cache. The
    /// source ends when the sender is dropped and the last cache was closed.
    pub(super) fn new(mut readers: watch::Receiver<Option<Reader>>) -> Self {
        readers.mark_changed();
        Self {
            readers,
            next: None,
        }
    }

    /// Returns the reader of the present cache, which need not be ready.
    pub(super) fn current(&self) -> Option<Reader> {
        self.readers.borrow().clone()
    }

    /// Waits until a cache has applied `version`. Returns false at the end. Cancel safe.
    pub(super) async fn wait_for(&mut self, version: ResourceVersion, deadline: Instant) -> bool {
        let reached = async {
            while let Some(reader) = self.next_ready().await {
                if reader.wait_for(version, deadline).await {
                    return true;
                }
            }
            false
        };
        timeout_at(deadline, reached).await.unwrap_or(false)
    }

    /// Makes [`Source::next_ready`] wait until the cache of `reader` is ready again, unless there
    /// is another cache already.
    pub(super) fn wait_again(&mut self, reader: Reader) {
        if !self.readers.has_changed().unwrap_or(false) {
            self.next = Some(reader);
        }
    }

    /// Waits until the next cache is ready. Returns `None` at the end. Cancel safe.
    pub(super) async fn next_ready(&mut self) -> Option<Reader> {
        loop {
            while self.next.is_none() {
                // A value that was sent before the sender was dropped still counts as a change.
                self.readers.changed().await.ok()?;
                self.next = self.readers.borrow_and_update().clone();
            }
            let is_ready = match &self.next {
                Some(reader) => reader.ready().await,
                None => false,
            };
            let reader = self.next.take().filter(|_| is_ready);
            if reader.is_some() {
                return reader;
            }
        }
    }
}
