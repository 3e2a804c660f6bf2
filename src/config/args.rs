//! The command line as typed: nothing here is checked against anything else.

use std::path::PathBuf;
use std::time::Duration;

use clap::ArgAction;
use clap::Args as ClapArgs;
use clap::Parser;
use clap::Subcommand;
use clap::ValueEnum;

/// kubefan: a caching watch proxy for the Kubernetes API
#[derive(Debug, Parser)]
#[command(name = "kubefan", version, about, propagate_version = true)]
pub struct Args {
    /// Say more: -v for debug, -vv for trace. RUST_LOG overrides it
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,

    /// Form of the log lines on standard error
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, env = "KUBEFAN_LOG_FORMAT")]
    pub log_format: LogFormat,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the API of the cluster in the kubeconfig, from a cache
    Serve(Box<ServeArgs>),
    /// Print a kubeconfig that points at a kubefan on this machine
    Kubeconfig(KubeconfigArgs),
}

/// Flags of `kubefan serve`.
#[derive(Clone, Debug, ClapArgs)]
pub struct ServeArgs {
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

    /// Cache every resource that can be cached from the start
    #[arg(long)]
    pub all: bool,

    /// A label whose values are indexed, so that lists selecting by it touch only what they return;
    /// may be repeated
    #[arg(long = "index-label", value_name = "KEY", value_delimiter = ',')]
    pub index_labels: Vec<String>,

    /// Stop caching a resource that nobody used for so long, unless --resource or --all names it
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    pub idle_timeout: Duration,

    /// Certificate chain (PEM) for TLS
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,

    /// Private key (PEM) of --tls-cert-file
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,

    /// Serve TLS with a certificate of a CA of its own, kept in --tls-dir
    #[arg(long)]
    pub tls_self_signed: bool,

    /// Where --tls-self-signed keeps its CA and keys; without it kubefan/tls in the user's state
    /// directory
    #[arg(long, value_name = "DIR")]
    pub tls_dir: Option<PathBuf>,

    /// How long running requests and watches have at shutdown
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub shutdown_grace_period: Duration,
}

/// Flags of `kubefan kubeconfig`.
#[derive(Clone, Debug, ClapArgs)]
pub struct KubeconfigArgs {
    /// Address that kubefan listens on
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8001",
        env = "KUBEFAN_LISTEN"
    )]
    pub listen: String,

    /// The kubefan serves TLS with --tls-self-signed
    #[arg(long)]
    pub tls_self_signed: bool,

    /// The --tls-dir of that kubefan
    #[arg(long, value_name = "DIR", requires = "tls_self_signed")]
    pub tls_dir: Option<PathBuf>,

    /// Namespace of the context
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
}

/// Parses `90s`, `10m`, `1h`, `500ms`: a number and one unit.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits
        .parse()
        .map_err(|_| "expected a number and a unit, such as 30s or 10m".to_owned())?;
    let unit = &text[digits.len()..];
    let milliseconds = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    milliseconds
        .and_then(|milliseconds: u64| number.checked_mul(milliseconds))
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{unit:?} is no unit; use ms, s, m or h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let rows = [
            ("500ms", Some(Duration::from_millis(500))),
            ("90s", Some(Duration::from_secs(90))),
            ("10m", Some(Duration::from_secs(600))),
            ("1h", Some(Duration::from_secs(3600))),
            ("10", None),
            ("s", None),
            ("-1s", None),
            ("1d", None),
            ("99999999999999999h", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_duration(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
