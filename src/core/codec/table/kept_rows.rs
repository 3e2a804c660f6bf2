//! The rows of the objects of one cache, printed once for each version of an object.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::printed_row::PrintedRow;
use crate::api::{Object, ObjectKey, ResourceVersion};

/// Estimated bytes of an entry besides the row: key, version, pointers and reference counts.
const ENTRY_BYTES: usize = 112;

/// The memory for the rows of all caches. Rows that do not fit are printed each time.
#[derive(Debug)]
pub struct RowMemory {
    used: AtomicUsize,
    limit: usize,
}

/// The printed rows of one cache, of one epoch, by one printer.
///
/// In an epoch, the key and the version of an object determine its bytes. A row also has the
/// address of its object's bytes, so that even an object of another epoch gets no wrong row.
///
/// The rows are in slices, each with its own lock, so that cleaning delays readers only briefly.
pub struct KeptRows {
    slices: [Mutex<HashMap<ObjectKey, KeptRow>>; KeptRows::SLICES],
    memory: Arc<RowMemory>,
}

struct KeptRow {
    printed_from: Identity,
    row: Arc<PrintedRow>,
}

/// The properties that distinguish an object from all other objects with its key.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    resource_version: ResourceVersion,
    address: usize,
    length: usize,
}

impl RowMemory {
    /// Creates the memory for at most `limit` bytes of rows.
    pub fn new(limit: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            limit,
        }
    }

    /// Returns the number of bytes of all rows.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let take = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.limit);
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_ok()
    }

    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl KeptRows {
    /// The number of slices.
    pub const SLICES: usize = 32;

    /// Creates an empty store, which allocates its rows from `memory`.
    pub fn new(memory: Arc<RowMemory>) -> Self {
        Self {
            slices: Default::default(),
            memory,
        }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.slices.iter().map(|rows| rows.lock().len()).sum()
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the rows of one slice that `is_current` returns false for.
    ///
    /// # Panics
    ///
    /// If `slice` is not less than [`KeptRows::SLICES`].
    pub fn retain_in(
        &self,
        slice: usize,
        is_current: impl Fn(&ObjectKey, ResourceVersion) -> bool,
    ) {
        let mut rows = self.slices[slice].lock();
        let is_old = |key: &ObjectKey, kept: &mut KeptRow| {
            !is_current(key, kept.printed_from.resource_version)
        };
        let removed: Vec<_> = rows.extract_if(is_old).collect();
        rows.shrink_to_fit();
        // The rows are freed after the lock is released.
        drop(rows);
        let bytes = removed.iter().map(|(_, kept)| kept.size()).sum();
        self.memory.release(bytes);
    }

    /// Returns the slice that has the row of `key`.
    fn slice(&self, key: &ObjectKey) -> &Mutex<HashMap<ObjectKey, KeptRow>> {
        // A cheap hash is enough: names differ at their end, and slices of unequal size only make
        // cleaning less smooth.
        let end = key.as_str().bytes().rev().take(8);
        let hash = end.fold(0_usize, |hash, byte| {
            hash.wrapping_mul(31).wrapping_add(byte.into())
        });
        &self.slices[hash % Self::SLICES]
    }

    pub(super) fn get(&self, object: &Object) -> Option<Arc<PrintedRow>> {
        let rows = self.slice(&object.key).lock();
        let kept = rows.get(&object.key)?;
        (kept.printed_from == Identity::of(object)).then(|| Arc::clone(&kept.row))
    }

    /// Stores the row of `object` in place of a row of an older version, if there is memory for it.
    pub(super) fn keep(&self, object: &Object, row: &Arc<PrintedRow>) {
        let kept = KeptRow {
            printed_from: Identity::of(object),
            row: Arc::clone(row),
        };
        let mut rows = self.slice(&object.key).lock();
        if let Some(known) = rows.get(&object.key)
            && known.printed_from.resource_version > object.resource_version
        {
            // A watch may print objects that have changed since.
            return;
        }
        if let Some(old) = rows.remove(&object.key) {
            self.memory.release(old.size());
        }
        if self.memory.take(kept.size()) {
            rows.insert(object.key.clone(), kept);
        }
    }
}

impl Drop for KeptRows {
    fn drop(&mut self) {
        let rows = self.slices.iter_mut().map(Mutex::get_mut);
        let bytes = rows.flat_map(|rows| rows.values()).map(KeptRow::size);
        self.memory.release(bytes.sum());
    }
}

impl fmt::Debug for KeptRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptRows")
            .field("rows", &self.len())
            .finish_non_exhaustive()
    }
}

impl KeptRow {
    fn size(&self) -> usize {
        ENTRY_BYTES + self.row.size()
    }
}

impl Identity {
    fn of(object: &Object) -> Self {
        Self {
            resource_version: object.resource_version,
            address: object.body.as_ptr().addr(),
            length: object.body.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ObjectValues;

    fn object(name: &str, version: u64) -> Object {
        let key = ObjectKey::new(None, name);
        let body = format!("\"metadata\":{{\"name\":\"{name}\"}}}}");
        let values = ObjectValues::default();
        Object::new(key, ResourceVersion(version), &values, body.into())
    }

    fn row(name: &str) -> Arc<PrintedRow> {
        Arc::new(PrintedRow::new(vec![name.into()], "", None))
    }

    fn has(rows: &KeptRows, object: &Object) -> bool {
        rows.get(object).is_some()
    }

    #[test]
    fn a_row_is_that_of_exactly_one_version_of_an_object() {
        let memory = Arc::new(RowMemory::new(1 << 20));
        let rows = KeptRows::new(Arc::clone(&memory));
        let (first, second) = (object("a", 1), object("a", 2));
        assert!(!has(&rows, &first));
        rows.keep(&first, &row("first"));
        assert_eq!(rows.get(&first), Some(row("first")));
        assert!(has(&rows, &first.clone()) && !has(&rows, &second));
        // An object of this version with other bytes.
        assert!(!has(&rows, &object("a", 1)));
        rows.keep(&second, &row("second"));
        rows.keep(&first, &row("first"));
        assert!(has(&rows, &second) && !has(&rows, &first));
        let one = memory.used();
        rows.keep(&object("b", 3), &row("third"));
        assert!(memory.used() > one);
        for slice in 0..KeptRows::SLICES {
            rows.retain_in(slice, |key, version| {
                // Only this slice waits.
                let locked = rows.slices.iter().filter(|slice| slice.is_locked());
                assert_eq!(locked.count(), 1);
                key.as_str() == "a" && version == ResourceVersion(2)
            });
        }
        assert_eq!((rows.len(), memory.used()), (1, one));
        drop(rows);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn rows_without_memory_are_not_kept() {
        let memory = Arc::new(RowMemory::new(300));
        let (some, others) = (
            KeptRows::new(Arc::clone(&memory)),
            KeptRows::new(Arc::clone(&memory)),
        );
        some.keep(&object("a", 1), &row("a"));
        let used = memory.used();
        assert!((1..=300).contains(&used), "{used}");
        let long = "long".repeat(50);
        others.keep(&object("a", 1), &row(&long));
        assert_eq!((others.len(), memory.used()), (0, used));
        // A row that does not fit does not leave the old one behind.
        some.keep(&object("a", 2), &row(&long));
        assert_eq!((some.len(), memory.used()), (0, 0));
    }
}
