//! Indexer: finds objects by the value of a field or label without looking at all of them.
//!
//! The namespace needs no index: it is a range of keys.

use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::OrdSet;

use crate::api::Field;
use crate::api::LabelOperator;
use crate::api::Object;
use crate::api::ObjectKey;
use crate::api::Selection;
use crate::cache::config::Config;
use crate::cache::objects::key_range::KeyRange;
use crate::cache::objects::key_range::Objects;

/// One persistent index per index function; a clone shares all entries.
#[derive(Clone, Debug)]
pub(super) struct Indexer {
    indexes: Vec<(IndexFunction, Index)>,
}

/// Which objects have which value. Values are told apart by their hashes: who asks looks at the
/// objects anyway.
#[derive(Clone, Debug, Default)]
struct Index {
    /// Of all but common values.
    entries: OrdSet<Entry>,
    /// Of the values that `MIN_COUNTED` objects have, or had and still not many fewer.
    counts: OrdMap<ValueHash, ValueCount>,
}

/// A short stand-in for a value, which need not be kept then.
type ValueHash = u64;

/// How many objects have a value.
#[derive(Clone, Copy, Debug, Default)]
struct ValueCount {
    count: usize,
    /// So many that a scan finds them as fast, and entries would only take memory.
    is_common: bool,
}

/// Who has a value that fewer objects have is counted by its entries.
const MIN_COUNTED: usize = 16;
/// A value that fewer objects have is not common.
const MIN_COMMON: usize = 256;
/// A value becomes common when one object in so many has it.
const COMMON_DIVISOR: usize = 8;
/// A value is no longer common when only one object in so many has it.
const RARE_DIVISOR: usize = 32;

/// Tells the value under which an object is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IndexFunction {
    /// The selectable field at this position; all objects have a value.
    Field(usize),
    /// The label of this name; objects without it are not in the index.
    Label(Arc<str>),
}

/// Entries of one value stand together, in key order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    value: ValueHash,
    key: ObjectKey,
}

/// Keys that one index gives for one value.
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
        }
    }

    /// Moves a key from where `previous` had it to where `object` has it.
    pub(super) fn update(
        &mut self,
        previous: Option<&Object>,
        object: Option<&Object>,
        objects: &Objects,
    ) {
        for (function, index) in &mut self.indexes {
            let before = previous.and_then(|previous| function.value_of(previous));
            let after = object.and_then(|object| function.value_of(object));
            if before == after {
                continue;
            }
            if let (Some(previous), Some(value)) = (previous, before) {
                let value = hash(value);
                index.remove(value, &previous.key);
                index.index_if_rare(value, function, objects);
            }
            if let (Some(object), Some(value)) = (object, after) {
                index.insert(hash(value), &object.key, objects.len());
            }
            // What many had among few may be rare among many.
            if previous.is_none() && objects.len().is_power_of_two() {
                index.index_all_rare(function, objects);
            }
        }
    }

    /// What each usable index gives for `selection`.
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
}

// === impl Index ===

impl Index {
    fn insert(&mut self, value: ValueHash, key: &ObjectKey, objects: usize) {
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
        if value_count.is_common {
            self.drop_entries(value);
        } else {
            self.entries.insert(Entry::new(value, key));
        }
    }

    fn remove(&mut self, value: ValueHash, key: &ObjectKey) {
        let Some(value_count) = self.counts.get_mut(&value) else {
            self.entries.remove(&Entry::new(value, key));
            return;
        };
        value_count.count -= 1;
        let ValueCount { count, is_common } = *value_count;
        if !is_common {
            self.entries.remove(&Entry::new(value, key));
        }
        // Half of it, so that a count to and fro is not begun anew each time.
        if count == 0 || (!is_common && count < MIN_COUNTED / 2) {
            self.counts.remove(&value);
        }
    }

    fn keys_with(&self, value: ValueHash) -> impl Iterator<Item = &ObjectKey> {
        let entries = &self.entries;
        Candidates { entries, value }.keys(&KeyRange::all())
    }

    fn drop_entries(&mut self, value: ValueHash) {
        let keys: Vec<_> = self.keys_with(value).cloned().collect();
        for key in keys {
            self.entries.remove(&Entry { value, key });
        }
    }

    /// Enters who has a value that is common no longer.
    fn index_all_rare(&mut self, function: &IndexFunction, objects: &Objects) {
        let value_counts = self.counts.iter();
        let common = value_counts.filter(|(_, value_count)| value_count.is_common);
        let common: Vec<_> = common.map(|(value, _)| *value).collect();
        for value in common {
            self.index_if_rare(value, function, objects);
        }
    }

    /// Enters who has `value`, when that is common no longer.
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
    fn value_of<'a>(&self, object: &'a Object) -> Option<&'a str> {
        match self {
            Self::Field(position) => Some(object.field(*position)),
            Self::Label(label) => object.label(label),
        }
    }

    /// The one value that all objects of `selection` have, if it says so.
    fn required_by<'a>(&self, selection: &'a Selection) -> Option<&'a str> {
        match self {
            Self::Field(position) => {
                let field = Field::Value(*position);
                let mut terms = selection.fields.terms.iter();
                let term = terms.find(|term| term.equal && term.field == field)?;
                Some(&term.value)
            }
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

    fn first(value: ValueHash) -> Self {
        Self::new(value, &ObjectKey::new(None, ""))
    }
}

// === impl Candidates ===

impl<'a> Candidates<'a> {
    /// The keys within `range`, in key order.
    pub(super) fn keys(
        &self,
        range: &KeyRange,
    ) -> impl Iterator<Item = &'a ObjectKey> + Send + use<'a> {
        let entry = |key: &String| Entry::new(self.value, &ObjectKey::new(None, key));
        let from = match &range.from {
            Bound::Unbounded => Bound::Included(Entry::first(self.value)),
            bound => bound.as_ref().map(entry),
        };
        let (value, to) = (self.value, range.to.clone());
        let is_below = move |key: &ObjectKey| to.as_deref().is_none_or(|to| key.as_str() < to);
        self.entries
            .range((from, Bound::Unbounded))
            .take_while(move |entry| entry.value == value && is_below(&entry.key))
            .map(|entry| &entry.key)
    }
}
