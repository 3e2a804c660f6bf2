//! The rules for objects that clients send, and the fields that clients cannot change.

use std::collections::BTreeMap;

use kubefan_core::api::{Resource, Status};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::sim::kinds::Kind;
use crate::sim::store::WriteTarget;
use crate::sim::{metadata, refusal};

/// The part of an object that an update may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectPart {
    /// Everything except the status.
    Main,
    /// Only the status.
    Status,
    /// The object with its status; not available to clients.
    Whole,
}

/// Returns the object to store for an update. `part` of it comes from `object`, and everything that
/// a client cannot change comes from `current`.
pub(super) fn merged(
    kind: &Kind,
    current: &Value,
    mut object: Value,
    part: ObjectPart,
) -> Result<Value, Status> {
    let status = match part {
        ObjectPart::Main if kind.has_status => current.get("status").cloned(),
        _ => object.get("status").cloned(),
    };
    if part == ObjectPart::Status {
        object = current.clone();
    }
    let is_new_generation = is_new_generation(kind, current, &object);
    let generation = current["metadata"]["generation"].as_u64();
    let kept_keys = [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "generation",
    ];
    let fields = metadata::metadata_mut(&mut object)?;
    for key in kept_keys {
        match current["metadata"].get(key) {
            Some(value) => fields.insert(key.to_owned(), value.clone()),
            None => fields.shift_remove(key),
        };
    }
    if is_new_generation && let Some(generation) = generation {
        fields.insert("generation".to_owned(), (generation + 1).into());
    }
    if let Some(members) = object.as_object_mut() {
        match status {
            Some(status) => members.insert("status".to_owned(), status),
            None => members.shift_remove("status"),
        };
    }
    Ok(metadata::in_order(object, kind.is_custom))
}

/// Returns true if an update of `current` to `object` increases the generation.
fn is_new_generation(kind: &Kind, current: &Value, object: &Value) -> bool {
    // For EndpointSlices, a change of the labels increases the generation too.
    let labels = |value: &Value| value["metadata"]["labels"].clone();
    let is_relabelled = kind.resource.kind == "EndpointSlice" && labels(current) != labels(object);
    counts_generations(kind) && (is_relabelled || content(current) != content(object))
}

/// Returns the members of an object that are neither metadata nor status, in the order of their
/// names.
fn content(object: &Value) -> BTreeMap<&str, &Value> {
    let members = object.as_object().into_iter().flatten();
    members
        .map(|(key, value)| (key.as_str(), value))
        .filter(|(key, _)| !matches!(*key, "metadata" | "status"))
        .collect()
}

/// Removes from `object`, which is to be created, what a client cannot set, and sets its uid and
/// creation time. If `keep_status` is true, keeps the status, uid and creation time that it has.
pub(super) fn make_new(kind: &Kind, object: &mut Value, keep_status: bool) -> Result<(), Status> {
    if kind.has_status
        && !keep_status
        && let Some(members) = object.as_object_mut()
    {
        members.shift_remove("status");
    }
    let fields = metadata::metadata_mut(object)?;
    for key in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ] {
        fields.shift_remove(key);
    }
    if !keep_status || !fields.contains_key("uid") {
        fields.insert("uid".to_owned(), Uuid::new_v4().to_string().into());
    }
    if !keep_status || !fields.contains_key("creationTimestamp") {
        fields.insert("creationTimestamp".to_owned(), metadata::now().into());
    }
    Ok(())
}

/// Sets `kind` and `apiVersion` if they are absent, and refuses wrong values with 400.
pub(super) fn check_type(resource: &Resource, object: &mut Value) -> Result<(), Status> {
    let Some(members) = object.as_object_mut() else {
        return Err(Status::bad_request("the body is not an object"));
    };
    let expected = [
        ("kind", resource.kind.clone()),
        ("apiVersion", resource.gvr.api_version()),
    ];
    for (key, expected) in expected {
        let value = members
            .entry(key)
            .or_insert_with(|| expected.clone().into());
        if value.as_str() != Some(expected.as_str()) {
            let value = value.as_str().unwrap_or_default();
            return Err(Status::bad_request(format!(
                "the {key} in the data ({value}) does not match the expected {key} ({expected})"
            )));
        }
    }
    Ok(())
}

pub(super) fn check_namespace(target: &WriteTarget, object: &mut Value) -> Result<(), Status> {
    let fields = metadata::metadata_mut(object)?;
    let Some(namespace) = &target.namespace else {
        fields.shift_remove("namespace");
        return Ok(());
    };
    let value = fields
        .entry("namespace")
        .or_insert_with(|| namespace.clone().into());
    if value.as_str() == Some("") {
        *value = namespace.clone().into();
    }
    if value.as_str() == Some(namespace) {
        Ok(())
    } else {
        Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ))
    }
}

/// Returns the name of a new object: `metadata.name`, or one that is generated from `generateName`.
pub(super) fn name_for(resource: &Resource, object: &mut Value) -> Result<String, Status> {
    let name = metadata::text(object, "name").to_owned();
    if !name.is_empty() {
        return Ok(name);
    }
    let prefix = metadata::text(object, "generateName").to_owned();
    if prefix.is_empty() {
        let why = "Required value: name or generateName is required";
        return Err(refusal::invalid(resource, "", "metadata.name", why));
    }
    let name = metadata::generated_name(&prefix);
    metadata::metadata_mut(object)?.insert("name".to_owned(), name.clone().into());
    Ok(name)
}

pub(super) fn has_finalizers(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|finalizers| !finalizers.is_empty())
}

pub(super) fn counts_generations(kind: &Kind) -> bool {
    let uncounted = ["Namespace", "Node", "Service", "PersistentVolumeClaim"];
    let is_counted = !uncounted.contains(&kind.resource.kind.as_str());
    kind.is_custom || (kind.has_status && is_counted) || kind.resource.kind == "EndpointSlice"
}

/// Returns true for kinds with a DELETE that returns the deleted object instead of a Status.
pub(super) fn returns_deleted_object(kind: &Kind) -> bool {
    let kinds = ["Pod", "Service", "ServiceAccount", "PersistentVolumeClaim"];
    !kind.is_custom && kinds.contains(&kind.resource.kind.as_str())
}

pub(super) fn success(target: &WriteTarget, uid: &str) -> Value {
    let mut details = json!({"name": target.name, "kind": target.gvr.resource, "uid": uid});
    if !target.gvr.group.is_empty() {
        details["group"] = target.gvr.group.clone().into();
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}
