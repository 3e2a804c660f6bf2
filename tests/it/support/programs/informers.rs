//! Our client-go program, asked line by line.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncBufReadExt;
use tokio::io::AsyncWriteExt;
use tokio::io::BufReader;
use tokio::io::Lines;
use tokio::process::Child;
use tokio::process::ChildStdin;
use tokio::process::ChildStdout;
use tokio::process::Command;

use crate::support::poll::within;
use crate::support::programs::assets::Assets;

const DETECTOR: &str = "KUBE_WATCHLIST_INCONSISTENCY_DETECTOR";
const LIMIT: Duration = Duration::from_secs(90);

/// The running program; it ends with its standard input.
#[derive(Debug)]
pub(crate) struct Informers {
    _child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Informers {
    /// Starts it and waits until all informers have synced.
    pub(crate) async fn start(assets: &Assets, kubeconfig: &Path, arguments: &[&str]) -> Self {
        let mut child = command(assets, kubeconfig, arguments)
            .spawn()
            .expect("it starts");
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut informers = Self {
            _child: child,
            stdin,
            stdout,
        };
        let synced = informers.answer("the sync").await;
        assert_eq!(synced["synced"], true, "{synced}");
        informers
    }

    /// Asks `dump`, `errors`, `requests` or `settle MILLISECONDS`.
    pub(crate) async fn ask(&mut self, question: &str) -> Value {
        let line = format!("{question}\n");
        self.stdin
            .write_all(line.as_bytes())
            .await
            .expect("the program listens");
        self.answer(question).await
    }

    async fn answer(&mut self, what: &str) -> Value {
        let line = within(what, LIMIT, self.stdout.next_line())
            .await
            .expect("text");
        let line = line.unwrap_or_else(|| panic!("{what}: the informers program has ended"));
        serde_json::from_str(&line).expect("JSON")
    }
}

/// Runs `list`, `churn` or `restarts` and gives what it says.
pub(crate) async fn run(assets: &Assets, kubeconfig: &Path, arguments: &[&str]) -> Value {
    output(command(assets, kubeconfig, arguments), arguments).await
}

/// Runs `herd`, without the LISTs with which client-go checks itself when it is told to.
pub(crate) async fn run_plainly(assets: &Assets, kubeconfig: &Path, arguments: &[&str]) -> Value {
    let mut command = command(assets, kubeconfig, arguments);
    command.env_remove(DETECTOR);
    output(command, arguments).await
}

async fn output(mut command: Command, arguments: &[&str]) -> Value {
    let output = command.output();
    let output = within(arguments[0], LIMIT, output).await.expect("it runs");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn command(assets: &Assets, kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(assets.informers());
    command
        .args(arguments)
        .env(DETECTOR, "true")
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}
