//! The built-in kinds that the simulator serves: a table.

use std::sync::Arc;

use crate::api::FieldValue;
use crate::api::GroupVersionResource;
use crate::api::Resource;
use crate::api::SelectableField;
use crate::api::SelectableFields;

/// One kind as discovery tells it, and how it is stored.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) resource: Arc<Resource>,
    pub(crate) fields: Arc<SelectableFields>,
    pub(crate) categories: Vec<String>,
    pub(crate) has_status: bool,
    pub(crate) has_scale: bool,
    /// Its objects' keys are printed sorted.
    pub(crate) is_custom: bool,
}

impl Kind {
    /// An annotation that stands in whole objects only: the API server keeps it elsewhere.
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

/// Group, version, plural, kind, short names, flags: n(amespaced), s(tatus), c (scale), a(ll).
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

/// What an Event can be selected by: label, path, from the root.
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

/// The definitions of custom resources.
pub(crate) fn definitions() -> GroupVersionResource {
    GroupVersionResource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions")
}

/// Namespaces.
pub(crate) fn namespaces() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "namespaces")
}

/// All built-in kinds.
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
        _ => SelectableFields::for_resource(&resource),
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
    }
}

/// What every kind can be asked for.
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
        accepts_namespace: true,
        aliases: Vec::new(),
    }
}
