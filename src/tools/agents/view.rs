//! The objects that a watch shows, as a fingerprint that is cheap to compare.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use super::Watched;

/// A fingerprint of the states of objects, in any order. A resource version identifies a state,
/// because every change sets a new version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint(u64);

/// The objects that one watch shows.
pub(super) struct View {
    pub(super) watched: Watched,
    fingerprint: AtomicU64,
}

/// The versions of the objects of a [`View`], by the hashes of the objects' uids. Only the watch of
/// the view has these versions.
#[derive(Default)]
pub(super) struct Objects(HashMap<u64, u64>);

impl Fingerprint {
    /// Returns the fingerprint of objects with these resource versions.
    pub fn of(versions: impl IntoIterator<Item = u64>) -> Self {
        let hashes = versions.into_iter().map(|version| hash(&version));
        Self(hashes.fold(0, u64::wrapping_add))
    }
}

impl View {
    pub(super) fn new(watched: Watched) -> Self {
        Self {
            watched,
            fingerprint: AtomicU64::new(0),
        }
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        Fingerprint(self.fingerprint.load(Ordering::Relaxed))
    }

    /// Applies an event: the object `uid` now has this version, or does not exist.
    pub(super) fn apply(&self, objects: &mut Objects, uid: &[u8], version: Option<u64>) {
        let uid = hash(uid);
        let before = match version {
            Some(version) => objects.0.insert(uid, version),
            None => objects.0.remove(&uid),
        };
        let part = |version: Option<u64>| version.map_or(0, |version| hash(&version));
        let change = part(version).wrapping_sub(part(before));
        self.fingerprint.fetch_add(change, Ordering::Relaxed);
    }

    /// Forgets all objects: the watch begins anew.
    pub(super) fn clear(&self, objects: &mut Objects) {
        objects.0.clear();
        self.fingerprint.store(0, Ordering::Relaxed);
    }
}

fn hash<T: Hash + ?Sized>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use kubefan_core::api::GroupVersionResource;

    use super::*;

    #[test]
    fn a_view_has_the_fingerprint_of_its_objects() {
        let view = View::new(Watched {
            gvr: GroupVersionResource::new("", "v1", "pods"),
            field_selector: String::new(),
        });
        let mut objects = Objects::default();
        assert_eq!(view.fingerprint(), Fingerprint::of([]));
        let mut apply = |uid: &[u8], version| {
            view.apply(&mut objects, uid, version);
            view.fingerprint()
        };
        apply(b"a", Some(1));
        assert_eq!(apply(b"b", Some(2)), Fingerprint::of([2, 1]));
        let changed = apply(b"a", Some(3));
        assert_eq!(changed, Fingerprint::of([3, 2]));
        assert_ne!(changed, Fingerprint::of([3, 1]));
        assert_eq!(apply(b"a", None), Fingerprint::of([2]));
        assert_eq!(apply(b"unknown", None), Fingerprint::of([2]));
        view.clear(&mut objects);
        assert_eq!(view.fingerprint(), Fingerprint::default());
    }
}
