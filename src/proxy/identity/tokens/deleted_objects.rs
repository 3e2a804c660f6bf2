//! The ServiceAccounts and pods that were deleted a short time ago. The API server may still accept
//! the tokens that were issued for them.

use std::time::Duration;

use tokio::time::Instant;

use crate::identity::User;
use crate::identity::asking::settling::{ChangeTimes, LastChanges};

/// The key in `extra` for the UID of the pod that a token was issued for.
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// How long the owner of a token counts after deletions of unknown objects. The API server itself
/// remembers tokens for as long. The time is long enough that kubefan does not ask about all tokens
/// each second.
const OWNERS_COUNT_FOR: Duration = Duration::from_secs(10);

/// Upper limit of the remembered deletions: 7 MiB. After more, a deletion counts for all tokens.
const MAX_DELETED: usize = 100_000;

/// When objects were deleted for which tokens may have been issued, by the UIDs of the objects.
#[derive(Debug)]
pub(in crate::identity) struct DeletedObjects(ChangeTimes);

impl DeletedObjects {
    /// Creates an empty register of deletions. `longest` is how long an answer may count.
    pub(in crate::identity) fn of_answers(longest: Duration) -> Self {
        Self(ChangeTimes::new(longest, OWNERS_COUNT_FOR, MAX_DELETED))
    }

    /// Adds the deletion of the object with this UID.
    pub(in crate::identity) fn add(&self, uid: &str, now: Instant) {
        // No object is deleted twice, but several caches may report the same deletion.
        if let (None, _) = self.0.last([uid]) {
            self.0.add([uid], now);
        }
    }

    /// Adds the deletion of objects with unknown UIDs.
    pub(in crate::identity) fn add_unknown(&self, now: Instant) {
        self.0.add_unknown(now);
    }

    /// Returns the moment before which the API server must not have been asked for the owner of a
    /// token of `user`, for a request of `since`. Returns `None` if no object for which the token
    /// was issued was deleted.
    pub(in crate::identity) fn earliest_owner(
        &self,
        user: &User,
        since: Instant,
    ) -> Option<Instant> {
        self.0.earliest(uids_of(user), since)
    }

    /// Returns the moment before which an owner must not have been asked for, if it is to count in
    /// an outage. At this moment the last deletion of an object for which a token of `user` may
    /// have been issued was settled.
    pub(in crate::identity) fn settled(&self, user: &User) -> Option<Instant> {
        self.0.settled(uids_of(user))
    }

    /// Returns when an object for which a token of `user` was issued was last deleted, and when an
    /// object with an unknown UID was. Leaves out deletions that are settled.
    pub(in crate::identity) fn unsettled(&self, user: &User) -> LastChanges {
        self.0.unsettled(uids_of(user))
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
    use crate::identity::asking::settling::SETTLED;

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
            assert_eq!(deleted.settled(&user), concerned(at + SETTLED), "{uid}");
            advance(2 * SETTLED).await;
            assert_eq!(earliest(), None, "{uid}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_tokens_of_objects_are_concerned_if_too_many_are_deleted_at_once() {
        let deleted = DeletedObjects::of_answers(SETTLED);
        let earliest = |uid: &str| deleted.earliest_owner(&owner(uid, None), Instant::now());
        let at = Instant::now();
        for number in 0..MAX_DELETED {
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
    }
}
