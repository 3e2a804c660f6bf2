//! Runs the built `kubefan` binary: `kubefan serve`, or any command to its end.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use http::{HeaderMap, Method};
use tempfile::TempDir;

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, ApiServer};
use crate::support::programs::kubeconfig::User;
use crate::support::programs::process::Process;
use crate::support::programs::{kubeconfig, process};

const START: Duration = Duration::from_secs(20);
const DRAIN: Duration = Duration::from_secs(20);

/// Returns the path of the binary under test: the binary of this build, or the
/// path in `KUBEFAN_TEST_BINARY`.
pub(crate) fn binary() -> OsString {
    env::var_os("KUBEFAN_TEST_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_kubefan").into())
}

/// A running `kubefan serve`. Dropping it sends SIGTERM and checks that it exits with 0.
#[derive(Debug)]
pub(crate) struct Kubefan {
    process: Process,
    directory: TempDir,
    url: String,
    admin: String,
    is_killed: bool,
}

/// The exit code and output of a finished run of the binary.
#[derive(Debug)]
pub(crate) struct ExitedProgram {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `kubefan` with these arguments to its end.
///
/// # Panics
/// Panics if it does not end within 20 seconds.
pub(crate) fn run(arguments: &[&str]) -> ExitedProgram {
    run_with_environment(&[], arguments)
}

/// Runs `kubefan` like [`run`], with these environment variables.
pub(crate) fn run_with_environment(
    variables: &[(&str, &str)],
    arguments: &[&str],
) -> ExitedProgram {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new(binary());
    command.args(arguments).envs(variables.iter().copied());
    let mut process = start_in(&mut command, directory.path());
    let status = process.wait(START);
    let read = |name| fs::read_to_string(directory.path().join(name)).unwrap_or_default();
    let (stdout, stderr) = (read("stdout"), read("stderr"));
    let status = status.unwrap_or_else(|| panic!("{arguments:?} did not end: {stdout}{stderr}"));
    ExitedProgram {
        code: status.code(),
        stdout,
        stderr,
    }
}

/// Creates a client of the admin listener at `url`. Over TLS the client does not verify the
/// certificate, and sends a token with the right to read metrics.
pub(crate) fn admin_client(url: &str) -> Client {
    match url.starts_with("https:") {
        true => Client::new(url, Connector::unverified()).as_token(ADMIN),
        false => Client::new(url, Connector::plain()),
    }
}

pub(crate) fn start_in(command: &mut Command, directory: &Path) -> Process {
    let file = |name| File::create(directory.join(name)).expect("a file can be made");
    command
        .env_remove("KUBECONFIG")
        .env("HOME", directory)
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null())
        .stdout(file("stdout"))
        .stderr(file("stderr"));
    Process::start(command, Some(directory))
}

/// Finds the URLs of the listeners for clients and of the admin listener in a log.
pub(crate) fn listening(log: &str) -> Option<(String, String)> {
    let line = log.lines().find(|line| line.contains(" listening "))?;
    let value = |name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    value("clients").zip(value("admin"))
}

impl Kubefan {
    /// Starts kubefan in front of `server`, with the admin's token as its own identity.
    pub(crate) async fn start(server: &ApiServer, flags: &[&str]) -> Self {
        Self::start_with(&server.kubeconfig("admin"), flags).await
    }

    /// Starts kubefan with a kubeconfig, and on free ports unless `flags` set the addresses.
    pub(crate) async fn start_with(kubeconfig: &Path, flags: &[&str]) -> Self {
        Self::start_with_environment(kubeconfig, flags, &[]).await
    }

    /// Starts kubefan like [`Kubefan::start_with`], with environment variables.
    pub(crate) async fn start_with_environment(
        kubeconfig: &Path,
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let mut kubefan = Self::launch(kubeconfig, flags, environment);
        kubefan.ready().await;
        kubefan
    }

    /// Starts kubefan, and waits until its listeners accept connections.
    /// [`Kubefan::ready`] waits for the rest.
    pub(crate) async fn start_waiting(kubeconfig: &Path, flags: &[&str]) -> Self {
        let mut kubefan = Self::launch(kubeconfig, flags, &[]);
        (kubefan.url, kubefan.admin) = eventually("kubefan's listeners", START, async || {
            let log = kubefan.log();
            listening(&log).ok_or(log)
        })
        .await;
        kubefan
    }

    fn launch(kubeconfig: &Path, flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let directory = tempfile::Builder::new().prefix("kubefan-it-").tempdir();
        let directory = directory.expect("a temporary directory");
        let mut command = Command::new(binary());
        command.arg("serve").arg("--kubeconfig").arg(kubeconfig);
        for (flag, address) in [
            ("--listen", "127.0.0.1:0"),
            ("--admin-listen", "127.0.0.1:0"),
        ] {
            if !flags.contains(&flag) {
                command.args([flag, address]);
            }
        }
        command.args(flags).envs(environment.iter().copied());
        let process = start_in(&mut command, directory.path());
        Self {
            process,
            directory,
            url: String::new(),
            admin: String::new(),
            is_killed: false,
        }
    }

    /// Waits until kubefan is ready.
    pub(crate) async fn ready(&mut self) {
        let (url, admin) = eventually("kubefan's addresses", START, async || {
            if let Some(status) = self.process.wait(Duration::ZERO) {
                panic!("kubefan ended with {status}: {}", self.log());
            }
            let stdout =
                fs::read_to_string(self.directory.path().join("stdout")).unwrap_or_default();
            let address = |before| {
                let line = stdout
                    .split_inclusive('\n')
                    .find_map(|line| line.strip_prefix(before));
                line.and_then(|address| address.strip_suffix('\n'))
                    .map(str::to_owned)
            };
            address("kubefan serves on ")
                .zip(address("admin on "))
                .ok_or_else(|| stdout.clone())
        })
        .await;
        (self.url, self.admin) = (url, admin);
        let admin = self.admin();
        eventually("kubefan ready", START, async || {
            let none = HeaderMap::new();
            match admin
                .try_send(Method::GET, "/readyz", &none, bytes::Bytes::new())
                .await
            {
                Ok(answer) if answer.status.is_success() => Ok(()),
                Ok(answer) => Err(format!("{answer}\n{}", self.log())),
                Err(error) => Err(format!("{error}\n{}", self.log())),
            }
        })
        .await;
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Creates a plain HTTP/1.1 client without credentials.
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.url, Connector::plain())
    }

    /// Returns Everything that kubefan has written to stderr so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default()
    }

    /// Returns the path of a file in the directory that is removed with this value.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a kubeconfig for this kubefan, and returns the path of the file.
    pub(crate) fn kubeconfig(&self, user: &User<'_>) -> PathBuf {
        self.kubeconfig_named("config", user)
    }

    /// Writes a kubeconfig like [`Kubefan::kubeconfig`], for one of several users.
    pub(crate) fn kubeconfig_named(&self, name: &str, user: &User<'_>) -> PathBuf {
        let path = self.file(name);
        kubeconfig::write(&path, &self.url, self.authority().as_deref(), user);
        path
    }

    /// Returns the CA of `--tls-self-signed`, if kubefan was started
    /// with it and without `--tls-dir`.
    pub(crate) fn authority(&self) -> Option<String> {
        fs::read_to_string(self.file(".local/state/kubefan/tls/ca.crt")).ok()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns the URL of the admin listener.
    pub(crate) fn admin_url(&self) -> &str {
        &self.admin
    }

    /// Creates a client of the admin listener.
    pub(crate) fn admin(&self) -> Client {
        admin_client(&self.admin)
    }

    /// Returns the text of the admin listener's `/metrics`.
    pub(crate) async fn metrics(&self) -> String {
        let answer = self.admin().get("/metrics").await.ok();
        String::from_utf8_lossy(&answer.body).into_owned()
    }

    /// Returns the CPU time that the process has used so far, in
    /// seconds, with a resolution of 0.01.
    pub(crate) fn cpu(&self) -> f64 {
        process::cpu(self.process.id())
    }

    /// Sends the signal with this name, for example `HUP`.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Kills kubefan, as the kernel does if memory runs out. Nothing is drained.
    pub(crate) fn kill(mut self) {
        self.process.signal("KILL");
        self.wait_for_exit();
        self.is_killed = true;
    }

    /// Sends SIGTERM without waiting.
    pub(crate) fn terminate(&self) {
        self.process.signal("TERM");
    }

    /// Waits until kubefan exits after a signal.
    ///
    /// # Panics
    /// Panics if it does not exit within 20 seconds.
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        let status = self.process.wait(DRAIN);
        status.unwrap_or_else(|| panic!("kubefan does not end: {}", self.log()))
    }
}

impl Drop for Kubefan {
    fn drop(&mut self) {
        let log = self.log();
        if thread::panicking() {
            // The API server of the test has often ended by now, and each cache logs that.
            let lines = log.lines().rev();
            let lines = lines.filter(|line| !line.contains("reflector::failures"));
            let last: Vec<&str> = lines.take(30).collect();
            let lines: Vec<&str> = last.into_iter().rev().collect();
            eprintln!("the end of kubefan's log:\n{}", lines.join("\n"));
            return;
        }
        if self.process.wait(Duration::ZERO).is_none() {
            self.terminate();
        }
        let status = self.wait_for_exit();
        if !self.is_killed {
            assert_eq!(status.code(), Some(0), "kubefan's end: {}", self.log());
        }
        assert!(!log.contains("panicked at"), "{log}");
    }
}
