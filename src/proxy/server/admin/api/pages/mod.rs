//! The pages of the API, a type for each. Names of fields have their unit, such as `Bytes` or
//! `Seconds`. `None` means that there is nothing to say.

pub(super) mod bill;
pub(super) mod cache_id;
pub(super) mod caches;
pub(super) mod clients;
pub(super) mod freshness;
pub(super) mod memory;
pub(super) mod relists;
pub(super) mod settings;
pub(super) mod snapshot;
pub(super) mod users;
