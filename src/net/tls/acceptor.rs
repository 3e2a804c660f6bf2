//! TLS from a certificate and a key on disk.

use std::fmt;
use std::fs;
use std::io;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem;
use rustls::pki_types::pem::PemObject;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::net::Error;
use crate::net::Protocol;
use crate::net::Transport;
use crate::net::coalesce;

/// A certificate chain (the server's own certificate first) and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// File with the certificate chain.
    pub certificate: PathBuf,
    /// File with the private key, as PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// Does the server's side of TLS handshakes; offers HTTP/2 and HTTP/1.1. Clones are cheap.
#[derive(Clone)]
pub struct Acceptor {
    inner: TlsAcceptor,
}

impl Acceptor {
    /// Reads the files. Later changes of the files have no effect.
    ///
    /// # Errors
    /// If a file can't be read or has no certificate or key, or they don't belong together.
    pub fn from_files(files: &TlsFiles) -> Result<Acceptor, Error> {
        let chain = read_certificates(&files.certificate)?;
        let key = read_private_key(&files.key)?;
        let pair = |source| Error::Pair {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            source,
        };
        let mut config = ServerConfig::builder_with_provider(crypto_provider())
            .with_safe_default_protocol_versions()
            .map_err(pair)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(pair)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Acceptor {
            inner: TlsAcceptor::from(Arc::new(config)),
        })
    }

    /// Does the handshake, without a time limit.
    pub(in crate::net) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Option<Protocol>)> {
        let mut stream = self.inner.accept(stream).await?;
        let connection = stream.get_mut().1;
        let protocol = match connection.alpn_protocol() {
            Some(b"h2") => Protocol::Http2,
            _ => Protocol::Http1,
        };
        if protocol == Protocol::Http2 {
            // rustls may buffer as many records as may wait for one write.
            connection.set_buffer_limit(Some(coalesce::MAX_BUFFERED));
        }
        Ok((stream, Some(protocol)))
    }
}

impl Transport for TlsStream<TcpStream> {
    /// One TLS record, so that gathered bytes are still in the CPU's cache when they are encrypted.
    const GATHER_SIZE: usize = 16 << 10;

    /// Encrypts the bytes into the buffer of rustls.
    fn buffer(&mut self, data: &[u8]) -> io::Result<usize> {
        self.get_mut().1.writer().write(data)
    }

    fn allow_stalls(&self) -> io::Result<()> {
        self.get_ref().0.allow_stalls()
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acceptor")
    }
}

pub(in crate::net) fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

pub(in crate::net) fn read_certificates(
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, Error> {
    let pem_error = |source| Error::Pem {
        path: path.to_owned(),
        what: "PEM certificate",
        source,
    };
    let chain = CertificateDer::pem_slice_iter(&read_file(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(pem_error)?;
    if chain.is_empty() {
        return Err(pem_error(pem::Error::NoItemsFound));
    }
    Ok(chain)
}

fn read_private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(&read_file(path)?).map_err(|source| Error::Pem {
        path: path.to_owned(),
        what: "PEM private key",
        source,
    })
}

fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}
