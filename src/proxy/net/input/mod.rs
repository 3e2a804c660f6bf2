//! What a connection receives: it is measured, and read later if the peer is too fast.

mod header_block;
pub(super) mod incoming;
pub(super) mod paced_reads;
pub(super) mod received;
mod received_bytes;
mod received_frames;
pub(super) mod resets;
