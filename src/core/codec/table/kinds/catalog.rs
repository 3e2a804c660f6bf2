//! The supported built-in kinds: their columns, and the functions that compute their cells.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use super::{
    access, autoscaling, control, core_kinds, devices, network, node, pod, storage, workload,
};
use crate::codec::table::cells::cell::Cell;
use crate::codec::table::column::ColumnDefinition;
use crate::codec::table::part::Part;

/// A function that computes the cells of an object.
pub(crate) type Cells = fn(Part<'_>) -> Vec<Cell>;

/// The key in `COLUMNS` of the columns for kinds without an entry.
const DEFAULT: &str = "default";

/// The supported kinds: apiVersion, kind, and the function that computes the cells for the newest
/// API server.
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
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        control::admission_policy_binding,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicy",
        control::mutating_admission_policy,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicyBinding",
        control::admission_policy_binding,
    ),
    (
        "apiregistration.k8s.io/v1",
        "APIService",
        control::api_service,
    ),
];

/// The kinds that are printed only for API servers of some minor version and newer ones: the first
/// such version, apiVersion and kind. On older ones there is no such kind, or its Tables were not
/// compared.
const NEWER_KINDS: &[(u32, &str, &str)] = &[
    (
        37,
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
    ),
    (
        37,
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicy",
    ),
    (
        37,
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicyBinding",
    ),
    (37, "apiregistration.k8s.io/v1", "APIService"),
];

/// The kinds that older API servers print with other cells: the last such minor
/// version, apiVersion, kind, and the function that computes these cells. Entries of a
/// kind are in ascending order.
const OLDER_KINDS: &[(u32, &str, &str, Cells)] = &[
    (34, "v1", "Pod", pod::cells_until_34),
    (
        34,
        "v1",
        "ServiceAccount",
        core_kinds::service_account_until_34,
    ),
    (35, "v1", "Node", node::cells_until_35),
    (
        35,
        "networking.k8s.io/v1",
        "IngressClass",
        network::ingress_class_until_35,
    ),
    (
        36,
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        core_kinds::created_at,
    ),
];

/// The column definitions of each kind, as a real API server sent them; the keys are apiVersion and
/// kind, such as `apps/v1/Deployment`.
static COLUMNS: LazyLock<Columns> = LazyLock::new(|| columns(include_str!("columns.json")));

/// The column definitions that older API servers send instead; the keys are the last such minor
/// version, and apiVersion and kind. Most differ in descriptions only.
static OLDER_COLUMNS: LazyLock<BTreeMap<u32, Columns>> = LazyLock::new(|| {
    let text = include_str!("older_columns.json");
    let minors =
        serde_json::from_str::<BTreeMap<u32, HashMap<String, Vec<ColumnDefinition>>>>(text)
            .expect("older_columns.json holds column definitions");
    let shared = minors.into_iter();
    shared.map(|(until, kinds)| (until, share(kinds))).collect()
});

type Columns = HashMap<String, Arc<[ColumnDefinition]>>;

fn columns(text: &str) -> Columns {
    share(serde_json::from_str(text).expect("columns.json holds column definitions"))
}

fn share(kinds: HashMap<String, Vec<ColumnDefinition>>) -> Columns {
    let shared = kinds.into_iter();
    shared
        .map(|(kind, columns)| (kind, columns.into()))
        .collect()
}

/// Returns the columns and the cell function of a kind for API servers of version 1.`minor`, or
/// `None` if the kind is not supported there.
pub(crate) fn built_in(
    api_version: &str,
    kind: &str,
    minor: u32,
) -> Option<(Arc<[ColumnDefinition]>, Cells)> {
    let (_, _, cells) = KINDS
        .iter()
        .find(|(version, name, _)| *version == api_version && *name == kind)?;
    if !is_supported(api_version, kind, minor) {
        return None;
    }
    let older = OLDER_KINDS.iter().find(|(until, version, name, _)| {
        minor <= *until && *version == api_version && *name == kind
    });
    let cells = older.map_or(*cells, |(.., cells)| *cells);
    let key = format!("{api_version}/{kind}");
    let mut older = OLDER_COLUMNS.range(minor..);
    let columns = older.find_map(|(_, kinds)| kinds.get(&key));
    let columns = columns.or_else(|| COLUMNS.get(&key));
    Some((columns.cloned().unwrap_or_else(default_columns), cells))
}

fn is_supported(api_version: &str, kind: &str, minor: u32) -> bool {
    let mut newer = NEWER_KINDS.iter();
    !newer.any(|(since, version, name)| minor < *since && *version == api_version && *name == kind)
}

/// The apiVersion and kind of each kind that is supported for API servers of version 1.`minor`.
#[cfg(test)]
pub(crate) fn printed(minor: u32) -> impl Iterator<Item = (&'static str, &'static str)> {
    let kinds = KINDS.iter().map(|(version, kind, _)| (*version, *kind));
    kinds.filter(move |(version, kind)| is_supported(version, kind, minor))
}

/// Returns the columns for kinds without a printer in the API server: Name and Created At.
pub(crate) fn default_columns() -> Arc<[ColumnDefinition]> {
    COLUMNS[DEFAULT].clone()
}
