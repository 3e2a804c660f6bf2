//! The choice of the calls of a proof: whether a barrier is tried first, and which verification
//! lists are sent; and whether a barrier is tried that no verification list follows.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::{ObjectKey, Selection};
use crate::cache::Snapshot;
use crate::concurrency::CoopBudget;
use crate::upstream::Scope;

/// If a proof needs at most this many objects, its verification lists are sent at once, without
/// trying a barrier first.
const VERIFY_FIRST_LIMIT: usize = 500;
/// The cost of a list of one object, as a number of objects of a larger list. The API server finds
/// the object by its key.
const LOOKUP_CALL: usize = 20;
/// Counting the objects of several scopes examines at most this number of objects per object of the
/// cache. If more would be needed, a list of everything costs the API server less too.
const MAX_EXAMINED_PER_OBJECT: usize = 4;
/// Budget units of an object that is examined.
const EXAMINED_UNITS: usize = CoopBudget::UNITS / 8192;

/// How long no barrier is tried after the watch has missed more of them than it could spare.
const NO_BARRIER_FOR: Duration = Duration::from_secs(10);
/// How many barriers the watch must reach for each that it may miss. So at most one in five delays
/// its reads in vain.
const REACHED_FOR_A_MISS: u32 = 4;
/// The most barriers that the watch may miss in a row. Two may be in flight when the API server or
/// kubefan pauses for a moment.
const MAX_MISSES: u32 = 2;

/// The objects that a reader needs proven: its selection, also in the API server's syntax. The
/// default is all objects of the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProofRequest {
    /// The selection, for the comparison with snapshots.
    pub selection: Arc<Selection>,
    /// The selection as parameters of a LIST to the API server.
    pub scope: Scope,
}

/// The calls of a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The verification lists, which are sent concurrently: either one for each request, or one for
    /// all objects of the cache.
    pub(super) lists: Vec<ProofRequest>,
    /// True if the lists cost little enough to be sent without trying a barrier first.
    pub(super) is_cheap: bool,
}

/// The costs of lists, as numbers of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListCosts {
    /// The fixed cost of a list.
    pub(super) call: usize,
    /// Lists of several scopes are sent if they cost at most `1 / whole_divisor` of a list of
    /// everything, because that list is only one call and serves later requests too.
    pub(super) whole_divisor: usize,
}

/// Decides whether a barrier is tried that no verification list follows: for crowds of GETs, for
/// single Tables without objects, and for Events.
///
/// The reads wait for it, and are forwarded late if the watch does not reach it soon. So it is tried
/// only for a cache that changes. If other resources change more often, the watch misses most
/// barriers. Then one is tried every few seconds, so that few reads wait in vain.
#[derive(Debug)]
pub(super) struct LoneBarriers {
    /// No barrier is tried for a cache that had no change for longer.
    changes_within: Duration,
    /// How many barriers the watch has reached that no miss has used up yet, up to those for
    /// [`MAX_MISSES`].
    reached: u32,
    /// Until then no barrier is tried.
    none_until: Option<Instant>,
}

/// Returns the verification lists for `requests`; `cached` is a snapshot of the cache. Several
/// requests are listed separately if this costs clearly less than a list of all objects, or if
/// `may_list_whole` is false.
pub(super) async fn plan(
    requests: HashSet<ProofRequest>,
    cached: &Snapshot,
    mut costs: ListCosts,
    may_list_whole: bool,
) -> Plan {
    let scopes = requests.len();
    if requests.iter().all(|request| is_lookup(request, cached)) {
        costs.call = LOOKUP_CALL;
    }
    let limit = costs.most_scoped_objects(scopes, cached.len());
    let objects = match limit {
        Some(limit) => count_objects(&requests, cached, limit).await,
        None => None,
    };
    let lists = match objects {
        None if scopes > 1 && may_list_whole => vec![ProofRequest::default()],
        _ => requests.into_iter().collect(),
    };
    let objects = objects.unwrap_or(match scopes {
        1 => usize::MAX,
        _ => cached.len(),
    });
    let calls = lists.len().saturating_sub(1).saturating_mul(costs.call);
    Plan {
        is_cheap: objects.saturating_add(calls) <= VERIFY_FIRST_LIMIT,
        lists,
    }
}

/// Returns true if `request` selects at most one object, and `cached` has an object with its key.
fn is_lookup(request: &ProofRequest, cached: &Snapshot) -> bool {
    let selection = &request.selection;
    let name = selection.name();
    name.is_some_and(|name| {
        let key = ObjectKey::new(selection.namespace.as_deref(), name);
        cached.get(&key).is_some()
    })
}

/// Returns true if `request` selects so few objects of `cached` that their list costs the API
/// server little.
pub(super) async fn is_small(request: &ProofRequest, cached: &Snapshot) -> bool {
    let requests = HashSet::from([request.clone()]);
    let objects = count_objects(&requests, cached, VERIFY_FIRST_LIMIT);
    objects.await.is_some()
}

/// Returns the number of objects in `cached` that `requests` select, or `None` if there are more
/// than `limit`, or if counting them takes too long.
async fn count_objects(
    requests: &HashSet<ProofRequest>,
    cached: &Snapshot,
    limit: usize,
) -> Option<usize> {
    let mut budget = CoopBudget::new();
    let mut examined_left = cached.len().saturating_mul(MAX_EXAMINED_PER_OBJECT);
    let mut objects = 0;
    for request in requests {
        for candidate in cached.candidates(&request.selection, None) {
            objects += usize::from(request.selection.matches(candidate));
            if objects > limit {
                return None;
            }
            examined_left = examined_left.checked_sub(1)?;
            budget.charge(EXAMINED_UNITS);
            budget.proceed().await;
        }
    }
    Some(objects)
}

// === impl LoneBarriers ===

impl LoneBarriers {
    /// Tries barriers only within `changes_within` after a change of the cache.
    pub(super) fn new(changes_within: Duration) -> Self {
        Self {
            changes_within,
            reached: 0,
            none_until: None,
        }
    }

    /// Returns true if a barrier may be tried at `now`. The cache changed last at `changed_at`.
    pub(super) fn may_try(&self, changed_at: Option<Instant>, now: Instant) -> bool {
        let changes = changed_at.is_some_and(|changed_at| now <= changed_at + self.changes_within);
        changes && self.none_until.is_none_or(|until| until <= now)
    }

    /// Records that the watch has reached a barrier in time.
    pub(super) fn reached(&mut self) {
        self.reached = (MAX_MISSES * REACHED_FOR_A_MISS).min(self.reached + 1);
    }

    /// Records that the watch has not reached a barrier in time, or that the call failed.
    pub(super) fn missed(&mut self, now: Instant) {
        match self.reached.checked_sub(REACHED_FOR_A_MISS) {
            Some(left) => self.reached = left,
            None => self.none_until = Some(now + NO_BARRIER_FOR),
        }
    }
}

// === impl ListCosts ===

impl Default for ListCosts {
    fn default() -> Self {
        Self {
            call: 100,
            whole_divisor: 4,
        }
    }
}

impl ListCosts {
    /// Returns the maximum number of objects for which `scopes` scopes are listed separately, if
    /// the cache has `whole` objects. Returns `None` if the calls alone cost too much. One scope is
    /// always listed alone; its limit is the limit for lists without a barrier.
    fn most_scoped_objects(self, scopes: usize, whole: usize) -> Option<usize> {
        if scopes == 1 {
            return Some(VERIFY_FIRST_LIMIT);
        }
        let share = whole / self.whole_divisor;
        share.checked_sub(self.call.saturating_mul(scopes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_listed_separately_if_there_are_many_others() {
        let costs = ListCosts {
            call: LOOKUP_CALL,
            ..ListCosts::default()
        };
        for (objects, whole, expected) in [
            (2, 100, None),
            (2, 168, Some(2)),
            (16, 500, None),
            (16, 1_500, Some(55)),
        ] {
            let most = costs.most_scoped_objects(objects, whole);
            assert_eq!(most, expected, "{objects} of {whole} objects");
        }
    }

    #[test]
    fn a_barrier_is_tried_for_a_crowd_only_if_the_cache_changes() {
        let changed_at = Instant::now();
        let barriers = LoneBarriers::new(Duration::from_secs(5));
        assert!(!barriers.may_try(None, changed_at));
        for (milliseconds, expected) in [(0, true), (5_000, true), (5_001, false)] {
            let now = changed_at + Duration::from_millis(milliseconds);
            let may_try = barriers.may_try(Some(changed_at), now);
            assert_eq!(may_try, expected, "{milliseconds} ms after a change");
        }
    }

    #[test]
    fn after_missed_barriers_crowds_are_forwarded_for_a_while() {
        for (outcomes, seconds, expected) in [
            ("", 0, true),
            ("missed", 0, false),
            ("missed", 9, false),
            ("missed", 10, true),
            // Four that were reached make up for one that is missed.
            ("+++ missed", 0, false),
            ("++++ missed", 0, true),
            ("++++ missed +++ missed", 0, false),
            ("++++ missed ++++ missed", 0, true),
            ("++++++++++++ missed missed", 0, true),
            ("++++++++++++ missed missed missed", 0, false),
        ] {
            let start = Instant::now();
            let mut barriers = LoneBarriers::new(Duration::from_secs(5));
            for outcome in outcomes.split_whitespace() {
                match outcome {
                    "missed" => barriers.missed(start),
                    reached => reached.chars().for_each(|_| barriers.reached()),
                }
            }
            let now = start + Duration::from_secs(seconds);
            let may_try = barriers.may_try(Some(now), now);
            assert_eq!(may_try, expected, "{outcomes}, {seconds} s later");
        }
    }

    #[test]
    fn scopes_are_listed_separately_up_to_a_quarter_of_the_whole() {
        for (scopes, whole, expected) in [
            (1, 10, Some(500)),
            (1, 50_000, Some(500)),
            (2, 300, None),
            (2, 800, Some(0)),
            (2, 50_000, Some(12_300)),
            (20, 50_000, Some(10_500)),
            (125, 50_000, Some(0)),
            (126, 50_000, None),
        ] {
            let most = ListCosts::default().most_scoped_objects(scopes, whole);
            assert_eq!(most, expected, "{scopes} scopes, {whole} objects");
        }
    }
}
