//! Reads a certificate: its validity, what it may sign, and its user as kube-apiserver derives it.

use std::collections::BTreeMap;
use std::fmt::Write;

use aws_lc_rs::digest;
use x509_parser::der_parser::oid;
use x509_parser::der_parser::oid::Oid;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::identity::User;

/// The attribute of a subject that holds the UID.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);
/// The key in `extra` for what identifies the credential.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The validity of a certificate: its first and its last second, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validity {
    pub(super) first: u64,
    pub(super) last: u64,
}

/// Why a client certificate has no user.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The chain leads to no authority, is not valid now, or is not for clients.
    #[error("the client certificate can't be verified")]
    Unverified(#[source] rustls::Error),
    /// The certificate can't be parsed.
    #[error("the client certificate can't be parsed")]
    Unparsable,
    /// The subject has no common name. The request may have other credentials.
    #[error("the client certificate has no common name")]
    NoName,
    /// An attribute of the subject is not text, or has control characters.
    #[error("an attribute in the subject of the client certificate is not plain text")]
    NotText,
    /// The subject has an empty UID, or more than one.
    #[error("the subject of the client certificate must have one UID or none")]
    Uid,
    /// The certificate is good, but names a user or a group that only the API server itself
    /// assigns.
    #[error("the client certificate must not name {name:?}")]
    Reserved {
        /// The name of the user or group.
        name: String,
    },
}

impl Validity {
    pub(super) fn of(certificate: &X509Certificate<'_>) -> Validity {
        let validity = certificate.validity();
        // Times before 1970 are negative.
        let seconds = |time: i64| u64::try_from(time).unwrap_or_default();
        Validity {
            first: seconds(validity.not_before.timestamp()),
            last: seconds(validity.not_after.timestamp()),
        }
    }

    pub(super) fn contains(self, second: u64) -> bool {
        (self.first..=self.last).contains(&second)
    }

    /// Ends the validity before the next second after `self.first` in which `other` begins or has
    /// ended.
    pub(super) fn end_before_change_of(&mut self, other: Validity) {
        for change in [other.first, other.last.saturating_add(1)] {
            if change > self.first {
                self.last = self.last.min(change - 1);
            }
        }
    }
}

/// Parses a certificate. Returns `None` if more bytes follow it.
pub(super) fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    rest.is_empty().then_some(certificate)
}

/// Returns true if the certificate belongs to an authority that may sign certificates of clients.
/// As in Go, the purposes of an authority limit what it may sign. webpki does not look at the
/// purposes of trust anchors.
pub(super) fn may_sign(certificate: &X509Certificate<'_>) -> bool {
    let is_authority = match certificate.basic_constraints() {
        Ok(Some(constraints)) => constraints.value.ca,
        Ok(None) => certificate.version().0 < 2,
        Err(_) => false,
    };
    let usage = certificate.key_usage();
    let may_sign = usage.is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()));
    let purposes = certificate.extended_key_usage();
    let is_for_clients = purposes.is_ok_and(|purposes| {
        purposes.is_none_or(|purposes| purposes.value.any || purposes.value.client_auth)
    });
    is_authority && may_sign && is_for_clients
}

/// Returns the limit of the intermediate certificates under an authority, if it has one.
pub(super) fn max_intermediates(certificate: &X509Certificate<'_>) -> Option<usize> {
    let constraints = certificate.basic_constraints().ok()??;
    let limit = constraints.value.path_len_constraint?;
    usize::try_from(limit).ok()
}

/// Returns the user of a verified certificate. `der` is the encoded certificate.
pub(super) fn user_of(
    der: &[u8],
    certificate: &X509Certificate<'_>,
) -> Result<User, CertificateError> {
    let name = common_name(certificate)?;
    if name.is_empty() {
        return Err(CertificateError::NoName);
    }
    let uid = match &*attributes(certificate, &UID)? {
        [] => String::new(),
        [uid] if !uid.is_empty() => uid.clone(),
        _ => return Err(CertificateError::Uid),
    };
    let id = format!("X509SHA256={}", sha256(der));
    let mut user = User {
        name,
        uid,
        groups: attributes(certificate, &OID_X509_ORGANIZATION_NAME)?,
        extra: BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![id])]),
    };
    if let Some(name) = reserved(&user) {
        let name = name.to_owned();
        return Err(CertificateError::Reserved { name });
    }
    user.add_authenticated_group();
    Ok(user)
}

/// Returns the name or group of `user` that no certificate may have, if there is one.
fn reserved(user: &User) -> Option<&str> {
    let is_reserved = user.name.starts_with(User::SERVICE_ACCOUNT)
        || user.name == User::ANONYMOUS
        || user.name == User::UNAUTHENTICATED;
    if is_reserved {
        return Some(&user.name);
    }
    let mut groups = user.groups.iter().map(String::as_str);
    groups.find(|group| *group == User::UNAUTHENTICATED)
}

/// Returns the last common name, as Go does; an empty string if there is none.
pub(super) fn common_name(certificate: &X509Certificate<'_>) -> Result<String, CertificateError> {
    let names = attributes(certificate, &OID_X509_COMMON_NAME)?;
    Ok(names.into_iter().next_back().unwrap_or_default())
}

/// Returns the values of an attribute of the subject, in order.
fn attributes(
    certificate: &X509Certificate<'_>,
    kind: &Oid<'static>,
) -> Result<Vec<String>, CertificateError> {
    let attributes = certificate.subject().iter_attributes();
    attributes
        .filter(|attribute| attribute.attr_type() == kind)
        .map(|attribute| match attribute.as_str() {
            Ok(text) if !text.contains(char::is_control) => Ok(text.to_owned()),
            _ => Err(CertificateError::NotText),
        })
        .collect()
}

/// Returns the SHA-256 of `bytes` in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("writing to a string does not fail");
        hex
    })
}
