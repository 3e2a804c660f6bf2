//! Sockets: accept, TLS, HTTP/1.1 and HTTP/2 framing. Knows nothing about Kubernetes.
//!
//! A [`Listener`] accepts the connections of a bound socket. Each connection has a task of its own,
//! which ends with the connection; it runs on one of the [`ServingThreads`], if there are any. Each
//! request reaches the service with its [`Peer`], its [`ClientConnection`] and its [`Abort`] as
//! extensions.

mod abort;
mod client_connection;
mod client_socket;
mod coalesce;
mod connection;
mod error;
mod header_block;
mod listener;
mod metered;
mod metrics;
mod open_files;
mod paced_reads;
mod pending_openings;
mod proxy_protocol;
mod received;
mod received_bytes;
mod received_frames;
mod resets;
mod serving;
mod tls;
mod transport;
mod write_timeout;

pub use abort::Abort;
pub use client_connection::ClientConnection;
pub use client_socket::{FileSlot, FileSlots, NoFileSlot};
pub use connection::{
    BoxError, CertificateChain, Config, ConnectionFuture, HttpService, Lifetime, Peer, Protocol,
    ResponseBody, serve_connection,
};
pub use error::Error;
pub use listener::Listener;
pub use metrics::Metrics;
pub use open_files::open_files_limit;
pub use proxy_protocol::ProxyNetworks;
pub use received::RequestBody;
pub use serving::ServingThreads;
#[cfg(test)]
pub(crate) use tls::tests::without_extensions;
pub use tls::{
    Acceptor, PublicKey, SelfSigned, SelfSignedFiles, TlsFiles, throwaway_client_certificate,
};
pub use transport::Transport;
pub use write_timeout::limit_stalls;

#[cfg(test)]
mod tests;
