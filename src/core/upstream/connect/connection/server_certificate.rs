//! Verifies the API server's certificate, and says in plain words what is wrong with it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::config::Config;
use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, InvalidMessage, OtherError, RootCertStore,
    SignatureScheme,
};
use tokio::time::Instant;

use super::distinguished_name;
use crate::body::BoxError;
use crate::upstream::connect::error::{ConnectError, one_line};

/// How often the CA of a pod is read again.
const REREAD_INTERVAL: Duration = Duration::from_secs(60);
/// The number of authorities that a message names.
const NAMED: usize = 3;

/// What is wrong with the API server's certificate.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub(in crate::upstream) struct ServerCertificateError {
    text: String,
    /// True if waiting does not help.
    pub(in crate::upstream) is_lasting: bool,
}

/// The certificate authorities that are accepted.
#[derive(Debug)]
struct Authorities {
    /// The file that has them, which is read again from time to time; `None` if they are those of a
    /// kubeconfig or of the system.
    path: Option<PathBuf>,
    last: Mutex<(Arc<Trusted>, Instant)>,
}

#[derive(Debug)]
struct Trusted {
    verifier: Arc<dyn ServerCertVerifier>,
    /// Their names, for messages.
    names: String,
}

/// Verifies certificates as WebPKI says, and explains what is wrong.
#[derive(Debug)]
struct Verifier {
    /// `None` if every certificate is accepted, because the kubeconfig says so.
    authorities: Option<Authorities>,
    provider: Arc<CryptoProvider>,
}

/// Returns the verifier of the server's certificate that `config` asks for.
///
/// # Errors
/// If its certificate authorities can't be used.
pub(in crate::upstream::connect) fn verifier(
    config: &Config,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let authorities = match config.accept_invalid_certs {
        true => None,
        false => Some(Authorities::of(config, &provider)?),
    };
    Ok(Arc::new(Verifier {
        authorities,
        provider,
    }))
}

/// Returns the error of a handshake, in plain words if it is known.
pub(super) fn explain(error: io::Error) -> BoxError {
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(Error::InvalidCertificate(CertificateError::Other(OtherError(cause)))) => {
            match cause.downcast_ref::<ServerCertificateError>() {
                Some(cause) => cause.clone().into(),
                None => error.into(),
            }
        }
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "the server does not answer with TLS; perhaps its URL must begin with http://".into()
        }
        _ => error.into(),
    }
}

fn trusted(certificates: impl Iterator<Item = Vec<u8>>) -> Result<Arc<Trusted>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(CertificateDer::from(certificate))?;
    }
    let subjects = roots.roots.iter().take(NAMED);
    let mut names: Vec<_> = subjects
        .map(|root| distinguished_name::text(&root.subject))
        .collect();
    if roots.len() > NAMED {
        names.push(format!("and {} more", roots.len() - NAMED));
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    Ok(Arc::new(Trusted {
        verifier: verifier.map_err(|error| Error::General(error.to_string()))?,
        names: names.join(", "),
    }))
}

// === impl Authorities ===

impl Authorities {
    fn of(config: &Config, provider: &Arc<CryptoProvider>) -> Result<Self, Error> {
        let (trusted, path) = match &config.root_cert {
            Some(certificates) => {
                let path = config.root_cert_file.clone();
                (trusted(certificates.iter().cloned())?, path)
            }
            None => {
                let verifier = rustls_platform_verifier::Verifier::new(Arc::clone(provider))?;
                let trusted = Trusted {
                    verifier: Arc::new(verifier),
                    names: "those of this system, because no others are named".to_owned(),
                };
                (Arc::new(trusted), None)
            }
        };
        let last = Mutex::new((trusted, Instant::now()));
        Ok(Self { path, last })
    }

    fn current(&self) -> Arc<Trusted> {
        let mut last = self.last.lock();
        if let Some(path) = &self.path
            && last.1.elapsed() >= REREAD_INTERVAL
        {
            last.1 = Instant::now();
            match read(path) {
                Ok(trusted) => last.0 = trusted,
                Err(error) => {
                    let path = path.display();
                    tracing::warn!(%path, %error, "cannot read the CA again, using the last one");
                }
            }
        }
        Arc::clone(&last.0)
    }
}

fn read(path: &Path) -> Result<Arc<Trusted>, BoxError> {
    Ok(trusted(read_certificates(path)?.into_iter())?)
}

/// Makes `config` accept the certificate authorities (PEM) in the file at `path`, and no others.
///
/// # Errors
/// If the file can't be read, or has none.
pub(in crate::upstream::connect) fn trust_file(
    config: &mut Config,
    path: &Path,
) -> Result<(), ConnectError> {
    let certificates = read_certificates(path).map_err(|error| ConnectError::Invalid {
        origin: format!("certificate authorities {}", path.display()),
        problem: one_line(&*error),
    })?;
    config.root_cert = Some(certificates);
    config.root_cert_file = Some(path.to_owned());
    Ok(())
}

/// Returns the certificates (PEM) in a file, in DER.
///
/// # Errors
/// If the file can't be read, or has none.
fn read_certificates(path: &Path) -> Result<Vec<Vec<u8>>, BoxError> {
    let pem = std::fs::read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates?;
    if certificates.is_empty() {
        return Err("there is no certificate in it".into());
    }
    let certificates = certificates.into_iter();
    Ok(certificates
        .map(|certificate| certificate.to_vec())
        .collect())
}

// === impl Verifier ===

impl Verifier {
    /// Returns the error that says what is wrong with `certificate`.
    fn explained(error: Error, certificate: &CertificateDer<'_>, names: &str) -> Error {
        let Error::InvalidCertificate(problem) = &error else {
            return error;
        };
        let (is_lasting, text) = match problem {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                let issuer = issuer(certificate);
                let text = format!(
                    "the server's certificate was issued by {issuer}, which is not among the \
                     certificate authorities in use: {names}"
                );
                (true, text)
            }
            CertificateError::NotValidForNameContext {
                expected,
                presented,
            } => {
                let expected = expected.to_str();
                let presented = match presented.as_slice() {
                    [] => "no name".to_owned(),
                    names => names.join(", "),
                };
                let names = format!("{presented}, and not for {expected:?}");
                (true, format!("the server's certificate is for {names}"))
            }
            // It may be renewed, or this machine's clock be set.
            CertificateError::ExpiredContext { time, not_after } => {
                let times = format!("{}; now it is {}", date(*not_after), date(*time));
                let text = format!("the server's certificate expired at {times}");
                (false, text)
            }
            CertificateError::NotValidYetContext { time, not_before } => {
                let times = format!("{}; now it is {}", date(*not_before), date(*time));
                let text = format!("the server's certificate is not valid before {times}");
                (false, text)
            }
            _ => return error,
        };
        let explained = ServerCertificateError { text, is_lasting };
        CertificateError::Other(OtherError(Arc::new(explained))).into()
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authorities) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        let current = authorities.current();
        let verifier = &current.verifier;
        verifier
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            .map_err(|error| Self::explained(error, end_entity, &current.names))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

fn issuer(certificate: &CertificateDer<'_>) -> String {
    match webpki::EndEntityCert::try_from(certificate) {
        Ok(parsed) => distinguished_name::text(parsed.issuer()),
        Err(_) => "an unknown authority".to_owned(),
    }
}

fn date(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let time = Timestamp::from_second(seconds);
    time.map_or_else(|_| "an unknown time".to_owned(), |time| time.to_string())
}

#[cfg(test)]
mod tests;
