//! A user, as the API server's authorizers see it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A user, as the API server's authorizers see it: `UserInfo` of `authentication.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    /// The name, such as `jane` or `system:serviceaccount:default:builder`.
    #[serde(rename = "username", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The UID, which identifies the user over time; empty if the user has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups of the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Further attributes, such as the ID of the credential.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The start of the names of service accounts.
    pub(in crate::identity) const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
    /// The name of the user of requests without credentials.
    pub(in crate::identity) const ANONYMOUS: &str = "system:anonymous";
    /// The group of users that are not authenticated.
    pub(in crate::identity) const UNAUTHENTICATED: &str = "system:unauthenticated";
    /// The group of node agents.
    pub(in crate::identity) const NODES: &str = "system:nodes";
    /// The group of users that are authenticated. The API server itself adds it.
    pub(in crate::identity) const AUTHENTICATED: &str = "system:authenticated";

    /// Returns the bytes of memory that the user holds outside of itself.
    pub(in crate::identity) fn weight(&self) -> usize {
        /// The most entries of a node of a `BTreeMap`. Its nodes are half full at least.
        const NODE: usize = 11;
        let of = |text: &String| text.capacity();
        let of_all = |texts: &Vec<String>| {
            texts.capacity() * size_of::<String>() + texts.iter().map(of).sum::<usize>()
        };
        let entry = size_of::<(String, Vec<String>)>();
        let nodes = self.extra.len().div_ceil(NODE / 2) * (NODE + 1) * entry;
        let extra = self.extra.iter();
        let extra: usize = extra.map(|(key, values)| of(key) + of_all(values)).sum();
        of(&self.name) + of(&self.uid) + of_all(&self.groups) + nodes + extra
    }

    /// Returns the user of requests without credentials.
    pub(in crate::identity) fn anonymous() -> Self {
        Self {
            name: Self::ANONYMOUS.to_owned(),
            groups: vec![Self::UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Returns true if the API server treats the user as not authenticated.
    pub fn is_anonymous(&self) -> bool {
        let is_unauthenticated = |group: &String| group == Self::UNAUTHENTICATED;
        self.name == Self::ANONYMOUS || self.groups.iter().any(is_unauthenticated)
    }

    /// Returns true if the user is in the group of node agents. The node authorizer lets them read
    /// some objects by their names only, and its decisions change with every pod that is bound to a
    /// node.
    pub(in crate::identity) fn is_node(&self) -> bool {
        self.groups.iter().any(|group| group == Self::NODES)
    }

    /// Returns the namespace of the service account; `None` if the user is no service account.
    pub(in crate::identity) fn service_account_namespace(&self) -> Option<&str> {
        let account = self.name.strip_prefix(Self::SERVICE_ACCOUNT)?;
        account.split_once(':').map(|(namespace, _)| namespace)
    }

    /// Adds the group of authenticated users, as the API server does, unless the user is anonymous
    /// or a group already shows whether the user is authenticated.
    pub(in crate::identity) fn add_authenticated_group(&mut self) {
        let is_known =
            |group: &String| group == Self::AUTHENTICATED || group == Self::UNAUTHENTICATED;
        if self.name != Self::ANONYMOUS && !self.groups.iter().any(is_known) {
            self.groups.push(Self::AUTHENTICATED.to_owned());
        }
    }
}
