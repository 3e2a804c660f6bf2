//! kubefan's own certificate authority (CA), and a server certificate that it signs.
//!
//! Clients trust `ca.crt`, which is valid for ten years. The server's certificate is replaced when
//! it expires soon or lacks a name. Files that kubefan did not create are never replaced.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use anyhow::{Context, anyhow};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::{CertificateError, RootCertStore};
use tracing::info;

use crate::net::tls::files::{crypto_provider, read_certificates};
use crate::net::tls::made::{DAY, FAILED, params};
use crate::net::{Acceptor, TlsFiles};

const CA_NAME: &str = "kubefan self-signed CA";
const CA_LIFETIME: Duration = DAY.saturating_mul(3650);
/// Some clients refuse server certificates that are valid for more than 398 days.
const SERVER_LIFETIME: Duration = DAY.saturating_mul(365);
/// A certificate that expires within this time is replaced at start.
const RENEW_BEFORE: Duration = DAY.saturating_mul(30);
const PUBLIC_MODE: u32 = 0o644;
const SECRET_MODE: u32 = 0o600;

/// The directory of the files, and the names that the server's certificate is valid for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfSigned {
    /// Directory of `ca.crt`, `ca.key`, `tls.crt` and `tls.key`; created with mode 0700 if missing.
    pub directory: PathBuf,
    /// DNS names and IP addresses that clients may use for the server.
    pub names: Vec<String>,
}

/// The files that [`SelfSigned::ensure`] has created, or has found and can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfSignedFiles {
    /// The CA's certificate. Clients have to trust it.
    pub ca_certificate: PathBuf,
    /// The server's certificate and key.
    pub server: TlsFiles,
}

/// A certificate authority with its key, which can sign.
struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl SelfSigned {
    /// Reuses the files on disk that are valid for another 30 days, and creates the others.
    ///
    /// # Errors
    /// If a name is invalid, a file can't be read or written, or a file that kubefan did not create
    /// would have to be replaced.
    pub fn ensure(&self) -> anyhow::Result<SelfSignedFiles> {
        self.ensure_at(SystemTime::now())
    }

    pub(super) fn ensure_at(&self, now: SystemTime) -> anyhow::Result<SelfSignedFiles> {
        let names = self.server_names()?;
        let files = SelfSignedFiles {
            ca_certificate: self.directory.join("ca.crt"),
            server: TlsFiles {
                certificate: self.directory.join("tls.crt"),
                key: self.directory.join("tls.key"),
            },
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)
            .with_context(|| cannot_write(&self.directory))?;
        let authority = self.load_or_issue_authority(&files, now)?;
        if !is_usable(&files.server, &authority.certificate, &names, now) {
            self.issue_server(&files.server, &authority.issuer, now)?;
        }
        Ok(files)
    }

    fn server_names(&self) -> anyhow::Result<Vec<ServerName<'static>>> {
        let parse = |name: &String| {
            let parsed = ServerName::try_from(name.clone());
            parsed.map_err(|_| anyhow!("{name:?} is neither a DNS name nor an IP address"))
        };
        self.names.iter().map(parse).collect()
    }

    fn load_or_issue_authority(
        &self,
        files: &SelfSignedFiles,
        now: SystemTime,
    ) -> anyhow::Result<Authority> {
        let key_path = self.directory.join("ca.key");
        let certificate_path = &files.ca_certificate;
        let key = read_key(&key_path)?;
        if certificate_path.exists() {
            let certificate = read_certificates(certificate_path)?.swap_remove(0);
            let Some(anchor) = kubefan_anchor(&certificate) else {
                return Err(foreign(certificate_path));
            };
            // The anchor has the key's info without the head of its ASN.1 sequence.
            let own_info = &anchor.subject_public_key_info;
            if let Some(key) = key.filter(|key| key.subject_public_key_info().ends_with(own_info))
                && remains_valid(&certificate, now)
            {
                let issuer = Issuer::new(ca_params(now)?, key);
                return Ok(Authority {
                    certificate,
                    issuer,
                });
            }
            return issue_authority(None, &key_path, certificate_path, now);
        }
        // kubefan writes the CA's key first. So if a server's file exists without this key, another
        // program made it.
        if let Some(path) = [&files.server.certificate, &files.server.key]
            .into_iter()
            .find(|path| key.is_none() && path.exists())
        {
            return Err(foreign(path));
        }
        issue_authority(key, &key_path, certificate_path, now)
    }

    fn issue_server(
        &self,
        files: &TlsFiles,
        issuer: &Issuer<'_, KeyPair>,
        now: SystemTime,
    ) -> anyhow::Result<()> {
        let mut params = params("kubefan", &self.names, now, SERVER_LIFETIME)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().context(FAILED)?;
        let certificate = params.signed_by(&key, issuer).context(FAILED)?;
        replace_file(&files.key, &key.serialize_pem(), SECRET_MODE)?;
        replace_file(&files.certificate, &certificate.pem(), PUBLIC_MODE)?;
        info!(file = %files.certificate.display(), names = ?self.names, "server certificate created");
        Ok(())
    }
}

fn issue_authority(
    key: Option<KeyPair>,
    key_path: &Path,
    certificate_path: &Path,
    now: SystemTime,
) -> anyhow::Result<Authority> {
    let params = ca_params(now)?;
    let key = match key {
        Some(key) => key,
        None => {
            let key = KeyPair::generate().context(FAILED)?;
            replace_file(key_path, &key.serialize_pem(), SECRET_MODE)?;
            key
        }
    };
    let certificate = params.self_signed(&key).context(FAILED)?;
    replace_file(certificate_path, &certificate.pem(), PUBLIC_MODE)?;
    info!(file = %certificate_path.display(), "certificate authority created: clients must trust it");
    Ok(Authority {
        certificate: certificate.der().clone(),
        issuer: Issuer::new(params, key),
    })
}

/// Returns the parameters of the CA's certificate. They differ between calls only in the dates, and
/// signing does not use the dates. So the key alone is enough to go on signing for an authority.
fn ca_params(now: SystemTime) -> anyhow::Result<CertificateParams> {
    let mut params = params(CA_NAME, &[], now, CA_LIFETIME)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

// === Checks ===

/// Returns true if a client that trusts `ca` accepts the server with `files` under each of `names`.
fn is_usable(
    files: &TlsFiles,
    ca: &CertificateDer<'static>,
    names: &[ServerName<'_>],
    now: SystemTime,
) -> bool {
    let Ok(chain) = read_certificates(&files.certificate) else {
        return false;
    };
    let verified = |name| verify(&chain[0], ca, name, now).is_ok();
    names.iter().all(verified) && Acceptor::from_files(files).is_ok()
}

/// Returns true if the CA's certificate is valid and does not expire soon.
fn remains_valid(ca: &CertificateDer<'static>, now: SystemTime) -> bool {
    // The verifier checks the dates first. It then always rejects a CA certificate that is used for
    // a server.
    let dummy_name = ServerName::try_from("localhost").expect("localhost is a DNS name");
    !matches!(
        verify(ca, ca, &dummy_name, now),
        Err(rustls::Error::InvalidCertificate(
            CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. }
        ))
    )
}

fn verify(
    certificate: &CertificateDer<'_>,
    ca: &CertificateDer<'static>,
    name: &ServerName<'_>,
    now: SystemTime,
) -> Result<(), rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone())?;
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), crypto_provider())
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let since_epoch = (now + RENEW_BEFORE)
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let then = UnixTime::since_unix_epoch(since_epoch);
    verifier
        .verify_server_cert(certificate, &[], name, &[], then)
        .map(drop)
}

/// Returns the subject and the key of `ca`; `None` if `ca` can't be parsed, or has another subject
/// than [`ca_params`] sets.
fn kubefan_anchor(ca: &CertificateDer<'static>) -> Option<TrustAnchor<'static>> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone()).ok()?;
    let anchor = roots.roots.pop()?;
    let is_ours = anchor.subject.ends_with(CA_NAME.as_bytes());
    is_ours.then_some(anchor)
}

// === Files ===

/// Returns the error for a file that kubefan did not create, at a path that it would replace.
fn foreign(path: &Path) -> anyhow::Error {
    let path = path.display();
    anyhow!("{path} was not made by kubefan: choose another directory")
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

fn read_key(path: &Path) -> anyhow::Result<Option<KeyPair>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let key = KeyPair::from_pem(&text);
    let key = key.with_context(|| format!("no usable private key in {}", path.display()))?;
    Ok(Some(key))
}

/// Replaces the file atomically: a reader sees either the old or the new text.
fn replace_file(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let unfinished = path.with_extension(format!("unfinished.{:x}", rand::random::<u64>()));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&unfinished)
        .with_context(|| cannot_write(path))?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        // The first error is reported; a temporary file that remains does no harm.
        let _ = fs::remove_file(&unfinished);
    }
    written.with_context(|| cannot_write(path))
}

#[cfg(test)]
mod tests;
