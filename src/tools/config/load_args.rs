//! Flags of `kubefan load`, as typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use clap::ValueEnum;

use crate::config::parse_bytes;
use crate::config::parse_duration;

/// Flags of `kubefan load`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub struct LoadArgs {
    /// Kubeconfig with the server and the credentials
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig; without it the current one, if its server is on this machine
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// URL of the server to watch; with --kubeconfig or --context those credentials are sent there,
    /// else none but --token-file
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,

    /// A file with a bearer token, in place of the kubeconfig's credentials
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Make and change the objects at this server; without it at the one that is watched
    #[arg(long, value_name = "URL")]
    pub write_server: Option<String>,

    /// Credentials for writing, and the server if --write-server does not name one and it is on this machine
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,

    /// Test this server the same way afterwards, and tell the ratios
    #[arg(long, value_name = "URL")]
    pub compare: Option<String>,

    /// Credentials for --compare, and the server if --compare does not name one and it is on this machine;
    /// without it the same credentials
    #[arg(long, value_name = "FILE")]
    pub compare_kubeconfig: Option<PathBuf>,

    /// Resource to test with: configmaps, secrets, pods, leases, services, endpointslices, or one that
    /// needs no more than metadata
    #[arg(long, short, value_name = "RESOURCE", default_value = "configmaps")]
    pub resource: String,

    /// Namespace for the objects, made if it is not there; without it one of the test's own
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,

    /// Watch all namespaces
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,

    /// Watchers
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub watchers: u32,

    /// Connections that the watchers share over HTTP/2; without it one for every 100 watchers
    #[arg(long, value_name = "COUNT")]
    pub connections: Option<u32>,

    /// HTTP version of the watchers: 1 (a connection each) or 2
    #[arg(long, value_name = "VERSION", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub http: u8,

    /// What events come in
    #[arg(long, value_enum, default_value_t = LoadFormat::Json)]
    pub format: LoadFormat,

    /// What each watcher selects by, with {i} for its number: spec.nodeName=node-{i} (a field, as all that
    /// begins with metadata., spec. or status.) or app=load-{i} (a label)
    #[arg(long, value_name = "KEY=VALUE")]
    pub selector_per_watcher: Option<String>,

    /// Begin each watch with the objects there are (sendInitialEvents=true)
    #[arg(long)]
    pub watch_list: bool,

    /// Writes a second, or max: as many as the server takes
    #[arg(long, value_name = "COUNT", default_value = "20")]
    pub rate: String,

    /// With --rate max: wait while so many writes have not reached every watcher, so that the server is kept busy and
    /// not overrun
    #[arg(long, value_name = "COUNT")]
    pub window: Option<u32>,

    /// Objects that are changed in turn. With {i} in the selector, watcher n gets the objects n,
    /// n + WATCHERS, n + 2 × WATCHERS, and so on
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub objects: u32,

    /// Bytes of an object as JSON
    #[arg(long, value_name = "BYTES", default_value = "2Ki", value_parser = parse_bytes)]
    pub object_size: usize,

    /// How long is written
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub duration: Duration,

    /// Clients that list all objects over and over meanwhile, each over a connection of its own
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub list_storm: u32,

    /// Further watchers that don't read what they get
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub slow_watchers: u32,

    /// Threads that receive; as many more read the lists of --list-storm
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub threads: u32,

    /// The server's process on this machine, for its CPU and memory
    #[arg(long, value_name = "PID")]
    pub server_pid: Option<u32>,

    /// URL of the server's metrics, for its CPU and memory; without it /metrics of the server
    #[arg(long, value_name = "URL", conflicts_with = "server_pid")]
    pub metrics_url: Option<String>,

    /// As --server-pid, of the server of --compare
    #[arg(long, value_name = "PID")]
    pub compare_server_pid: Option<u32>,

    /// As --metrics-url, of the server of --compare
    #[arg(long, value_name = "URL", conflicts_with = "compare_server_pid")]
    pub compare_metrics_url: Option<String>,

    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the report as a page for a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// What events come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadFormat {
    /// application/json
    Json,
    /// application/vnd.kubernetes.protobuf
    Protobuf,
}

const AFTER_HELP: &str = "\
Makes a namespace with objects, opens the watches, changes the objects on schedule, and checks that every watcher
gets every event that its selector wants, once and in order: if not, the exit code is 1. Latency counts from when
a write was due, so a server that falls behind can't hide it, and from the write's acknowledgement. Afterwards the
objects are deleted, and the namespace if the test made it; after Ctrl-C too, which prints the report so far.

Examples:
  kubefan load --server http://127.0.0.1:8003 --watchers 1000 --rate 50
  kubefan load --context staging --resource pods --selector-per-watcher spec.nodeName=node-{i} --objects 100
  kubefan load --server http://127.0.0.1:8001 --write-kubeconfig admin.conf --compare-kubeconfig admin.conf";
