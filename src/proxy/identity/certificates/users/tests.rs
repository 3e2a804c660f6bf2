use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName as Subject, DnType, DnValue,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, SigningKey,
};

use super::*;
use crate::identity::certificates::certificate::sha256;
use crate::net::without_extensions;

/// The time of the tests. Certificates are valid an hour before and after it.
pub(in crate::identity) const NOW: UnixTime = at(0);
const HOUR: i64 = 3_600;

/// The time `seconds` after [`NOW`].
const fn at(seconds: i64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs((1_800_000_000 + seconds) as u64))
}

fn date(seconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(at(seconds).as_secs())
}

/// An authority that signs certificates.
pub(in crate::identity) struct Ca {
    certificate: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    pub(in crate::identity) fn new(name: &str) -> Ca {
        Ca::with(name, |_| ())
    }

    fn with(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Ca {
        let (params, key) = (Ca::params(name, change), KeyPair::generate().unwrap());
        let certificate = params.self_signed(&key).unwrap();
        Ca {
            certificate: certificate.der().clone(),
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Creates an authority with a certificate that this authority signs.
    fn intermediate(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Ca {
        let (params, key) = (Ca::params(name, change), KeyPair::generate().unwrap());
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Ca {
            certificate: certificate.der().clone(),
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    fn params(name: &str, change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
        let mut params = valid_for_an_hour();
        params.distinguished_name = subject(&[(DnType::CommonName, name.into())]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        change(&mut params);
        params
    }

    pub(in crate::identity) fn pem(&self) -> &str {
        &self.pem
    }

    pub(in crate::identity) fn authorities(&self) -> CertificateAuthorities {
        CertificateAuthorities::from_pem(self.pem.as_bytes()).unwrap()
    }

    /// A client's certificate with up to two common names and two organizations.
    pub(in crate::identity) fn client(
        &self,
        names: &[&str],
        groups: &[&str],
    ) -> CertificateDer<'static> {
        // rcgen writes each type once, but does not detect that a custom type is equal to a named
        // one.
        let names_of = [DnType::CommonName, DnType::CustomDnType(vec![2, 5, 4, 3])];
        let groups_of = [
            DnType::OrganizationName,
            DnType::CustomDnType(vec![2, 5, 4, 10]),
        ];
        let names = names_of.into_iter().zip(names);
        let attributes = names.chain(groups_of.into_iter().zip(groups));
        let attributes: Vec<_> = attributes.map(|(of, text)| (of, (*text).into())).collect();
        self.sign(|params| params.distinguished_name = subject(&attributes))
    }

    fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = valid_for_an_hour();
        params.distinguished_name = subject(&[(DnType::CommonName, "jane".into())]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, &self.issuer).unwrap().der().clone()
    }
}

/// `certificate` as one of X.509 version 1 that `ca` has issued.
fn of_version_1(ca: &Ca, certificate: &[u8]) -> CertificateDer<'static> {
    without_extensions(certificate, |message| {
        ca.issuer.key().sign(message).unwrap()
    })
}

fn valid_for_an_hour() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = date(-HOUR).into();
    params.not_after = date(HOUR).into();
    params
}

fn subject(attributes: &[(DnType, DnValue)]) -> Subject {
    let mut subject = Subject::new();
    for (of, value) in attributes {
        subject.push(of.clone(), value.clone());
    }
    subject
}

/// The user of the chain at the time, without what other requests of the connection found.
fn user(
    authorities: &CertificateAuthorities,
    chain: &[CertificateDer<'static>],
    now: UnixTime,
) -> Result<User, CertificateError> {
    let certified = authorities.user(&chain.into(), &CertificateMemo::default(), now);
    certified.map(|certified| certified.user.clone())
}

fn is_verified(
    authorities: &CertificateAuthorities,
    chain: &[CertificateDer<'static>],
    now: UnixTime,
) -> bool {
    match user(authorities, chain, now) {
        Ok(_) => true,
        Err(CertificateError::Unverified(_)) => false,
        Err(error) => panic!("{error:?}"),
    }
}

// === The user ===

#[test]
fn a_certificate_names_a_user() {
    let ca = Ca::new("clients");
    let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
    let certificate = ca.sign(|params| {
        params.distinguished_name = subject(&[
            (DnType::OrganizationName, "devs".into()),
            (DnType::OrganizationalUnitName, "ignored".into()),
            (DnType::CommonName, "jane".into()),
            (uid, "7".into()),
            (DnType::CustomDnType(vec![2, 5, 4, 10]), "größe".into()),
        ]);
    });
    let user = user(&ca.authorities(), std::slice::from_ref(&certificate), NOW).unwrap();
    assert_eq!((&*user.name, &*user.uid), ("jane", "7"));
    assert_eq!(user.groups, ["devs", "größe", "system:authenticated"]);
    let [(key, values)] = &user.extra.iter().collect::<Vec<_>>()[..] else {
        panic!("{user:?}")
    };
    assert_eq!(*key, "authentication.kubernetes.io/credential-id");
    assert_eq!(**values, [format!("X509SHA256={}", sha256(&certificate))]);
}

#[test]
fn fingerprints_are_lower_case_sha_256() {
    let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(sha256(b"abc"), expected);
}

#[test]
fn the_last_common_name_counts() {
    let ca = Ca::new("clients");
    let chain = [ca.client(&["jane", "joe"], &["system:authenticated"])];
    let user = user(&ca.authorities(), &chain, NOW).unwrap();
    assert_eq!(user.name, "joe");
    assert_eq!(user.groups, ["system:authenticated"]);
}

#[test]
fn some_subjects_name_no_user() {
    let ca = Ca::new("clients");
    let reserved = |name: &str| CertificateError::Reserved {
        name: name.to_owned(),
    };
    let table = [
        (&[][..], &["devs"][..], CertificateError::NoName),
        (&["jane", ""], &[], CertificateError::NoName),
        (&["jane\n"], &[], CertificateError::NotText),
        (&["jane"], &["de\u{7f}vs"], CertificateError::NotText),
        (&["ja\u{85}ne"], &[], CertificateError::NotText),
        (
            &["system:serviceaccount:default:builder"],
            &[],
            reserved("system:serviceaccount:default:builder"),
        ),
        (&["system:anonymous"], &[], reserved("system:anonymous")),
        (
            &["system:unauthenticated"],
            &[],
            reserved("system:unauthenticated"),
        ),
        (
            &["jane"],
            &["a", "system:unauthenticated"],
            reserved("system:unauthenticated"),
        ),
    ];
    for (names, groups, expected) in table {
        let chain = [ca.client(names, groups)];
        assert_eq!(
            user(&ca.authorities(), &chain, NOW),
            Err(expected),
            "{names:?}"
        );
    }
    let teletex = ca.sign(|params| {
        let name = DnValue::TeletexString("jane".try_into().unwrap());
        params.distinguished_name = subject(&[(DnType::CommonName, name)]);
    });
    let found = user(&ca.authorities(), &[teletex], NOW);
    assert_eq!(found, Err(CertificateError::NotText));
}

#[test]
fn a_subject_has_one_uid_or_none() {
    let ca = Ca::new("clients");
    let uid = |last, text: &str| {
        (
            DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, last]),
            text.into(),
        )
    };
    let table = [
        (vec![], Ok("")),
        (vec![uid(2, "7")], Ok("7")),
        (vec![uid(2, "")], Err(CertificateError::Uid)),
        (vec![uid(2, "7"), uid(3, "7")], Err(CertificateError::Uid)),
    ];
    for (uids, expected) in table {
        let der = ca.sign(|params| {
            let name = (DnType::CommonName, "jane".into());
            params.distinguished_name = subject(&[vec![name], uids].concat());
        });
        // rcgen writes each type once. So the second UID had another type until now.
        let mut der = der.to_vec();
        let other = b"\x06\x09\x2b\x06\x01\x04\x01\x83\xc2\x53\x03";
        if let Some(at) = der.windows(other.len()).position(|bytes| bytes == other) {
            der[at + other.len() - 1] = 2;
        }
        let found = user_of(&der, &parse(&der).unwrap()).map(|user| user.uid);
        assert_eq!(found, expected.map(str::to_owned));
    }
}

// === The chain ===

#[test]
fn a_chain_must_lead_to_an_authority() {
    let (ca, other) = (Ca::new("clients"), Ca::new("clients"));
    let middle = ca.intermediate("middle", |_| ());
    let inner = middle.intermediate("inner", |_| ());
    let certificate = || inner.client(&["jane"], &[]);
    let [middle, inner] = [&middle, &inner].map(|ca| ca.certificate.clone());
    let table = [
        (vec![ca.client(&["jane"], &[])], true),
        (
            vec![ca.client(&["jane"], &[]), ca.certificate.clone()],
            true,
        ),
        (vec![other.client(&["jane"], &[])], false),
        (
            vec![other.client(&["jane"], &[]), other.certificate.clone()],
            false,
        ),
        (vec![certificate(), inner.clone(), middle.clone()], true),
        (vec![certificate(), middle.clone(), inner.clone()], true),
        (vec![certificate(), inner.clone()], false),
        (vec![certificate()], false),
    ];
    for (chain, expected) in table {
        let verified = is_verified(&ca.authorities(), &chain, NOW);
        assert_eq!(verified, expected, "{} certificates", chain.len());
    }
    let found = user(&ca.authorities(), &[], NOW);
    assert_eq!(found, Err(CertificateError::Unparsable));
    let found = user(&ca.authorities(), &[b"junk".to_vec().into()], NOW);
    assert_eq!(found, Err(CertificateError::Unparsable));
}

#[test]
fn a_certificate_must_be_for_clients() {
    let ca = Ca::new("clients");
    let with = |purposes: &[ExtendedKeyUsagePurpose]| {
        [ca.sign(|params| params.extended_key_usages = purposes.to_vec())]
    };
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    let table = [
        (&[ClientAuth][..], true),
        (&[ServerAuth, ClientAuth], true),
        (&[], true),
        (&[ServerAuth], false),
    ];
    for (purposes, expected) in table {
        let verified = is_verified(&ca.authorities(), &with(purposes), NOW);
        assert_eq!(verified, expected, "{purposes:?}");
    }
}

#[test]
fn only_authorities_may_sign() {
    let ca = Ca::new("clients");
    type Change = fn(&mut CertificateParams);
    let no_ca = |params: &mut CertificateParams| params.is_ca = IsCa::ExplicitNoCa;
    let no_signer = |params: &mut CertificateParams| {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    };
    let any_usage = |params: &mut CertificateParams| params.key_usages = Vec::new();
    let for_servers = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    };
    let for_clients = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    };
    let changes: [(Change, bool); 5] = [
        (no_ca, false),
        (no_signer, false),
        (any_usage, true),
        // As in Go, the purposes of an authority are a limit for what it signs.
        (for_servers, false),
        (for_clients, true),
    ];
    for (change, may_sign) in changes {
        let middle = ca.intermediate("middle", change);
        let chain = [middle.client(&["jane"], &[]), middle.certificate.clone()];
        assert_eq!(is_verified(&ca.authorities(), &chain, NOW), may_sign);
        let root = Ca::with("root", change);
        let authorities = CertificateAuthorities::from_pem(root.pem.as_bytes());
        let is_unusable =
            authorities.is_err_and(|error| error.to_string() == "no certificate of an authority");
        assert_eq!(!is_unusable, may_sign);
    }
}

#[test]
fn certificates_without_extensions_are_those_of_their_authority() {
    let ca = Ca::new("clients");
    let (other, namesake) = (Ca::new("others"), Ca::new("clients"));
    let middle = ca.intermediate("middle", |_| ());
    let narrow = Ca::with("clients", |params| {
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: vec![GeneralSubtree::DnsName("example.com".to_owned())],
            excluded_subtrees: Vec::new(),
        });
    });
    let own = of_version_1(&ca, &ca.client(&["jane"], &["devs"]));
    let found = user(&ca.authorities(), std::slice::from_ref(&own), NOW).unwrap();
    assert_eq!(found.name, "jane");
    assert_eq!(found.groups, ["devs", "system:authenticated"]);
    let mut changed = own.to_vec();
    let name = changed.windows(4).position(|window| window == b"jane");
    changed[name.unwrap()] = b'k';
    let of_middle = of_version_1(&middle, &middle.client(&["jane"], &[]));
    let of_narrow = of_version_1(&narrow, &narrow.client(&["jane"], &[]));
    let table = [
        (&ca, vec![own.clone()], 0, true),
        (&ca, vec![own.clone(), middle.certificate.clone()], 0, true),
        (&ca, vec![own.clone()], HOUR + 1, false),
        (&ca, vec![own.clone()], -HOUR - 1, false),
        (&other, vec![own.clone()], 0, false),
        (&namesake, vec![own.clone()], 0, false),
        (&ca, vec![changed.into()], 0, false),
        // Only an authority itself can have issued it.
        (&ca, vec![of_middle, middle.certificate.clone()], 0, false),
        (&narrow, vec![of_narrow], 0, false),
    ];
    for (row, (authority, chain, seconds, expected)) in table.into_iter().enumerate() {
        let verified = is_verified(&authority.authorities(), &chain, at(seconds));
        assert_eq!(verified, expected, "row {row}");
    }
    let certified =
        ca.authorities()
            .user(&[own].as_slice().into(), &CertificateMemo::default(), NOW);
    let end = certified.unwrap().expiry.at();
    assert_eq!(end, Some(date(HOUR + 1)));
}

#[test]
fn an_authority_limits_the_length_of_the_chain() {
    let ca = Ca::with("clients", |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    });
    let middle = ca.intermediate("middle", |_| ());
    let direct = ca.client(&["jane"], &[]);
    let too_long = [middle.client(&["jane"], &[]), middle.certificate.clone()];
    assert!(!is_verified(&ca.authorities(), &too_long, NOW));
    assert!(is_verified(
        &ca.authorities(),
        &[direct, ca.certificate.clone()],
        NOW
    ));
}

#[test]
fn every_certificate_of_the_chain_must_be_valid_now() {
    let set_end =
        |end: i64| move |params: &mut CertificateParams| params.not_after = date(end).into();
    // When the authority, the intermediate certificate and the client's certificate end.
    for (root, middle, own) in [(600, HOUR, HOUR), (HOUR, 600, HOUR), (HOUR, HOUR, 600)] {
        let ca = Ca::with("clients", set_end(root));
        let middle = ca.intermediate("middle", set_end(middle));
        let own = middle.sign(set_end(own));
        let chain = [own, middle.certificate.clone()];
        let verified = |seconds| is_verified(&ca.authorities(), &chain, at(seconds));
        assert!(verified(0) && verified(600) && !verified(601));
        assert!(verified(-HOUR) && !verified(-HOUR - 1));
    }
}

#[test]
fn a_user_expires_with_the_first_certificate_of_the_chain() {
    let set_end =
        |end: i64| move |params: &mut CertificateParams| params.not_after = date(end).into();
    let expires_at = |authorities: &CertificateAuthorities, chain: &[CertificateDer<'static>]| {
        let certified = authorities.user(&chain.into(), &CertificateMemo::default(), NOW);
        certified.unwrap().expiry.at()
    };
    // When the authority, the intermediate certificate and the client's certificate end.
    for (root, middle, own) in [(600, HOUR, HOUR), (HOUR, 600, HOUR), (HOUR, HOUR, 600)] {
        let ca = Ca::with("clients", set_end(root));
        let middle = ca.intermediate("middle", set_end(middle));
        let chain = [middle.sign(set_end(own)), middle.certificate.clone()];
        // Certificates are valid until the end of their last second.
        assert_eq!(expires_at(&ca.authorities(), &chain), Some(date(601)));
        // What expires earlier, but is not needed, ends nothing.
        let other = Ca::with("other", set_end(60));
        let unused = ca.intermediate("unused", set_end(60));
        let pem = [&*other.pem, &ca.pem].concat();
        let authorities = CertificateAuthorities::from_pem(pem.as_bytes()).unwrap();
        let chain = [&chain[..], std::slice::from_ref(&unused.certificate)].concat();
        assert_eq!(expires_at(&authorities, &chain), Some(date(601)));
    }
}

#[test]
fn the_expiry_is_calculated_when_it_is_needed_and_with_few_verifications() {
    let ca = Ca::new("clients");
    // Each certificate that is not needed may change whether the chain is verified.
    let unused = (1..=20).map(|number| {
        let end = date(10 * number).into();
        Ca::with("unused", |params| params.not_after = end).certificate
    });
    let chain: CertificateChain = [ca.client(&["jane"], &[])]
        .into_iter()
        .chain(unused)
        .collect();
    let authorities = ca.authorities();
    let certified = authorities.user(&chain, &CertificateMemo::default(), NOW);
    let expiry = certified.unwrap().expiry.clone();
    // The chain is held until the expiry is calculated.
    assert_eq!(Arc::strong_count(&chain), 2);
    let steps = EXPIRY_STEPS as i64;
    assert_eq!(expiry.at(), Some(date(10 * (steps + 1) + 1)));
    assert_eq!(Arc::strong_count(&chain), 1);
    assert_eq!(expiry.at(), Some(date(10 * (steps + 1) + 1)));
}

#[test]
fn an_expired_authority_does_not_disable_the_others() {
    let old = Ca::with("old", |params| params.not_after = date(-60).into());
    let new = Ca::new("new");
    let bundle = [&*old.pem, "some text between\n", &new.pem].concat();
    let authorities = CertificateAuthorities::from_pem(bundle.as_bytes()).unwrap();
    let [of_old, of_new] = [&old, &new].map(|ca| [ca.client(&["jane"], &[])]);
    assert!(is_verified(&authorities, &of_old, at(-120)));
    assert!(!is_verified(&authorities, &of_old, NOW));
    assert!(is_verified(&authorities, &of_new, at(-120)));
    assert!(is_verified(&authorities, &of_new, NOW));
    assert_eq!(authorities.names().len(), 2);
}

#[test]
fn bundles_without_usable_certificates_are_errors() {
    let junk = "-----BEGIN CERTIFICATE-----\nanVuaw==\n-----END CERTIFICATE-----\n";
    let table = [
        ("", "no certificate of an authority"),
        ("text", "no certificate of an authority"),
        (
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
            "not PEM",
        ),
        (junk, "certificate 2 can't be parsed"),
    ];
    let good = Ca::new("clients").pem;
    for (text, expected) in table {
        let text = if text == junk {
            good.clone() + junk
        } else {
            text.to_owned()
        };
        let error = CertificateAuthorities::from_pem(text.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

// === The memo ===

#[test]
fn a_connection_is_verified_again_when_the_result_may_change() {
    let ca = Ca::new("clients");
    let authorities = ca.authorities();
    let memo = CertificateMemo::default();
    let chain = [ca.sign(|params| params.not_before = date(60).into())].into();
    let found = |authorities: &CertificateAuthorities, seconds| {
        authorities.user(&chain, &memo, at(seconds))
    };
    let early = found(&authorities, 0).unwrap_err();
    assert_eq!(found(&authorities, 59).unwrap_err(), early);
    let first = found(&authorities, 60).unwrap();
    assert!(Arc::ptr_eq(&first, &found(&authorities, HOUR).unwrap()));
    assert!(found(&authorities, HOUR + 1).is_err());
    // A clock that was set back.
    assert!(found(&authorities, 100).is_ok());
    assert!(found(&authorities, 59).is_err());

    let other = Ca::new("others").authorities();
    assert!(found(&authorities, 100).is_ok());
    assert!(found(&other, 100).is_err());
    let reloaded = ca.authorities();
    assert!(found(&reloaded, 100).is_ok());
}
