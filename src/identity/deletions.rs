//! Notices deleted ServiceAccounts and pods in the caches that kubefan has for its clients. The
//! tokens that were issued for them are not good any more.

use std::sync::Arc;
use std::sync::Weak;
use std::time::Duration;

use prometheus::IntGauge;
use tokio::time::Instant;
use tokio::time::sleep;

use super::open_watches::OpenWatches;
use super::rbac::RecentChanges;
use crate::api::EventType;
use crate::api::Selection;
use crate::cache::WatchFrom;
use crate::cache::WatchItem;
use crate::informer::Informer;
use crate::informer::InformerSet;
use crate::shutdown::Shutdown;
use crate::telemetry::Registry;

/// How often kubefan looks for new caches.
const SEARCH: Duration = Duration::from_secs(1);
/// The resources of the core group for which tokens are issued.
const RESOURCES: [&str; 2] = ["serviceaccounts", "pods"];

/// Follows the caches of ServiceAccounts and pods.
#[derive(Clone)]
pub(super) struct Deletions {
    recent: Arc<RecentChanges>,
    open_watches: OpenWatches,
    /// The number of caches that are followed.
    followed: IntGauge,
}

impl Deletions {
    /// Follows the caches of `informers`. A deleted object is added to `recent`, and the tokens for
    /// it are asked about for `open_watches`.
    pub(super) fn start(
        recent: Arc<RecentChanges>,
        open_watches: OpenWatches,
        informers: InformerSet,
        registry: &Registry,
        shutdown: &Shutdown,
    ) {
        let deletions = Self {
            recent,
            open_watches,
            followed: registry.gauge(
                "kubefan_account_caches",
                "Caches of ServiceAccounts and pods in which deletions are noticed, so that their tokens are asked about at once.",
            ),
        };
        let tasks = shutdown.clone();
        shutdown.spawn_background(async move { deletions.run(&informers, &tasks).await });
    }

    /// Follows each cache once. Runs until the future is dropped.
    async fn run(self, informers: &InformerSet, shutdown: &Shutdown) {
        let mut followed: Vec<Weak<Informer>> = Vec::new();
        loop {
            followed.retain(|informer| informer.strong_count() > 0);
            for informer in informers.all() {
                let gvr = &informer.resource().gvr;
                let is_source = gvr.group.is_empty() && RESOURCES.contains(&gvr.resource.as_str());
                let is_this = |other: &Weak<Informer>| other.as_ptr() == Arc::as_ptr(&informer);
                let is_followed = followed.iter().any(is_this);
                if is_source && informer.reader().is_ready() && !is_followed {
                    followed.push(Arc::downgrade(&informer));
                    let deletions = self.clone();
                    let follow = async move { deletions.follow(&informer).await };
                    shutdown.spawn_background(follow);
                }
            }
            sleep(SEARCH).await;
        }
    }

    /// Follows the deletions in a cache until it is closed.
    async fn follow(&self, informer: &Informer) {
        while informer.reader().ready().await {
            let everything = Arc::new(Selection::default());
            let Ok(changes) = informer.reader().watch(WatchFrom::Tip, everything) else {
                continue;
            };
            // The cache may still become idle and be dropped.
            let mut changes = changes.uncounted();
            self.followed.inc();
            while let Some(item) = changes.next().await {
                if let WatchItem::Change { event, .. } = item
                    && event.event_type == EventType::Deleted
                {
                    let (uid, now) = (event.object.uid(), Instant::now());
                    self.recent.add_deleted(uid, now);
                    self.open_watches.deleted(uid, now);
                }
            }
            self.followed.dec();
        }
    }
}
