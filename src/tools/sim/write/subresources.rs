//! The `scale` subresource, and the reviews that clients use to ask about
//! their identity and permissions.

use kubefan_core::api::Status;
use serde_json::{Value, json};

use super::rules::ObjectPart;
use crate::sim::store::{State, WriteOptions, WriteTarget};
use crate::sim::{metadata, refusal};

impl State {
    /// Returns the Scale of the object `target`.
    ///
    /// # Errors
    ///
    /// 404 if the object does not exist, or its kind has no `scale`.
    pub(crate) fn scale(&self, target: &WriteTarget) -> Result<Value, Status> {
        let kind = self.kind(target)?;
        if !kind.has_scale {
            return Err(if kind.is_custom {
                Status::not_found(&target.gvr, &target.name)
            } else {
                Status::path_not_found()
            });
        }
        Ok(scale_of(&self.current(target)?))
    }

    /// Sets the number of replicas of the object `target` to the number in `scale`; 0 if it is
    /// absent.
    ///
    /// # Errors
    ///
    /// 404 if the object does not exist, 409 if its version differs, 422 if the number is invalid.
    pub(crate) fn set_scale(
        &mut self,
        target: &WriteTarget,
        scale: &Value,
        options: WriteOptions,
    ) -> Result<Value, Status> {
        let kind = self.kind(target)?;
        let mut object = self.current(target)?;
        let replicas = &scale["spec"]["replicas"];
        if !replicas.is_null() && !replicas.is_u64() {
            let why = "Invalid value: must be greater than or equal to 0";
            let (resource, name) = (&kind.resource, &target.name);
            return Err(refusal::invalid(resource, name, "spec.replicas", why));
        }
        let version = metadata::text(scale, "resourceVersion");
        if !version.is_empty() {
            metadata::metadata_mut(&mut object)?
                .insert("resourceVersion".to_owned(), version.into());
        }
        let replicas = replicas.as_u64().unwrap_or_default();
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("replicas".to_owned(), replicas.into());
        }
        let updated = self.update(target, object, ObjectPart::Main, options)?;
        Ok(scale_of(&updated))
    }
}

fn scale_of(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut scale_metadata = serde_json::Map::new();
    for key in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = metadata.get(key) {
            scale_metadata.insert(key.to_owned(), value.clone());
        }
    }
    let labels = object["spec"]["selector"]["matchLabels"].as_object();
    let selector: Vec<_> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": scale_metadata,
        "spec": {"replicas": object["spec"]["replicas"].as_u64().unwrap_or_default()},
        "status": {
            "replicas": object["status"]["replicas"].as_u64().unwrap_or_default(),
            "selector": selector.join(","),
        },
    })
}

/// Answers a review: every client may do everything, and all clients have the same name.
///
/// # Errors
///
/// 404 for unknown reviews.
pub(crate) fn review(group: &str, resource: &str, review: Value) -> Result<Value, Status> {
    match (group, resource) {
        ("authorization.k8s.io", "selfsubjectaccessreviews") => Ok(json!({
            "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
            "metadata": {}, "spec": review["spec"],
            "status": {"allowed": true, "reason": "the simulated API server allows everything"},
        })),
        ("authentication.k8s.io", "selfsubjectreviews") => Ok(json!({
            "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"creationTimestamp": metadata::now()},
            "status": {"userInfo": {"username": "simulated", "groups": ["system:authenticated"]}},
        })),
        _ => Err(Status::path_not_found()),
    }
}
