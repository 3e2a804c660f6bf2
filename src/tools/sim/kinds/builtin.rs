//! The table of the built-in kinds that the simulator serves.

use std::sync::Arc;

use kubefan_core::api::{
    FieldValue, GroupVersionResource, Resource, SelectableField, SelectableFields,
};
use serde_json::Value;

/// A served kind, as discovery describes it.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) resource: Arc<Resource>,
    pub(crate) fields: Arc<SelectableFields>,
    pub(crate) categories: Vec<String>,
    pub(crate) has_status: bool,
    pub(crate) has_scale: bool,
    /// True for custom resources; the keys of their objects are encoded in sorted order.
    pub(crate) is_custom: bool,
    /// The schema in the definition of a custom resource; `None` for a built-in kind, or if the
    /// definition has none.
    pub(crate) schema: Option<Arc<Value>>,
}

impl Kind {
    /// Returns the annotation that the objects themselves have but that the metadata in Tables
    /// lacks, because the API server does not store it as an annotation.
    pub(crate) fn hidden_annotation(&self) -> Option<&'static str> {
        let is_daemon_set = !self.is_custom && self.resource.kind == "DaemonSet";
        is_daemon_set.then_some("deprecated.daemonset.template.generation")
    }
}

const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// A kind's group, version, plural name, kind, short names and flags. The flags are `n` for
/// namespaced, `s` for a status subresource, `c` for a scale subresource, and `a` for the category
/// `all`.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static str,
);

const BUILTIN: &[Row] = &[
    ("", "v1", "configmaps", "ConfigMap", &["cm"], "n"),
    ("", "v1", "endpoints", "Endpoints", &["ep"], "n"),
    ("", "v1", "events", "Event", &["ev"], "n"),
    ("", "v1", "namespaces", "Namespace", &["ns"], "s"),
    ("", "v1", "nodes", "Node", &["no"], "s"),
    (
        "",
        "v1",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        &["pvc"],
        "ns",
    ),
    ("", "v1", "pods", "Pod", &["po"], "nsa"),
    ("", "v1", "secrets", "Secret", &[], "n"),
    ("", "v1", "serviceaccounts", "ServiceAccount", &["sa"], "n"),
    ("", "v1", "services", "Service", &["svc"], "nsa"),
    (
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        &["crd", "crds"],
        "s",
    ),
    ("apps", "v1", "daemonsets", "DaemonSet", &["ds"], "nsa"),
    (
        "apps",
        "v1",
        "deployments",
        "Deployment",
        &["deploy"],
        "nsca",
    ),
    ("apps", "v1", "replicasets", "ReplicaSet", &["rs"], "nsca"),
    (
        "apps",
        "v1",
        "statefulsets",
        "StatefulSet",
        &["sts"],
        "nsca",
    ),
    ("batch", "v1", "cronjobs", "CronJob", &["cj"], "nsa"),
    ("batch", "v1", "jobs", "Job", &[], "nsa"),
    ("coordination.k8s.io", "v1", "leases", "Lease", &[], "n"),
    (
        "discovery.k8s.io",
        "v1",
        "endpointslices",
        "EndpointSlice",
        &[],
        "n",
    ),
];

/// The paths of the fields that can select Events. A field's name in a selector is its path,
/// without a trailing `.component`.
const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source.component",
    "type",
];

/// Returns the resource `customresourcedefinitions`.
pub(crate) fn definitions() -> GroupVersionResource {
    GroupVersionResource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions")
}

/// Returns the resource `namespaces`.
pub(crate) fn namespaces() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "namespaces")
}

/// Returns the built-in kinds that the simulator serves.
pub(crate) fn builtin() -> impl Iterator<Item = Kind> {
    BUILTIN.iter().map(kind)
}

fn kind(&(group, version, plural, kind, short_names, flags): &Row) -> Kind {
    let resource = Resource {
        gvr: GroupVersionResource::new(group, version, plural),
        kind: kind.to_owned(),
        singular: kind.to_lowercase(),
        short_names: short_names.iter().map(|&name| name.to_owned()).collect(),
        namespaced: flags.contains('n'),
        verbs: match kind {
            "Namespace" => all_verbs()
                .into_iter()
                .filter(|verb| verb != "deletecollection")
                .collect(),
            _ => all_verbs(),
        },
    };
    let fields = match kind {
        "Event" => event_fields(),
        _ => SelectableFields::for_resource(&resource, None),
    };
    Kind {
        resource: Arc::new(resource),
        fields: Arc::new(fields),
        categories: flags
            .contains('a')
            .then(|| "all".to_owned())
            .into_iter()
            .collect(),
        has_status: flags.contains('s'),
        has_scale: flags.contains('c'),
        is_custom: false,
        schema: None,
    }
}

/// Returns the verbs that every kind supports.
pub(crate) fn all_verbs() -> Vec<String> {
    VERBS.map(str::to_owned).to_vec()
}

fn event_fields() -> SelectableFields {
    let field = |&label: &&str| SelectableField {
        label: label.trim_end_matches(".component").to_owned(),
        json_path: label.split('.').map(str::to_owned).collect(),
        protobuf_path: Vec::new(),
        value: FieldValue::Text,
    };
    SelectableFields {
        fields: EVENT_FIELDS.iter().map(field).collect(),
        ..SelectableFields::default()
    }
}
