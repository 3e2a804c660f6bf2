//! The client's end of a connection, and what was agreed with it before the first request.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;

/// The HTTP version of a connection, which is known before the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 or HTTP/1.0.
    Http1,
    /// HTTP/2, chosen by ALPN or used by prior knowledge.
    Http2,
}

/// The client's end of a request's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client's address and port. If its connection began with a PROXY header, they are from that.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// The certificates that the client presented, its own first. The client has the key of the
    /// first one; nothing else was verified. Empty if that could not be verified either, as for a
    /// certificate that can't be parsed. `None` if it presented none, or was not asked.
    pub certificates: Option<CertificateChain>,
}

/// The certificates that a client presented, its own first.
pub type CertificateChain = Arc<[CertificateDer<'static>]>;

impl Protocol {
    /// The value of the metric label `protocol`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Protocol::Http1 => "http1",
            Protocol::Http2 => "http2",
        }
    }
}
