//! A simulated API server: the serving code of kubefan over a store that can be written to.
//!
//! It is for trying kubefan without a cluster and for tests of faults. There are no controllers, no
//! schemas, no admission and no users: whoever connects may do everything. JSON only.
//!
//! A [`Simulator`] is the store with its faults; [`Simulator::answer`] is what clients talk to, and
//! [`Admin`] is where faults are asked for. [`Simulator::create`] and its kin write from inside the
//! process, past the rules that only clients have to keep.

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

use serde_json::Value;
use serde_json::json;

use crate::api::GroupVersionResource;
use crate::api::ResourceVersion;
use crate::api::Status;
use crate::shutdown::Shutdown;

pub use admin::Admin;
pub use faults::FaultInjector;
pub use faults::RequestFault;
pub use faults::WatchFault;

use store::Store;
use store::WriteOptions;
use store::WriteTarget;
use write::rules::ObjectPart;
use write::verbs::Preconditions;

/// Namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// A simulated API server. Cheap to clone.
#[derive(Clone)]
pub struct Simulator {
    store: Arc<Store>,
    faults: FaultInjector,
    shutdown: Shutdown,
}

/// A file of definitions that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no YAML, or no JSON.
    #[error("not YAML: {0}")]
    Yaml(String),
    /// The API server would refuse it.
    #[error("{0}")]
    Refused(String),
}

// === impl Simulator ===

impl Simulator {
    /// A cluster with the usual namespaces and nothing in them. Its watches end when `shutdown`
    /// says so.
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
            let target = WriteTarget::collection(kinds::namespaces(), None);
            let options = WriteOptions::default();
            let create = |state: &mut store::State| state.create(&target, namespace, options);
            let created = simulator.store.write(create);
            created.expect("an empty store takes a valid namespace");
        }
        simulator
    }

    /// Creates the CustomResourceDefinitions of a YAML text, which may hold several documents, and
    /// passes over all else in it.
    ///
    /// # Errors
    ///
    /// When the text can't be read, or a definition is refused.
    pub fn define(&self, yaml: &str) -> Result<(), Error> {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(yaml).map_err(|error| Error::Yaml(error.to_string()))?;
        let gvr = kinds::definitions();
        for document in documents {
            if document["kind"] == "CustomResourceDefinition" {
                let created = self.create(&gvr, None, document);
                created.map_err(|status| Error::Refused(status.message))?;
            }
        }
        Ok(())
    }

    /// Creates `object` with the status, uid and time of creation that it brings, and gives it as
    /// stored.
    ///
    /// # Errors
    ///
    /// As the API server answers: 404, 409, 422.
    pub fn create(
        &self,
        gvr: &GroupVersionResource,
        namespace: Option<&str>,
        object: Value,
    ) -> Result<Value, Status> {
        let target = WriteTarget::collection(gvr.clone(), namespace);
        let options = WriteOptions {
            keep_status: true,
            ..WriteOptions::default()
        };
        let create = |state: &mut store::State| state.create(&target, object, options);
        self.store.write(create)
    }

    /// Stores `object` as it stands under its name, whatever was there; only its resource version
    /// is the store's. No rule is checked: it is for objects that a generator made.
    ///
    /// # Errors
    ///
    /// 404 for a kind that isn't served, 400 for what is no object.
    pub fn put(
        &self,
        gvr: &GroupVersionResource,
        namespace: Option<&str>,
        object: Value,
    ) -> Result<(), Status> {
        let target = WriteTarget {
            name: metadata::text(&object, "name").to_owned(),
            ..WriteTarget::collection(gvr.clone(), namespace)
        };
        self.store.write(|state| state.put(&target, object))
    }

    /// Replaces an object, its status included; the newest wins unless it carries a version.
    ///
    /// # Errors
    ///
    /// As the API server answers: 404, 409.
    pub fn update(
        &self,
        gvr: &GroupVersionResource,
        namespace: Option<&str>,
        object: Value,
    ) -> Result<Value, Status> {
        let target = WriteTarget {
            name: metadata::text(&object, "name").to_owned(),
            ..WriteTarget::collection(gvr.clone(), namespace)
        };
        let options = WriteOptions::default();
        let update =
            |state: &mut store::State| state.update(&target, object, ObjectPart::Whole, options);
        self.store.write(update)
    }

    /// Deletes an object.
    ///
    /// # Errors
    ///
    /// 404.
    pub fn delete(
        &self,
        gvr: &GroupVersionResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<(), Status> {
        let target = WriteTarget {
            name: name.to_owned(),
            ..WriteTarget::collection(gvr.clone(), namespace)
        };
        let (none, options) = (Preconditions::default(), WriteOptions::default());
        let delete = |state: &mut store::State| state.delete(&target, &none, options);
        self.store.write(delete).map(|_| ())
    }

    /// The object as it is now.
    ///
    /// # Errors
    ///
    /// 404.
    pub fn get(
        &self,
        gvr: &GroupVersionResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Value, Status> {
        let target = WriteTarget {
            name: name.to_owned(),
            ..WriteTarget::collection(gvr.clone(), namespace)
        };
        self.store.write(|state| state.current(&target))
    }

    /// Forgets all history: watches and lists from before have to begin anew. Gives the version
    /// from which on watches can start.
    pub fn compact(&self) -> ResourceVersion {
        self.store.compact()
    }

    /// Goes back to half the resource version, as a cluster restored from a backup; all watches
    /// end. Gives the version.
    pub fn restore_backup(&self) -> ResourceVersion {
        self.store.restore()
    }

    /// The faults to ask for.
    pub fn faults(&self) -> &FaultInjector {
        &self.faults
    }
}
