//! Recent changes of roles. For 30 s after a change, the API server may still answer as before it.
//! So its answers in this time count for only a second.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

use super::objects::Subject;
use super::policy::Concerned;
use crate::identity::User;
use crate::identity::asking::settling::{COUNTS_FOR, SETTLED, earliest};

/// Upper limit of the remembered subjects. Of older subjects, only the time of the last change is
/// remembered, and this change then counts for all users.
const MAX_SUBJECTS: usize = 10_000;

/// The users and groups with roles that changed a short time ago.
#[derive(Debug)]
pub(in crate::identity) struct RecentChanges {
    started: Instant,
    /// When the last change is settled, in milliseconds after `started`; 0 if there was no change.
    /// Because of this number, most requests take no lock.
    settled_ms: AtomicU64,
    /// How long changes are remembered: until all answers that the API server gave before a change
    /// was settled have expired.
    kept_for: Duration,
    changes: RwLock<Changes>,
}

#[derive(Debug, Default)]
struct Changes {
    users: ByName,
    groups: ByName,
    /// The changes in `users` and `groups`, oldest first, including those that a later change has
    /// replaced.
    in_order: VecDeque<(Instant, Subject, String)>,
    /// When a subject that is not remembered any more last changed. This change counts for all
    /// users.
    all: Option<Instant>,
}

/// The times of changes, by the name of a user or group, and by the namespace of the change.
type ByName = HashMap<String, HashMap<String, Instant>>;

impl Default for RecentChanges {
    fn default() -> Self {
        Self::of_answers(SETTLED)
    }
}

impl RecentChanges {
    /// Creates an empty register of changes. `longest` is how long an answer may count.
    pub(in crate::identity) fn of_answers(longest: Duration) -> Self {
        Self {
            started: Instant::now(),
            settled_ms: AtomicU64::new(0),
            kept_for: SETTLED.saturating_add(longest),
            changes: RwLock::default(),
        }
    }

    /// Adds a change at `now`. Forgets the changes that are too old.
    pub(super) fn add(&self, concerned: &Concerned, now: Instant) {
        let mut changes = self.changes.write();
        for (subject, namespace) in &concerned.0 {
            changes.add(subject, namespace, now);
        }
        changes.forget(now, self.kept_for);
        drop(changes);
        self.set_changed(now);
    }

    /// Adds a change of the roles of a user in all namespaces.
    #[cfg(test)]
    pub(in crate::identity) fn add_for_tests(&self, user: &str, now: Instant) {
        let subject = (Subject::User(user.to_owned()), String::new());
        self.add(&Concerned([subject].into()), now);
    }

    /// Returns true if a change is not settled yet.
    pub(in crate::identity) fn has_any(&self) -> bool {
        let settled = self.settled_ms.load(Ordering::Acquire);
        settled > 0 && self.millis(Instant::now()) < settled
    }

    /// Returns true if a change is remembered, even if it is settled.
    fn keeps_any(&self) -> bool {
        let settled = self.settled_ms.load(Ordering::Acquire);
        let kept_for = self.kept_for.saturating_sub(SETTLED).as_millis() as u64;
        settled > 0 && self.millis(Instant::now()) < settled.saturating_add(kept_for)
    }

    /// Returns the last change of the rights of `user` in `namespace` (empty: in all) that is not
    /// settled.
    pub(in crate::identity) fn last(&self, user: &User, namespace: &str) -> Option<Instant> {
        if !self.has_any() {
            return None;
        }
        let last = self.changes.read().last(user, namespace)?;
        (last.elapsed() < SETTLED).then_some(last)
    }

    /// Returns the moment before which a decision about `user` in `namespace` must not have been
    /// asked for, if it is to count in an outage. At this moment the last remembered change of the
    /// user's rights was settled.
    pub(in crate::identity) fn settled(&self, user: &User, namespace: &str) -> Option<Instant> {
        let last = self.changes.read().last(user, namespace)?;
        Some(last + SETTLED)
    }

    fn set_changed(&self, now: Instant) {
        let settled = self.millis(now + SETTLED) + 1;
        self.settled_ms.fetch_max(settled, Ordering::AcqRel);
    }

    fn millis(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_millis() as u64
    }

    /// Returns the moment before which a decision about `user` in `namespace` must not have been
    /// asked for, for a request of `since`. Returns `None` if no change of the user's roles is
    /// remembered.
    pub(in crate::identity) fn earliest(
        &self,
        user: &User,
        namespace: &str,
        since: Instant,
    ) -> Option<Instant> {
        if !self.keeps_any() {
            return None;
        }
        let last = self.changes.read().last(user, namespace)?;
        Some(earliest(last, since, COUNTS_FOR))
    }
}

impl Changes {
    fn last(&self, user: &User, namespace: &str) -> Option<Instant> {
        let at = |namespaces: &HashMap<String, Instant>| {
            let local = namespaces.get(namespace).copied();
            local.max(namespaces.get("").copied())
        };
        let of_user = self.users.get(&user.name).and_then(at);
        let groups = user
            .groups
            .iter()
            .filter_map(|group| self.groups.get(group));
        groups.filter_map(at).chain(of_user).chain(self.all).max()
    }

    fn add(&mut self, subject: &Subject, namespace: &str, now: Instant) {
        let (by_name, name) = self.of(subject);
        let namespaces = by_name.entry(name.to_owned()).or_default();
        if namespaces.insert(namespace.to_owned(), now) != Some(now) {
            let added = (now, subject.clone(), namespace.to_owned());
            self.in_order.push_back(added);
        }
    }

    /// Forgets the changes that are older than `age`, and the subjects of the oldest changes if
    /// there are too many.
    fn forget(&mut self, now: Instant, age: Duration) {
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < age;
        self.all = self.all.filter(is_recent);
        while let Some((at, subject, namespace)) = self.in_order.pop_front() {
            if is_recent(&at) && self.in_order.len() < MAX_SUBJECTS {
                self.in_order.push_front((at, subject, namespace));
                break;
            }
            if self.remove(&subject, &namespace, at) && is_recent(&at) {
                self.all = self.all.max(Some(at));
            }
        }
    }

    /// Removes the change of a subject at `at`. Returns false if the subject has changed again
    /// since.
    fn remove(&mut self, subject: &Subject, namespace: &str, at: Instant) -> bool {
        let (by_name, name) = self.of(subject);
        let Some(namespaces) = by_name.get_mut(name) else {
            return false;
        };
        let is_last = namespaces.get(namespace) == Some(&at);
        if is_last {
            namespaces.remove(namespace);
        }
        if namespaces.is_empty() {
            by_name.remove(name);
        }
        is_last
    }

    fn of<'a>(&mut self, subject: &'a Subject) -> (&mut ByName, &'a str) {
        match subject {
            Subject::User(name) => (&mut self.users, name),
            Subject::Group(name) => (&mut self.groups, name),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn user(name: &str, group: &str) -> User {
        User {
            name: name.to_owned(),
            groups: vec![group.to_owned()],
            ..User::default()
        }
    }

    fn concerned(subject: Subject, namespace: &str) -> Concerned {
        Concerned([(subject, namespace.to_owned())].into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_decision_must_be_later_than_a_change_and_not_older_than_a_second() {
        let recent = RecentChanges::default();
        let user = user("u", "g");
        assert_eq!(recent.earliest(&user, "n", Instant::now()), None);
        let change = Instant::now();
        recent.add(&concerned(Subject::User("u".to_owned()), ""), change);
        assert_eq!(recent.earliest(&user, "n", Instant::now()), Some(change));
        advance(Duration::from_millis(2_500)).await;
        let expected = change + Duration::from_millis(1_500);
        assert_eq!(recent.earliest(&user, "n", Instant::now()), Some(expected));
        // An answer of the last moments before the change was settled does not count again.
        advance(SETTLED).await;
        let settled = change + SETTLED;
        let earliest = |user: &User| recent.earliest(user, "n", Instant::now());
        assert_eq!(earliest(&user), Some(settled));
        advance(SETTLED).await;
        assert_eq!(earliest(&user), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_concerns_its_subjects_in_its_namespace() {
        let recent = RecentChanges::default();
        let now = Instant::now();
        recent.add(&concerned(Subject::User("u".to_owned()), "n"), now);
        recent.add(&concerned(Subject::Group("g".to_owned()), ""), now);
        for (name, group, namespace, expected) in [
            ("u", "h", "n", true),
            ("u", "h", "m", false),
            // A binding in a namespace says nothing about reads of all namespaces.
            ("u", "h", "", false),
            ("v", "g", "m", true),
            ("v", "g", "", true),
            ("g", "u", "n", false),
        ] {
            let found = recent.last(&user(name, group), namespace).is_some();
            assert_eq!(found, expected, "{name} {group} {namespace}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_kept_until_the_answers_before_them_have_expired() {
        for (longest, is_kept) in [(Duration::ZERO, false), (3 * SETTLED, true)] {
            let recent = RecentChanges::of_answers(longest);
            let user = user("u", "g");
            let changed = Instant::now();
            let of_user = concerned(Subject::User("u".to_owned()), "");
            recent.add(&of_user, changed);
            advance(2 * SETTLED).await;
            let of_other = concerned(Subject::User("v".to_owned()), "");
            recent.add(&of_other, Instant::now());
            assert_eq!(recent.last(&user, "n"), None);
            let expected = is_kept.then_some(changed + SETTLED);
            let now = Instant::now();
            assert_eq!(recent.earliest(&user, "n", now), expected);
            assert_eq!(recent.settled(&user, "n"), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_subjects_at_once_are_all_users() {
        let recent = RecentChanges::default();
        let now = Instant::now();
        let subjects = (0..=MAX_SUBJECTS).map(|number| Subject::User(number.to_string()));
        let concerned = Concerned(subjects.map(|subject| (subject, String::new())).collect());
        recent.add(&concerned, now);
        assert_eq!(recent.last(&user("another", "g"), "n"), Some(now));
        assert_eq!(recent.changes.read().users.len(), MAX_SUBJECTS);
    }

    /// With `authorization.stale`, changes are remembered for a long time.
    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded_and_steady_changes_concern_no_other_user() {
        let recent = RecentChanges::of_answers(Duration::from_secs(3_600));
        let of_user = |name: String| concerned(Subject::User(name), "n");
        for number in 0..2_000 {
            for of_second in 0..10 {
                recent.add(&of_user(format!("{number}-{of_second}")), Instant::now());
            }
            // The roles of this user change all the time.
            recent.add(&of_user("often".to_owned()), Instant::now());
            advance(Duration::from_secs(1)).await;
        }
        {
            let changes = recent.changes.read();
            assert_eq!(changes.in_order.len(), MAX_SUBJECTS);
            assert!(changes.users.len() <= MAX_SUBJECTS);
        }
        let (another, now) = (user("another", "g"), Instant::now());
        assert_eq!(recent.last(&another, "n"), None);
        // Decisions of the last minutes count, also in an outage.
        let settled = recent
            .settled(&another, "n")
            .expect("changes are forgotten");
        assert!(
            now - settled > Duration::from_secs(600),
            "{:?}",
            now - settled
        );
        assert_eq!(recent.earliest(&another, "n", now), Some(settled));
        let often = recent.last(&user("often", "g"), "n");
        assert_eq!(often, Some(now - Duration::from_secs(1)));
    }
}
