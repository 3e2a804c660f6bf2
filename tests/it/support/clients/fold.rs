//! Folds the events of a watch into the set of objects that its client should have.

use std::collections::BTreeMap;

use crate::support::clients::frames::{Event, Item, List};

/// The state of a client after the list and the watch events that it has received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fold {
    state: BTreeMap<String, Item>,
    resource_version: String,
    pub(crate) events: u64,
    /// The code and message of each ERROR event, in order.
    pub(crate) errors: Vec<(i64, String)>,
    /// Descriptions of events that a correct watch never sends.
    pub(crate) faults: Vec<String>,
    pub(crate) synced: bool,
    /// True while ADDED events may be initial events; their versions need not be in order.
    initial: bool,
}

impl Fold {
    /// Returns the state after a list.
    pub(crate) fn of(list: &List) -> Self {
        let mut fold = Self::default();
        fold.restart(list);
        fold
    }

    /// Replaces all objects by those of a new list.
    pub(crate) fn restart(&mut self, list: &List) {
        self.state = list
            .items
            .iter()
            .map(|item| (item.key.clone(), item.clone()))
            .collect();
        self.resource_version = list.resource_version.clone();
        self.initial = false;
        self.synced = true;
    }

    /// Returns true if the client has the object `key`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.state.contains_key(key)
    }

    /// Drops the objects and the version after an ERROR event, but not the errors and faults.
    pub(crate) fn forget(&mut self) {
        self.state.clear();
        self.resource_version.clear();
        self.synced = false;
    }

    /// Prepares for a stream that begins with all objects as initial events, as a watch from
    /// resourceVersion 0 does.
    pub(crate) fn expect_initial_events(&mut self) {
        self.state.clear();
        self.initial = true;
        self.synced = false;
    }

    /// Applies one event to the state.
    pub(crate) fn apply(&mut self, event: Event) {
        self.events += 1;
        match event {
            Event::Added(item) => self.put(item, true),
            Event::Modified(item) => {
                self.initial = false;
                self.put(item, false);
            }
            Event::Deleted(item) => {
                self.initial = false;
                self.advance(&item.resource_version);
                self.state.remove(&item.key);
            }
            Event::Bookmark {
                resource_version,
                initial_events_end,
            } => {
                self.initial = false;
                self.synced |= initial_events_end;
                self.advance(&resource_version);
            }
            Event::Error { code, message } => self.errors.push((code, message)),
        }
    }

    fn put(&mut self, item: Item, added: bool) {
        if !self.initial {
            self.advance(&item.resource_version);
        }
        let before = self.state.get(&item.key);
        if added && before.is_some_and(|before| before.uid == item.uid) {
            self.faults
                .push(format!("ADDED {} which was there", item.key));
        }
        if !added && before.is_none() {
            self.faults
                .push(format!("MODIFIED {} which was not there", item.key));
        }
        self.state.insert(item.key.clone(), item);
    }

    fn advance(&mut self, resource_version: &str) {
        let number = |text: &str| text.parse::<u64>().unwrap_or(0);
        if number(resource_version) < number(&self.resource_version) {
            let now = &self.resource_version;
            self.faults
                .push(format!("RV went from {now} back to {resource_version}"));
        }
        self.resource_version = resource_version.to_owned();
    }

    /// Returns the resourceVersion to resume a watch from; empty if there is none.
    pub(crate) fn resource_version(&self) -> &str {
        &self.resource_version
    }

    pub(crate) fn state(&self) -> &BTreeMap<String, Item> {
        &self.state
    }

    /// Checks that the state has exactly the objects of the list, byte by byte.
    ///
    /// # Errors
    /// The first five differences as text.
    pub(crate) fn compare(&self, list: &List) -> Result<(), String> {
        let wanted = Self::of(list).state;
        let keys = wanted
            .keys()
            .chain(self.state.keys().filter(|key| !wanted.contains_key(*key)));
        let differences = keys.filter_map(|key| match (self.state.get(key), wanted.get(key)) {
            (Some(here), Some(there)) if here == there => None,
            (Some(here), Some(there)) if here.body != there.body => Some(format!(
                "{key} is at {} and should be at {}",
                here.resource_version, there.resource_version
            )),
            (Some(_), Some(_)) => Some(format!("{key} has another identity")),
            (None, _) => Some(format!("{key} is missing")),
            (_, None) => Some(format!("{key} should be gone")),
        });
        let some: Vec<String> = differences.take(5).collect();
        if some.is_empty() {
            Ok(())
        } else {
            Err(some.join("; "))
        }
    }
}
