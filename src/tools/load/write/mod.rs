//! The writing side: the objects, the markers in them, and the schedule by which they change.

pub(super) mod marker;
pub(super) mod objects;
pub(super) mod schedule;
pub(super) mod writer;
