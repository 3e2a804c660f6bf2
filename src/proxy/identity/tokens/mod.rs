//! Bearer tokens: their owners, and which tokens are not good any more.

pub(super) mod authenticator;
pub(super) mod deleted_objects;
pub(super) mod deletions;
pub(super) mod token;
