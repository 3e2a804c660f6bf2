//! The files that kubefan reads and opens before its listeners accept connections. Problems with
//! these files are reported at once, because waiting does not help.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use tokio::task::spawn_blocking;

use super::tls::Certificate;
use crate::config::ServeConfig;
use crate::identity;
use crate::identity::AuthorityFiles;
use crate::line_log::{LineLog, LogKind};
use crate::net::Acceptor;
use crate::server::Consumers;
use crate::traces::Traces;

/// The certificates of the listeners, the authorities in files, and the logs and traces of requests.
pub(super) struct Files {
    pub(super) certificate: Option<Certificate>,
    pub(super) admin_certificate: Option<Certificate>,
    /// The authorities of client certificates, unless no listener asks for such certificates.
    pub(super) authorities: Option<AuthorityFiles>,
    /// The logs and the traces, which get the records of requests. There is no bill among them.
    pub(super) logs: Consumers,
}

impl Files {
    /// Reads the files that `config` names. Blocks no thread of the runtime, because a file may be
    /// a pipe, or be on a file system that does not answer. Cancel safe.
    ///
    /// # Errors
    /// If a file can't be read or written, or does not contain what is expected.
    pub(super) async fn read(config: &ServeConfig, registry: &Registry) -> anyhow::Result<Self> {
        let (given, registry) = (config.clone(), registry.clone());
        let read = spawn_blocking(move || -> anyhow::Result<Self> {
            let certificate = Certificate::of_clients(&given.tls, given.listen)?;
            let admin_certificate = Certificate::of_admin(&given.admin, certificate.as_ref())?;
            let open = |kind, flag, path: &Option<PathBuf>| {
                let log = path
                    .as_deref()
                    .map(|path| open_log(kind, flag, path, &registry));
                log.transpose()
            };
            let logs = Consumers {
                audit: open(LogKind::Audit, "--audit-log-path", &given.audit_log)?,
                access_log: open(LogKind::Access, "--access-log-path", &given.access_log)?,
                traces: None,
                bill: None,
            };
            let files = Self {
                certificate,
                admin_certificate,
                authorities: None,
                logs,
            };
            files.sample_certificates(&registry);
            Ok(files)
        });
        let mut files = read.await.context("cannot read the files")??;
        if let Some(sources) = config.authorities.clone()
            && config.access.mode != identity::Mode::None
            && !files.asking(config).is_empty()
        {
            files.authorities = Some(sources.read().await?);
        }
        Ok(files)
    }

    /// Starts to send spans, if `config` names a collector.
    ///
    /// # Errors
    /// If a file that it needs can't be used.
    pub(super) async fn start_traces(
        &mut self,
        config: &ServeConfig,
        registry: &Registry,
        shutdown: &Shutdown,
    ) -> anyhow::Result<()> {
        if let Some(config) = config.traces.clone() {
            let traces = Traces::start(config, registry, shutdown).await;
            self.logs.traces = Some(traces.context("--tracing-endpoint")?);
        }
        Ok(())
    }

    /// Shows the ends of the certificates in `registry`.
    fn sample_certificates(&self, registry: &Registry) {
        let certificates = [
            ("clients", &self.certificate),
            ("admin", &self.admin_certificate),
        ];
        let acceptors = certificates
            .into_iter()
            .filter_map(|(listener, certificate)| {
                let certificate = certificate.as_ref()?;
                Some((listener, certificate.acceptor.clone()))
            });
        let acceptors: Vec<_> = acceptors.collect();
        registry.on_scrape(move |samples| {
            for (listener, acceptor) in &acceptors {
                let Some(end) = acceptor.valid_until() else {
                    continue;
                };
                samples.gauge(
                    "kubefan_serving_certificate_expiration_timestamp_seconds",
                    "When the first certificate of the chain that a listener serves expires, in \
                     seconds since 1970.",
                    &[("listener", *listener)],
                    end as f64,
                );
            }
        });
    }

    /// Returns the TLS acceptors of the listeners that authenticate callers. These listeners may
    /// ask for client certificates.
    pub(super) fn asking(&self, config: &ServeConfig) -> Vec<Acceptor> {
        let admin = self.admin_certificate.as_ref();
        let admin = admin.filter(|_| config.admin.access.is_some());
        let certificates = self.certificate.iter().chain(admin);
        certificates.map(|own| own.acceptor.clone()).collect()
    }

    /// Makes the listeners that authenticate callers ask for client certificates. Their connections
    /// may begin before the authorities are loaded.
    pub(super) fn request_client_certificates(&self, config: &ServeConfig) {
        if self.authorities.is_some() {
            for acceptor in self.asking(config) {
                acceptor.request_client_certificates(Vec::new());
            }
        }
    }

    /// Reloads the certificates when their files change.
    pub(super) async fn watch(&self, shutdown: &Shutdown) -> anyhow::Result<()> {
        let certificates = [&self.certificate, &self.admin_certificate];
        for certificate in certificates.into_iter().flatten() {
            certificate.watch(shutdown).await?;
        }
        Ok(())
    }
}

fn open_log(
    kind: LogKind,
    flag: &str,
    path: &Path,
    registry: &Registry,
) -> anyhow::Result<Arc<LineLog>> {
    let log = LineLog::open(kind, path, registry);
    let log = log.with_context(|| format!("{flag}: cannot open {}", path.display()));
    log.map(Arc::new)
}
