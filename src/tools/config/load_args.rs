//! The flags of `kubefan load`, as clap parses them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use kubefan_proxy::config::{parse_bytes, parse_duration};

/// Flags of `kubefan load`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub struct LoadArgs {
    /// Kubeconfig with the server to watch and the credentials
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig; default: its current context, if its server is on this machine
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// URL of the server to watch; it is sent the credentials of --kubeconfig or --context if
    /// given, and otherwise only --token-file
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,

    /// A file with a bearer token, used instead of the kubeconfig's credentials
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Name of the server to watch in the report; default: its URL
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// URL of the server to write to; default: the server to watch
    #[arg(long, value_name = "URL")]
    pub write_server: Option<String>,

    /// Kubeconfig for the writes; if it is for a server on this machine, --write-server is not
    /// needed
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,

    /// URL of a second server, which is tested the same way afterwards; prints the ratios
    #[arg(long, value_name = "URL")]
    pub compare: Option<String>,

    /// Kubeconfig for the second server; if that is on this machine, --compare is not needed;
    /// default: the credentials for the first server
    #[arg(long, value_name = "FILE")]
    pub compare_kubeconfig: Option<PathBuf>,

    /// Name of the second server in the report; default: its URL
    #[arg(long, value_name = "NAME")]
    pub compare_name: Option<String>,

    /// Resource to test with: configmaps, secrets, pods, leases, services, endpointslices, or one
    /// whose objects need only metadata
    #[arg(long, short, value_name = "RESOURCE", default_value = "configmaps")]
    pub resource: String,

    /// Namespace for the objects, created if it does not exist; default: a new one for the test
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,

    /// Watch all namespaces
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,

    /// Number of watchers
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub watchers: u32,

    /// Connections that the watchers share over HTTP/2; default: one per 100 watchers
    #[arg(long, value_name = "COUNT")]
    pub connections: Option<u32>,

    /// HTTP version of the watchers: 1 (each has its own connection) or 2
    #[arg(long, value_name = "VERSION", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub http: u8,

    /// Format of the events
    #[arg(long, value_enum, default_value_t = LoadFormat::Json)]
    pub format: LoadFormat,

    /// Selector of each watcher, with {i} for its number: spec.nodeName=node-{i} or app=load-{i}; a
    /// key that begins with metadata., spec. or status. is a field, any other a label
    #[arg(long, value_name = "KEY=VALUE")]
    pub selector_per_watcher: Option<String>,

    /// Begin each watch with the existing objects (sendInitialEvents=true)
    #[arg(long)]
    pub watch_list: bool,

    /// Writes per second, or max for as many as the server accepts
    #[arg(long, value_name = "COUNT", default_value = "20")]
    pub rate: String,

    /// With --rate max: pause while this many writes have not reached every watcher, so that the
    /// server stays busy but the watchers keep up
    #[arg(long, value_name = "COUNT")]
    pub window: Option<u32>,

    /// Number of objects, which are changed in turn; with {i} in the selector, watcher n gets the
    /// objects n, n + WATCHERS, n + 2 × WATCHERS, and so on
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub objects: u32,

    /// Size of an object as JSON
    #[arg(long, value_name = "BYTES", default_value = "2Ki", value_parser = parse_bytes)]
    pub object_size: usize,

    /// How long the test writes
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub duration: Duration,

    /// Clients that list all objects repeatedly during the test, each over its own connection
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub list_storm: u32,

    /// Additional watchers that do not read their events
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub slow_watchers: u32,

    /// At the end, cut all connections of the watchers at once, write on, and measure until every
    /// watcher has resumed and got an event that was written after the cut
    #[arg(long)]
    pub resume: bool,

    /// Threads that receive events; --list-storm adds the same number of threads for its lists
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub threads: u32,

    /// Process ID of the server on this machine, to measure its CPU and memory
    #[arg(long, value_name = "PID")]
    pub server_pid: Option<u32>,

    /// URL of the server's metrics, which have its CPU and memory; default: /metrics of the server
    #[arg(long, value_name = "URL", conflicts_with = "server_pid")]
    pub metrics_url: Option<String>,

    /// Like --server-pid, for the server to write to, if that is another one; default: as for the
    /// second server, if that is the same
    #[arg(long, value_name = "PID")]
    pub write_server_pid: Option<u32>,

    /// Like --metrics-url, for the server to write to
    #[arg(long, value_name = "URL", conflicts_with = "write_server_pid")]
    pub write_metrics_url: Option<String>,

    /// Like --server-pid, for the second server
    #[arg(long, value_name = "PID")]
    pub compare_server_pid: Option<u32>,

    /// Like --metrics-url, for the second server
    #[arg(long, value_name = "URL", conflicts_with = "compare_server_pid")]
    pub compare_metrics_url: Option<String>,

    /// Write the report to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the report to this file, as a page for a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// The format of the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadFormat {
    /// application/json
    Json,
    /// application/vnd.kubernetes.protobuf
    Protobuf,
}

const AFTER_HELP: &str = "\
Creates objects in a namespace, opens the watches, writes to the objects on a schedule, and checks that every
watcher gets every event that its selector matches, once and in order; if not, the exit code is 1. Latency is
measured from the time a write was due, so a slow server cannot hide its delay, and from its acknowledgement.
The test deletes the objects afterwards, and the namespace if it created it; after Ctrl-C too, which prints the
report so far.

Examples:
  kubefan load --server http://127.0.0.1:8003 --watchers 1000 --rate 50
  kubefan load --context staging --resource pods --selector-per-watcher spec.nodeName=node-{i} --objects 100
  kubefan load --server http://127.0.0.1:8001 --write-kubeconfig admin.conf --compare-kubeconfig admin.conf";
