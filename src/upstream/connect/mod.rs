//! The ways to the API server: what a kubeconfig says, connectors, and the connections of an identity.

mod config;
pub(super) mod connector;
mod error;
mod http2_pool;
pub(super) mod kubeconfig;
pub(super) mod route;
mod runtime_executor;
mod token_file;
pub(super) mod transport;

pub use config::ClientConfig;
pub use error::ConnectError;
