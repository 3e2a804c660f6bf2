//! Reads a certificate and its key from files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use crate::net::Error;

/// A certificate chain (the server's own certificate first) and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// File with the certificate chain.
    pub certificate: PathBuf,
    /// File with the private key, as PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// Returns the provider of the cryptography of all TLS in this crate.
pub(in crate::net) fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

pub(super) fn read_server_certificate(
    files: &TlsFiles,
) -> Result<Arc<dyn ResolvesServerCert>, Error> {
    let chain = read_certificates(&files.certificate)?;
    let key = read_private_key(&files.key)?;
    let pair =
        CertifiedKey::from_der(chain, key, &crypto_provider()).map_err(|source| Error::Pair {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            source,
        })?;
    Ok(Arc::new(SingleCertAndKey::from(pair)))
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
