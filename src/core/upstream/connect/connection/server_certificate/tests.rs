//! Certificates with each fault, and what is said about them.

use kube::config::Config;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

use super::*;

/// A time at which the certificates of the tests are valid.
const NOW: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));

struct Ca {
    der: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

impl Ca {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = key();
        let certificate = params.self_signed(&key).expect("a certificate");
        Self {
            der: certificate.der().to_vec(),
            issuer: Issuer::new(params, key),
        }
    }

    fn server(&self, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["one".to_owned()]).expect("a name");
        change(&mut params);
        let signed = params.signed_by(&key(), &self.issuer);
        signed.expect("a certificate").der().clone()
    }
}

fn trusting(cas: &[&Ca]) -> Config {
    let mut config = Config::new("https://one".parse().expect("a URL"));
    config.root_cert = Some(cas.iter().map(|ca| ca.der.clone()).collect());
    config
}

/// What is wrong with `certificate`, as a handshake reports it.
fn problem(config: &Config, certificate: &CertificateDer<'_>) -> Option<String> {
    let verifier = verifier(config).expect("a verifier");
    let name = ServerName::try_from("one").expect("a name");
    let verified = verifier.verify_server_cert(certificate, &[], &name, &[], NOW);
    let error = io::Error::new(io::ErrorKind::InvalidData, verified.err()?);
    Some(explain(error).to_string())
}

#[test]
fn each_fault_is_explained() {
    let (ours, other) = (Ca::new("kubernetes"), Ca::new("another"));
    let namesake = Ca::new("kubernetes");
    let config = trusting(&[&ours]);
    assert_eq!(problem(&config, &ours.server(|_| {})), None);
    let among = "which is not among the certificate authorities in use: \"CN=kubernetes\"";
    for (certificate, expected) in [
        (
            other.server(|_| {}),
            format!("the server's certificate was issued by \"CN=another\", {among}"),
        ),
        (
            namesake.server(|_| {}),
            format!("the server's certificate was issued by \"CN=kubernetes\", {among}"),
        ),
        (
            ours.server(|params| params.not_after = date_time_ymd(2026, 1, 2)),
            "the server's certificate expired at 2026-01-02T00:00:00Z; now it is \
             2027-01-15T08:00:00Z"
                .to_owned(),
        ),
        (
            ours.server(|params| params.not_before = date_time_ymd(2028, 1, 2)),
            "the server's certificate is not valid before 2028-01-02T00:00:00Z; now it is \
             2027-01-15T08:00:00Z"
                .to_owned(),
        ),
    ] {
        assert_eq!(problem(&config, &certificate), Some(expected));
    }
    let named = CertificateParams::new(vec!["two".to_owned()]).expect("a name");
    let elsewhere = ours.server(|params| *params = named);
    let said = problem(&config, &elsewhere).expect("another name");
    assert!(
        said.contains("two") && said.ends_with("and not for \"one\""),
        "{said}"
    );
    let many: Vec<_> = ["a", "b", "c", "d", "e"].map(Ca::new).into();
    let said = problem(
        &trusting(&many.iter().collect::<Vec<_>>()),
        &ours.server(|_| {}),
    );
    let said = said.expect("an unknown authority");
    assert!(
        said.ends_with("\"CN=a\", \"CN=b\", \"CN=c\", and 2 more"),
        "{said}"
    );
}

#[test]
fn nothing_is_verified_if_the_kubeconfig_says_so() {
    let mut config = trusting(&[]);
    config.accept_invalid_certs = true;
    let certificate = Ca::new("any").server(|_| {});
    assert_eq!(problem(&config, &certificate), None);
}

#[tokio::test(start_paused = true)]
async fn the_ca_of_a_pod_is_read_again_and_the_last_one_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ca.crt");
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let pem = |ca: &Ca| pem(&ca.der);
    let mut config = trusting(&[&old]);
    config.root_cert_file = Some(path.clone());
    let verifier = verifier(&config).expect("a verifier");
    let certificate = new.server(|_| {});
    let name = ServerName::try_from("one").expect("a name");
    let is_accepted = || {
        let verified = verifier.verify_server_cert(&certificate, &[], &name, &[], NOW);
        verified.is_ok()
    };
    std::fs::write(&path, pem(&new)).expect("written");
    assert!(!is_accepted());
    tokio::time::advance(REREAD_INTERVAL).await;
    assert!(is_accepted());
    std::fs::write(&path, "garbage").expect("written");
    tokio::time::advance(REREAD_INTERVAL).await;
    // A bundle without a certificate is no reason to trust nothing.
    assert!(is_accepted());
}

fn pem(der: &[u8]) -> String {
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}
