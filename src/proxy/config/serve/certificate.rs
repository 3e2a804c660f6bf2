//! Which certificate a listener serves, by its settings `tls.certFile`, `tls.keyFile` and
//! `tls.selfSigned`. The listener for clients and the admin listener share this decision.

use std::path::PathBuf;

use crate::config::sources::Sources;

/// The keys of a listener's settings.
pub(super) struct CertificateKeys {
    pub(super) certificate: &'static str,
    pub(super) key: &'static str,
    pub(super) self_signed: &'static str,
}

/// The certificate that a listener serves.
pub(super) enum ListenerCertificate {
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
    SelfSigned,
    /// No certificate: plain HTTP.
    Plain,
}

/// A mistake in one setting: its key, and what is wrong.
pub(super) type Mistake = (&'static str, String);

impl CertificateKeys {
    /// Returns the certificate that settings with these values choose.
    ///
    /// # Errors
    /// If a file is missing, or is set beside `self_signed`.
    pub(super) fn choose(
        &self,
        certificate: Option<&PathBuf>,
        key: Option<&PathBuf>,
        is_self_signed: bool,
        sources: &Sources,
    ) -> Result<ListenerCertificate, Mistake> {
        let needs = |missing, given| {
            let missing = sources.name(missing, given);
            Err((given, format!("needs {missing} too")))
        };
        match (certificate, key) {
            (Some(_), Some(_)) if is_self_signed => {
                let other = sources.name(self.certificate, self.self_signed);
                Err((self.self_signed, format!("can't be used with {other}")))
            }
            (Some(certificate), Some(key)) => Ok(ListenerCertificate::Files {
                certificate: certificate.clone(),
                key: key.clone(),
            }),
            (Some(_), None) => needs(self.key, self.certificate),
            (None, Some(_)) => needs(self.certificate, self.key),
            (None, None) if is_self_signed => Ok(ListenerCertificate::SelfSigned),
            (None, None) => Ok(ListenerCertificate::Plain),
        }
    }
}
