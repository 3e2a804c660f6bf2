//! The turns of those who have questions: tenants, or the users of a tenant.

use std::collections::{BTreeMap, HashMap};

use crate::identity::tokens::token::Digest;

/// How many tenants, or users of a tenant, may keep a turn without questions, besides as many as have
/// some.
pub(super) const SPARE_TURNS: usize = 64;
/// The number of classes: each urgency has one for the questions about all objects, and one for the
/// others.
pub(super) const CLASSES: usize = 6;

/// The turns of all, and of those with questions of each class.
#[derive(Debug, Default)]
pub(super) struct Rota {
    pub(super) all: Turns,
    pub(super) by_class: [Turns; CLASSES],
}

/// The classes of which a question is looked for: one, or all.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    Any,
    Class(usize),
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
    pub(super) fn of(&mut self, wanted: Wanted) -> &mut Turns {
        match wanted {
            Wanted::Any => &mut self.all,
            Wanted::Class(class) => &mut self.by_class[class],
        }
    }

    /// Adds one with a question of `class` as the last, unless it is there already.
    pub(super) fn enter(&mut self, one: Digest, class: usize) {
        self.all.enter(one);
        self.by_class[class].enter(one);
    }

    /// Makes one the last that has had its turn with a question of `class`.
    pub(super) fn had(&mut self, one: Digest, class: usize) {
        self.all.had(one);
        self.by_class[class].had(one);
    }

    /// Removes those that are not `known`, if they are many. `count` are known.
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
    /// Adds one as the last, unless it is there already.
    fn enter(&mut self, one: Digest) {
        if !self.places.contains_key(&one) {
            self.last += 1;
            self.places.insert(one, self.last);
            self.order.insert(self.last, one);
        }
    }

    /// The one whose turn it is. Removes those before it, which may ask nothing by `may_ask`.
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

    /// Makes one the last that has had its turn.
    pub(super) fn had(&mut self, one: Digest) {
        if let Some(place) = self.places.remove(&one) {
            self.order.remove(&place);
        }
        self.enter(one);
    }

    /// Removes all but those that are `known`.
    fn retain(&mut self, is_known: impl Fn(&Digest) -> bool) {
        self.order.retain(|_, one| is_known(one));
        self.places.retain(|one, _| is_known(one));
    }
}
