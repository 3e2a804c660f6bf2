//! Runs kubectl with an empty home directory, so that it has no cache of earlier runs.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::support::poll::within;
use crate::support::programs::assets::Assets;

const LIMIT: Duration = Duration::from_secs(60);

/// kubectl for one kubeconfig and namespace.
#[derive(Debug)]
pub(crate) struct Kubectl {
    binary: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
    home: TempDir,
}

/// The output of a command and its exit code, which is `None` if the command was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandOutput {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
}

impl Kubectl {
    pub(crate) fn new(assets: &Assets, kubeconfig: &Path, namespace: &str) -> Self {
        Self {
            binary: assets.kubectl(),
            kubeconfig: kubeconfig.to_owned(),
            namespace: namespace.to_owned(),
            home: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--namespace", &self.namespace])
            .args(arguments)
            .env("HOME", self.home.path())
            .env_remove("KUBECONFIG")
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Starts a command and returns the running process.
    pub(crate) fn start(&self, arguments: &[String]) -> Child {
        self.command(arguments).spawn().expect("kubectl starts")
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, arguments: &[String]) -> CommandOutput {
        let output = self.command(arguments).output();
        let output = within(&arguments.join(" "), LIMIT, output)
            .await
            .expect("kubectl runs");
        CommandOutput {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code(),
        }
    }

    /// Runs a command that does not end by itself until it has printed this many lines. After the
    /// first line, runs the kubectl command `meanwhile`.
    pub(crate) async fn run_for_lines(
        &self,
        arguments: &[String],
        lines: usize,
        meanwhile: Option<&[String]>,
    ) -> CommandOutput {
        let mut child = self.start(arguments);
        let mut stdout = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut lines_read = Vec::new();
        let reading = async {
            while lines_read.len() < lines {
                match stdout.next_line().await {
                    Ok(Some(line)) => lines_read.push(line),
                    _ => break,
                }
                if lines_read.len() == 1
                    && let Some(meanwhile) = meanwhile
                {
                    let other = self.run(meanwhile).await;
                    assert_eq!(other.code, Some(0), "{meanwhile:?}: {}", other.stderr);
                }
            }
        };
        let whole = tokio::time::timeout(LIMIT, reading).await.is_ok() && lines_read.len() == lines;
        child.start_kill().expect("kubectl can be ended");
        let mut stderr = String::new();
        if let Some(mut pipe) = child.stderr.take() {
            pipe.read_to_string(&mut stderr).await.expect("text");
        }
        child.wait().await.expect("kubectl ends");
        assert!(
            whole,
            "{arguments:?} printed only {lines_read:?}, and {stderr}"
        );
        CommandOutput {
            stdout: lines_read.join("\n"),
            stderr,
            code: None,
        }
    }
}
