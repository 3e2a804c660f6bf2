//! Runs the built `kubefan` binary as a simulated API server.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use http::{HeaderMap, Method};
use tempfile::TempDir;

use crate::support::clients::client::{Answer, Client};
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::{binary, start_in};
use crate::support::programs::process::Process;

const LIMIT: Duration = Duration::from_secs(20);

/// A running `kubefan sim`. Dropping it sends SIGTERM and checks that it exits with 0.
#[derive(Debug)]
pub(crate) struct Sim {
    process: Process,
    directory: TempDir,
    url: String,
    admin: String,
}

impl Sim {
    /// Starts a simulator with these flags on free ports.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new(binary());
        command.args(["sim", "--listen", "127.0.0.1:0"]);
        command.args(["--admin-listen", "127.0.0.1:0"]).args(flags);
        let process = start_in(&mut command, directory.path());
        let stdout = directory.path().join("stdout");
        let (url, admin) = eventually("the simulator's addresses", LIMIT, async || {
            let stdout = fs::read_to_string(&stdout).unwrap_or_default();
            let mut whole = stdout.split_inclusive('\n');
            let mut address = |before: &str| {
                let line = whole.next()?.strip_suffix('\n')?;
                line.strip_prefix(before).map(str::to_owned)
            };
            let url = address("simulated API server on ");
            url.zip(address("admin on ")).ok_or(stdout)
        })
        .await;
        Self {
            process,
            directory,
            url,
            admin,
        }
    }

    /// Creates a plain HTTP/1.1 client.
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.url, Connector::plain())
    }

    /// Sends a request without a body to the admin listener, and returns the answer.
    pub(crate) async fn admin(&self, method: Method, path: &str) -> Answer {
        let client = Client::new(&self.admin, Connector::plain());
        let none = HeaderMap::new();
        client.send(method, path, &none, bytes::Bytes::new()).await
    }

    /// Writes a kubeconfig for this simulator, and returns the path of the file.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        let path = self.directory.path().join("config");
        kubeconfig::write(&path, &self.url, None, &User::Anonymous);
        path
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        self.process.signal("TERM");
        let status = self.process.wait(LIMIT).expect("the simulator ends");
        let log = fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(!log.contains("panicked at"), "{log}");
    }
}
