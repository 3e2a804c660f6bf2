//! How the admin listener is served, and which requests it answers.

use std::net::SocketAddr;

use super::certificate::ListenerCertificate;
use super::checker::Checker;
use super::tls::Tls;
use crate::identity;
use crate::net::TlsFiles;

const ADDRESS: &str = "admin.address";
const ACCEPTED: &str = "admin.insecureExposeToNetwork";

/// A checked configuration of the admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// Address for /livez, /readyz, /metrics, the admin API and its dashboard.
    pub listen: SocketAddr,
    /// Whether probes and scrapes connect with TLS, and the certificate that they get.
    pub tls: AdminTls,
    /// How callers are authenticated, but for /livez, /readyz and the page; `None` to answer all.
    pub access: Option<identity::Config>,
    /// True if programs on other machines can read the metrics without credentials. The operator
    /// has accepted this. The listener then has no admin API.
    pub is_exposed: bool,
}

/// Whether the admin listener serves TLS, and the certificate that it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminTls {
    /// Plain HTTP.
    Plain,
    /// The certificate of the listener for clients.
    AsClients,
    /// A certificate from files.
    Files(TlsFiles),
    /// A new certificate that is in no file, so that no client can verify it.
    Throwaway,
}

impl AdminConfig {
    /// Returns a configuration with plain HTTP on a free port of 127.0.0.1.
    pub fn loopback() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: AdminTls::Plain,
            access: None,
            is_exposed: false,
        }
    }
}

impl Checker<'_> {
    /// Returns the admin listener beside a listener for clients with `clients_tls` and `clients`.
    /// On an address that is not loopback, the admin listener needs TLS, and authorizes every
    /// request that shows more than whether kubefan is ready.
    pub(super) fn admin(
        &mut self,
        clients_tls: &Tls,
        clients: &identity::Config,
    ) -> Option<AdminConfig> {
        let admin = &self.settings.admin;
        let listen = self.address(ADDRESS, &admin.address)?;
        let is_accepted = admin.insecure_expose_to_network;
        let mut tls = self.admin_tls()?;
        let is_loopback = listen.ip().is_loopback();
        if is_loopback && is_accepted {
            let message = "has no effect: the admin listener is not exposed; leave it out";
            self.report(ACCEPTED, message);
        }
        let needs_access = !is_loopback && !is_accepted;
        if needs_access && tls == AdminTls::Plain {
            if *clients_tls == Tls::Plain {
                self.report_plain_admin();
                return None;
            }
            tls = AdminTls::AsClients;
        }
        Some(AdminConfig {
            listen,
            tls,
            access: needs_access.then(|| access(clients)),
            is_exposed: !is_loopback && is_accepted,
        })
    }

    fn report_plain_admin(&mut self) {
        let name = |key| self.sources.name(key, ADDRESS);
        let message = format!(
            "{} is not loopback: there the metrics need TLS, and callers with the right to get \
             /metrics; serve TLS with {} and {}, or with {}, or let everyone read the metrics with {}",
            self.settings.admin.address,
            name("admin.tls.certFile"),
            name("admin.tls.keyFile"),
            name("admin.tls.selfSigned"),
            name(ACCEPTED),
        );
        self.report(ADDRESS, &message);
    }

    fn admin_tls(&mut self) -> Option<AdminTls> {
        let tls = &self.settings.admin.tls;
        let files = (tls.cert_file.as_ref(), tls.key_file.as_ref());
        let certificate = self.certificate("admin", files, tls.self_signed)?;
        Some(match certificate {
            ListenerCertificate::Files(files) => AdminTls::Files(files),
            ListenerCertificate::SelfSigned => AdminTls::Throwaway,
            ListenerCertificate::Plain => AdminTls::Plain,
        })
    }
}

/// Returns how the callers of the admin listener are authenticated: like `clients`. If clients are
/// not authenticated, the API server is asked with the caller's own token, for which kubefan needs
/// no rights.
fn access(clients: &identity::Config) -> identity::Config {
    let mode = match clients.mode {
        identity::Mode::None => identity::Mode::Caller,
        authenticated => authenticated,
    };
    identity::Config {
        mode,
        ..clients.clone()
    }
}

#[cfg(test)]
mod tests {
    use identity::Mode;

    use super::*;
    use crate::config::tests::resolved;

    #[test]
    fn beyond_loopback_the_metrics_need_tls_and_a_caller_with_the_right() {
        let files = AdminTls::Files(TlsFiles {
            certificate: "c".into(),
            key: "k".into(),
        });
        let with_files = "--admin-tls-cert-file c --admin-tls-private-key-file k";
        let client_tls = "--tls-self-signed --tls-dir x";
        let exposed = "--admin-insecure-expose-to-network";
        for (line, tls, mode) in [
            ("", AdminTls::Plain, None),
            ("--admin-listen [::1]:0", AdminTls::Plain, None),
            (client_tls, AdminTls::Plain, None),
            (with_files, files.clone(), None),
            (
                &format!("--admin-listen 0.0.0.0:1 {with_files}"),
                files.clone(),
                Some(Mode::Caller),
            ),
            (
                "--admin-listen [::]:1 --admin-tls-self-signed",
                AdminTls::Throwaway,
                Some(Mode::Caller),
            ),
            (
                &format!("--admin-listen 0.0.0.0:1 {client_tls} --auth delegated"),
                AdminTls::AsClients,
                Some(Mode::Delegated),
            ),
            (
                &format!("--admin-listen 0.0.0.0:1 {client_tls} --auth none"),
                AdminTls::AsClients,
                Some(Mode::Caller),
            ),
            (
                &format!("--admin-listen 0.0.0.0:1 {client_tls} {exposed}"),
                AdminTls::Plain,
                None,
            ),
            (
                &format!("--admin-listen 0.0.0.0:1 {with_files} {exposed}"),
                files,
                None,
            ),
        ] {
            let admin = resolved("", line).expect(line).serve.admin;
            assert_eq!(admin.tls, tls, "{line}");
            assert_eq!(admin.access.map(|access| access.mode), mode, "{line}");
            assert_eq!(admin.is_exposed, line.contains(exposed), "{line}");
        }
    }

    #[test]
    fn mistakes_name_the_flags_that_would_be_right() {
        for (line, expected) in [
            (
                "--admin-listen 0.0.0.0:8002",
                "--admin-listen: 0.0.0.0:8002 is not loopback: there the metrics need TLS, and callers \
                 with the right to get /metrics; serve TLS with --admin-tls-cert-file and \
                 --admin-tls-private-key-file, or with --admin-tls-self-signed, or let everyone read \
                 the metrics with --admin-insecure-expose-to-network",
            ),
            (
                "--admin-insecure-expose-to-network",
                "--admin-insecure-expose-to-network: has no effect",
            ),
            (
                "--admin-tls-cert-file c",
                "--admin-tls-cert-file: needs --admin-tls-private-key-file too",
            ),
            (
                "--admin-tls-private-key-file k",
                "--admin-tls-private-key-file: needs --admin-tls-cert-file too",
            ),
            (
                "--admin-tls-self-signed --admin-tls-cert-file c --admin-tls-private-key-file k",
                "--admin-tls-self-signed: can't be used with --admin-tls-cert-file",
            ),
        ] {
            let problems = resolved("", line).expect_err(line);
            assert!(problems.starts_with(expected), "{line}: {problems}");
            assert_eq!(problems.lines().count(), 1, "{problems}");
        }
    }
}
