use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair, SigningKey, date_time_ymd};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, DistinguishedName, RootCertStore, SignatureScheme, SupportedProtocolVersion,
};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use x509_parser::asn1_rs::Any;
use x509_parser::prelude::FromDer;

use super::acceptor::Accepted;
use super::any_certificate::MAX_CHAIN;
use super::files::{ServedCertificate, crypto_provider, read_certificates};
use super::tls_stream::TlsStream;
use super::*;
use crate::net::tls::made::distinguished_name;

/// What a client presents, and the names of authorities that it received last.
#[derive(Debug)]
struct Client {
    key: Option<Arc<CertifiedKey>>,
    hints: parking_lot::Mutex<Option<Vec<Vec<u8>>>>,
}

impl Client {
    fn new(key: Option<CertifiedKey>) -> Arc<Client> {
        Arc::new(Client {
            key: key.map(Arc::new),
            hints: parking_lot::Mutex::new(None),
        })
    }
}

impl ResolvesClientCert for Client {
    fn resolve(&self, hints: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        *self.hints.lock() = Some(hints.iter().map(|hint| hint.to_vec()).collect());
        self.key.clone()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// A self-signed certificate and its key; `padding` bytes make it longer.
fn pair(padding: usize) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(&"x".repeat(padding + 1));
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (
        certificate.der().clone(),
        key.serialize_der().try_into().unwrap(),
    )
}

/// The certificate `der` as one of X.509 version 1, as `openssl x509 -req` makes it. `sign` makes its
/// issuer's signature.
pub(crate) fn without_extensions(
    der: &[u8],
    sign: impl FnOnce(&[u8]) -> Vec<u8>,
) -> CertificateDer<'static> {
    let next = |der| {
        let (rest, any): (_, Any<'_>) = Any::from_der(der).unwrap();
        (rest, any.data)
    };
    let (_, whole) = next(der);
    let (after_body, body) = next(whole);
    let (after_algorithm, _) = next(after_body);
    let algorithm = &after_body[..after_body.len() - after_algorithm.len()];
    // The version is left out, and what follows the six fields after it.
    let (fields, _) = next(body);
    let extensions = (0..6).fold(fields, |fields, _| next(fields).0);
    let body = encoded(0x30, &[&fields[..fields.len() - extensions.len()]]);
    let signature = encoded(0x03, &[&[0], &sign(&body)]);
    encoded(0x30, &[&body, algorithm, &signature]).into()
}

/// The DER of a value with this tag.
fn encoded(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = match u16::try_from(content.len()).unwrap().to_be_bytes() {
        [0, short @ ..=0x7f] => vec![short],
        [0, long] => vec![0x81, long],
        [high, low] => vec![0x82, high, low],
    };
    [&[tag], &length[..], &content].concat()
}

/// The certificate and the key of [`pair`], changed so that the certificate's key has an algorithm that
/// is not supported.
fn pair_of_unknown_curve() -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let (certificate, key) = pair(0);
    let curve = b"\x2a\x86\x48\xce\x3d\x03\x01\x07";
    let mut der = certificate.to_vec();
    let place = der.windows(curve.len()).position(|window| window == curve);
    der[place.unwrap() + curve.len() - 1] = 6;
    (der.into(), key)
}

fn certified(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> CertifiedKey {
    let key = crypto_provider()
        .key_provider
        .load_private_key(key)
        .unwrap();
    CertifiedKey::new(chain, key)
}

fn server() -> (TempDir, SelfSignedFiles, Acceptor) {
    let directory = tempfile::tempdir().unwrap();
    let self_signed = SelfSigned {
        directory: directory.path().join("tls"),
        names: vec!["localhost".to_owned()],
    };
    let files = self_signed.ensure().unwrap();
    let acceptor = Acceptor::from_files(&files.server).unwrap();
    (directory, files, acceptor)
}

fn connector(
    files: &SelfSignedFiles,
    client: &Arc<Client>,
    version: &'static SupportedProtocolVersion,
) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots
        .add(
            read_certificates(&files.ca_certificate)
                .unwrap()
                .swap_remove(0),
        )
        .unwrap();
    let config = ClientConfig::builder_with_provider(crypto_provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::clone(client) as Arc<dyn ResolvesClientCert>);
    TlsConnector::from(Arc::new(config))
}

/// Connects, and returns the server's and the client's connection.
async fn connect(
    acceptor: &Acceptor,
    connector: &TlsConnector,
) -> (
    std::io::Result<Accepted<TlsStream>>,
    std::io::Result<tokio_rustls::client::TlsStream<TcpStream>>,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (near, _) = listener.accept().await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    tokio::join!(acceptor.accept(near), connector.connect(name, stream))
}

#[tokio::test]
async fn certificates_of_any_issuer_are_presented_and_none_is_needed() {
    let (_directory, files, acceptor) = server();
    acceptor.request_client_certificates(Vec::new());
    for version in [&TLS12, &TLS13] {
        let ((own, key), (other, _)) = (pair(0), pair(0));
        let chain = vec![own, other];
        let client = Client::new(Some(certified(chain.clone(), key)));
        let (accepted, _stream) = connect(&acceptor, &connector(&files, &client, version)).await;
        let presented = accepted.unwrap().certificates.unwrap();
        assert_eq!(*presented, *chain);
        let none = connector(&files, &Client::new(None), version);
        let (accepted, _stream) = connect(&acceptor, &none).await;
        assert_eq!(accepted.unwrap().certificates, None);
    }
}

#[tokio::test]
async fn a_client_needs_the_key_of_its_certificate_and_a_short_chain() {
    let (_directory, files, acceptor) = server();
    acceptor.request_client_certificates(Vec::new());
    let ((own, key), (_, foreign_key)) = (pair(0), pair(0));
    // A self-signed certificate has its name twice.
    let (long, long_key) = pair(MAX_CHAIN / 2);
    let ((half, half_key), (other_half, _)) = (pair(MAX_CHAIN / 3), pair(MAX_CHAIN / 3));
    for version in [&TLS12, &TLS13] {
        for (chain, key, is_accepted) in [
            (vec![own.clone()], &key, true),
            (vec![own.clone()], &foreign_key, false),
            (vec![long.clone()], &long_key, false),
            (vec![half.clone()], &half_key, true),
            (vec![half.clone(), other_half.clone()], &half_key, false),
        ] {
            let client = Client::new(Some(certified(chain, key.clone_key())));
            let (accepted, _stream) =
                connect(&acceptor, &connector(&files, &client, version)).await;
            assert_eq!(accepted.is_ok(), is_accepted, "{version:?}");
        }
    }
}

#[tokio::test]
async fn a_certificate_that_can_not_be_used_ends_no_connection() {
    let (_directory, files, acceptor) = server();
    acceptor.request_client_certificates(Vec::new());
    let own = KeyPair::generate().unwrap();
    let params = CertificateParams::default();
    let version_1 = without_extensions(params.self_signed(&own).unwrap().der(), |message| {
        own.sign(message).unwrap()
    });
    let own = PrivateKeyDer::try_from(own.serialize_der()).unwrap();
    let (_, foreign_key) = pair(0);
    let (unknown_curve, curve_key) = pair_of_unknown_curve();
    let junk = CertificateDer::from(b"junk".to_vec());
    let mut longer = pair(0).0.to_vec();
    longer.push(0);
    let longer = CertificateDer::from(longer);
    for version in [&TLS12, &TLS13] {
        for (name, certificate, key, is_proven) in [
            ("version 1", &version_1, &own, true),
            ("an unknown curve", &unknown_curve, &curve_key, false),
            ("junk", &junk, &own, false),
            ("trailing bytes", &longer, &own, false),
        ] {
            let chain = vec![certificate.clone(), version_1.clone()];
            let client = Client::new(Some(certified(chain.clone(), key.clone_key())));
            let connector = connector(&files, &client, version);
            let (accepted, _stream) = connect(&acceptor, &connector).await;
            let found = accepted.expect(name).certificates.expect(name);
            // If the key is not proven, no certificate is presented.
            let expected = if is_proven { &chain[..] } else { &[] };
            assert_eq!(*found, *expected, "{name} {version:?}");
        }
        let foreign = certified(vec![version_1.clone()], foreign_key.clone_key());
        let connector = connector(&files, &Client::new(Some(foreign)), version);
        let (accepted, _stream) = connect(&acceptor, &connector).await;
        assert!(accepted.is_err(), "a foreign certificate of version 1");
    }
}

#[tokio::test]
async fn clients_are_asked_only_on_request_and_told_the_authorities() {
    let (_directory, files, acceptor) = server();
    let (own, key) = pair(0);
    let client = Client::new(Some(certified(vec![own], key)));
    let connector = connector(&files, &client, &TLS13);
    let (accepted, _stream) = connect(&acceptor, &connector).await;
    assert_eq!(accepted.unwrap().certificates, None);
    assert_eq!(*client.hints.lock(), None);
    // An empty sequence, and one that is longer.
    for names in [
        vec![],
        vec![b"0\0".to_vec()],
        vec![b"0\0".to_vec(), b"0\x02\x31\0".to_vec()],
    ] {
        let authorities = names.iter().cloned().map(DistinguishedName::from).collect();
        acceptor.clone().request_client_certificates(authorities);
        let (accepted, _stream) = connect(&acceptor, &connector).await;
        assert!(accepted.unwrap().certificates.is_some());
        assert_eq!(client.hints.lock().as_ref(), Some(&names));
    }
}

#[tokio::test]
async fn sessions_are_resumed_only_if_no_certificates_are_requested() {
    for (version, requests) in [
        (&TLS12, false),
        (&TLS13, false),
        (&TLS12, true),
        (&TLS13, true),
    ] {
        let (_directory, files, acceptor) = server();
        if requests {
            acceptor.request_client_certificates(Vec::new());
        }
        let connector = connector(&files, &Client::new(None), version);
        let mut is_resumed = false;
        for _ in 0..2 {
            let (accepted, stream) = connect(&acceptor, &connector).await;
            let mut stream = stream.unwrap();
            // The tickets of TLS 1.3 come after the handshake.
            drop(accepted.unwrap());
            let _ = stream.read_to_end(&mut Vec::new()).await;
            let kind = stream.get_ref().1.handshake_kind();
            is_resumed = kind == Some(rustls::HandshakeKind::Resumed);
        }
        assert_eq!(is_resumed, !requests, "{version:?}");
    }
}

#[test]
fn a_chain_is_valid_until_its_first_certificate_ends() {
    let until = |year| {
        let mut params = CertificateParams::default();
        params.not_after = date_time_ymd(year, 1, 2);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (certificate.der().clone(), key)
    };
    let unparsable = || CertificateDer::from(vec![1, 2, 3]);
    let [(own, key), (issuer, other_key)] = [2031, 2030].map(until);
    let served = ServedCertificate::from(certified(vec![own, issuer, unparsable()], key));
    assert_eq!(served.valid_until, Some(1_893_542_400));
    let served = ServedCertificate::from(certified(vec![unparsable()], other_key));
    assert_eq!(served.valid_until, None);
}

#[tokio::test]
async fn new_connections_use_reloaded_files_and_bad_files_change_nothing() {
    let (directory, files, acceptor) = server();
    acceptor.request_client_certificates(Vec::new());
    let connector = connector(&files, &Client::new(None), &TLS13);
    let presented = async || {
        let (accepted, stream) = connect(&acceptor, &connector).await;
        accepted.unwrap();
        let stream = stream.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    let first = presented().await;
    let first_end = acceptor.valid_until().unwrap();
    // The authority issues another certificate, for more names, which ends a minute later.
    let self_signed = SelfSigned {
        directory: directory.path().join("tls"),
        names: vec!["localhost".to_owned(), "kubefan".to_owned()],
    };
    let later = SystemTime::now() + Duration::from_secs(60);
    self_signed.ensure_at(later).unwrap();
    assert_eq!(presented().await, first);
    acceptor.clone().reload(&files.server).unwrap();
    let second = presented().await;
    assert_ne!(second, first);
    let second_end = acceptor.valid_until().unwrap();
    assert!(second_end > first_end, "{second_end} {first_end}");
    fs::write(&files.server.key, "junk").unwrap();
    acceptor.reload(&files.server).unwrap_err();
    assert_eq!(presented().await, second);
    assert_eq!(acceptor.valid_until(), Some(second_end));
}
