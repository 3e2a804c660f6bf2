//! Builds the parts that all objects share: type, metadata and managed fields.

use serde_json::{Value, json};

use crate::workload::clock::time;
use crate::workload::cluster::Identity;
use crate::workload::render::managed_fields;

/// An object under construction.
///
/// Values are moved into the draft. Using them inside `json!` would copy them member by member.
pub(super) struct Draft {
    /// Everything but `metadata`.
    pub(super) object: Value,
    pub(super) metadata: Value,
    managers: Vec<Value>,
}

impl Draft {
    pub(super) fn new(api_version: &str, kind: &str, identity: &Identity) -> Self {
        let mut metadata = json!({"name": identity.name});
        if !identity.namespace.is_empty() {
            metadata["namespace"] = json!(identity.namespace);
        }
        metadata["uid"] = json!(identity.uid);
        metadata["creationTimestamp"] = json!(time(identity.created));
        Self {
            object: json!({"apiVersion": api_version, "kind": kind}),
            metadata,
            managers: Vec::new(),
        }
    }

    /// Sets the owner reference to the object's controller.
    pub(super) fn owner(&mut self, api_version: &str, kind: &str, owner: &Identity) {
        self.metadata["ownerReferences"] = json!([{
            "apiVersion": api_version,
            "kind": kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }]);
    }

    /// Names the field manager of everything that was set so far, except the status.
    pub(super) fn managed_by(&mut self, manager: &str, seconds: i64) {
        let fields = managed_fields::of_object(&self.object, &self.metadata);
        self.manager(manager, seconds, fields, None);
    }

    /// Sets the status and names its field manager.
    pub(super) fn status(&mut self, status: Value, manager: &str, seconds: i64) {
        let mut fields = json!({});
        fields["f:status"] = managed_fields::of_part(&status);
        self.manager(manager, seconds, fields, Some("status"));
        self.object["status"] = status;
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
            self.metadata["managedFields"] = Value::Array(self.managers);
        }
        self.object["metadata"] = self.metadata;
        self.object
    }
}
