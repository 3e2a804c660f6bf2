//! What every answer gets: the response of an error, what it holds until it was sent, its outcome,
//! and the record of its request, with what consumes it.

mod access_log;
pub(super) mod answer;
mod audit;
mod bill;
pub(super) mod cache_status;
pub(super) mod cached_read;
pub(super) mod consumers;
pub(super) mod ending;
pub(super) mod held;
mod line_text;
pub(super) mod outcome;
pub(super) mod record;
pub(super) mod rescue;
pub(super) mod spans;
