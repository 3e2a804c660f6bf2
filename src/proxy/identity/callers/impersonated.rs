//! The user as whom a caller wants to act.

use std::collections::BTreeMap;

use crate::identity::{Attributes, User};

/// The user as whom a caller wants to act, as the headers of an impersonating request name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImpersonatedUser {
    /// The name, such as `jane` or `system:serviceaccount:default:builder`.
    pub name: String,
    /// The UID; empty for none.
    pub uid: String,
    /// The groups; if there are none, the API server adds those of a service account.
    pub groups: Vec<String>,
    /// Further attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl ImpersonatedUser {
    /// Returns the rights that a caller needs, as the API server asks for them: the verb
    /// `impersonate` on the name, the UID, and on each group and attribute.
    pub(in crate::identity) fn rights(&self) -> Vec<Attributes> {
        let right = |group: &str, resource: &str, name: &str| Attributes {
            verb: "impersonate".to_owned(),
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        let mut rights = vec![match self.service_account() {
            Some((namespace, name)) => Attributes {
                namespace: namespace.to_owned(),
                ..right("", "serviceaccounts", name)
            },
            None => right("", "users", &self.name),
        }];
        let groups = self.groups.iter();
        rights.extend(groups.map(|group| right("", "groups", group)));
        let authentication = "authentication.k8s.io";
        let extra = self.extra.iter();
        let extra = extra.flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
        rights.extend(extra.map(|(key, value)| Attributes {
            subresource: key.clone(),
            ..right(authentication, "userextras", value)
        }));
        if !self.uid.is_empty() {
            rights.push(right(authentication, "uids", &self.uid));
        }
        rights
    }

    /// Returns the user with the groups that the API server adds.
    pub(in crate::identity) fn user(&self) -> User {
        let mut groups = self.groups.clone();
        if groups.is_empty()
            && let Some((namespace, _)) = self.service_account()
        {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        let mut user = User {
            name: self.name.clone(),
            uid: self.uid.clone(),
            groups,
            extra: self.extra.clone(),
        };
        user.add_authenticated_group();
        let is_unauthenticated = |group: &String| group == User::UNAUTHENTICATED;
        if user.name == User::ANONYMOUS && !user.groups.iter().any(is_unauthenticated) {
            user.groups.push(User::UNAUTHENTICATED.to_owned());
        }
        user
    }

    /// Returns the namespace and the name of the service account, if the user is one.
    fn service_account(&self) -> Option<(&str, &str)> {
        let account = self.name.strip_prefix(User::SERVICE_ACCOUNT)?;
        let (namespace, name) = account.split_once(':')?;
        let is_valid = !namespace.is_empty() && !name.is_empty() && !name.contains(':');
        is_valid.then_some((namespace, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(rights: &[Attributes]) -> Vec<String> {
        let text = |right: &Attributes| {
            let parts = [
                &right.group,
                &right.resource,
                &right.subresource,
                &right.namespace,
                &right.name,
            ];
            parts.map(String::as_str).join("|")
        };
        assert!(rights.iter().all(|right| right.verb == "impersonate"));
        rights.iter().map(text).collect()
    }

    #[test]
    fn each_part_of_the_user_needs_a_right() {
        let user = ImpersonatedUser {
            name: "jane".to_owned(),
            uid: "7".to_owned(),
            groups: vec!["dev".to_owned(), "ops".to_owned()],
            extra: [("scopes".to_owned(), vec!["a".to_owned(), "b".to_owned()])].into(),
        };
        let expected = [
            "|users|||jane",
            "|groups|||dev",
            "|groups|||ops",
            "authentication.k8s.io|userextras|scopes||a",
            "authentication.k8s.io|userextras|scopes||b",
            "authentication.k8s.io|uids|||7",
        ];
        assert_eq!(texts(&user.rights()), expected);
        let account = ImpersonatedUser {
            name: "system:serviceaccount:shop:web".to_owned(),
            ..ImpersonatedUser::default()
        };
        assert_eq!(texts(&account.rights()), ["|serviceaccounts||shop|web"]);
    }

    #[test]
    fn the_user_gets_the_groups_that_the_api_server_adds() {
        for (name, groups, expected) in [
            ("jane", &[][..], &["system:authenticated"][..]),
            ("jane", &["dev"], &["dev", "system:authenticated"]),
            (
                "jane",
                &["system:unauthenticated"],
                &["system:unauthenticated"],
            ),
            (
                "system:serviceaccount:shop:web",
                &[],
                &[
                    "system:serviceaccounts",
                    "system:serviceaccounts:shop",
                    "system:authenticated",
                ],
            ),
            (
                "system:serviceaccount:shop:web",
                &["dev"],
                &["dev", "system:authenticated"],
            ),
            ("system:anonymous", &[], &["system:unauthenticated"]),
        ] {
            let user = ImpersonatedUser {
                name: name.to_owned(),
                groups: groups
                    .iter()
                    .map(|&group: &&str| group.to_owned())
                    .collect(),
                ..ImpersonatedUser::default()
            };
            assert_eq!(user.user().groups, expected, "{name} {groups:?}");
        }
    }
}
