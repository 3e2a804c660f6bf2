//! Mappings between resources and kinds, as in client-go's RESTMapper.

use std::collections::HashSet;
use std::sync::Arc;

use super::RestMapper;
use crate::api::{GroupVersionKind, GroupVersionResource, Resource};

/// Why a resource or kind is not mapped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// The API server has no such resource.
    #[error("the API server has no resource {0}")]
    NoResource(PartialResource),
    /// The API server has no such kind, or not in one of the versions that were asked for.
    #[error("the API server has no kind {kind}{}", in_versions(.group, .versions))]
    NoKind {
        /// The API group that was searched; empty for the core group.
        group: String,
        /// The kind that was searched.
        kind: String,
        /// The versions that were searched; empty for all.
        versions: Vec<String>,
    },
    /// Several resources of one group and version have the name.
    #[error("{name} may be one of {}", joined(.candidates))]
    Ambiguous {
        /// The resource or kind that was asked for.
        name: String,
        /// All resources that match, the preferred ones first.
        candidates: Vec<GroupVersionResource>,
    },
}

/// A resource name, with or without its group and version.
///
/// It is made from a [`GroupVersionResource`]. An empty group or version means any. The group may
/// also be the beginning of a group's name, such as `storage` of `storage.k8s.io`, if no group of
/// exactly this name has the resource. The resource may be the plural or the singular name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialResource(GroupVersionResource);

// === impl PartialResource ===

impl PartialResource {
    /// Creates the partial resource for the plural or singular `name` in any group and version.
    pub fn named(name: &str) -> Self {
        GroupVersionResource::new("", "", name).into()
    }

    /// Returns true if `resource` has this name, and this version if there is one.
    fn is_name_of(&self, resource: &Resource) -> bool {
        let Self(wanted) = self;
        let names = [&resource.gvr.resource, &singular(resource)];
        names.contains(&&wanted.resource)
            && (wanted.version.is_empty() || wanted.version == resource.gvr.version)
    }
}

impl From<GroupVersionResource> for PartialResource {
    fn from(mut resource: GroupVersionResource) -> Self {
        resource.resource.make_ascii_lowercase();
        Self(resource)
    }
}

impl From<&GroupVersionResource> for PartialResource {
    fn from(resource: &GroupVersionResource) -> Self {
        resource.clone().into()
    }
}

impl std::fmt::Display for PartialResource {
    /// Prints the parts that are not empty, such as `deployments.apps`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(wanted) = self;
        f.write_str(&wanted.resource)?;
        let known = [&wanted.version, &wanted.group];
        for part in known.into_iter().filter(|part| !part.is_empty()) {
            write!(f, ".{part}")?;
        }
        Ok(())
    }
}

// === impl RestMapper ===

impl RestMapper {
    /// Returns all resources that `partial` may mean: those of the core group first, then in the
    /// API server's order of groups. In a group, the preferred version comes before the others.
    ///
    /// # Errors
    /// [`MappingError::NoResource`] if there is none.
    pub fn resources_for(
        &self,
        partial: &PartialResource,
    ) -> Result<Vec<GroupVersionResource>, MappingError> {
        let found = self.matching(partial)?;
        Ok(found.iter().map(|found| found.gvr.clone()).collect())
    }

    /// Returns the first result of [`RestMapper::resources_for`].
    ///
    /// # Errors
    /// [`MappingError::NoResource`] if there is none, and [`MappingError::Ambiguous`] if the first
    /// result's group and version has several.
    pub fn resource_for(
        &self,
        partial: &PartialResource,
    ) -> Result<GroupVersionResource, MappingError> {
        let found = self.matching(partial)?;
        let first = preferred(&found, || partial.to_string(), |found| &found.gvr.resource)?;
        Ok(first.gvr.clone())
    }

    /// Returns the kinds of the objects of [`RestMapper::resources_for`], each once.
    ///
    /// # Errors
    /// [`MappingError::NoResource`] if there is none.
    pub fn kinds_for(
        &self,
        partial: &PartialResource,
    ) -> Result<Vec<GroupVersionKind>, MappingError> {
        let mut seen = HashSet::new();
        let kinds = self.matching(partial)?.into_iter().map(|found| found.gvk());
        Ok(kinds.filter(|kind| seen.insert(kind.clone())).collect())
    }

    /// Returns the first result of [`RestMapper::kinds_for`].
    ///
    /// # Errors
    /// [`MappingError::NoResource`] if there is none, and [`MappingError::Ambiguous`] if the first
    /// result's group and version has several.
    pub fn kind_for(&self, partial: &PartialResource) -> Result<GroupVersionKind, MappingError> {
        let found = self.matching(partial)?;
        let first = preferred(&found, || partial.to_string(), |found| &found.kind)?;
        Ok(first.gvk())
    }

    /// Returns the resources of the objects of `kind` in `group`. Without `versions`, those of the
    /// group's preferred version come first. Otherwise, only resources of `versions` are returned,
    /// in the order of `versions`.
    ///
    /// # Errors
    /// [`MappingError::NoKind`] if there is none.
    pub fn rest_mappings(
        &self,
        group: &str,
        kind: &str,
        versions: &[&str],
    ) -> Result<Vec<Arc<Resource>>, MappingError> {
        let versions = versions.iter().copied();
        let versions: Vec<&str> = versions.filter(|version| !version.is_empty()).collect();
        let of_kind = |resource: &&Arc<Resource>| {
            let is_named = resource.kind == kind || resource.kind.to_lowercase() == kind;
            resource.gvr.group == group && is_named
        };
        let rank = |found: &Arc<Resource>| {
            let mut wanted = versions.iter();
            wanted.position(|wanted| *wanted == found.gvr.version)
        };
        let mut found: Vec<_> = self.resources().filter(of_kind).cloned().collect();
        if !versions.is_empty() {
            found.retain(|found| rank(found).is_some());
        }
        if found.is_empty() {
            return Err(MappingError::NoKind {
                group: group.to_owned(),
                kind: kind.to_owned(),
                versions: versions.iter().copied().map(str::to_owned).collect(),
            });
        }
        found.sort_by_key(rank);
        Ok(found)
    }

    /// Returns the first result of [`RestMapper::rest_mappings`].
    ///
    /// # Errors
    /// [`MappingError::NoKind`] if there is none, and [`MappingError::Ambiguous`] if the first
    /// result's version has several resources of this kind.
    pub fn rest_mapping(
        &self,
        group: &str,
        kind: &str,
        versions: &[&str],
    ) -> Result<Arc<Resource>, MappingError> {
        let found = self.rest_mappings(group, kind, versions)?;
        let found: Vec<_> = found.iter().collect();
        let name = || match group {
            "" => kind.to_owned(),
            group => format!("{kind}.{group}"),
        };
        preferred(&found, name, |found| &found.gvr.resource).cloned()
    }

    /// Returns the resources that `partial` may mean, the preferred ones first.
    fn matching(&self, partial: &PartialResource) -> Result<Vec<&Arc<Resource>>, MappingError> {
        let group = &partial.0.group;
        let named = || self.resources().filter(|found| partial.is_name_of(found));
        let mut found: Vec<_> = match group.as_str() {
            "" => named().collect(),
            group => named().filter(|found| found.gvr.group == *group).collect(),
        };
        let is_group_certain = group.is_empty() || !partial.0.version.is_empty();
        if found.is_empty() && !is_group_certain {
            found = named()
                .filter(|found| found.gvr.group.starts_with(group))
                .collect();
        }
        if found.is_empty() {
            Err(MappingError::NoResource(partial.clone()))
        } else {
            Ok(found)
        }
    }
}

/// Returns the first resource in `found`, unless `found` has another one in its group and version
/// with another `identity`.
fn preferred<'a>(
    found: &[&'a Arc<Resource>],
    name: impl FnOnce() -> String,
    identity: impl Fn(&Resource) -> &String,
) -> Result<&'a Arc<Resource>, MappingError> {
    let first = found[0];
    let is_rival = |other: &&&Arc<Resource>| {
        let in_same_version =
            other.gvr.group == first.gvr.group && other.gvr.version == first.gvr.version;
        in_same_version && identity(other) != identity(first)
    };
    match found.iter().find(is_rival) {
        None => Ok(first),
        Some(_) => Err(MappingError::Ambiguous {
            name: name(),
            candidates: found.iter().map(|found| found.gvr.clone()).collect(),
        }),
    }
}

/// Returns the singular name of `resource`. Old servers do not return it; then it is
/// the kind in lower case.
fn singular(resource: &Resource) -> String {
    match resource.singular.as_str() {
        "" => resource.kind.to_lowercase(),
        singular => singular.to_owned(),
    }
}

fn in_versions(group: &str, versions: &[String]) -> String {
    let in_group = match group {
        "" => String::new(),
        group => format!(" in group {group}"),
    };
    match versions {
        [] => in_group,
        versions => format!("{in_group} in version {}", versions.join(" or ")),
    }
}

fn joined(candidates: &[GroupVersionResource]) -> String {
    let names: Vec<_> = candidates.iter().map(ToString::to_string).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests;
