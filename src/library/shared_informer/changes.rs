//! Changes: the position of one handler in the history of a shared informer.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use kubefan_core::api::{EventType, Object, Selection};
use kubefan_core::cache::{Event, Reader, Snapshot, WatchItem, WatchStream};
use kubefan_core::concurrency::{CoopBudget, drop_elsewhere};
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::reached::{MANY, Reached, Step};
use super::shared::Shared;
use super::source::Source;
use super::{Change, Config, Deleted};

/// A handler takes no new snapshot until this many objects have changed since its last one. Lower
/// in tests, which have few objects.
const REBASE: usize = if cfg!(test) { 4 } else { 64 };
/// How often a handler that gets no changes checks whether a new snapshot frees memory.
const REBASE_CHECK: Duration = Duration::from_secs(10);
/// The longest interval of a resync. A longer one would overflow an `Instant`.
const LONGEST_RESYNC: Duration = Duration::from_secs(100 * 365 * 86_400);
/// Budget units of a change, without those of the objects that are decoded for it: the stream yields
/// after 1,024 changes of objects that the view has decoded.
const UNITS_PER_CHANGE: usize = CoopBudget::UNITS / 1024;

/// The present objects of a shared informer, then their changes, at the speed of their reader.
///
/// The changes end when the informer has ended for good: its cache was closed and no other follows.
pub struct Changes<K> {
    informer: Arc<Shared<K>>,
    source: Source,
    /// The cache that is followed, and its changes; `None` before the first cache and
    /// between two caches.
    following: Option<(Reader, WatchStream)>,
    reached: Reached,
    /// What the handler receives next.
    pending: VecDeque<Step>,
    /// Finds the steps to the snapshot of `following`, or those of a resync. It holds the
    /// reached state until then. After a call of [`Changes::next`] that was cancelled, the next
    /// call continues with it.
    preparing: Option<Preparing>,
    resync: Option<Resync>,
    /// See [`REBASE_CHECK`]; `None` until it is needed.
    rebase_check: Option<Interval>,
    synced: watch::Sender<bool>,
    budget: CoopBudget,
}

/// A future that finds steps, and yields in between.
type Preparing = Pin<Box<dyn Future<Output = (VecDeque<Step>, Reached)> + Send + Sync>>;

/// When all objects are returned again.
struct Resync {
    ticks: Interval,
    /// True while the objects of the last tick are returned.
    is_running: bool,
}

// === impl Changes ===

impl<K: DeserializeOwned> Changes<K> {
    pub(super) fn new(informer: Arc<Shared<K>>) -> Self {
        Self {
            source: informer.source.clone(),
            informer,
            following: None,
            reached: Reached::Nothing,
            pending: VecDeque::new(),
            preparing: None,
            resync: None,
            rebase_check: None,
            synced: watch::Sender::new(false),
            budget: CoopBudget::new(),
        }
    }

    /// Returns all present objects again as [`Change::Updated`] after each `interval`, which is
    /// raised to [`Config::LEAST_RESYNC`] if it is shorter. An interval begins when all objects
    /// were returned, so that there is time for changes in between. Default is never.
    #[must_use]
    pub fn with_resync(mut self, interval: Duration) -> Self {
        let interval = interval.clamp(Config::LEAST_RESYNC, LONGEST_RESYNC);
        let mut ticks = interval_at(Instant::now() + interval, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.resync = Some(Resync {
            ticks,
            is_running: false,
        });
        self
    }

    /// Returns true if all objects that were present at first were returned, and the caller has
    /// asked for the change after them.
    pub fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Returns a receiver that gets true when [`Changes::has_synced`] becomes true, and an error if
    /// the stream was dropped.
    pub(super) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Waits for the next change. Returns `None` at the end. Cancel safe.
    pub async fn next(&mut self) -> Option<Change<K>> {
        loop {
            self.budget.proceed().await;
            self.budget.charge(UNITS_PER_CHANGE);
            if let Some(step) = self.next_pending().await {
                match self.change(step) {
                    Some(change) => return Some(change),
                    None => continue,
                }
            }
            let Some((reader, stream)) = &mut self.following else {
                self.informer.loaded().await;
                let reader = self.source.next_ready().await?;
                self.follow(reader);
                continue;
            };
            self.synced
                .send_if_modified(|synced| !std::mem::replace(synced, true));
            let (reached, resync) = (&mut self.reached, &mut self.resync);
            let rebase_check = &mut self.rebase_check;
            let may_rebase = reached.changed() >= REBASE;
            let item = tokio::select! {
                biased;
                () = tick(resync) => {
                    self.preparing = Some(Box::pin(std::mem::take(reached).resync()));
                    continue;
                }
                item = poll_fn(|cx| {
                    let polled = stream.poll_next(cx);
                    if polled.is_pending() && may_rebase {
                        rebase(reached, reader, stream);
                    }
                    polled
                }) => item,
                () = check(rebase_check), if may_rebase => continue,
            };
            match item {
                Some(WatchItem::Change { event, .. }) => self.pending = self.steps(&event),
                // The log has dropped the next change, so the present state is compared instead.
                Some(WatchItem::Expired(_)) => {
                    let reader = reader.clone();
                    self.following = None;
                    self.follow(reader);
                }
                Some(WatchItem::Initial(_) | WatchItem::InitialEnd(_)) => {}
                None => self.following = None,
            }
        }
    }

    /// Returns the next step that is known without a change of the cache. Cancel safe.
    async fn next_pending(&mut self) -> Option<Step> {
        if let Some(preparing) = &mut self.preparing {
            (self.pending, self.reached) = preparing.await;
            self.preparing = None;
        }
        if !self.pending.is_empty() {
            // Without this, the first change after a relist would decode all objects at once.
            self.informer.catch_up().await;
        }
        self.pending.pop_front()
    }

    /// Returns the changes as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Change<K>> {
        unfold(self, |mut changes| async move {
            let change = changes.next().await?;
            Some((change, changes))
        })
    }

    /// Returns the objects as a stream: each present object, and each added or updated one. The
    /// stream does not report deletions.
    pub fn into_objects(self) -> impl Stream<Item = Arc<K>> {
        unfold(self, |mut changes| async move {
            loop {
                let object = match changes.next().await? {
                    Change::Added { object, .. } => object,
                    Change::Updated { new, .. } => new,
                    Change::Deleted(_) => continue,
                };
                return Some((object, changes));
            }
        })
    }

    /// Continues from the present state of the cache of `reader`.
    fn follow(&mut self, reader: Reader) {
        let selection = &self.informer.selection;
        // The selection's other conditions are tested here, so that the cache's limit of
        // selections does not apply.
        let watched = Arc::new(Selection {
            namespace: selection.namespace.clone(),
            ..Selection::default()
        });
        let watch = |snapshot| {
            let stream = reader.watch_after(&snapshot, watched);
            Some((snapshot, stream.ok()?))
        };
        let Some((snapshot, stream)) = reader.snapshot().and_then(watch) else {
            // The cache has lost its content since it was ready. Its next content, or the next
            // cache, is awaited.
            self.source.wait_again(reader);
            return;
        };
        let reached = std::mem::take(&mut self.reached);
        self.preparing = Some(Box::pin(reached.advance(snapshot, Arc::clone(selection))));
        // From now on listers read this cache, even if it loses its content before their next read.
        self.informer.reader();
        self.following = Some((reader, stream));
    }

    /// Returns the steps of `event`, and records that the handler has received them.
    fn steps(&mut self, event: &Event) -> VecDeque<Step> {
        let selection = &self.informer.selection;
        let Some(verdict) = event.verdict_without_departures(selection) else {
            return VecDeque::new();
        };
        let object = event.object_for(verdict);
        let state = (verdict != EventType::Deleted).then(|| Arc::clone(object));
        self.reached.apply(object.key.clone(), state);
        let changed = |known| Step::between(known, Arc::clone(object));
        match (verdict, &event.previous) {
            (EventType::Deleted, before) => [Step::Deleted {
                before: Arc::clone(before.as_ref().unwrap_or(object)),
                object: Arc::clone(object),
                is_final_state_known: !event.is_final_state_unknown(),
            }]
            .into(),
            (EventType::Modified, Some(old)) if old.uid() != object.uid() => {
                [Step::missed_deletion(old), changed(None)].into()
            }
            (EventType::Modified, old) => [changed(old.as_ref())].into(),
            _ => [changed(None)].into(),
        }
    }

    /// Returns the change of `step` for a handler, which receives only objects that can be decoded.
    /// Returns `None` if the handler gets no change. Reports what cannot be decoded.
    fn change(&mut self, step: Step) -> Option<Change<K>> {
        let (informer, budget) = (&self.informer, &mut self.budget);
        let mut decode = |object: &Arc<Object>| informer.decode(object, budget);
        match step {
            Step::Added {
                object,
                is_initial_list,
            } => decode(&object).map(|object| Change::Added {
                object,
                is_initial_list,
            }),
            Step::Updated { old, new } if Arc::ptr_eq(&old, &new) => {
                let object = decode(&new)?;
                Some(Change::Updated {
                    old: Arc::clone(&object),
                    new: object,
                })
            }
            Step::Updated { old, new } => match (decode(&old), decode(&new)) {
                (Some(old), Some(new)) => Some(Change::Updated { old, new }),
                (None, Some(object)) => Some(Change::Added {
                    object,
                    is_initial_list: false,
                }),
                (Some(object), None) => Some(Change::Deleted(Deleted {
                    object,
                    is_final_state_known: false,
                })),
                (None, None) => None,
            },
            Step::Deleted {
                before,
                object,
                is_final_state_known,
            } => {
                let before_deletion = decode(&before)?;
                let is_same = Arc::ptr_eq(&before, &object);
                let last = if is_same { None } else { decode(&object) };
                Some(Change::Deleted(Deleted {
                    is_final_state_known: is_final_state_known && (is_same || last.is_some()),
                    object: last.unwrap_or(before_deletion),
                }))
            }
        }
    }
}

/// Replaces the reached state by the cache's newest snapshot, to free the old states of objects, if
/// `stream` has returned all changes up to exactly this snapshot.
///
/// While the cache's log has all changes since the last snapshot, the log holds the old states in
/// memory, too, except objects that the cache has copied to free a larger buffer. So a new
/// snapshot would free little memory. But it has a cost: each change copies the parts of the store
/// that a snapshot shares.
fn rebase(reached: &mut Reached, reader: &Reader, stream: &WatchStream) {
    if !reached.is_older_than(reader.log_start()) {
        return;
    }
    let Some(snapshot) = reader.snapshot() else {
        return;
    };
    let has_everything = stream.bookmark() == Some(snapshot.resource_version());
    // The stream may have got a change between the two calls.
    let is_newest = |newest: Snapshot| newest.has_no_change_since(&snapshot);
    if has_everything && reader.snapshot().is_some_and(is_newest) {
        let old = std::mem::replace(reached, Reached::everything(snapshot));
        if old.changed() >= MANY {
            drop_elsewhere(old);
        }
    }
}

/// Completes when it is time to check whether a new snapshot frees memory. Never completes outside
/// of a runtime, because there is no timer. Cancel safe.
async fn check(interval: &mut Option<Interval>) {
    if Handle::try_current().is_err() {
        return std::future::pending().await;
    }
    let interval = interval.get_or_insert_with(|| {
        let mut ticks = interval_at(Instant::now() + REBASE_CHECK, REBASE_CHECK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    });
    interval.tick().await;
}

/// Completes at the next tick, or never if there is no resync. The interval begins again
/// after a resync: if a resync took longer than the interval, changes would otherwise wait
/// for ever. Cancel safe.
async fn tick(resync: &mut Option<Resync>) {
    let Some(resync) = resync else {
        return std::future::pending().await;
    };
    if std::mem::replace(&mut resync.is_running, false) {
        resync.ticks.reset();
    }
    resync.ticks.tick().await;
    resync.is_running = true;
}
