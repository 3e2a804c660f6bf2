//! What each user holds of something that few can have at a time, so that one user does not take
//! all of it. Callers that kubefan does not authenticate are not concerned.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::api::GroupVersionResource;
use crate::api::Selection;
use crate::api::Status;
use crate::api::WireFormat;
use crate::body::BodyGuard;
use crate::cache::is_indexed;
use crate::identity::Caller;
use crate::identity::UserKey;

use super::decide::Plan;
use super::decide::Read;

/// The shares of all users. Clones are the same shares.
#[derive(Clone, Default)]
pub(super) struct Shares {
    /// Permits of a semaphore, which is identified by its address.
    permits: Counts<(UserKey, usize)>,
    /// Watched selections that no index finds, of the caches of one resource.
    selections: Counts<(UserKey, GroupVersionResource, WireFormat)>,
    /// Watches of one such selection.
    watches: Counts<(UserKey, GroupVersionResource, WireFormat, Arc<Selection>)>,
    /// How many such selections of a cache one user may watch.
    max_selections: usize,
}

/// A number for each key. Keys with number 0 have no entry.
struct Counts<K>(Arc<Mutex<HashMap<K, usize>>>);

/// One of the number of a key, until it is dropped.
struct Counted<K: Hash + Eq> {
    counts: Counts<K>,
    key: K,
}

/// A user's share of the permits of a semaphore.
pub(super) struct PermitShare {
    _counted: Counted<(UserKey, usize)>,
}

/// A watch of a selection that no index finds.
pub(super) struct SelectionShare {
    shares: Shares,
    key: (UserKey, GroupVersionResource, WireFormat, Arc<Selection>),
}

/// The user holds too much of it already.
#[derive(Debug)]
pub(super) struct TooMany;

// === impl Shares ===

impl Shares {
    /// A user may watch half of the selections without an index that a cache can have: `limit`.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            max_selections: limit.div_ceil(2),
            ..Self::default()
        }
    }

    /// The share of `caller` if it takes a permit of `limit`; `None` if the caller is not known. A
    /// user may have as many permits as are left, and one of them in any case.
    pub(super) fn permit(
        &self,
        caller: &Caller,
        limit: &Arc<Semaphore>,
    ) -> Result<Option<PermitShare>, TooMany> {
        let Caller::Known(caller) = caller else {
            return Ok(None);
        };
        // Others may take permits meanwhile. Then the semaphore has none left for this user.
        let left = limit.available_permits();
        let key = (caller.name_key(), Arc::as_ptr(limit) as usize);
        let counted = self.permits.add(key, |held| held == 0 || held < left);
        counted.map(|_counted| Some(PermitShare { _counted }))
    }

    /// The share of `caller` for a watch as in `read`; `None` if it needs none.
    ///
    /// # Errors
    /// A 429 if the user watches too many selections without an index.
    pub(super) fn selection(
        &self,
        caller: &Caller,
        read: &Read,
    ) -> Result<Option<SelectionShare>, Status> {
        let (Caller::Known(caller), Plan::Watch { proof_request, .. }) = (caller, &read.plan)
        else {
            return Ok(None);
        };
        let selection = &proof_request.selection;
        if is_indexed(selection) || selection.is_everything() {
            return Ok(None);
        }
        let (gvr, format) = (read.spec.resource.gvr.clone(), read.spec.format);
        let key = (caller.name_key(), gvr, format, Arc::clone(selection));
        let share = self.watch(key);
        let share = share.map_err(|TooMany| Status::too_many_watched_selectors());
        share.map(Some)
    }

    fn watch(
        &self,
        key: (UserKey, GroupVersionResource, WireFormat, Arc<Selection>),
    ) -> Result<SelectionShare, TooMany> {
        // The locks are always taken in this order.
        let mut watches = self.watches.0.lock();
        let mut selections = self.selections.0.lock();
        if !watches.contains_key(&key) {
            let of_user = (key.0, key.1.clone(), key.2);
            let held = selections.get(&of_user).copied().unwrap_or_default();
            if held >= self.max_selections {
                return Err(TooMany);
            }
            selections.insert(of_user, held + 1);
        }
        *watches.entry(key.clone()).or_default() += 1;
        let shares = self.clone();
        Ok(SelectionShare { shares, key })
    }
}

// === impl Counts ===

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K> Clone for Counts<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Hash + Eq + Clone> Counts<K> {
    fn add(&self, key: K, may_add: impl FnOnce(usize) -> bool) -> Result<Counted<K>, TooMany> {
        let mut counts = self.0.lock();
        let count = counts.get(&key).copied().unwrap_or_default();
        if !may_add(count) {
            return Err(TooMany);
        }
        counts.insert(key.clone(), count + 1);
        let counts = self.clone();
        Ok(Counted { counts, key })
    }
}

/// Subtracts one from the number of `key`; returns whether it is 0 now.
fn subtract<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else {
        return true;
    };
    *count -= 1;
    let is_zero = *count == 0;
    if is_zero {
        counts.remove(key);
    }
    is_zero
}

impl<K: Hash + Eq> Drop for Counted<K> {
    fn drop(&mut self) {
        subtract(&mut self.counts.0.lock(), &self.key);
    }
}

impl Drop for SelectionShare {
    fn drop(&mut self) {
        let mut watches = self.shares.watches.0.lock();
        if subtract(&mut watches, &self.key) {
            let (user, gvr, format, _) = &self.key;
            let of_user = (*user, gvr.clone(), *format);
            subtract(&mut self.shares.selections.0.lock(), &of_user);
        }
    }
}

/// A share is held until the body of the answer is dropped.
impl BodyGuard for PermitShare {}

/// A share is held until the watch ends.
impl BodyGuard for SelectionShare {}

#[cfg(test)]
mod tests {
    use crate::api::LabelSelector;
    use crate::identity::KnownCaller;

    use super::*;

    fn user(number: u8) -> Caller {
        Caller::Known(Arc::new(KnownCaller::for_tests(number)))
    }

    #[test]
    fn a_user_leaves_a_permit_for_others() {
        let shares = Shares::new(0);
        let limit = Arc::new(Semaphore::new(2));
        let take = |number| {
            let share = shares.permit(&user(number), &limit).ok()??;
            let permit = limit.try_acquire().ok()?;
            Some((share, permit))
        };
        let first = take(1);
        assert!(first.is_some() && take(1).is_none());
        let other = take(2);
        assert!(other.is_some() && take(2).is_none());
        drop(first);
        assert!(take(3).is_some());
        drop(other);
        assert!(shares.permits.0.lock().is_empty());
        let trusted = shares.permit(&Caller::Trusted, &limit);
        assert!(trusted.is_ok_and(|share| share.is_none()));
    }

    #[test]
    fn a_user_watches_half_of_the_selections_without_an_index() {
        let shares = Shares::new(4);
        let watch = |user, label: &str| {
            let selection = Selection {
                labels: LabelSelector::parse(&format!("!{label}")).expect("a selector"),
                ..Selection::default()
            };
            assert!(!is_indexed(&selection));
            let pods = GroupVersionResource::new("", "v1", "pods");
            let key = UserKey::for_tests(user);
            shares.watch((key, pods, WireFormat::Json, Arc::new(selection)))
        };
        let held = [watch(1, "a"), watch(1, "b"), watch(1, "a"), watch(1, "b")];
        assert!(held.iter().all(Result::is_ok));
        assert!(watch(1, "c").is_err());
        assert!(watch(2, "c").is_ok());
        let [one, two, three, four] = held;
        drop(one);
        assert!(
            watch(1, "c").is_err(),
            "another watch of the selection is open"
        );
        drop(three);
        assert!(watch(1, "c").is_ok());
        drop((two, four));
        assert!(shares.watches.0.lock().is_empty());
        assert!(shares.selections.0.lock().is_empty());
    }
}
