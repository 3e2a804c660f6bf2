//! The parts of the discovery documents that kubefan reads, and their conversion to resources.

use std::collections::HashSet;

use serde::Deserialize;

use super::rest_mapper::{CustomResource, GroupVersion};
use crate::api::{GroupVersionResource, Resource};

/// The discovered resources of some or all group-versions.
#[derive(Clone, Default)]
pub(super) struct DiscoveredResources {
    pub(super) resources: Vec<Resource>,
    /// The group-versions with resources that could not be fetched.
    pub(super) unknown: HashSet<GroupVersion>,
}

/// A document of aggregated discovery; its groups and versions are in order of preference.
#[derive(Deserialize)]
pub(super) struct ApiGroupDiscoveryList {
    #[serde(default)]
    items: Vec<ApiGroupDiscovery>,
}

#[derive(Deserialize)]
struct ApiGroupDiscovery {
    metadata: ObjectMeta,
    #[serde(default)]
    versions: Vec<ApiVersionDiscovery>,
}

#[derive(Deserialize)]
struct ApiVersionDiscovery {
    version: String,
    #[serde(default)]
    resources: Vec<ApiResourceDiscovery>,
    /// `Current`, or `Stale` if the aggregated API server did not answer the API server.
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiResourceDiscovery {
    resource: String,
    response_kind: Option<GroupVersionKind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    singular_resource: String,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct GroupVersionKind {
    kind: String,
}

/// The document at `/api` if discovery is not aggregated.
#[derive(Deserialize)]
pub(super) struct ApiVersions {
    versions: Vec<String>,
}

/// The document at `/apis` if discovery is not aggregated.
#[derive(Deserialize)]
pub(super) struct ApiGroupList {
    groups: Vec<ApiGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiGroup {
    name: String,
    versions: Vec<GroupVersionForDiscovery>,
    preferred_version: Option<GroupVersionForDiscovery>,
}

#[derive(Deserialize)]
struct GroupVersionForDiscovery {
    version: String,
}

/// The document at `/api/v1` and `/apis/GROUP/VERSION` if discovery is not aggregated.
#[derive(Deserialize)]
pub(super) struct ApiResourceList {
    #[serde(default)]
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiResource {
    name: String,
    #[serde(default)]
    singular_name: String,
    namespaced: bool,
    kind: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
}

/// A list of APIServices or CustomResourceDefinitions.
#[derive(Deserialize)]
pub(super) struct ObjectList<T> {
    #[serde(default)]
    pub(super) metadata: ListMeta,
    #[serde(default = "Vec::new")]
    pub(super) items: Vec<T>,
}

#[derive(Default, Deserialize)]
pub(super) struct ListMeta {
    #[serde(default, rename = "continue")]
    pub(super) continue_token: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectMeta {
    name: String,
    uid: String,
    generation: i64,
}

#[derive(Deserialize)]
pub(super) struct ApiService {
    pub(super) spec: ApiServiceSpec,
}

#[derive(Deserialize)]
pub(super) struct ApiServiceSpec {
    #[serde(default)]
    pub(super) group: String,
    #[serde(default)]
    pub(super) version: String,
    /// The aggregated API server's service; absent if the API server itself serves the group.
    pub(super) service: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
pub(super) struct CustomResourceDefinition {
    metadata: ObjectMeta,
    spec: CustomResourceDefinitionSpec,
    #[serde(default)]
    status: CustomResourceDefinitionStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CustomResourceDefinitionStatus {
    #[serde(default)]
    accepted_names: CustomResourceNames,
}

#[derive(Deserialize)]
struct CustomResourceDefinitionSpec {
    group: String,
    names: CustomResourceNames,
    versions: Vec<CustomResourceVersion>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CustomResourceNames {
    plural: String,
    kind: String,
    list_kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CustomResourceVersion {
    name: String,
    served: bool,
    #[serde(default)]
    selectable_fields: Vec<CustomResourceField>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CustomResourceField {
    json_path: String,
}

impl ApiGroupDiscoveryList {
    /// Converts the document to resources, without subresources. A stale group-version has its last
    /// known resources; if the document contains none, the group-version is unknown.
    pub(super) fn into_discovered(self) -> DiscoveredResources {
        let mut discovered = DiscoveredResources::default();
        for group in self.items {
            let group_name = group.metadata.name;
            for version in group.versions {
                if version.freshness == "Stale" && version.resources.is_empty() {
                    discovered
                        .unknown
                        .insert((group_name.clone(), version.version));
                    continue;
                }
                let resources = version.resources.into_iter();
                let resources = resources
                    .filter_map(|resource| resource.into_resource(&group_name, &version.version));
                discovered.resources.extend(resources);
            }
        }
        discovered
    }
}

impl DiscoveredResources {
    /// Appends the resources and unknown group-versions of `other`.
    pub(super) fn merge(mut self, other: Self) -> Self {
        self.resources.extend(other.resources);
        self.unknown.extend(other.unknown);
        self
    }
}

impl ApiResourceDiscovery {
    /// Converts the entry to a resource; `None` if it has only subresources, and no objects.
    fn into_resource(self, group: &str, version: &str) -> Option<Resource> {
        let kind = self.response_kind?.kind;
        (!kind.is_empty()).then(|| Resource {
            gvr: GroupVersionResource::new(group, version, self.resource),
            kind,
            singular: self.singular_resource,
            short_names: self.short_names,
            namespaced: self.scope == "Namespaced",
            verbs: self.verbs,
        })
    }
}

impl ApiVersions {
    /// Returns all group-versions of the core group.
    pub(super) fn group_versions(self) -> Vec<GroupVersion> {
        let versions = self.versions.into_iter();
        versions.map(|version| (String::new(), version)).collect()
    }
}

impl ApiGroupList {
    /// Returns all group-versions; each group's preferred version is before its other versions.
    pub(super) fn group_versions(self) -> Vec<GroupVersion> {
        let mut group_versions = Vec::new();
        for group in self.groups {
            let preferred = group.preferred_version.map(|preferred| preferred.version);
            let is_preferred = |version: &String| Some(version) == preferred.as_ref();
            let versions = group.versions.into_iter().map(|version| version.version);
            let (first, rest): (Vec<_>, Vec<_>) = versions.partition(is_preferred);
            let ordered = first.into_iter().chain(rest);
            group_versions.extend(ordered.map(|version| (group.name.clone(), version)));
        }
        group_versions
    }
}

impl ApiResourceList {
    /// Converts the document to the resources of a group-version, without subresources.
    pub(super) fn resources(self, (group, version): &GroupVersion) -> Vec<Resource> {
        let resources = self.resources.into_iter();
        let resources = resources.filter(|resource| !resource.name.contains('/'));
        resources
            .map(|resource| Resource {
                gvr: GroupVersionResource::new(group, version, resource.name),
                kind: resource.kind,
                singular: resource.singular_name,
                short_names: resource.short_names,
                namespaced: resource.namespaced,
                verbs: resource.verbs,
            })
            .collect()
    }
}

impl CustomResourceDefinition {
    /// Returns the custom resource in each of its served versions.
    pub(super) fn resources(self) -> Vec<(GroupVersionResource, CustomResource)> {
        let Self {
            metadata,
            spec,
            status,
        } = self;
        // A name in the spec is not accepted, and not used, if another definition has it already.
        let list_kind = [&status.accepted_names, &spec.names]
            .into_iter()
            .find(|names| !names.list_kind.is_empty())
            .filter(|names| names.list_kind != format!("{}List", names.kind))
            .map(|names| names.list_kind.clone());
        let served = spec.versions.into_iter().filter(|version| version.served);
        served
            .map(|version| {
                let gvr = GroupVersionResource::new(&spec.group, version.name, &spec.names.plural);
                let paths = version.selectable_fields.into_iter();
                let custom = CustomResource {
                    definition: (metadata.uid.clone(), metadata.generation),
                    selectable_json_paths: paths.map(|field| field.json_path).collect(),
                    list_kind: list_kind.clone(),
                };
                (gvr, custom)
            })
            .collect()
    }
}
