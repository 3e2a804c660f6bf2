//! The connector of the test clients, for plain TCP and for TLS.

use std::future::Future;
use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tower::Service;

use crate::support::programs::certificates::Identity;

/// Any connection.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection over plain TCP or over TLS.
pub(crate) struct Stream {
    io: TokioIo<Box<dyn Io>>,
    h2: bool,
}

/// Connects to the host and port of a URI; with TLS if it has a TLS configuration.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: Option<Arc<ClientConfig>>,
}

impl Connector {
    pub(crate) fn plain() -> Self {
        Self { tls: None }
    }

    /// Creates a connector for TLS that trusts only `authority` (PEM), presents the client
    /// certificate `identity` if there is one, and offers `protocols` in this order by ALPN.
    pub(crate) fn tls(authority: &str, identity: Option<&Identity>, protocols: &[&str]) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots
                .add(certificate.expect("PEM"))
                .expect("a CA certificate");
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions of the provider")
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes())
                    .collect::<Result<Vec<_>, _>>()
                    .expect("PEM");
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("PEM");
                // The builder for one certificate refuses those of X.509 version 1.
                let provider = default_provider().key_provider;
                let key = provider.load_private_key(key).expect("a private key");
                let identity = SingleCertAndKey::from(CertifiedKey::new(chain, key));
                builder.with_client_cert_resolver(Arc::new(identity))
            }
        };
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        Self {
            tls: Some(Arc::new(config)),
        }
    }

    /// Creates a connector for TLS that does not verify the server's certificate, like a kubelet's
    /// probes, and offers HTTP/2 and HTTP/1.1.
    pub(crate) fn unverified() -> Self {
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions of the provider")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self {
            tls: Some(Arc::new(config)),
        }
    }

    /// Opens a connection to `server`, a URL with an IPv4 address and a
    /// port, from the address `from`.
    pub(crate) async fn dial(&self, server: &str, from: Ipv4Addr) -> io::Result<Box<dyn Io>> {
        let uri: Uri = server.parse().map_err(io::Error::other)?;
        let host = uri.host().unwrap_or_default().to_owned();
        let address: Ipv4Addr = host.parse().map_err(io::Error::other)?;
        let port = uri.port_u16().unwrap_or(443);
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let tcp = socket.connect((address, port).into()).await?;
        tcp.set_nodelay(true)?;
        let Some(tls) = &self.tls else {
            return Ok(Box::new(tcp));
        };
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(tls))
            .connect(name, tcp)
            .await?;
        Ok(Box::new(stream))
    }

    async fn connect(self, uri: Uri) -> io::Result<Stream> {
        let host = uri.host().unwrap_or("127.0.0.1").to_owned();
        let tcp = TcpStream::connect((host.as_str(), uri.port_u16().unwrap_or(443))).await?;
        tcp.set_nodelay(true)?;
        let Some(tls) = self.tls else {
            return Ok(Stream {
                io: TokioIo::new(Box::new(tcp)),
                h2: false,
            });
        };
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let stream = TlsConnector::from(tls).connect(name, tcp).await?;
        let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Stream {
            io: TokioIo::new(Box::new(stream)),
            h2,
        })
    }
}

/// Accepts the certificate of any server.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        if self.h2 {
            Connected::new().negotiated_h2()
        } else {
            Connected::new()
        }
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
