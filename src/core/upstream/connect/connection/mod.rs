//! Opens individual connections to the API server, and records when they receive bytes.

pub(in crate::upstream) mod connector;
mod distinguished_name;
pub(in crate::upstream) mod last_read;
pub(in crate::upstream) mod route;
pub(super) mod runtime_executor;
pub(super) mod server_certificate;
