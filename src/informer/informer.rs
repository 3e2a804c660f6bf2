//! One informer as its readers see it: the cache's reader and what is needed to answer from it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::api::Resource;
use crate::api::SelectableFields;
use crate::api::WireFormat;
use crate::cache::Reader;
use crate::codec::Encoder;
use crate::upstream::ResourceClient;

use super::Freshness;
use super::FreshnessMetrics;
use super::InformerSpec;
use super::Proof;
use super::ProofError;
use super::ProofRequest;
use super::ReflectorMetrics;
use super::RelistHandle;
use super::WireShape;

/// Consistent reads that are forwarded at once for want of a proof. When the API server is slow,
/// a thousand readers must not become a thousand lists.
const MAX_UNPROVEN_FORWARDS: usize = 2;

/// A running informer: one reflector upstream, any number of readers.
pub struct Informer {
    spec: InformerSpec,
    namespace: Option<String>,
    reader: Reader,
    relist: RelistHandle,
    metrics: Arc<ReflectorMetrics>,
    shape: Arc<WireShape>,
    started: Instant,
    /// Milliseconds after `started` of the last request.
    last_used_ms: AtomicU64,
    pinned: AtomicBool,
    stop: Notify,
    events_sent: AtomicU64,
    freshness: Freshness<ResourceClient>,
    unproven_permits: Arc<Semaphore>,
}

impl Informer {
    pub(super) fn new(
        spec: InformerSpec,
        namespace: Option<&str>,
        reader: Reader,
        relist: RelistHandle,
        metrics: Arc<ReflectorMetrics>,
        shape: Arc<WireShape>,
        freshness: Freshness<ResourceClient>,
    ) -> Self {
        Self {
            spec,
            namespace: namespace.map(str::to_owned),
            reader,
            relist,
            metrics,
            shape,
            started: Instant::now(),
            last_used_ms: AtomicU64::new(0),
            pinned: AtomicBool::new(false),
            stop: Notify::new(),
            events_sent: AtomicU64::new(0),
            freshness,
            unproven_permits: Arc::new(Semaphore::new(MAX_UNPROVEN_FORWARDS)),
        }
    }

    /// The resource.
    pub fn resource(&self) -> &Arc<Resource> {
        &self.spec.resource
    }

    /// The fields by which its objects can be selected.
    pub fn fields(&self) -> &Arc<SelectableFields> {
        &self.spec.fields
    }

    /// The wire format.
    pub fn format(&self) -> WireFormat {
        self.spec.format
    }

    /// The namespace that it is limited to; `None` for all.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The cache.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// What the reflector counted.
    pub fn metrics(&self) -> &ReflectorMetrics {
        &self.metrics
    }

    /// What was counted of proofs.
    pub fn freshness_metrics(&self) -> &FreshnessMetrics {
        self.freshness.metrics()
    }

    /// A state that may pass for the most recent one by the resource's [`FreshnessPolicy`](super::FreshnessPolicy), without
    /// asking the API server.
    pub fn proof_by_policy(&self) -> Option<Proof> {
        self.freshness.proof_by_policy()
    }

    /// A state of what `request` selects that is at least as fresh as this call, or as the
    /// resource's [`FreshnessPolicy`](super::FreshnessPolicy) asks for. Who has `patience` lets so much time
    /// pass from the question before. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`ProofError`], after some seconds at the latest.
    pub async fn prove(
        &self,
        request: ProofRequest,
        min_interval: Duration,
    ) -> Result<Proof, ProofError> {
        self.freshness.prove(request, min_interval).await
    }

    /// How many reads that could not be proven may be forwarded at a time.
    pub fn unproven_permits(&self) -> &Arc<Semaphore> {
        &self.unproven_permits
    }

    /// Prints objects, lists and events of this resource as the API server does.
    pub fn encoder(&self) -> Arc<Encoder> {
        self.shape.encoder()
    }

    /// Events given to clients so far, initial ones included.
    pub fn events_sent(&self) -> u64 {
        self.events_sent.load(Ordering::Relaxed)
    }

    /// Counts events given to a client.
    pub fn count_sent(&self, events: u64) {
        self.events_sent.fetch_add(events, Ordering::Relaxed);
    }

    /// True when it was configured, and so is never retired.
    pub fn is_pinned(&self) -> bool {
        self.pinned.load(Ordering::Relaxed)
    }

    pub(super) fn pin(&self) {
        self.pinned.store(true, Ordering::Relaxed);
    }

    pub(super) fn relist(&self) {
        self.relist.request();
    }

    pub(super) fn stop(&self) {
        self.stop.notify_one();
    }

    /// Notes that a request asked for it now.
    pub(super) fn touch(&self) {
        let now = self.started.elapsed().as_millis() as u64;
        self.last_used_ms.fetch_max(now, Ordering::Relaxed);
    }

    /// Completes when [`Informer::stop`] was called, or nobody used it for `idle_timeout`.
    pub(super) async fn stopped_or_idle(&self, idle_timeout: Duration) {
        loop {
            let wait = idle_timeout.saturating_sub(self.idle_for());
            tokio::select! {
                () = self.stop.notified() => return,
                () = tokio::time::sleep(wait.max(Duration::from_millis(100))) => {}
            }
            if self.is_pinned() || self.reader.stats().watchers > 0 {
                self.touch();
            }
            if self.idle_for() >= idle_timeout {
                return;
            }
        }
    }

    fn idle_for(&self) -> Duration {
        let last_used = Duration::from_millis(self.last_used_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(last_used)
    }
}
