//! Folds a watch into the set of objects it tells of.

use std::collections::BTreeMap;

use crate::support::clients::frames::Event;
use crate::support::clients::frames::Item;
use crate::support::clients::frames::List;

/// What a client knows after the events it was given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fold {
    state: BTreeMap<String, Item>,
    resource_version: String,
    pub(crate) events: u64,
    /// The ERROR events, in order: code and message.
    pub(crate) errors: Vec<(i64, String)>,
    /// What no correct watch may send, in words.
    pub(crate) faults: Vec<String>,
    pub(crate) synced: bool,
    /// The stream has replayed nothing yet, so its ADDED may be initial ones.
    initial: bool,
}

impl Fold {
    /// Starts from a list.
    pub(crate) fn of(list: &List) -> Self {
        let mut fold = Self::default();
        fold.restart(list);
        fold
    }

    /// Forgets everything and takes the list instead.
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

    /// Forgets the state after an ERROR; what was noted is kept.
    pub(crate) fn forget(&mut self) {
        self.state.clear();
        self.resource_version.clear();
        self.synced = false;
    }

    /// The next stream begins with the whole state, as one from RV 0 does.
    pub(crate) fn expect_initial_events(&mut self) {
        self.state.clear();
        self.initial = true;
        self.synced = false;
    }

    /// Takes one event in.
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

    /// The RV to resume from.
    pub(crate) fn resource_version(&self) -> &str {
        &self.resource_version
    }

    pub(crate) fn state(&self) -> &BTreeMap<String, Item> {
        &self.state
    }

    /// Whether the state is exactly the list's, bytes included.
    ///
    /// # Errors
    /// The first few differences in words.
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
