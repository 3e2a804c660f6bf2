//! The certificates of the listeners, and the authorities of client certificates.

use std::net::SocketAddr;

use anyhow::Context;
use kubefan_core::shutdown::Shutdown;

use crate::config::{AdminConfig, AdminTls, Tls};
use crate::identity::{AccessControl, AuthorityFiles, WatchedFiles};
use crate::net;
use crate::net::Acceptor;

/// The names that all certificates that kubefan creates contain.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A certificate that a listener serves, and its files, if it is from files.
pub(super) struct Certificate {
    pub(super) acceptor: Acceptor,
    files: Option<net::TlsFiles>,
}

impl Certificate {
    fn of(files: net::TlsFiles) -> anyhow::Result<Self> {
        Ok(Self {
            acceptor: Acceptor::from_files(&files)?,
            files: Some(files),
        })
    }

    /// Returns the certificate for clients; `None` without TLS. A certificate of kubefan's own CA
    /// contains the address in `listen`, unless `listen` is every address of the machine.
    pub(super) fn of_clients(tls: &Tls, listen: SocketAddr) -> anyhow::Result<Option<Self>> {
        let files = match tls {
            Tls::Plain => return Ok(None),
            Tls::Files(files) => files.clone(),
            Tls::SelfSigned { directory } => {
                let self_signed = net::SelfSigned {
                    directory: directory.clone(),
                    names: names(listen),
                };
                self_signed.ensure()?.server
            }
        };
        Self::of(files).map(Some)
    }

    /// Returns the certificate of the admin listener; `None` without TLS. `clients` is the
    /// certificate for clients.
    pub(super) fn of_admin(
        admin: &AdminConfig,
        clients: Option<&Self>,
    ) -> anyhow::Result<Option<Self>> {
        let certificate = match &admin.tls {
            AdminTls::Plain => return Ok(None),
            // The acceptor for clients reloads the files.
            AdminTls::AsClients => {
                return Ok(clients.map(|clients| Self {
                    acceptor: clients.acceptor.clone(),
                    files: None,
                }));
            }
            AdminTls::Files(files) => Self::of(files.clone()),
            AdminTls::Throwaway => {
                Acceptor::with_throwaway_certificate(&names(admin.listen)).map(|acceptor| Self {
                    acceptor,
                    files: None,
                })
            }
        };
        certificate.context("--admin-listen").map(Some)
    }

    /// Reloads the certificate when its files change.
    pub(super) async fn watch(&self, shutdown: &Shutdown) -> anyhow::Result<()> {
        let Some(files) = self.files.clone() else {
            return Ok(());
        };
        let acceptor = self.acceptor.clone();
        let paths = vec![files.certificate.clone(), files.key.clone()];
        let watched = WatchedFiles::read(paths).await?;
        watched.watch(shutdown, move |_| acceptor.reload(&files));
        Ok(())
    }
}

/// Returns the names of a certificate that kubefan creates for a listener at `listen`.
fn names(listen: SocketAddr) -> Vec<String> {
    let mut names = LOOPBACK_NAMES.map(str::to_owned).to_vec();
    let address = listen.ip();
    if !address.is_loopback() && !address.is_unspecified() {
        names.push(address.to_string());
    }
    names
}

/// Loads the authorities of client certificates. While there are any, the listeners with
/// `acceptors` ask clients for their certificates.
pub(super) async fn load_authorities(
    access: &AccessControl,
    files: AuthorityFiles,
    acceptors: Vec<Acceptor>,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let on_change = move |names: Vec<_>| {
        for acceptor in &acceptors {
            if names.is_empty() {
                acceptor.request_no_client_certificates()
            } else {
                acceptor.request_client_certificates(names.clone())
            }
        }
    };
    access.load_authorities(files, on_change, shutdown).await
}
