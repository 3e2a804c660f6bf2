//! Sockets: accept, TLS, HTTP/1.1 and HTTP/2 framing. Nothing here is specific to Kubernetes.
//!
//! A [`Listener`] accepts the connections of a bound socket. Each connection has a separate task,
//! which ends with the connection. The task runs on one of the [`ServingThreads`], if there are
//! any. Each request reaches the service with its [`ClientHandle`] as an extension.

mod accept;
mod client_connection;
mod client_handle;
mod config;
mod connection;
mod input;
mod loopback;
mod metrics;
mod output;
mod peer;
pub(crate) mod pieces;
mod served_socket;
mod tls;
mod transport;

pub use accept::file_slots::{FileSlot, FileSlots, NoFileSlot};
pub use accept::listener::Listener;
pub use accept::open_files::open_files_limit;
pub use accept::proxy_protocol::ProxyNetworks;
pub use accept::serving::ServingThreads;
pub use client_connection::ClientConnection;
pub use client_handle::ClientHandle;
pub use config::{Config, Lifetime};
pub use connection::{BoxError, ConnectionFuture, HttpService, ResponseBody, serve_connection};
pub use input::received::RequestBody;
pub(crate) use loopback::is_loopback;
pub use metrics::Metrics;
pub use output::abort::Abort;
/// For the fuzz targets.
#[doc(hidden)]
pub use output::flow_control::{FlowControl, StreamReset};
pub use peer::{CertificateChain, Peer, Protocol};
pub use served_socket::ServedSocket;
#[cfg(test)]
pub(crate) use tls::tests::without_extensions;
pub use tls::{
    Acceptor, PublicKey, SelfSigned, SelfSignedFiles, TlsFiles, throwaway_client_certificate,
};
pub use transport::Transport;

#[cfg(test)]
mod tests;
