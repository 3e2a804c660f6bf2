//! Interest: which groups of streams a change concerns, without asking all of them.
//!
//! A group is found by one condition that all objects of its selection meet: a name, the value of a
//! field or label, a namespace. Of several the one is taken that fewest groups have. A selection
//! without such a condition is asked each time.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::api::Field;
use crate::api::LabelOperator;
use crate::api::LabelRequirement;
use crate::api::ObjectKey;
use crate::api::Selection;
use crate::cache::Event;
use crate::cache::groups::group::Group;
use crate::cache::groups::group::QUEUED_BYTES;
use crate::cache::groups::group::shrink;
use crate::cache::state::State;
use crate::mutation;
use crate::mutation::Mutation;

/// All groups of the current epoch.
#[derive(Default)]
pub(in crate::cache) struct Interest {
    ids: HashMap<Arc<Selection>, u64>,
    members: HashMap<u64, Member>,
    index: Index,
    /// Log position and group of what is queued somewhere, in order.
    trail: VecDeque<(u64, u64)>,
    next_id: u64,
}

struct Member {
    group: Arc<Group>,
    streams: usize,
    found_by: FoundBy,
}

/// A group and the number of the next event in its queue.
pub(in crate::cache) type Joined = (Arc<Group>, u64);

type Groups = Vec<Arc<Group>>;
type ByValue = HashMap<Box<str>, Groups>;

#[derive(Default)]
struct Index {
    by_key: ByValue,
    by_name: ByValue,
    by_namespace: ByValue,
    /// By position of the field.
    by_field: HashMap<usize, ByValue>,
    by_label: HashMap<Box<str>, ByValue>,
    /// Groups without a condition to find them by.
    others: Groups,
}

/// How the index finds a group.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FoundBy {
    /// Objects have at least one of these; with none of them nothing is selected.
    AnyOf(Vec<Condition>),
    /// It is always asked.
    Asking,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Key(Box<str>),
    Name(Box<str>),
    Field(usize, Box<str>),
    Label(Box<str>, Box<str>),
    Namespace(Box<str>),
}

// === impl Interest ===

impl Interest {
    /// How many groups there are.
    pub(in crate::cache) fn len(&self) -> usize {
        self.members.len()
    }

    /// Joins the group of `selection` from log position `position` on; `None` when it hasn't all events
    /// from there on, and the caller must read the log up to its tip first.
    ///
    /// The state is only borrowed while its lock is held, so its tip stays where it is.
    pub(in crate::cache) fn join(
        &mut self,
        selection: &Arc<Selection>,
        position: u64,
        state: &State,
    ) -> Option<Joined> {
        let tip = state.log.tip();
        if position == tip || mutation::is_active(Mutation::JoinedBeforeTip) {
            return Some(self.join_at_tip(selection, tip));
        }
        let member = self.members.get_mut(self.ids.get(selection)?)?;
        let number = member.group.number_at(position)?;
        member.streams += 1;
        Some((Arc::clone(&member.group), number))
    }

    /// Joins the group of `selection` at the log's `tip`, or makes it.
    fn join_at_tip(&mut self, selection: &Arc<Selection>, tip: u64) -> Joined {
        let id = self.ids.get(selection);
        if let Some(member) = id.and_then(|id| self.members.get_mut(id)) {
            member.streams += 1;
            return (Arc::clone(&member.group), member.group.end());
        }
        let id = self.next_id;
        self.next_id += 1;
        let group = Arc::new(Group::new(id, Arc::clone(selection), tip));
        let found_by = self.index.insert(&group);
        let member = Member {
            group: Arc::clone(&group),
            streams: 1,
            found_by,
        };
        self.ids.insert(Arc::clone(selection), id);
        self.members.insert(id, member);
        (group, 0)
    }

    /// Takes a stream out of its group, which is gone with its last one.
    pub(in crate::cache) fn leave(&mut self, group: &Arc<Group>) {
        // It may be of an earlier epoch.
        let Some(member) = self.members.get_mut(&group.id) else {
            return;
        };
        member.streams -= 1;
        if member.streams > 0 {
            return;
        }
        self.ids.remove(&group.selection);
        if let Some(member) = self.members.remove(&group.id) {
            self.index.remove(group, &member.found_by);
        }
    }

    /// Queues `event` of log position `position` wherever it belongs, and adds the groups to `concerned`.
    pub(in crate::cache) fn tell(
        &mut self,
        position: u64,
        event: &Arc<Event>,
        concerned: &mut Groups,
    ) {
        let Self { index, trail, .. } = self;
        let mut queued = 0;
        index.find(event, |group| {
            if group.offer(position, event) {
                trail.push_back((position, group.id));
                queued += 1;
                concerned.push(Arc::clone(group));
            }
        });
        event.charge(queued * QUEUED_BYTES);
    }

    /// Forgets what is queued of events before log position `first`.
    pub(in crate::cache) fn evict(&mut self, first: u64) {
        if first > 0 && mutation::is_active(Mutation::QuietFallsOff) {
            self.groups().for_each(|group| group.expire());
        }
        while let Some((_, id)) = self.trail.pop_front_if(|(position, _)| *position < first) {
            if let Some(member) = self.members.get(&id) {
                member.group.evict(first);
            }
        }
        shrink(&mut self.trail);
    }

    /// All groups.
    pub(in crate::cache) fn groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.members.values().map(|member| &member.group)
    }

    /// Ends the epoch: all streams expire, and all groups are given back.
    pub(in crate::cache) fn expire(&mut self) -> Self {
        self.groups().for_each(|group| group.expire());
        let next_id = self.next_id;
        let fresh = Self {
            next_id,
            ..Self::default()
        };
        std::mem::replace(self, fresh)
    }
}

// === impl Index ===

impl Index {
    /// Shows `visit` each group that `event` may concern, some perhaps twice.
    fn find(&self, event: &Event, mut visit: impl FnMut(&Arc<Group>)) {
        let mut visit = |groups: Option<&Groups>| groups.into_iter().flatten().for_each(&mut visit);
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
        visit(Some(&self.others));
    }

    /// Makes `group` findable.
    fn insert(&mut self, group: &Arc<Group>) -> FoundBy {
        let ways = ways_to_find(&group.selection);
        let crowd = |conditions: &Vec<Condition>| -> usize {
            conditions
                .iter()
                .map(|condition| self.groups(condition))
                .sum()
        };
        match ways.into_iter().min_by_key(crowd) {
            Some(conditions) => {
                for condition in &conditions {
                    let (groups, value) = self.by_value_mut(condition);
                    let groups = groups.entry(value.into()).or_default();
                    groups.reserve_exact(usize::from(groups.is_empty()));
                    groups.push(Arc::clone(group));
                }
                FoundBy::AnyOf(conditions)
            }
            None => {
                self.others.push(Arc::clone(group));
                FoundBy::Asking
            }
        }
    }

    fn remove(&mut self, group: &Arc<Group>, found_by: &FoundBy) {
        match found_by {
            FoundBy::Asking => remove_from(&mut self.others, group),
            FoundBy::AnyOf(conditions) => {
                for condition in conditions {
                    let (by_value, value) = self.by_value_mut(condition);
                    if let Some(groups) = by_value.get_mut(value) {
                        remove_from(groups, group);
                        if groups.is_empty() {
                            by_value.remove(value);
                        }
                    }
                }
                conditions
                    .iter()
                    .for_each(|condition| self.prune(condition));
            }
        }
    }

    fn prune(&mut self, condition: &Condition) {
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

    /// How many groups are found by `condition`.
    fn groups(&self, condition: &Condition) -> usize {
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
        groups.map_or(0, Vec::len)
    }

    fn by_value_mut<'a>(&mut self, condition: &'a Condition) -> (&mut ByValue, &'a str) {
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

fn remove_from(groups: &mut Groups, group: &Arc<Group>) {
    let position = groups.iter().position(|other| Arc::ptr_eq(other, group));
    if let Some(position) = position {
        groups.swap_remove(position);
    }
}

/// The sets of conditions of which an object of `selection` meets at least one, the likely best first.
fn ways_to_find(selection: &Selection) -> Vec<Vec<Condition>> {
    let terms = selection.fields.terms.iter().filter(|term| term.equal);
    let demanded = |field: Field| {
        let mut terms = terms.clone().filter(move |term| term.field == field);
        terms.next().map(|term| term.value.as_str())
    };
    let namespace = selection.namespace.as_deref();
    let namespace = namespace.or_else(|| demanded(Field::Namespace));
    if let (Some(namespace), Some(name)) = (namespace, selection.name()) {
        let key = ObjectKey::new(Some(namespace), name);
        return vec![vec![Condition::Key(key.as_str().into())]];
    }
    let name = selection.name().map(|name| Condition::Name(name.into()));
    let fields = terms.clone().filter_map(|term| match term.field {
        Field::Value(position) => {
            Some(vec![Condition::Field(position, term.value.as_str().into())])
        }
        Field::Empty if !term.value.is_empty() => Some(Vec::new()),
        Field::Empty | Field::Name | Field::Namespace => None,
    });
    let labels = selection.labels.requirements.iter().filter_map(any_of);
    let namespace = namespace.map(|namespace| Condition::Namespace(namespace.into()));
    let (name, namespace) = (name.map(|name| vec![name]), namespace.map(|own| vec![own]));
    name.into_iter()
        .chain(fields)
        .chain(labels)
        .chain(namespace)
        .collect()
}

fn any_of(requirement: &LabelRequirement) -> Option<Vec<Condition>> {
    let condition =
        |value: &String| Condition::Label(requirement.key.as_str().into(), value.as_str().into());
    match &requirement.operator {
        LabelOperator::In(values) => Some(values.iter().map(condition).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
