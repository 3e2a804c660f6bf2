//! Relist: a new full list while it is received, and its difference from the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use crate::api::{Object, ObjectKey, ResourceVersion};
use crate::cache::objects::Store;
use crate::cache::stats::EpochCause;
use crate::cache::write::difference::Difference;
use crate::cache::write::pace::{COMPARED, Pace, STORED};
use crate::concurrency::CoopBudget;

/// A list that is being received, page by page or as the initial events of a watch-list.
///
/// It holds the bytes of the objects that differ from the store. For an object that is stored
/// already, it holds only a key and a handle.
pub struct Relist {
    base: Arc<Store>,
    items: HashMap<ObjectKey, Arc<Object>>,
    /// When this relist was started, which is before the list was sent.
    pub(super) began: Instant,
}

/// After settling the indexes for this number of objects, the relist may yield.
const SETTLED_AT_ONCE: usize = 256;

// === impl Relist ===

impl Relist {
    pub(super) fn new(base: Arc<Store>) -> Self {
        let items = HashMap::with_capacity(base.len());
        let began = Instant::now();
        Self { base, items, began }
    }

    /// Adds an object of the list, in any order, or replaces one that was added before.
    pub fn add(&mut self, object: Object) {
        self.insert(object, None);
    }

    /// Does what [`Relist::add`] does, for an object with a body that is a slice of `frame`. The
    /// body is copied if the copy takes less memory than the frame.
    pub fn add_from_frame(&mut self, object: Object, frame: &[u8]) {
        self.insert(object, Some(frame.len()));
    }

    fn insert(&mut self, mut object: Object, frame_len: Option<usize>) {
        let stored = self.base.get(object.key.as_str());
        if let Some(stored) = stored.filter(|stored| ***stored == object) {
            self.items.insert(stored.key.clone(), stored.clone());
            return;
        }
        let detached = frame_len.and_then(|frame_len| object.with_own_body(frame_len));
        object = detached.unwrap_or(object);
        if let Some(stored) = stored {
            object.key = stored.key.clone();
        }
        self.items.insert(object.key.clone(), Arc::new(object));
    }

    /// Removes an object that was deleted before the list was complete.
    pub fn remove(&mut self, key: &ObjectKey) {
        self.items.remove(key);
    }

    /// Returns the number of objects in the list so far.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns true if the list has no objects so far.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Fills the store `empty`, which determines the indexes, with the objects of the list.
    pub(super) async fn to_store(&self, mut empty: Store, pace: &mut Pace) -> Store {
        for object in self.items.values() {
            empty.insert(object.clone());
            pace.spend(STORED).await;
        }
        empty
    }

    /// Returns the difference between `before` and this list, which is complete at `list`. `before`
    /// is the state at `applied`, with the received changes of the open version `newest`; both are
    /// equal if no version is open. Cancel safe.
    ///
    /// # Errors
    ///
    /// Events cannot express the difference, so a new epoch must start. Guarded by
    /// `a_list_that_no_events_explain_starts_a_new_epoch`.
    pub(super) async fn difference(
        &self,
        before: &Store,
        (applied, newest): (ResourceVersion, ResourceVersion),
        list: ResourceVersion,
        pace: &mut Pace,
    ) -> Result<Difference, EpochCause> {
        if list < newest {
            return Err(EpochCause::WentBack);
        }
        let mut store = before.clone();
        store.defer_indexes();
        let mut deleted = Vec::new();
        for stored in before.objects() {
            let listed = self.items.get(&stored.key);
            if listed.is_none_or(|listed| listed.uid() != stored.uid()) {
                store.remove(&stored.key);
                deleted.push(stored.clone());
                pace.spend(STORED).await;
            }
            pace.spend(COMPARED).await;
        }
        // One resource version cannot have two different states.
        if list == applied && !deleted.is_empty() {
            return Err(EpochCause::WentBack);
        }
        let by_version = self.changes(&store, applied, list, pace).await?;
        let mut changed = Vec::with_capacity(by_version.len());
        for object in by_version.into_values() {
            let previous = store.insert(object.clone());
            changed.push((object.clone(), previous));
            pace.spend(STORED).await;
        }
        let mut scan = None;
        while store.settle_indexes(&mut scan, SETTLED_AT_ONCE) {
            pace.spend(CoopBudget::UNITS / 2).await;
        }
        Ok(Difference {
            store,
            deleted,
            changed,
        })
    }

    /// Returns the listed objects that differ from those in `store`, in the order of their
    /// versions.
    async fn changes(
        &self,
        store: &Store,
        applied: ResourceVersion,
        list: ResourceVersion,
        pace: &mut Pace,
    ) -> Result<BTreeMap<(ResourceVersion, usize), &Arc<Object>>, EpochCause> {
        // A map sorts a little with each object. To sort all of them at once takes too long.
        let mut by_version = BTreeMap::new();
        for (index, listed) in self.items.values().enumerate() {
            let stored = store.get(listed.key.as_str());
            if is_change(stored, listed, applied, list)? {
                by_version.insert((listed.resource_version, index), listed);
            }
            pace.spend(COMPARED).await;
        }
        Ok(by_version)
    }
}

/// Returns true if watches need an event that changes `stored` to `listed`. An
/// error if none can do so.
fn is_change(
    stored: Option<&Arc<Object>>,
    listed: &Arc<Object>,
    applied: ResourceVersion,
    list: ResourceVersion,
) -> Result<bool, EpochCause> {
    if let Some(stored) = stored {
        if Arc::ptr_eq(stored, listed) || stored == listed {
            return Ok(false);
        }
        if stored.resource_version == listed.resource_version {
            return Err(EpochCause::BytesDiffer);
        }
    }
    // The store has every change up to `applied`, and the list has no change after `list`. A
    // different object must therefore have a version between the two.
    if listed.resource_version <= applied || listed.resource_version > list {
        return Err(EpochCause::WentBack);
    }
    Ok(true)
}
