//! Keeps the RestMapper true while resources come and go, and tells the informers.
//!
//! Watches CustomResourceDefinitions and APIServices through informers of the set itself, so that
//! clients who watch them share the same upstream watch; where they can't be watched it polls.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio::time::MissedTickBehavior;

use crate::api::GroupVersionResource;
use crate::api::SelectableFields;
use crate::api::Selection;
use crate::api::WireFormat;
use crate::cache::WatchFrom;
use crate::cache::WatchItem;
use crate::upstream::Client;
use crate::upstream::Discovery;
use crate::upstream::Error;
use crate::upstream::RestMapper;

use super::Informer;
use super::InformerSet;
use super::InformerSpec;

/// After a change the API server publishes new discovery documents with a delay of its own, so
/// discovery is fetched at once, and again after each of these waits.
const SETTLE_DELAYS: &[Duration] = &[
    Duration::from_millis(300),
    Duration::from_secs(2),
    Duration::from_secs(5),
];
/// How often discovery is fetched when nothing asks for it.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Unknown resources in requests ask for a refresh at most this often, at first.
const FIRST_REFRESH_PAUSE: Duration = Duration::from_secs(2);
/// How often it is looked whether required informers run.
const REQUIRED_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The RestMapper of this moment. Shared by all requests.
pub struct LiveRestMapper {
    client: Client,
    current: ArcSwap<DiscoverySnapshot>,
    refresh_wanted: Notify,
    unknown_requested: Notify,
    refresh_state: Mutex<RefreshState>,
}

struct RefreshState {
    last: Option<Instant>,
    /// Until the next time.
    pause: Duration,
}

struct DiscoverySnapshot {
    mapper: RestMapper,
    /// Field tables of the resources asked for so far.
    fields: Mutex<HashMap<GroupVersionResource, Arc<SelectableFields>>>,
}

impl LiveRestMapper {
    /// Fetches discovery once.
    ///
    /// # Errors
    ///
    /// When the API server can't be reached or answers neither form of discovery.
    pub async fn discover(client: Client) -> Result<Self, Error> {
        let mapper = Discovery::fetch(&client).await?;
        Ok(Self {
            client,
            current: ArcSwap::from_pointee(DiscoverySnapshot::new(mapper)),
            refresh_wanted: Notify::new(),
            unknown_requested: Notify::new(),
            refresh_state: Mutex::default(),
        })
    }

    /// What an informer of `gvr` in `format` needs to know; `None` when discovery does not have it
    /// or it is never cached.
    ///
    /// An unknown resource asks for a refresh in the background.
    pub fn informer_spec(
        &self,
        gvr: &GroupVersionResource,
        format: WireFormat,
    ) -> Option<InformerSpec> {
        self.refresh_unless_known(gvr);
        self.known_informer_spec(gvr, format)
    }

    /// The same, without a refresh.
    pub fn known_informer_spec(
        &self,
        gvr: &GroupVersionResource,
        format: WireFormat,
    ) -> Option<InformerSpec> {
        let discovered = self.current.load();
        let resource = discovered.mapper.resource(gvr)?;
        discovered.mapper.cacheable(gvr).ok()?;
        Some(InformerSpec {
            resource: Arc::clone(resource),
            format,
            fields: discovered.fields_of(gvr),
            custom: discovered.mapper.is_custom(gvr),
            list_kind: discovered.mapper.list_kind(gvr).map(str::to_owned),
        })
    }

    /// Asks for a refresh in the background if discovery does not have `gvr`.
    pub fn refresh_unless_known(&self, gvr: &GroupVersionResource) {
        if self.with(|mapper| mapper.resource(gvr).is_none()) {
            self.request_refresh();
        }
    }

    /// Runs `look` on the RestMapper of this moment.
    pub fn with<T>(&self, look: impl FnOnce(&RestMapper) -> T) -> T {
        look(&self.current.load().mapper)
    }

    /// Refreshes whenever CRDs or APIServices change, and now and then; runs until dropped.
    pub async fn run(&self, informers: InformerSet) {
        let crds =
            GroupVersionResource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let api_services = GroupVersionResource::new("apiregistration.k8s.io", "v1", "apiservices");
        tokio::join!(
            self.refresh_on_request(&informers),
            self.watch_resource(&informers, &crds),
            self.watch_resource(&informers, &api_services),
            self.keep_required_running(&informers),
        );
    }

    /// Starts the informers that readiness waits for, where they don't run.
    pub fn pin_required(&self, informers: &InformerSet) {
        for (gvr, format) in informers.required() {
            if let Some(spec) = self.informer_spec(&gvr, format)
                && let Err(error) = informers.pin(&spec)
            {
                tracing::debug!(resource = %gvr, refused = %error, "required, but refused");
            }
        }
    }

    /// What is required may end: its definition went and came back, or rights were taken and given.
    async fn keep_required_running(&self, informers: &InformerSet) {
        loop {
            tokio::time::sleep(REQUIRED_CHECK_INTERVAL).await;
            self.pin_required(informers);
        }
    }

    /// Asks for a refresh because a request names what discovery does not know; the more rarely, the
    /// more often that was in vain.
    fn request_refresh(&self) {
        let mut refresh_state = self.refresh_state.lock();
        if refresh_state
            .last
            .is_none_or(|last| last.elapsed() >= refresh_state.pause)
        {
            refresh_state.last = Some(Instant::now());
            refresh_state.pause = (refresh_state.pause * 2).min(POLL_INTERVAL);
            self.unknown_requested.notify_one();
        }
    }

    /// Asks for a refresh at every change of `gvr`.
    async fn watch_resource(&self, informers: &InformerSet, gvr: &GroupVersionResource) {
        loop {
            let spec = self.informer_spec(gvr, WireFormat::Json);
            let informer = spec.and_then(|spec| informers.pin(&spec).ok());
            if let Some(informer) = informer {
                self.watch_informer(&informer).await;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Ends when the informer does.
    async fn watch_informer(&self, informer: &Informer) {
        loop {
            if !informer.reader().ready().await {
                return;
            }
            let everything = Arc::new(Selection::default());
            let Ok(mut changes) = informer.reader().watch(WatchFrom::Tip, everything) else {
                return;
            };
            self.refresh_wanted.notify_one();
            loop {
                match changes.next().await {
                    Some(WatchItem::Change { .. }) => self.refresh_wanted.notify_one(),
                    Some(WatchItem::Expired(_)) => break,
                    Some(_) => {}
                    None => return,
                }
            }
        }
    }

    async fn refresh_on_request(&self, informers: &InformerSet) {
        let mut server_version = Discovery::version(&self.client).await.ok();
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        poll.tick().await;
        loop {
            let waits = tokio::select! {
                () = self.refresh_wanted.notified() => SETTLE_DELAYS,
                () = self.unknown_requested.notified() => &[],
                _ = poll.tick() => {
                    self.relist_after_upgrade(informers, &mut server_version).await;
                    &[]
                }
            };
            self.refresh(informers).await;
            for wait in waits {
                tokio::time::sleep(*wait).await;
                self.refresh(informers).await;
            }
        }
    }

    async fn refresh(&self, informers: &InformerSet) {
        match Discovery::fetch(&self.client).await {
            Ok(mapper) => self.install(mapper, informers),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "discovery failed");
            }
        }
    }

    fn install(&self, mapper: RestMapper, informers: &InformerSet) {
        let before = self.current.load_full();
        let mapper = mapper.with_unknown_from(&before.mapper);
        let changes = RestMapper::changes(&before.mapper, &mapper);
        let after = Arc::new(DiscoverySnapshot::new(mapper));
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
            if before.fields_of(gvr) == after.fields_of(gvr) {
                tracing::info!(resource = %gvr, "definition changed, listing again");
                informers.relist(Some(gvr));
            } else {
                tracing::info!(resource = %gvr, "selectable fields changed, starting afresh");
                informers.stop(gvr);
            }
        }
    }

    /// Another version of the API server may print other bytes at the same resource versions.
    async fn relist_after_upgrade(&self, informers: &InformerSet, known: &mut Option<String>) {
        let Ok(now) = Discovery::version(&self.client).await else {
            return;
        };
        if known.as_ref().is_some_and(|known| *known != now) {
            tracing::info!(version = %now, "the API server's version changed, listing again");
            informers.relist(None);
        }
        *known = Some(now);
    }
}

impl Default for RefreshState {
    fn default() -> Self {
        Self {
            last: None,
            pause: FIRST_REFRESH_PAUSE,
        }
    }
}

impl DiscoverySnapshot {
    fn new(mapper: RestMapper) -> Self {
        Self {
            mapper,
            fields: Mutex::new(HashMap::new()),
        }
    }

    fn fields_of(&self, gvr: &GroupVersionResource) -> Arc<SelectableFields> {
        let mut fields = self.fields.lock();
        if let Some(known) = fields.get(gvr) {
            return Arc::clone(known);
        }
        let table = match (
            self.mapper.selectable_json_paths(gvr),
            self.mapper.resource(gvr),
        ) {
            (Some(paths), Some(resource)) => SelectableFields::custom(resource.namespaced, paths),
            (None, Some(resource)) => SelectableFields::for_resource(resource),
            (_, None) => SelectableFields::default(),
        };
        let table = Arc::new(table);
        fields.insert(gvr.clone(), Arc::clone(&table));
        table
    }
}
