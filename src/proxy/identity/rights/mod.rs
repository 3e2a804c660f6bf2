//! What a user may read, by the API server's authorizers.

pub(super) mod attributes;
pub(super) mod authorizer;
pub(super) mod covered_names;
pub(super) mod question;
