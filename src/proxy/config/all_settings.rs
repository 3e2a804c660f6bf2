//! Every setting, with its key in the file and its flag, and with a function that copies the flag's
//! value into the settings.

use clap::Command;

use super::settings::Settings;
use super::values::cached_resource::CachedResource;
use super::values::units::{ByteSize, Period};
use super::{GlobalArgs, ServeArgs};

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
pub(super) const SETTINGS: [Setting; 71] = [
    setting("upstream.kubeconfig", "kubeconfig", |to, _, serve| {
        to.upstream.kubeconfig.clone_from(&serve.kubeconfig);
    }),
    setting("upstream.context", "context", |to, _, serve| {
        to.upstream.context.clone_from(&serve.context);
    }),
    setting(
        "upstream.pingInterval",
        "upstream_ping_interval",
        |to, _, serve| {
            to.upstream.ping_interval = Period(serve.upstream_ping_interval);
        },
    ),
    setting(
        "upstream.pingTimeout",
        "upstream_ping_timeout",
        |to, _, serve| {
            to.upstream.ping_timeout = Period(serve.upstream_ping_timeout);
        },
    ),
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
    setting("limits.writeTimeout", "write_timeout", |to, _, serve| {
        to.limits.write_timeout = Period(serve.write_timeout);
    }),
    setting("limits.tcpKeepalive", "tcp_keepalive", |to, _, serve| {
        to.limits.tcp_keepalive = Period(serve.tcp_keepalive);
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

/// The sections of the configuration file, with the headings of their flags.
const SECTIONS: [(&str, &str); 10] = [
    ("upstream", "API server"),
    ("listen", "Clients"),
    ("admin", "Health and metrics"),
    ("authentication", "Authentication"),
    ("authorization", "Authorization"),
    ("audit", "Audit log"),
    ("cache", "Caches"),
    ("limits", "Limits"),
    ("shutdown", "Shutdown"),
    ("log", "Log"),
];

/// Changes the help of the command so that it shows the flags of settings below headings.
pub fn in_sections(command: Command) -> Command {
    command.mut_args(|arg| {
        let setting = SETTINGS
            .iter()
            .find(|setting| arg.get_id() == setting.field);
        let section = setting.and_then(|setting| {
            let (section, _) = setting.key.split_once('.')?;
            SECTIONS.iter().find(|(name, _)| *name == section)
        });
        match section {
            Some((_, heading)) => arg.help_heading(*heading),
            None => arg,
        }
    })
}

const fn setting(
    key: &'static str,
    field: &'static str,
    set: fn(&mut Settings, &GlobalArgs, &ServeArgs),
) -> Setting {
    Setting { key, field, set }
}
