//! Connections to the API server: kubeconfigs, connectors, and the connections of each identity.

mod config;
pub(super) mod connection;
pub(super) mod credentials;
mod error;
pub(super) mod kubeconfig;
#[cfg(any(test, feature = "test-support"))]
pub(super) mod memory;
pub(super) mod other_server;
pub(super) mod stack;
pub(super) mod transport;

pub use config::{ClientConfig, OtherServer};
pub(super) use connection::server_certificate::ServerCertificateError;
pub(super) use credentials::exec_plugin::PluginError;
pub use error::ConnectError;
pub(super) use error::{causes, credentials_problem};
