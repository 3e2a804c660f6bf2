//! Builds the parts that all objects share: type, metadata and managed fields.

use serde_json::{Map, Value, json};

use crate::workload::clock::time;
use crate::workload::cluster::Identity;
use crate::workload::render::managed_fields;

/// An object under construction.
///
/// Values are moved into the draft. Using them inside `json!` would copy them member by member.
pub(super) struct Draft {
    object: Map<String, Value>,
    metadata: Map<String, Value>,
    managers: Vec<Value>,
}

impl Draft {
    pub(super) fn new(api_version: &str, kind: &str, identity: &Identity) -> Self {
        let mut draft = Self {
            object: Map::new(),
            metadata: Map::new(),
            managers: Vec::new(),
        };
        draft.set("apiVersion", json!(api_version));
        draft.set("kind", json!(kind));
        draft.meta("name", json!(identity.name));
        if !identity.namespace.is_empty() {
            draft.meta("namespace", json!(identity.namespace));
        }
        draft.meta("uid", json!(identity.uid));
        draft.meta("creationTimestamp", json!(time(identity.created)));
        draft
    }

    /// Sets a top-level member other than `metadata`.
    pub(super) fn set(&mut self, key: &str, value: Value) {
        self.object.insert(key.to_owned(), value);
    }

    /// Changes a top-level member that was set before.
    pub(super) fn change(&mut self, key: &str, change: impl FnOnce(&mut Value)) {
        if let Some(part) = self.object.get_mut(key) {
            change(part);
        }
    }

    pub(super) fn meta(&mut self, key: &str, value: Value) {
        self.metadata.insert(key.to_owned(), value);
    }

    /// Sets the owner reference to the object's controller.
    pub(super) fn owner(&mut self, api_version: &str, kind: &str, owner: &Identity) {
        let reference = json!({
            "apiVersion": api_version,
            "kind": kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        });
        self.meta("ownerReferences", Value::Array(vec![reference]));
    }

    /// Names the field manager of everything that was set so far, except the status.
    pub(super) fn managed_by(&mut self, manager: &str, seconds: i64) {
        let fields = managed_fields::of_object(&self.object, &self.metadata);
        self.manager(manager, seconds, fields, None);
    }

    /// Sets the status and names its field manager.
    pub(super) fn status(&mut self, status: Value, manager: &str, seconds: i64) {
        let mut fields = Map::new();
        fields.insert("f:status".to_owned(), managed_fields::of_part(&status));
        self.manager(manager, seconds, Value::Object(fields), Some("status"));
        self.set("status", status);
    }

    fn manager(&mut self, name: &str, seconds: i64, fields: Value, subresource: Option<&str>) {
        let mut entry = json!({
            "apiVersion": self.object["apiVersion"],
            "fieldsType": "FieldsV1",
            "manager": name,
            "operation": "Update",
            "time": time(seconds),
        });
        entry["fieldsV1"] = fields;
        if let Some(subresource) = subresource {
            entry["subresource"] = json!(subresource);
        }
        self.managers.push(entry);
    }

    pub(super) fn finish(mut self) -> Value {
        if !self.managers.is_empty() {
            let managers = Value::Array(std::mem::take(&mut self.managers));
            self.meta("managedFields", managers);
        }
        let metadata = Value::Object(std::mem::take(&mut self.metadata));
        self.set("metadata", metadata);
        Value::Object(self.object)
    }
}
