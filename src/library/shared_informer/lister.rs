//! Lister: reads the objects of a shared informer.

use std::sync::Arc;

use kubefan_core::api::{Object, ObjectKey, ResourceVersion, Selection};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::shared::Shared;
use super::{DecodeError, IndexError, Storage};

/// Reads the objects of a [`SharedInformer`](super::SharedInformer). Clones read that informer,
/// too.
///
/// Each read shows all changes that the cache has applied before it. Before the first list of the
/// API server, a lister has no objects; see
/// [`SharedInformer::synced`](super::SharedInformer::synced). While a cache is replaced, a lister
/// shows the last state before that. A cache is replaced if its watch was refused, its definition
/// has changed or etcd was restored.
///
/// With [`Storage::Decoded`] or an index, a list, or a read of an index, may have to decode what
/// has changed since the last one. That is all objects after a cache was replaced, or after a new
/// list if each object in it has changed. A background task decodes them soon, and so does a
/// handler before it is called. Other readers continue in that time, and [`Lister::get`] decodes at
/// most about a hundred objects.
pub struct Lister<K>(pub(super) Arc<Shared<K>>);

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

// === impl Lister ===

impl<K: DeserializeOwned> Lister<K> {
    /// Returns the object `name` in `namespace` (`None` for a cluster-scoped resource), or
    /// `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the object is not of type `K`.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Result<Option<Arc<K>>, DecodeError> {
        let key = ObjectKey::new(namespace, name);
        if let Some(decoded) = self.0.kept(&key) {
            return Ok(Some(decoded));
        }
        let object = self.0.snapshot().and_then(|snapshot| snapshot.get(&key));
        let object = object.filter(|object| self.0.selection.matches(object));
        let decode = |object: Arc<Object>| self.0.decoder.decode(&object);
        object.map(decode).transpose()
    }

    /// Returns all objects, in the order of their keys. Leaves out objects that are not of type
    /// `K`, and reports them to [`Config::on_decode_error`](super::Config::on_decode_error): with
    /// [`Storage::Decoded`] when the informer receives them, otherwise at each read.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.select(&Selection::default())
    }

    /// Returns the objects of `namespace`, like [`Lister::list`].
    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        self.select(&Selection {
            namespace: Some(namespace.to_owned()),
            ..Selection::default()
        })
    }

    /// Returns the informer's objects that `selection` selects, like [`Lister::list`].
    pub fn select(&self, selection: &Selection) -> Vec<Arc<K>> {
        let own = &self.0.selection;
        let Some(selection) = within(own, selection) else {
            return Vec::new();
        };
        let view = (self.0.storage == Storage::Decoded).then(|| self.0.view());
        let adds_no_key =
            selection.name().is_none() && selection.single_namespace() == own.single_namespace();
        // While the cache lists again, the snapshot may be newer than the view.
        if let Some(view) = view.as_ref().filter(|view| view.is_following())
            && adds_no_key
        {
            if selection.is_unfiltered() {
                // The objects themselves are not read, which would take longer than the list.
                let mut objects = Vec::with_capacity(view.len());
                objects.extend(view.objects().cloned());
                return objects;
            }
            if !own.is_unfiltered() {
                // The cache may have many more objects than the view, and no index for them.
                return view.select(&selection).cloned().collect();
            }
        }
        let snapshot = self.0.snapshot();
        let snapshot = snapshot.iter();
        let objects = snapshot.flat_map(|snapshot| snapshot.list(&selection, None));
        let own = objects.filter(|object| own.matches(object));
        own.filter_map(|object| match &view {
            Some(view) => view.decode(&object),
            None => self.0.decoder.decode_or_report(&object),
        })
        .collect()
    }

    /// Returns the objects for which the function of the index `name` returned `value`, in the
    /// order of their keys.
    ///
    /// # Errors
    ///
    /// [`IndexError::Missing`] if no index has this name.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<K>>, IndexError> {
        let view = self.0.view();
        let objects = view.index(name)?.find(value);
        Ok(objects.filter_map(|object| view.decode(object)).collect())
    }

    /// Returns the keys of the objects that [`Lister::by_index`] returns.
    ///
    /// # Errors
    ///
    /// [`IndexError::Missing`] if no index has this name.
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<ObjectKey>, IndexError> {
        let view = self.0.view();
        let objects = view.index(name)?.find(value);
        Ok(objects.map(|object| object.key.clone()).collect())
    }

    /// Returns all values that the function of the index `name` returned for present objects,
    /// sorted.
    ///
    /// # Errors
    ///
    /// [`IndexError::Missing`] if no index has this name.
    pub fn index_values(&self, name: &str) -> Result<Vec<String>, IndexError> {
        let view = self.0.view();
        Ok(view.index(name)?.values().cloned().collect())
    }

    /// Returns the resource version of the API server up to which reads show all changes, or `None`
    /// before the first list.
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        Some(self.0.snapshot()?.resource_version())
    }

    /// Waits until reads show the state at `version`, and returns true. A program that has written
    /// an object waits for the version in the API server's answer, and then reads its own write.
    /// Returns false when `deadline` has passed, or if the informer has ended. Cancel safe.
    pub async fn wait_for(&self, version: ResourceVersion, deadline: Instant) -> bool {
        self.0.source.clone().wait_for(version, deadline).await
    }
}

/// Limits `selection` to the namespace of `own`, if `own` selects objects of only one: the cache
/// may have all namespaces. Returns `None` if `selection` selects another namespace.
fn within(own: &Selection, selection: &Selection) -> Option<Selection> {
    let mut selection = selection.clone();
    let Some(namespace) = own.single_namespace() else {
        return Some(selection);
    };
    if selection
        .single_namespace()
        .is_some_and(|other| other != namespace)
    {
        return None;
    }
    selection.namespace = Some(namespace.to_owned());
    Some(selection)
}

#[cfg(test)]
mod tests {
    use kubefan_core::api::{Field, FieldSelector, FieldTerm, LabelSelector};

    use super::*;

    #[test]
    fn a_read_is_limited_to_the_namespace_of_the_informer() {
        let selection = |namespace: &str, field: &str| Selection {
            namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
            labels: LabelSelector::parse("app=x").expect("a selector"),
            fields: FieldSelector {
                terms: match field {
                    "" => Vec::new(),
                    value => vec![FieldTerm {
                        field: Field::Namespace,
                        equal: true,
                        value: value.to_owned(),
                    }],
                },
            },
            ..Selection::default()
        };
        // Namespace and field of the informer and of the read, and the namespace that is read.
        for (own, read, expected) in [
            (("", ""), ("", ""), Some("")),
            (("", ""), ("a", ""), Some("a")),
            (("a", ""), ("", ""), Some("a")),
            (("a", ""), ("a", ""), Some("a")),
            (("a", ""), ("b", ""), None),
            (("a", ""), ("", "b"), None),
            (("", "a"), ("", ""), Some("a")),
            (("", "a"), ("b", ""), None),
        ] {
            let found = within(&selection(own.0, own.1), &selection(read.0, read.1));
            let expected = expected.map(|namespace| selection(namespace, read.1));
            assert_eq!(found, expected, "{own:?} {read:?}");
        }
    }
}
