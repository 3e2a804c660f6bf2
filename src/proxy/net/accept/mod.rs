//! Accepts connections: the socket, its first bytes, and how many may be open.

pub(super) mod client_socket;
pub(super) mod file_slots;
mod lifetime;
pub(super) mod listener;
pub(super) mod open_files;
mod pending_openings;
pub(super) mod proxy_protocol;
pub(super) mod serving;
