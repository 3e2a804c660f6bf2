//! Reads a certificate and its key from files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate chain (the server's own certificate first) and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// File with the certificate chain.
    pub certificate: PathBuf,
    /// File with the private key, as PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// A certificate chain that a listener serves, with its key.
pub(super) struct ServedCertificate {
    pub(super) resolver: Arc<dyn ResolvesServerCert>,
    /// The last second, since 1970, in which all of the chain is valid. `None` if no certificate of
    /// it can be parsed.
    pub(super) valid_until: Option<i64>,
}

/// Returns the provider of the cryptography of all TLS in this crate.
pub(in crate::net) fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

pub(super) fn read_server_certificate(files: &TlsFiles) -> anyhow::Result<ServedCertificate> {
    let (certificate, key) = (files.certificate.display(), files.key.display());
    let chain = read_certificates(&files.certificate)?;
    let der = PrivateKeyDer::from_pem_slice(&read_file(&files.key)?)
        .with_context(|| format!("no PEM private key in {key}"))?;
    let pair = CertifiedKey::from_der(chain, der, &crypto_provider())
        .with_context(|| format!("{key} can't be used with {certificate}"))?;
    Ok(pair.into())
}

impl From<CertifiedKey> for ServedCertificate {
    fn from(pair: CertifiedKey) -> Self {
        let parsed = pair.cert.iter().filter_map(|der| {
            let (_, certificate) = X509Certificate::from_der(der).ok()?;
            Some(certificate.validity().not_after.timestamp())
        });
        Self {
            valid_until: parsed.min(),
            resolver: Arc::new(SingleCertAndKey::from(pair)),
        }
    }
}

pub(in crate::net) fn read_certificates(
    path: &Path,
) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let bytes = read_file(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let chain = match chain {
        Ok(chain) if chain.is_empty() => Err(pem::Error::NoItemsFound),
        chain => chain,
    };
    chain.with_context(|| format!("no PEM certificate in {}", path.display()))
}

fn read_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
