//! The server's side of TLS.

use std::sync::Arc;
use std::{fmt, io};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::server::NoServerSessionStorage;
use rustls::{DistinguishedName, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::net::tls::any_certificate::{AnyCertificate, proven};
use crate::net::tls::files::{ServedCertificate, crypto_provider, read_server_certificate};
use crate::net::tls::throwaway::throwaway_server_certificate;
use crate::net::tls::tls_socket::TlsSocket;
use crate::net::tls::tls_stream::TlsStream;
use crate::net::transport::MAX_BUFFERED;
use crate::net::{CertificateChain, Protocol, TlsFiles};

/// The names of the protocols in handshakes (ALPN).
const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// Does the server's side of TLS handshakes. Offers HTTP/2 and HTTP/1.1. Clones are cheap. A reload
/// of one clone applies to all of them: connections that are accepted later use the new files.
#[derive(Clone)]
pub struct Acceptor {
    shared: Arc<Shared>,
    /// False to offer only HTTP/1.1.
    http2: bool,
}

struct Shared {
    config: ArcSwap<ServerConfig>,
    /// The parts that `config` was made from. They are locked while `config` is replaced.
    parts: Mutex<Parts>,
}

struct Parts {
    server: ServedCertificate,
    /// The names of these authorities are sent to clients; `None` to request no certificates.
    client_authorities: Option<Vec<DistinguishedName>>,
}

/// A connection after its handshake.
pub(in crate::net) struct Accepted<I> {
    pub(in crate::net) stream: I,
    /// The protocol that the handshake has chosen; `None` without TLS.
    pub(in crate::net) protocol: Option<Protocol>,
    pub(in crate::net) certificates: Option<CertificateChain>,
}

// === impl Acceptor ===

impl Acceptor {
    /// Reads the files. Asks no client for a certificate.
    ///
    /// # Errors
    /// If a file can't be read or has no certificate or key, or they don't belong together.
    pub fn from_files(files: &TlsFiles) -> anyhow::Result<Acceptor> {
        Ok(Self::with_certificate(read_server_certificate(files)?))
    }

    /// Uses a new self-signed certificate for `names`, DNS names or IP addresses. The certificate
    /// is in no file, so clients cannot verify it. Asks no client for a certificate.
    ///
    /// # Errors
    /// If a name is invalid, or no random key can be generated.
    pub fn with_throwaway_certificate(names: &[String]) -> anyhow::Result<Acceptor> {
        let server = throwaway_server_certificate(names)?;
        Ok(Self::with_certificate(server.into()))
    }

    fn with_certificate(server: ServedCertificate) -> Acceptor {
        let parts = Parts {
            server,
            client_authorities: None,
        };
        let shared = Shared {
            config: ArcSwap::from_pointee(parts.config()),
            parts: Mutex::new(parts),
        };
        Acceptor {
            shared: Arc::new(shared),
            http2: true,
        }
    }

    /// Creates a clone that offers only HTTP/1.1.
    pub(in crate::net) fn without_http2(&self) -> Acceptor {
        Acceptor {
            shared: Arc::clone(&self.shared),
            http2: false,
        }
    }

    /// Reads the server's certificate and key again, for connections that are accepted later.
    ///
    /// # Errors
    /// As [`Acceptor::from_files`]. The old certificate then remains in use.
    pub fn reload(&self, files: &TlsFiles) -> anyhow::Result<()> {
        let server = read_server_certificate(files)?;
        self.shared.update(|parts| parts.server = server);
        Ok(())
    }

    /// Returns the last second, since 1970, in which the server's certificate and all others of its
    /// chain are valid. Returns `None` if none of them can be parsed.
    pub fn valid_until(&self) -> Option<i64> {
        self.shared.parts.lock().server.valid_until
    }

    /// Asks clients for a certificate from now on, and sends the names of the accepted authorities;
    /// without names, any authority is accepted. Clients such as browsers choose their certificate
    /// by these names.
    ///
    /// A client without a certificate is served too. The handshake checks that the client has the
    /// key of its certificate, and nothing else: anyone may have issued the certificates in
    /// [`Peer::certificates`](crate::net::Peer). If the handshake can't check this, the chain is
    /// empty. From now on, no TLS session can be resumed.
    pub fn request_client_certificates(&self, authorities: Vec<DistinguishedName>) {
        self.shared
            .update(|parts| parts.client_authorities = Some(authorities));
    }

    /// Asks clients for no certificate from now on.
    pub fn request_no_client_certificates(&self) {
        self.shared.update(|parts| parts.client_authorities = None);
    }

    /// Does the handshake, without a time limit.
    pub(in crate::net) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<Accepted<TlsStream>> {
        let mut config = self.shared.config.load_full();
        if !self.http2 {
            Arc::make_mut(&mut config).alpn_protocols = vec![HTTP1.to_vec()];
        }
        let acceptor = TlsAcceptor::from(config);
        let mut stream = acceptor.accept(TlsSocket::new(stream)).await?;
        let connection = stream.get_mut().1;
        let protocol = match connection.alpn_protocol() {
            Some(HTTP2) => Protocol::Http2,
            _ => Protocol::Http1,
        };
        if protocol == Protocol::Http2 {
            // rustls may buffer as many records as may wait for one write.
            connection.set_buffer_limit(Some(MAX_BUFFERED));
        }
        let certificates = connection.peer_certificates().map(proven);
        Ok(Accepted {
            stream: TlsStream::new(stream),
            protocol: Some(protocol),
            certificates,
        })
    }
}

impl Shared {
    fn update(&self, change: impl FnOnce(&mut Parts)) {
        let mut parts = self.parts.lock();
        change(&mut parts);
        self.config.store(Arc::new(parts.config()));
    }
}

impl Parts {
    fn config(&self) -> ServerConfig {
        let builder = ServerConfig::builder_with_provider(crypto_provider())
            .with_safe_default_protocol_versions()
            .expect("aws-lc-rs supports the default versions of TLS");
        let mut config = match &self.client_authorities {
            None => builder
                .with_no_client_auth()
                .with_cert_resolver(Arc::clone(&self.server.resolver)),
            Some(authorities) => {
                let mut config = builder
                    .with_client_cert_verifier(Arc::new(AnyCertificate::new(authorities.clone())))
                    .with_cert_resolver(Arc::clone(&self.server.resolver));
                // A resumed session would restore a chain from before a reload.
                config.session_storage = Arc::new(NoServerSessionStorage {});
                config.send_tls13_tickets = 0;
                config
            }
        };
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        config
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acceptor")
    }
}
