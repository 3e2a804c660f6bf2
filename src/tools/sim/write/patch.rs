//! The three supported patch formats.

use json_patch::Patch;
use kubefan_core::api::{Resource, Status};
use serde_json::Value;

use super::strategic;
use crate::sim::refusal;

/// The format of a patch, which its `Content-Type` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchFormat {
    /// A JSON merge patch (RFC 7386).
    Merge,
    /// A JSON patch (RFC 6902).
    Json,
    /// A strategic merge patch; only for built-in kinds.
    Strategic,
}

impl PatchFormat {
    /// Returns the patch format of a content type.
    ///
    /// # Errors
    ///
    /// 415 for any other content type, including server-side apply.
    pub(crate) fn of(content_type: &str) -> Result<Self, Status> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        match media_type {
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/json-patch+json" => Ok(Self::Json),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            apply if apply.starts_with("application/apply-patch") => {
                Err(refusal::not_simulated("server-side apply"))
            }
            other => Err(refusal::not_simulated(&format!(
                "patches of type {other:?}"
            ))),
        }
    }
}

/// Returns `object` with the patch `body` applied.
///
/// # Errors
///
/// 400 if `body` is not a patch, 415 for a strategic merge patch of a custom resource, 422 if the
/// patch cannot be applied.
pub(crate) fn apply(
    format: PatchFormat,
    body: &[u8],
    resource: &Resource,
    object: Value,
) -> Result<Value, Status> {
    let unreadable = |error: serde_json::Error| Status::bad_request(error.to_string());
    let mut patched = object;
    match format {
        PatchFormat::Json => {
            let patch: Patch = serde_json::from_slice(body).map_err(unreadable)?;
            let name = crate::sim::metadata::text(&patched, "name").to_owned();
            json_patch::patch(&mut patched, &patch).map_err(|error| {
                let message = format!(
                    "the server rejected our request due to an error in our request: {error}"
                );
                tracing::debug!(kind = resource.kind, name, %error, "a patch could not be applied");
                Status::failure(422, "Invalid", message)
            })?;
        }
        PatchFormat::Merge | PatchFormat::Strategic => {
            let patch: Value = serde_json::from_slice(body).map_err(unreadable)?;
            let Value::Object(patch) = patch else {
                return Err(Status::bad_request("a merge patch must be an object"));
            };
            if format == PatchFormat::Merge {
                json_patch::merge(&mut patched, &Value::Object(patch));
            } else if resource_has_strategies(resource) {
                strategic::merge(resource, &mut patched, patch)?;
            } else {
                let what = format!("strategic merge patches of {}", resource.gvr);
                return Err(refusal::not_simulated(&what));
            }
        }
    }
    Ok(patched)
}

/// Returns true for groups of built-in kinds. A real API server does not support strategic merge
/// patches for custom resources either.
fn resource_has_strategies(resource: &Resource) -> bool {
    let group = resource.gvr.group.as_str();
    !group.contains('.') || group.ends_with(".k8s.io")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn pods() -> Arc<Resource> {
        let mut kinds = crate::sim::kinds::builtin();
        let pods = kinds.find(|kind| kind.resource.kind == "Pod");
        pods.expect("pods are built in").resource
    }

    #[test]
    fn formats_by_media_type() {
        let rows = [
            ("application/merge-patch+json", Ok(PatchFormat::Merge)),
            (
                "application/json-patch+json; charset=utf-8",
                Ok(PatchFormat::Json),
            ),
            (
                "application/strategic-merge-patch+json",
                Ok(PatchFormat::Strategic),
            ),
            ("application/apply-patch+yaml", Err(415)),
            ("text/plain", Err(415)),
        ];
        for (media_type, expected) in rows {
            let format = PatchFormat::of(media_type).map_err(|status| status.code);
            assert_eq!(format, expected, "{media_type}");
        }
    }

    #[test]
    fn each_format_is_applied() {
        use PatchFormat::{Json, Merge, Strategic};
        let object = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"l": [1, 2]}});
        let rows = [
            (
                Merge,
                json!({"metadata": {"labels": {"a": null}}}),
                Ok(json!({"metadata": {"labels": {"b": "2"}}, "spec": {"l": [1, 2]}})),
            ),
            (
                Merge,
                json!({"spec": {"l": [{"name": "x"}]}}),
                Ok(
                    json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"l": [{"name": "x"}]}}),
                ),
            ),
            (Merge, json!([1]), Err(400)),
            (
                Strategic,
                json!({"spec": {"l": [3]}}),
                Ok(json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"l": [3]}})),
            ),
            (
                Strategic,
                json!({"spec": {"$patch": "replace"}}),
                Ok(json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {}})),
            ),
            (
                Json,
                json!([{"op": "replace", "path": "/spec/l/0", "value": 9}]),
                Ok(json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"l": [9, 2]}})),
            ),
            (
                Json,
                json!([{"op": "test", "path": "/spec/l/0", "value": 9}]),
                Err(422),
            ),
            (Json, json!({"op": "x"}), Err(400)),
        ];
        for (format, patch, expected) in rows {
            let body = patch.to_string();
            let patched = apply(format, body.as_bytes(), &pods(), object.clone());
            assert_eq!(
                patched.map_err(|status| status.code),
                expected,
                "{format:?} {body}"
            );
        }
    }
}
