//! Which resources the API server has: an immutable value that one discovery made.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;

use crate::api::GroupVersionResource;
use crate::api::Resource;

use super::suggestions::closest;

/// Groups that the API server itself serves. Where APIServices can't be read, other groups may be
/// aggregated ones, unless they are known to be of custom resources.
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

/// The resources of one API server, and what is known of where they come from.
#[derive(Clone, Debug, Default)]
pub struct RestMapper {
    resources: Vec<Arc<Resource>>,
    positions: HashMap<GroupVersionResource, usize>,
    aggregated: Option<HashSet<GroupVersion>>,
    custom: Option<HashMap<GroupVersionResource, CustomResource>>,
    /// What discovery could not be asked for; that says nothing of its resources.
    unknown: HashSet<GroupVersion>,
}

type ByGvr<'a> = BTreeMap<GroupVersionResource, &'a Arc<Resource>>;

/// API group and version.
pub(super) type GroupVersion = (String, String);

/// What its CustomResourceDefinition says of a custom resource's version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CustomResource {
    /// The definition's UID and spec generation: other ones mean that objects may look different.
    pub(super) definition: (String, i64),
    pub(super) selectable_json_paths: Vec<String>,
    /// The kind of its lists, where that is not the kind with `List` behind it.
    pub(super) list_kind: Option<String>,
}

/// A name that no resource has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API server has no resource {name:?}{}", did_you_mean(.suggestions))]
pub struct UnknownResource {
    /// The name.
    pub name: String,
    /// Resources whose names are close, the closest first.
    pub suggestions: Vec<String>,
}

/// Why a resource is never cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NotCacheable {
    /// Discovery doesn't know it.
    #[error("the API server has no such resource")]
    Unknown,
    /// It can't be listed or can't be watched.
    #[error("the API server offers no list and watch of it")]
    Verbs,
    /// Events expire several at one resource version, and come without bookmarks.
    #[error("events can't be cached exactly")]
    Events,
    /// Another server behind the API server serves it, with resource versions of its own.
    #[error("it is served by an aggregated API server")]
    Aggregated,
    /// It may be aggregated: neither its APIService nor a CustomResourceDefinition can be read.
    #[error("it may be served by an aggregated API server, as APIServices can't be read")]
    PerhapsAggregated,
}

/// How one discovery differs from the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Resources that are new.
    pub added: Vec<GroupVersionResource>,
    /// Resources that are gone.
    pub removed: Vec<GroupVersionResource>,
    /// Resources whose objects may look different, or that offer something else.
    pub changed: Vec<GroupVersionResource>,
}

impl RestMapper {
    /// A mapper of `resources`, which stand in the API server's order of preference. `aggregated`
    /// and `custom` are `None` when they can't be read.
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

    /// Marks group-versions that could not be asked for.
    pub(super) fn with_unknown(mut self, unknown: HashSet<GroupVersion>) -> Self {
        self.unknown = unknown;
        self
    }

    /// Keeps the resources that `before` had in the group-versions that could not be asked for this
    /// time; they come last, behind those that are known.
    pub fn with_unknown_from(mut self, before: &Self) -> Self {
        for resource in &before.resources {
            if self.unknown.contains(&group_version(&resource.gvr)) {
                self.push(Arc::clone(resource));
            }
        }
        self
    }

    /// The first of a name counts.
    fn push(&mut self, resource: Arc<Resource>) {
        if !self.positions.contains_key(&resource.gvr) {
            let position = self.resources.len();
            self.positions.insert(resource.gvr.clone(), position);
            self.resources.push(resource);
        }
    }

    /// What discovery says of `gvr`.
    pub fn resource(&self, gvr: &GroupVersionResource) -> Option<&Arc<Resource>> {
        Some(&self.resources[*self.positions.get(gvr)?])
    }

    /// All resources: the core group first, a group's preferred version before its others.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.iter()
    }

    /// The resource that people mean by `name`: plural, singular, short name or kind, alone or
    /// followed by `.group`, `.version.group` or, for the core group, `.version`.
    ///
    /// # Errors
    ///
    /// [`UnknownResource`], with names that are close.
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

    /// Whether `gvr` may be cached.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub fn cacheable(&self, gvr: &GroupVersionResource) -> Result<(), NotCacheable> {
        let resource = self.resource(gvr).ok_or(NotCacheable::Unknown)?;
        if !resource.can("list") || !resource.can("watch") {
            return Err(NotCacheable::Verbs);
        }
        if gvr.resource == "events" && matches!(gvr.group.as_str(), "" | "events.k8s.io") {
            return Err(NotCacheable::Events);
        }
        match &self.aggregated {
            Some(aggregated) if aggregated.contains(&group_version(gvr)) => {
                Err(NotCacheable::Aggregated)
            }
            Some(_) => Ok(()),
            None if BUILT_IN_GROUPS.contains(&gvr.group.as_str()) || self.is_custom(gvr) => Ok(()),
            None => Err(NotCacheable::PerhapsAggregated),
        }
    }

    /// True for custom resources. Where their definitions can't be read, those are what neither
    /// the API server itself nor a known aggregated one serves.
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

    /// The JSON paths, such as `.spec.color`, that field selectors on a custom resource may name;
    /// `None` when its definition isn't known.
    pub fn selectable_json_paths(&self, gvr: &GroupVersionResource) -> Option<&[String]> {
        Some(&self.custom_resource(gvr)?.selectable_json_paths)
    }

    /// The kind of lists of `gvr`, where its definition names another than the kind with `List`
    /// behind it; else `None`.
    pub fn list_kind(&self, gvr: &GroupVersionResource) -> Option<&str> {
        self.custom_resource(gvr)?.list_kind.as_deref()
    }

    /// What changed from `old` to `new`. A group-version that one of them couldn't ask for has no
    /// resources that went or came.
    pub fn changes(old: &Self, new: &Self) -> Changes {
        let (before, after) = (old.by_gvr(), new.by_gvr());
        let differs = |gvr: &GroupVersionResource| {
            let redefined = match (old.custom_resource(gvr), new.custom_resource(gvr)) {
                // Definitions that couldn't be read once say nothing.
                (Some(old), Some(new)) => old != new,
                _ => false,
            };
            redefined || before.get(gvr) != after.get(gvr)
        };
        let common = after.keys().filter(|gvr| before.contains_key(*gvr));
        Changes {
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

    fn custom_resource(&self, gvr: &GroupVersionResource) -> Option<&CustomResource> {
        self.custom.as_ref()?.get(gvr)
    }

    /// Every name that `find` takes, and the plural it stands for.
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

impl Changes {
    /// True when nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// What of `these` is not in `others`, which say nothing of the group-versions in `unknown`.
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

/// True when `resource` is of the group, or version and group, that `qualifier` names.
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
