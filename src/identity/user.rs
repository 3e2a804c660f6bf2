//! A user, as the API server's authorizers see it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;

/// A user, as the API server's authorizers see it: `UserInfo` of `authentication.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    /// The name, such as `jane` or `system:serviceaccount:default:builder`.
    #[serde(rename = "username")]
    pub name: String,
    /// The unique identifier over time; empty if the user has none.
    pub uid: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// Further attributes, such as the ID of the credential.
    pub extra: BTreeMap<String, Vec<String>>,
}
