//! The API server of the model: the versions of the changes of its objects, and restores.

pub(super) const OBJECTS: usize = 3;

/// A change: the number of the history in which it was made, and its version. A later change is
/// greater, unless a restore has undone it.
pub(super) type Change = (u32, u64);

/// An API server.
pub(super) struct Server {
    /// The number of restores.
    pub(super) history: u32,
    pub(super) version: u64,
    changes: [Vec<Change>; OBJECTS],
    /// The versions of the changes that restores have undone.
    undone: [Vec<u64>; OBJECTS],
}

impl Server {
    pub(super) fn new() -> Self {
        Self {
            history: 0,
            version: 1,
            changes: std::array::from_fn(|_| vec![(0, 1)]),
            undone: Default::default(),
        }
    }

    /// Changes an object, and returns the change.
    pub(super) fn commit(&mut self, object: usize) -> Change {
        self.version += 1;
        // Nothing could distinguish two changes of an object that have one version.
        while self.undone[object].contains(&self.version) {
            self.version += 1;
        }
        let change = (self.history, self.version);
        self.changes[object].push(change);
        change
    }

    /// Returns the newest change of `object` up to `version`.
    pub(super) fn change(&self, object: usize, version: u64) -> Change {
        let changes = self.changes[object].iter().rev();
        let mut changes = changes.skip_while(|(_, at)| *at > version);
        changes.next().copied().unwrap_or_default()
    }

    /// Returns the newest changes of all objects up to `version`.
    pub(super) fn state(&self, version: u64) -> [Change; OBJECTS] {
        std::array::from_fn(|object| self.change(object, version))
    }

    /// Restores the state `back` versions ago.
    pub(super) fn restore(&mut self, back: u64) {
        self.version = self.version.saturating_sub(back).max(1);
        self.history += 1;
        for (changes, undone) in self.changes.iter_mut().zip(&mut self.undone) {
            let kept = changes.partition_point(|(_, at)| *at <= self.version);
            undone.extend(changes.drain(kept..).map(|(_, at)| at));
        }
    }
}
