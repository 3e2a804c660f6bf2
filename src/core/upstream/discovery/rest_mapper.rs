//! The resources of the API server: the immutable result of one discovery.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::Definition;
use super::suggestions::closest;
use crate::api::{GroupVersionResource, Resource};

/// The groups that the API server itself serves. If kubefan can't read APIServices, every other
/// group may be aggregated, except groups of CustomResourceDefinitions.
const BUILT_IN_GROUPS: [&str; 23] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// The resources of one API server, and whether they are built-in, custom or aggregated.
#[derive(Clone, Debug, Default)]
pub struct RestMapper {
    resources: Vec<Arc<Resource>>,
    positions: HashMap<GroupVersionResource, usize>,
    aggregated: Option<HashSet<GroupVersion>>,
    pub(super) custom: Option<HashMap<GroupVersionResource, CustomResource>>,
    /// The group-versions that could not be fetched; they may have any resources.
    pub(super) unknown: HashSet<GroupVersion>,
}

type ByGvr<'a> = BTreeMap<GroupVersionResource, &'a Arc<Resource>>;

/// An API group and a version of it.
pub(super) type GroupVersion = (String, String);

/// One version of a custom resource, as its CustomResourceDefinition describes it. If two are not
/// equal, the API server may encode the objects differently although their resource versions do not
/// change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CustomResource {
    /// The definition's UID and generation.
    pub(super) definition: (String, i64),
    pub(super) selectable_json_paths: Vec<String>,
    /// The kind of the resource's lists; `None` if it is the resource's kind plus `List`.
    pub(super) list_kind: Option<String>,
}

/// The error for a name that no resource has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API server has no resource {name:?}{}", did_you_mean(.suggestions))]
pub struct UnknownResource {
    /// The name that was looked up.
    pub name: String,
    /// At most three resources with similar names, the most similar first.
    pub suggestions: Vec<String>,
}

/// The reason why a resource is never cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotCacheable {
    /// Discovery did not return the resource.
    #[error("the API server has no such resource")]
    Unknown,
    /// The API server does not support both LIST and WATCH of the resource.
    #[error("it can't be both listed and watched")]
    Verbs,
    /// A library program can't cache Events: its listers would lack the newest change until another
    /// one comes.
    #[error("a program's cache of events would lack the newest change")]
    Events,
    /// The plural of the resource is `watch` or `proxy`. The API server would read the path of
    /// its list as one of the deprecated paths with this prefix, so the resource can't be
    /// listed in all namespaces.
    #[error("the API server reads its path as a deprecated one")]
    DeprecatedPath,
    /// An aggregated API server serves the resource, with resource versions of another history.
    #[error("it is served by an aggregated API server")]
    Aggregated,
    /// The resource may be aggregated: kubefan can't read APIServices, and the resource is not
    /// built-in and has no CustomResourceDefinition that kubefan can read.
    #[error("it may be served by an aggregated API server, because APIServices can't be read")]
    PerhapsAggregated,
    /// The operator does not want the resource to be held in memory.
    #[error("it is excluded from the caches")]
    Excluded,
    /// The operator's rules say that the resource is never cached.
    #[error("the configuration says that it is never cached")]
    Never,
}

/// The differences between two discoveries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryChanges {
    /// The resources that only the new discovery has.
    pub added: Vec<GroupVersionResource>,
    /// The resources that only the old discovery has.
    pub removed: Vec<GroupVersionResource>,
    /// The resources with another discovery entry (such as the verbs) or another definition.
    pub changed: Vec<GroupVersionResource>,
}

impl CustomResource {
    /// Returns true if `other` is of a later generation of the same CustomResourceDefinition.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        let ((uid, generation), (other_uid, other_generation)) =
            (&self.definition, &other.definition);
        uid == other_uid && generation < other_generation
    }

    /// Returns the UID of the CustomResourceDefinition.
    pub(crate) fn uid(&self) -> &str {
        &self.definition.0
    }
}

impl RestMapper {
    /// Creates a mapper of `resources`, which are in the API server's order of preference.
    /// `aggregated` and `custom` are `None` if kubefan can't read APIServices or
    /// CustomResourceDefinitions.
    pub(super) fn new(
        resources: Vec<Resource>,
        aggregated: Option<HashSet<GroupVersion>>,
        custom: Option<HashMap<GroupVersionResource, CustomResource>>,
    ) -> Self {
        let mut mapper = Self {
            aggregated,
            custom,
            ..Self::default()
        };
        for resource in resources {
            mapper.push(Arc::new(resource));
        }
        mapper
    }

    /// Returns true if the definitions of custom resources were not read, or if a resource is
    /// neither built-in nor aggregated nor one of the defined resources. The definition of such a
    /// resource may be newer than the definitions that were read.
    pub(super) fn may_lack_definitions(&self) -> bool {
        let Some(custom) = &self.custom else {
            return true;
        };
        let mut all = self.resources.iter().map(|resource| &resource.gvr);
        all.any(|gvr| {
            let is_built_in = BUILT_IN_GROUPS.contains(&gvr.group.as_str());
            !is_built_in && !custom.contains_key(gvr) && !self.is_aggregated(gvr)
        })
    }

    /// Appends the resources of `before` in the group-versions that could not be fetched this time.
    pub fn with_unknown_from(mut self, before: &Self) -> Self {
        for resource in &before.resources {
            if self.unknown.contains(&group_version(&resource.gvr)) {
                self.push(Arc::clone(resource));
            }
        }
        self
    }

    /// Appends a resource, unless there is a resource with this group, version and name already.
    fn push(&mut self, resource: Arc<Resource>) {
        if !self.positions.contains_key(&resource.gvr) {
            let position = self.resources.len();
            self.positions.insert(resource.gvr.clone(), position);
            self.resources.push(resource);
        }
    }

    /// Returns the resource `gvr`, or `None` if discovery did not return it.
    pub fn resource(&self, gvr: &GroupVersionResource) -> Option<&Arc<Resource>> {
        Some(&self.resources[*self.positions.get(gvr)?])
    }

    /// Returns all resources: those of the core group first, and those of each group's preferred
    /// version before those of its other versions.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.iter()
    }

    /// Finds a resource by the name that a person uses: the plural, singular, short name or kind,
    /// alone or followed by `.group`, `.version.group` or, for the core group, `.version`.
    ///
    /// # Errors
    /// [`UnknownResource`] with similar names, if no resource has this name.
    pub fn find(&self, name: &str) -> Result<&Arc<Resource>, UnknownResource> {
        let wanted = name.to_lowercase();
        let (short, qualifier) = match wanted.split_once('.') {
            Some((short, qualifier)) => (short, Some(qualifier)),
            None => (wanted.as_str(), None),
        };
        let spellings: [fn(&Resource, &str) -> bool; 4] = [
            |resource, name| resource.gvr.resource == name,
            |resource, name| resource.singular == name,
            |resource, name| resource.short_names.iter().any(|short| short == name),
            |resource, name| resource.kind.eq_ignore_ascii_case(name),
        ];
        let found = spellings.iter().find_map(|is_spelt| {
            let mut candidates = self.resources.iter();
            candidates.find(|resource| {
                is_spelt(resource, short) && is_in_group_version(resource, qualifier)
            })
        });
        found.ok_or_else(|| UnknownResource {
            name: name.to_owned(),
            suggestions: closest(&wanted, self.spellings()),
        })
    }

    /// Checks whether the resource `gvr` may be cached.
    ///
    /// # Errors
    /// The reason why the resource may not be cached.
    pub fn cacheable(&self, gvr: &GroupVersionResource) -> Result<(), NotCacheable> {
        let resource = self.resource(gvr).ok_or(NotCacheable::Unknown)?;
        if !resource.can("list") || !resource.can("watch") {
            return Err(NotCacheable::Verbs);
        }
        if matches!(gvr.resource.as_str(), "watch" | "proxy") {
            return Err(NotCacheable::DeprecatedPath);
        }
        self.not_aggregated(gvr)
    }

    /// Returns true if the API server serves the resource `gvr` itself, as a built-in or a custom
    /// resource. False if discovery did not return it, or if an aggregated API server may serve it.
    pub fn is_native(&self, gvr: &GroupVersionResource) -> bool {
        self.positions.contains_key(gvr) && self.not_aggregated(gvr).is_ok()
    }

    /// Returns true if the API server serves the resources of `group` and `version` itself. False
    /// if discovery returned none of them.
    pub fn is_native_version(&self, group: &str, version: &str) -> bool {
        let mut known = self.positions.keys();
        let found = known.find(|gvr| gvr.group == group && gvr.version == version);
        found.is_some_and(|gvr| self.not_aggregated(gvr).is_ok())
    }

    fn not_aggregated(&self, gvr: &GroupVersionResource) -> Result<(), NotCacheable> {
        match &self.aggregated {
            Some(aggregated) if aggregated.contains(&group_version(gvr)) => {
                Err(NotCacheable::Aggregated)
            }
            Some(_) => Ok(()),
            None if BUILT_IN_GROUPS.contains(&gvr.group.as_str()) || self.is_custom(gvr) => Ok(()),
            None => Err(NotCacheable::PerhapsAggregated),
        }
    }

    /// Returns true if `gvr` is a custom resource. If kubefan can't read CustomResourceDefinitions,
    /// these are all resources that are neither built-in nor aggregated; if it can't read
    /// APIServices either, the result is false.
    pub fn is_custom(&self, gvr: &GroupVersionResource) -> bool {
        match (&self.custom, &self.aggregated) {
            (Some(custom), _) => custom.contains_key(gvr),
            (None, Some(aggregated)) => {
                self.positions.contains_key(gvr)
                    && !BUILT_IN_GROUPS.contains(&gvr.group.as_str())
                    && !aggregated.contains(&group_version(gvr))
            }
            (None, None) => false,
        }
    }

    /// Returns the JSON paths, such as `.spec.color`, that field selectors on a custom resource may
    /// name, or `None` if the mapper does not have the resource's CustomResourceDefinition.
    pub fn selectable_json_paths(&self, gvr: &GroupVersionResource) -> Option<&[String]> {
        Some(&self.custom_resource(gvr)?.selectable_json_paths)
    }

    /// Returns the kind of lists of `gvr`. Returns `None` if it is the resource's kind plus `List`,
    /// or if the mapper does not have the resource's CustomResourceDefinition.
    pub fn list_kind(&self, gvr: &GroupVersionResource) -> Option<&str> {
        self.custom_resource(gvr)?.list_kind.as_deref()
    }

    /// Returns the custom resource `gvr`, if the mapper has its CustomResourceDefinition.
    pub(crate) fn custom_resource(&self, gvr: &GroupVersionResource) -> Option<&CustomResource> {
        self.custom.as_ref()?.get(gvr)
    }

    /// Returns the resources of this mapper that `definition` defines in another way than this
    /// mapper does, as it defines them. An older definition defines none.
    pub(crate) fn redefined_by<'a>(
        &self,
        definition: &'a Definition,
    ) -> impl Iterator<Item = &'a (GroupVersionResource, CustomResource)> {
        let defined = definition.resources();
        defined.filter(|(gvr, custom)| {
            let known = self.custom_resource(gvr);
            let is_new = known.is_none_or(|known| known != custom && !custom.is_older_than(known));
            is_new && self.positions.contains_key(gvr)
        })
    }

    /// Returns true if an aggregated API server serves `gvr`. Returns false if kubefan can't read
    /// APIServices.
    pub(crate) fn is_aggregated(&self, gvr: &GroupVersionResource) -> bool {
        let aggregated = self.aggregated.as_ref();
        aggregated.is_some_and(|aggregated| aggregated.contains(&group_version(gvr)))
    }

    /// Returns the differences from `old` to `new`. A resource is not reported as added if `old`
    /// could not fetch its group-version, nor as removed if `new` could not.
    pub fn changes(old: &Self, new: &Self) -> DiscoveryChanges {
        let (before, after) = (old.by_gvr(), new.by_gvr());
        let differs = |gvr: &GroupVersionResource| {
            let redefined = match (&old.custom, &new.custom) {
                // The discovery documents may still have a resource after its
                // definition was deleted.
                (Some(old), Some(new)) => old.get(gvr) != new.get(gvr),
                // Definitions that one of the two discoveries could not read are not compared.
                _ => false,
            };
            redefined || before.get(gvr) != after.get(gvr)
        };
        let common = after.keys().filter(|gvr| before.contains_key(*gvr));
        DiscoveryChanges {
            added: missing(&after, &before, &old.unknown),
            removed: missing(&before, &after, &new.unknown),
            changed: common.filter(|gvr| differs(gvr)).cloned().collect(),
        }
    }

    fn by_gvr(&self) -> ByGvr<'_> {
        let resources = self.resources.iter();
        resources
            .map(|resource| (resource.gvr.clone(), resource))
            .collect()
    }

    /// Returns pairs of a name that `find` accepts and the plural of the resource. The names are
    /// short names, singulars, plurals, and plurals with their group.
    fn spellings(&self) -> impl Iterator<Item = (String, String)> {
        self.resources.iter().flat_map(|resource| {
            let plural = resource.gvr.resource.clone();
            let qualified = resource.gvr.group_resource();
            let others = resource.short_names.iter().chain([&resource.singular]);
            let others = others.filter(|name| !name.is_empty()).cloned();
            let names = others.chain([plural.clone(), qualified]);
            let pairs = names.map(move |name| (name, plural.clone()));
            pairs.collect::<Vec<_>>()
        })
    }
}

impl DiscoveryChanges {
    /// Returns true if the two discoveries have equal resources.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// Returns the resources in `these` that are missing in `others`, except in the group-versions
/// `unknown`, which could not be fetched for `others`.
fn missing(
    these: &ByGvr<'_>,
    others: &ByGvr<'_>,
    unknown: &HashSet<GroupVersion>,
) -> Vec<GroupVersionResource> {
    let missing = these.keys().filter(|gvr| !others.contains_key(*gvr));
    let known = missing.filter(|gvr| !unknown.contains(&group_version(gvr)));
    known.cloned().collect()
}

fn group_version(gvr: &GroupVersionResource) -> GroupVersion {
    (gvr.group.clone(), gvr.version.clone())
}

/// Returns true if `qualifier` is `None`, or is the group, or the version and group, of `resource`.
fn is_in_group_version(resource: &Resource, qualifier: Option<&str>) -> bool {
    let Some(qualifier) = qualifier else {
        return true;
    };
    let GroupVersionResource { group, version, .. } = &resource.gvr;
    let in_version = qualifier
        .strip_prefix(version.as_str())
        .is_some_and(|rest| match group.as_str() {
            "" => rest.is_empty(),
            group => rest.strip_prefix('.') == Some(group),
        });
    qualifier == group || in_version
}

fn did_you_mean(suggestions: &[String]) -> String {
    match suggestions {
        [] => String::new(),
        _ => format!("; did you mean {}?", suggestions.join(", ")),
    }
}

#[cfg(test)]
mod tests;
