//! The table of the built-in kinds that the simulator serves.

use std::sync::Arc;

use kubefan_core::api::{GroupVersionResource, Resource, SelectableFields};
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

const VERBS: &str = "create delete deletecollection get list patch update watch";

/// A kind per line: its API version, plural name, kind, flags and short names. The flags are `n`
/// for namespaced, `s` for a status subresource, `c` for a scale subresource, and `a` for the
/// category `all`.
const BUILTIN: &str = "\
v1                       configmaps                ConfigMap                n    cm
v1                       endpoints                 Endpoints                n    ep
v1                       events                    Event                    n    ev
v1                       namespaces                Namespace                s    ns
v1                       nodes                     Node                     s    no
v1                       persistentvolumeclaims    PersistentVolumeClaim    ns   pvc
v1                       pods                      Pod                      nsa  po
v1                       secrets                   Secret                   n
v1                       serviceaccounts           ServiceAccount           n    sa
v1                       services                  Service                  nsa  svc
apiextensions.k8s.io/v1  customresourcedefinitions CustomResourceDefinition s    crd crds
apps/v1                  daemonsets                DaemonSet                nsa  ds
apps/v1                  deployments               Deployment               nsca deploy
apps/v1                  replicasets               ReplicaSet               nsca rs
apps/v1                  statefulsets              StatefulSet              nsca sts
batch/v1                 cronjobs                  CronJob                  nsa  cj
batch/v1                 jobs                      Job                      nsa
coordination.k8s.io/v1   leases                    Lease                    n
discovery.k8s.io/v1      endpointslices            EndpointSlice            n
";

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
    BUILTIN.lines().filter_map(kind)
}

fn kind(row: &str) -> Option<Kind> {
    let mut cells = row.split_whitespace();
    let api_version = cells.next()?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let (plural, kind, flags) = (cells.next()?, cells.next()?, cells.next()?);
    let mut verbs = all_verbs();
    verbs.retain(|verb| kind != "Namespace" || verb != "deletecollection");
    let resource = Resource {
        gvr: GroupVersionResource::new(group, version, plural),
        kind: kind.to_owned(),
        singular: kind.to_lowercase(),
        short_names: cells.map(str::to_owned).collect(),
        namespaced: flags.contains('n'),
        verbs,
    };
    let fields = SelectableFields::for_resource(&resource, None);
    Some(Kind {
        resource: Arc::new(resource),
        fields: Arc::new(fields),
        categories: Vec::from_iter(flags.contains('a').then(|| "all".to_owned())),
        has_status: flags.contains('s'),
        has_scale: flags.contains('c'),
        is_custom: false,
        schema: None,
    })
}

/// Returns the verbs that every kind supports.
pub(crate) fn all_verbs() -> Vec<String> {
    VERBS.split(' ').map(str::to_owned).collect()
}
