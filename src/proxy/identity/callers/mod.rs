//! The callers of requests: what they claim, and what kubefan has found out about them.

pub(super) mod caller;
pub(super) mod claims;
pub(super) mod impersonated;
pub(super) mod unaccepted;
pub(super) mod user;
