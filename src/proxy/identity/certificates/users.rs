//! The users of client certificates, as kube-apiserver derives them.
//!
//! A chain is verified once for each connection and CA bundle, because all requests of a connection
//! have the same chain. Certificates can expire while a connection is open, so the result is
//! remembered only until a certificate next becomes valid or invalid. When the user expires is
//! calculated only for open watches, and takes a few more verifications.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use arc_swap::ArcSwapOption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, RootCertStore};
use without_extensions::IssuedWithoutExtensions;
use x509_parser::prelude::{X509Certificate, X509Version};

use super::certificate::{
    CertificateError, Validity, common_name, max_intermediates, may_sign, parse, user_of,
};
use crate::identity::User;
use crate::net::CertificateChain;

/// How many times a chain is verified to find out when it expires. A client may send hundreds of
/// certificates that begin and end at different times.
const EXPIRY_STEPS: usize = 8;

/// The authorities of accepted client certificates: one CA bundle. A changed bundle is a new value.
/// Clones share one value.
#[derive(Clone, Debug)]
pub struct CertificateAuthorities {
    authorities: Arc<[Authority]>,
    /// Trusts all of the authorities.
    verifier: Arc<dyn ClientCertVerifier>,
    /// A number that no other value of the process has.
    generation: u64,
}

#[derive(Debug)]
struct Authority {
    certificate: CertificateDer<'static>,
    validity: Validity,
    /// Limit of the intermediate certificates between the authority and a client's certificate.
    max_intermediates: Option<usize>,
}

/// The user of a client certificate.
#[derive(Clone, Debug)]
pub struct CertifiedUser {
    /// The user, with the group `system:authenticated`.
    pub user: User,
    /// When the certificate expires.
    pub(in crate::identity) expiry: Expiry,
}

/// When a certificate expires. It is calculated when it is first needed. Clones share the result.
#[derive(Clone, Debug)]
pub(in crate::identity) struct Expiry(Arc<LazyLock<Option<SystemTime>, Calculation>>);

/// Calculates when a certificate expires.
type Calculation = Box<dyn FnOnce() -> Option<SystemTime> + Send>;

/// The results of verifying a connection's certificates. All requests of the connection share them.
#[derive(Debug, Default)]
pub struct CertificateMemo {
    user: Memo<CertifiedUser>,
    proxy: Memo<String>,
}

/// The result of verifying one chain with one CA bundle.
type Memo<T> = ArcSwapOption<Known<T>>;

#[derive(Debug)]
struct Known<T> {
    generation: u64,
    /// The period in which the result holds.
    holds: Validity,
    result: Result<Arc<T>, CertificateError>,
}

// === impl CertificateAuthorities ===

impl CertificateAuthorities {
    /// Reads a CA bundle: PEM text with one or more certificates. Certificates that may not sign
    /// others are skipped.
    ///
    /// # Errors
    /// If a certificate can't be parsed, or none may sign others.
    pub fn from_pem(text: &[u8]) -> anyhow::Result<CertificateAuthorities> {
        let certificates = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
        let mut authorities = Vec::new();
        for (number, certificate) in (1..).zip(certificates.context("not PEM")?) {
            let parsed = parse(&certificate)
                .with_context(|| format!("certificate {number} can't be parsed"))?;
            if !may_sign(&parsed) {
                continue;
            }
            let authority = Authority {
                validity: Validity::of(&parsed),
                max_intermediates: max_intermediates(&parsed),
                certificate,
            };
            RootCertStore::empty()
                .add(authority.certificate.clone())
                .with_context(|| format!("certificate {number} can't be used"))?;
            authorities.push(authority);
        }
        let verifier = verifier(authorities.iter()).context("no certificate of an authority")?;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Ok(CertificateAuthorities {
            authorities: authorities.into(),
            verifier,
            generation: NEXT.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Returns the names of the authorities. Clients choose a certificate by these names.
    pub fn names(&self) -> Vec<DistinguishedName> {
        root_store(self.authorities.iter()).subjects()
    }

    /// Returns the user of `chain` at `now`. `memo` belongs to the chain's connection.
    ///
    /// # Errors
    /// If the certificate has no user now.
    pub fn user(
        &self,
        chain: &CertificateChain,
        memo: &CertificateMemo,
        now: UnixTime,
    ) -> Result<Arc<CertifiedUser>, CertificateError> {
        self.known(chain, &memo.user, now, |own, certificate, last| {
            let user = user_of(own, certificate)?;
            let (authorities, chain) = (self.clone(), Arc::clone(chain));
            let expiry = Expiry::new(move || authorities.expiry(&chain, last));
            Ok(CertifiedUser { user, expiry })
        })
    }

    /// Returns the common name of `chain`, if this bundle verifies the chain at `now`. The name may
    /// be empty.
    ///
    /// # Errors
    /// If the chain is not good now, or the name is not plain text.
    pub(in crate::identity) fn common_name(
        &self,
        chain: &[CertificateDer<'static>],
        memo: &CertificateMemo,
        now: UnixTime,
    ) -> Result<Arc<String>, CertificateError> {
        self.known(chain, &memo.proxy, now, |_, certificate, _| {
            common_name(certificate)
        })
    }

    /// Verifies `chain` and returns the result of `read`. The arguments of `read` are the verified
    /// certificate, and the last second until which the chain is certainly verified. While the
    /// result in `memo` holds, returns that result instead.
    fn known<T>(
        &self,
        chain: &[CertificateDer<'static>],
        memo: &Memo<T>,
        now: UnixTime,
        read: impl FnOnce(&[u8], &X509Certificate<'_>, u64) -> Result<T, CertificateError>,
    ) -> Result<Arc<T>, CertificateError> {
        if let Some(known) = &*memo.load()
            && known.generation == self.generation
            && known.holds.contains(now.as_secs())
        {
            return known.result.clone();
        }
        let mut holds = Validity {
            first: now.as_secs(),
            last: u64::MAX,
        };
        let result = self.verify(chain, now, &mut holds).and_then(|verified| {
            let certificate = parse(verified).ok_or(CertificateError::Unparsable)?;
            read(verified, &certificate, holds.last).map(Arc::new)
        });
        memo.store(Some(Arc::new(Known {
            generation: self.generation,
            holds,
            result: result.clone(),
        })));
        result
    }

    /// Returns the first second after `last` in which `chain` is not verified any more. Returns an
    /// earlier time if the exact time needs too many verifications, and `None` if the time is too
    /// far in the future to represent.
    fn expiry(&self, chain: &[CertificateDer<'static>], mut last: u64) -> Option<SystemTime> {
        for _ in 0..EXPIRY_STEPS {
            let next = Duration::from_secs(last.checked_add(1)?);
            let mut holds = Validity {
                first: next.as_secs(),
                last: u64::MAX,
            };
            let at = UnixTime::since_unix_epoch(next);
            if self.verify(chain, at, &mut holds).is_err() {
                return UNIX_EPOCH.checked_add(next);
            }
            last = holds.last;
        }
        UNIX_EPOCH.checked_add(Duration::from_secs(last.checked_add(1)?))
    }

    /// Verifies the chain, and returns the client's certificate. Ends `holds` before the result
    /// could next differ.
    fn verify<'a>(
        &self,
        chain: &'a [CertificateDer<'static>],
        now: UnixTime,
        holds: &mut Validity,
    ) -> Result<&'a CertificateDer<'static>, CertificateError> {
        let Some((own, others)) = chain.split_first() else {
            return Err(CertificateError::Unparsable);
        };
        let parsed = parse(own).ok_or(CertificateError::Unparsable)?;
        holds.end_before_change_of(Validity::of(&parsed));
        if parsed.version() != X509Version::V3 {
            return self.verify_without_extensions(own, &parsed, now, holds);
        }
        let mut intermediates = Vec::new();
        for other in others {
            // webpki does not look at the key usage of authorities.
            if let Some(parsed) = parse(other)
                && may_sign(&parsed)
                && !self.has(other)
            {
                holds.end_before_change_of(Validity::of(&parsed));
                intermediates.push(other.clone());
            }
        }
        for authority in &*self.authorities {
            holds.end_before_change_of(authority.validity);
        }
        // webpki looks neither at the validity nor at the path length of trust anchors.
        let is_usable = |authority: &&Authority| {
            authority.validity.contains(now.as_secs())
                && authority
                    .max_intermediates
                    .is_none_or(|limit| intermediates.len() <= limit)
        };
        let verifier = if self
            .authorities
            .iter()
            .all(|authority| is_usable(&authority))
        {
            Some(Arc::clone(&self.verifier))
        } else {
            verifier(self.authorities.iter().filter(is_usable))
        };
        verifier
            .ok_or(unverified(rustls::CertificateError::UnknownIssuer))?
            .verify_client_cert(own, &intermediates, now)
            .map_err(CertificateError::Unverified)?;
        Ok(own)
    }

    /// Verifies a certificate of X.509 version 1 or 2, which webpki does not read. An authority
    /// itself must have issued the certificate.
    fn verify_without_extensions<'a>(
        &self,
        own: &'a CertificateDer<'static>,
        parsed: &X509Certificate<'_>,
        now: UnixTime,
        holds: &mut Validity,
    ) -> Result<&'a CertificateDer<'static>, CertificateError> {
        let issued = IssuedWithoutExtensions::of(own, parsed);
        let mut is_issued = false;
        for authority in &*self.authorities {
            holds.end_before_change_of(authority.validity);
            is_issued |= authority.validity.contains(now.as_secs())
                && issued
                    .as_ref()
                    .is_some_and(|issued| issued.is_by(&authority.certificate));
        }
        if !is_issued {
            return Err(unverified(rustls::CertificateError::UnknownIssuer));
        }
        if Validity::of(parsed).contains(now.as_secs()) {
            Ok(own)
        } else {
            Err(unverified(rustls::CertificateError::Expired))
        }
    }

    fn has(&self, certificate: &CertificateDer<'_>) -> bool {
        let mut authorities = self.authorities.iter();
        authorities.any(|authority| authority.certificate == *certificate)
    }
}

fn root_store<'a>(authorities: impl Iterator<Item = &'a Authority>) -> RootCertStore {
    let mut store = RootCertStore::empty();
    // Each of these certificates could be added when the bundle was read.
    store.add_parsable_certificates(authorities.map(|authority| authority.certificate.clone()));
    store
}

/// Returns a verifier that trusts the authorities; `None` if there are none.
fn verifier<'a>(
    authorities: impl Iterator<Item = &'a Authority>,
) -> Option<Arc<dyn ClientCertVerifier>> {
    let roots = Arc::new(root_store(authorities));
    let provider = Arc::new(default_provider());
    // Fails only without roots.
    WebPkiClientVerifier::builder_with_provider(roots, provider)
        .build()
        .ok()
}

fn unverified(reason: rustls::CertificateError) -> CertificateError {
    CertificateError::Unverified(reason.into())
}

// === impl Expiry ===

impl Expiry {
    pub(in crate::identity) fn new(
        calculate: impl FnOnce() -> Option<SystemTime> + Send + 'static,
    ) -> Expiry {
        Expiry(Arc::new(LazyLock::new(Box::new(calculate))))
    }

    /// Returns the time when the certificate ceases to lead to an authority, because a certificate
    /// of the path to the authority has expired. The result may also be an earlier time, at which a
    /// certificate of the chain, or an authority, becomes valid or invalid. Returns `None` if the
    /// time is too far in the future to represent.
    ///
    /// The first call may verify the chain several times.
    pub(in crate::identity) fn at(&self) -> Option<SystemTime> {
        **self.0
    }
}

mod without_extensions;

#[cfg(test)]
pub(in crate::identity) mod tests;
