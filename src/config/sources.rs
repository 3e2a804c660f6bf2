//! Combines defaults, file, environment variables and flags into the settings, and records the
//! origin of each. Flags override environment variables, which override the file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::path::PathBuf;

use clap::Arg;
use clap::Args;
use clap::Command;
use clap::parser::ValueSource;

use super::GlobalArgs;
use super::ServeArgs;
use super::cached_resource::CachedResource;
use super::file;
use super::problem::Location;
use super::problem::Position;
use super::problem::Problem;
use super::settings::Settings;
use super::units::ByteSize;
use super::units::Period;

/// A setting, with its key in the file and its flag.
pub(super) struct Setting {
    /// Key in the file, such as `listen.address`.
    pub(super) key: &'static str,
    /// Field of [`ServeArgs`] or [`GlobalArgs`]; also clap's id of the argument.
    pub(super) field: &'static str,
    /// Copies the value of the parsed argument into the settings.
    pub(super) set: fn(&mut Settings, &GlobalArgs, &ServeArgs),
}

/// Every setting, in the order of `config/kubefan.yaml`.
pub(super) const SETTINGS: [Setting; 67] = [
    setting("upstream.kubeconfig", "kubeconfig", |to, _, serve| {
        to.upstream.kubeconfig.clone_from(&serve.kubeconfig);
    }),
    setting("upstream.context", "context", |to, _, serve| {
        to.upstream.context.clone_from(&serve.context);
    }),
    setting("listen.address", "listen", |to, _, serve| {
        to.listen.address.clone_from(&serve.listen);
    }),
    setting(
        "listen.insecureExposeToNetwork",
        "insecure_expose_to_network",
        |to, _, serve| {
            to.listen.insecure_expose_to_network = serve.insecure_expose_to_network;
        },
    ),
    setting("listen.tls.certFile", "tls_cert_file", |to, _, serve| {
        to.listen.tls.cert_file.clone_from(&serve.tls_cert_file);
    }),
    setting(
        "listen.tls.keyFile",
        "tls_private_key_file",
        |to, _, serve| {
            to.listen
                .tls
                .key_file
                .clone_from(&serve.tls_private_key_file);
        },
    ),
    setting(
        "listen.tls.selfSigned",
        "tls_self_signed",
        |to, _, serve| {
            to.listen.tls.self_signed = serve.tls_self_signed;
        },
    ),
    setting("listen.tls.directory", "tls_dir", |to, _, serve| {
        to.listen.tls.directory.clone_from(&serve.tls_dir);
    }),
    setting(
        "listen.proxyProtocolFrom",
        "proxy_protocol_from",
        |to, _, serve| {
            to.listen
                .proxy_protocol_from
                .clone_from(&serve.proxy_protocol_from);
        },
    ),
    setting("listen.threads", "threads", |to, _, serve| {
        to.listen.threads = serve.threads;
    }),
    setting("admin.address", "admin_listen", |to, _, serve| {
        to.admin.address.clone_from(&serve.admin_listen);
    }),
    setting(
        "admin.insecureExposeToNetwork",
        "admin_insecure_expose_to_network",
        |to, _, serve| {
            to.admin.insecure_expose_to_network = serve.admin_insecure_expose_to_network;
        },
    ),
    setting(
        "admin.tls.certFile",
        "admin_tls_cert_file",
        |to, _, serve| {
            to.admin
                .tls
                .cert_file
                .clone_from(&serve.admin_tls_cert_file);
        },
    ),
    setting(
        "admin.tls.keyFile",
        "admin_tls_private_key_file",
        |to, _, serve| {
            to.admin
                .tls
                .key_file
                .clone_from(&serve.admin_tls_private_key_file);
        },
    ),
    setting(
        "admin.tls.selfSigned",
        "admin_tls_self_signed",
        |to, _, serve| {
            to.admin.tls.self_signed = serve.admin_tls_self_signed;
        },
    ),
    setting("authentication.mode", "auth", |to, _, serve| {
        to.authentication.mode = serve.auth;
    }),
    setting(
        "authentication.anonymous",
        "anonymous_auth",
        |to, _, serve| {
            to.authentication.anonymous = serve.anonymous_auth;
        },
    ),
    setting(
        "authentication.clientCertificates",
        "client_certificates",
        |to, _, serve| {
            to.authentication.client_certificates = serve.client_certificates;
        },
    ),
    setting(
        "authentication.clientCaFile",
        "client_ca_file",
        |to, _, serve| {
            to.authentication
                .client_ca_file
                .clone_from(&serve.client_ca_file);
        },
    ),
    setting(
        "authentication.requestheaderClientCaFile",
        "requestheader_client_ca_file",
        |to, _, serve| {
            to.authentication
                .requestheader_client_ca_file
                .clone_from(&serve.requestheader_client_ca_file);
        },
    ),
    setting(
        "authentication.requestheaderAllowedNames",
        "requestheader_allowed_names",
        |to, _, serve| {
            to.authentication
                .requestheader_allowed_names
                .clone_from(&serve.requestheader_allowed_names);
        },
    ),
    setting(
        "authentication.tokenTtl",
        "authentication_token_cache_ttl",
        |to, _, serve| {
            to.authentication.token_ttl = Period(serve.authentication_token_cache_ttl);
        },
    ),
    setting(
        "authentication.reauthenticate",
        "authentication_reauthenticate",
        |to, _, serve| {
            to.authentication.reauthenticate = Period(serve.authentication_reauthenticate);
        },
    ),
    setting(
        "authorization.allowedTtl",
        "authorization_cache_authorized_ttl",
        |to, _, serve| {
            to.authorization.allowed_ttl = Period(serve.authorization_cache_authorized_ttl);
        },
    ),
    setting(
        "authorization.deniedTtl",
        "authorization_cache_unauthorized_ttl",
        |to, _, serve| {
            to.authorization.denied_ttl = Period(serve.authorization_cache_unauthorized_ttl);
        },
    ),
    setting(
        "authorization.stale",
        "authorization_stale",
        |to, _, serve| {
            to.authorization.stale = Period(serve.authorization_stale);
        },
    ),
    setting(
        "authorization.reauthorize",
        "authorization_reauthorize",
        |to, _, serve| {
            to.authorization.reauthorize = Period(serve.authorization_reauthorize);
        },
    ),
    setting(
        "authorization.maxReviewsPerSecond",
        "authorization_max_reviews",
        |to, _, serve| {
            to.authorization.max_reviews_per_second = serve.authorization_max_reviews;
        },
    ),
    setting(
        "authorization.ignoreExtra",
        "authorization_ignore_extra",
        |to, _, serve| {
            to.authorization
                .ignore_extra
                .clone_from(&serve.authorization_ignore_extra);
        },
    ),
    setting(
        "authorization.namesCovered",
        "authorization_names_covered",
        |to, _, serve| {
            to.authorization.names_covered = serve.authorization_names_covered;
        },
    ),
    setting("audit.logPath", "audit_log_path", |to, _, serve| {
        to.audit.log_path.clone_from(&serve.audit_log_path);
    }),
    setting("cache.resources", "resources", |to, _, serve| {
        let names = serve.resources.iter().cloned();
        to.cache.resources = names.map(CachedResource::Named).collect();
    }),
    setting("cache.all", "all", |to, _, serve| to.cache.all = serve.all),
    setting("cache.never", "never_cache", |to, _, serve| {
        to.cache.never.clone_from(&serve.never_cache);
    }),
    setting(
        "cache.stripManagedFields",
        "strip_managed_fields",
        |to, _, serve| {
            to.cache.strip_managed_fields = serve.strip_managed_fields;
        },
    ),
    setting("cache.secrets", "cache_secrets", |to, _, serve| {
        to.cache.secrets = serve.cache_secrets;
    }),
    setting("cache.indexLabels", "index_labels", |to, _, serve| {
        to.cache.index_labels.clone_from(&serve.index_labels);
    }),
    setting("cache.shardSelector", "shard_selector", |to, _, serve| {
        to.cache.shard_selector = serve.shard_selector;
    }),
    setting("cache.freshness", "freshness", |to, _, serve| {
        to.cache.freshness.clone_from(&serve.freshness);
    }),
    setting("cache.idleTimeout", "idle_timeout", |to, _, serve| {
        to.cache.idle_timeout = Period(serve.idle_timeout);
    }),
    setting("cache.retentionAge", "retention_age", |to, _, serve| {
        to.cache.retention_age = Period(serve.retention_age);
    }),
    setting("cache.retentionBytes", "retention_bytes", |to, _, serve| {
        to.cache.retention_bytes = serve.retention_bytes.map(ByteSize);
    }),
    setting("limits.memory", "memory_limit", |to, _, serve| {
        to.limits.memory = serve.memory_limit.map(ByteSize);
    }),
    setting(
        "limits.connectionMemory",
        "connection_memory_limit",
        |to, _, serve| {
            to.limits.connection_memory = serve.connection_memory_limit.map(ByteSize);
        },
    ),
    setting("limits.minBodyRate", "min_body_rate", |to, _, serve| {
        to.limits.min_body_rate = ByteSize(serve.min_body_rate);
    }),
    setting(
        "limits.maxRequestsInflight",
        "max_requests_inflight",
        |to, _, serve| {
            to.limits.max_requests_inflight = serve.max_requests_inflight;
        },
    ),
    setting(
        "limits.requestTimeout",
        "request_timeout",
        |to, _, serve| {
            to.limits.request_timeout = Period(serve.request_timeout);
        },
    ),
    setting(
        "limits.maxConnections",
        "max_connections",
        |to, _, serve| {
            to.limits.max_connections = serve.max_connections;
        },
    ),
    setting(
        "limits.maxPendingHandshakes",
        "max_pending_handshakes",
        |to, _, serve| {
            to.limits.max_pending_handshakes = serve.max_pending_handshakes;
        },
    ),
    setting(
        "limits.handshakeTimeout",
        "handshake_timeout",
        |to, _, serve| {
            to.limits.handshake_timeout = Period(serve.handshake_timeout);
        },
    ),
    setting("limits.headTimeout", "head_timeout", |to, _, serve| {
        to.limits.head_timeout = Period(serve.head_timeout);
    }),
    setting(
        "limits.maxHeaderBytes",
        "max_header_bytes",
        |to, _, serve| {
            to.limits.max_header_bytes = ByteSize(serve.max_header_bytes);
        },
    ),
    setting("limits.maxUrlBytes", "max_url_bytes", |to, _, serve| {
        to.limits.max_url_bytes = ByteSize(serve.max_url_bytes);
    }),
    setting(
        "limits.http2MaxStreamsPerConnection",
        "http2_max_streams_per_connection",
        |to, _, serve| {
            to.limits.http2_max_streams_per_connection = serve.http2_max_streams_per_connection;
        },
    ),
    setting(
        "limits.http2MaxResetsPerSecond",
        "http2_max_resets_per_second",
        |to, _, serve| {
            to.limits.http2_max_resets_per_second = serve.http2_max_resets_per_second;
        },
    ),
    setting(
        "limits.maxStreamsPerUser",
        "max_streams_per_user",
        |to, _, serve| {
            to.limits.max_streams_per_user = serve.max_streams_per_user;
        },
    ),
    setting(
        "limits.maxWatchesPerUser",
        "max_watches_per_user",
        |to, _, serve| {
            to.limits.max_watches_per_user = serve.max_watches_per_user;
        },
    ),
    setting(
        "limits.maxProofScopesPerUser",
        "max_proof_scopes_per_user",
        |to, _, serve| {
            to.limits.max_proof_scopes_per_user = serve.max_proof_scopes_per_user;
        },
    ),
    setting(
        "limits.maxReviewsInflight",
        "max_reviews_inflight",
        |to, _, serve| {
            to.limits.max_reviews_inflight = serve.max_reviews_inflight;
        },
    ),
    setting(
        "limits.maxFailedAuthenticationsPerSecond",
        "max_failed_authentications_per_second",
        |to, _, serve| {
            to.limits.max_failed_authentications_per_second =
                serve.max_failed_authentications_per_second;
        },
    ),
    setting(
        "limits.maxUnauthorized",
        "max_unauthorized",
        |to, _, serve| {
            to.limits.max_unauthorized = Period(serve.max_unauthorized);
        },
    ),
    setting("limits.maxStaleness", "max_staleness", |to, _, serve| {
        to.limits.max_staleness = serve.max_staleness.map(Period);
    }),
    setting(
        "limits.maxUnindexedSelectors",
        "max_unindexed_selectors",
        |to, _, serve| {
            to.limits.max_unindexed_selectors = serve.max_unindexed_selectors;
        },
    ),
    setting(
        "shutdown.delay",
        "shutdown_delay_duration",
        |to, _, serve| {
            to.shutdown.delay = Period(serve.shutdown_delay_duration);
        },
    ),
    setting(
        "shutdown.gracePeriod",
        "shutdown_grace_period",
        |to, _, serve| {
            to.shutdown.grace_period = Period(serve.shutdown_grace_period);
        },
    ),
    setting("log.format", "log_format", |to, global, _| {
        to.log.format = global.log_format
    }),
    setting("log.verbosity", "verbose", |to, global, _| {
        to.log.verbosity = global.verbose
    }),
];

const fn setting(
    key: &'static str,
    field: &'static str,
    set: fn(&mut Settings, &GlobalArgs, &ServeArgs),
) -> Setting {
    Setting { key, field, set }
}

/// Where the value of a setting is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    File(PathBuf, Option<Position>),
    Environment(String),
    Flag(String),
}

/// Where the values of all settings are from.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Origins by key; a setting without an entry has its default.
    origins: BTreeMap<&'static str, Origin>,
    /// The name of each setting's flag, such as `--listen`, by key, for messages about the setting.
    /// The flag need not be given. Empty if only a file is checked.
    flags: BTreeMap<&'static str, String>,
    /// The positions of all values in the file, by keys such as `cache.resources.0.namespaces`.
    positions: BTreeMap<String, Option<Position>>,
}

/// Overrides the defaults by the file, environment variables and flags. Problems with the file are
/// added to `problems`.
pub(super) fn collect(
    global: &GlobalArgs,
    serve: &ServeArgs,
    problems: &mut Vec<Problem>,
) -> (Settings, Sources) {
    let mut settings = Settings::default();
    let mut sources = Sources::default();
    if let Some(path) = &serve.config {
        let file = file::read(path, problems);
        settings = file.settings;
        sources = Sources::of_file(path, &file.positions);
    }
    let command = GlobalArgs::augment_args(ServeArgs::augment_args(Command::new("serve")));
    for setting in &SETTINGS {
        let mut arguments = command.get_arguments();
        let Some(argument) = arguments.find(|argument| argument.get_id() == setting.field) else {
            continue;
        };
        let flag = format!("--{}", argument.get_long().unwrap_or(setting.field));
        let origin = match global.arg_sources.0.get(setting.field) {
            Some(ValueSource::EnvVariable) => Some(Origin::Environment(variable_of(argument))),
            Some(ValueSource::CommandLine) => Some(Origin::Flag(flag.clone())),
            _ => None,
        };
        if let Some(origin) = origin {
            (setting.set)(&mut settings, global, serve);
            sources.origins.insert(setting.key, origin);
        }
        sources.flags.insert(setting.key, flag);
    }
    (settings, sources)
}

fn variable_of(argument: &Arg) -> String {
    let variable = argument.get_env().unwrap_or_default();
    variable.to_string_lossy().into_owned()
}

// === impl Sources ===

impl Sources {
    /// The origins for the file at `path`, without flags and environment variables. `positions` has
    /// the position in the file of each setting that the file contains, by key.
    pub(super) fn of_file(path: &Path, positions: &BTreeMap<String, Option<Position>>) -> Self {
        let mut sources = Self {
            positions: positions.clone(),
            ..Self::default()
        };
        for setting in &SETTINGS {
            if let Some(position) = positions.get(setting.key) {
                let origin = Origin::File(path.to_owned(), *position);
                sources.origins.insert(setting.key, origin);
            }
        }
        sources
    }

    /// Where the value of the setting `key` is from.
    pub(super) fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    /// Whether `key` was set by a source that has precedence over the source of `other`.
    pub(super) fn overrides(&self, key: &str, other: &str) -> bool {
        let rank = |key| match self.origin(key) {
            Origin::Default => 0,
            Origin::File(..) => 1,
            Origin::Environment(_) => 2,
            Origin::Flag(_) => 3,
        };
        rank(key) > rank(other)
    }

    /// A problem with a setting. Its location is the position in the file, or the name of the flag
    /// or environment variable that set it.
    pub(super) fn problem(&self, key: &'static str, message: &str) -> Problem {
        match self.origin(key) {
            Origin::File(path, position) => Problem {
                location: Location::File {
                    path: path.clone(),
                    position: *position,
                },
                message: format!("{key}: {message}"),
            },
            _ => Problem {
                location: Location::Named(self.name(key, key)),
                message: message.to_owned(),
            },
        }
    }

    /// Like [`Sources::problem`], with the element `index` of the list `key`, or its key `part`.
    pub(super) fn problem_in(
        &self,
        key: &'static str,
        (index, part): (usize, Option<&str>),
        message: &str,
    ) -> Problem {
        let place = |key: String| match part {
            Some(part) => format!("{key}.{part}"),
            None => key,
        };
        let mut problem = self.problem(key, message);
        if let Location::File { position, .. } = &mut problem.location {
            let found = self.positions.get(&place(format!("{key}.{index}")));
            *position = found.copied().flatten().or(*position);
            problem.message = format!("{}: {message}", place(key.to_owned()));
        }
        problem
    }

    /// How to name the setting `key` in a message: by its environment variable, flag or key,
    /// depending on what set it. A setting with its default is named in the same way as `beside`.
    pub(super) fn name(&self, key: &'static str, beside: &'static str) -> String {
        let origin = match self.origin(key) {
            Origin::Default => self.origin(beside),
            explicit => explicit,
        };
        let of_file = matches!(origin, Origin::File(..));
        match (self.origin(key), self.flags.get(key)) {
            (Origin::Environment(variable), _) => variable.clone(),
            (_, Some(flag)) if !of_file => flag.clone(),
            _ => key.to_owned(),
        }
    }
}

// === impl Origin ===

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::File(path, position) => {
                write!(f, "file {}", path.display())?;
                match position {
                    Some(position) => write!(f, ":{}", position.line),
                    None => Ok(()),
                }
            }
        }
    }
}
