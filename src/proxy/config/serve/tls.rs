//! Whether clients connect with TLS.

use std::path::PathBuf;

use super::certificate::ListenerCertificate;
use super::checker::Checker;
use crate::net::TlsFiles;

/// Whether clients connect with TLS, and the certificate that they get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Clients connect with plain HTTP.
    Plain,
    /// Clients connect with TLS; the certificate is from files.
    Files(TlsFiles),
    /// Clients connect with TLS; the certificate is from kubefan's own CA, which is created if it
    /// does not exist.
    SelfSigned {
        /// The directory of the CA, the certificate and their keys.
        directory: PathBuf,
    },
}

impl Checker<'_> {
    pub(super) fn tls(&mut self) -> Tls {
        const SELF_SIGNED: &str = "listen.tls.selfSigned";
        const DIRECTORY: &str = "listen.tls.directory";
        let tls = &self.settings.listen.tls;
        let files = (tls.cert_file.as_ref(), tls.key_file.as_ref());
        match self.certificate("listen", files, tls.self_signed) {
            Some(ListenerCertificate::Files(files)) => return Tls::Files(files),
            Some(ListenerCertificate::SelfSigned) => {
                if let Some(directory) = tls.directory.clone().or_else(default_tls_dir) {
                    return Tls::SelfSigned { directory };
                }
                let other = self.sources.name(DIRECTORY, SELF_SIGNED);
                let message = format!("needs {other}, because HOME is not set");
                self.report(SELF_SIGNED, &message);
            }
            Some(ListenerCertificate::Plain) if tls.directory.is_some() => {
                let other = self.sources.name(SELF_SIGNED, DIRECTORY);
                self.report(DIRECTORY, &format!("has no effect without {other}; add it"));
            }
            Some(ListenerCertificate::Plain) | None => {}
        }
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
