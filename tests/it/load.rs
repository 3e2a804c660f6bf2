//! Runs `kubefan load` against the simulator: its reports are correct, it detects lost events, and
//! it deletes everything that it created.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tempfile::TempDir;

use crate::readme::commands_run_by;
use crate::support::poll::eventually;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::{binary, run, start_in};
use crate::support::programs::process::Process;
use crate::support::programs::sim::Sim;

const LIMIT: Duration = Duration::from_secs(90);

/// A running `kubefan load`.
pub(crate) struct LoadTest {
    process: Process,
    directory: TempDir,
}

/// The exit code, the output and the reports of a finished `kubefan load`.
#[derive(Debug)]
pub(crate) struct LoadResult {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The JSON report; `Null` if none was written.
    pub(crate) report: Value,
    pub(crate) page: String,
}

impl LoadTest {
    /// Starts `kubefan load` with these flags, and with both reports unless the flags have them.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new(binary());
        command.arg("load").args(flags);
        for (flag, name) in [("--json", "report.json"), ("--html", "load.html")] {
            if !flags.contains(&flag) {
                command.arg(flag).arg(directory.path().join(name));
            }
        }
        command.current_dir(directory.path());
        let process = start_in(&mut command, directory.path());
        Self { process, directory }
    }

    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn wait_for_exit(mut self) -> LoadResult {
        let status = self.process.wait(LIMIT);
        let (stdout, stderr) = (self.read("stdout"), self.read("stderr"));
        let status = status.unwrap_or_else(|| panic!("it did not end: {stdout}{stderr}"));
        LoadResult {
            code: status.code(),
            stdout,
            stderr,
            report: serde_json::from_str(&self.read("report.json")).unwrap_or_default(),
            page: self.read("load.html"),
        }
    }
}

impl LoadResult {
    /// Checks that the test succeeded and that no run lost, repeated or misordered an event;
    /// returns the report of the first run.
    pub(crate) fn only_clean_run(&self) -> &Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        for run in self.report["runs"].as_array().expect("runs") {
            let events = &run["events"];
            for fault in ["missed", "duplicated", "out_of_order", "unwanted"] {
                assert_eq!(events[fault], 0, "{fault}: {run}");
            }
            assert_eq!(events["delivered"], events["expected"], "{run}");
            assert_ne!(events["delivered"], 0, "{run}");
            assert_eq!(run["left_behind"], Value::Null, "{run}");
        }
        &self.report["runs"][0]
    }
}

/// Returns the names of the namespaces in the simulator that load tests created and did not delete.
pub(crate) async fn leftover_namespaces(sim: &Sim) -> Vec<String> {
    let list = sim.client().get("/api/v1/namespaces").await.ok().json();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let names = items
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str());
    let ours = names.filter(|name| name.starts_with("kubefan-load-"));
    ours.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_arrives_over_both_protocols_and_no_object_is_left() {
    let sim = Sim::start(&[]).await;
    let server = sim.client().server().to_owned();
    let common = [
        "--server",
        &server,
        "--watchers",
        "50",
        "--duration",
        "2s",
        "--rate",
        "25",
    ];
    let runs: [(&[&str], &str, u64, u64); 4] = [
        (&["--http", "1"], "HTTP/1.1", 50, 50 * 50),
        (&["--http", "2", "--connections", "2"], "HTTP/2", 2, 50 * 50),
        (
            &["--watch-list", "-r", "leases", "-A", "--slow-watchers", "2"],
            "HTTP/2",
            1,
            50 * 50,
        ),
        (
            &[
                "-r",
                "pods",
                "--selector-per-watcher",
                "spec.nodeName=node-{i}",
                "--list-storm",
                "2",
            ],
            "HTTP/2",
            1,
            50,
        ),
    ];
    for (flags, protocol, connections, delivered) in runs {
        let result = LoadTest::start(&[&common, flags].concat()).wait_for_exit();
        let run = result.only_clean_run();
        assert_eq!(run["settings"]["protocol"], protocol);
        assert_eq!(run["settings"]["connections"], connections);
        assert_eq!(run["writes"]["acknowledged"], 50, "{run}");
        assert_eq!(run["events"]["delivered"], delivered, "{run}");
        assert_eq!(run["sync_ms"]["count"], 50, "{run}");
        assert_eq!(run["object_bytes"], 2048, "{run}");
        assert_eq!(run["watches"]["reconnects"], 0, "{run}");
        let latency = &run["events"]["from_schedule_ms"];
        assert_eq!(latency["count"], delivered);
        assert!(latency["p50"].as_f64() <= latency["p999"].as_f64(), "{run}");
        assert!(
            result.stdout.contains("0 missed, 0 duplicated"),
            "{result:?}"
        );
        assert!(
            result.stderr.contains("50 watchers have seen all objects"),
            "{result:?}"
        );
        for elsewhere in ["http-equiv", "src=", "href=", "url(", "@import", "<script"] {
            assert!(
                !result.page.contains(elsewhere),
                "{elsewhere}: {}",
                result.page
            );
        }
        assert_eq!(result.page.matches("<svg").count(), 3);
        assert_eq!(leftover_namespaces(&sim).await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_watches_resume_after_their_connections_were_cut() {
    let sim = Sim::start(&[]).await;
    let server = sim.client().server().to_owned();
    let pid = std::process::id().to_string();
    let common = [
        "--server",
        &server,
        "--compare",
        &server,
        "--watchers",
        "60",
        "--duration",
        "1s",
        "--resume",
        "--server-pid",
        &pid,
        "--compare-server-pid",
        &pid,
    ];
    let forms: [&[&str]; 4] = [
        &["--http", "1", "--rate", "40"],
        &["--connections", "4", "--threads", "2", "--rate", "40"],
        &["--watch-list", "--rate", "max", "--window", "4"],
        &[
            "--selector-per-watcher",
            "app=load-{i}",
            "--rate",
            "200",
            "--objects",
            "60",
        ],
    ];
    for flags in forms {
        let result = LoadTest::start(&[&common, flags].concat()).wait_for_exit();
        result.only_clean_run();
        for run in result.report["runs"].as_array().expect("runs") {
            let resume = &run["resume"];
            assert_eq!(resume["live"], 60, "{run}");
            assert_eq!(resume["live_ms"]["count"], 60, "{run}");
            assert_eq!(resume["expired"], 0, "{run}");
            assert!(resume["all_live_seconds"].as_f64() > Some(0.0), "{run}");
            assert!(resume["writes"].as_u64() > Some(0), "{run}");
            assert!(resume["server_cpu_seconds"].is_f64(), "{run}");
            assert_eq!(run["watches"]["reconnects"], 0, "{run}");
        }
        let ratios = &result.report["ratios"];
        assert!(ratios["resume_all_live"].is_f64(), "{result:?}");
        let row = "60 of 60 watchers live again";
        assert_eq!(result.stdout.matches(row).count(), 2, "{result:?}");
        assert!(
            result.stderr.contains("60 of 60 watchers are live"),
            "{result:?}"
        );
        assert_eq!(leftover_namespaces(&sim).await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_are_compared_and_a_namespace_that_was_there_stays() {
    let (sim, other) = (Sim::start(&[]).await, Sim::start(&[]).await);
    let (server, compared) = (
        sim.client().server().to_owned(),
        other.client().server().to_owned(),
    );
    let flags = [
        "--server",
        &server,
        "--compare",
        &compared,
        "--name",
        "first",
        "-n",
        "default",
        "--watchers",
        "5",
    ];
    let more = [
        "--duration",
        "1s",
        "--rate",
        "max",
        "--objects",
        "3",
        "--window",
        "4",
    ];
    let result = LoadTest::start(&[&flags[..], &more[..]].concat()).wait_for_exit();
    result.only_clean_run();
    assert_eq!(result.report["runs"][1]["settings"]["server"], *compared);
    let environment = &result.report["environment"];
    let command = environment["command"].as_str().unwrap_or_default();
    assert!(command.contains(" load --server http://"), "{environment}");
    assert!(environment["cores"].as_u64() > Some(0), "{environment}");
    assert!(
        result.report["ratios"]["from_schedule_p50"].is_f64(),
        "{result:?}"
    );
    assert!(
        result
            .stdout
            .contains(&format!("first compared with {compared}")),
        "{result:?}"
    );
    for sim in [sim, other] {
        let path = "/api/v1/namespaces/default/configmaps";
        assert_eq!(
            sim.client().get(path).await.ok().json()["items"],
            serde_json::json!([])
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_the_load_test_with_a_report_and_no_leftovers() {
    let sim = Sim::start(&[]).await;
    let server = sim.client().server().to_owned();
    let load = LoadTest::start(&["--server", &server, "--watchers", "5", "--duration", "5m"]);
    eventually("writes", LIMIT, async || {
        let namespace = leftover_namespaces(&sim)
            .await
            .pop()
            .ok_or("no namespace")?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let list = String::from_utf8_lossy(&sim.client().get(&path).await.body).into_owned();
        // The sequence number of an object's first write.
        match list.contains(".00000001.") {
            true => Ok(()),
            false => Err("no write"),
        }
    })
    .await;
    load.signal("INT");
    let result = load.wait_for_exit();
    assert_eq!(result.only_clean_run()["interrupted"], true, "{result:?}");
    assert!(result.stdout.contains("by a signal"), "{result:?}");
    assert_eq!(leftover_namespaces(&sim).await, Vec::<String>::new());
}

/// A watch that ends with 410 restarts from the current objects, so the events in between are lost.
#[tokio::test(flavor = "multi_thread")]
async fn loss_is_noticed() {
    let sim = Sim::start(&[]).await;
    let server = sim.client().server().to_owned();
    let flags = [
        "--server",
        &server,
        "--watchers",
        "20",
        "--objects",
        "1",
        "--rate",
        "max",
    ];
    let mut load = LoadTest::start(&[&flags[..], &["--duration", "2s"]].concat());
    while load.process.wait(Duration::from_millis(50)).is_none() {
        sim.admin(Method::POST, "/faults/gone").await.ok();
    }
    let result = load.wait_for_exit();
    assert_eq!(result.code, Some(1), "{result:?}");
    let run = &result.report["runs"][0];
    assert!(run["events"]["missed"].as_u64() > Some(0), "{run}");
    assert!(run["watches"]["expired"].as_u64() > Some(0), "{run}");
    assert!(result.stderr.contains("events missed"), "{result:?}");
    assert!(result.page.contains("class=\"bad\""), "{result:?}");
    assert_eq!(leftover_namespaces(&sim).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readmes_command_runs() {
    let sim = Sim::start(&[]).await;
    for command in commands_run_by("tests/it/load.rs") {
        let command = command
            .replace("http://127.0.0.1:8003", sim.client().server())
            .replace("--duration 10s", "--duration 1s");
        let words: Vec<_> = command.split_whitespace().collect();
        assert_eq!(words[..2], ["kubefan", "load"], "{command}");
        let result = LoadTest::start(&words[2..]).wait_for_exit();
        result.only_clean_run();
        assert!(result.page.starts_with("<!doctype html>"), "{result:?}");
    }
}

#[test]
fn impossible_load_tests_are_refused_with_the_reason() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("config");
    // An address of a network that is reserved for documentation: no server answers there.
    kubeconfig::write(&config, "https://192.0.2.1:6443", None, &User::Anonymous);
    let config = config.display().to_string();
    for (flags, code, part) in [
        (
            &["--watchers", "0", "--rate", "x"][..],
            64,
            "--rate: \"x\" is not a number",
        ),
        (
            &["--kubeconfig", &config],
            1,
            "https://192.0.2.1:6443 is the current context's server",
        ),
        (
            &["--kubeconfig", &config, "--context", "prod"],
            1,
            "has no context \"prod\"",
        ),
        (
            &[
                "--server",
                "http://127.0.0.1:1",
                "--write-kubeconfig",
                &config,
            ],
            1,
            "not on this machine: a load test may harm it; name it with --write-server",
        ),
        (
            &[
                "--server",
                "http://127.0.0.1:1",
                "--compare-kubeconfig",
                &config,
            ],
            1,
            "not on this machine: a load test may harm it; name it with --compare",
        ),
        (&["--server", "http://127.0.0.1:1"], 1, "onnection refused"),
        (
            &[
                "--server",
                "http://127.0.0.1:1",
                "--token-file",
                "/no/token",
            ],
            1,
            "/no/token",
        ),
        (
            &["--server", "http://127.0.0.1:1", "--json", "/no/report"],
            1,
            "cannot write /no/report",
        ),
        (
            &[
                "--server",
                "http://127.0.0.1:1",
                "--http",
                "1",
                "--watchers",
                "1000000",
            ],
            1,
            "connections need 1000064 open files",
        ),
    ] {
        let ended = run(&[&["load"], flags].concat());
        assert_eq!(ended.code, Some(code), "{flags:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{flags:?}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unsuitable_resources_are_refused_with_the_reason() {
    let sim = Sim::start(&[]).await;
    let server = sim.client().server().to_owned();
    for (resource, part) in [
        (
            "confgimaps",
            "the API server has no resource \"confgimaps\"",
        ),
        ("nodes", "nodes are not namespaced"),
    ] {
        let ended = run(&["load", "--server", &server, "-r", resource]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(part), "{resource}: {ended:?}");
        assert_eq!(leftover_namespaces(&sim).await, Vec::<String>::new());
    }
}
