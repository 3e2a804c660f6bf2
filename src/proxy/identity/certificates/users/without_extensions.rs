//! Certificates of X.509 versions 1 and 2, which have no extensions.
//!
//! `openssl x509 -req` creates such certificates if it is given no extensions, and kube-apiserver
//! accepts them.

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::SignatureVerificationAlgorithm;
use x509_parser::asn1_rs::Any;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::identity::certificates::certificate::parse;
use crate::net::PublicKey;

/// A certificate without extensions, and its issuer.
pub(super) struct IssuedWithoutExtensions<'a> {
    /// The name of the issuer, in DER.
    issuer: &'a [u8],
    /// The bytes that the issuer has signed.
    signed: &'a [u8],
    signature: &'a [u8],
    /// The algorithms that the issuer may have used for the signature.
    algorithms: Vec<&'static dyn SignatureVerificationAlgorithm>,
}

impl<'a> IssuedWithoutExtensions<'a> {
    /// Reads the issuer and the signature of `certificate`, which is `der`, parsed. Returns `None`
    /// if the certificate has extensions, or names two different algorithms.
    pub(super) fn of(
        der: &'a [u8],
        certificate: &'a X509Certificate<'_>,
    ) -> Option<IssuedWithoutExtensions<'a>> {
        let names_one = certificate.signature_algorithm == certificate.tbs_certificate.signature;
        if !names_one || !certificate.extensions().is_empty() {
            return None;
        }
        let (_, sequence) = Any::from_der(der).ok()?;
        let (rest, _) = Any::from_der(sequence.data).ok()?;
        let (_, algorithm) = Any::from_der(rest).ok()?;
        let all = default_provider().signature_verification_algorithms.all;
        let algorithms = all.iter().copied();
        Some(IssuedWithoutExtensions {
            issuer: certificate.issuer().as_raw(),
            signed: certificate.tbs_certificate.as_ref(),
            signature: &certificate.signature_value.data,
            algorithms: algorithms
                .filter(|all| *all.signature_alg_id() == *algorithm.data)
                .collect(),
        })
    }

    /// Returns true if the owner of the certificate `authority` has issued this certificate. An
    /// authority with name constraints must not issue it: without extensions, no name can be
    /// compared with the constraints.
    pub(super) fn is_by(&self, authority: &[u8]) -> bool {
        let Some(parsed) = parse(authority) else {
            return false;
        };
        let has_no_limits = matches!(parsed.name_constraints(), Ok(None));
        has_no_limits
            && parsed.subject().as_raw() == self.issuer
            && PublicKey::of(authority)
                .is_some_and(|key| key.has_signed(self.signed, self.signature, &self.algorithms))
    }
}
