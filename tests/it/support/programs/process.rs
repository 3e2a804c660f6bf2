//! Child processes that can't outlive the test process, however that ends.
//!
//! A value in a `static` is never dropped and a killed process drops nothing, so
//! each child has a watchdog: a shell that waits for the end of its own standard
//! input, which the kernel brings about when the test process is gone.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// A line on standard input means that the owner has ended the child itself.
const WATCHDOG: &str = r#"read -r _ && exit 0
kill -KILL "$1" 2>/dev/null
[ -z "$2" ] || rm -rf -- "$2""#;

const PAUSE: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(5);

/// A running child process; ended when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    watchdog: Child,
}

impl Process {
    /// Starts `command`. If the test process ends first, the child is killed and
    /// `directory` removed.
    pub(crate) fn start(command: &mut Command, directory: Option<&Path>) -> Self {
        let child = command
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} did not start: {error}"));
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog", &child.id().to_string()])
            .arg(directory.unwrap_or(Path::new("")))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("there is a shell");
        Self { child, watchdog }
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name, as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status();
        assert!(
            sent.is_ok_and(|status| status.success()),
            "could not send {name}"
        );
    }

    /// The exit status, as soon as there is one and within `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        // Not the tests' clock, which may be paused: a process takes real time.
        for _ in 0..=limit.as_millis() / PAUSE.as_millis() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            thread::sleep(PAUSE.min(limit));
        }
        None
    }

    /// Asks the child to end, and makes it.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        if self.child.try_wait().ok().flatten().is_none() {
            self.signal("TERM");
        }
        match self.wait(PATIENCE) {
            Some(status) => status,
            None => self.kill(),
        }
    }

    /// Ends the child without asking.
    pub(crate) fn kill(&mut self) -> ExitStatus {
        let _ = self.child.kill();
        self.child.wait().expect("a killed child can be waited for")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.try_wait().ok().flatten().is_none() {
            self.kill();
        }
        if let Some(mut stdin) = self.watchdog.stdin.take() {
            let _ = stdin.write_all(b"ended\n");
        }
        let _ = self.watchdog.wait();
    }
}
