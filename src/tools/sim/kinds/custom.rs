//! Custom resources and their definitions.
//!
//! Only the storage version of a custom resource is served, so there is no conversion. Of a schema,
//! only the names of fields are checked. Later changes of a definition have no effect.

use std::sync::Arc;

use kubefan_core::api::{GroupVersionResource, Resource, SelectableFields};
use serde_json::{Value, json};

use super::builtin;
use super::builtin::Kind;
use crate::sim::metadata;

/// Returns the kind that a CustomResourceDefinition defines; `None` if
/// the definition is incomplete.
pub(crate) fn kind(definition: &Value) -> Option<Kind> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let version = stored_version(definition)?;
    let namespaced = spec["scope"] == "Namespaced";
    let kind = names["kind"].as_str()?;
    let resource = Resource {
        gvr: GroupVersionResource::new(
            spec["group"].as_str()?,
            version["name"].as_str()?,
            names["plural"].as_str()?,
        ),
        kind: kind.to_owned(),
        singular: names["singular"]
            .as_str()
            .map_or_else(|| kind.to_lowercase(), str::to_owned),
        short_names: texts(&names["shortNames"]),
        namespaced,
        verbs: builtin::all_verbs(),
    };
    let paths: Vec<String> = version["selectableFields"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|field| field["jsonPath"].as_str().map(str::to_owned))
        .collect();
    Some(Kind {
        resource: Arc::new(resource),
        fields: Arc::new(SelectableFields::custom(namespaced, &paths)),
        categories: texts(&names["categories"]),
        has_status: version["subresources"].get("status").is_some(),
        has_scale: false,
        is_custom: true,
        schema: version["schema"]
            .get("openAPIV3Schema")
            .filter(|schema| schema.is_object())
            .map(|schema| Arc::new(schema.clone())),
    })
}

/// Sets the names and the status that the API server sets when it starts to serve a definition.
pub(crate) fn accept(definition: &mut Value) {
    let Some(version) = stored_version(definition) else {
        return;
    };
    let version = version["name"].clone();
    let mut names = definition["spec"]["names"].clone();
    if !names.is_object() {
        return;
    }
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    if names.get("singular").is_none() {
        names["singular"] = kind.to_lowercase().into();
    }
    if names.get("listKind").is_none() {
        names["listKind"] = format!("{kind}List").into();
    }
    definition["spec"]["names"] = names.clone();
    let condition = |name: &str, reason: &str, message: &str| {
        json!({
            "type": name, "status": "True", "lastTransitionTime": metadata::now(),
            "reason": reason, "message": message,
        })
    };
    definition["status"] = json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": names,
        "storedVersions": [version],
    });
}

fn stored_version(definition: &Value) -> Option<&Value> {
    let versions = definition["spec"]["versions"].as_array()?;
    versions.iter().find(|version| version["storage"] == true)
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}
