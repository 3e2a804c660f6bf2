//! What two kube-state-metrics cost the API server, directly and through kubefan. It prints the
//! counts, and is run by hand with a program that `tests/upstream/build --kube-state-metrics`
//! builds:
//!
//! ```sh
//! KUBEFAN_KUBE_STATE_METRICS=$(tests/upstream/build --kube-state-metrics)/kube-state-metrics \
//!     cargo test --test it kube_state_metrics -- --ignored --nocapture
//! ```

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::sleep;

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, free_port, private};
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::{Kubefan, start_in};
use crate::support::programs::process::Process;

const START: Duration = Duration::from_secs(60);
/// A program that opens no watch for this time has opened all of them.
const QUIET: Duration = Duration::from_secs(5);

/// A running kube-state-metrics with its default resources.
struct KubeStateMetrics {
    _process: Process,
    _directory: TempDir,
    telemetry: Client,
}

impl KubeStateMetrics {
    fn start(program: &OsString, kubeconfig: &Path) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (port, telemetry) = (free_port(), free_port());
        let mut command = Command::new(program);
        command
            .args(["--host", "127.0.0.1", "--telemetry-host", "127.0.0.1"])
            .args(["--port", &port.to_string()])
            .args(["--telemetry-port", &telemetry.to_string()])
            .arg("--kubeconfig")
            .arg(kubeconfig);
        Self {
            _process: start_in(&mut command, directory.path()),
            _directory: directory,
            telemetry: Client::new(&format!("http://127.0.0.1:{telemetry}"), Connector::plain()),
        }
    }

    /// Returns how often kube-state-metrics has listed and opened watches so far, and how
    /// often these requests failed.
    async fn lists_and_watches(&self) -> Result<[f64; 2], String> {
        let nothing = (http::HeaderMap::new(), bytes::Bytes::new());
        let answer = self
            .telemetry
            .try_send(http::Method::GET, "/metrics", &nothing.0, nothing.1)
            .await
            .map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        Ok(["success", "error"].map(|result| {
            let lines = text.lines().filter(|line| {
                [
                    "kube_state_metrics_list_total",
                    "kube_state_metrics_watch_total",
                ]
                .iter()
                .any(|name| line.starts_with(name))
                    && line.contains(&format!("result=\"{result}\""))
            });
            lines
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum()
        }))
    }

    /// Waits until kube-state-metrics has opened all its watches. Returns how
    /// often it has listed and watched.
    async fn has_started(&self) -> [f64; 2] {
        let mut before = eventually("kube-state-metrics", START, async || {
            match self.lists_and_watches().await? {
                counts if counts[0] > 0.0 => Ok(counts),
                _ => Err("nothing was listed".to_owned()),
            }
        })
        .await;
        loop {
            sleep(QUIET).await;
            let now = self.lists_and_watches().await.expect("it still runs");
            if now == before {
                return now;
            }
            before = now;
        }
    }
}

/// Counts the LISTs and the watch-lists that the API server has answered so far.
async fn upstream(server: &ApiServer) -> [f64; 2] {
    [
        server
            .metric("apiserver_request_total", &[("verb", "LIST")])
            .await,
        server
            .metric("apiserver_watch_list_duration_seconds_count", &[])
            .await,
    ]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_what_two_kube_state_metrics_cost_upstream() {
    let program = env::var_os("KUBEFAN_KUBE_STATE_METRICS").expect("KUBEFAN_KUBE_STATE_METRICS");
    let mut cost = Vec::new();
    for is_direct in [true, false] {
        let server = private().await;
        let kubefan = Kubefan::start(&server, &[]).await;
        let config = match is_direct {
            true => server.kubeconfig("admin"),
            false => kubefan.kubeconfig(&User::Anonymous),
        };
        let before = upstream(&server).await;
        let programs = [0, 1].map(|_| KubeStateMetrics::start(&program, &config));
        let mut own = Vec::new();
        for program in &programs {
            own.push(program.has_started().await);
        }
        let after = upstream(&server).await;
        let [lists, watch_lists] = [0, 1].map(|index| after[index] - before[index]);
        let way = if is_direct {
            "directly"
        } else {
            "through kubefan"
        };
        println!(
            "two kube-state-metrics {way}: {lists} LISTs and {watch_lists} watch-lists upstream; \
             lists and watches that succeeded and failed: {own:?}"
        );
        cost.push(lists + watch_lists);
    }
    assert!(cost[1] <= cost[0], "{cost:?}");
}
