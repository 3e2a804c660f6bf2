//! The simulator's discovery documents (plain and aggregated), and its version.

use std::collections::BTreeMap;

use kubefan_core::api::Status;
use serde_json::{Value, json};

use super::builtin::Kind;
use super::openapi;

/// The media type of aggregated discovery, in `Accept` and in `Content-Type`.
pub(crate) const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The resources that are not stored and support only `create`: group and kind.
const REVIEWS: &[(&str, &str)] = &[
    ("authentication.k8s.io", "SelfSubjectReview"),
    ("authorization.k8s.io", "SelfSubjectAccessReview"),
];

/// Creates the 501 for the document of OpenAPI v2.
pub(crate) fn no_openapi_v2() -> Status {
    let message = "the simulated API server has OpenAPI v3 only";
    Status::failure(501, "NotImplemented", message)
}

/// Returns true if the simulator answers reviews of this group.
pub(crate) fn has_reviews(group: &str) -> bool {
    reviews(group).next().is_some()
}

/// Returns the document for the non-resource `path`. `aggregated` is true if the client accepts
/// aggregated discovery.
///
/// # Errors
///
/// 404 for unknown paths, and 501 for OpenAPI v2.
pub(crate) fn answer(path: &str, kinds: &[Kind], aggregated: bool) -> Result<Value, Status> {
    let segments: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    let groups = groups(kinds);
    match segments.as_slice() {
        ["version"] => Ok(version()),
        ["api"] if aggregated => Ok(group_list(&groups, |group| group.is_empty())),
        ["apis"] if aggregated => Ok(group_list(&groups, |group| !group.is_empty())),
        ["api"] => Ok(json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        })),
        ["apis"] => {
            let named = groups.iter().filter(|(group, _)| !group.is_empty());
            let groups: Vec<_> = named
                .map(|(group, kinds)| api_group(group, kinds))
                .collect();
            Ok(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["api", version] => resource_list(&groups, "", version),
        ["apis", group, version] => resource_list(&groups, group, version),
        ["apis", group] if !group.is_empty() => {
            let kinds = groups.get(*group).ok_or_else(Status::path_not_found)?;
            let mut answer = json!({"kind": "APIGroup", "apiVersion": "v1"});
            merge(&mut answer, api_group(group, kinds));
            Ok(answer)
        }
        ["openapi", "v3"] => Ok(openapi::index(group_versions(&groups))),
        ["openapi", "v3", "api", version] => openapi_of(&groups, "", version),
        ["openapi", "v3", "apis", group, version] => openapi_of(&groups, group, version),
        ["openapi", "v2"] => Err(no_openapi_v2()),
        [] => Ok(json!({"paths": ["/api", "/apis", "/healthz", "/livez", "/readyz", "/version"]})),
        _ => Err(Status::path_not_found()),
    }
}

type Groups<'a> = BTreeMap<&'a str, Vec<&'a Kind>>;

fn groups(kinds: &[Kind]) -> Groups<'_> {
    let mut groups = Groups::new();
    for kind in kinds {
        let group = kind.resource.gvr.group.as_str();
        groups.entry(group).or_default().push(kind);
    }
    for (group, _) in REVIEWS {
        groups.entry(group).or_default();
    }
    groups
}

fn reviews(group: &str) -> impl Iterator<Item = (String, &'static str)> {
    let of_group = REVIEWS.iter().filter(move |(of, _)| *of == group);
    of_group.map(|(_, kind)| (format!("{}s", kind.to_lowercase()), *kind))
}

/// Returns the versions of a group, sorted; reviews have the version `v1`.
fn versions<'a>(group: &str, kinds: &[&'a Kind]) -> Vec<&'a str> {
    let versions = kinds.iter().map(|kind| kind.resource.gvr.version.as_str());
    let mut versions: Vec<&str> = versions.collect();
    if reviews(group).next().is_some() {
        versions.push("v1");
    }
    versions.sort_unstable();
    versions.dedup();
    versions
}

fn group_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        _ => format!("{group}/{version}"),
    }
}

fn api_group(group: &str, kinds: &[&Kind]) -> Value {
    let versions: Vec<_> = versions(group, kinds)
        .into_iter()
        .map(|version| json!({"groupVersion": group_version(group, version), "version": version}))
        .collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    json!({"name": group, "versions": versions, "preferredVersion": preferred})
}

fn resource_list(groups: &Groups<'_>, group: &str, version: &str) -> Result<Value, Status> {
    let mut resources = Vec::new();
    for kind in kinds_of(groups, group, version)? {
        let resource = &kind.resource;
        let plural = &resource.gvr.resource;
        let mut entry = json!({
            "name": plural, "singularName": resource.singular,
            "namespaced": resource.namespaced, "kind": resource.kind, "verbs": resource.verbs,
        });
        add_texts(&mut entry, "shortNames", &resource.short_names);
        add_texts(&mut entry, "categories", &kind.categories);
        resources.push(entry);
        for (name, kind_name, group) in subresources(kind) {
            let mut entry = json!({
                "name": format!("{plural}/{name}"), "singularName": "",
                "namespaced": resource.namespaced,
            });
            if let Some((group, version)) = group {
                entry["group"] = group.into();
                entry["version"] = version.into();
            }
            entry["kind"] = kind_name.into();
            entry["verbs"] = json!(["get", "patch", "update"]);
            resources.push(entry);
        }
    }
    resources.extend(reviews(group).map(|(resource, kind)| {
        json!({
            "name": resource, "singularName": kind.to_lowercase(), "namespaced": false,
            "kind": kind, "verbs": ["create"],
        })
    }));
    let mut list = json!({"kind": "APIResourceList"});
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    list["groupVersion"] = group_version(group, version).into();
    list["resources"] = resources.into();
    Ok(list)
}

/// A subresource: its name, its kind, and the kind's group and version if they differ from the
/// resource's.
type Subresource = (&'static str, String, Option<(&'static str, &'static str)>);

fn subresources(kind: &Kind) -> Vec<Subresource> {
    let mut all = Vec::new();
    if kind.has_scale {
        all.push(("scale", "Scale".to_owned(), Some(("autoscaling", "v1"))));
    }
    if kind.has_status {
        all.push(("status", kind.resource.kind.clone(), None));
    }
    all
}

fn group_list(groups: &Groups<'_>, is_wanted: impl Fn(&str) -> bool) -> Value {
    let wanted = groups.iter().filter(|(group, _)| is_wanted(group));
    let items: Vec<_> = wanted
        .map(|(group, kinds)| {
            let versions: Vec<_> = versions(group, kinds)
                .into_iter()
                .map(|version| {
                    let of_version = kinds.iter();
                    let of_version = of_version.filter(|kind| kind.resource.gvr.version == version);
                    let stored = of_version.map(|kind| aggregated(kind));
                    let reviews = reviews(group).map(aggregated_review);
                    let resources: Vec<_> = stored.chain(reviews).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = match *group {
                "" => json!({}),
                group => json!({"name": group}),
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": items,
    })
}

fn aggregated(kind: &Kind) -> Value {
    let resource = &kind.resource;
    let gvr = &resource.gvr;
    // For built-in kinds, the API server leaves the group and version empty, because they equal
    // those of the enclosing list.
    let own = if kind.is_custom {
        (gvr.group.as_str(), gvr.version.as_str())
    } else {
        ("", "")
    };
    let response_kind = |kind: &str, group: &str, version: &str| json!({"group": group, "version": version, "kind": kind});
    let mut entry = json!({
        "resource": resource.gvr.resource,
        "responseKind": response_kind(&resource.kind, own.0, own.1),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    add_texts(&mut entry, "shortNames", &resource.short_names);
    add_texts(&mut entry, "categories", &kind.categories);
    let subresources: Vec<_> = subresources(kind)
        .into_iter()
        .map(|(name, kind, group)| {
            let (group, version) = group.unwrap_or(own);
            json!({
                "subresource": name, "responseKind": response_kind(&kind, group, version),
                "verbs": ["get", "patch", "update"],
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}

fn aggregated_review((resource, kind): (String, &str)) -> Value {
    json!({
        "resource": resource, "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": "Cluster", "singularResource": kind.to_lowercase(), "verbs": ["create"],
    })
}

/// Returns all API versions, in the form of their paths.
fn group_versions(groups: &Groups<'_>) -> impl Iterator<Item = String> {
    groups.iter().flat_map(|(group, kinds)| {
        let root = if group.is_empty() { "api" } else { "apis" };
        let path = move |version| format!("{root}/{}", group_version(group, version));
        versions(group, kinds).into_iter().map(path)
    })
}

fn openapi_of(groups: &Groups<'_>, group: &str, version: &str) -> Result<Value, Status> {
    let kinds = kinds_of(groups, group, version)?;
    Ok(openapi::document(kinds.into_iter()))
}

/// Returns the kinds of an API version, or 404 if it is not served.
fn kinds_of<'a>(groups: &Groups<'a>, group: &str, version: &str) -> Result<Vec<&'a Kind>, Status> {
    let kinds = groups.get(group).ok_or_else(Status::path_not_found)?;
    if !versions(group, kinds).contains(&version) {
        return Err(Status::path_not_found());
    }
    let mut kinds = kinds.clone();
    kinds.retain(|kind| kind.resource.gvr.version == version);
    Ok(kinds)
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.2+kubefan-sim", "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "",
        "compiler": "", "platform": "linux/amd64",
    })
}

fn add_texts(entry: &mut Value, key: &str, texts: &[String]) {
    if !texts.is_empty() {
        entry[key] = texts.into();
    }
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}
