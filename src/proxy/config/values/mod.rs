//! The values of settings as text: durations, sizes, networks, resources and rules.

pub(super) mod cached_resource;
pub(super) mod freshness_rule;
pub(super) mod network;
pub(super) mod range;
mod text;
pub(super) mod units;
