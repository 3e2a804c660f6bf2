//! The writes of a load test: the objects, their markers, and the schedule of their changes.

pub(super) mod marker;
pub(super) mod objects;
pub(super) mod schedule;
pub(super) mod writer;
