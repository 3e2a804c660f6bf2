//! Measures kube-apiserver and kubefan side by side with `kubefan load`, and prints the tables of
//! benches/RESULTS.md. `benches/side-by-side` runs it; it asserts nothing about time.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{env, fs};

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::programs::apiserver::{ApiServer, private};
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::{Kubefan, binary};
use crate::support::programs::sim::Sim;
use crate::support::settings::setting;

/// A row of a table: its description, the flags of `kubefan load`, and the figures that it shows.
struct Row {
    what: &'static str,
    flags: &'static str,
    figures: &'static [Figure],
}

/// A figure from a report of `kubefan load`.
#[derive(Clone, Copy)]
struct Figure {
    name: &'static str,
    unit: &'static str,
    of: fn(&Value) -> Option<f64>,
}

const CPU_PER_EVENT: Figure = Figure {
    name: "server CPU per event",
    unit: "us",
    of: |run| run["server"]["cpu_microseconds_per_event"].as_f64(),
};
const CPU_PER_WRITE: Figure = Figure {
    name: "server CPU per change",
    unit: "us",
    of: |run| {
        let seconds = run["server"]["cpu_seconds"].as_f64()?;
        Some(seconds * 1e6 / run["writes"]["acknowledged"].as_f64()?)
    },
};
const EVENTS_PER_SECOND: Figure = Figure {
    name: "events per second",
    unit: "",
    of: |run| run["events"]["per_second"].as_f64(),
};
const P99: Figure = Figure {
    name: "p99 acknowledgement to receipt",
    unit: "ms",
    of: |run| run["events"]["from_acknowledgement_ms"]["p99"].as_f64(),
};
const SYNCED: Figure = Figure {
    name: "all watchers synced",
    unit: "s",
    of: |run| run["all_synced_seconds"].as_f64(),
};
const MEMORY_PER_WATCH: Figure = Figure {
    name: "memory per idle watch",
    unit: "KiB",
    of: |run| {
        let idle = run["server"]["resident_bytes_idle"].as_f64()?;
        let before = run["server"]["resident_bytes_before"].as_f64()?;
        Some((idle - before) / 1024.0 / run["settings"]["watchers"].as_f64()?)
    },
};
const PEAK: Figure = Figure {
    name: "peak memory",
    unit: "MiB",
    of: |run| Some(run["server"]["resident_bytes_peak"].as_f64()? / 1024.0 / 1024.0),
};
const ALL_LIVE: Figure = Figure {
    name: "all watches live again",
    unit: "s",
    of: |run| run["resume"]["all_live_seconds"].as_f64(),
};
const CPU_UNTIL_LIVE: Figure = Figure {
    name: "server CPU until then",
    unit: "s",
    of: |run| run["resume"]["server_cpu_seconds"].as_f64(),
};
const LISTS: Figure = Figure {
    name: "p50 of a list",
    unit: "ms",
    of: |run| run["lists"]["latency_ms"]["p50"].as_f64(),
};

const CPU_PER_LIST: Figure = Figure {
    name: "server CPU per list",
    unit: "ms",
    of: |run| {
        let lists = run["lists"]["latency_ms"]["count"].as_f64()?;
        Some(run["server"]["cpu_seconds"].as_f64()? * 1e3 / lists)
    },
};
const BYTES_PER_WRITE: Figure = Figure {
    name: "bytes per write to a socket",
    unit: "",
    of: |run| run["server"]["bytes_per_write"].as_f64(),
};

const ROWS: &[Row] = &[
    Row {
        what: "HTTP/2, 1,000 watchers on 10 connections, 2 KiB, 70 writes/s",
        flags: "--watchers 1000 --connections 10 --http 2 --rate 70 --duration 10s",
        figures: &[CPU_PER_EVENT, P99],
    },
    Row {
        what: "the same, 20 writes/s",
        flags: "--watchers 1000 --connections 10 --http 2 --rate 20 --duration 10s",
        figures: &[CPU_PER_EVENT, P99],
    },
    Row {
        what: "HTTP/1.1, 1,000 watchers, 2 KiB, 70 writes/s",
        flags: "--watchers 1000 --http 1 --rate 70 --duration 10s",
        figures: &[CPU_PER_EVENT, P99],
    },
    Row {
        what: "the same over HTTP/1.1, 20 writes/s",
        flags: "--watchers 1000 --http 1 --rate 20 --duration 10s",
        figures: &[CPU_PER_EVENT, P99, MEMORY_PER_WATCH],
    },
    Row {
        what: "HTTP/2, 1,000 connections with one watch each, 2 KiB, 40 writes/s",
        flags: "--watchers 1000 --connections 1000 --http 2 --rate 40 --duration 10s",
        figures: &[CPU_PER_EVENT, P99, MEMORY_PER_WATCH],
    },
    Row {
        what: "HTTP/2, 1,000 connections with one watch each, 2 KiB, 20 writes/s",
        flags: "--watchers 1000 --connections 1000 --http 2 --rate 20 --duration 10s",
        figures: &[CPU_PER_EVENT, P99],
    },
    Row {
        what: "HTTP/2, 1,000 watchers, 10 KiB, 35 writes/s",
        flags: "--watchers 1000 --connections 10 --http 2 --object-size 10Ki --rate 35 --duration 10s",
        figures: &[CPU_PER_EVENT, P99],
    },
    Row {
        what: "HTTP/2, 1,000 watchers, protobuf, 70 writes/s",
        flags: "--watchers 1000 --connections 10 --http 2 --format protobuf --rate 70 --duration 10s",
        figures: &[CPU_PER_EVENT, P99],
    },
    Row {
        what: "HTTP/2, 5,000 watchers on 50 connections, 2 writes/s",
        flags: "--watchers 5000 --connections 50 --http 2 --rate 2 --duration 12s",
        figures: &[CPU_PER_EVENT, P99, SYNCED, MEMORY_PER_WATCH],
    },
    Row {
        what: "HTTP/1.1, 3,000 watchers, 2 writes/s",
        flags: "--watchers 3000 --http 1 --rate 2 --duration 10s",
        figures: &[CPU_PER_EVENT, P99, SYNCED, MEMORY_PER_WATCH],
    },
    Row {
        what: "HTTP/2, 5,000 watchers, each of a different label value, 200 writes/s",
        flags: "--watchers 5000 --connections 50 --http 2 --objects 5000 \
                --selector-per-watcher shard=load-{i} --rate 200 --duration 10s",
        figures: &[CPU_PER_WRITE, P99],
    },
    Row {
        what: "the same changes, one watcher",
        flags: "--watchers 1 --connections 1 --http 2 --objects 5000 \
                --selector-per-watcher shard=load-{i} --rate 200 --duration 10s",
        figures: &[CPU_PER_WRITE],
    },
    Row {
        what: "HTTP/2, 1,000 watchers, 20 writes/s, 100 more that do not read",
        flags: "--watchers 1000 --connections 10 --http 2 --rate 20 --slow-watchers 100 --duration 10s",
        figures: &[P99],
    },
    Row {
        what: "HTTP/2, 100 watchers, 20 writes/s, while 2 clients list 1,000 objects of 10 KiB",
        flags: "--watchers 100 --connections 2 --http 2 --rate 20 --objects 1000 --object-size 10Ki \
                --list-storm 2 --duration 10s",
        figures: &[P99, LISTS],
    },
    Row {
        what: "HTTP/2, 5,000 watchers on 50 connections, 20 writes/s, all connections cut",
        flags: "--watchers 5000 --connections 50 --http 2 --rate 20 --duration 5s --resume",
        figures: &[ALL_LIVE, CPU_UNTIL_LIVE],
    },
];

/// The settings that are measured with kubefan in front of the simulator, without kube-apiserver.
const ALONE: &[Row] = &[
    Row {
        what: "HTTP/2, 1,000 watchers on 10 connections, 2 KiB, saturated",
        flags: "--watchers 1000 --connections 10 --http 2 --rate max --window 64 --duration 10s",
        figures: &[CPU_PER_EVENT, EVENTS_PER_SECOND],
    },
    Row {
        what: "HTTP/1.1, 1,000 watchers, 2 KiB, saturated",
        flags: "--watchers 1000 --http 1 --rate max --window 32 --duration 10s",
        figures: &[CPU_PER_EVENT, EVENTS_PER_SECOND, BYTES_PER_WRITE],
    },
    Row {
        what: "HTTP/2, 1,000 watchers, 10 KiB, saturated",
        flags: "--watchers 1000 --connections 10 --http 2 --object-size 10Ki --rate max --window 64 --duration 10s",
        figures: &[CPU_PER_EVENT, EVENTS_PER_SECOND],
    },
    Row {
        what: "HTTP/2, 5,000 watchers, each of a different label value, 500 writes/s",
        flags: "--watchers 5000 --connections 50 --http 2 --objects 5000 \
                --selector-per-watcher shard=load-{i} --rate 500 --duration 10s",
        figures: &[CPU_PER_WRITE, P99],
    },
    Row {
        what: "the same changes, one watcher",
        flags: "--watchers 1 --connections 1 --http 2 --objects 5000 \
                --selector-per-watcher shard=load-{i} --rate 500 --duration 10s",
        figures: &[CPU_PER_WRITE],
    },
    Row {
        what: "HTTP/2, 1,000 watchers, 20 writes/s, 100 more that do not read",
        flags: "--watchers 1000 --connections 10 --http 2 --rate 20 --slow-watchers 100 --duration 20s",
        figures: &[P99],
    },
    Row {
        what: "the same without the 100 that do not read",
        flags: "--watchers 1000 --connections 10 --http 2 --rate 20 --duration 20s",
        figures: &[P99],
    },
    Row {
        what: "HTTP/2, 10 watchers, while 2 clients list 5,000 objects of 6.8 KiB",
        flags: "--watchers 10 --connections 1 --http 2 --rate 20 --objects 5000 --object-size 6800 \
                --list-storm 2 --duration 10s",
        figures: &[P99, LISTS, CPU_PER_LIST],
    },
    Row {
        what: "the same without lists",
        flags: "--watchers 10 --connections 1 --http 2 --rate 20 --objects 5000 --object-size 6800 --duration 10s",
        figures: &[P99],
    },
    Row {
        what: "HTTP/2, 100,000 watchers on 1,000 connections, 1 write/s, all connections cut at the end",
        flags: "--watchers 100000 --connections 1000 --http 2 --rate 1 --duration 60s --resume",
        figures: &[CPU_PER_EVENT, P99, PEAK, SYNCED, ALL_LIVE, CPU_UNTIL_LIVE],
    },
    Row {
        what: "HTTP/2, 100,000 watchers on 10,000 connections, 1 write/s, all connections cut at the end",
        flags: "--watchers 100000 --connections 10000 --http 2 --rate 1 --duration 60s --resume",
        figures: &[CPU_PER_EVENT, P99, PEAK, SYNCED, ALL_LIVE, CPU_UNTIL_LIVE],
    },
];

/// A server that `kubefan load` watches, and how to reach it.
struct WatchedServer<'a> {
    name: &'static str,
    kubeconfig: &'a Path,
    pid: u32,
    /// The kubeconfig of the server that the writes go to; `None` if it is the watched server.
    written: Option<&'a Path>,
}

/// A running kubefan with TLS, and the path of a kubeconfig for it.
struct TlsKubefan {
    kubefan: Kubefan,
    kubeconfig: PathBuf,
    _authority: TempDir,
}

impl TlsKubefan {
    async fn start(upstream: &Path) -> Self {
        let authority = tempfile::tempdir().expect("a temporary directory");
        let folder = authority.path().display().to_string();
        // With this memory, 8,192 handshakes may be pending after a cut.
        let flags = [
            "--auth",
            "none",
            "--memory-limit",
            "2Gi",
            "--tls-self-signed",
            "--tls-dir",
            &folder,
        ];
        let kubefan = Kubefan::start_with(upstream, &flags).await;
        let certificate = fs::read_to_string(authority.path().join("ca.crt"));
        let kubeconfig = kubefan.file("load");
        let certificate = certificate.expect("the CA");
        kubeconfig::write(
            &kubeconfig,
            kubefan.url(),
            Some(&certificate),
            &User::Anonymous,
        );
        Self {
            kubefan,
            kubeconfig,
            _authority: authority,
        }
    }
}

/// Runs `kubefan load` and returns the report of its only run, plus the server's bytes per write.
async fn load(row: &Row, watched: &WatchedServer<'_>, directory: &TempDir) -> Value {
    let report = directory.path().join("report.json");
    let mut command = Command::new(binary());
    command
        .args(["load", "--context", "test", "--kubeconfig"])
        .arg(watched.kubeconfig)
        .args(row.flags.split_whitespace())
        .args(["--server-pid", &watched.pid.to_string(), "--json"])
        .arg(&report)
        .stdin(Stdio::null());
    if let Some(written) = watched.written {
        command.arg("--write-kubeconfig").arg(written);
    }
    let before = IoCounters::of(watched.pid);
    let output = command.output().await.expect("kubefan can be run");
    let after = IoCounters::of(watched.pid);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{} {}: {stderr}",
        watched.name,
        row.what
    );
    let report = fs::read(&report).expect("a report");
    let mut report: Value = serde_json::from_slice(&report).expect("JSON");
    let mut run = report["runs"][0].take();
    let bytes = (after.bytes - before.bytes) as f64 / (after.calls - before.calls) as f64;
    run["server"]["bytes_per_write"] = bytes.into();
    run
}

/// The bytes that a process has written since its start, and the number of its write calls.
struct IoCounters {
    bytes: u64,
    calls: u64,
}

impl IoCounters {
    fn of(pid: u32) -> Self {
        let io = fs::read_to_string(format!("/proc/{pid}/io")).expect("a readable process");
        let count = |name: &str| {
            let line = io.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|count| count.trim().parse().ok())
                .expect("a count")
        };
        Self {
            bytes: count("wchar:"),
            calls: count("syscw:"),
        }
    }
}

/// The median of a figure over the runs that have it.
fn median(figure: Figure, runs: &[Value]) -> Option<f64> {
    let mut values: Vec<_> = runs.iter().filter_map(figure.of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn shown(value: Option<f64>) -> String {
    match value {
        Some(value) if value >= 1_000.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.2}"),
        None => "–".to_owned(),
    }
}

impl Figure {
    /// The name and the unit, as a row of a table has them.
    fn title(&self) -> String {
        let unit = if self.unit.is_empty() { "" } else { ", " };
        format!("{}{unit}{}", self.name, self.unit)
    }
}

/// The watches that a server ended in all runs together.
fn ended(runs: &[Value]) -> u64 {
    let ended = runs.iter().map(|run| &run["watches"]["reconnects"]);
    ended.map(|count| count.as_u64().expect("a count")).sum()
}

/// How often each row is measured, by turns; `KUBEFAN_ROUNDS` (3).
fn rounds() -> usize {
    setting("KUBEFAN_ROUNDS", 3)
}

/// Returns the rows with a description that contains the value of
/// `KUBEFAN_ROWS`; all rows if it is not set.
fn wanted(rows: &'static [Row]) -> impl Iterator<Item = &'static Row> {
    let part = env::var("KUBEFAN_ROWS").unwrap_or_default();
    rows.iter().filter(move |row| row.what.contains(&part))
}

/// A server that ends watches saves itself their events, so such a row has no ratio.
async fn same(server: &ApiServer, directory: &TempDir) {
    println!("\n| same writes to both | kube-apiserver | kubefan | ratio |\n|---|---|---|---|");
    let direct = server.kubeconfig("admin");
    for row in wanted(ROWS) {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds() {
            let watched = WatchedServer {
                name: "kube-apiserver",
                kubeconfig: &direct,
                pid: server.pid(),
                written: None,
            };
            theirs.push(load(row, &watched, directory).await);
            ours.push(load_kubefan(row, &direct, directory).await);
        }
        let lost = [ended(&theirs), ended(&ours)];
        for figure in row.figures {
            let mut medians = [&theirs, &ours].map(|runs| median(*figure, runs));
            if figure.name == MEMORY_PER_WATCH.name {
                // The API server has the memory of earlier runs. kubefan has just started.
                medians[0] = None;
            }
            let ratio = match (lost, medians) {
                ([0, 0], [Some(theirs), Some(ours)]) => format!("{:.2}", ours / theirs),
                ([0, 0], _) => "–".to_owned(),
                ([theirs, ours], _) => format!("none: {theirs} and {ours} watches were ended"),
            };
            let [theirs, ours] = medians.map(shown);
            let title = figure.title();
            println!("| {}: {title} | {theirs} | {ours} | {ratio} |", row.what);
        }
    }
}

/// Loads a kubefan that has just started. The writes go to its upstream.
async fn load_kubefan(row: &Row, upstream: &Path, directory: &TempDir) -> Value {
    let secure = TlsKubefan::start(upstream).await;
    let watched = WatchedServer {
        name: "kubefan",
        kubeconfig: &secure.kubeconfig,
        pid: secure.kubefan.pid(),
        written: Some(upstream),
    };
    load(row, &watched, directory).await
}

async fn alone(directory: &TempDir) {
    println!("\n| kubefan in front of the simulator | kubefan |\n|---|---|");
    for row in wanted(ALONE) {
        let mut runs = Vec::new();
        for _ in 0..rounds() {
            let sim = Sim::start(&[]).await;
            runs.push(load_kubefan(row, &sim.kubeconfig(), directory).await);
        }
        for figure in row.figures {
            let value = shown(median(*figure, &runs));
            println!("| {}: {} | {value} |", row.what, figure.title());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_side_by_side() {
    let server = private().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    same(&server, &directory).await;
    drop(server);
    alone(&directory).await;
}
