//! Which resources are cached from the start, and how.

use kubefan_core::api::is_label_key;
use kubefan_core::cache::GroupLimits;
use kubefan_core::informer;

use super::checker::Checker;
use super::limits::max_unindexed;
use crate::config::settings::Settings;
use crate::config::values::cached_resource::CachedResource;
use crate::config::values::freshness_rule::FreshnessRule;
use crate::ledger;

const EMPTY_NAME: &str = "a name is empty; names are for example pods or deployments.apps";

/// The resources that are cached from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resources {
    /// Resources by the names that kubectl accepts, such as `deployments.apps`; may be empty.
    Named(Vec<String>),
    /// Every resource that can be cached.
    All,
}

impl Checker<'_> {
    pub(super) fn resources(&mut self) -> Resources {
        const ALL: &str = "cache.all";
        const NAMES: &str = "cache.resources";
        let cache = &self.settings.cache;
        let is_overriding = self.sources.overrides(ALL, NAMES);
        let is_name = |entry: &CachedResource| matches!(entry, CachedResource::Named(_));
        if cache.all && cache.resources.iter().any(is_name) && !is_overriding {
            let other = self.sources.name(NAMES, ALL);
            let message = format!("already includes every resource; leave out {other}");
            self.report(ALL, &message);
        }
        let mut names = cache.resources.iter().map(CachedResource::name);
        if names.any(|name| name.trim().is_empty()) {
            self.report(NAMES, EMPTY_NAME);
        }
        let mut labels = cache.index_labels.iter();
        if let Some(label) = labels.find(|label| !is_label_key(label)) {
            let message =
                format!("{label:?} is not the key of a label, such as app.kubernetes.io/name");
            self.report("cache.indexLabels", &message);
        }
        if cache.never.iter().any(|name| name.trim().is_empty()) {
            self.report("cache.never", EMPTY_NAME);
        }
        let from_start = cache.resources.iter().filter(|entry| entry.is_from_start());
        if cache.all {
            Resources::All
        } else {
            Resources::Named(from_start.map(|entry| entry.name().to_owned()).collect())
        }
    }
}

/// Returns the settings of the informers and their caches, with budgets that are shares of
/// `memory`.
pub(super) fn informers(settings: &Settings, memory: &ledger::Limits) -> informer::Config {
    let cache = &settings.cache;
    informer::Config {
        idle_timeout: cache.idle_timeout.0,
        indexed_labels: cache.index_labels.clone(),
        retention_age: cache.retention_age.0,
        retention_bytes: cache.retention_bytes.map(|size| size.0),
        groups: GroupLimits {
            unindexed: max_unindexed(&settings.limits),
            idle_bytes: memory.share(GroupLimits::DEFAULT_IDLE_BYTES),
            queue_bytes: memory.share(GroupLimits::DEFAULT_QUEUE_BYTES),
            ..GroupLimits::default()
        },
        bridge_bytes: memory.share(informer::Config::DEFAULT_BRIDGE_BYTES),
        freshness: FreshnessRule::policies(&cache.freshness),
        max_unauthorized: settings.limits.max_unauthorized.0,
        max_staleness: settings.limits.max_staleness.map(|period| period.0),
        hooks: informer::Hooks::default(),
        seed: None,
    }
}
