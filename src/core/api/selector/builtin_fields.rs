//! A table of the selectable fields of the built-in kinds.
//!
//! It was made from the sources of Kubernetes 1.34 to 1.37 (field label conversions, selectable
//! fields and `generated.proto` files), and verified against a running API server.

use super::FieldValue::{Boolean, Integer, Text};
use super::{Field, FieldValue, SelectableField, SelectableFields};
use crate::api::Resource;

/// A selectable field: its name in selectors, protobuf field numbers and value type.
type Row = (&'static str, &'static [u32], FieldValue);

/// Fields with another JSON path than their name in selectors.
const RENAMED: [(&str, &str); 3] = [
    ("source", "source.component"),
    ("status.podIP", "status.podIPs.0.ip"),
    ("status.successful", "status.succeeded"),
];

const POD: &[Row] = &[
    ("spec.nodeName", &[2, 10], Text),
    ("spec.restartPolicy", &[2, 3], Text),
    ("spec.schedulerName", &[2, 19], Text),
    ("spec.serviceAccountName", &[2, 8], Text),
    ("spec.hostNetwork", &[2, 11], Boolean),
    ("status.phase", &[3, 1], Text),
    ("status.podIP", &[3, 12, 1], Text),
    ("status.nominatedNodeName", &[3, 11], Text),
];
const NODE: &[Row] = &[("spec.unschedulable", &[2, 4], Boolean)];
const NAMESPACE: &[Row] = &[("status.phase", &[3, 1], Text)];
const SECRET: &[Row] = &[("type", &[3], Text)];
const SERVICE: &[Row] = &[
    ("spec.clusterIP", &[2, 3], Text),
    ("spec.type", &[2, 4], Text),
];
const REPLICATION_CONTROLLER: &[Row] = &[("status.replicas", &[3, 1], Integer)];
const JOB: &[Row] = &[("status.successful", &[3, 5], Integer)];
const SIGNING_REQUEST: &[Row] = &[("spec.signerName", &[2, 7], Text)];
const TRUST_BUNDLE: &[Row] = &[("spec.signerName", &[2, 1], Text)];
const CERTIFICATE_REQUEST: &[Row] = &[
    ("spec.signerName", &[2, 1], Text),
    ("spec.podName", &[2, 2], Text),
    ("spec.nodeName", &[2, 6], Text),
];
const RESOURCE_SLICE: &[Row] = &[
    ("spec.nodeName", &[2, 3], Text),
    ("spec.driver", &[2, 1], Text),
    ("spec.pool.name", &[2, 2, 1], Text),
];
const CORE_EVENT: &[Row] = &[
    ("involvedObject.kind", &[2, 1], Text),
    ("involvedObject.namespace", &[2, 2], Text),
    ("involvedObject.name", &[2, 3], Text),
    ("involvedObject.uid", &[2, 4], Text),
    ("involvedObject.apiVersion", &[2, 5], Text),
    ("involvedObject.resourceVersion", &[2, 6], Text),
    ("involvedObject.fieldPath", &[2, 7], Text),
    ("reason", &[3], Text),
    ("type", &[9], Text),
    ("reportingComponent", &[14], Text),
    ("source", &[5, 1], Text),
];
/// An Event without a source component is selected by its reporting component.
const CORE_EVENT_SUBSTITUTES: &[(usize, usize)] = &[(10, 9)];
const EVENT: &[Row] = &[
    ("regarding.kind", &[8, 1], Text),
    ("regarding.namespace", &[8, 2], Text),
    ("regarding.name", &[8, 3], Text),
    ("regarding.uid", &[8, 4], Text),
    ("regarding.apiVersion", &[8, 5], Text),
    ("regarding.resourceVersion", &[8, 6], Text),
    ("regarding.fieldPath", &[8, 7], Text),
    ("reason", &[7], Text),
    ("type", &[11], Text),
    ("reportingController", &[4], Text),
];

/// Fields that are not selectable in all of these versions: the resource, the field, and the first
/// minor version that supports it.
const ADDED: &[(&str, &str, u32)] = &[("resourceslices", "spec.pool.name", 37)];

impl SelectableFields {
    /// Returns the selectable fields of a built-in resource at an API server of the minor version
    /// `server_minor`, such as 37 of 1.37. If `server_minor` is `None`, returns the fields of the
    /// oldest supported version.
    pub fn for_resource(resource: &Resource, server_minor: Option<u32>) -> Self {
        let gvr = &resource.gvr;
        let name = (&*gvr.group, &*gvr.version, &*gvr.resource);
        let (rows, accepts_namespace) = match name {
            ("", "v1", "pods") => (POD, true),
            ("", "v1", "nodes") => (NODE, false),
            ("", "v1", "namespaces") => (NAMESPACE, false),
            ("", "v1", "secrets") => (SECRET, true),
            ("", "v1", "services") => (SERVICE, true),
            ("", "v1", "replicationcontrollers") => (REPLICATION_CONTROLLER, true),
            ("", "v1", "events") => (CORE_EVENT, true),
            ("events.k8s.io", "v1", "events") => (EVENT, true),
            ("batch", "v1", "jobs") => (JOB, true),
            ("certificates.k8s.io", _, "certificatesigningrequests") => (SIGNING_REQUEST, false),
            ("certificates.k8s.io", _, "clustertrustbundles") => (TRUST_BUNDLE, false),
            ("certificates.k8s.io", _, "podcertificaterequests") => (CERTIFICATE_REQUEST, false),
            ("resource.k8s.io", _, "resourceslices") => (RESOURCE_SLICE, false),
            _ => return Self::default(),
        };
        Self {
            fields: rows.iter().map(field).collect(),
            accepts_namespace,
            aliases: aliases(resource),
            substitutes: match name {
                ("", "v1", "events") => CORE_EVENT_SUBSTITUTES.to_vec(),
                _ => Vec::new(),
            },
            refused: refused(resource, server_minor),
        }
    }
}

fn refused(resource: &Resource, server_minor: Option<u32>) -> Vec<String> {
    let own = ADDED
        .iter()
        .filter(|(name, ..)| *name == resource.gvr.resource);
    let newer = own.filter(|(_, _, since)| server_minor.is_none_or(|minor| minor < *since));
    newer.map(|(_, label, _)| (*label).to_owned()).collect()
}

fn field(&(label, protobuf_path, value): &Row) -> SelectableField {
    let renamed = RENAMED.into_iter().find(|(renamed, _)| *renamed == label);
    let json_path = renamed.map_or(label, |(_, json_path)| json_path);
    SelectableField {
        label: label.to_owned(),
        json_path: json_path.split('.').map(str::to_owned).collect(),
        protobuf_path: protobuf_path.to_vec(),
        value,
    }
}

fn aliases(resource: &Resource) -> Vec<(String, Field)> {
    match resource.gvr.resource.as_str() {
        // In selectors the API server accepts status.podIPs, but never sets its value.
        "pods" => vec![
            ("spec.host".to_owned(), Field::Value(0)),
            ("status.podIPs".to_owned(), Field::Empty),
        ],
        _ => Vec::new(),
    }
}
