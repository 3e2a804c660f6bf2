//! Requests that the API server answers.

pub(super) mod documents;
pub(super) mod dry_run;
pub(super) mod forbidden;
pub(super) mod forward;
pub(super) mod from_upstream;
pub(super) mod judged_upstream;
mod sharding;
