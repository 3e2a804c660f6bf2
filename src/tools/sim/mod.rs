//! A simulated API server: kubefan's serving code over a writable store.
//!
//! The simulator lets users try kubefan without a cluster, and lets tests inject faults. It has no
//! controllers, no schemas, no admission and no users: every client may do everything. It serves
//! only JSON.
//!
//! A [`Simulator`] holds the store and the injected faults. [`Simulator::answer`] handles the
//! requests of clients, and [`Admin`] handles requests to inject faults. [`Simulator::create`] and
//! the other writing methods are for callers inside the process; they skip rules that apply only to
//! clients.

mod admin;
mod faults;
mod kinds;
mod layout;
mod metadata;
mod print;
mod read;
mod refusal;
mod requests;
mod store;
mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use admin::Admin;
pub use faults::{FaultInjector, RequestFault, WatchFault};
use kubefan_core::api::{GroupVersionResource, ObjectKey, ResourceVersion, Status};
use kubefan_core::shutdown::Shutdown;
use serde_json::{Value, json};
use store::{Store, WriteOptions, WriteTarget};
use write::rules::ObjectPart;
use write::verbs::Preconditions;

/// The namespaces that every new cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// A simulated API server. Clones are cheap and share their state.
#[derive(Clone)]
pub struct Simulator {
    store: Arc<Store>,
    faults: FaultInjector,
    shutdown: Shutdown,
}

/// An error in a text with CustomResourceDefinitions.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not valid YAML.
    #[error("not YAML: {0}")]
    Yaml(String),
    /// The API server would refuse a definition, with this message.
    #[error("{0}")]
    Refused(String),
    /// The text has no CustomResourceDefinition.
    #[error("it has no CustomResourceDefinition")]
    NoDefinition,
}

// === impl Simulator ===

impl Simulator {
    /// Creates a cluster that holds only the usual namespaces. Its watches end in the corresponding
    /// phase of `shutdown`.
    ///
    /// # Panics
    ///
    /// Never: the namespaces are valid.
    pub fn new(shutdown: Shutdown) -> Self {
        let simulator = Self {
            store: Arc::new(Store::new()),
            faults: FaultInjector::default(),
            shutdown,
        };
        for name in NAMESPACES {
            let namespace = json!({
                "kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name},
            });
            let created = simulator.create(&kinds::namespaces(), None, namespace);
            created.expect("an empty store takes a valid namespace");
        }
        simulator
    }

    /// Creates the CustomResourceDefinitions in a YAML text, which may contain several documents.
    /// Ignores documents of other kinds.
    ///
    /// # Errors
    ///
    /// If the text is not valid YAML, or has no definition, or if a definition is refused.
    pub fn define(&self, yaml: &str) -> Result<(), Error> {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(yaml).map_err(|error| Error::Yaml(error.to_string()))?;
        let gvr = kinds::definitions();
        let is_definition = |document: &Value| document["kind"] == "CustomResourceDefinition";
        let definitions: Vec<_> = documents.into_iter().filter(is_definition).collect();
        if definitions.is_empty() {
            return Err(Error::NoDefinition);
        }
        for definition in definitions {
            let created = self.create(&gvr, None, definition);
            created.map_err(|status| Error::Refused(status.message))?;
        }
        Ok(())
    }

    /// Creates `object` and returns it as stored. The stored object has the status, the uid and the
    /// creation time of `object` if `object` has them.
    ///
    /// # Errors
    ///
    /// 400, 404, 409 or 422, as from the API server.
    pub fn create(
        &self,
        gvr: &GroupVersionResource,
        namespace: Option<&str>,
        object: Value,
    ) -> Result<Value, Status> {
        let target = WriteTarget::new(gvr, namespace, "");
        let options = WriteOptions {
            keep_status: true,
            ..WriteOptions::default()
        };
        let create = |state: &mut store::State| state.create(&target, object, options);
        self.store.write(create)
    }

    /// Stores `object` under its name, and creates or replaces it. Sets only its resource version,
    /// and checks no rules, because the object comes from a generator.
    ///
    /// # Errors
    ///
    /// 404 if the kind is not served, 400 if `object` is not a valid object.
    pub fn put(
        &self,
        gvr: &GroupVersionResource,
        namespace: Option<&str>,
        object: Value,
    ) -> Result<(), Status> {
        let target = WriteTarget::new(gvr, namespace, metadata::text(&object, "name"));
        self.store.write(|state| state.put(&target, object))
    }

    /// Replaces an object including its status. If `object` has a resource version,
    /// that version must be current.
    ///
    /// # Errors
    ///
    /// 400, 404 or 409, as from the API server.
    pub fn update(
        &self,
        gvr: &GroupVersionResource,
        namespace: Option<&str>,
        object: Value,
    ) -> Result<Value, Status> {
        let target = WriteTarget::new(gvr, namespace, metadata::text(&object, "name"));
        let options = WriteOptions::default();
        let update =
            |state: &mut store::State| state.update(&target, object, ObjectPart::Whole, options);
        self.store.write(update)
    }

    /// Deletes an object.
    ///
    /// # Errors
    ///
    /// 404 if the object does not exist.
    pub fn delete(
        &self,
        gvr: &GroupVersionResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<(), Status> {
        let target = WriteTarget::new(gvr, namespace, name);
        let (none, options) = (Preconditions::default(), WriteOptions::default());
        let delete = |state: &mut store::State| state.delete(&target, &none, options);
        self.store.write(delete).map(|_| ())
    }

    /// Returns the current state of an object.
    ///
    /// # Errors
    ///
    /// 404 if the object does not exist.
    pub fn get(
        &self,
        gvr: &GroupVersionResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Value, Status> {
        let target = WriteTarget::new(gvr, namespace, name);
        self.store.write(|state| state.current(&target))
    }

    /// Returns the keys and versions of the objects that a field
    /// selector selects; empty selects all.
    ///
    /// # Errors
    ///
    /// 404 if the kind is not served, 400 if the selector is not valid.
    pub fn versions(
        &self,
        gvr: &GroupVersionResource,
        field_selector: &str,
    ) -> Result<Vec<(ObjectKey, ResourceVersion)>, Status> {
        let served_kind = self.store.served_kind(gvr);
        let served_kind = served_kind.ok_or_else(Status::path_not_found)?;
        served_kind.versions(field_selector)
    }

    /// Drops all history, so that watches and lists at an older version get 410. Returns the oldest
    /// version that watches can still start at.
    pub fn compact(&self) -> ResourceVersion {
        self.store.compact()
    }

    /// Simulates a restored backup: sets the resource version to half its value, ends all watches,
    /// and returns the new version. The objects stay.
    pub fn restore_backup(&self) -> ResourceVersion {
        self.store.restore()
    }

    /// Returns the injector for faults of this simulator.
    pub fn faults(&self) -> &FaultInjector {
        &self.faults
    }
}
