//! What commands of kubectl print and cost, directly and through kubefan, while nothing changes and
//! while Events come.

use std::collections::BTreeMap;
use std::future::pending;
use std::process::Output;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::scene::{Kind, Scene};
use crate::support::clients::client::Client;
use crate::support::normalise::normalise;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{ADMIN, metric};
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::kubefan::Kubefan;
use crate::support::settings::setting as environment;

/// The commands. They are quick except the first and the last one, which read all Events.
const COMMANDS: [&str; 4] = [
    "get events -A",
    "get events -A --field-selector involvedObject.name=pod-0",
    "describe pod pod-0",
    "get events -A --watch --request-timeout=2s",
];
/// New Events per second. With a later change soon after each request, the cache is proven.
const RATES: [f64; 2] = [0.0, 50.0];
const WAYS: [&str; 2] = ["directly", "through kubefan"];
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const STEP: Duration = Duration::from_secs(60);
/// The longest time of a command. kubectl may need most of a minute for 100,000 rows.
const LIMIT: Duration = Duration::from_secs(600);
/// How long the cost of the new Events alone is measured.
const ALONE: Duration = Duration::from_secs(5);
/// Longer than any measurement.
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A kubefan that has cached the Events, and what kubectl reads them with.
struct Setting<'a> {
    scene: &'a Scene,
    kubefan: Kubefan,
    /// One for the API server, and one for kubefan.
    kubectls: [Kubectl; 2],
}

/// Prints the table.
pub(super) async fn measure(scene: &Scene) {
    println!(
        "| kubectl | new events/s | way | latency | kube-apiserver's CPU | etcd's | kubefan's | \
         output |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for rate in RATES {
        let (kubefan, through) = scene.kubefan_with(Kind::Events).await;
        has_compared_tables(&kubefan, &through).await;
        let setting = Setting::new(scene, kubefan);
        let writing = async {
            if rate > 0.0 {
                scene.write(Kind::Events, rate, DAY).await;
            }
            pending::<()>().await;
        };
        tokio::select! {
            () = writing => unreachable!("writes end with the commands"),
            () = setting.measure(rate) => {}
        }
    }
}

/// Waits until kubefan has compared its Tables of Events with the API server's: until then it
/// forwards them.
async fn has_compared_tables(kubefan: &Kubefan, through: &Client) {
    let (admin, through) = (kubefan.admin(), through.with("accept", TABLE));
    let labels = [("resource", "events"), ("result", "equal")];
    eventually("equal Tables of Events", STEP, async || {
        let answer = through.get("/api/v1/events?resourceVersion=0&limit=1");
        answer.await.is(200)?;
        match metric(&admin, "kubefan_table_checks_total", &labels).await {
            compared if compared > 0.0 => Ok(()),
            _ => Err("not compared".to_owned()),
        }
    })
    .await;
}

impl<'a> Setting<'a> {
    fn new(scene: &'a Scene, kubefan: Kubefan) -> Self {
        let through = kubefan.kubeconfig(&User::Token(ADMIN));
        let kubectls = [scene.server.kubeconfig("admin"), through].map(|kubeconfig| {
            Kubectl::new(scene.server.assets(), &kubeconfig, &scene.namespaces[0])
        });
        Self {
            scene,
            kubefan,
            kubectls,
        }
    }

    async fn measure(&self, rate: f64) {
        // The first commands also fetch the discovery documents, and fill further caches.
        for kubectl in &self.kubectls {
            for command in &COMMANDS[1..3] {
                run(kubectl, command).await;
            }
        }
        let (before, began) = (self.cpu(), Instant::now());
        sleep(ALONE).await;
        let alone = self.since(before, began);
        let alone = alone.map(|cost| cost / alone[0]);
        for command in COMMANDS {
            self.measure_command(command, rate, alone).await;
        }
    }

    /// Measures a command. `alone` is what is used per second without it.
    async fn measure_command(&self, command: &str, rate: f64, alone: [f64; 4]) {
        let runs: u32 = environment("KUBEFAN_READS", 5);
        let (mut costs, mut printed) = ([[0.0; 4]; 2], [Vec::new(), Vec::new()]);
        for turn in 0..runs {
            for (way, kubectl) in self.kubectls.iter().enumerate() {
                let (before, began) = (self.cpu(), Instant::now());
                let output = run(kubectl, command).await;
                let cost = self.since(before, began);
                for (sum, cost) in costs[way].iter_mut().zip(cost) {
                    *sum += cost;
                }
                if turn == 0 {
                    printed[way] = self.comparable(way, output).await;
                }
            }
        }
        let [direct, through] = &printed;
        let outputs = [
            format!("{} lines", direct.len()),
            difference(direct, through),
        ];
        for ((way, cost), output) in WAYS.iter().zip(costs).zip(outputs) {
            let seconds = cost[0];
            let used = [1, 2, 3].map(|of| cost[of] - alone[of] * seconds);
            let [latency, server, etcd, kubefan] =
                [seconds, used[0], used[1], used[2]].map(|seconds| seconds * 1e3 / f64::from(runs));
            println!(
                "| `{command}` | {rate} | {way} | {latency:.0} ms | {server:.1} ms | \
                 {etcd:.1} ms | {kubefan:.1} ms | {output} |"
            );
        }
    }

    /// Returns the CPU time that the API server, etcd and kubefan have used so far, in seconds.
    fn cpu(&self) -> [f64; 4] {
        self.scene.cpu(Some(&self.kubefan))
    }

    /// Returns the seconds since `began`, and the CPU time that the API server, etcd and kubefan
    /// have used since [`Self::cpu`] returned `before`.
    fn since(&self, before: [f64; 4], began: Instant) -> [f64; 4] {
        let seconds = began.elapsed().as_secs_f64();
        let [server, etcd, kubefan, _] = self.scene.cpu_since(before, Some(&self.kubefan));
        [seconds, server, etcd, kubefan]
    }

    /// Returns the lines that a command has printed, without what differs between two correct
    /// runs: ages, the URL, and the Events that came meanwhile. Events come while this works.
    async fn comparable(&self, way: usize, output: Output) -> Vec<String> {
        let direct = self.scene.server.url();
        let url = [direct.as_str(), self.kubefan.url()][way].to_owned();
        let fresh = self.scene.fresh.clone();
        let lines = tokio::task::spawn_blocking(move || {
            let stdout = String::from_utf8_lossy(&output.stdout);
            let lines = stdout.lines().filter(|line| !line.starts_with(&fresh));
            let stderr = String::from_utf8_lossy(&output.stderr);
            let status = output.status.to_string();
            let lines: Vec<_> = lines.chain([&*stderr, status.as_str()]).collect();
            let printed = normalise(&lines.join("\n"), &[(url.as_str(), "URL")]);
            printed.lines().map(str::to_owned).collect::<Vec<_>>()
        });
        lines.await.expect("the lines")
    }
}

async fn run(kubectl: &Kubectl, command: &str) -> Output {
    let arguments: Vec<_> = command.split(' ').map(str::to_owned).collect();
    let output = kubectl.start(&arguments).wait_with_output();
    within(command, LIMIT, output).await.expect("kubectl runs")
}

/// Compares the lines of two outputs.
fn difference(direct: &[String], through: &[String]) -> String {
    if direct == through {
        return "equal".to_owned();
    }
    let mut counts: BTreeMap<&str, i32> = BTreeMap::new();
    for (lines, sign) in [(direct, 1), (through, -1)] {
        for line in lines {
            *counts.entry(line.as_str()).or_default() += sign;
        }
    }
    counts.retain(|_, count| *count != 0);
    match counts.first_key_value() {
        None => "equal, in another order".to_owned(),
        Some((line, _)) => format!("{} lines differ, such as `{line}`", counts.len()),
    }
}
