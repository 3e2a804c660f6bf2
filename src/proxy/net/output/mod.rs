//! The output of a connection, and the end of answers that a client does not take.

pub(super) mod abort;
pub(super) mod answer_body;
pub(super) mod answer_slot;
pub(super) mod coalesce;
pub(super) mod http1;
