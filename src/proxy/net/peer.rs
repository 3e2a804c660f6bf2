//! The client's end of a connection, and what both ends agreed on before the first request.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;

/// The HTTP version of a connection. It is determined before the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 or HTTP/1.0.
    Http1,
    /// HTTP/2, chosen by ALPN, or used without negotiation (prior knowledge).
    Http2,
}

/// The client's end of a request's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client's address and port. If its connection began with a PROXY header, they are from
    /// this header.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// The certificates that the client presented, its own first. The client has proven that it has
    /// the key of the first certificate; nothing else was verified. Empty if that could not be
    /// verified either, as for a certificate that can't be parsed. `None` if the client presented
    /// no certificate, or was not asked for one.
    pub certificates: Option<CertificateChain>,
}

/// The certificates that a client presented, its own first.
pub type CertificateChain = Arc<[CertificateDer<'static>]>;

impl Protocol {
    /// Returns the value of the metric label `protocol`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Protocol::Http1 => "http1",
            Protocol::Http2 => "http2",
        }
    }
}
