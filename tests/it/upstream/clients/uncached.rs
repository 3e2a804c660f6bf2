//! Clients without informers work through a kubefan with sessions as they do with the API server,
//! while a foreign writer, at the API server, changes their objects 50 times a second.
//!
//! The long form also limits the retries. Run it with a release build on a machine that is
//! otherwise idle:
//!
//! ```sh
//! KUBEFAN_TEST_BINARY=target/release/kubefan \
//!     cargo test --test it uncached -- --ignored --nocapture
//! ```
//!
//! `KUBEFAN_ITERATIONS` sets the number of iterations of each client, at most 3,000.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::support::programs::apiserver::{ADMIN, ApiServer, metric, shared};
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::{informers, process};
use crate::support::settings::setting;

/// The clients of `tests/upstream/clients/cmd/uncached`.
const CLIENTS: [&str; 4] = ["retry", "create", "manager", "reading-manager"];
/// The number of objects that a manager follows.
const FOLLOWED: u64 = 4;
/// With TLS, kubefan authenticates callers, so the sessions are those of a token.
const FLAGS: [&str; 5] = [
    "--tls-self-signed",
    "--resource",
    "configmaps",
    "--freshness",
    "configmaps=session",
];

/// What a client did.
struct Run {
    client: &'static str,
    /// The output of the program.
    report: Value,
    /// GETs and LISTs of ConfigMaps that the API server answered, to anyone.
    server_reads: f64,
    /// CPU time of the API server in seconds.
    server_cpu: f64,
}

impl Run {
    /// Runs a client to its end.
    async fn of(
        client: &'static str,
        server: &ApiServer,
        kubeconfig: &Path,
        iterations: u64,
    ) -> Self {
        let namespace = server.namespace("uncached").await;
        let arguments = [
            format!("--client={client}"),
            format!("--iterations={iterations}"),
            format!("--namespace={namespace}"),
            format!(
                "--foreign-kubeconfig={}",
                server.kubeconfig("admin").display()
            ),
        ];
        let arguments = arguments.each_ref().map(String::as_str);
        let reads_before = server_reads(server).await;
        let cpu_before = process::cpu(server.pid());
        let report = informers::run_uncached(server.assets(), kubeconfig, &arguments).await;
        let server_cpu = process::cpu(server.pid()) - cpu_before;
        Self {
            client,
            report,
            server_reads: server_reads(server).await - reads_before,
            server_cpu,
        }
    }

    fn count(&self, name: &str) -> u64 {
        let count = self.report[name].as_u64();
        count.unwrap_or_else(|| panic!("{}: no {name} in {}", self.client, self.report))
    }

    /// Checks that the client has done its work, and has read nothing that was older than what it
    /// knew: its own writes, what it had read, and that a conflict shows a newer version.
    fn is_right(&self, iterations: u64) {
        let Self { client, report, .. } = self;
        assert_eq!(report["errors"], json!([]), "{client}: {report}");
        assert_eq!(report["staleReads"], json!([]), "{client}: {report}");
        let foreign_writes = self.count("foreignWrites");
        let expected = expected_objects(client, iterations, foreign_writes);
        assert_eq!(report["objects"], expected, "{client}: {report}");
        // What the client reads after a conflict contains the foreign write that caused it, so the
        // next conflict needs another foreign write.
        assert!(
            self.count("retries") <= foreign_writes,
            "{client}: {report}"
        );
    }

    fn print(&self, way: &str) {
        let [reads, writes, retries, reconciles, foreign_writes] =
            ["reads", "writes", "retries", "reconciles", "foreignWrites"]
                .map(|name| self.count(name));
        println!(
            "{} {way}: {reads} GETs, {writes} writes, {retries} retries, {reconciles} reconciles, \
             {foreign_writes} foreign writes; the API server: {} GETs and LISTs, {:.2} s CPU",
            self.client, self.server_reads, self.server_cpu
        );
    }
}

/// Counts the GETs and LISTs of ConfigMaps that the API server has answered.
async fn server_reads(server: &ApiServer) -> f64 {
    let count = async |verb| {
        let labels = [("resource", "configmaps"), ("verb", verb)];
        server.metric("apiserver_request_total", &labels).await
    };
    count("GET").await + count("LIST").await
}

/// Counts the requests for ConfigMaps that kubefan has answered. `outcome` may be empty.
async fn answered(kubefan: &Kubefan, verb: &str, outcome: &[(&str, &str)]) -> f64 {
    let labels = [outcome, &[("resource", "configmaps"), ("verb", verb)]].concat();
    metric(&kubefan.admin(), "kubefan_requests_total", &labels).await
}

/// Returns the names and data of the objects that a client must leave behind: no write is lost,
/// neither the client's nor a foreign one.
fn expected_objects(client: &str, iterations: u64, foreign_writes: u64) -> Value {
    match client {
        "retry" => json!({
            "counter": { "own": iterations.to_string(), "foreign": foreign_writes.to_string() },
        }),
        "create" => json!({ "shared": { "state": "present" } }),
        _ => {
            let mut objects = Map::new();
            for index in 0..FOLLOWED {
                // The foreign write with the number n changes object n modulo 4.
                let last = (1..=iterations).rfind(|number| number % FOLLOWED == index);
                let last = last.unwrap_or(0).to_string();
                let data = json!({ "own": last, "foreign": last });
                objects.insert(format!("object-{index}"), data);
            }
            Value::Object(objects)
        }
    }
}

/// Runs each client directly and then through kubefan, and checks what it did. Returns both runs of
/// each client.
async fn twins(iterations: u64) -> Vec<[Run; 2]> {
    let server = shared();
    let mut direct_runs = Vec::new();
    // Before kubefan starts, because its watches cost the API server something.
    for client in CLIENTS {
        let run = Run::of(client, server, &server.kubeconfig("admin"), iterations).await;
        run.print("directly");
        run.is_right(iterations);
        direct_runs.push(run);
    }
    let kubefan = Kubefan::start(server, &FLAGS).await;
    let kubeconfig = kubefan.kubeconfig(&User::Token(ADMIN));
    let mut twins = Vec::new();
    for direct in direct_runs {
        let cached = async || answered(&kubefan, "get", &[("outcome", "cache")]).await;
        let before = cached().await;
        let run = Run::of(direct.client, server, &kubeconfig, iterations).await;
        let cached = cached().await - before;
        run.print("through kubefan");
        println!("{cached} of the GETs came from the cache");
        run.is_right(iterations);
        let reads = run.count("reads") as f64;
        assert!(2.0 * cached >= reads, "{}: {cached} of {reads}", run.client);
        twins.push([direct, run]);
    }
    // The clients have no informers, not even by mistake.
    for verb in ["list", "watch"] {
        assert_eq!(answered(&kubefan, verb, &[]).await, 0.0, "{verb}");
    }
    twins
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn clients_without_informers_do_their_work_beside_a_foreign_writer() {
    twins(60).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: KUBEFAN_ITERATIONS (1000)"]
async fn long_clients_without_informers_retry_little_more_than_directly() {
    let iterations = setting("KUBEFAN_ITERATIONS", 1_000);
    for [direct, through] in twins(iterations).await {
        // The first read of an iteration may be some milliseconds old, so its update meets a
        // foreign write more often. The reads after a conflict are as new as direct ones.
        let [retries, directly] = [&through, &direct].map(|run| run.count("retries"));
        assert!(
            retries <= 3 * directly + iterations / 10,
            "{}: {retries} retries, directly {directly}",
            direct.client
        );
    }
}
