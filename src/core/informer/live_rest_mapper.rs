//! Refreshes the REST mapper when resources appear, change or disappear, and stops or relists the
//! informers of the resources that changed.
//!
//! It watches CustomResourceDefinitions and APIServices through informers of the set, so that
//! clients share these upstream watches. It also polls each minute, in case it may not watch them.

mod discovery_snapshot;
mod early_ends;
mod field_checks;
mod known_definitions;
mod mappings;
mod named;
mod proven_definition;
mod redefined;
mod refresh_schedule;
mod seen_versions;
mod server_version;
mod upgrade;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use discovery_snapshot::{Details, DiscoverySnapshot};
use early_ends::relist_after_early_ends;
use field_checks::FieldChecks;
use futures_util::future::OptionFuture;
use known_definitions::KnownDefinitions;
use parking_lot::Mutex;
use refresh_schedule::RefreshSchedule;
use seen_versions::SeenVersions;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, sleep_until};
use upgrade::relist_after_upgrades;

use super::{Informer, InformerSet, InformerSpec, ResourceRules, RuleError};
use crate::api::{GroupVersionResource, Selection, WireFormat};
use crate::cache::{WatchFrom, WatchItem};
use crate::codec::Clock;
use crate::upstream::{Client, Definition, Discovery, Error, NotCacheable, RestMapper};

/// Interval of polls of discovery, and longest pause between refreshes for unknown resources.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Initial value of the pause between refreshes that requests for unknown resources cause. Each
/// such refresh after the first doubles the pause.
const INITIAL_REFRESH_PAUSE: Duration = Duration::from_secs(2);
/// Interval of the search for running informers with unchecked fields.
const FIELD_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often required informers that have ended are started again.
const REQUIRED_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The current REST mapper, shared by all requests and replaced by each refresh of discovery.
pub struct LiveRestMapper {
    client: Client,
    discovery: tokio::sync::Mutex<Discovery>,
    definitions: Mutex<KnownDefinitions>,
    current: ArcSwap<DiscoverySnapshot>,
    /// Notified when a definition has changed.
    definition_changed: Notify,
    /// Notified to refresh once.
    refresh_once: Notify,
    refresh_state: Mutex<RefreshState>,
    /// The groups and names of the resources that the operator excludes from the caches.
    excluded: Vec<(String, String)>,
    rules: ArcSwap<ResourceRules>,
    seen_versions: Mutex<SeenVersions>,
    /// The version of all API servers that answer. `None` before the first poll, and while the
    /// servers have several versions.
    server_version: ArcSwapOption<String>,
    /// The least minor version of these API servers.
    server_minor: ArcSwapOption<u32>,
    server_clock: Clock,
    field_checks: FieldChecks,
}

#[derive(Default)]
struct RefreshState {
    last: Option<Instant>,
    /// Minimum time between `last` and the next refresh; `None` for the initial one.
    pause: Option<Duration>,
}

impl LiveRestMapper {
    /// Fetches discovery once.
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached, or serves neither form of discovery.
    pub async fn discover(client: Client) -> Result<Self, Error> {
        let mut discovery = Discovery::new(client.clone());
        let mapper = discovery.fetch(|| None).await?;
        Ok(Self {
            client,
            discovery: tokio::sync::Mutex::new(discovery),
            definitions: Mutex::default(),
            current: ArcSwap::from_pointee(DiscoverySnapshot::new(mapper)),
            definition_changed: Notify::new(),
            refresh_once: Notify::new(),
            refresh_state: Mutex::default(),
            excluded: Vec::new(),
            rules: ArcSwap::default(),
            seen_versions: Mutex::default(),
            server_version: ArcSwapOption::empty(),
            server_minor: ArcSwapOption::empty(),
            server_clock: Clock::default(),
            field_checks: FieldChecks::default(),
        })
    }

    /// Excludes `resource` of the API group `group` from the caches.
    #[must_use]
    pub fn excluding(mut self, group: &str, resource: &str) -> Self {
        self.excluded.push((group.to_owned(), resource.to_owned()));
        self
    }

    /// Sets the rules, so that only what `rules` permit is cached.
    #[must_use]
    pub fn with_rules(self, rules: ResourceRules) -> Self {
        self.rules.store(Arc::new(rules));
        self
    }

    /// Replaces the rules, and returns the old ones. Informers that the new rules do not permit run
    /// until [`LiveRestMapper::apply_rules`] is called.
    pub fn replace_rules(&self, rules: ResourceRules) -> Arc<ResourceRules> {
        self.rules.swap(Arc::new(rules))
    }

    /// Stops the informers that the rules do not permit, or permit only with other settings.
    /// Applies the freshness of the rules to the other informers.
    pub fn apply_rules(&self, informers: &InformerSet) {
        for informer in informers.all() {
            let gvr = &informer.resource().gvr;
            match self.known_informer_spec(gvr, informer.format()) {
                Some(spec) => informers.update(&informer, &spec),
                None if self.cacheable(gvr) == Err(NotCacheable::Never) => informer.stop(),
                // If discovery has lost the resource, a refresh stops the informer.
                None => {}
            }
        }
    }

    /// Checks whether the rule of the resource `gvr`, if there is one, fits it.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if the rule does not fit. Then nothing of the resource is cached.
    pub fn check_rule(&self, gvr: &GroupVersionResource) -> Result<(), RuleError> {
        let discovered = self.current.load();
        let Some(resource) = discovered.mapper.resource(gvr) else {
            return Ok(());
        };
        let fields = discovered.fields_of(gvr, self.server_minor());
        let rules = self.rules.load();
        let settings = rules.settings(resource, &fields, &discovered.mapper);
        settings.map(drop)
    }

    /// Checks whether the resource `gvr` may be cached.
    ///
    /// # Errors
    ///
    /// The reason why the resource may not be cached.
    pub fn cacheable(&self, gvr: &GroupVersionResource) -> Result<(), NotCacheable> {
        self.cacheable_by(&self.current.load(), gvr)
    }

    fn cacheable_by(
        &self,
        discovered: &DiscoverySnapshot,
        gvr: &GroupVersionResource,
    ) -> Result<(), NotCacheable> {
        let mut excluded = self.excluded.iter();
        if excluded.any(|(group, name)| *group == gvr.group && *name == gvr.resource) {
            return Err(NotCacheable::Excluded);
        }
        discovered.mapper.cacheable(gvr)?;
        if self.details_of(discovered, gvr).is_forbidden {
            Err(NotCacheable::Never)
        } else {
            Ok(())
        }
    }

    fn details_of(&self, discovered: &DiscoverySnapshot, gvr: &GroupVersionResource) -> Details {
        discovered.details_of(gvr, self.server_minor(), &self.rules.load())
    }

    /// Returns the description that an informer of `gvr` in `format` is started with. Returns
    /// `None` if discovery does not have the resource, or if kubefan never caches it.
    ///
    /// For an unknown resource, this requests a refresh of discovery in the background.
    pub fn informer_spec(
        &self,
        gvr: &GroupVersionResource,
        format: WireFormat,
    ) -> Option<InformerSpec> {
        self.refresh_unless_known(gvr);
        self.known_informer_spec(gvr, format)
    }

    /// Does what [`LiveRestMapper::informer_spec`] does, but never requests a refresh.
    pub fn known_informer_spec(
        &self,
        gvr: &GroupVersionResource,
        format: WireFormat,
    ) -> Option<InformerSpec> {
        self.spec_or_reason(gvr, format).ok()
    }

    /// Does what [`LiveRestMapper::known_informer_spec`] does, but returns an
    /// error instead of `None`.
    ///
    /// # Errors
    ///
    /// The reason why the resource may not be cached.
    pub fn spec_or_reason(
        &self,
        gvr: &GroupVersionResource,
        format: WireFormat,
    ) -> Result<InformerSpec, NotCacheable> {
        let discovered = self.current.load();
        self.cacheable_by(&discovered, gvr)?;
        let spec = self.spec_of(&discovered, gvr, format);
        spec.ok_or(NotCacheable::Unknown)
    }

    fn spec_of(
        &self,
        discovered: &DiscoverySnapshot,
        gvr: &GroupVersionResource,
        format: WireFormat,
    ) -> Option<InformerSpec> {
        let resource = discovered.mapper.resource(gvr)?;
        let details = self.details_of(discovered, gvr);
        Some(InformerSpec {
            resource: Arc::clone(resource),
            format,
            fields: self.field_checks.apply(gvr, details.fields),
            custom: discovered.mapper.is_custom(gvr),
            list_kind: discovered.mapper.list_kind(gvr).map(str::to_owned),
            settings: details.settings,
        })
    }

    /// Requests a refresh of discovery in the background if it does not have `gvr`.
    pub fn refresh_unless_known(&self, gvr: &GroupVersionResource) {
        if self.with(|mapper| mapper.resource(gvr).is_none()) {
            self.request_refresh();
        }
    }

    /// Calls `look` with the current REST mapper, and returns its result.
    pub fn with<T>(&self, look: impl FnOnce(&RestMapper) -> T) -> T {
        look(&self.current.load().mapper)
    }

    /// Returns the resource of CustomResourceDefinitions. [`LiveRestMapper::run`] pins an informer
    /// of it if the API server and the rules permit that.
    pub fn definitions() -> GroupVersionResource {
        GroupVersionResource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    }

    /// Refreshes discovery when a CustomResourceDefinition or APIService changes, when a request
    /// names an unknown resource, and once a minute. Restarts required informers that have ended.
    /// Runs until the future is dropped.
    pub async fn run(&self, informers: InformerSet) {
        tokio::join!(
            self.refresh_on_request(&informers),
            self.watch_resource(&informers, Self::definitions()),
            self.watch_resource(&informers, api_services()),
            self.keep_required_running(&informers),
            self.check_fields(&informers),
            self.relist_doubted(&informers),
            relist_after_early_ends(&informers),
            relist_after_upgrades(&self.client, &informers, |polled, poll| {
                self.polled_version(polled, poll);
            }),
        );
    }

    /// Starts and pins each informer that readiness waits for, unless it runs already.
    pub fn pin_required(&self, informers: &InformerSet) {
        for (gvr, format) in informers.required() {
            if let Some(spec) = self.informer_spec(&gvr, format)
                && let Err(error) = informers.pin_scopes(&spec)
            {
                tracing::debug!(resource = %gvr, refused = %error, "a required informer cannot be started");
            }
        }
    }

    /// Restarts required informers that ended, for example because their definition was deleted
    /// and created again, or because kubefan's rights were removed and granted again.
    async fn keep_required_running(&self, informers: &InformerSet) {
        loop {
            tokio::time::sleep(REQUIRED_CHECK_INTERVAL).await;
            // A request that was decided before a change of the rules may start
            // an informer after it.
            self.apply_rules(informers);
            self.pin_required(informers);
        }
    }

    /// Asks the API server which fields it can select by, for each resource with an informer.
    async fn check_fields(&self, informers: &InformerSet) {
        loop {
            tokio::time::sleep(FIELD_CHECK_INTERVAL).await;
            let Some(version) = self.server_version() else {
                continue;
            };
            for informer in informers.all() {
                let gvr = &informer.resource().gvr;
                // A custom resource has the fields that its definition names.
                if !self.with(|mapper| mapper.is_custom(gvr)) {
                    let checks = &self.field_checks;
                    checks.check(&self.client, &informer, &version).await;
                }
            }
        }
    }

    /// Requests a refresh because a client's request names an unknown resource. The pause between
    /// two such refreshes doubles up to a minute, until a refresh finds a new resource.
    pub(super) fn request_refresh(&self) {
        if self.refresh_state.lock().may_refresh(Instant::now()) {
            self.refresh_once.notify_one();
        }
    }

    /// Requests a refresh at each change of an object of `gvr`. While there is no informer of
    /// `gvr`, tries once a minute to start one.
    async fn watch_resource(&self, informers: &InformerSet, gvr: GroupVersionResource) {
        loop {
            let spec = self.informer_spec(&gvr, WireFormat::Json);
            let informer = spec.and_then(|spec| informers.pin(&spec).ok());
            if let Some(informer) = informer {
                self.watch_informer(informers, &informer).await;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Requests a refresh when a watch of `informer` starts, and at each change; returns when the
    /// informer ends.
    async fn watch_informer(&self, informers: &InformerSet, informer: &Informer) {
        let has_definitions = informer.resource().gvr == Self::definitions();
        loop {
            if !informer.reader().ready().await {
                return;
            }
            let everything = Arc::new(Selection::default());
            let Ok(mut changes) = informer.reader().watch(WatchFrom::Tip, everything) else {
                return;
            };
            // Discovery may be older than the list that this watch continues. If the API server
            // publishes a resource later still, the first request for it causes a refresh.
            self.refresh_once.notify_one();
            loop {
                match changes.next().await {
                    Some(WatchItem::Change { event, .. }) => {
                        if has_definitions {
                            self.doubt_redefined(informers, &event.object);
                        }
                        self.definition_changed.notify_one();
                    }
                    Some(WatchItem::Expired(_)) => break,
                    Some(_) => {}
                    None => return,
                }
            }
        }
    }

    async fn refresh_on_request(&self, informers: &InformerSet) {
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        poll.tick().await;
        let mut schedule = RefreshSchedule::default();
        loop {
            let due = OptionFuture::from(schedule.next().map(sleep_until));
            tokio::select! {
                () = self.definition_changed.notified() => schedule.changed(Instant::now()),
                () = self.refresh_once.notified() => schedule.once(Instant::now()),
                _ = poll.tick() => schedule.once(Instant::now()),
                Some(()) = due => {
                    schedule.begin(Instant::now());
                    self.refresh(informers).await;
                }
            }
        }
    }

    async fn refresh(&self, informers: &InformerSet) {
        let mut discovery = self.discovery.lock().await;
        match discovery.fetch(|| self.cached_definitions(informers)).await {
            Ok(mapper) => self.install(mapper, informers),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "discovery failed");
            }
        }
    }

    /// Returns the CustomResourceDefinitions in their cache, if there is a cache. It may be some
    /// events behind; each of these events causes another refresh.
    fn cached_definitions(&self, informers: &InformerSet) -> Option<Vec<Arc<Definition>>> {
        let spec = self.known_informer_spec(&Self::definitions(), WireFormat::Json)?;
        let informer = informers.get_ready(&spec, None)?;
        let snapshot = informer.reader().snapshot()?;
        self.definitions.lock().of(&snapshot)
    }

    fn install(&self, mapper: RestMapper, informers: &InformerSet) {
        let before = self.current.load_full();
        let mapper = mapper.with_unknown_from(&before.mapper);
        let changes = RestMapper::changes(&before.mapper, &mapper);
        let after = Arc::new(DiscoverySnapshot::new(mapper));
        self.doubt_changed(&before.mapper, &after.mapper, &changes.changed, informers);
        self.current.store(Arc::clone(&after));
        if !changes.added.is_empty() {
            *self.refresh_state.lock() = RefreshState::default();
        }
        for gvr in &changes.added {
            tracing::info!(resource = %gvr, "resource appeared");
        }
        for gvr in &changes.removed {
            tracing::info!(resource = %gvr, "resource disappeared");
            informers.stop(gvr);
        }
        for gvr in &changes.changed {
            if !before.is_continued_by(&after, gvr, self.server_minor()) {
                tracing::info!(
                    resource = %gvr,
                    "the definition is another one, or its names or selectable fields changed, \
                     stopping its informers"
                );
                informers.stop(gvr);
            }
        }
        for informer in informers.all() {
            let gvr = &informer.resource().gvr;
            if after.mapper.is_aggregated(gvr) {
                tracing::info!(resource = %gvr, "it is aggregated now, stopping its informers");
                informers.stop(gvr);
            }
        }
        // A relist may have waited for this discovery.
        informers.inner.doubted.notify_one();
    }
}

fn api_services() -> GroupVersionResource {
    GroupVersionResource::new("apiregistration.k8s.io", "v1", "apiservices")
}

impl RefreshState {
    /// Returns true if a refresh may begin at `now`, and records it as the last one.
    fn may_refresh(&mut self, now: Instant) -> bool {
        if let Some(last) = self.last {
            let pause = self.pause.unwrap_or(INITIAL_REFRESH_PAUSE);
            if now.duration_since(last) < pause {
                return false;
            }
            self.pause = Some((pause * 2).min(POLL_INTERVAL));
        }
        self.last = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_between_refreshes_for_unknown_resources_doubles_after_each() {
        let start = Instant::now();
        let mut state = RefreshState::default();
        let due = (0..200).filter(|second| {
            let now = start + Duration::from_secs(*second);
            state.may_refresh(now)
        });
        let expected = [0, 2, 6, 14, 30, 62, 122, 182];
        assert_eq!(due.collect::<Vec<_>>(), expected);
    }
}
