//! Certificates that prove nothing: a client's certificate that identifies no user, and a server's
//! certificate that no client trusts.

use std::time::SystemTime;

use anyhow::Context;
use rcgen::{Certificate, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::sign::CertifiedKey;

use crate::net::tls::files::crypto_provider;
use crate::net::tls::made::{DAY, FAILED, params};

/// Creates a client certificate and its key, both PEM. The certificate is self-signed, so every
/// server that verifies client certificates rejects it. The certificate is valid for ten years.
///
/// # Errors
/// If no random key can be generated.
pub fn throwaway_client_certificate() -> anyhow::Result<(String, String)> {
    let purpose = ExtendedKeyUsagePurpose::ClientAuth;
    let (certificate, key) = self_signed("kubefan-kubeconfig", &[], purpose)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Creates a self-signed certificate for a server with `names`, DNS names or IP addresses, and its
/// key. The certificate is valid for ten years, so that a process need not replace it.
///
/// # Errors
/// If a name is invalid, or no random key can be generated.
pub(super) fn throwaway_server_certificate(names: &[String]) -> anyhow::Result<CertifiedKey> {
    let (certificate, key) = self_signed("kubefan", names, ExtendedKeyUsagePurpose::ServerAuth)?;
    let chain = vec![certificate.der().clone()];
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let pair = CertifiedKey::from_der(chain, key.into(), &crypto_provider());
    Ok(pair.expect("the certificate was made for this key"))
}

fn self_signed(
    common_name: &str,
    names: &[String],
    purpose: ExtendedKeyUsagePurpose,
) -> anyhow::Result<(Certificate, KeyPair)> {
    let mut params = params(common_name, names, SystemTime::now(), DAY * 3650)?;
    params.extended_key_usages = vec![purpose];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate().context(FAILED)?;
    Ok((params.self_signed(&key).context(FAILED)?, key))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
    use rustls::server::WebPkiClientVerifier;

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
    fn a_servers_certificate_has_its_names() {
        let names = ["localhost".to_owned(), "10.1.2.3".to_owned()];
        let pair = throwaway_server_certificate(&names).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(pair.cert[0].clone()).unwrap();
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), crypto_provider());
        let verifier = verifier.build().unwrap();
        let is_for = |name: &str| {
            let name = ServerName::try_from(name.to_owned()).unwrap();
            let verified =
                verifier.verify_server_cert(&pair.cert[0], &[], &name, &[], UnixTime::now());
            verified.is_ok()
        };
        assert!(is_for("localhost") && is_for("10.1.2.3"));
        assert!(!is_for("kubefan") && !is_for("10.1.2.4"));
        assert!(throwaway_server_certificate(&["ñ".to_owned()]).is_err());
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
