//! KeptLists: the lists in the cache, their memory, and how long they stay.

#![expect(
    clippy::mutable_key_type,
    reason = "keys compare what can change by its address"
)]

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kubefan_core::api::ResourceVersion;
use kubefan_core::body;
use kubefan_core::body::Body;
use kubefan_core::cache::Reader;
use parking_lot::Mutex;
use tokio::sync;
use tokio::time::{Instant, sleep};

use super::gzip_stream::GzipStream;
use super::list_text::{ListText, TextChunks};
use crate::ledger::{Account, Budget};
use crate::server::answers::answer::Shown;
use crate::server::deliver::list_key::ListKey;

/// Upper limit of the number of lists.
pub(super) const MAX_LISTS: usize = 256;
/// How long a list stays after its last use while its objects are the current ones.
pub(super) const CURRENT_TTL: Duration = Duration::from_secs(30);
/// How long a list of past objects, or a Table, stays after its last use. Clients that began
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
    /// The snapshot's version of this name.
    pub newest_change: ResourceVersion,
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
    /// The locks of the lists that requests are making. They are dropped with their last request.
    locks: HashMap<ListKey, Weak<sync::Mutex<()>>>,
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
    /// There was an equal list.
    Found(SharedList),
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

    /// Returns the lock that a request holds while it makes the list of `key`.
    pub(super) fn lock_of(&self, key: &ListKey) -> Arc<sync::Mutex<()>> {
        let mut state = self.state.lock();
        let locks = &mut state.locks;
        if let Some(lock) = locks.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        locks.insert(key.clone(), Arc::downgrade(&lock));
        lock
    }

    /// Adds the list of `key`, unless there is one, or no memory for `bytes` more. If there is one,
    /// returns it for the client of `account`.
    pub(super) fn add(
        &self,
        key: &ListKey,
        (content, bytes): (Content, usize),
        info: ListInfo,
        account: Option<&Arc<Account>>,
    ) -> Added {
        let mut state = self.state.lock();
        if let Some(found) = state.find(key, account) {
            return Added::Found(found);
        }
        if !self.make_room(&mut state, 1, bytes) {
            return Added::NoRoom;
        }
        let list = KeptList {
            content,
            info,
            last_used: Instant::now(),
        };
        state.lists.insert(key.clone(), list);
        Added::New {
            starts_expiry: !std::mem::replace(&mut state.is_expiring, true),
        }
    }

    /// Returns an empty text of `length` bytes, or `None` if there is no memory for it.
    pub(super) fn text(&self, length: usize) -> Option<ListText> {
        let mut state = self.state.lock();
        // A text that can't fit must not cost the others their place.
        let has_room = length <= self.budget.limit() && self.make_room(&mut state, 0, length);
        has_room.then(|| ListText::new(length, self.budget.gauge().clone()))
    }

    /// Makes room for `bytes` more of a list. Returns false if there is not enough room.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.make_room(&mut self.state.lock(), 0, bytes)
    }

    /// Removes lists that no client reads, the least recently used first, until there is room for
    /// `new_lists` and `new_bytes` more. Returns false if there is not enough room.
    fn make_room(&self, state: &mut State, new_lists: usize, new_bytes: usize) -> bool {
        let lists = &mut state.lists;
        while lists.len() + new_lists > self.max_lists
            || self.budget.used() + new_bytes > self.budget.limit()
        {
            let idle = lists.iter().filter(|(_, list)| !list.has_readers());
            let oldest = idle.min_by_key(|(_, list)| list.last_used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return false;
            };
            lists.remove(&oldest);
        }
        true
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

    /// Returns true if the list of `key` is complete, and was not used for so long that it is
    /// dropped.
    fn is_old(&self, key: &ListKey, now: Instant) -> bool {
        let is_complete = match &self.content {
            Content::Gzip(stream) => stream.has_ended(),
            Content::Text(_) => true,
        };
        let unused = now - self.last_used;
        is_complete && unused >= PAST_TTL && (unused >= CURRENT_TTL || !self.is_current(key))
    }

    /// Returns true if the cache still has the objects that the list of `key` shows. A Table is not
    /// current for long, because of its ages.
    fn is_current(&self, key: &ListKey) -> bool {
        let newest = match key.printed {
            None => self.info.reader.snapshot(),
            Some(_) => None,
        };
        newest.is_some_and(|newest| {
            newest.epoch() == key.epoch
                && newest.newest_change() == self.info.newest_change
                && newest.len() == key.objects
        })
    }
}
