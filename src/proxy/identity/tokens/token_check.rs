//! What the API server says about a token that is checked again.

use std::sync::Arc;

use crate::identity::callers::caller::KnownUser;

/// What the API server says about a token that is used by open watches.
#[derive(Clone, Debug)]
pub(in crate::identity) enum TokenCheck {
    /// It belongs to this user.
    User(Arc<KnownUser>),
    /// It is accepted, but its owner may not ask for its own name.
    Accepted,
    /// It is not accepted.
    Refused,
    /// There is no clear answer.
    Unclear,
}
