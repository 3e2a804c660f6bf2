//! Making: equal requests for a list wait for the one that makes it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::server::deliver::list_key::ListKey;

/// The lists that requests are making. Clones share them.
#[derive(Clone, Default)]
pub(super) struct MakingLists {
    lists: Arc<Mutex<HashMap<ListKey, Waiting>>>,
}

/// Held by the request that makes a list. Meanwhile this request waits for no other one. When this
/// is dropped, the requests that wait look for the list. If there is none, one of them makes it.
pub(crate) struct Making {
    lists: MakingLists,
    key: ListKey,
    unshared: watch::Sender<Option<Unshared>>,
}

/// Waits for the request that makes a list.
#[derive(Clone)]
pub(crate) struct Waiting(watch::Receiver<Option<Unshared>>);

/// Why the requests that waited for a list can't share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unshared {
    /// The list is short, or there is no memory for it. Each request makes its own.
    Alone,
    /// The list can't be made.
    Failed,
}

impl MakingLists {
    /// Begins to make the list of `key`.
    ///
    /// # Errors
    ///
    /// If another request makes the list: what waits for it.
    pub(super) fn begin(&self, key: &ListKey) -> Result<Making, Waiting> {
        let mut lists = self.lists.lock();
        if let Some(waiting) = lists.get(key) {
            return Err(waiting.clone());
        }
        let (unshared, waiting) = watch::channel(None);
        lists.insert(key.clone(), Waiting(waiting));
        Ok(Making {
            lists: self.clone(),
            key: key.clone(),
            unshared,
        })
    }
}

impl Making {
    /// Returns the key of the list.
    pub(super) fn key(&self) -> &ListKey {
        &self.key
    }

    /// Ends the waits of equal requests with `why`.
    pub(crate) fn end(self, why: Unshared) {
        self.unshared.send_replace(Some(why));
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        // This comes before the end of the sender, so those that it wakes find no entry.
        self.lists.lists.lock().remove(&self.key);
    }
}

impl Waiting {
    /// Waits until the request that makes the list has ended. Returns `None` if the list may be in
    /// the cache now. Cancel safe.
    pub(crate) async fn end(mut self) -> Option<Unshared> {
        let unshared = self.0.wait_for(Option::is_some).await;
        unshared.ok().and_then(|unshared| *unshared)
    }
}
