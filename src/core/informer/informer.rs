//! One running informer: the reader of its cache, and everything else that answers need.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::bridges::Bridges;
use super::freshness::Doubt;
use super::hooks::{ResourceHooks, TransformId};
use super::{
    Freshness, FreshnessMetrics, FreshnessPolicy, InformerSpec, ObjectContent, Proof, ProofError,
    ProofMethod, ProofRequest, ReflectorMetrics, RelistHandle, RelistReason, WireShape,
};
use crate::api::{Resource, ResourceVersion, SelectableFields, Selection, WireFormat};
use crate::cache::{BridgedWatch, Reader, WatchError};
use crate::codec::Encoder;
use crate::concurrency::{AskerId, ThreadCounter};
use crate::upstream::{ResourceClient, Scope};

/// How many reads that could not be proven fresh may be forwarded concurrently, per informer. When
/// the API server is slow, a thousand readers must not cause a thousand lists. Guarded by
/// `unproven_reads_are_forwarded_a_few_concurrently`.
const MAX_UNPROVEN_FORWARDS: usize = 2;
/// How many LISTs may be forwarded concurrently, per informer, if no proof will come soon: those of
/// isolated selections, which the API server answers from a part of the objects, or all while an
/// upstream kubefan proves nothing.
const MAX_LASTING_LISTS: usize = 8;
/// The same for WATCHes, and for those of Events that no change proves soon.
const MAX_LASTING_WATCHES: usize = 100;

/// How long a proof waits for the list after a change of the resource's definition.
const RELIST_WAIT: Duration = Duration::from_secs(5);
/// The longest time between two checks whether an informer is idle.
const IDLE_CHECK: Duration = Duration::from_secs(60);

/// A running informer: one reflector that writes the cache, and any number of readers.
pub struct Informer {
    pub(super) spec: InformerSpec,
    /// The objects that the cache holds.
    scope: Selection,
    content: ObjectContent,
    reader: Reader,
    relist: RelistHandle,
    metrics: Arc<ReflectorMetrics>,
    /// What the reflector learns about the wire format of the resource.
    pub(super) shape: Arc<WireShape>,
    started: Instant,
    /// Time of the last request, in milliseconds after `started`.
    last_used_ms: AtomicU64,
    pinned: AtomicBool,
    stop: Notify,
    events_sent: ThreadCounter,
    holds: AtomicUsize,
    pub(super) freshness: Freshness<ResourceClient>,
    unproven_permits: Arc<Semaphore>,
    lasting_list_permits: Arc<Semaphore>,
    lasting_watch_permits: Arc<Semaphore>,
    bridges: Bridges<ResourceClient>,
    pub(super) own_transform: Option<OwnTransform>,
    pub(super) hooks: ResourceHooks,
    /// While a change of the definition leaves a doubt about the cache, it proves nothing.
    doubt: Mutex<Doubt>,
    /// The time when upstream last ended a watch early. [`Informer::take_early_end`] removes it.
    early_end: Mutex<Option<Instant>>,
}

/// The transform that an informer has instead of the set's.
#[derive(Clone, Copy)]
pub(super) struct OwnTransform {
    pub(super) id: TransformId,
    /// Distinguishes, in metrics, the informer from running informers that differ
    /// only in their transform.
    pub(super) number: usize,
}

/// A user of an informer that may make no requests for long. See [`Informer::hold`].
pub struct InformerHold(Arc<Informer>);

// === impl Informer, InformerHold ===

impl Drop for InformerHold {
    fn drop(&mut self) {
        self.0.touch();
        self.0.holds.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Informer {
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of an informer, made in one place"
    )]
    pub(super) fn new(
        spec: InformerSpec,
        scope: Selection,
        content: ObjectContent,
        reader: Reader,
        relist: RelistHandle,
        metrics: Arc<ReflectorMetrics>,
        freshness: Freshness<ResourceClient>,
        bridges: Bridges<ResourceClient>,
        own_transform: Option<OwnTransform>,
        hooks: ResourceHooks,
    ) -> Self {
        Self {
            shape: Arc::new(WireShape::new(&spec)),
            spec,
            scope,
            content,
            reader,
            relist,
            metrics,
            started: Instant::now(),
            last_used_ms: AtomicU64::new(0),
            pinned: AtomicBool::new(false),
            stop: Notify::new(),
            events_sent: ThreadCounter::default(),
            holds: AtomicUsize::new(0),
            freshness,
            unproven_permits: Arc::new(Semaphore::new(MAX_UNPROVEN_FORWARDS)),
            lasting_list_permits: Arc::new(Semaphore::new(MAX_LASTING_LISTS)),
            lasting_watch_permits: Arc::new(Semaphore::new(MAX_LASTING_WATCHES)),
            bridges,
            own_transform,
            hooks,
            doubt: Mutex::default(),
            early_end: Mutex::default(),
        }
    }

    /// Returns the resource that the cache holds.
    pub fn resource(&self) -> &Arc<Resource> {
        &self.spec.resource
    }

    /// Returns the fields that field selectors on this resource may name.
    pub fn fields(&self) -> &Arc<SelectableFields> {
        &self.spec.fields
    }

    /// Returns true if this informer can answer reads of `spec`, with or without managed fields.
    pub(super) fn fits(&self, spec: &InformerSpec) -> bool {
        self.spec.settings.strip_managed_fields == spec.settings.strip_managed_fields
            && self.spec.answers_like(spec)
    }

    /// Returns the wire format of the cached objects.
    pub fn format(&self) -> WireFormat {
        self.spec.format
    }

    /// Returns the only namespace that the cache holds, or `None` if it holds all namespaces.
    pub fn namespace(&self) -> Option<&str> {
        self.scope.namespace.as_deref()
    }

    /// Returns the part of each object that the cache has.
    pub fn content(&self) -> ObjectContent {
        self.content
    }

    /// Returns the selection of the objects that the cache holds.
    pub fn scope(&self) -> &Selection {
        &self.scope
    }

    /// Returns the selection of the objects that the cache holds, as parameters of requests.
    pub fn upstream_scope(&self) -> Scope {
        self.spec.upstream_scope(&self.scope)
    }

    /// Returns the number of the informer's own transform, if it has one.
    pub(super) fn transform_number(&self) -> Option<usize> {
        self.own_transform.map(|transform| transform.number)
    }

    /// Returns the reader of the cache, for snapshots and watches.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Returns the counters of the reflector.
    pub fn metrics(&self) -> &ReflectorMetrics {
        &self.metrics
    }

    /// Returns the counters of proofs of freshness.
    pub fn freshness_metrics(&self) -> &FreshnessMetrics {
        self.freshness.metrics()
    }

    /// Returns true if the cache and the API server lastingly have different objects of
    /// `selection`, so that reads of `selection` must be forwarded.
    pub fn is_isolated(&self, selection: &Selection) -> bool {
        self.freshness.is_isolated(selection)
    }

    /// Returns the number of isolated selections.
    pub fn isolated_selections(&self) -> usize {
        self.freshness.isolated_selections()
    }

    /// Returns the resource's freshness policy.
    pub fn freshness_policy(&self) -> FreshnessPolicy {
        self.freshness.policy()
    }

    /// Returns true if the cache proves nothing before its next list, because a change of the
    /// resource's definition was noticed.
    pub fn is_doubted(&self) -> bool {
        let list_began = self.list_began();
        list_began.is_some_and(|list_began| self.doubt.lock().affects(list_began))
    }

    /// Returns true if the resource's [`FreshnessPolicy`] serves sessions.
    pub fn serves_sessions(&self) -> bool {
        self.freshness.is_session()
    }

    /// Returns a snapshot that the resource's [`FreshnessPolicy`] accepts
    /// as the most recent state without a call to the API server, or `None` if there is none.
    /// With sessions, the snapshot contains all writes acknowledged before `asked_at`.
    pub fn proof_by_policy(&self, asked_at: Instant) -> Option<Proof> {
        let proof = self.freshness.proof_by_policy(asked_at);
        proof.filter(|proof| !self.is_in_doubt(proof))
    }

    /// Returns a snapshot of the objects that `request` selects. It contains all writes
    /// acknowledged before `asked_at`, or is as fresh as the resource's
    /// [`FreshnessPolicy`] requires. The parameters are explained at
    /// [`Freshness::prove`]. Cancel safe.
    ///
    /// After a change of the resource's definition, the snapshot comes from a list that began
    /// later. A proof could not detect the old representation: it compares versions, and both
    /// representations of an object have the same version. Guarded by
    /// `proven_lists_and_watches_follow_many_changes_of_a_definition`.
    ///
    /// # Errors
    ///
    /// [`ProofError`], after the time limit that [`Freshness::prove`] explains, and 5 s more after
    /// a change of the definition.
    pub async fn prove(
        &self,
        request: ProofRequest,
        asked_at: Instant,
        min_interval: Duration,
    ) -> Result<Proof, ProofError> {
        let deadline = Instant::now() + RELIST_WAIT;
        loop {
            // A proof of a doubted cache would be a wasted call.
            let list_began = match self.doubted_list(&request, asked_at) {
                Some(list_began) => list_began,
                None => {
                    let freshness = &self.freshness;
                    let proof = freshness.prove(request.clone(), asked_at, min_interval);
                    let proof = proof.await?;
                    // The definition may have changed during the proof.
                    if !self.is_in_doubt(&proof) {
                        return Ok(proof);
                    }
                    proof.snapshot.list_began()
                }
            };
            // A relist that waits for its turn is necessary now.
            self.relist_if_queued();
            if !self.reader.listed_after(list_began, deadline).await {
                let unproven = Err(ProofError::TimedOut);
                self.freshness_metrics().count(&unproven);
                return unproven;
            }
        }
    }

    /// Returns a proof of all objects for a GET of a crowd, or `None` if there is probably none
    /// soon, as explained at [`Freshness::prove_soon`]. Cancel safe.
    pub async fn prove_soon(&self) -> Option<Proof> {
        let proof = self.freshness.prove_soon().await;
        proof.filter(|proof| !self.is_in_doubt(proof))
    }

    /// Returns true if [`Informer::prove`] can't answer a request that arrived at `asked_at` without
    /// a call to the API server.
    pub fn needs_call(&self, asked_at: Instant) -> bool {
        let proof = self.freshness.proof_without_call(asked_at);
        proof.is_none_or(|proof| self.is_in_doubt(&proof))
    }

    /// Returns true if `proof` may have objects in another representation than the API server
    /// shows, because a change of their definition was noticed. A proof by
    /// [`FreshnessPolicy::Any`] promises nothing, and a list that began
    /// after the request has what the API server showed then.
    pub fn is_in_doubt(&self, proof: &Proof) -> bool {
        let list_began = proof.snapshot.list_began();
        let may_be = !matches!(proof.method, ProofMethod::Any | ProofMethod::InformerList);
        may_be && self.doubt.lock().affects(list_began)
    }

    /// Returns when the list of the newest snapshot began, if its objects may have an old
    /// representation for `request`, which arrived at `asked_at`. Reads of an isolated selection
    /// are forwarded, so they wait for no list.
    fn doubted_list(&self, request: &ProofRequest, asked_at: Instant) -> Option<Instant> {
        let list_began = self.list_began()?;
        let is_doubted = list_began <= asked_at && self.doubt.lock().affects(list_began);
        let must_wait =
            is_doubted && !self.freshness.is_any() && !self.is_isolated(&request.selection);
        must_wait.then_some(list_began)
    }

    /// Opens a watch of the objects of `selection` for a client with `version`. Returns `None`
    /// unless the log does not serve the version and the API server may still have the history
    /// after it. `scope` selects these objects in all shards. Askers take turns.
    ///
    /// # Errors
    ///
    /// As for [`Reader::gap`].
    pub fn bridge(
        &self,
        version: ResourceVersion,
        selection: &Arc<Selection>,
        scope: &Scope,
        asker: AskerId,
    ) -> Result<Option<BridgedWatch>, WatchError> {
        let gap = self.reader.gap(version, selection)?;
        Ok(gap.map(|gap| self.bridges.watch(gap, scope, asker)))
    }

    /// Returns the permits to forward a read that could not be proven fresh: two for each informer.
    pub fn unproven_permits(&self) -> &Arc<Semaphore> {
        &self.unproven_permits
    }

    /// Returns the permits to forward LISTs that can't be proven for long, as those of isolated
    /// selections: eight for each informer.
    pub fn lasting_list_permits(&self) -> &Arc<Semaphore> {
        &self.lasting_list_permits
    }

    /// Returns the permits to forward WATCHes that can't be proven for long, as those of isolated
    /// selections: 100 for each informer.
    pub fn lasting_watch_permits(&self) -> &Arc<Semaphore> {
        &self.lasting_watch_permits
    }

    /// Returns the encoder of this resource's objects, lists and watch events, as the API server
    /// encodes them.
    pub fn encoder(&self) -> Arc<Encoder> {
        self.shape.encoder()
    }

    /// Returns how many watch events were sent to clients so far, initial events included.
    pub fn events_sent(&self) -> u64 {
        self.events_sent.sum()
    }

    /// Adds to [`Informer::events_sent`].
    pub fn count_sent(&self, events: u64) {
        self.events_sent.add(events);
    }

    /// Returns true if the informer is never stopped for being idle, because the configuration or
    /// the [`LiveRestMapper`](super::LiveRestMapper) needs it.
    pub fn is_pinned(&self) -> bool {
        self.pinned.load(Ordering::Relaxed)
    }

    pub(super) fn pin(&self) {
        self.pinned.store(true, Ordering::Relaxed);
    }

    pub(super) fn unpin(&self) {
        self.touch();
        self.pinned.store(false, Ordering::Relaxed);
    }

    /// Prevents the informer from being stopped for being idle, until the
    /// returned value is dropped.
    pub fn hold(self: &Arc<Self>) -> InformerHold {
        self.holds.fetch_add(1, Ordering::Relaxed);
        InformerHold(Arc::clone(self))
    }

    pub(super) fn relist(&self) {
        self.doubt.lock().relist_requested(Instant::now());
        self.relist.request_because(RelistReason::DefinitionChanged);
    }

    /// Records that a change of the resource's definition was noticed at `time`. The next early end
    /// of the watch causes a relist. Without one, [`Informer::relist`] must follow at the time of
    /// [`Informer::relist_due`].
    pub(super) fn definition_changed(&self, time: Instant) {
        self.doubt.lock().definition_changed(time);
    }

    /// Records that lists that began until `time` may have an old representation. Returns true if
    /// the caller has to call [`Informer::relist_if_queued`], possibly later.
    pub(super) fn distrust(&self, time: Instant) -> bool {
        self.doubt.lock().distrust(time)
    }

    /// Requests the relist that [`Informer::distrust`] has made necessary, unless the cache was
    /// listed since then. Returns true if it does.
    pub(super) fn relist_if_queued(&self) -> bool {
        let list_began = self.list_began();
        let is_queued = self.doubt.lock().take_queued(list_began);
        if is_queued {
            let resource = &self.resource().gvr;
            tracing::info!(%resource, "the definition may have changed, listing again");
            self.relist();
        }
        is_queued
    }

    /// Records that upstream has ended a watch early. If this was expected because of a change of
    /// the definition, requests a relist.
    pub(super) fn ended_early(&self) {
        let now = Instant::now();
        *self.early_end.lock() = Some(now);
        let is_expected = self.doubt.lock().watch_ended(now);
        if is_expected {
            let resource = &self.resource().gvr;
            tracing::info!(%resource, "the API server uses the changed definition, listing again");
            self.relist();
        }
    }

    /// Takes the time when upstream last ended a watch early. Returns `None` if there was no such
    /// end since the last call.
    pub(super) fn take_early_end(&self) -> Option<Instant> {
        self.early_end.lock().take()
    }

    /// Returns true if a list began after `time`, or was requested after it.
    pub(super) fn is_listed_after(&self, time: Instant) -> bool {
        let is_requested = self.doubt.lock().was_relist_requested_after(time);
        is_requested || self.list_began() > Some(time)
    }

    /// Returns the time from which on a relist ends a doubt about the cache. Returns `None` if none
    /// is necessary, or if one was requested or queued.
    pub(super) fn relist_due(&self) -> Option<Instant> {
        let list_began = self.list_began();
        self.doubt.lock().relist_due(list_began)
    }

    /// Returns when the list of the newest snapshot began. Returns `None` while the cache is not
    /// ready.
    pub(super) fn list_began(&self) -> Option<Instant> {
        let snapshot = self.reader.snapshot()?;
        Some(snapshot.list_began())
    }

    pub(super) fn stop(&self) {
        self.stop.notify_one();
    }

    /// Records that a request uses the informer now.
    pub(super) fn touch(&self) {
        let now = self.started.elapsed().as_millis() as u64;
        self.last_used_ms.fetch_max(now, Ordering::Relaxed);
    }

    /// Completes after a call of [`Informer::stop`], or when the informer had neither
    /// requests nor watches for `idle_timeout` and is not pinned. A shorter timeout counts
    /// from the next check on.
    pub(super) async fn stopped_or_idle(&self, idle_timeout: impl Fn() -> Duration) {
        loop {
            let wait = idle_timeout().saturating_sub(self.idle_for());
            let wait = wait.clamp(Duration::from_millis(100), IDLE_CHECK);
            tokio::select! {
                () = self.stop.notified() => return,
                () = tokio::time::sleep(wait) => {}
            }
            let is_held = self.holds.load(Ordering::Relaxed) > 0;
            if self.is_pinned() || is_held || self.reader.watchers() > 0 {
                self.touch();
            }
            if self.idle_for() >= idle_timeout() {
                return;
            }
        }
    }

    fn idle_for(&self) -> Duration {
        let last_used = Duration::from_millis(self.last_used_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(last_used)
    }
}
