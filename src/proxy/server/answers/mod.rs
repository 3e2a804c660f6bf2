//! What every answer gets: the response of an error, what it holds until it was sent, its outcome,
//! and its audit event.

pub(super) mod answer;
pub(super) mod audit;
pub(super) mod held;
pub(super) mod outcome;
pub(super) mod rescue;
