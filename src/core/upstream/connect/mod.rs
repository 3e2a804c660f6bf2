//! Connections to the API server: kubeconfigs, connectors, and the connections of each identity.

pub(super) mod accepted;
mod config;
pub(super) mod connector;
mod distinguished_name;
mod error;
mod exec_plugin;
pub(super) mod health;
pub(super) mod http2_pool;
pub(super) mod kubeconfig;
pub(super) mod last_read;
#[cfg(any(test, feature = "test-support"))]
pub(super) mod memory;
mod plugin_token;
pub(super) mod replay;
pub(super) mod route;
pub(super) mod runtime_executor;
mod server_certificate;
mod token_file;
pub(super) mod transport;

pub use config::ClientConfig;
pub use error::ConnectError;
pub(super) use error::credentials_problem;
pub(super) use exec_plugin::PluginError;
pub(super) use server_certificate::ServerCertificateError;
