//! A certificate authority for the tests' API servers, and the certificates that it issues.

use std::time::SystemTime;

use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, SigningKey,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----\n";
const END: &str = "\n-----END CERTIFICATE-----\n";

/// A certificate and its private key, both in PEM.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// A certificate authority that issues serving and client certificates.
#[derive(Debug)]
pub(crate) struct Authority {
    pub(crate) certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name = name("test authority", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    /// Issues a serving certificate for 127.0.0.1 and localhost.
    pub(crate) fn server(&self) -> Identity {
        let hosts = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut params = CertificateParams::new(hosts).expect("valid host names");
        params.distinguished_name = name("kube-apiserver", None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(&params)
    }

    /// Issues a client certificate; the API server reads the user from CN and the group from O.
    pub(crate) fn client(&self, user: &str, group: &str) -> Identity {
        self.issue(&client_params(user, group))
    }

    /// Issues a certificate like [`Authority::client`] that is valid until `end`.
    pub(crate) fn client_until(&self, user: &str, group: &str, end: SystemTime) -> Identity {
        let mut params = client_params(user, group);
        params.not_after = end.into();
        self.issue(&params)
    }

    /// Issues a client certificate of X.509 version 1, as `openssl x509 -req` makes it.
    pub(crate) fn client_of_version_1(&self, user: &str, group: &str) -> Identity {
        let identity = self.client(user, group);
        let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes());
        let der = without_extensions(&certificate.expect("PEM"), |message| {
            self.issuer.key().sign(message).expect("a signature")
        });
        let lines = STANDARD.encode(der);
        Identity {
            certificate: format!("{BEGIN}{lines}{END}"),
            key: identity.key,
        }
    }

    fn issue(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

/// Returns the certificate `der` without its version and its extensions.
fn without_extensions(der: &[u8], sign: impl FnOnce(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let (whole, _) = value(der);
    let (body, after_body) = value(whole);
    let (_, after_algorithm) = value(after_body);
    let algorithm = &after_body[..after_body.len() - after_algorithm.len()];
    let (_, fields) = value(body);
    let extensions = (0..6).fold(fields, |fields, _| value(fields).1);
    let body = encoded(0x30, &[&fields[..fields.len() - extensions.len()]]);
    let signature = encoded(0x03, &[&[0], &sign(&body)]);
    encoded(0x30, &[&body, algorithm, &signature])
}

/// Splits `der` after its first value. Returns the contents of that value, and the rest.
fn value(der: &[u8]) -> (&[u8], &[u8]) {
    let (start, length) = match usize::from(der[1]) {
        short @ ..=0x7f => (2, short),
        0x81 => (3, usize::from(der[2])),
        _ => (4, usize::from(der[2]) << 8 | usize::from(der[3])),
    };
    der[start..].split_at(length)
}

/// Returns the DER of a value with this tag.
fn encoded(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u16::try_from(content.len()).expect("a short certificate");
    // Go accepts the shortest form only.
    let length = match length.to_be_bytes() {
        [0, short @ ..=0x7f] => vec![short],
        [0, long] => vec![0x81, long],
        [high, low] => vec![0x82, high, low],
    };
    [&[tag], &length[..], &content].concat()
}

fn client_params(user: &str, group: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = name(user, Some(group));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn name(common: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}
