//! Which certificate a listener serves, by its settings `tls.certFile`, `tls.keyFile` and
//! `tls.selfSigned`. The listener for clients and the admin listener share this decision.

use std::path::PathBuf;

use super::checker::Checker;
use crate::net::TlsFiles;

/// The certificate that a listener serves.
pub(super) enum ListenerCertificate {
    Files(TlsFiles),
    SelfSigned,
    /// No certificate: plain HTTP.
    Plain,
}

impl Checker<'_> {
    /// Returns the certificate that the settings with these values choose. They belong to the
    /// listener of `section`. If a file is missing, or is set beside `is_self_signed`, reports a
    /// problem and returns `None`.
    pub(super) fn certificate(
        &mut self,
        section: &str,
        files: (Option<&PathBuf>, Option<&PathBuf>),
        is_self_signed: bool,
    ) -> Option<ListenerCertificate> {
        let key_of = |name: &str| format!("{section}.tls.{name}");
        let needs = |missing: &str, given: &str| {
            let missing = self.sources.name(&key_of(missing), &key_of(given));
            (key_of(given), format!("needs {missing} too"))
        };
        let (wrong, message) = match files {
            (Some(_), Some(_)) if is_self_signed => {
                let wrong = key_of("selfSigned");
                let other = self.sources.name(&key_of("certFile"), &wrong);
                (wrong, format!("can't be used with {other}"))
            }
            (Some(certificate), Some(key)) => {
                return Some(ListenerCertificate::Files(TlsFiles {
                    certificate: certificate.clone(),
                    key: key.clone(),
                }));
            }
            (Some(_), None) => needs("keyFile", "certFile"),
            (None, Some(_)) => needs("certFile", "keyFile"),
            (None, None) if is_self_signed => return Some(ListenerCertificate::SelfSigned),
            (None, None) => return Some(ListenerCertificate::Plain),
        };
        self.report(&wrong, &message);
        None
    }
}
