//! The test programs `informers` (client-go) and `manager` (controller-runtime) of
//! `tests/upstream`, which answer one command per line, and `uncached`, which runs to its end.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::poll::within;
use crate::support::programs::assets::Assets;

const DETECTOR: &str = "KUBE_WATCHLIST_INCONSISTENCY_DETECTOR";
const LIMIT: Duration = Duration::from_secs(90);

/// A running `informers` or `manager` program; it ends when its standard input is closed.
#[derive(Debug)]
pub(crate) struct Informers {
    _child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Informers {
    /// Starts the program and waits until all its informers have synced. client-go's inconsistency
    /// detector compares each watch-list with a LIST.
    pub(crate) async fn start(assets: &Assets, kubeconfig: &Path, arguments: &[&str]) -> Self {
        Self::spawn(command(assets, kubeconfig, arguments)).await
    }

    /// Starts the informers like [`Informers::start`], without the LISTs of the detector.
    pub(crate) async fn start_plainly(
        assets: &Assets,
        kubeconfig: &Path,
        arguments: &[&str],
    ) -> Self {
        Self::spawn(plain_command(assets, kubeconfig, arguments)).await
    }

    /// Starts the informers with dynamic clients that prefer CBOR and also accept JSON.
    pub(crate) async fn start_preferring_cbor(
        assets: &Assets,
        kubeconfig: &Path,
        arguments: &[&str],
    ) -> Self {
        let mut command = command(assets, kubeconfig, arguments);
        command.env("KUBE_FEATURE_ClientsAllowCBOR", "true");
        command.env("KUBE_FEATURE_ClientsPreferCBOR", "true");
        Self::spawn(command).await
    }

    /// Starts a manager that copies the ConfigMaps of a namespace to Secrets, and waits until its
    /// caches have synced.
    pub(crate) async fn start_manager(assets: &Assets, kubeconfig: &Path, namespace: &str) -> Self {
        let arguments = ["--namespace", namespace];
        Self::spawn(program(assets.manager(), kubeconfig, &arguments)).await
    }

    async fn spawn(mut command: Command) -> Self {
        let mut child = command.spawn().expect("it starts");
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

    /// Sends a command (`dump`, `errors`, `requests`, `service` or `settle MILLISECONDS`; to a
    /// manager `report`), and returns the answer.
    pub(crate) async fn send_command(&mut self, command: &str) -> Value {
        let line = format!("{command}\n");
        self.stdin
            .write_all(line.as_bytes())
            .await
            .expect("the program listens");
        self.answer(command).await
    }

    async fn answer(&mut self, what: &str) -> Value {
        let line = within(what, LIMIT, self.stdout.next_line())
            .await
            .expect("text");
        let line = line.unwrap_or_else(|| panic!("{what}: the informers program has ended"));
        serde_json::from_str(&line).expect("JSON")
    }
}

/// Runs the subcommand `list`, `churn` or `restarts` to its end, and returns its output.
pub(crate) async fn run(assets: &Assets, kubeconfig: &Path, arguments: &[&str]) -> Value {
    output(command(assets, kubeconfig, arguments), arguments).await
}

/// Runs the subcommand `herd` to its end, without the LISTs of client-go's inconsistency detector,
/// which the other subcommands have switched on.
pub(crate) async fn run_plainly(assets: &Assets, kubeconfig: &Path, arguments: &[&str]) -> Value {
    output(plain_command(assets, kubeconfig, arguments), arguments).await
}

/// Runs the program `uncached` to its end, and returns its output.
pub(crate) async fn run_uncached(assets: &Assets, kubeconfig: &Path, arguments: &[&str]) -> Value {
    output(program(assets.uncached(), kubeconfig, arguments), arguments).await
}

async fn output(mut command: Command, arguments: &[&str]) -> Value {
    let output = command.output();
    let output = within(arguments[0], LIMIT, output).await.expect("it runs");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn command(assets: &Assets, kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = plain_command(assets, kubeconfig, arguments);
    command.env(DETECTOR, "true");
    command
}

fn plain_command(assets: &Assets, kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = program(assets.informers(), kubeconfig, arguments);
    command.env_remove(DETECTOR);
    command
}

fn program(program: PathBuf, kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}
