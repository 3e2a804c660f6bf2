//! What a connection sends, and how an answer ends whose client does not take it.

pub(super) mod abort;
pub(super) mod answer_body;
pub(super) mod coalesce;
pub(super) mod write_timeout;
