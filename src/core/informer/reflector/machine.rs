//! The state machine of the reflector. Each step makes at most one call to upstream, or takes the
//! frames of one watch until it ends.

mod recovering;

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::config::ReflectorConfig;
use super::end::ReflectorEnd;
use super::error::Error;
use super::failures::Failures;
use super::metrics::{Activity, ReflectorMetrics, increment};
use super::recovery;
use super::recovery::{Action, WatchListProgress};
use super::recovery_log::RecoveryLog;
use super::session::{Session, WatchOutcome};
use super::signals::RelistRequests;
use super::watch_lists::{WatchListSupport, WatchLists};
use crate::api::{Bookmark, EventType, Object, ResourceVersion, WatchEvent};
use crate::cache::{Relist, ReplaceOutcome, WentBack, Writer};
use crate::concurrency::CoopBudget;
use crate::informer::WireShape;
use crate::informer::hooks::ResourceHooks;
use crate::upstream;
use crate::upstream::{ListCall, ListerWatcher, ResumePoint, WatchCall, WatchLiveness};

/// The `timeoutSeconds` of each upstream watch is a random number in this range, as in client-go.
const WATCH_SECONDS: std::ops::Range<u64> = 300..600;
/// Budget units of an object of a list: the reflector yields after 1,024 of them.
const UNITS_PER_OBJECT: usize = CoopBudget::UNITS / 1024;
/// Budget units of a change of the watch: the reflector yields after 128 of them.
const UNITS_PER_CHANGE: usize = CoopBudget::UNITS / 128;
/// The most changes that are applied before the streams are woken for all of them.
const CHANGES_PER_WAKE: usize = 32;
/// If this time has passed between the first and the last of these changes, the streams are woken.
const MAX_WAKE_DELAY: Duration = Duration::from_millis(1);

/// The state of a reflector. `E` is the type of an upstream watch's stream.
pub(super) enum State<E> {
    /// All objects are fetched next: by watch-list, or by LIST if upstream has no watch-list.
    Starting,
    /// A watch-list is open. Its initial events are collected until the bookmark that ends them.
    Collecting { session: Session<E>, relist: Relist },
    /// The page `request` of a LIST is fetched next.
    Listing { request: ListCall, relist: Relist },
    /// A barrier is requested next. The watch is resumed if upstream's current version is not below
    /// the applied one.
    Proving,
    /// A watch is opened next.
    Opening {
        after: ResourceVersion,
        follows_list: bool,
    },
    /// A watch is open, and its events are applied.
    Watching { session: Session<E> },
    /// The reflector waits after a failure, and then performs an action.
    BackingOff { delay: Duration, then: Action },
}

/// The next state, or the end of the reflector.
type Flow<L> = ControlFlow<ReflectorEnd, State<<L as ListerWatcher>::Events>>;

/// The writer, the upstream client and everything else that all states use.
pub(super) struct Machine<L> {
    pub(super) writer: Writer,
    pub(super) metrics: Arc<ReflectorMetrics>,
    /// Updated from upstream's bookmarks; `None` if no encoder needs their shape.
    pub(super) shape: Option<Arc<WireShape>>,
    /// `None` if nothing is to be called.
    pub(super) hooks: Option<ResourceHooks>,
    /// Called after a watch that upstream ended early; `None` if nothing is to be called.
    pub(super) on_early_end: Option<Box<dyn Fn() + Send>>,
    /// What informers have learned about upstream's watch-lists.
    pub(super) watch_lists: WatchLists,
    /// `None` if recoveries are not recorded.
    pub(super) recoveries: Option<RecoveryLog>,
    lister_watcher: L,
    config: ReflectorConfig,
    failures: Failures,
    /// Limits the work on a list, or on the changes of a watch, between two yields.
    budget: CoopBudget,
    rng: StdRng,
    /// [`WatchListSupport::Unsupported`] also if watch-lists are disabled.
    watch_list_support: WatchListSupport,
}

// === impl Machine: the states ===

impl<L: ListerWatcher> Machine<L> {
    pub(super) fn new(lister_watcher: L, writer: Writer, config: ReflectorConfig) -> Self {
        let mut rng = match config.seed {
            Some(seed) => StdRng::seed_from_u64(seed),
            None => StdRng::from_os_rng(),
        };
        Self {
            writer,
            metrics: Arc::default(),
            shape: None,
            hooks: None,
            on_early_end: None,
            watch_lists: WatchLists::default(),
            recoveries: None,
            lister_watcher,
            failures: Failures::new(&config, StdRng::from_rng(&mut rng)),
            budget: CoopBudget::new(),
            rng,
            watch_list_support: if config.watch_list {
                WatchListSupport::Unknown
            } else {
                WatchListSupport::Unsupported
            },
            config,
        }
    }

    /// Performs the step of `state`, and returns the next state. Dropping the future loses only the
    /// pending call or the open stream.
    pub(super) async fn step(
        &mut self,
        state: State<L::Events>,
        relists: &mut RelistRequests,
    ) -> Flow<L> {
        match state {
            State::Starting => self.start(relists).await,
            State::Collecting { session, relist } => self.collect(session, relist).await,
            State::Listing { request, relist } => self.list(request, relist).await,
            // A relist shows what the barrier would: whether upstream's version went back.
            State::Proving if relists.is_requested() => ControlFlow::Continue(State::Starting),
            State::Proving => self.prove().await,
            State::Opening {
                after,
                follows_list,
            } => self.open(after, follows_list).await,
            State::Watching { session } => self.watch(session, relists).await,
            State::BackingOff { delay, then } => {
                tokio::time::sleep(delay).await;
                ControlFlow::Continue(self.enter(then))
            }
        }
    }

    async fn start(&mut self, relists: &mut RelistRequests) -> Flow<L> {
        relists.acknowledge();
        self.metrics.begin(Activity::Listing);
        let is_unknown = self.watch_list_support == WatchListSupport::Unknown;
        if self.watch_list_support == WatchListSupport::Unsupported
            || is_unknown && self.watch_lists.fail()
        {
            return ControlFlow::Continue(self.enter(Action::ListPages));
        }
        increment(&self.metrics.watch_lists);
        // Before the request is sent: the list proves the requests that were made before.
        let relist = self.writer.relist();
        match self.open_session(ResumePoint::InitialEvents, false).await {
            Ok(session) => ControlFlow::Continue(State::Collecting { session, relist }),
            Err(error) => self.watch_list_failed(error, WatchListProgress::Nothing),
        }
    }

    async fn collect(&mut self, mut session: Session<L::Events>, mut relist: Relist) -> Flow<L> {
        let is_unknown = self.watch_list_support == WatchListSupport::Unknown;
        let error = loop {
            // The next frames may be there already, and then nothing else lets other tasks run.
            self.budget.proceed().await;
            self.budget.charge(UNITS_PER_OBJECT);
            let event = tokio::select! {
                biased;
                event = session.next(self.config.silence_limit, None) => event,
                () = self.watch_lists.failing(), if is_unknown => {
                    self.writer.discard(relist);
                    return ControlFlow::Continue(self.enter(Action::ListPages));
                }
            };
            match event {
                Ok(WatchEvent::Bookmark(bookmark)) if bookmark.initial_events_end => {
                    self.watch_list_support = WatchListSupport::Supported;
                    self.watch_lists.worked();
                    self.update_shape(&bookmark);
                    self.replace(relist, bookmark.resource_version).await;
                    session.begin_following();
                    self.metrics.begin(Activity::Watching);
                    return ControlFlow::Continue(State::Watching { session });
                }
                Ok(WatchEvent::Change {
                    event_type: EventType::Deleted,
                    object,
                    ..
                }) => relist.remove(&object.key),
                Ok(WatchEvent::Change { object, frame, .. }) => {
                    match self.transformed(object, Some(frame)) {
                        (object, Some(frame)) => relist.add_from_frame(object, &frame),
                        (object, None) => relist.add(object),
                    }
                }
                Ok(WatchEvent::Bookmark(_)) => break Error::NoInitialEventsEnd,
                Ok(WatchEvent::Error(status)) => break status.into(),
                Err(error) => break error,
            }
        };
        self.writer.discard(relist);
        self.watch_list_failed(error, WatchListProgress::Stream)
    }

    async fn list(&mut self, request: ListCall, mut relist: Relist) -> Flow<L> {
        let is_first_page = request.continue_token.is_none();
        let limit = request.limit;
        let call = self.lister_watcher.list(request);
        let page = match with_timeout(self.config.list_timeout, call).await {
            Ok(page) => page,
            Err(error) => {
                self.writer.discard(relist);
                return self.list_failed(error, is_first_page);
            }
        };
        for object in page.items {
            relist.add(self.transformed(object, None).0);
            self.budget.charge(UNITS_PER_OBJECT);
            self.budget.proceed().await;
        }
        if page.continue_token.is_some() {
            let request = ListCall {
                limit,
                continue_token: page.continue_token,
            };
            return ControlFlow::Continue(State::Listing { request, relist });
        }
        self.replace(relist, page.resource_version).await;
        ControlFlow::Continue(State::Opening {
            after: page.resource_version,
            follows_list: true,
        })
    }

    async fn prove(&mut self) -> Flow<L> {
        let (Some(applied), Some(newest)) = (self.writer.applied(), self.writer.newest()) else {
            return ControlFlow::Continue(State::Starting);
        };
        self.metrics.begin(Activity::Resuming);
        let call = self.lister_watcher.barrier();
        let error = match with_timeout(self.config.call_timeout, call).await {
            Ok(current) if current >= newest => {
                self.failures.accepted();
                return ControlFlow::Continue(State::Opening {
                    after: applied,
                    follows_list: false,
                });
            }
            Ok(received) => WentBack {
                applied: newest,
                received,
            }
            .into(),
            Err(error) => error,
        };
        self.failed("proof", &error);
        let error = self.break_if_final(error)?;
        self.recover(recovery::after_proof(error.cause()), "proof", &error)
    }

    async fn open(&mut self, after: ResourceVersion, follows_list: bool) -> Flow<L> {
        increment(&self.metrics.watches);
        let start = ResumePoint::After(after);
        match self.open_session(start, follows_list).await {
            Ok(session) => {
                self.metrics.begin(Activity::Watching);
                if let Some(recoveries) = &mut self.recoveries {
                    recoveries.watched();
                }
                ControlFlow::Continue(State::Watching { session })
            }
            Err(error) => {
                let outcome = WatchOutcome {
                    follows_list,
                    ..WatchOutcome::default()
                };
                self.watch_failed(error, outcome)
            }
        }
    }

    /// Applies the events of the watch until it fails. The streams are woken once for events that
    /// have arrived together.
    async fn watch(
        &mut self,
        mut session: Session<L::Events>,
        relists: &mut RelistRequests,
    ) -> Flow<L> {
        let mut unwoken = 0;
        let mut first_unwoken = session.last_frame();
        loop {
            let delay = session.last_frame().duration_since(first_unwoken);
            let received = if is_wake_due(unwoken, delay) || relists.is_requested() {
                None
            } else {
                session.received().await
            };
            let event = if let Some(event) = received {
                event
            } else {
                self.writer.wake();
                // Here no stream waits for a wake, so other tasks may run. If frames are there
                // already, nothing else lets them.
                self.budget.charge(unwoken * UNITS_PER_CHANGE);
                self.budget.proceed().await;
                unwoken = 0;
                tokio::select! {
                    biased;
                    reason = relists.requested() => Err(Error::RelistRequested(reason)),
                    event = session.next(self.config.silence_limit, self.liveness()) => event,
                }
            };
            if unwoken == 0 {
                first_unwoken = session.last_frame();
            }
            unwoken += 1;
            if let Err(error) = event.and_then(|event| self.apply(event)) {
                self.writer.wake();
                return self.watch_failed(error, session.outcome());
            }
        }
    }
}

// === impl Machine: what the states share ===

impl<L: ListerWatcher> Machine<L> {
    async fn open_session(
        &mut self,
        start: ResumePoint,
        follows_list: bool,
    ) -> Result<Session<L::Events>, Error> {
        let timeout = Duration::from_secs(self.rng.random_range(WATCH_SECONDS));
        let call = self.lister_watcher.watch(WatchCall { start, timeout });
        let events = with_timeout(self.config.call_timeout, call).await?;
        tracing::debug!(?start, ?timeout, "watch opened");
        Ok(Session::new(events, timeout, follows_list))
    }

    /// Applies an event, and leaves the wake of a change to the caller.
    fn apply(&mut self, event: WatchEvent) -> Result<(), Error> {
        match event {
            WatchEvent::Change {
                event_type,
                object,
                frame,
            } => {
                let (object, frame) = self.transformed(object, Some(frame));
                self.writer.apply_without_wake(event_type, object, frame)?;
            }
            WatchEvent::Bookmark(bookmark) => {
                self.update_shape(&bookmark);
                self.writer.bookmark(bookmark.resource_version)?;
            }
            WatchEvent::Error(status) => return Err(status.into()),
        }
        self.failures.watch_succeeded();
        Ok(())
    }

    /// Returns what proves a silent watch alive; `None` if bookmarks must come.
    fn liveness(&self) -> Option<&WatchLiveness> {
        (!self.config.expects_bookmarks).then_some(&self.metrics.watch_liveness)
    }

    /// Returns the result of the transform of `object`, or `object` and its `frame` if it is stored
    /// as it was received.
    fn transformed(&self, object: Object, frame: Option<Bytes>) -> (Object, Option<Bytes>) {
        match &self.hooks {
            Some(hooks) if hooks.has_transform() => hooks
                .transform(object)
                .inspect_err(|_| increment(&self.metrics.transform_failures))
                .map_or_else(|same| (same, frame), |object| (object, None)),
            _ => (object, frame),
        }
    }

    fn update_shape(&self, bookmark: &Bookmark) {
        if let Some(shape) = &self.shape {
            shape.update_from_bookmark(&bookmark.frame);
        }
    }

    async fn replace(&mut self, relist: Relist, resource_version: ResourceVersion) {
        let (objects, watches) = (relist.len(), self.writer.reader().watchers());
        let replaced = self.writer.replace_cooperatively(relist, resource_version);
        let replaced = replaced.await;
        self.failures.list_succeeded();
        self.metrics.list_completed();
        if replaced != ReplaceOutcome::First {
            increment(&self.metrics.relists);
        }
        if let ReplaceOutcome::NewEpoch(cause) = replaced {
            increment(&self.metrics.epochs);
            tracing::warn!(?cause, %resource_version, "the list contradicts the cache, starting a new epoch");
        } else {
            tracing::info!(?replaced, %resource_version, "listed");
        }
        if let Some(recoveries) = &mut self.recoveries {
            if let ReplaceOutcome::NewEpoch(_) = replaced {
                recoveries.epoch_began(watches);
            }
            recoveries.listed(replaced, objects);
        }
    }

    fn enter(&mut self, action: Action) -> State<L::Events> {
        let limit = match action {
            Action::Relist | Action::NewEpoch => return State::Starting,
            Action::Resume => return State::Proving,
            Action::ListPages => self.config.page_size,
            Action::ListWhole => 0,
        };
        increment(&self.metrics.lists);
        self.metrics.begin(Activity::Listing);
        State::Listing {
            request: ListCall {
                limit,
                continue_token: None,
            },
            relist: self.writer.relist(),
        }
    }
}

/// Returns true if the streams must be woken before another change is applied. The first of the
/// `unwoken` changes came `delay` before the last one.
pub(super) fn is_wake_due(unwoken: usize, delay: Duration) -> bool {
    unwoken >= CHANGES_PER_WAKE || delay >= MAX_WAKE_DELAY
}

/// Returns the result of `call`, or [`Error::NoAnswer`] after `limit`.
async fn with_timeout<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, upstream::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(limit, call).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(Error::NoAnswer(limit)),
    }
}
