//! Freshness policies: how fresh the answer to a read of the most recent state must be, configured
//! for each resource.

use std::time::Duration;

use crate::api::GroupVersionResource;
use crate::upstream::RestMapper;

/// How fresh the answer to a read of the most recent state must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreshnessPolicy {
    /// As fresh as the request, as at the API server.
    #[default]
    Strict,
    /// A proof requested at most this long ago is sufficient. If there is none, the cache is proven
    /// as with `Strict`.
    Bounded(Duration),
    /// A proof is sufficient if it was requested at the moment that the caller of
    /// [`Informer::prove`](crate::informer::Informer::prove) passes, or later. For sessions, this is the
    /// moment at which a user last saw a state without a version.
    Session,
    /// The newest snapshot of the cache, without a proof.
    Any,
}

impl FreshnessPolicy {
    /// Returns true if a proof can be used again for later reads.
    pub(super) fn reuses_proofs(self) -> bool {
        matches!(self, Self::Bounded(_) | Self::Session)
    }
}

/// The policies of all resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreshnessPolicies {
    /// The policy of resources that `named` does not contain.
    pub default: FreshnessPolicy,
    /// Policies by resource name, such as `pods` or `deployments.apps`. A name without a group
    /// matches all groups. The last matching entry applies.
    pub named: Vec<(String, FreshnessPolicy)>,
}

// === impl FreshnessPolicies ===

impl FreshnessPolicies {
    /// Returns the policy that applies to `resource`.
    pub fn of(&self, resource: &GroupVersionResource) -> FreshnessPolicy {
        let mut named = self.named.iter().rev();
        let found = named.find(|(name, _)| is_name_of(name, resource));
        found.map_or(self.default, |(_, policy)| *policy)
    }

    /// Returns the names that are of no resource of `mapper`: mistakes, or resources that are not
    /// defined yet.
    pub fn unknown<'a>(&'a self, mapper: &RestMapper) -> impl Iterator<Item = &'a str> {
        let is_known = |name: &str| {
            let mut resources = mapper.resources();
            resources.any(|resource| is_name_of(name, &resource.gvr))
        };
        let names = self.named.iter().map(|(name, _)| name.as_str());
        names.filter(move |name| !is_known(name))
    }
}

fn is_name_of(name: &str, resource: &GroupVersionResource) -> bool {
    match name.split_once('.') {
        None => name == resource.resource,
        Some((plural, group)) => plural == resource.resource && group == resource.group,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Resource;

    #[test]
    fn the_last_matching_policy_wins() {
        let bounded = FreshnessPolicy::Bounded(Duration::from_secs(5));
        let policies = FreshnessPolicies {
            default: FreshnessPolicy::Strict,
            named: vec![
                ("pods".to_owned(), FreshnessPolicy::Any),
                ("deployments.apps".to_owned(), bounded),
                ("leases".to_owned(), FreshnessPolicy::Any),
                ("leases.coordination.k8s.io".to_owned(), bounded),
            ],
        };
        for (group, resource, expected) in [
            ("", "pods", FreshnessPolicy::Any),
            ("metrics.k8s.io", "pods", FreshnessPolicy::Any),
            ("apps", "deployments", bounded),
            ("other", "deployments", FreshnessPolicy::Strict),
            ("coordination.k8s.io", "leases", bounded),
            ("", "secrets", FreshnessPolicy::Strict),
        ] {
            let gvr = GroupVersionResource::new(group, "v1", resource);
            assert_eq!(policies.of(&gvr), expected, "{gvr}");
        }
    }

    #[test]
    fn names_of_no_resource_are_found() {
        let names = [
            "pods",
            "podz",
            "pod",
            "pods.apps",
            "deployments",
            "deployments.apps",
        ];
        let policies = FreshnessPolicies {
            named: names
                .map(|name| (name.to_owned(), FreshnessPolicy::Any))
                .into(),
            ..FreshnessPolicies::default()
        };
        let resource = |group: &str, plural: &str| Resource {
            gvr: GroupVersionResource::new(group, "v1", plural),
            kind: String::new(),
            singular: String::new(),
            short_names: Vec::new(),
            namespaced: true,
            verbs: Vec::new(),
        };
        let resources = vec![resource("", "pods"), resource("apps", "deployments")];
        let mapper = RestMapper::for_tests(resources);
        let unknown: Vec<_> = policies.unknown(&mapper).collect();
        // A name must be the plural.
        assert_eq!(unknown, ["podz", "pod", "pods.apps"]);
    }
}
