//! The supported built-in kinds: their columns, and the functions that compute their cells.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::LazyLock;

use serde_json::Value;

use super::access;
use super::autoscaling;
use super::control;
use super::core_kinds;
use super::devices;
use super::network;
use super::node;
use super::pod;
use super::storage;
use super::workload;
use crate::codec::table::cell::Cell;
use crate::codec::table::column::ColumnDefinition;

/// A function that computes the cells of an object.
pub(crate) type Cells = fn(&Value) -> Vec<Cell>;

/// The key in `COLUMNS` of the columns for kinds without an entry.
const DEFAULT: &str = "default";

/// The supported kinds: apiVersion, kind, and the function that computes the cells.
const KINDS: &[(&str, &str, Cells)] = &[
    ("v1", "Pod", pod::cells),
    ("v1", "Node", node::cells),
    ("v1", "Namespace", core_kinds::namespace),
    ("v1", "Service", network::service),
    ("v1", "ConfigMap", core_kinds::config_map),
    ("v1", "Secret", core_kinds::secret),
    ("v1", "ServiceAccount", core_kinds::service_account),
    ("v1", "Event", core_kinds::event),
    ("v1", "Endpoints", network::endpoints),
    (
        "v1",
        "PersistentVolumeClaim",
        storage::persistent_volume_claim,
    ),
    ("v1", "PersistentVolume", storage::persistent_volume),
    (
        "v1",
        "ReplicationController",
        workload::replication_controller,
    ),
    ("v1", "ResourceQuota", access::resource_quota),
    ("v1", "LimitRange", core_kinds::created_at),
    ("apps/v1", "Deployment", workload::deployment),
    ("apps/v1", "ReplicaSet", workload::replica_set),
    ("apps/v1", "StatefulSet", workload::stateful_set),
    ("apps/v1", "DaemonSet", workload::daemon_set),
    (
        "apps/v1",
        "ControllerRevision",
        workload::controller_revision,
    ),
    ("batch/v1", "Job", workload::job),
    ("batch/v1", "CronJob", workload::cron_job),
    (
        "discovery.k8s.io/v1",
        "EndpointSlice",
        network::endpoint_slice,
    ),
    ("coordination.k8s.io/v1", "Lease", core_kinds::lease),
    (
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        core_kinds::custom_resource_definition,
    ),
    (
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        autoscaling::horizontal_pod_autoscaler,
    ),
    ("v1", "PodTemplate", workload::pod_template),
    ("networking.k8s.io/v1", "ServiceCIDR", network::service_cidr),
    ("networking.k8s.io/v1", "IPAddress", network::ip_address),
    (
        "storage.k8s.io/v1",
        "VolumeAttributesClass",
        storage::volume_attributes_class,
    ),
    ("resource.k8s.io/v1", "DeviceClass", devices::name_and_age),
    (
        "resource.k8s.io/v1",
        "ResourceClaim",
        devices::resource_claim,
    ),
    (
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
        devices::name_and_age,
    ),
    (
        "resource.k8s.io/v1",
        "ResourceSlice",
        devices::resource_slice,
    ),
    (
        "flowcontrol.apiserver.k8s.io/v1",
        "PriorityLevelConfiguration",
        control::priority_level,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        control::validating_admission_policy,
    ),
    (
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        control::certificate_signing_request,
    ),
    ("networking.k8s.io/v1", "Ingress", network::ingress),
    (
        "networking.k8s.io/v1",
        "IngressClass",
        network::ingress_class,
    ),
    (
        "networking.k8s.io/v1",
        "NetworkPolicy",
        workload::network_policy,
    ),
    (
        "policy/v1",
        "PodDisruptionBudget",
        access::pod_disruption_budget,
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "Role",
        core_kinds::created_at,
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        core_kinds::created_at,
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        access::role_binding,
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        access::role_binding,
    ),
    (
        "scheduling.k8s.io/v1",
        "PriorityClass",
        access::priority_class,
    ),
    ("node.k8s.io/v1", "RuntimeClass", access::runtime_class),
    (
        "storage.k8s.io/v1",
        "VolumeAttachment",
        storage::volume_attachment,
    ),
    ("storage.k8s.io/v1", "CSINode", storage::csi_node),
    ("storage.k8s.io/v1", "CSIDriver", storage::csi_driver),
    (
        "storage.k8s.io/v1",
        "CSIStorageCapacity",
        core_kinds::created_at,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        access::webhook_configuration,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        access::webhook_configuration,
    ),
];

/// The column definitions of each kind, as a real API server sent them; the keys are apiVersion and
/// kind, such as `apps/v1/Deployment`.
static COLUMNS: LazyLock<HashMap<String, Arc<[ColumnDefinition]>>> = LazyLock::new(|| {
    serde_json::from_str::<HashMap<String, Vec<ColumnDefinition>>>(include_str!("columns.json"))
        .expect("columns.json holds column definitions")
        .into_iter()
        .map(|(kind, columns)| (kind, columns.into()))
        .collect()
});

/// The columns and the cell function of a kind; `None` if the kind is not supported.
pub(crate) fn built_in(api_version: &str, kind: &str) -> Option<(Arc<[ColumnDefinition]>, Cells)> {
    let (_, _, cells) = KINDS
        .iter()
        .find(|(version, name, _)| *version == api_version && *name == kind)?;
    let columns = COLUMNS.get(&format!("{api_version}/{kind}"));
    Some((columns.cloned().unwrap_or_else(default_columns), *cells))
}

/// The columns for kinds without a printer in the API server: Name and Created At.
pub(crate) fn default_columns() -> Arc<[ColumnDefinition]> {
    COLUMNS[DEFAULT].clone()
}
