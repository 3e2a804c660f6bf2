//! Indexer: finds objects by the value of a field or label without looking at all of them.
//!
//! The namespace needs no index: it is a range of keys.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;

use crate::api::Field;
use crate::api::LabelOperator;
use crate::api::Object;
use crate::api::ObjectKey;
use crate::api::Selection;
use crate::cache::Config;
use crate::cache::store::KeyRange;

/// One persistent index per index function; a clone shares all entries.
#[derive(Clone, Debug)]
pub(super) struct Indexer {
    indexes: Vec<(IndexFunction, OrdSet<Entry>)>,
}

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
    value: Arc<str>,
    key: ObjectKey,
}

/// Keys that one index gives for one value.
pub(super) struct Candidates<'a> {
    index: &'a OrdSet<Entry>,
    value: Arc<str>,
}

// === impl Indexer ===

impl Indexer {
    pub(super) fn new(config: &Config) -> Self {
        let fields = (0..config.field_count).map(IndexFunction::Field);
        let labels = config.indexed_labels.iter();
        let labels = labels.map(|label| IndexFunction::Label(label.as_str().into()));
        let indexes = fields.chain(labels);
        Self {
            indexes: indexes.map(|function| (function, OrdSet::new())).collect(),
        }
    }

    /// Moves a key from where `previous` had it to where `object` has it.
    pub(super) fn update(&mut self, previous: Option<&Object>, object: Option<&Object>) {
        for (function, index) in &mut self.indexes {
            let before = previous.and_then(|previous| function.value_of(previous));
            let after = object.and_then(|object| function.value_of(object));
            if before == after {
                continue;
            }
            if let (Some(previous), Some(value)) = (previous, before) {
                index.remove(&Entry::new(value.into(), &previous.key));
            }
            if let (Some(object), Some(value)) = (object, after) {
                let value = shared_value(index, value);
                index.insert(Entry::new(value, &object.key));
            }
        }
    }

    /// What each usable index gives for `selection`.
    pub(super) fn candidates<'a>(&'a self, selection: &Selection) -> Vec<Candidates<'a>> {
        let demanded = |(function, index): &'a (IndexFunction, OrdSet<Entry>)| {
            let value = function.demanded_by(selection)?.into();
            Some(Candidates { index, value })
        };
        self.indexes.iter().filter_map(demanded).collect()
    }
}

/// `value`, as an entry of the same value already holds it, so that equal values share memory.
fn shared_value(index: &OrdSet<Entry>, value: &str) -> Arc<str> {
    let first = Entry::first(value.into());
    match index.get_next(&first) {
        Some(entry) if *entry.value == *value => entry.value.clone(),
        _ => first.value,
    }
}

// === impl IndexFunction ===

impl IndexFunction {
    fn value_of<'a>(&self, object: &'a Object) -> Option<&'a str> {
        match self {
            Self::Field(position) => Some(object.fields.get(*position).map_or("", |value| value)),
            Self::Label(label) => object.label(label),
        }
    }

    /// The one value that all objects of `selection` have, if it says so.
    fn demanded_by<'a>(&self, selection: &'a Selection) -> Option<&'a str> {
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
    fn new(value: Arc<str>, key: &ObjectKey) -> Self {
        let key = key.clone();
        Self { value, key }
    }

    fn first(value: Arc<str>) -> Self {
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
        let entry = |key: &String| Entry::new(self.value.clone(), &ObjectKey::new(None, key));
        let from = match &range.from {
            Bound::Unbounded => Bound::Included(Entry::first(self.value.clone())),
            bound => bound.as_ref().map(entry),
        };
        let (value, to) = (self.value.clone(), range.to.clone());
        let is_below = move |key: &ObjectKey| to.as_deref().is_none_or(|to| key.as_str() < to);
        self.index
            .range((from, Bound::Unbounded))
            .take_while(move |entry| entry.value == value && is_below(&entry.key))
            .map(|entry| &entry.key)
    }
}
