//! Evidence that a cache may be wrong: verification lists that differ from it.
//!
//! A list of version *X* differs from the cache at an earlier version in some objects. Either the
//! events up to *X* explain the difference, or the cache is wrong. The event log shows which case
//! applies as soon as the cache has applied *X*. So the evidence is stored until then, even if no
//! caller waits for a proof any more. This costs no call.
//!
//! Guarded by `a_wrong_cache_is_found_after_its_last_reader_gave_up` and
//! `a_list_that_the_watch_has_passed_finds_a_wrong_cache`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::plan::ProofRequest;
use crate::api::{EventType, Object, ObjectKey, ResourceVersion, Selection};
use crate::cache::{Event, Reader, Snapshot};
use crate::concurrency::CoopBudget;

/// At most this many objects of a difference are stored. One object that the events do not explain
/// proves that the cache is wrong.
pub(super) const MAX_OBJECTS: usize = 256;
/// At most this many selections of a cache have evidence at a time. Together with [`MAX_OBJECTS`],
/// this limits the memory to some megabytes for each cache.
const MAX_SELECTIONS: usize = 64;
/// Budget units of an event that is read.
const EVENT_UNITS: usize = CoopBudget::UNITS / 2048;

/// The objects that differ between a verification list and a snapshot of an earlier version, or of
/// the list's version.
pub(super) struct Difference {
    pub(super) request: ProofRequest,
    /// The version of the list.
    pub(super) version: ResourceVersion,
    /// The state of each differing object in the list; `None` if the list does not have the object.
    listed: HashMap<ObjectKey, Option<ObjectState>>,
    /// The snapshot's version.
    since: ResourceVersion,
    epoch: u64,
    list_began: Instant,
    verdict: OnceCell<Verdict>,
}

/// An object as a verification list shows it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ObjectState {
    uid: Box<str>,
    version: ResourceVersion,
}

/// What the event log says about a difference once the cache has applied the list's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The watch has brought the cache to the list's state.
    Explained,
    /// The cache had other objects than the list at the list's version.
    CacheDiffers,
    /// The cache was listed again before it reached the list's version, or the log lacks a change.
    Unknown,
}

/// The undecided differences of one cache. There is one for each selection: the earliest, because
/// the cache reaches its version first. A later difference would lead to an equal verdict.
#[derive(Default)]
pub(super) struct Evidence(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    differences: HashMap<Arc<Selection>, Arc<Difference>>,
    /// True while a task decides the differences, so that no second one does.
    is_followed: bool,
}

// === impl Difference ===

impl Difference {
    /// Creates the difference between `snapshot` and a list of `request` at `version`. `objects`
    /// are the keys of at most [`MAX_OBJECTS`] differing objects, with their states in the list.
    pub(super) fn new(
        request: ProofRequest,
        version: ResourceVersion,
        snapshot: &Snapshot,
        objects: Vec<(ObjectKey, Option<ObjectState>)>,
    ) -> Self {
        Self {
            request,
            version,
            listed: objects.into_iter().collect(),
            since: snapshot.resource_version(),
            epoch: snapshot.epoch(),
            list_began: snapshot.list_began(),
            verdict: OnceCell::new(),
        }
    }

    /// Returns true if `snapshot` and the snapshot of this difference continue from the same list
    /// of the reflector.
    pub(super) fn concerns(&self, snapshot: &Snapshot) -> bool {
        self.epoch == snapshot.epoch() && self.list_began == snapshot.list_began()
    }

    /// Returns the verdict, which is determined only once. The cache must have applied
    /// [`Difference::version`]. If the verdict is [`Verdict::CacheDiffers`], calls `report` with
    /// the keys of the objects and the newest snapshot. Cancel safe.
    pub(super) async fn verdict(
        &self,
        reader: &Reader,
        report: impl FnOnce(&[&ObjectKey], &Snapshot),
    ) -> Verdict {
        let verdict = self.verdict.get_or_init(|| async {
            let newest = reader.snapshot();
            let Some(newest) = newest.filter(|newest| self.concerns(newest)) else {
                return Verdict::Unknown;
            };
            match self.unexplained(reader).await {
                None => Verdict::Unknown,
                Some(keys) if keys.is_empty() => Verdict::Explained,
                Some(keys) => {
                    report(&keys, &newest);
                    Verdict::CacheDiffers
                }
            }
        });
        *verdict.await
    }

    /// Returns the objects that differ from the list after the changes up to the list's version.
    /// Returns `None` if the log lacks one of these changes. Also returns `None` if all stored
    /// objects are explained, but there may be differing objects that were not stored.
    ///
    /// Individual objects may be compared here, because both sides are the states
    /// at the list's version.
    async fn unexplained(&self, reader: &Reader) -> Option<Vec<&ObjectKey>> {
        let changes = reader.changes_between(self.epoch, self.since, self.version);
        let mut changes = changes.ok()?;
        let mut unexplained: HashSet<_> = self.listed.keys().collect();
        let mut budget = CoopBudget::new();
        while let Some(event) = changes.next_applied().ok()? {
            if let Some((key, listed)) = self.listed.get_key_value(&event.object.key) {
                if *listed == self.state_after(&event) {
                    unexplained.remove(key)
                } else {
                    unexplained.insert(key)
                };
            }
            budget.charge(EVENT_UNITS);
            budget.proceed().await;
        }
        // If the difference has more objects than are stored, an object that is not stored may be
        // unexplained.
        let is_known = !unexplained.is_empty() || self.listed.len() < MAX_OBJECTS;
        is_known.then(|| unexplained.into_iter().collect())
    }

    /// Returns the state of the event's object in a list of the selection after the event.
    fn state_after(&self, event: &Event) -> Option<ObjectState> {
        let object = &event.object;
        let is_listed =
            event.event_type != EventType::Deleted && self.request.selection.matches(object);
        is_listed.then(|| ObjectState::of(object))
    }
}

// === impl ObjectState ===

impl ObjectState {
    pub(super) fn of(object: &Object) -> Self {
        Self {
            uid: object.uid().into(),
            version: object.resource_version,
        }
    }
}

// === impl Evidence ===

impl Evidence {
    /// Stores `difference`, unless there is an earlier difference of the same selection, from the
    /// same list of the reflector.
    pub(super) fn keep(&self, difference: &Arc<Difference>) {
        let selection = &difference.request.selection;
        let differences = &mut self.0.lock().differences;
        let is_first = differences.get(selection).is_none_or(|kept| {
            kept.epoch != difference.epoch || kept.list_began != difference.list_began
        });
        let has_room = differences.len() < MAX_SELECTIONS || differences.contains_key(selection);
        if is_first && has_room {
            differences.insert(Arc::clone(selection), Arc::clone(difference));
        }
    }

    /// Returns the differences that can be decided, now that the cache has reached `snapshot`.
    pub(super) fn decidable(&self, snapshot: &Snapshot) -> Vec<Arc<Difference>> {
        let kept = self.0.lock();
        let differences = kept.differences.values();
        let is_decidable = |difference: &&Arc<Difference>| {
            !difference.concerns(snapshot) || difference.version <= snapshot.resource_version()
        };
        differences.filter(is_decidable).cloned().collect()
    }

    /// Drops `difference`, which was decided.
    pub(super) fn forget(&self, difference: &Arc<Difference>) {
        let differences = &mut self.0.lock().differences;
        let selection = &difference.request.selection;
        let is_kept = differences.get(selection);
        if is_kept.is_some_and(|kept| Arc::ptr_eq(kept, difference)) {
            differences.remove(selection);
        }
    }

    /// Returns true if no task decides the differences yet. The caller must then do so.
    pub(super) fn begin_following(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().is_followed, true)
    }

    /// Returns true if no differences are left. The caller must then stop; the next difference
    /// starts a new task.
    pub(super) fn end_following(&self) -> bool {
        let mut kept = self.0.lock();
        kept.is_followed = !kept.differences.is_empty();
        !kept.is_followed
    }
}
