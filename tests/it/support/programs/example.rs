//! The programs in `examples/`, built as cargo builds them for their users.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;

use super::process::Process;
use crate::repository::root;
use crate::support::poll::within;

/// The time limit for a line to be printed, and for the program to end.
const LIMIT: Duration = Duration::from_secs(60);

/// Builds the example `name` with the profile of this test, unless it is up
/// to date, and returns its path.
pub(crate) fn built(name: &str) -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--example", name]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let built = build.current_dir(root()).status().expect("cargo runs");
    assert!(built.success(), "{name} is not built");
    // The tests are in the folder `deps` beside the folder `examples`.
    let tests = std::env::current_exe().expect("a path");
    let folder = tests.parent().and_then(|deps| deps.parent());
    folder.expect("a folder").join("examples").join(name)
}

/// A running example. It is killed when this is dropped.
pub(crate) struct Example {
    process: Process,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Example {
    /// Builds the example `name`, unless it is up to date, and starts it.
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(built(name));
        command.args(arguments).stdout(Stdio::piped());
        let mut process = Process::start(&mut command, None);
        let output = process.child().stdout.take().expect("it is piped");
        let (sender, lines) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { process, lines }
    }

    /// Waits until the example prints a line that `is_wanted` accepts, and returns it.
    pub(crate) async fn line(&mut self, what: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        within(what, LIMIT, async {
            loop {
                let line = self.lines.recv().await;
                let line = line.unwrap_or_else(|| panic!("{what}: the example ended"));
                if is_wanted(&line) {
                    return line;
                }
            }
        })
        .await
    }

    /// Sends the signal `name`, and returns the exit status of the example.
    pub(crate) fn end(mut self, name: &str) -> ExitStatus {
        self.process.signal(name);
        self.process.wait(LIMIT).expect("it ends in time")
    }
}
