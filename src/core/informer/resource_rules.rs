//! The operator's rules: which resources are cached, which of their objects, and how.

use std::sync::Arc;
use std::time::Duration;

use super::FreshnessPolicy;
use crate::api::{
    GroupVersionResource, LabelSelector, Malformed, RawFieldSelector, Resource, SelectableFields,
    Selection,
};
use crate::upstream::RestMapper;

/// The rules of all resources. A resource without a rule may be cached completely.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRules {
    /// Names of resources that are never cached, such as `secrets` or `deployments.apps`. A name
    /// without a group means the resources with this name in any group.
    pub never: Vec<String>,
    /// The default of [`ResourceRule::strip_managed_fields`], also for resources without a rule.
    pub strip_managed_fields: bool,
    /// At most one rule for each resource.
    pub rules: Vec<ResourceRule>,
}

/// The rule of one resource, in all its versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRule {
    /// The resource, by a name that kubectl accepts, such as `pods` or `deployments.apps`.
    pub resource: String,
    /// Only objects in these namespaces are cached; empty for all namespaces.
    pub namespaces: Vec<String>,
    /// Only objects with these labels are cached.
    pub labels: LabelSelector,
    /// Only objects with these fields are cached.
    pub fields: RawFieldSelector,
    /// How fresh the answers must be; `None` for the policy of resources without a rule.
    pub freshness: Option<FreshnessPolicy>,
    /// Overrides [`Config::retention_age`](super::Config::retention_age), unless it is `None`.
    pub retention_age: Option<Duration>,
    /// Overrides [`Config::retention_bytes`](super::Config::retention_bytes), unless it is `None`.
    pub retention_bytes: Option<usize>,
    /// True to remove `metadata.managedFields` from cached objects, so that answers from caches do
    /// not have them. `None` means the value of [`ResourceRules::strip_managed_fields`].
    pub strip_managed_fields: Option<bool>,
}

/// How the objects of one resource are cached: its rule, with the fields of the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// The selections of objects that may be cached. There is one cache for each selection;
    /// usually, one selection has all objects.
    scopes: Vec<Arc<Selection>>,
    /// As [`ResourceRule::freshness`].
    pub freshness: Option<FreshnessPolicy>,
    /// As [`ResourceRule::retention_age`].
    pub retention_age: Option<Duration>,
    /// As [`ResourceRule::retention_bytes`].
    pub retention_bytes: Option<usize>,
    /// As [`ResourceRule::strip_managed_fields`].
    pub strip_managed_fields: bool,
}

/// Why a rule does not fit its resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The resource has no such field.
    #[error("{0}")]
    Fields(Malformed),
    /// The resource is cluster-scoped.
    #[error("its objects have no namespaces; leave out namespaces")]
    Namespaces,
}

// === impl ResourceRules ===

impl ResourceRules {
    /// Returns true if `resource` is never cached. `mapper` must have the resource.
    pub(super) fn forbid(&self, resource: &GroupVersionResource, mapper: &RestMapper) -> bool {
        let mut never = self.never.iter();
        never.any(|name| is_forbidden_by(name, resource, mapper))
    }

    /// Returns the names in [`ResourceRules::never`] that no resource of `mapper` has: mistakes, or
    /// resources that are not defined yet.
    pub fn unknown_never<'a>(&'a self, mapper: &RestMapper) -> impl Iterator<Item = &'a str> {
        let is_known = |name: &str| {
            let mut resources = mapper.resources();
            resources.any(|resource| is_forbidden_by(name, &resource.gvr, mapper))
        };
        let never = self.never.iter().map(String::as_str);
        never.filter(move |name| !is_known(name))
    }

    /// Returns the settings of `resource`, with the selectable fields `fields`. `mapper` must have
    /// the resource.
    ///
    /// # Errors
    ///
    /// If the rule of the resource does not fit it.
    pub(super) fn settings(
        &self,
        resource: &Resource,
        fields: &SelectableFields,
        mapper: &RestMapper,
    ) -> Result<CacheSettings, RuleError> {
        let is_of = |rule: &&ResourceRule| is_name_of(&rule.resource, &resource.gvr, mapper);
        let rule = self.rules.iter().find(is_of);
        let settings = rule.map_or_else(
            || Ok(CacheSettings::default()),
            |rule| rule.settings(resource, fields),
        )?;
        let of_rule = rule.and_then(|rule| rule.strip_managed_fields);
        Ok(CacheSettings {
            strip_managed_fields: of_rule.unwrap_or(self.strip_managed_fields),
            ..settings
        })
    }
}

/// Returns true if `name`, one of [`ResourceRules::never`], names `resource`.
fn is_forbidden_by(name: &str, resource: &GroupVersionResource, mapper: &RestMapper) -> bool {
    let is_plural = !name.contains('.') && name.eq_ignore_ascii_case(&resource.resource);
    is_plural || is_name_of(name, resource, mapper)
}

/// Returns true if `mapper` finds `resource`, in any version, by `name`.
fn is_name_of(name: &str, resource: &GroupVersionResource, mapper: &RestMapper) -> bool {
    let found = mapper.find(name).map(|found| &found.gvr);
    found.is_ok_and(|gvr| gvr.group == resource.group && gvr.resource == resource.resource)
}

// === impl ResourceRule ===

impl ResourceRule {
    /// Returns the settings that this rule gives `resource`, with the selectable fields `fields`.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if the rule does not fit `resource`.
    pub fn settings(
        &self,
        resource: &Resource,
        fields: &SelectableFields,
    ) -> Result<CacheSettings, RuleError> {
        if !self.namespaces.is_empty() && !resource.namespaced {
            return Err(RuleError::Namespaces);
        }
        // The API server's version determines which fields it refuses, and kubefan does not have
        // the version at the start. If the API server refuses a field of the rule, it answers the
        // informer's list with 400.
        let fields = &fields.accepting_all();
        let selected = Selection {
            labels: self.labels.clone(),
            fields: self.fields.resolve(fields).map_err(RuleError::Fields)?,
            ..Selection::default()
        };
        let of_namespace = |namespace: &String| Selection {
            namespace: Some(namespace.clone()),
            ..selected.clone()
        };
        let scopes = match self.namespaces.as_slice() {
            [] => vec![Arc::new(selected)],
            namespaces => namespaces.iter().map(of_namespace).map(Arc::new).collect(),
        };
        Ok(CacheSettings {
            scopes,
            freshness: self.freshness,
            retention_age: self.retention_age,
            retention_bytes: self.retention_bytes,
            strip_managed_fields: self.strip_managed_fields.unwrap_or(false),
        })
    }
}

// === impl CacheSettings ===

impl Default for CacheSettings {
    /// Returns the settings of a resource without a rule.
    fn default() -> Self {
        Self {
            scopes: vec![Arc::default()],
            freshness: None,
            retention_age: None,
            retention_bytes: None,
            strip_managed_fields: false,
        }
    }
}

impl CacheSettings {
    /// Returns the settings for a resource with a rule that does not fit: nothing is cached.
    pub(super) fn nothing() -> Self {
        Self {
            scopes: Vec::new(),
            ..Self::default()
        }
    }

    /// Returns true if a cache with the settings `other` may continue with these settings, because
    /// at most the freshness differs.
    pub fn caches_like(&self, other: &Self) -> bool {
        let freshness = other.freshness;
        *other
            == Self {
                freshness,
                ..self.clone()
            }
    }

    /// Returns the selections of objects that may be cached. There is one cache for each selection.
    pub fn scopes(&self) -> &[Arc<Selection>] {
        &self.scopes
    }

    /// Returns the scope of a cache that has all objects of `selection`, or `None` if
    /// there is no such cache.
    pub fn scope_of(&self, selection: &Selection) -> Option<&Arc<Selection>> {
        let mut scopes = self.scopes.iter();
        scopes.find(|scope| scope.contains(selection))
    }

    /// Returns the scope of a cache that may have objects of `namespace`, but
    /// perhaps not all of them.
    pub fn scope_in(&self, namespace: Option<&str>) -> Option<&Arc<Selection>> {
        let mut scopes = self.scopes.iter();
        scopes.find(|scope| scope.namespace.is_none() || scope.namespace.as_deref() == namespace)
    }

    /// Returns true if a cache has the object `name` of `namespace`, if that object exists.
    pub fn has_object(&self, namespace: Option<&str>, name: &str) -> bool {
        let Some(scope) = self.scope_in(namespace) else {
            return false;
        };
        scope.is_unfiltered() || scope.contains(&Selection::of_object(namespace, name))
    }
}
