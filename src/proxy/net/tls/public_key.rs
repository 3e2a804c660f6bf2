//! PublicKey: the key of a certificate of any X.509 version. webpki reads version 3 only.

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer};
use x509_parser::asn1_rs::Any;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey as Parsed;

/// The sizes, in bits, of the RSA keys that signatures can be checked with.
const RSA_SIZES: std::ops::RangeInclusive<usize> = 2048..=8192;

/// A public key that signatures can be checked with.
#[derive(Clone, Copy, Debug)]
pub struct PublicKey<'a> {
    /// The complete SubjectPublicKeyInfo.
    info: &'a [u8],
    /// The contents of the AlgorithmIdentifier in `info`.
    algorithm: &'a [u8],
    key: &'a [u8],
}

impl<'a> PublicKey<'a> {
    /// Returns the key of the certificate `der`. Returns `None` if the certificate can't be parsed,
    /// or if signatures can't be checked with its key, because the key's algorithm or size is not
    /// supported.
    pub fn of(der: &'a [u8]) -> Option<PublicKey<'a>> {
        let (rest, certificate) = X509Certificate::from_der(der).ok()?;
        if !rest.is_empty() {
            return None;
        }
        let info = &certificate.tbs_certificate.subject_pki;
        if let Ok(Parsed::RSA(key)) = info.parsed()
            && !RSA_SIZES.contains(&key.key_size())
        {
            return None;
        }
        let (_, sequence) = Any::from_der(info.raw).ok()?;
        let (key, algorithm) = Any::from_der(sequence.data).ok()?;
        let (_, key) = Any::from_der(key).ok()?;
        let key = PublicKey {
            info: info.raw,
            algorithm: algorithm.data,
            // The first byte of a bit string counts its unused bits.
            key: key.data.strip_prefix(&[0])?,
        };
        let mut all = default_provider()
            .signature_verification_algorithms
            .all
            .iter();
        all.any(|algorithm| key.fits(*algorithm)).then_some(key)
    }

    /// Returns the SubjectPublicKeyInfo.
    pub(super) fn info(&self) -> SubjectPublicKeyInfoDer<'a> {
        SubjectPublicKeyInfoDer::from(self.info)
    }

    /// Returns true if the owner of the key has signed `message` with one of `algorithms`.
    pub fn has_signed(
        &self,
        message: &[u8],
        signature: &[u8],
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> bool {
        let mut fitting = algorithms.iter().filter(|algorithm| self.fits(**algorithm));
        fitting.any(|algorithm| {
            let verified = algorithm.verify_signature(self.key, message, signature);
            verified.is_ok()
        })
    }

    fn fits(&self, algorithm: &dyn SignatureVerificationAlgorithm) -> bool {
        *algorithm.public_key_alg_id() == *self.algorithm
    }
}
