//! GroupIndex: finds the groups that a change may affect.

use std::collections::HashMap;
use std::sync::Arc;

use crate::api::Field;
use crate::cache::groups::condition::Condition;
use crate::cache::groups::group::Group;
use crate::cache::groups::group_set::GroupSet;
use crate::cache::log::Event;
use crate::mutation;
use crate::mutation::Mutation;

type GroupsByValue = HashMap<Box<str>, GroupSet>;

#[derive(Default)]
pub(super) struct GroupIndex {
    pub(super) by_key: GroupsByValue,
    pub(super) by_field: HashMap<Field, GroupsByValue>,
    pub(super) by_label: HashMap<Box<str>, GroupsByValue>,
    /// Groups with a selection that has no condition for the index. They are
    /// checked for each change.
    pub(super) unindexed: GroupSet,
}

/// Maximum units of the groups of one entry, beyond which further groups count as unindexed. The
/// changes of one namespace, for example, are tested against all groups of its entry.
const MAX_ENTRY_UNITS: usize = 256;

/// The place of a group in the index.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The group has an entry for each of these conditions, and each object of its selection meets
    /// at least one. If there are none, the selection selects nothing. `None` if the group is in
    /// `unindexed` and is checked for each change.
    pub(super) conditions: Option<Vec<Condition>>,
    /// True if the group needs a part of
    /// [`GroupLimits::unindexed`](crate::cache::GroupLimits::unindexed), because many changes are
    /// tested against it.
    pub(super) is_limited: bool,
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
        for (field, groups) in &self.by_field {
            let value = field.value_of(object);
            visit(groups.get(value));
            let before = previous.map(|previous| field.value_of(previous));
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
        Place {
            is_limited: least.is_none_or(|((is_limited, _), _)| is_limited),
            conditions: least.map(|(_, set)| set.clone()),
        }
    }

    /// Adds `group` at `place`, which is the result of [`GroupIndex::place_for`].
    pub(super) fn insert(&mut self, group: &Arc<Group>, place: &Place) {
        let Some(conditions) = &place.conditions else {
            return self.unindexed.insert(group);
        };
        for condition in conditions {
            let (groups, value) = self.by_value_mut(condition);
            groups.entry(value.into()).or_default().insert(group);
        }
    }

    pub(super) fn remove(&mut self, group: &Arc<Group>, place: &Place) {
        let Some(conditions) = &place.conditions else {
            return self.unindexed.remove(group);
        };
        for condition in conditions {
            self.remove_by(condition, group);
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
        if by_value.is_empty() {
            match condition {
                Condition::Key(_) => {}
                Condition::Field(field, _) => drop(self.by_field.remove(field)),
                Condition::Label(label, _) => drop(self.by_label.remove(label)),
            }
        }
    }

    fn units_of(&self, condition: &Condition) -> usize {
        let (by_value, value) = match condition {
            Condition::Key(key) => (Some(&self.by_key), key),
            Condition::Field(field, value) => (self.by_field.get(field), value),
            Condition::Label(label, value) => (self.by_label.get(label), value),
        };
        let groups = by_value.and_then(|groups| groups.get(value));
        groups.map_or(0, GroupSet::units)
    }

    fn by_value_mut<'a>(&mut self, condition: &'a Condition) -> (&mut GroupsByValue, &'a str) {
        match condition {
            Condition::Key(key) => (&mut self.by_key, key),
            Condition::Field(field, value) => (self.by_field.entry(*field).or_default(), value),
            Condition::Label(label, value) => {
                (self.by_label.entry(label.clone()).or_default(), value)
            }
        }
    }
}
