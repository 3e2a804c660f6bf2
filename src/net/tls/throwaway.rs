//! A client certificate that identifies no user.

use std::time::SystemTime;

use rcgen::CertificateParams;
use rcgen::ExtendedKeyUsagePurpose;
use rcgen::KeyPair;
use rcgen::KeyUsagePurpose;

use crate::net::Error;
use crate::net::tls::self_signed::CLOCK_SKEW;
use crate::net::tls::self_signed::DAY;
use crate::net::tls::self_signed::distinguished_name;

/// Creates a client certificate and its key, both PEM. The certificate is self-signed, so every
/// server that verifies client certificates rejects it. It is valid for ten years.
///
/// # Errors
/// If no random key can be generated.
pub fn throwaway_client_certificate() -> Result<(String, String), Error> {
    let now = SystemTime::now();
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name("kubefan-kubeconfig");
    params.not_before = (now - CLOCK_SKEW).into();
    params.not_after = (now + DAY * 3650).into();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::RootCertStore;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::UnixTime;
    use rustls::pki_types::pem::PemObject;
    use rustls::server::WebPkiClientVerifier;

    use crate::net::tls::acceptor::crypto_provider;

    use super::*;

    fn throwaway_pair() -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let (certificate, key) = throwaway_client_certificate().unwrap();
        (
            CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap(),
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
    }

    #[test]
    fn clients_can_load_it() {
        let (certificate, key) = throwaway_pair();
        // rustls refuses a key that does not belong to the certificate.
        rustls::ClientConfig::builder_with_provider(crypto_provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_client_auth_cert(vec![certificate], key)
            .unwrap();
    }

    #[test]
    fn only_a_verifier_that_trusts_this_certificate_accepts_it_for_ten_years() {
        let ((one, _), (other, _)) = (throwaway_pair(), throwaway_pair());
        let accepts = |root: &CertificateDer<'static>, after: Duration| {
            let mut roots = RootCertStore::empty();
            roots.add(root.clone()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots.into(), crypto_provider());
            let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap();
            let then = UnixTime::since_unix_epoch(since_epoch + after);
            let verifier = verifier.build().unwrap();
            verifier.verify_client_cert(&one, &[], then).is_ok()
        };
        assert!(accepts(&one, Duration::ZERO) && accepts(&one, DAY * 3649));
        assert!(!accepts(&one, DAY * 3651));
        assert!(!accepts(&other, Duration::ZERO));
    }
}
