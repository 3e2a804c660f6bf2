//! The command line as typed: nothing here is checked against anything else.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgAction;
use clap::ArgMatches;
use clap::Args as ClapArgs;
use clap::ValueEnum;
use clap::parser::ValueSource;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

use super::freshness_rule::FreshnessRule;
use super::units::parse_bytes;
use super::units::parse_duration;

/// Flags that every subcommand has.
#[derive(Clone, Debug, ClapArgs)]
pub struct GlobalArgs {
    /// Say more: -v for debug, -vv for trace. RUST_LOG overrides it
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,

    /// Form of the log lines on standard error
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, env = "KUBEFAN_LOG_FORMAT")]
    pub log_format: LogFormat,

    /// What was given, and how; the rest are defaults.
    #[arg(skip)]
    pub arg_sources: ArgSources,
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// Flags of `kubefan serve`.
#[derive(Clone, Debug, ClapArgs)]
pub struct ServeArgs {
    /// Configuration file (YAML). Environment and flags override what it says
    #[arg(long, value_name = "FILE", env = "KUBEFAN_CONFIG")]
    pub config: Option<PathBuf>,

    /// Kubeconfig of the cluster; without it $KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig; without it the current one
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// Address that clients connect to
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8001",
        env = "KUBEFAN_LISTEN"
    )]
    pub listen: String,

    /// Address of /livez, /readyz and /metrics
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8002",
        env = "KUBEFAN_ADMIN_LISTEN"
    )]
    pub admin_listen: String,

    /// Threads that serve clients; without it one for each core
    #[arg(long, value_name = "COUNT", env = "KUBEFAN_THREADS")]
    pub threads: Option<NonZeroUsize>,

    /// A resource to cache from the start, such as pods or deployments.apps; may be repeated, or a
    /// list with commas. Others are cached once a client lists or watches them
    #[arg(
        long = "resource",
        short = 'r',
        value_name = "RESOURCE",
        value_delimiter = ',',
        env = "KUBEFAN_RESOURCES"
    )]
    pub resources: Vec<String>,

    /// Cache every resource that can be cached from the start; =false undoes what the file says
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub all: bool,

    /// A label whose values are indexed, so that lists selecting by it touch only what they return;
    /// may be repeated
    #[arg(long = "index-label", value_name = "KEY", value_delimiter = ',')]
    pub index_labels: Vec<String>,

    /// How fresh answers to "the most recent state" have to be: strict (as fresh as the request),
    /// bounded:DURATION (proven no longer ago), or any; of one resource pods=any. May be repeated
    #[arg(
        long,
        value_name = "[RESOURCE=]POLICY",
        value_delimiter = ',',
        env = "KUBEFAN_FRESHNESS"
    )]
    pub freshness: Vec<FreshnessRule>,

    /// Stop caching a resource that nobody used for so long, unless --resource or --all names it
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    pub idle_timeout: Duration,

    /// How long a resource's events are kept at least, memory allowing, for watches that come back
    #[arg(long, value_name = "DURATION", default_value = "75s", value_parser = parse_duration)]
    pub retention_age: Duration,

    /// Bytes of events that are kept of a resource at most, such as 256Mi; without it the larger of
    /// 64Mi and twice the objects
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub retention_bytes: Option<usize>,

    /// Certificate chain (PEM) for TLS
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,

    /// Private key (PEM) of --tls-cert-file
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,

    /// Serve TLS with a certificate of a CA of its own, kept in --tls-dir; =false undoes what the
    /// file says
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub tls_self_signed: bool,

    /// Where --tls-self-signed keeps its CA and keys; without it kubefan/tls in the user's state
    /// directory
    #[arg(long, value_name = "DIR")]
    pub tls_dir: Option<PathBuf>,

    /// How long running requests and watches have at shutdown
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub shutdown_grace_period: Duration,
}

/// Which arguments were given, and how: by field, of the subcommand and global ones.
#[derive(Clone, Debug, Default)]
pub struct ArgSources(pub(super) BTreeMap<String, ValueSource>);

// === impl ArgSources ===

impl ArgSources {
    /// What was given of the innermost subcommand's and the global arguments.
    pub fn of(matches: &ArgMatches) -> Self {
        let mut innermost = matches;
        while let Some((_, below)) = innermost.subcommand() {
            innermost = below;
        }
        let source = |id: &str| Some((id.to_owned(), innermost.value_source(id)?));
        Self(
            innermost
                .ids()
                .filter_map(|id| source(id.as_str()))
                .collect(),
        )
    }
}
