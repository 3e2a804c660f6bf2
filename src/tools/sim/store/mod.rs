//! The simulator's store: the objects of all kinds, with one revision counter, as in etcd.

pub(super) mod collection;

use std::collections::BTreeMap;
use std::sync::Arc;

use collection::{Collection, ServedKind};
use kubefan_core::api::{EventType, GroupVersionResource, ObjectKey, ResourceVersion, Status};
use parking_lot::Mutex;
use serde_json::Value;

use crate::sim::kinds::{Kind, custom};
use crate::sim::{kinds, metadata};

/// The initial value of the revision counter. It is not small, because small versions look like
/// mistakes.
const FIRST_REVISION: ResourceVersion = ResourceVersion(1000);

/// The objects of the simulator. Every method is one transaction.
pub(crate) struct Store {
    state: Mutex<State>,
}

/// The data that a transaction reads and changes.
pub(crate) struct State {
    /// The version of the newest change of any kind.
    pub(crate) revision: ResourceVersion,
    pub(crate) collections: BTreeMap<GroupVersionResource, Collection>,
}

// === impl Store ===

impl Store {
    /// Creates a store with the built-in kinds and no objects.
    pub(crate) fn new() -> Self {
        let revision = FIRST_REVISION;
        let collections = kinds::builtin()
            .map(|kind| (kind.resource.gvr.clone(), Collection::new(kind, revision)));
        let state = State {
            revision,
            collections: collections.collect(),
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Runs `change` as one transaction, with exclusive access to the state.
    pub(crate) fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock())
    }

    /// Returns the kind `gvr` for reading, at the version of the newest change of any kind; `None`
    /// if the kind is not served.
    pub(crate) fn served_kind(&self, gvr: &GroupVersionResource) -> Option<Arc<ServedKind>> {
        let mut state = self.state.lock();
        let revision = state.revision;
        let collection = state.collections.get_mut(gvr)?;
        collection.catch_up(revision);
        Some(Arc::clone(&collection.served_kind))
    }

    /// Returns true if `group` has a built-in kind.
    pub(crate) fn has_builtin(&self, group: &str) -> bool {
        let state = self.state.lock();
        let mut all = state.collections.iter();
        all.any(|(gvr, collection)| {
            let is_custom = collection.served_kind.kind.is_custom;
            gvr.group == group && !is_custom
        })
    }

    /// Returns all served kinds, ordered by group.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let state = self.state.lock();
        let collections = state.collections.values();
        collections
            .map(|collection| collection.served_kind.kind.clone())
            .collect()
    }

    /// Drops the history of every kind, and returns the current version.
    pub(crate) fn compact(&self) -> ResourceVersion {
        let mut state = self.state.lock();
        let revision = state.revision;
        for collection in state.collections.values_mut() {
            collection.catch_up(revision);
            collection.writer.forget_history();
        }
        revision
    }

    /// Simulates a restored backup: halves the revision and returns it. The objects stay, but all
    /// of them get the new version.
    pub(crate) fn restore(&self) -> ResourceVersion {
        let mut state = self.state.lock();
        state.revision.0 /= 2;
        let revision = state.revision;
        for collection in state.collections.values_mut() {
            collection.restore(revision);
        }
        revision
    }
}

/// The object or collection that a write changes.
#[derive(Clone, Debug)]
pub(crate) struct WriteTarget {
    pub(crate) gvr: GroupVersionResource,
    pub(crate) namespace: Option<String>,
    /// The name of the object; empty for a collection.
    pub(crate) name: String,
}

/// Options of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    /// True to check the write and return its result without storing it.
    pub(crate) dry_run: bool,
    /// True to store a new object with the status, the uid and the
    /// creation time that it already has.
    pub(crate) keep_status: bool,
}

// === impl WriteTarget ===

impl WriteTarget {
    /// Names an object; with an empty `name`, a collection.
    pub(crate) fn new(gvr: &GroupVersionResource, namespace: Option<&str>, name: &str) -> Self {
        Self {
            gvr: gvr.clone(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace.as_deref(), &self.name)
    }

    pub(crate) fn named(&self, key: &ObjectKey) -> Self {
        let namespace = Some(key.namespace()).filter(|namespace| !namespace.is_empty());
        Self::new(&self.gvr, namespace, key.name())
    }
}

// === impl State ===

impl State {
    /// Returns the kind of `target`.
    ///
    /// # Errors
    ///
    /// 404 if the kind is not served, or if `target` has a namespace and the kind does not, or vice
    /// versa.
    pub(crate) fn kind(&self, target: &WriteTarget) -> Result<Kind, Status> {
        let collection = self.collections.get(&target.gvr);
        let kind = collection.map(|collection| &collection.served_kind.kind);
        let kind = kind.ok_or_else(Status::path_not_found)?;
        if kind.resource.namespaced == target.namespace.is_some() {
            Ok(kind.clone())
        } else {
            Err(Status::path_not_found())
        }
    }

    /// Returns the current state of the object `target`.
    ///
    /// # Errors
    ///
    /// 404 if the object does not exist.
    pub(crate) fn current(&self, target: &WriteTarget) -> Result<Value, Status> {
        let collection = self.collections.get(&target.gvr);
        let object = collection.and_then(|collection| collection.get(&target.key()));
        object.ok_or_else(|| Status::not_found(&target.gvr, &target.name))
    }

    /// Stores a change with the next revision, unless it is a dry run, and returns the resulting
    /// object.
    ///
    /// # Errors
    ///
    /// If the kind is not served or the object is invalid.
    pub(crate) fn commit(
        &mut self,
        gvr: &GroupVersionResource,
        event_type: EventType,
        mut object: Value,
        options: WriteOptions,
    ) -> Result<Value, Status> {
        let collection = self.collections.get_mut(gvr);
        let collection = collection.ok_or_else(Status::path_not_found)?;
        if !options.dry_run {
            self.revision.0 += 1;
            let version = self.revision.to_string();
            metadata::metadata_mut(&mut object)?
                .insert("resourceVersion".to_owned(), version.into());
        }
        let object = metadata::in_order(object, collection.served_kind.kind.is_custom);
        if options.dry_run {
            return Ok(object);
        }
        collection.apply(event_type, &object)?;
        if *gvr == kinds::definitions() {
            self.define(event_type, &object);
        }
        Ok(object)
    }

    /// Starts to serve the kind of a new CustomResourceDefinition, or stops to serve the kind of a
    /// deleted one.
    fn define(&mut self, event_type: EventType, definition: &Value) {
        let Some(kind) = custom::kind(definition) else {
            return;
        };
        let gvr = kind.resource.gvr.clone();
        let is_served = self.collections.contains_key(&gvr);
        match event_type {
            EventType::Deleted => {
                self.collections.remove(&gvr);
            }
            EventType::Added | EventType::Modified if !is_served => {
                let collection = Collection::new(kind, self.revision);
                self.collections.insert(gvr, collection);
            }
            EventType::Added | EventType::Modified => {}
        }
    }
}
