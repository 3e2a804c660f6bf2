//! The callers of requests: what they claim, and what is known of them.

pub(super) mod caller;
pub(super) mod claims;
pub(super) mod unaccepted;
pub(super) mod user;
