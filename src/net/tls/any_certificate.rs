//! AnyCertificate: asks clients for a certificate, and accepts every one that the client has the
//! key of.
//!
//! kube-apiserver does the same. It answers 401 if a certificate is not good, and a client with a
//! bad certificate and a good token is served. So `identity` verifies the chain for each request.

use rustls::CertificateError;
use rustls::DigitallySignedStruct;
use rustls::DistinguishedName;
use rustls::Error;
use rustls::SignatureScheme;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::crypto::aws_lc_rs;
use rustls::crypto::verify_tls12_signature;
use rustls::crypto::verify_tls13_signature;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerified;
use rustls::server::danger::ClientCertVerifier;

/// Limit of a chain in bytes, because each connection keeps its chain, also those of unknown
/// clients. Three certificates with RSA keys of 4,096 bits have about 6 KiB.
pub(super) const MAX_CHAIN: usize = 32 << 10;

/// A verifier that accepts every chain, and checks the signature of the handshake.
#[derive(Debug)]
pub(super) struct AnyCertificate {
    authorities: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyCertificate {
    pub(super) fn new(authorities: Vec<DistinguishedName>) -> AnyCertificate {
        AnyCertificate {
            authorities,
            algorithms: aws_lc_rs::default_provider().signature_verification_algorithms,
        }
    }
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.authorities
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let intermediates: usize = intermediates.iter().map(|der| der.len()).sum();
        match end_entity.len() + intermediates <= MAX_CHAIN {
            true => Ok(ClientCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
