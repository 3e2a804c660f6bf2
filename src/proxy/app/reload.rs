//! Applies a changed configuration to a running kubefan, after SIGHUP and when the file has
//! changed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use kubefan_core::informer::{InformerSet, LiveRestMapper, Requirement, ResourceRules};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::{LogHandle, Registry};
use parking_lot::Mutex;
use prometheus::IntCounterVec;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::resources::{check_rules, require_configured, resources_to_cache};
use crate::config::{Problems, ResolvedConfig, ServeConfig};
use crate::identity::WatchedFiles;
use crate::server::{Admin, Server};

/// The parts of a running kubefan that a changed configuration is applied to.
pub(super) struct Live {
    pub(super) informers: InformerSet,
    pub(super) rest_mapper: Arc<LiveRestMapper>,
    pub(super) server: Server,
    pub(super) admin: Admin,
    pub(super) registry: Registry,
    pub(super) shutdown: Shutdown,
}

/// The source that the configuration is read from again.
pub struct ConfigSource {
    /// The configuration that kubefan was started with.
    pub started: ResolvedConfig,
    /// The file of the configuration, if there is one.
    pub file: Option<PathBuf>,
    /// Reads the configuration again.
    pub load: Box<dyn Fn() -> Result<ResolvedConfig, Problems> + Send + Sync>,
    /// The log of the process.
    pub log: LogHandle,
}

struct Reloader {
    live: Arc<Live>,
    source: ConfigSource,
    /// The configuration that was last applied.
    applied: Mutex<Option<ResolvedConfig>>,
    reloads: IntCounterVec,
}

/// The configuration file as it was when kubefan began to start, and the signals that make kubefan
/// read it again.
pub struct ConfigWatch {
    source: ConfigSource,
    file: Option<WatchedFiles>,
    hangups: Signal,
}

// === impl ConfigWatch ===

impl ConfigWatch {
    /// Reads the file. Changes from now on will be applied, even those before the watch runs. After
    /// each of `hangups`, or several at once, kubefan reads its configuration again.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub async fn begin(source: ConfigSource, hangups: Signal) -> anyhow::Result<Self> {
        let file = match &source.file {
            Some(file) => Some(WatchedFiles::read(vec![file.clone()]).await?),
            None => None,
        };
        Ok(Self {
            source,
            file,
            hangups,
        })
    }

    /// Returns the configuration that kubefan was started with.
    pub fn started(&self) -> &ServeConfig {
        &self.source.started.serve
    }

    /// Reads the configuration again after each SIGHUP, and when its file has changed, and applies
    /// it to `live`.
    pub(super) fn run(self, live: Arc<Live>) {
        let shutdown = live.shutdown.clone();
        let started = &self.source.started;
        live.show(started, started);
        let mut hangups = self.hangups;
        let reloads = live.registry.counter_vec(
            "kubefan_config_reloads_total",
            "How often the configuration was read again: applied, or refused because of mistakes.",
            &["result"],
        );
        let reloader = Arc::new(Reloader {
            live,
            source: self.source,
            applied: Mutex::default(),
            reloads,
        });
        if let Some(file) = self.file {
            let changed = Arc::clone(&reloader);
            file.watch(&shutdown, move |_| changed.reload());
        }
        shutdown.spawn_background(async move {
            while hangups.recv().await.is_some() {
                tracing::info!("SIGHUP: reading the configuration again");
                if let Err(error) = reloader.reload() {
                    let error = format!("{error:#}");
                    tracing::warn!(
                        error,
                        "the configuration can't be used; the old one stays in use"
                    );
                }
            }
        });
    }
}

/// Returns the SIGHUPs of this process from this call on. Before this call, a SIGHUP ends the
/// process.
///
/// # Errors
///
/// If the signal handler cannot be installed.
///
/// # Panics
///
/// Outside of a tokio runtime.
pub fn hangups() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}

// === impl Reloader ===

impl Reloader {
    /// Reads the configuration and applies it. If there are mistakes, changes nothing and returns
    /// them.
    fn reload(&self) -> Result<(), anyhow::Error> {
        let reloaded = self.try_reload();
        let result = if reloaded.is_ok() {
            "applied"
        } else {
            "refused"
        };
        self.reloads.with_label_values(&[result]).inc();
        reloaded
    }

    fn try_reload(&self) -> Result<(), anyhow::Error> {
        let new = (self.source.load)()?;
        let mut applied = self.applied.lock();
        let before = applied.as_ref().unwrap_or(&self.source.started);
        let (changed, _) = new.changes(before)?;
        let (_, outdated) = new.changes(&self.source.started)?;
        self.live.apply(&new.serve)?;
        self.source.log.set_verbosity(new.log)?;
        self.live.show(&new, &self.source.started);
        *applied = Some(new);
        if changed.is_empty() {
            tracing::info!("no setting has changed that can be applied without a restart")
        } else {
            tracing::info!(keys = changed.join(", "), "changed settings are in use")
        }
        if !outdated.is_empty() {
            let keys = outdated.join(", ");
            tracing::warn!(
                keys,
                "changed settings are not in use: restart to apply them"
            );
        }
        Ok(())
    }
}

// === impl Live ===

impl Live {
    /// Makes the admin API show the settings of `config`, as far as a kubefan that was started with
    /// `started` uses them.
    fn show(&self, config: &ResolvedConfig, started: &ResolvedConfig) {
        match config.in_use(started) {
            Ok(settings) => self.admin.show_settings(settings),
            Err(error) => tracing::warn!(%error, "the configuration can't be shown"),
        }
    }

    /// Applies all settings that can change, or none of them.
    fn apply(&self, config: &ServeConfig) -> Result<(), anyhow::Error> {
        let (informers, mapper) = (&self.informers, &self.rest_mapper);
        let before = mapper.replace_rules(config.rules.clone());
        let required = check_rules(config, mapper)
            .and_then(|()| resources_to_cache(&config.resources, mapper));
        let required = required.inspect_err(|_| {
            mapper.replace_rules(ResourceRules::clone(&before));
        })?;
        informers.set_config(&config.informer);
        informers.require_none();
        mapper.apply_rules(informers);
        // All replicas read the same file. A resource that they may not list must not make all of
        // them unready.
        require_configured(Requirement::IfAllowed, required, mapper, informers);
        self.server.set_limits(&config.requests);
        Ok(())
    }
}
