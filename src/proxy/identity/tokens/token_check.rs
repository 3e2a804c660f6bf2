//! The API server's answer about a token that is checked again.

use std::sync::Arc;

use crate::identity::callers::caller::KnownUser;

/// The API server's answer about a token that open watches use.
#[derive(Clone, Debug)]
pub(in crate::identity) enum TokenCheck {
    /// The token belongs to this user.
    User(Arc<KnownUser>),
    /// The token is accepted, but its owner may not ask for its own name.
    Accepted,
    /// The token is not accepted.
    Refused,
    /// There is no clear answer.
    Unclear,
}
