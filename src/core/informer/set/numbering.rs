//! Numbers informers that differ only in their transform, so that they have different metrics.

use parking_lot::MutexGuard;

use super::InformerSet;
use super::key::Key;
use crate::api::{GroupVersionResource, WireFormat};
use crate::informer::ObjectContent;
use crate::informer::informer::OwnTransform;
use crate::upstream::Scope;

impl InformerSet {
    /// Returns the transform of `key`, if it has one, with the smallest number, from 1 on, that no
    /// running informer like it has. The number may be taken by others when the guard is dropped.
    pub(super) fn number(&self, key: &Key) -> Option<(OwnTransform, MutexGuard<'_, ()>)> {
        let id = key.transform?;
        let guard = self.inner.numbering.lock();
        let entries = self.inner.informers.iter();
        let alike =
            entries.filter(|entry| without_transform(entry.key()) == without_transform(key));
        let taken: Vec<_> = alike.filter_map(|entry| entry.transform_number()).collect();
        let number = (1..).find(|number| !taken.contains(number))?;
        Some((OwnTransform { id, number }, guard))
    }
}

fn without_transform(key: &Key) -> (&GroupVersionResource, WireFormat, &Scope, ObjectContent) {
    (&key.gvr, key.format, &key.scope, key.content)
}
