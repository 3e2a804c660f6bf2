//! KeyRange: the map of objects by key, and ranges of its keys.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

use crate::api::{Object, ObjectKey};

/// The objects of a store by key, in the API server's list order.
pub(super) type Objects = OrdMap<ObjectKey, Arc<Object>>;

#[derive(Clone, Debug)]
pub(super) struct KeyRange {
    pub(super) from: Bound<String>,
    /// The exclusive upper bound; `None` if there is none.
    pub(super) to: Option<String>,
}

// === impl KeyRange ===

impl KeyRange {
    /// Returns the keys of `namespace` that are above `after`. Without a namespace,
    /// all keys above `after`.
    pub(super) fn new(namespace: Option<&str>, after: Option<&str>) -> Self {
        // '0' follows '/', so it ends the range of the keys that begin with "namespace/".
        let (first, to) = match namespace {
            None | Some("") => (None, None),
            Some(namespace) => (Some(format!("{namespace}/")), Some(format!("{namespace}0"))),
        };
        let from = match (first, after) {
            (Some(first), Some(after)) if first.as_str() > after => Bound::Included(first),
            (_, Some(after)) => Bound::Excluded(after.to_owned()),
            (Some(first), None) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        Self { from, to }
    }

    pub(super) fn all() -> Self {
        Self::new(None, None)
    }

    pub(super) fn is_empty(&self) -> bool {
        match (&self.from, &self.to) {
            (Bound::Included(from) | Bound::Excluded(from), Some(to)) => from >= to,
            _ => false,
        }
    }

    pub(super) fn bounds(&self) -> (Bound<&str>, Bound<&str>) {
        let to = self.to.as_deref();
        let from = self.from.as_ref().map(String::as_str);
        (from, to.map_or(Bound::Unbounded, Bound::Excluded))
    }
}
