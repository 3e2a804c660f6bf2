//! Whether clients connect with TLS.

use std::path::PathBuf;

use super::certificate::{CertificateKeys, ListenerCertificate};
use super::checker::Checker;

/// Whether clients connect with TLS, and the certificate that they get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Clients connect with plain HTTP.
    Plain,
    /// Clients connect with TLS; the certificate is from files.
    Files {
        /// Path of the certificate chain (PEM).
        certificate: PathBuf,
        /// Path of the certificate's private key (PEM).
        key: PathBuf,
    },
    /// Clients connect with TLS; the certificate is from kubefan's own CA, which is created if it
    /// does not exist.
    SelfSigned {
        /// The directory of the CA, the certificate and their keys.
        directory: PathBuf,
    },
}

impl Checker<'_> {
    pub(super) fn tls(&mut self) -> Tls {
        const KEYS: CertificateKeys = CertificateKeys {
            certificate: "listen.tls.certFile",
            key: "listen.tls.keyFile",
            self_signed: "listen.tls.selfSigned",
        };
        const DIRECTORY: &str = "listen.tls.directory";
        let tls = &self.settings.listen.tls;
        let (certificate, key) = (tls.cert_file.as_ref(), tls.key_file.as_ref());
        let (key, message) = match KEYS.choose(certificate, key, tls.self_signed, self.sources) {
            Ok(ListenerCertificate::Files { certificate, key }) => {
                return Tls::Files { certificate, key };
            }
            Ok(ListenerCertificate::SelfSigned) => {
                match tls.directory.clone().or_else(default_tls_dir) {
                    Some(directory) => return Tls::SelfSigned { directory },
                    None => {
                        let other = self.sources.name(DIRECTORY, KEYS.self_signed);
                        let message = format!("needs {other}, because HOME is not set");
                        (KEYS.self_signed, message)
                    }
                }
            }
            Ok(ListenerCertificate::Plain) if tls.directory.is_some() => {
                let other = self.sources.name(KEYS.self_signed, DIRECTORY);
                let message = format!("has no effect without {other}; add it");
                (DIRECTORY, message)
            }
            Ok(ListenerCertificate::Plain) => return Tls::Plain,
            Err(mistake) => mistake,
        };
        self.report(key, &message);
        Tls::Plain
    }
}

/// Returns the default of `--tls-dir`: `kubefan/tls` in the user's state directory (XDG Base
/// Directory Specification). `None` if neither `XDG_STATE_HOME` nor `HOME` is set.
pub fn default_tls_dir() -> Option<PathBuf> {
    let directory = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = match directory("XDG_STATE_HOME") {
        Some(state) => PathBuf::from(state),
        None => PathBuf::from(directory("HOME")?).join(".local/state"),
    };
    Some(state.join("kubefan/tls"))
}
