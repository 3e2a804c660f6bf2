//! Child processes that never outlive the test process, however it ends.
//!
//! A value in a `static` is never dropped, and a killed process drops nothing. So each child has a
//! watchdog: a shell that reads from a pipe, which the kernel closes when the test process ends.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use std::{fs, thread};

/// The watchdog's script: kills the child and removes its directory at the end of standard input. A
/// line on standard input means that the child has ended already.
const WATCHDOG: &str = r#"read -r _ && exit 0
kill -KILL "$1" 2>/dev/null
[ -z "$2" ] || rm -rf -- "$2""#;

const PAUSE: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the CPU time that a process has used so far, in seconds, with a resolution of 0.01.
pub(crate) fn cpu(id: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("a running process");
    // Fields 12 and 13 after the process name, which may contain spaces: user and system ticks.
    let (_, rest) = stat.rsplit_once(')').expect("a name in brackets");
    let ticks = rest.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(|ticks| ticks.parse::<f64>().expect("a number"));
    ticks.sum::<f64>() / 100.0
}

/// Counts the open files of a process.
pub(crate) fn open_files(id: u32) -> usize {
    let files = fs::read_dir(format!("/proc/{id}/fd"));
    files.expect("a running process").count()
}

/// A running child process, which is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    watchdog: Child,
}

impl Process {
    /// Starts `command`. If the test process ends first, the watchdog kills the child and removes
    /// `directory`.
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

    /// Sends the signal with this name, for example `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status();
        assert!(
            sent.is_ok_and(|status| status.success()),
            "could not send {name}"
        );
    }

    /// Waits for the exit status; `None` if the process still runs after `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        // Sleeps in real time, because a test may have paused tokio's clock.
        for _ in 0..=limit.as_millis() / PAUSE.as_millis() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            thread::sleep(PAUSE.min(limit));
        }
        None
    }

    /// Sends SIGTERM, and kills the child if it still runs after 5 s.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        if self.child.try_wait().ok().flatten().is_none() {
            self.signal("TERM");
        }
        match self.wait(PATIENCE) {
            Some(status) => status,
            None => self.kill(),
        }
    }

    /// Kills the child and waits for its end.
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
