//! AnyCertificate: asks clients for a certificate, and accepts every certificate that the client
//! has the key of.
//!
//! This is how kube-apiserver works. It answers 401 if a certificate is not good, but it serves a
//! client with a bad certificate and a good token. So `identity` verifies the chain for each
//! request. For this reason, a certificate with an unusable key does not end the handshake:
//! [`proven`] drops the certificate afterwards.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved,
    SignatureScheme,
};

use crate::net::CertificateChain;
use crate::net::tls::public_key::PublicKey;

/// Limit of a chain in bytes. It exists because each connection stores its chain, even if its
/// client is not authenticated. Three certificates with RSA keys of 4,096 bits have about 6 KiB.
pub(super) const MAX_CHAIN: usize = 32 << 10;

/// A verifier that accepts every chain. It checks the signature of the handshake if the chain's
/// first certificate has a [`PublicKey`]. [`proven`] drops all other chains.
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
        if end_entity.len() + intermediates <= MAX_CHAIN {
            Ok(ClientCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(key) = PublicKey::of(certificate) else {
            return Ok(HandshakeSignatureValid::assertion());
        };
        // The scheme does not determine the curve, so several algorithms may be meant.
        let mut schemes = self.algorithms.mapping.iter();
        let (_, algorithms) = schemes
            .find(|(scheme, _)| *scheme == signature.scheme)
            .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        if key.has_signed(message, signature.signature(), algorithms) {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(CertificateError::BadSignature.into())
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(key) = PublicKey::of(certificate) else {
            return Ok(HandshakeSignatureValid::assertion());
        };
        verify_tls13_signature_with_raw_key(message, &key.info(), signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns the chain of a client after a handshake with an [`AnyCertificate`]: the client has
/// proven that it has the key of the first certificate. Returns an empty chain if the signature
/// could not be checked, because nothing is proven then.
pub(super) fn proven(chain: &[CertificateDer<'static>]) -> CertificateChain {
    match chain.first().and_then(|own| PublicKey::of(own)) {
        Some(_) => chain.into(),
        None => Arc::new([]),
    }
}
