//! The turns of tenants, or of the users of a tenant, that have questions.

use std::collections::{BTreeMap, HashMap};

use crate::identity::tokens::token::Digest;

/// How many tenants, or users of a tenant, may have a turn without questions, in addition to the
/// number of those with questions.
pub(super) const SPARE_TURNS: usize = 64;
/// The number of classes. Each urgency has one class for the questions about all objects, and one
/// for the others.
pub(super) const CLASSES: usize = 6;

/// The turns of all tenants or users, and the turns of those with questions of each class.
#[derive(Debug, Default)]
pub(super) struct Rota {
    pub(super) all: Turns,
    pub(super) by_class: [Turns; CLASSES],
}

/// Tenants or users that take turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    pub(super) places: HashMap<Digest, u64>,
    pub(super) order: BTreeMap<u64, Digest>,
    last: u64,
}

// === impl Rota ===

impl Rota {
    /// Returns the turns of those with questions of `class`, or of all if it is `None`.
    pub(super) fn of(&mut self, class: Option<usize>) -> &mut Turns {
        match class {
            Some(class) => &mut self.by_class[class],
            None => &mut self.all,
        }
    }

    /// Adds `one`, which has a question of `class`, at the end, unless it already has a turn.
    pub(super) fn enter(&mut self, one: Digest, class: usize) {
        self.all.enter(one);
        self.by_class[class].enter(one);
    }

    /// Moves `one` to the end after its turn with a question of `class`.
    pub(super) fn had(&mut self, one: Digest, class: usize) {
        self.all.had(one);
        self.by_class[class].had(one);
    }

    /// Removes the turns for which `is_known` returns false, if there are many. `count` is the
    /// number of tenants or users for which it returns true.
    pub(super) fn retain(&mut self, count: usize, is_known: impl Fn(&Digest) -> bool) {
        for turns in self.by_class.iter_mut().chain([&mut self.all]) {
            if turns.order.len() > 2 * count + SPARE_TURNS {
                turns.retain(&is_known);
            }
        }
    }
}

// === impl Turns ===

impl Turns {
    /// Adds `one` at the end, unless it already has a turn.
    fn enter(&mut self, one: Digest) {
        if !self.places.contains_key(&one) {
            self.last += 1;
            self.places.insert(one, self.last);
            self.order.insert(self.last, one);
        }
    }

    /// Returns the first one that may ask a question by `may_ask`. Removes all before it.
    pub(super) fn first(&mut self, mut may_ask: impl FnMut(&Digest) -> bool) -> Option<Digest> {
        while let Some((place, one)) = self.order.first_key_value() {
            let (place, one) = (*place, *one);
            if may_ask(&one) {
                return Some(one);
            }
            self.order.remove(&place);
            self.places.remove(&one);
        }
        None
    }

    /// Moves `one` to the end after its turn.
    pub(super) fn had(&mut self, one: Digest) {
        if let Some(place) = self.places.remove(&one) {
            self.order.remove(&place);
        }
        self.enter(one);
    }

    /// Removes the turns for which `is_known` returns false.
    fn retain(&mut self, is_known: impl Fn(&Digest) -> bool) {
        self.order.retain(|_, one| is_known(one));
        self.places.retain(|one, _| is_known(one));
    }
}
