//! The output of a connection: its streams, and the end of answers that a client does not take.

pub(super) mod abort;
pub(super) mod answer_body;
pub(super) mod answer_slot;
mod chunks;
pub(super) mod coalesce;
pub(super) mod data_frames;
mod filtered_reads;
pub(super) mod flow_control;
mod gathered;
pub(super) mod http1;
pub(super) mod http2;
pub(super) mod part_waker;
pub(super) mod streams;
