//! How fresh reads of "the most recent state" have to be: the operator's choice for each resource.

use std::time::Duration;

use crate::api::GroupVersionResource;

/// How fresh an answer to "the most recent state" has to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreshnessPolicy {
    /// As fresh as the request, as the API server has it.
    #[default]
    Strict,
    /// No older than this: the time since the cache was last proven. When that is longer, strict.
    Bounded(Duration),
    /// Whatever the cache has.
    Any,
}

/// The policies of all resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreshnessPolicies {
    /// Of resources that are not named.
    pub default: FreshnessPolicy,
    /// By `pods` or `deployments.apps`; the last one that fits counts.
    pub named: Vec<(String, FreshnessPolicy)>,
}

// === impl FreshnessPolicies ===

impl FreshnessPolicies {
    /// The policy of `resource`.
    pub fn of(&self, resource: &GroupVersionResource) -> FreshnessPolicy {
        let is_named = |name: &str| match name.split_once('.') {
            None => name == resource.resource,
            Some((plural, group)) => plural == resource.resource && group == resource.group,
        };
        let mut named = self.named.iter().rev();
        let found = named.find(|(name, _)| is_named(name));
        found.map_or(self.default, |(_, policy)| *policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
