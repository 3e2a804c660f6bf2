//! KeptLists: the lists in the cache, their memory, and how long they stay.

#![expect(
    clippy::mutable_key_type,
    reason = "keys compare what can change by its address"
)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kubefan_core::body;
use kubefan_core::body::Body;
use kubefan_core::cache::Reader;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::gzip_stream::GzipStream;
use super::list_text::{ListText, TextChunks};
use crate::ledger::{Account, Budget};
use crate::server::answers::answer::Shown;
use crate::server::deliver::list_key::ListKey;

/// Upper limit of the number of lists.
pub(super) const MAX_LISTS: usize = 256;
/// How long a list stays after its last use while the cache has no newer version.
pub(super) const CURRENT_TTL: Duration = Duration::from_secs(30);
/// How long a list of a past version, or a Table, stays after its last use. Clients that began
/// together may still request its next pages.
pub(super) const PAST_TTL: Duration = Duration::from_secs(1);
/// How often old lists are dropped.
const EXPIRY_PERIOD: Duration = Duration::from_secs(1);

/// What is known of a list besides its text.
#[derive(Clone)]
pub(crate) struct ListInfo {
    /// True if the list has a next page.
    pub has_more: bool,
    pub shown: Shown,
    /// The cache with the objects.
    pub reader: Reader,
}

/// A list for one client.
pub(crate) struct SharedList {
    pub bytes: ListBytes,
    /// True if the list has a next page.
    pub has_more: bool,
    pub shown: Shown,
    /// True if the list is compressed for one client only.
    pub has_compressor: bool,
}

/// The bytes of a list.
pub(crate) enum ListBytes {
    /// Gzip, which may still be being compressed.
    Gzip(Body),
    /// The text, which is not indented.
    Text(TextChunks),
}

/// Lists that are being made or were made recently.
pub(super) struct KeptLists {
    pub(super) state: Mutex<State>,
    /// The bytes of all lists in memory, including those that slow clients have not read yet.
    pub(super) budget: Budget,
    pub(super) max_lists: usize,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) lists: HashMap<ListKey, KeptList>,
    /// True while a task drops old lists.
    is_expiring: bool,
}

pub(super) struct KeptList {
    content: Content,
    info: ListInfo,
    last_used: Instant,
}

pub(super) enum Content {
    Gzip(Arc<GzipStream>),
    Text(Arc<ListText>),
}

/// What [`KeptLists::add`] did.
pub(super) enum Added {
    /// The list was added. The task of [`KeptLists::expire`] must be started if this is true.
    New { starts_expiry: bool },
    /// There is not enough memory.
    NoRoom,
}

// === impl KeptLists ===

impl KeptLists {
    /// Creates an empty store of at most `budget`.
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            state: Mutex::default(),
            budget,
            max_lists: MAX_LISTS,
        }
    }

    /// Returns the list of `key` for the client of `account`.
    pub(super) fn find(&self, key: &ListKey, account: Option<&Arc<Account>>) -> Option<SharedList> {
        self.state.lock().find(key, account)
    }

    /// Adds the list of `key` if there is memory for `bytes` more. There must be no list of `key`
    /// yet.
    pub(super) fn add(
        &self,
        key: &ListKey,
        (content, bytes): (Content, usize),
        info: ListInfo,
    ) -> Added {
        let mut state = self.state.lock();
        let Some(evicted) = self.make_room(&mut state, 1, bytes) else {
            return Added::NoRoom;
        };
        let list = KeptList {
            content,
            info,
            last_used: Instant::now(),
        };
        state.lists.insert(key.clone(), list);
        let starts_expiry = !std::mem::replace(&mut state.is_expiring, true);
        drop(state);
        drop(evicted);
        Added::New { starts_expiry }
    }

    /// Returns an empty text of `length` bytes, or `None` if there is no memory for it.
    pub(super) fn text(&self, length: usize) -> Option<ListText> {
        let mut state = self.state.lock();
        let evicted = self.make_room(&mut state, 0, length)?;
        let text = ListText::new(length, self.budget.gauge().clone());
        drop(state);
        drop(evicted);
        Some(text)
    }

    /// Makes room for `bytes` more of a list. Returns false if there is not enough room.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let evicted = self.make_room(&mut self.state.lock(), 0, bytes);
        evicted.is_some()
    }

    /// Removes lists that no client reads, the least recently used first, so that there is room for
    /// `new_lists` and `new_bytes` more. Returns them, to be dropped after unlocking, because
    /// freeing a long list takes time. Returns `None`, and removes nothing, if that would not make
    /// enough room.
    fn make_room(
        &self,
        state: &mut State,
        new_lists: usize,
        new_bytes: usize,
    ) -> Option<Vec<KeptList>> {
        let lists = &mut state.lists;
        let mut lists_over = (lists.len() + new_lists).saturating_sub(self.max_lists);
        let bytes = self.budget.used().saturating_add(new_bytes);
        let mut bytes_over = bytes.saturating_sub(self.budget.limit());
        if lists_over == 0 && bytes_over == 0 {
            return Some(Vec::new());
        }
        let idle = lists.iter().filter(|(_, list)| !list.has_readers());
        let mut idle: Vec<_> = idle.collect();
        idle.sort_unstable_by_key(|(_, list)| list.last_used);
        let mut evicted = Vec::new();
        for (key, list) in idle {
            if lists_over == 0 && bytes_over == 0 {
                break;
            }
            lists_over = lists_over.saturating_sub(1);
            bytes_over = bytes_over.saturating_sub(list.bytes());
            evicted.push(key.clone());
        }
        let is_enough = lists_over == 0 && bytes_over == 0;
        is_enough.then(|| evicted.iter().filter_map(|key| lists.remove(key)).collect())
    }

    /// Removes `stream` and returns true if no client reads it.
    pub(super) fn forget_if_abandoned(&self, key: &ListKey, stream: &Arc<GzipStream>) -> bool {
        let mut state = self.state.lock();
        let is_abandoned = !stream.has_readers();
        if is_abandoned {
            state.forget(key, stream);
        }
        is_abandoned
    }

    /// Removes `stream`, but not a newer list with an equal key.
    pub(super) fn forget(&self, key: &ListKey, stream: &Arc<GzipStream>) {
        self.state.lock().forget(key, stream);
    }

    /// Drops old lists until none is left.
    pub(super) async fn expire(&self) {
        loop {
            sleep(EXPIRY_PERIOD).await;
            let now = Instant::now();
            let mut state = self.state.lock();
            let old = state.lists.extract_if(|key, list| list.is_old(key, now));
            let old: Vec<_> = old.collect();
            state.is_expiring = !state.lists.is_empty();
            let is_over = !state.is_expiring;
            drop(state);
            // Freeing a long list takes time, so it is done after unlocking.
            drop(old);
            if is_over {
                return;
            }
        }
    }
}

// === impl State ===

impl State {
    /// Returns the list of `key`. Its reader is made under the lock: a list without readers may be
    /// abandoned.
    fn find(&mut self, key: &ListKey, account: Option<&Arc<Account>>) -> Option<SharedList> {
        let found = self.lists.get_mut(key)?;
        found.last_used = Instant::now();
        let bytes = match &found.content {
            Content::Gzip(stream) => {
                ListBytes::Gzip(body::boxed(stream.new_reader(account.cloned())))
            }
            Content::Text(text) => ListBytes::Text(TextChunks::new(Arc::clone(text))),
        };
        Some(SharedList {
            bytes,
            has_more: found.info.has_more,
            shown: found.info.shown,
            has_compressor: false,
        })
    }

    fn forget(&mut self, key: &ListKey, stream: &Arc<GzipStream>) {
        let is_it = |list: &KeptList| match &list.content {
            Content::Gzip(own) => Arc::ptr_eq(own, stream),
            Content::Text(_) => false,
        };
        if self.lists.get(key).is_some_and(is_it) {
            self.lists.remove(key);
        }
    }
}

// === impl KeptList ===

impl KeptList {
    fn has_readers(&self) -> bool {
        match &self.content {
            Content::Gzip(stream) => stream.has_readers(),
            Content::Text(text) => Arc::strong_count(text) > 1,
        }
    }

    /// Returns the bytes in memory.
    fn bytes(&self) -> usize {
        match &self.content {
            Content::Gzip(stream) => stream.bytes(),
            Content::Text(text) => text.length(),
        }
    }

    /// Returns true if the list of `key` is dropped now: it is complete, and its time without use is
    /// over.
    fn is_old(&self, key: &ListKey, now: Instant) -> bool {
        let is_complete = match &self.content {
            Content::Gzip(stream) => stream.has_ended(),
            Content::Text(_) => true,
        };
        let unused = now - self.last_used;
        is_complete && unused >= PAST_TTL && (unused >= CURRENT_TTL || !self.is_current(key))
    }

    /// Returns true if later requests may want the list of `key`, because the cache has no newer
    /// version. A proof may have shown a version that the cache has not reached yet. A Table is
    /// never current, because its rows show ages.
    fn is_current(&self, key: &ListKey) -> bool {
        let newest = match key.printed {
            None => self.info.reader.snapshot(),
            Some(_) => None,
        };
        newest.is_some_and(|newest| {
            newest.epoch() == key.epoch
                && newest.resource_version() <= key.resource_version
                && newest.len() == key.objects
        })
    }
}
