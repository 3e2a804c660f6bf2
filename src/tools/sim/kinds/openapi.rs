//! The simulator's OpenAPI v3 documents, and the fields of objects that these documents describe.
//!
//! `schemas.json` has the schemas of the built-in kinds as kube-apiserver serves them. The test
//! `record_the_schemas` writes it. The schema of a custom resource is the one in its definition.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::builtin::Kind;

/// The schemas of the built-in kinds and their parts, by name.
static SCHEMAS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("schemas.json")).expect("schemas.json holds schemas")
});

/// The schema that describes the metadata of all objects.
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
/// A schema with the descriptions of `apiVersion`, `kind` and `metadata` that all objects share.
const ANY_OBJECT: &str = "io.k8s.api.core.v1.ConfigMap";

/// Returns the index of the documents of `group_versions`, each in the
/// form `api/v1` or `apis/apps/v1`.
pub(crate) fn index(group_versions: impl Iterator<Item = String>) -> Value {
    let entry = |path: String| {
        let url = format!("/openapi/v3/{path}");
        (path, json!({ "serverRelativeURL": url }))
    };
    json!({ "paths": group_versions.map(entry).collect::<Map<_, _>>() })
}

/// Returns the document of one API version that has the kinds `kinds`.
pub(crate) fn document<'a>(kinds: impl Iterator<Item = &'a Kind>) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for kind in kinds {
        add_paths(&mut paths, kind);
        add_schemas(&mut schemas, kind);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes, simulated", "version": "unversioned"},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// Adds the paths that lead kubectl to the schema of a kind, and that show
/// that the server validates writes.
fn add_paths(paths: &mut Map<String, Value>, kind: &Kind) {
    let resource = &kind.resource;
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let operation = |parameters: &[&str]| {
        let parameters = parameters.iter().map(|name| parameter(name));
        json!({
            "parameters": parameters.collect::<Vec<_>>(),
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-group-version-kind": type_of(kind),
        })
    };
    let namespace = resource.namespaced.then_some("{namespace}");
    let collection = resource.gvr.path(namespace);
    let write = operation(&["dryRun", "fieldManager", "fieldValidation"]);
    paths.insert(format!("{collection}/{{name}}"), json!({ "patch": write }));
    let list = operation(&["labelSelector", "fieldSelector"]);
    paths.insert(collection, json!({ "get": list }));
}

fn add_schemas(schemas: &mut Map<String, Value>, kind: &Kind) {
    match &kind.schema {
        None => {
            let types = Value::from(vec![type_of(kind)]);
            let is_of_kind =
                |schema: &&String| SCHEMAS[*schema]["x-kubernetes-group-version-kind"] == types;
            for name in SCHEMAS.keys().filter(is_of_kind) {
                add_with_parts(schemas, name);
            }
        }
        Some(own) => {
            let mut schema = (**own).clone();
            if !schema["properties"].is_object() {
                schema["properties"] = json!({});
            }
            schema["x-kubernetes-group-version-kind"] = json!([type_of(kind)]);
            let properties = SCHEMAS[ANY_OBJECT]["properties"].as_object();
            for name in ["apiVersion", "kind", "metadata"] {
                let mut property = properties.map_or(Value::Null, |all| all[name].clone());
                if let Value::Object(property) = &mut property {
                    property.remove("default");
                }
                schema["properties"][name] = property;
            }
            let group = &kind.resource.gvr.group;
            let domain: Vec<_> = group.split('.').rev().collect();
            let (version, name) = (&kind.resource.gvr.version, &kind.resource.kind);
            let name = format!("{}.{version}.{name}", domain.join("."));
            schemas.insert(name, schema);
            add_with_parts(schemas, OBJECT_META);
        }
    }
}

fn type_of(kind: &Kind) -> Value {
    let gvr = &kind.resource.gvr;
    json!({"group": gvr.group, "version": gvr.version, "kind": kind.resource.kind})
}

/// Adds the schema `name` and all that it refers to.
fn add_with_parts(schemas: &mut Map<String, Value>, name: &str) {
    let mut missing = BTreeSet::from([name.to_owned()]);
    while let Some(name) = missing.pop_first() {
        if schemas.contains_key(&name) {
            continue;
        }
        add_references(&SCHEMAS[&name], &mut missing);
        schemas.insert(name.clone(), SCHEMAS[&name].clone());
    }
}

fn add_references(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            names.extend(reference(schema).map(str::to_owned));
            fields
                .values()
                .for_each(|field| add_references(field, names));
        }
        Value::Array(items) => items.iter().for_each(|item| add_references(item, names)),
        _ => {}
    }
}

/// Returns the name of the schema that `schema` refers to.
fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.rsplit('/').next()
}

// === The fields of an object ===

/// Removes the fields of `object` that its kind does not have, as the API server does when it
/// decodes the object, and returns their paths, such as `spec.containers[0].imagee`.
pub(crate) fn remove_unknown_fields(kind: &Kind, object: &mut Value) -> Vec<String> {
    let mut removed = Vec::new();
    let (schema, is_custom) = match &kind.schema {
        Some(own) => (&**own, true),
        None => {
            let types = Value::from(vec![type_of(kind)]);
            let of_kind = |schema: &&Value| schema["x-kubernetes-group-version-kind"] == types;
            match SCHEMAS.values().find(of_kind) {
                Some(schema) => (schema, false),
                None => return removed,
            }
        }
    };
    let walk = Walk { is_custom };
    walk.object(schema, object, "", &mut removed);
    removed
}

struct Walk {
    /// True for the schema of a custom resource: an object without properties has no fields.
    is_custom: bool,
}

impl Walk {
    /// Removes what `schema` does not describe from `value`, which is at `path`.
    fn value(&self, schema: &Value, value: &mut Value, path: &str, removed: &mut Vec<String>) {
        let schema = resolved(schema);
        match value {
            Value::Object(_) => self.object(schema, value, path, removed),
            Value::Array(items) if schema.get("items").is_some() => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.value(&schema["items"], item, &format!("{path}[{index}]"), removed);
                }
            }
            _ => {}
        }
    }

    fn object(&self, schema: &Value, value: &mut Value, path: &str, removed: &mut Vec<String>) {
        let Value::Object(fields) = value else {
            return;
        };
        let is_whole = path.is_empty() || schema["x-kubernetes-embedded-resource"] == true;
        let properties = schema["properties"].as_object();
        let others = &schema["additionalProperties"];
        let is_open = schema["x-kubernetes-preserve-unknown-fields"] == true
            || *others == true
            || (properties.is_none() && !self.is_custom);
        let at = |name: &str| match path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        fields.retain(|name, field| {
            let of_all = match name.as_str() {
                "apiVersion" | "kind" if is_whole => return true,
                "metadata" if is_whole && self.is_custom => Some(&SCHEMAS[OBJECT_META]),
                _ => None,
            };
            let described = properties.and_then(|properties| properties.get(name));
            match of_all.or(described) {
                Some(schema) => {
                    let walk = Walk {
                        is_custom: self.is_custom && of_all.is_none(),
                    };
                    walk.value(schema, field, &at(name), removed);
                }
                None if others.is_object() => self.value(others, field, &at(name), removed),
                None if is_open => {}
                None => {
                    removed.push(at(name));
                    return false;
                }
            }
            true
        });
    }
}

/// Returns `schema`, or the schema that it refers to.
fn resolved(schema: &Value) -> &Value {
    let name = reference(schema).or_else(|| reference(schema["allOf"].get(0)?));
    name.and_then(|name| SCHEMAS.get(name)).unwrap_or(schema)
}

#[cfg(test)]
mod tests {
    use super::super::builtin::builtin;
    use super::super::custom;
    use super::*;

    fn built_in(name: &str) -> Kind {
        let mut kinds = builtin();
        kinds
            .find(|kind| kind.resource.kind == name)
            .expect("a built-in kind")
    }

    #[test]
    fn each_built_in_kind_has_a_schema_with_all_its_parts() {
        for kind in builtin() {
            let document = document(std::iter::once(&kind));
            let schemas = document["components"]["schemas"]
                .as_object()
                .expect("schemas");
            let of_kind =
                |schema: &&Value| schema["x-kubernetes-group-version-kind"][0] == type_of(&kind);
            assert!(schemas.values().any(|schema| of_kind(&schema)), "{kind:?}");
            let mut referred = BTreeSet::new();
            schemas
                .values()
                .for_each(|schema| add_references(schema, &mut referred));
            let missing: Vec<_> = referred
                .iter()
                .filter(|name| !schemas.contains_key(*name))
                .collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    }

    #[test]
    fn unknown_fields_are_removed_and_others_stay() {
        let widgets = custom::kind(&json!({"spec": {
            "group": "x.example", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {
                    "empty": {"type": "object"},
                    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "map": {"type": "object", "additionalProperties": {
                        "type": "object", "properties": {"a": {"type": "integer"}},
                    }},
                    "pod": {
                        "type": "object", "x-kubernetes-embedded-resource": true,
                        "properties": {"spec": {"type": "object"}},
                    },
                }}},
            }}}],
        }}));
        let rows = [
            (
                built_in("ConfigMap"),
                json!({"data": {"a": "b"}, "dat": {}}),
                vec!["dat"],
            ),
            (
                built_in("Pod"),
                json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {"labels": {"a": "b"}, "label": {},
                        "managedFields": [{"fieldsV1": {"f:a": {}}}]},
                    "spec": {"nodeSelector": {"a": "b"}, "containers": [
                        {"name": "a", "image": "b"},
                        {"name": "c", "imagee": "b", "resources": {"limits": {"cpu": "1"}}},
                    ]},
                }),
                vec!["metadata.label", "spec.containers[1].imagee"],
            ),
            (
                widgets.expect("a complete definition"),
                json!({
                    "apiVersion": "x.example/v1", "kind": "Widget", "metadata": {"name": "a", "x": 1},
                    "spec": {
                        "empty": {"a": 1}, "any": {"a": 1}, "map": {"k": {"a": 1, "b": 2}},
                        "pod": {"kind": "Pod", "metadata": {"labels": {"c": "d"}}, "x": 1},
                    },
                    "status": {},
                }),
                vec![
                    "metadata.x",
                    "spec.empty.a",
                    "spec.map.k.b",
                    "spec.pod.x",
                    "status",
                ],
            ),
        ];
        for (kind, mut object, expected) in rows {
            let removed = remove_unknown_fields(&kind, &mut object);
            assert_eq!(removed, expected);
            assert_eq!(
                remove_unknown_fields(&kind, &mut object),
                [""; 0],
                "{object}"
            );
        }
    }
}
