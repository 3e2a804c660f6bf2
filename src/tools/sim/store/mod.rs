//! All kinds' objects under one revision counter, as in the API server's storage.

pub(super) mod collection;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::api::EventType;
use crate::api::GroupVersionResource;
use crate::api::ObjectKey;
use crate::api::ResourceVersion;
use crate::api::Status;
use crate::tools::sim::kinds;
use crate::tools::sim::kinds::Kind;
use crate::tools::sim::kinds::custom;
use crate::tools::sim::metadata;

use collection::Collection;
use collection::ServedKind;

/// Where the revision counter starts: small versions look like mistakes.
const FIRST_REVISION: u64 = 1000;
/// The simulator's objects. Every method is one transaction.
pub(crate) struct Store {
    state: Mutex<State>,
}

/// What a transaction works on.
pub(crate) struct State {
    revision: u64,
    pub(crate) collections: BTreeMap<GroupVersionResource, Collection>,
}

// === impl Store ===

impl Store {
    /// The built-in kinds, without objects.
    pub(crate) fn new() -> Self {
        let revision = ResourceVersion(FIRST_REVISION);
        let collections = kinds::builtin()
            .map(|kind| (kind.resource.gvr.clone(), Collection::new(kind, revision)));
        let state = State {
            revision: FIRST_REVISION,
            collections: collections.collect(),
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Runs `change` alone.
    pub(crate) fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock())
    }

    /// The reading side of `gvr`, complete up to the newest change of any kind.
    pub(crate) fn served_kind(&self, gvr: &GroupVersionResource) -> Option<Arc<ServedKind>> {
        let mut state = self.state.lock();
        let revision = ResourceVersion(state.revision);
        let collection = state.collections.get_mut(gvr)?;
        collection.catch_up(revision);
        Some(Arc::clone(&collection.served_kind))
    }

    /// True when a built-in kind of the group is served.
    pub(crate) fn has_builtin(&self, group: &str) -> bool {
        let state = self.state.lock();
        let mut all = state.collections.iter();
        all.any(|(gvr, collection)| {
            let is_custom = collection.served_kind.kind.is_custom;
            gvr.group == group && !is_custom
        })
    }

    /// All kinds, in the order of their groups.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let state = self.state.lock();
        let collections = state.collections.values();
        collections
            .map(|collection| collection.served_kind.kind.clone())
            .collect()
    }

    /// Forgets the past of every kind.
    pub(crate) fn compact(&self) -> ResourceVersion {
        let mut state = self.state.lock();
        let revision = ResourceVersion(state.revision);
        for collection in state.collections.values_mut() {
            collection.catch_up(revision);
            collection.compact();
        }
        revision
    }

    /// Goes on at half the revision, as a cluster does that was restored from a backup: the objects
    /// are what they are now, but all at that version.
    pub(crate) fn restore(&self) -> ResourceVersion {
        let mut state = self.state.lock();
        state.revision /= 2;
        let revision = ResourceVersion(state.revision);
        for collection in state.collections.values_mut() {
            collection.restore(revision);
        }
        revision
    }
}

/// What a write is about.
#[derive(Clone, Debug)]
pub(crate) struct WriteTarget {
    pub(crate) gvr: GroupVersionResource,
    pub(crate) namespace: Option<String>,
    /// Empty for a collection.
    pub(crate) name: String,
}

/// How a write is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    /// Everything but the change itself.
    pub(crate) dry_run: bool,
    /// A new object's status, uid and time of creation are taken over where it brings them.
    pub(crate) keep_status: bool,
}

// === impl WriteTarget ===

impl WriteTarget {
    pub(crate) fn collection(gvr: GroupVersionResource, namespace: Option<&str>) -> Self {
        Self {
            gvr,
            namespace: namespace.map(str::to_owned),
            name: String::new(),
        }
    }

    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace.as_deref(), &self.name)
    }

    pub(crate) fn named(&self, key: &ObjectKey) -> Self {
        let namespace = Some(key.namespace()).filter(|namespace| !namespace.is_empty());
        Self {
            gvr: self.gvr.clone(),
            namespace: namespace.map(str::to_owned),
            name: key.name().to_owned(),
        }
    }
}

// === impl State ===

impl State {
    /// The kind that `target` is of.
    ///
    /// # Errors
    ///
    /// 404 when it isn't served, or in the other scope.
    pub(crate) fn kind(&self, target: &WriteTarget) -> Result<Kind, Status> {
        let collection = self.collections.get(&target.gvr);
        let kind = collection.map(|collection| &collection.served_kind.kind);
        let kind = kind.ok_or_else(Status::path_not_found)?;
        match kind.resource.namespaced == target.namespace.is_some() {
            true => Ok(kind.clone()),
            false => Err(Status::path_not_found()),
        }
    }

    /// The object.
    ///
    /// # Errors
    ///
    /// 404.
    pub(crate) fn current(&self, target: &WriteTarget) -> Result<Value, Status> {
        let collection = self.collections.get(&target.gvr);
        let object = collection.and_then(|collection| collection.get(&target.key()));
        object.ok_or_else(|| Status::not_found(&target.gvr, &target.name))
    }

    /// The newest change's version.
    pub(crate) fn revision(&self) -> ResourceVersion {
        ResourceVersion(self.revision)
    }

    /// Makes the change at the next revision, unless it is only tried, and gives the object as it
    /// then is.
    ///
    /// # Errors
    ///
    /// When the object can't be stored.
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
            self.revision += 1;
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

    /// Serves what a definition defines, or no longer.
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
                let collection = Collection::new(kind, self.revision());
                self.collections.insert(gvr, collection);
            }
            EventType::Added | EventType::Modified => {}
        }
    }
}
