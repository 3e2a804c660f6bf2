//! Recent changes of roles.

use std::time::Duration;

use tokio::time::Instant;

use super::objects::Subject;
use super::policy::Concerned;
use crate::identity::User;
use crate::identity::asking::settling::{COUNTS_FOR, ChangeTimes, SETTLED};

/// Upper limit of the remembered subjects: 0.7 MiB. After changes of more, a change counts for all
/// users.
const MAX_SUBJECTS: usize = 10_000;

/// The users and groups with roles that changed a short time ago, by namespace. The namespace is
/// empty for a change in all namespaces.
#[derive(Debug)]
pub(in crate::identity) struct RecentChanges(ChangeTimes);

/// A user or group, and the namespace of a change of its roles.
type Key<'a> = (Subject<&'a str>, &'a str);

impl Default for RecentChanges {
    fn default() -> Self {
        Self::of_answers(SETTLED)
    }
}

impl RecentChanges {
    /// Creates an empty register of changes. `longest` is how long an answer may count.
    pub(in crate::identity) fn of_answers(longest: Duration) -> Self {
        Self(ChangeTimes::new(longest, COUNTS_FOR, MAX_SUBJECTS))
    }

    /// Adds a change at `now`.
    pub(super) fn add(&self, concerned: &Concerned, now: Instant) {
        let changed = concerned.iter();
        let keys = changed.map(|(subject, namespace)| match subject {
            Subject::User(name) => (Subject::User(name.as_str()), namespace.as_str()),
            Subject::Group(name) => (Subject::Group(name.as_str()), namespace.as_str()),
        });
        self.0.add(keys, now);
    }

    /// Adds a change of the roles of a user in all namespaces.
    #[cfg(test)]
    pub(in crate::identity) fn add_for_tests(&self, user: &str, now: Instant) {
        let subject = (Subject::User(user.to_owned()), String::new());
        self.add(&Concerned::from([subject]), now);
    }

    /// Returns the last change of the rights of `user` in `namespace` (empty: in all) that is not
    /// settled.
    pub(in crate::identity) fn last(&self, user: &User, namespace: &str) -> Option<Instant> {
        let (known, unknown) = self.0.unsettled(keys(user, namespace));
        known.max(unknown)
    }

    /// Returns the moment before which a decision about `user` in `namespace` must not have been
    /// asked for, if it is to count in an outage.
    pub(in crate::identity) fn settled(&self, user: &User, namespace: &str) -> Option<Instant> {
        self.0.settled(keys(user, namespace))
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
        self.0.earliest(keys(user, namespace), since)
    }
}

/// Returns the keys of the changes that affect the rights of `user` in `namespace`.
fn keys<'a>(user: &'a User, namespace: &'a str) -> impl Iterator<Item = Key<'a>> {
    let groups = user.groups.iter();
    let groups = groups.map(|group| Subject::Group(group.as_str()));
    let subjects = groups.chain([Subject::User(user.name.as_str())]);
    subjects.flat_map(move |subject| [(subject, namespace), (subject, "")])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, group: &str) -> User {
        User {
            name: name.to_owned(),
            groups: vec![group.to_owned()],
            ..User::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_concerns_its_subjects_in_its_namespace() {
        let recent = RecentChanges::default();
        let now = Instant::now();
        for (subject, namespace) in [
            (Subject::User("u".to_owned()), "n"),
            (Subject::Group("g".to_owned()), ""),
        ] {
            let concerned = Concerned::from([(subject, namespace.to_owned())]);
            recent.add(&concerned, now);
        }
        for (name, group, namespace, is_concerned) in [
            ("u", "h", "n", true),
            ("u", "h", "m", false),
            // A binding in a namespace says nothing about reads of all namespaces.
            ("u", "h", "", false),
            ("v", "g", "m", true),
            ("v", "g", "", true),
            ("g", "u", "n", false),
        ] {
            let user = user(name, group);
            let changed = is_concerned.then_some(now);
            let context = format!("{name} {group} {namespace}");
            assert_eq!(recent.last(&user, namespace), changed, "{context}");
            let earliest = recent.earliest(&user, namespace, now);
            assert_eq!(earliest, changed, "{context}");
            let settled = recent.settled(&user, namespace);
            assert_eq!(settled, changed.map(|at| at + SETTLED), "{context}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_subjects_at_once_are_all_users() {
        let recent = RecentChanges::default();
        let now = Instant::now();
        let subjects = (0..=MAX_SUBJECTS).map(|number| Subject::User(number.to_string()));
        let concerned: Concerned = subjects.map(|subject| (subject, String::new())).collect();
        recent.add(&concerned, now);
        let another = user("another", "g");
        assert_eq!(recent.last(&another, "n"), Some(now));
        // As after any change, a decision counts for a second.
        tokio::time::advance(Duration::from_secs(15)).await;
        let expected = Instant::now() - COUNTS_FOR;
        let earliest = recent.earliest(&another, "n", Instant::now());
        assert_eq!(earliest, Some(expected));
    }
}
