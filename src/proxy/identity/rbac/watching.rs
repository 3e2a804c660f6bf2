//! Watches roles and bindings through informers, and reports changes.

use std::collections::HashSet;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use kubefan_core::api::{EventType, GroupVersionResource, Object, Selection, WireFormat};
use kubefan_core::cache::{WatchFrom, WatchItem};
use kubefan_core::informer::{Informer, InformerSet, LiveRestMapper};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::objects::{Name, RbacKind, Subject};
use super::policy::{Concerned, Policy};
use super::recent::RecentChanges;
use crate::identity::User;
use crate::identity::open_watches::{Concern, OpenWatches};

/// After this time without a sign of life, a watch of roles or bindings counts as absent.
const MAX_SILENCE: Duration = Duration::from_secs(30);
/// How long kubefan waits before it tries again to watch roles or bindings.
const RETRY: Duration = Duration::from_secs(60);
/// How long kubefan waits after a watch has ended, for example because its resource was deleted.
const RESTART: Duration = Duration::from_secs(2);
/// The most changes that are reported together.
const BATCH: usize = 1_000;

/// Watches roles and bindings.
pub(in crate::identity) struct RoleWatch {
    known: Mutex<Known>,
    recent: Arc<RecentChanges>,
    open_watches: OpenWatches,
    informers: InformerSet,
    rest_mapper: Arc<LiveRestMapper>,
}

/// The policy, and the sources of its roles and bindings.
#[derive(Default)]
struct Known {
    policy: Policy,
    sources: [Source; RbacKind::ALL.len()],
}

/// The source of the roles or bindings of one kind.
#[derive(Default)]
struct Source {
    /// True once all objects of the kind were read.
    is_filled: bool,
    /// Set while the source follows changes.
    informer: Option<Arc<Informer>>,
}

impl RoleWatch {
    /// Starts to watch all roles and bindings that kubefan may watch. Adds each change to `recent`,
    /// and judges the rights again that the change affects, for `open_watches`.
    pub(in crate::identity) fn start(
        recent: Arc<RecentChanges>,
        open_watches: OpenWatches,
        informers: InformerSet,
        rest_mapper: Arc<LiveRestMapper>,
        registry: &Registry,
        shutdown: &Shutdown,
    ) {
        let watch = Arc::new(Self {
            known: Mutex::default(),
            recent,
            open_watches,
            informers,
            rest_mapper,
        });
        let weak = Arc::downgrade(&watch);
        registry.on_scrape(move |samples| {
            let alive = weak.upgrade().map_or(0, |watch| watch.known.lock().alive());
            samples.gauge(
                "kubefan_role_watches_alive",
                "Watches of roles and bindings that were proven alive within 30 s. Below 4, a lost right is noticed only after authorization.reauthorize.",
                &[],
                alive as f64,
            );
        });
        for index in 0..RbacKind::ALL.len() {
            let watch = Arc::clone(&watch);
            shutdown.spawn_background(async move { watch.run(index).await });
        }
    }

    /// Watches the roles or bindings of one kind. Runs until the future is dropped.
    async fn run(&self, index: usize) {
        let (_, resource) = RbacKind::ALL[index];
        let resource = GroupVersionResource::new("rbac.authorization.k8s.io", "v1", resource);
        let mut has_warned = false;
        loop {
            let spec = self.rest_mapper.informer_spec(&resource, WireFormat::Json);
            let informer = spec.and_then(|spec| self.informers.pin(&spec).ok());
            let was_ready = match informer {
                Some(informer) => self.follow(index, &informer).await,
                None => false,
            };
            self.known.lock().sources[index].informer = None;
            if !was_ready && !has_warned {
                has_warned = true;
                tracing::warn!(
                    %resource,
                    "kubefan cannot watch these roles or bindings, so it notices lost rights later",
                );
            }
            sleep(if was_ready { RESTART } else { RETRY }).await;
        }
    }

    /// Follows the objects of `informer` until it ends. Returns false if the informer was never
    /// ready.
    async fn follow(&self, index: usize, informer: &Arc<Informer>) -> bool {
        if !informer.reader().ready().await {
            return false;
        }
        let everything = Arc::new(Selection::default());
        let Ok(mut objects) = informer.reader().watch(WatchFrom::Snapshot, everything) else {
            return true;
        };
        let mut initial = Vec::new();
        while let Some(first) = objects.next().await {
            let mut concerned = Concerned::default();
            let rest = iter::from_fn(|| objects.next().now_or_never().flatten());
            for item in iter::once(first).chain(rest.take(BATCH - 1)) {
                match item {
                    WatchItem::Initial(object) => initial.push(object),
                    WatchItem::InitialEnd(_) => {
                        let objects = std::mem::take(&mut initial);
                        concerned.extend(self.fill(index, informer, &objects));
                    }
                    WatchItem::Change { event, .. } => {
                        let is_deleted = event.event_type == EventType::Deleted;
                        concerned.extend(self.change(index, &event.object, is_deleted));
                    }
                    // The stream ends after this item, and is opened again.
                    WatchItem::Expired(_) => {}
                }
            }
            self.report(&concerned);
        }
        true
    }

    /// Replaces all roles or bindings of a kind. Returns the users and groups with rights that may
    /// have changed; an empty set if the objects are read for the first time.
    fn fill(&self, index: usize, informer: &Arc<Informer>, objects: &[Arc<Object>]) -> Concerned {
        let (kind, _) = RbacKind::ALL[index];
        let mut known = self.known.lock();
        let mut gone = known.policy.names(kind);
        let mut concerned = Concerned::default();
        for object in objects {
            gone.remove(&Name::of(object));
            concerned.extend(known.policy.set(kind, object));
        }
        for name in gone {
            concerned.extend(known.policy.remove(kind, &name));
        }
        let source = &mut known.sources[index];
        source.informer = Some(Arc::clone(informer));
        if std::mem::replace(&mut source.is_filled, true) {
            concerned
        } else {
            Concerned::default()
        }
    }

    fn change(&self, index: usize, object: &Object, is_deleted: bool) -> Concerned {
        let (kind, _) = RbacKind::ALL[index];
        let policy = &mut self.known.lock().policy;
        if is_deleted {
            policy.remove(kind, &Name::of(object))
        } else {
            policy.set(kind, object)
        }
    }

    /// Has all rights judged again that may have changed just now.
    fn report(&self, concerned: &Concerned) {
        if concerned.is_empty() {
            return;
        }
        let now = Instant::now();
        self.recent.add(concerned, now);
        let known = self.known.lock();
        let is_complete = known.alive() == RbacKind::ALL.len();
        let subjects: HashSet<_> = concerned.iter().map(|(subject, _)| subject).collect();
        let is_concerned = |user: &User| Subject::all_of(user).any(|of| subjects.contains(&of));
        let open_watches = &self.open_watches;
        open_watches.changed(now, is_concerned, |user, attributes| {
            let last = self.recent.last(user, &attributes.namespace);
            match last.is_some_and(|last| last >= now) {
                false => Concern::None,
                true if !is_complete => Concern::Unclear,
                true if known.policy.allows(user, attributes) => Concern::Kept,
                true if known.policy.allowed(user, attributes) => Concern::LikelyLost,
                true => Concern::Unclear,
            }
        });
    }
}

impl Known {
    /// Returns the number of kinds with a watch that was proven alive a short time ago.
    fn alive(&self) -> usize {
        let is_alive = |source: &&Source| {
            let informer = source.informer.as_ref();
            let age = informer.and_then(|informer| informer.metrics().watch_liveness.age());
            age.is_some_and(|age| age <= MAX_SILENCE)
        };
        self.sources.iter().filter(is_alive).count()
    }
}
