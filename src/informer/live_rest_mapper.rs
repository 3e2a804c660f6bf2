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
use super::Subject;

/// After a change the API server publishes new discovery documents with a delay of its own, so
/// discovery is fetched at once, and again after each of these waits.
const SETTLE: &[Duration] = &[
    Duration::from_millis(300),
    Duration::from_secs(2),
    Duration::from_secs(5),
];
/// How often discovery is fetched when nothing asks for it.
const POLL: Duration = Duration::from_secs(60);
/// Unknown resources in requests ask for a refresh at most this often, at first.
const ASKED: Duration = Duration::from_secs(2);
/// How often it is looked whether required informers run.
const KEEP: Duration = Duration::from_secs(5);

/// The RestMapper of this moment. Shared by all requests.
pub struct LiveRestMapper {
    client: Client,
    current: ArcSwap<Discovered>,
    wanted: Notify,
    unknown: Notify,
    asked: Mutex<Asked>,
}

struct Asked {
    last: Option<Instant>,
    /// Until the next time.
    pause: Duration,
}

struct Discovered {
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
            current: ArcSwap::from_pointee(Discovered::new(mapper)),
            wanted: Notify::new(),
            unknown: Notify::new(),
            asked: Mutex::default(),
        })
    }

    /// What an informer of `gvr` in `format` needs to know; `None` when discovery does not have it
    /// or it is never cached.
    ///
    /// An unknown resource asks for a refresh in the background.
    pub fn subject(&self, gvr: &GroupVersionResource, format: WireFormat) -> Option<Subject> {
        self.refresh_unless_known(gvr);
        self.known_subject(gvr, format)
    }

    /// The same, without a refresh.
    pub fn known_subject(&self, gvr: &GroupVersionResource, format: WireFormat) -> Option<Subject> {
        let discovered = self.current.load();
        let resource = discovered.mapper.resource(gvr)?;
        discovered.mapper.cacheable(gvr).ok()?;
        Some(Subject {
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
            self.ask();
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
            self.refresh_when_wanted(&informers),
            self.follow(&informers, &crds),
            self.follow(&informers, &api_services),
            self.keep_required(&informers),
        );
    }

    /// Starts the informers that readiness waits for, where they don't run.
    pub fn pin_required(&self, informers: &InformerSet) {
        for (gvr, format) in informers.required() {
            if let Some(subject) = self.subject(&gvr, format)
                && let Err(refused) = informers.pin(&subject)
            {
                tracing::debug!(resource = %gvr, %refused, "required, but refused");
            }
        }
    }

    /// What is required may end: its definition went and came back, or rights were taken and given.
    async fn keep_required(&self, informers: &InformerSet) {
        loop {
            tokio::time::sleep(KEEP).await;
            self.pin_required(informers);
        }
    }

    /// Asks for a refresh because a request names what discovery does not know; the more rarely, the
    /// more often that was in vain.
    fn ask(&self) {
        let mut asked = self.asked.lock();
        if asked.last.is_none_or(|last| last.elapsed() >= asked.pause) {
            asked.last = Some(Instant::now());
            asked.pause = (asked.pause * 2).min(POLL);
            self.unknown.notify_one();
        }
    }

    /// Asks for a refresh at every change of `gvr`.
    async fn follow(&self, informers: &InformerSet, gvr: &GroupVersionResource) {
        loop {
            let subject = self.subject(gvr, WireFormat::Json);
            let informer = subject.and_then(|subject| informers.pin(&subject).ok());
            if let Some(informer) = informer {
                self.follow_informer(&informer).await;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Ends when the informer does.
    async fn follow_informer(&self, informer: &Informer) {
        loop {
            if !informer.reader().ready().await {
                return;
            }
            let everything = Arc::new(Selection::default());
            let Ok(mut changes) = informer.reader().watch(WatchFrom::Tip, everything) else {
                return;
            };
            self.wanted.notify_one();
            loop {
                match changes.next().await {
                    Some(WatchItem::Change { .. }) => self.wanted.notify_one(),
                    Some(WatchItem::Expired(_)) => break,
                    Some(_) => {}
                    None => return,
                }
            }
        }
    }

    async fn refresh_when_wanted(&self, informers: &InformerSet) {
        let mut server_version = Discovery::version(&self.client).await.ok();
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        poll.tick().await;
        loop {
            let waits = tokio::select! {
                () = self.wanted.notified() => SETTLE,
                () = self.unknown.notified() => &[],
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
        let mapper = mapper.remembering(&before.mapper);
        let changes = RestMapper::changes(&before.mapper, &mapper);
        let after = Arc::new(Discovered::new(mapper));
        self.current.store(Arc::clone(&after));
        if !changes.added.is_empty() {
            *self.asked.lock() = Asked::default();
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

impl Default for Asked {
    fn default() -> Self {
        Self {
            last: None,
            pause: ASKED,
        }
    }
}

impl Discovered {
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
