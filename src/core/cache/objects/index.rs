//! Indexer: finds the objects with a given field or label value without a scan of all objects.
//!
//! Namespaces have no index, because the objects of a namespace are a range of keys.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::api::{Field, LabelOperator, Object, ObjectKey, Selection};
use crate::cache::config::Config;
use crate::cache::objects::key_range::{KeyRange, Objects};

/// The indexes of a store, one per index function. A clone shares all entries with the original.
#[derive(Clone, Debug)]
pub(super) struct Indexer {
    indexes: Vec<(IndexFunction, Index)>,
    /// True if values that become common or rare are left to [`Indexer::settle`].
    is_deferred: bool,
}

/// Maps the values of one field or label to the keys of the objects. It holds only hashes of the
/// values. Two values with one hash are harmless, because callers check each object anyway.
#[derive(Clone, Debug, Default)]
struct Index {
    /// One entry for each object, except objects with a common value.
    entries: OrdSet<Entry>,
    /// The number of objects for each value that at least `MIN_COUNTED` objects have. A count stays
    /// until far fewer objects have the value.
    counts: OrdMap<ValueHash, ValueCount>,
    /// Values that became common and still have entries, which [`Indexer::settle`] removes.
    surplus: Vec<ValueHash>,
}

/// A walk over all objects that adds entries for a value, up to the last key that was examined.
#[derive(Debug)]
pub(in crate::cache) struct IndexScan {
    index: usize,
    value: ValueHash,
    examined: Option<ObjectKey>,
}

/// The hash of a value, which is stored in place of the value.
type ValueHash = u64;

#[derive(Clone, Copy, Debug, Default)]
struct ValueCount {
    count: usize,
    /// True if a scan finds objects with this value as fast. A common value has no entries.
    is_common: bool,
}

/// From this number of objects on, the count of a value is stored, not derived from entries.
const MIN_COUNTED: usize = 16;
/// The smallest number of objects that makes a value common.
const MIN_COMMON: usize = 256;
/// A value becomes common when more than one in this number of objects has it.
const COMMON_DIVISOR: usize = 8;
/// A common value becomes rare when fewer than one in this number of objects has it.
const RARE_DIVISOR: usize = 32;

/// Extracts from an object the value under which an index lists the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IndexFunction {
    /// The selectable field at this position. All objects have a value, which may be empty.
    Field(usize),
    /// The label with this name. Objects without the label are not in the index.
    Label(Arc<str>),
}

/// An object key under the hash of a value. Entries are sorted by hash, then by key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    value: ValueHash,
    key: ObjectKey,
}

/// The keys that one index has for one value.
pub(super) struct Candidates<'a> {
    entries: &'a OrdSet<Entry>,
    value: ValueHash,
}

// === impl Indexer ===

impl Indexer {
    pub(super) fn new(config: &Config) -> Self {
        let fields = (0..config.field_count).map(IndexFunction::Field);
        let labels = config.indexed_labels.iter();
        let labels = labels.map(|label| IndexFunction::Label(label.as_str().into()));
        let indexes = fields.chain(labels);
        Self {
            indexes: indexes
                .map(|function| (function, Index::default()))
                .collect(),
            is_deferred: false,
        }
    }

    /// Defers the work for values that become common or rare, from now on, to [`Indexer::settle`].
    pub(super) fn defer(&mut self) {
        self.is_deferred = true;
    }

    /// Drops or adds entries of values that have become common or rare, after an examination of up
    /// to `max` of them. Returns false if nothing is left to do. Call it again with the same
    /// `scan`, which is `None` at first, and change nothing in between.
    pub(super) fn settle(
        &mut self,
        objects: &Objects,
        scan: &mut Option<IndexScan>,
        max: usize,
    ) -> bool {
        for (_, index) in &mut self.indexes {
            if let Some(value) = index.surplus.last().copied() {
                if index.drop_entries(value, max) < max {
                    index.surplus.pop();
                }
                return true;
            }
        }
        if scan.is_none() {
            *scan = self.next_scan(objects.len());
        }
        let Some(at) = scan else {
            self.is_deferred = false;
            return false;
        };
        let (function, index) = &mut self.indexes[at.index];
        let from = at.examined.as_ref().map(ObjectKey::as_str);
        let from = from.map_or(Bound::Unbounded, Bound::Excluded);
        let mut next = objects.range::<_, str>((from, Bound::Unbounded)).take(max);
        let last = next.by_ref().fold(None, |_, (key, object)| {
            if function.value_of(object).map(hash) == Some(at.value) {
                index.entries.insert(Entry::new(at.value, key));
            }
            Some(key.clone())
        });
        if last.is_some() {
            at.examined = last;
        } else {
            index.end_scan(at.value);
            *scan = None;
        }
        true
    }

    /// Returns the scan for a common value that too few of `objects` objects have.
    fn next_scan(&self, objects: usize) -> Option<IndexScan> {
        self.indexes
            .iter()
            .enumerate()
            .find_map(|(index, (_, of))| {
                let is_rare = |(_, value_count): &(&ValueHash, &ValueCount)| {
                    value_count.is_common
                        && (value_count.count == 0 || value_count.count < objects / RARE_DIVISOR)
                };
                let (value, _) = of.counts.iter().find(is_rare)?;
                Some(IndexScan {
                    index,
                    value: *value,
                    examined: None,
                })
            })
    }

    /// Returns true if [`Indexer::update`] has nothing to do when `object` replaces `previous`.
    pub(super) fn indexes_alike(&self, previous: &Object, object: &Object) -> bool {
        let functions = || self.indexes.iter().map(|(function, _)| function);
        let fields = functions().filter(|function| matches!(function, IndexFunction::Field(_)));
        let mut labels = functions().filter_map(IndexFunction::label);
        previous.has_same_fields(object, fields.count())
            && labels.all(|label| previous.label(label) == object.label(label))
    }

    /// Moves a key to the entries of `object`'s values. `objects` is the store after the change.
    pub(super) fn update(
        &mut self,
        previous: Option<&Object>,
        object: Option<&Object>,
        objects: &Objects,
    ) {
        let is_deferred = self.is_deferred;
        for (function, index) in &mut self.indexes {
            let before = previous.and_then(|previous| function.value_of(previous));
            let after = object.and_then(|object| function.value_of(object));
            if before == after {
                continue;
            }
            if let (Some(previous), Some(value)) = (previous, before) {
                let value = hash(value);
                index.remove(value, &previous.key, is_deferred);
                if !is_deferred {
                    index.index_if_rare(value, function, objects);
                }
            }
            if let (Some(object), Some(value)) = (object, after) {
                index.insert(hash(value), &object.key, objects.len(), is_deferred);
            }
            // A value can become rare because the store has grown. Check this only when the size
            // reaches a power of two, because it scans all objects.
            if !is_deferred && previous.is_none() && objects.len().is_power_of_two() {
                index.index_all_rare(function, objects);
            }
        }
    }

    /// Returns the candidates of each index that can narrow down `selection`.
    pub(super) fn candidates<'a>(&'a self, selection: &Selection) -> Vec<Candidates<'a>> {
        let required = |(function, index): &'a (IndexFunction, Index)| {
            let value = hash(function.required_by(selection)?);
            let value_count = index.counts.get(&value);
            let is_common = value_count.is_some_and(|value_count| value_count.is_common);
            (!is_common).then_some(Candidates {
                entries: &index.entries,
                value,
            })
        };
        self.indexes.iter().filter_map(required).collect()
    }

    /// Returns true if one of the indexes is of a value that `selection` requires, rare or common.
    pub(super) fn finds(&self, selection: &Selection) -> bool {
        let mut functions = self.indexes.iter().map(|(function, _)| function);
        functions.any(|function| function.required_by(selection).is_some())
    }
}

// === impl Index ===

impl Index {
    fn insert(&mut self, value: ValueHash, key: &ObjectKey, objects: usize, is_deferred: bool) {
        let Some(value_count) = self.counts.get_mut(&value) else {
            self.entries.insert(Entry::new(value, key));
            let count = self.keys_with(value).take(MIN_COUNTED).count();
            if count == MIN_COUNTED {
                let is_common = false;
                self.counts.insert(value, ValueCount { count, is_common });
            }
            return;
        };
        value_count.count += 1;
        if value_count.is_common {
            return;
        }
        value_count.is_common =
            value_count.count >= MIN_COMMON && value_count.count > objects / COMMON_DIVISOR;
        if value_count.is_common && is_deferred {
            self.surplus.push(value);
        } else if value_count.is_common {
            self.drop_entries(value, usize::MAX);
        } else {
            self.entries.insert(Entry::new(value, key));
        }
    }

    fn remove(&mut self, value: ValueHash, key: &ObjectKey, is_deferred: bool) {
        let Some(value_count) = self.counts.get_mut(&value) else {
            self.entries.remove(&Entry::new(value, key));
            return;
        };
        value_count.count -= 1;
        let ValueCount { count, is_common } = *value_count;
        if !is_common {
            self.entries.remove(&Entry::new(value, key));
        }
        // Drop the count only far below the limit, or it would be recomputed often near the limit.
        // A common value that still has entries must keep its count.
        let is_unused = count == 0 && !(is_common && is_deferred);
        if is_unused || (!is_common && count < MIN_COUNTED / 2) {
            self.counts.remove(&value);
        }
    }

    fn keys_with(&self, value: ValueHash) -> impl Iterator<Item = &ObjectKey> {
        let entries = &self.entries;
        Candidates { entries, value }.keys(&KeyRange::all())
    }

    /// Drops up to `max` entries of `value`, and returns how many it has dropped.
    fn drop_entries(&mut self, value: ValueHash, max: usize) -> usize {
        let keys: Vec<_> = self.keys_with(value).take(max).cloned().collect();
        let dropped = keys.len();
        for key in keys {
            self.entries.remove(&Entry { value, key });
        }
        dropped
    }

    /// Makes a value rare, after all entries were added.
    fn end_scan(&mut self, value: ValueHash) {
        if let Some(value_count) = self.counts.get_mut(&value) {
            value_count.is_common = false;
            if value_count.count < MIN_COUNTED / 2 {
                self.counts.remove(&value);
            }
        }
    }

    fn index_all_rare(&mut self, function: &IndexFunction, objects: &Objects) {
        let value_counts = self.counts.iter();
        let common = value_counts.filter(|(_, value_count)| value_count.is_common);
        let common: Vec<_> = common.map(|(value, _)| *value).collect();
        for value in common {
            self.index_if_rare(value, function, objects);
        }
    }

    /// Adds entries for the objects with `value`, if `value` is no longer common.
    fn index_if_rare(&mut self, value: ValueHash, function: &IndexFunction, objects: &Objects) {
        let Some(ValueCount { count, is_common }) = self.counts.get(&value).copied() else {
            return;
        };
        if !is_common || count >= objects.len() / RARE_DIVISOR {
            return;
        }
        let is_common = false;
        self.counts.insert(value, ValueCount { count, is_common });
        let has_value = |object: &&Arc<Object>| function.value_of(object).map(hash) == Some(value);
        for object in objects.values().filter(has_value) {
            self.entries.insert(Entry::new(value, &object.key));
        }
    }
}

fn hash(value: &str) -> ValueHash {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

// === impl IndexFunction ===

impl IndexFunction {
    /// Returns the name of the label, or `None` if the function is of a field.
    fn label(&self) -> Option<&str> {
        match self {
            Self::Field(_) => None,
            Self::Label(label) => Some(label),
        }
    }

    fn value_of<'a>(&self, object: &'a Object) -> Option<&'a str> {
        match self {
            Self::Field(position) => Some(object.field(*position)),
            Self::Label(label) => object.label(label),
        }
    }

    /// Returns the value that `selection` requires for this field or label, if it
    /// requires exactly one.
    fn required_by<'a>(&self, selection: &'a Selection) -> Option<&'a str> {
        match self {
            Self::Field(position) => selection.fields.required(Field::Value(*position)),
            Self::Label(label) => {
                let requirements = selection.labels.requirements.iter();
                let mut own = requirements.filter(|requirement| *requirement.key == **label);
                own.find_map(|requirement| match &requirement.operator {
                    LabelOperator::In(values) if values.len() == 1 => Some(values[0].as_str()),
                    _ => None,
                })
            }
        }
    }
}

// === impl Entry ===

impl Entry {
    fn new(value: ValueHash, key: &ObjectKey) -> Self {
        let key = key.clone();
        Self { value, key }
    }
}

// === impl Candidates ===

impl<'a> Candidates<'a> {
    /// Returns the keys that are within `range`, in key order.
    pub(super) fn keys(
        &self,
        range: &KeyRange,
    ) -> impl Iterator<Item = &'a ObjectKey> + Send + use<'a> {
        let entry = |key: &str| Entry::new(self.value, &ObjectKey::new(None, key));
        let from = match &range.from {
            Bound::Unbounded => Bound::Included(entry("")),
            bound => bound.as_ref().map(|key| entry(key)),
        };
        let (value, to) = (self.value, range.to.clone());
        let is_below = move |key: &ObjectKey| to.as_deref().is_none_or(|to| key.as_str() < to);
        self.entries
            .range((from, Bound::Unbounded))
            .take_while(move |entry| entry.value == value && is_below(&entry.key))
            .map(|entry| &entry.key)
    }
}
