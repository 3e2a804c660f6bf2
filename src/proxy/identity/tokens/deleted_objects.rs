//! The ServiceAccounts and pods that were deleted a short time ago. For 30 s after a deletion, the
//! API server may still accept the tokens that were issued for the object. So its answers in this
//! time count for only a second.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

use crate::identity::User;
use crate::identity::asking::settling::{COUNTS_FOR, SETTLED, earliest};

/// The key in `extra` for the UID of the pod that a token was issued for.
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// Upper limit of the remembered objects: 7 MiB. Of older objects, only the time of the last
/// deletion is remembered.
const MAX_OBJECTS: usize = 100_000;
/// How long the owner of a token counts after deletions of unknown objects. The API server itself
/// remembers tokens for as long. The time is long enough that kubefan does not ask about all tokens
/// each second.
const OWNERS_COUNT_FOR: Duration = Duration::from_secs(10);

/// The objects that were deleted a short time ago, and that tokens may have been issued for.
#[derive(Debug)]
pub(in crate::identity) struct DeletedObjects {
    started: Instant,
    /// When the last deletion is forgotten, in milliseconds after `started`; 0 if there was no
    /// deletion. Because of this number, requests take no lock if no deletion is remembered.
    kept_until_ms: AtomicU64,
    /// How long deletions are remembered: until all answers that the API server gave before a
    /// deletion was settled have expired.
    kept_for: Duration,
    hasher: RandomState,
    deleted: RwLock<Deleted>,
}

#[derive(Debug, Default)]
struct Deleted {
    /// When objects were deleted, by the hashes of their uids.
    at: HashMap<u64, Instant>,
    /// The deletions in `at`, oldest first.
    in_order: VecDeque<(Instant, u64)>,
    /// The time of the last deletion of an object with an unknown UID.
    unknown: Option<Instant>,
}

impl DeletedObjects {
    /// Creates an empty register of deletions. `longest` is how long an answer may count.
    pub(in crate::identity) fn of_answers(longest: Duration) -> Self {
        Self {
            started: Instant::now(),
            kept_until_ms: AtomicU64::new(0),
            kept_for: SETTLED.saturating_add(longest),
            hasher: RandomState::new(),
            deleted: RwLock::default(),
        }
    }

    /// Adds the deletion of the object with this UID.
    pub(in crate::identity) fn add(&self, uid: &str, now: Instant) {
        let uid = self.hasher.hash_one(uid);
        self.deleted.write().add(uid, now, self.kept_for);
        self.keep(now);
    }

    /// Adds the deletion of objects with unknown UIDs.
    pub(in crate::identity) fn add_unknown(&self, now: Instant) {
        self.deleted.write().unknown = Some(now);
        self.keep(now);
    }

    /// Returns the moment before which the API server must not have been asked for the owner of a
    /// token of `user`, for a request of `since`. Returns `None` if no object for which the token
    /// was issued was deleted.
    pub(in crate::identity) fn earliest_owner(
        &self,
        user: &User,
        since: Instant,
    ) -> Option<Instant> {
        if !self.keeps_any() {
            return None;
        }
        let (known, unknown) = self.last(user);
        let known = known.map(|last| earliest(last, since, COUNTS_FOR));
        known.max(unknown.map(|last| earliest(last, since, OWNERS_COUNT_FOR)))
    }

    /// Returns the moment before which an owner must not have been asked for, if it is to count in
    /// an outage. At this moment the last deletion of an object for which a token of `user` may
    /// have been issued was settled.
    pub(in crate::identity) fn settled(&self, user: &User) -> Option<Instant> {
        let (known, unknown) = self.last(user);
        known.max(unknown).map(|last| last + SETTLED)
    }

    /// Returns when an object for which a token of `user` was issued was last deleted, and when an
    /// object with an unknown UID was. Leaves out deletions that are settled.
    pub(in crate::identity) fn unsettled(&self, user: &User) -> (Option<Instant>, Option<Instant>) {
        if !self.keeps_any() {
            return (None, None);
        }
        let (known, unknown) = self.last(user);
        let is_recent = |last: &Instant| last.elapsed() < SETTLED;
        (known.filter(is_recent), unknown.filter(is_recent))
    }

    /// Returns when an object for which a token of `user` was issued was last deleted, and when an
    /// object with an unknown UID was.
    fn last(&self, user: &User) -> (Option<Instant>, Option<Instant>) {
        let deleted = self.deleted.read();
        let mut last = (None, None);
        for uid in uids_of(user) {
            let at = deleted.at.get(&self.hasher.hash_one(uid));
            last = (last.0.max(at.copied()), deleted.unknown);
        }
        last
    }

    fn keep(&self, now: Instant) {
        let until = self.millis(now + self.kept_for) + 1;
        self.kept_until_ms.fetch_max(until, Ordering::AcqRel);
    }

    /// Returns true if a deletion is remembered.
    fn keeps_any(&self) -> bool {
        let until = self.kept_until_ms.load(Ordering::Acquire);
        until > 0 && self.millis(Instant::now()) < until
    }

    fn millis(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_millis() as u64
    }
}

impl Deleted {
    /// Adds a deletion, and forgets those that are older than `age`.
    fn add(&mut self, uid: u64, now: Instant, age: Duration) {
        // No object is deleted twice, but several caches may report the same deletion.
        if let Entry::Vacant(entry) = self.at.entry(uid) {
            entry.insert(now);
            self.in_order.push_back((now, uid));
        }
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < age;
        self.unknown = self.unknown.filter(is_recent);
        while let Some((at, uid)) = self.in_order.front().copied() {
            if is_recent(&at) {
                if self.in_order.len() <= MAX_OBJECTS {
                    break;
                }
                self.unknown = self.unknown.max(Some(at));
            }
            self.in_order.pop_front();
            self.at.remove(&uid);
        }
    }
}

/// Returns the UIDs of the objects that must exist for a token of `user` to be good: its
/// ServiceAccount, and the pod for which it was issued.
pub(in crate::identity) fn uids_of(user: &User) -> impl Iterator<Item = &str> {
    let pods = user.extra.get(POD_UID).into_iter().flatten();
    let all = pods.map(String::as_str).chain([user.uid.as_str()]);
    all.filter(|uid| !uid.is_empty())
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the owner of a token of the account, and of the pod if there is one.
    fn owner(account: &str, pod: Option<&str>) -> User {
        let pod = pod.map(|pod| (POD_UID.to_owned(), vec![pod.to_owned()]));
        User {
            uid: account.to_owned(),
            extra: pod.into_iter().collect(),
            ..User::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_asked_about_again_after_its_account_or_pod_was_deleted() {
        let user = owner("account", Some("pod"));
        for (uid, is_concerned) in [("account", true), ("pod", true), ("other", false)] {
            let deleted = DeletedObjects::of_answers(SETTLED);
            let earliest = || deleted.earliest_owner(&user, Instant::now());
            let (at, concerned) = (Instant::now(), |at| Some(at).filter(|_| is_concerned));
            assert_eq!(earliest(), None);
            deleted.add(uid, at);
            assert_eq!(earliest(), concerned(at), "{uid}");
            advance(2 * SECOND).await;
            assert_eq!(earliest(), concerned(at + SECOND), "{uid}");
            // Another cache reports it too.
            deleted.add(uid, Instant::now());
            // An owner that was asked for before the deletion, or shortly after it, never counts
            // again.
            advance(SETTLED).await;
            assert_eq!(earliest(), concerned(at + SETTLED), "{uid}");
            advance(2 * SETTLED).await;
            assert_eq!(earliest(), None, "{uid}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn deletions_are_kept_until_the_answers_before_them_have_expired() {
        for (longest, is_kept) in [(Duration::ZERO, false), (3 * SETTLED, true)] {
            let deleted = DeletedObjects::of_answers(longest);
            let user = owner("account", None);
            let at = Instant::now();
            deleted.add("account", at);
            advance(2 * SETTLED).await;
            deleted.add("other", Instant::now());
            let expected = is_kept.then_some(at + SETTLED);
            assert_eq!(deleted.earliest_owner(&user, Instant::now()), expected);
            assert_eq!(deleted.settled(&user), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_tokens_of_objects_are_concerned_if_too_many_are_deleted_at_once() {
        let deleted = DeletedObjects::of_answers(SETTLED);
        let earliest = |uid: &str| deleted.earliest_owner(&owner(uid, None), Instant::now());
        let at = Instant::now();
        for number in 0..MAX_OBJECTS {
            deleted.add(&format!("uid-{number}"), at);
        }
        assert_eq!(earliest("another"), None);
        deleted.add("one-too-many", at);
        assert_eq!(earliest("another"), Some(at));
        // This token was not issued for an object.
        assert_eq!(earliest(""), None);
        advance(15 * SECOND).await;
        assert_eq!(earliest("another"), Some(at + 5 * SECOND));
        assert_eq!(earliest("one-too-many"), Some(at + 14 * SECOND));
        advance(2 * SETTLED).await;
        assert_eq!(earliest("another"), None);
        // There is room again.
        let at = Instant::now();
        deleted.add("other", at);
        assert_eq!((earliest("another"), earliest("other")), (None, Some(at)));
        assert_eq!(deleted.deleted.read().in_order.len(), 1);
    }

    /// With `authorization.stale`, deletions are remembered for a long time.
    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded_and_steady_deletions_concern_no_other_token() {
        let deleted = DeletedObjects::of_answers(Duration::from_secs(3_600));
        for number in 0..2_000 {
            for of_second in 0..100 {
                deleted.add(&format!("uid-{number}-{of_second}"), Instant::now());
            }
            advance(SECOND).await;
        }
        {
            let deleted = deleted.deleted.read();
            let lengths = (deleted.at.len(), deleted.in_order.len());
            assert_eq!(lengths, (MAX_OBJECTS, MAX_OBJECTS));
        }
        let (user, now) = (owner("another", None), Instant::now());
        // The owners of the last minutes count, also in an outage.
        let earliest = [deleted.earliest_owner(&user, now), deleted.settled(&user)];
        let forgotten = now - Duration::from_secs(1_001);
        assert_eq!(earliest, [Some(forgotten + SETTLED); 2]);
    }
}
