//! The settings of the caches.

use kubefan_core::informer;
use kubefan_core::informer::FreshnessPolicy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::values::cached_resource::{CachedResource, EXAMPLE};
use crate::config::values::freshness_rule::FreshnessRule;
use crate::config::values::units::{ByteSize, Period};
use crate::server::ShardSelectors;

/// Which resources are cached, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(in crate::config) struct Cache {
    /// Resources to cache from the start, such as pods or deployments.apps. Others are cached at their
    /// first LIST or WATCH. In the file, an entry may also have keys that say which objects of the
    /// resource are cached, and how; reads that may select other objects are forwarded.
    #[schemars(extend(
        "x-flag" = "-r, --resource RESOURCE",
        "x-variable" = "KUBEFAN_RESOURCES",
        "x-live" = true,
        "x-help" = true,
        "x-page" = "settings.md#scope",
        "x-example" = EXAMPLE
    ))]
    pub(in crate::config) resources: Vec<CachedResource>,
    /// Cache every resource that can be cached, except Events, from the start. Name none in
    /// `cache.resources` then, except for those with other keys.
    #[schemars(extend("x-live" = true, "x-help" = true))]
    pub(in crate::config) all: bool,
    /// Resources that are never cached, such as secrets or deployments.apps: their reads are
    /// forwarded. A name without a group is that of a resource in any group.
    #[schemars(extend(
        "x-flag" = "--never-cache RESOURCE",
        "x-variable" = "KUBEFAN_NEVER_CACHE",
        "x-live" = true,
        "x-help" = true
    ))]
    pub(in crate::config) never: Vec<String>,
    /// Remove metadata.managedFields of what is cached, so that it takes less memory. Answers from
    /// caches then lack them, and those of the API server do not. Writes keep them. Do not use it with
    /// programs that read their own fields from them, such as those with client-go's Extract functions.
    #[schemars(extend("x-live" = true, "x-help" = true, "x-page" = "settings.md#managed-fields"))]
    pub(in crate::config) strip_managed_fields: bool,
    /// Hold Secrets in memory and answer reads of them from the cache although TLS is served.
    /// Otherwise these reads are forwarded. Without TLS Secrets are always cached.
    #[schemars(extend("x-flag" = "--cache-secrets BOOL", "x-help" = true))]
    pub(in crate::config) secrets: bool,
    /// Labels whose values are indexed, so that a list that selects by one of them reads only the
    /// objects it returns.
    #[schemars(extend("x-flag" = "--index-label KEY", "x-help" = true))]
    pub(in crate::config) index_labels: Vec<String>,
    /// What to do with a LIST or WATCH that has a shardSelector: forward it, or serve it from a cache
    /// and refuse it if no cache can answer. An API server whose feature gate ShardedListAndWatch is
    /// off ignores the selector and answers with all objects.
    #[schemars(extend("x-variable" = "KUBEFAN_SHARD_SELECTOR"))]
    pub(in crate::config) shard_selector: ShardSelectors,
    /// How fresh a "most recent" answer must be: strict (as fresh as the request), session (with all that
    /// the user has read and written), bounded:5s (proven within the last 5 s), or any; pods=any is for
    /// one resource. Of two rules for the same resource the later one wins. Default: strict.
    #[schemars(extend(
        "x-flag" = "--freshness [RESOURCE=]POLICY",
        "x-variable" = "KUBEFAN_FRESHNESS",
        "x-live" = true,
        "x-help" = true,
        "x-page" = "operating.md#freshness"
    ))]
    pub(in crate::config) freshness: Vec<FreshnessRule>,
    /// Drop the cache of a resource that no client used for this long, unless `cache.resources` or
    /// `cache.all` names it.
    #[schemars(extend("x-range" = "more than 0s", "x-live" = true, "x-help" = true))]
    pub(in crate::config) idle_timeout: Period,
    /// Keep a resource's events at least this long, memory permitting, for watches that resume.
    pub(in crate::config) retention_age: Period,
    /// The most memory for a resource's events. Default: 64Mi, or four times the size of the objects
    /// if that is more.
    pub(in crate::config) retention_bytes: Option<ByteSize>,
}

// === impl Cache ===

impl Cache {
    /// Returns true if a rule of freshness, or of a resource, has the policy `session`.
    pub(in crate::config) fn has_sessions(&self) -> bool {
        let of_resources = self.resources.iter().filter_map(CachedResource::freshness);
        let mut rules = self.freshness.iter().chain(of_resources);
        rules.any(|rule| rule.policy == FreshnessPolicy::Session)
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            resources: Vec::new(),
            all: false,
            never: Vec::new(),
            strip_managed_fields: false,
            secrets: false,
            index_labels: Vec::new(),
            shard_selector: ShardSelectors::Forward,
            freshness: Vec::new(),
            idle_timeout: Period(informer::Config::DEFAULT_IDLE_TIMEOUT),
            retention_age: Period(informer::Config::SERVER_RETENTION_AGE),
            retention_bytes: None,
        }
    }
}
