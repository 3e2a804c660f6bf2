//! Questions to the API server: how they are sent, how many are in flight, and which answers are
//! remembered.

pub(super) mod answers;
pub(super) mod failed_attempts;
pub(super) mod queue;
pub(super) mod reviews;
pub(super) mod settling;
