//! GroupIndex: finds the groups that a change may affect.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cache::groups::condition::Condition;
use crate::cache::groups::group::Group;
use crate::cache::groups::group_set::GroupSet;
use crate::cache::log::Event;
use crate::mutation;
use crate::mutation::Mutation;

type GroupsByValue = HashMap<Box<str>, GroupSet>;

#[derive(Default)]
pub(super) struct GroupIndex {
    by_key: GroupsByValue,
    by_name: GroupsByValue,
    by_namespace: GroupsByValue,
    /// By the position of the selectable field, then by its value.
    by_field: HashMap<usize, GroupsByValue>,
    by_label: HashMap<Box<str>, GroupsByValue>,
    /// Groups with a selection that has no condition for the index. They are
    /// checked for each change.
    unindexed: GroupSet,
}

/// Maximum units of the groups of one entry, beyond which further groups count as unindexed. The
/// changes of one namespace, for example, are tested against all groups of its entry.
const MAX_ENTRY_UNITS: usize = 256;

/// The place of a group in the index.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) indexed_by: IndexedBy,
    /// True if the group needs a part of
    /// [`GroupLimits::unindexed`](crate::cache::GroupLimits::unindexed), because many changes are
    /// tested against it.
    pub(super) is_limited: bool,
}

/// The entries of the index under which a group is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IndexedBy {
    /// The group has an entry for each of these conditions, and each object of its selection meets
    /// at least one. If the set is empty, the selection selects nothing.
    AnyOf(Vec<Condition>),
    /// The group is in `unindexed` and is checked for each change.
    Nothing,
}

// === impl GroupIndex ===

impl GroupIndex {
    /// Calls `visit` for each group that may need `event`, perhaps twice for some groups. Looks up
    /// both the object before the change and the object after it. Guarded by
    /// `model_needs_groups_found_by_the_previous_object`.
    pub(super) fn find(&self, event: &Event, mut visit: impl FnMut(&Arc<Group>)) {
        let mut visit = |groups: Option<&GroupSet>| {
            if let Some(groups) = groups {
                groups.for_each(&mut visit);
            }
        };
        let (object, key) = (&event.object, &event.object.key);
        let previous = event.previous.as_ref();
        let previous = previous.filter(|_| !mutation::is_active(Mutation::OldObjectNotIndexed));
        visit(self.by_key.get(key.as_str()));
        if !self.by_name.is_empty() {
            visit(self.by_name.get(key.name()));
        }
        if !self.by_namespace.is_empty() {
            visit(self.by_namespace.get(key.namespace()));
        }
        for (position, groups) in &self.by_field {
            let value = object.field(*position);
            visit(groups.get(value));
            let before = previous.map(|previous| previous.field(*position));
            if let Some(before) = before.filter(|before| *before != value) {
                visit(groups.get(before));
            }
        }
        if !self.by_label.is_empty() {
            let groups = |(label, value): (&str, &str)| self.by_label.get(label)?.get(value);
            for label in object.labels() {
                visit(groups(label));
            }
            let before = previous.into_iter().flat_map(|previous| previous.labels());
            for label in before.filter(|(label, value)| object.label(label) != Some(value)) {
                visit(groups(label));
            }
        }
        visit(Some(&self.unindexed));
    }

    /// Returns the place for a group of `units`: that of the set of conditions with the fewest
    /// groups so far.
    pub(super) fn place_for(&self, sets: &[Vec<Condition>], units: usize) -> Place {
        let load = |set: &&Vec<Condition>| {
            let entries = set.iter().map(|condition| self.units_of(condition));
            let (most, total) = entries.fold((0, 0), |(most, total), units| {
                (usize::max(most, units), total + units)
            });
            (most + units > MAX_ENTRY_UNITS, total)
        };
        let least = sets
            .iter()
            .map(|set| (load(&set), set))
            .min_by_key(|(load, _)| *load);
        match least {
            None => Place {
                indexed_by: IndexedBy::Nothing,
                is_limited: true,
            },
            Some(((is_limited, _), set)) => Place {
                indexed_by: IndexedBy::AnyOf(set.clone()),
                is_limited,
            },
        }
    }

    /// Adds `group` under `indexed_by`, which is the result of [`GroupIndex::place_for`].
    pub(super) fn insert(&mut self, group: &Arc<Group>, indexed_by: &IndexedBy) {
        match indexed_by {
            IndexedBy::Nothing => self.unindexed.insert(group),
            IndexedBy::AnyOf(conditions) => {
                for condition in conditions {
                    let (groups, value) = self.by_value_mut(condition);
                    groups.entry(value.into()).or_default().insert(group);
                }
            }
        }
    }

    pub(super) fn remove(&mut self, group: &Arc<Group>, indexed_by: &IndexedBy) {
        match indexed_by {
            IndexedBy::Nothing => self.unindexed.remove(group),
            IndexedBy::AnyOf(conditions) => {
                for condition in conditions {
                    self.remove_by(condition, group);
                }
            }
        }
    }

    fn remove_by(&mut self, condition: &Condition, group: &Arc<Group>) {
        let (by_value, value) = self.by_value_mut(condition);
        let Some(groups) = by_value.get_mut(value) else {
            return;
        };
        groups.remove(group);
        if groups.is_empty() {
            by_value.remove(value);
        }
        match condition {
            Condition::Field(position, _) => {
                let is_empty = self.by_field.get(position).is_some_and(HashMap::is_empty);
                is_empty.then(|| self.by_field.remove(position));
            }
            Condition::Label(label, _) => {
                let is_empty = self.by_label.get(label).is_some_and(HashMap::is_empty);
                is_empty.then(|| self.by_label.remove(label));
            }
            Condition::Key(_) | Condition::Name(_) | Condition::Namespace(_) => {}
        }
    }

    fn units_of(&self, condition: &Condition) -> usize {
        let groups = match condition {
            Condition::Key(key) => self.by_key.get(key),
            Condition::Name(name) => self.by_name.get(name),
            Condition::Field(position, value) => {
                let by_value = self.by_field.get(position);
                by_value.and_then(|groups| groups.get(value))
            }
            Condition::Label(label, value) => {
                let by_value = self.by_label.get(label);
                by_value.and_then(|groups| groups.get(value))
            }
            Condition::Namespace(namespace) => self.by_namespace.get(namespace),
        };
        groups.map_or(0, GroupSet::units)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let Self {
            by_key,
            by_name,
            by_namespace,
            by_field,
            by_label,
            unindexed,
        } = self;
        let is_empty = by_key.is_empty() && by_name.is_empty() && by_namespace.is_empty();
        is_empty && by_field.is_empty() && by_label.is_empty() && unindexed.is_empty()
    }

    fn by_value_mut<'a>(&mut self, condition: &'a Condition) -> (&mut GroupsByValue, &'a str) {
        match condition {
            Condition::Key(key) => (&mut self.by_key, key),
            Condition::Name(name) => (&mut self.by_name, name),
            Condition::Field(position, value) => {
                (self.by_field.entry(*position).or_default(), value)
            }
            Condition::Label(label, value) => {
                (self.by_label.entry(label.clone()).or_default(), value)
            }
            Condition::Namespace(namespace) => (&mut self.by_namespace, namespace),
        }
    }
}
