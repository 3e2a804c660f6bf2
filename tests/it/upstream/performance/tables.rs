//! Measures the Tables that `kubectl get pods -A` asks for, directly and through kubefan in one
//! run. It asserts nothing about time, so it is run by hand:
//!
//! ```sh
//! KUBEFAN_TEST_BINARY=target/dist/kubefan \
//!     cargo test --test it measure_tables -- --ignored --nocapture
//! ```

use std::time::Duration;

use tokio::time::Instant;

use crate::support::clients::client::Client;
use crate::support::poll::eventually;
use crate::support::programs::kubectl::Kubectl;
use crate::support::settings::setting as environment;
use crate::upstream::performance::measure::{Setting, many};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const STEP: Duration = Duration::from_secs(60);

/// Milliseconds per read: until the answer was read, and of CPU of the API server and of kubefan.
type Cost = [f64; 3];

/// Reads `path` `reads` times, one after another.
async fn cost(setting: &Setting, client: &Client, path: &str, reads: usize) -> Cost {
    let (before, began) = (setting.cpu().await, Instant::now());
    for _ in 0..reads {
        let (status, bytes) = client.drain(path).await;
        assert!(
            status == 200 && bytes > 100 * many(),
            "{status}, {bytes} bytes"
        );
    }
    let took = began.elapsed().as_secs_f64();
    let after = setting.cpu().await;
    let cpu = [0, 1].map(|of| after[of] - before[of]);
    [took, cpu[0], cpu[1]].map(|seconds| seconds * 1e3 / reads as f64)
}

/// Measures the cost of a command of kubectl. The time of kubectl itself is part of the latency.
async fn cost_of_kubectl(setting: &Setting, kubectl: &Kubectl, command: &str, runs: usize) -> Cost {
    let arguments: Vec<_> = command.split(' ').map(str::to_owned).collect();
    // The first run also fetches the discovery documents.
    kubectl.run(&arguments).await;
    let (before, began) = (setting.cpu().await, Instant::now());
    for _ in 0..runs {
        let output = kubectl.run(&arguments).await;
        let lines = output.stdout.lines().count();
        assert!(lines > many(), "{lines} lines, {}", output.stderr);
    }
    let took = began.elapsed().as_secs_f64();
    let after = setting.cpu().await;
    let cpu = [0, 1].map(|of| after[of] - before[of]);
    [took, cpu[0], cpu[1]].map(|seconds| seconds * 1e3 / runs as f64)
}

fn print_ratios(what: &str, costs: &[Cost]) {
    println!(
        "`{what}`: latency {:.2}x, kube-apiserver's CPU {:.2}x",
        costs[1][0] / costs[0][0],
        costs[1][1] / costs[0][1]
    );
}

/// `KUBEFAN_PODS` sets the number of pods (5,000), and `KUBEFAN_READS` the number of reads of each
/// kind (20).
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_tables() {
    let setting = Setting::start().await;
    let reads = environment("KUBEFAN_READS", 20);
    setting.pods(many()).await;
    let path = "/api/v1/pods";
    let table = |client: &Client| client.with("accept", TABLE);
    let (direct, through) = (table(&setting.direct), table(&setting.through));
    let began = Instant::now();
    eventually("a printed Table", STEP, async || {
        let answer = through.get(path).await.ok();
        let proof = answer.header("x-kubefan-proof").map(str::to_owned);
        proof.ok_or("forwarded")
    })
    .await;
    println!("printed after {:.1} s", began.elapsed().as_secs_f64());
    println!(
        "| Table of {} pods | way | latency | kube-apiserver's CPU | kubefan's CPU |",
        many()
    );
    println!("|---|---|---|---|---|");
    for query in [
        "",
        "?resourceVersion=0",
        "?includeObject=None",
        "?includeObject=None&resourceVersion=0",
    ] {
        let path = format!("{path}{query}");
        let mut costs: Vec<Cost> = Vec::new();
        for (way, client) in [("directly", &direct), ("through kubefan", &through)] {
            let [took, server, kubefan] = cost(&setting, client, &path, reads).await;
            println!("| `{query}` | {way} | {took:.1} ms | {server:.1} ms | {kubefan:.1} ms |");
            costs.push([took, server, kubefan]);
        }
        print_ratios(query, &costs);
    }
    for command in [
        "get pods -A",
        "get pods -A -o wide",
        "get pods -A --chunk-size=0",
    ] {
        let mut costs: Vec<Cost> = Vec::new();
        let ways = ["directly", "through kubefan"].into_iter();
        for (way, kubectl) in ways.zip(setting.kubectls()) {
            let [took, server, kubefan] = cost_of_kubectl(&setting, &kubectl, command, reads).await;
            println!(
                "| `kubectl {command}` | {way} | {took:.0} ms | {server:.1} ms | {kubefan:.1} ms |"
            );
            costs.push([took, server, kubefan]);
        }
        print_ratios(command, &costs);
    }
}
