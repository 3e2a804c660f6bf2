//! The ways to the API server: what a kubeconfig says, connectors, and the connections of an identity.

mod config;
pub(super) mod connector;
mod error;
mod home;
pub(super) mod kubeconfig;
mod lanes;
pub(super) mod route;
mod token_file;
pub(super) mod transport;

pub use config::ClientConfig;
pub use error::ConnectError;
