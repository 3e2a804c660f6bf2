//! Every setting of `kubefan serve`, each declared once, in the structure of the configuration file.
//!
//! A field is a setting. The field's name is the key in the file, its type has the unit, and
//! `Default` has the default. Its comment is the help of its flag, and the text of the schema, of
//! `config/kubefan.yaml` and of the table in `docs/settings.md`. The attribute `extend` has the rest:
//!
//! - `x-flag`: the flag and the name of its value, such as `-r, --resource RESOURCE`. The default is
//!   the field's name as a flag, with a value that is named after the type. A number whose flag has
//!   no value is counted: `-vv`.
//! - `x-variable`: the environment variable.
//! - `x-range`: the possible values: `from 1s to 24d`, `at least 16Mi` or `more than 0s`.
//! - `x-live`: true if a running kubefan applies a change of the setting.
//! - `x-help`: true if `--help` shows the flag; `--help-all` shows all flags.
//! - `x-page`: the page of `docs` with more about the setting.
//! - `x-example`: lines for `config/kubefan.yaml`.
//!
//! `x-heading` of a section is the heading of its flags. In a comment, a key in backticks is another
//! setting, and the help writes its flag instead. `--help` shows the first sentence of a comment. If
//! the default is no value, the last sentence of the comment says what happens: `Default: any.`

mod access;
mod cache;
mod limits;
mod listeners;

use std::path::PathBuf;
use std::time::Duration;

use access::{Authentication, Authorization};
use cache::Cache;
use clap::ValueEnum;
use kubefan_core::telemetry;
use kubefan_core::upstream::ClientConfig;
pub(super) use limits::Limits;
use listeners::{Admin, Listen};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::units::Period;

/// Configuration file of `kubefan serve --config`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(title = "kubefan configuration")]
pub(super) struct Settings {
    /// How to reach the API server.
    #[schemars(extend("x-heading" = "API server"))]
    pub(super) upstream: Upstream,
    /// The listener for clients.
    #[schemars(extend("x-heading" = "Clients"))]
    pub(super) listen: Listen,
    /// The listener for health and metrics.
    #[schemars(extend("x-heading" = "Health and metrics"))]
    pub(super) admin: Admin,
    /// How callers are authenticated.
    #[schemars(extend("x-heading" = "Authentication"))]
    pub(super) authentication: Authentication,
    /// How long the API server's decisions about callers are remembered, and how often it is asked
    /// again about open watches.
    #[schemars(extend("x-heading" = "Authorization"))]
    pub(super) authorization: Authorization,
    /// The audit log of the requests that caches answer.
    #[schemars(extend("x-heading" = "Audit log"))]
    pub(super) audit: Audit,
    /// Traces of requests, which are sent to a collector of OpenTelemetry.
    #[schemars(extend("x-heading" = "Traces"))]
    pub(super) tracing: Tracing,
    /// Which resources are cached, and for how long.
    #[schemars(extend("x-heading" = "Caches"))]
    pub(super) cache: Cache,
    /// Limits of what clients may use, and of how long caches serve without the API server.
    #[schemars(extend("x-heading" = "Limits"))]
    pub(super) limits: Limits,
    /// How kubefan shuts down.
    #[schemars(extend("x-heading" = "Shutdown"))]
    pub(super) shutdown: Shutdown,
    /// The log, which goes to standard error.
    #[schemars(extend("x-heading" = "Log"))]
    pub(super) log: Log,
}

/// How to reach the API server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Upstream {
    /// Kubeconfig file for the API server. Default: $KUBECONFIG, ~/.kube/config, or the pod's service
    /// account.
    #[schemars(extend("x-flag" = "--kubeconfig FILE", "x-help" = true))]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: its current context.
    #[schemars(extend("x-flag" = "--context NAME", "x-help" = true))]
    pub(super) context: Option<String>,
    /// How long an HTTP/2 connection to the API server may be silent before it is pinged.
    #[schemars(extend("x-flag" = "--upstream-ping-interval DURATION", "x-range" = "more than 0s"))]
    pub(super) ping_interval: Period,
    /// How long the API server may take to answer a ping. Then the requests of the connection fail,
    /// and if no new connection can be opened either, all others at once, until it responds.
    #[schemars(extend("x-flag" = "--upstream-ping-timeout DURATION", "x-range" = "more than 0s"))]
    pub(super) ping_timeout: Period,
}

/// The audit log of the requests that caches answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Audit {
    /// File to which an audit event is appended for each request that a cache answers; - is standard
    /// output. Events are of audit.k8s.io/v1, level Metadata. Forwarded requests are in the API
    /// server's audit log. A file that is renamed or deleted is created again. Default: no audit log.
    #[schemars(extend(
        "x-flag" = "--audit-log-path FILE",
        "x-help" = true,
        "x-page" = "operating.md#audit-log"
    ))]
    pub(super) log_path: Option<PathBuf>,
}

/// Traces of requests, which are sent to a collector of OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Tracing {
    /// URL to which spans of requests are sent by OTLP over HTTP, such as
    /// http://localhost:4318/v1/traces. It is used with its path as it is. Default: no traces.
    #[schemars(extend(
        "x-flag" = "--tracing-endpoint URL",
        "x-variable" = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "x-page" = "operating.md#traces"
    ))]
    pub(super) endpoint: Option<String>,
    /// Of a million requests, how many are recorded on average. Requests whose clients say that they
    /// are not sampled are not recorded.
    #[schemars(extend(
        "x-flag" = "--tracing-sampling-rate-per-million COUNT",
        "x-range" = "from 0 to 1000000"
    ))]
    pub(super) sampling_rate_per_million: u32,
    /// Certificate authorities (PEM) of `tracing.endpoint`. Default: those of the system.
    #[schemars(extend("x-flag" = "--tracing-ca-file FILE"))]
    pub(super) ca_file: Option<PathBuf>,
    /// File with headers for `tracing.endpoint`, such as those with credentials: a line "Name: value"
    /// for each. It is read for each request. Default: none.
    #[schemars(extend("x-flag" = "--tracing-headers-file FILE"))]
    pub(super) headers_file: Option<PathBuf>,
}

/// How kubefan shuts down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Shutdown {
    /// How long everything is still served after /readyz fails, so that load balancers stop to send
    /// connections first. Clients' watches end after it.
    #[schemars(extend(
        "x-flag" = "--shutdown-delay-duration DURATION",
        "x-page" = "operating.md#shutdown"
    ))]
    pub(super) delay: Period,
    /// How long running requests and watches may take at shutdown, after `shutdown.delay`.
    #[schemars(extend("x-flag" = "--shutdown-grace-period DURATION", "x-help" = true))]
    pub(super) grace_period: Period,
}

/// The log, which goes to standard error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Log {
    /// Format of the log lines: text or json.
    #[schemars(extend(
        "x-flag" = "--log-format FORMAT",
        "x-variable" = "KUBEFAN_LOG_FORMAT",
        "x-help" = true
    ))]
    pub(super) format: LogFormat,
    /// How much is logged: 0 is info, 1 is debug (-v), 2 is trace (-vv, in debug builds only).
    /// RUST_LOG overrides it.
    #[schemars(extend(
        "x-flag" = "-v, --verbose",
        "x-range" = "from 0 to 2",
        "x-live" = true,
        "x-help" = true
    ))]
    pub(super) verbosity: u8,
    /// File to which a line of JSON is appended for each request when its answer has ended; - is
    /// standard output. It has the user, the request, how kubefan answered, how long that took, and how
    /// many bytes were sent. A file that is renamed or deleted is created again. Default: no access log.
    #[schemars(extend(
        "x-flag" = "--access-log-path FILE",
        "x-page" = "operating.md#access-log"
    ))]
    pub(super) access_log_path: Option<PathBuf>,
}

/// Format of the log lines.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

// === impl LogFormat ===

impl From<LogFormat> for telemetry::LogFormat {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

// === Defaults ===

impl Default for Upstream {
    fn default() -> Self {
        let client = ClientConfig::default();
        Self {
            kubeconfig: None,
            context: None,
            ping_interval: Period(client.ping_interval),
            ping_timeout: Period(client.ping_timeout),
        }
    }
}

impl Default for Tracing {
    fn default() -> Self {
        Self {
            endpoint: None,
            sampling_rate_per_million: 10_000,
            ca_file: None,
            headers_file: None,
        }
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self {
            delay: Period(Duration::ZERO),
            grace_period: Period(Duration::from_secs(10)),
        }
    }
}
