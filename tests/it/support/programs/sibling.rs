//! A second kube-apiserver on the etcd of another kube-apiserver.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, ApiServer, START, free_port, open_watches};
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::process::Process;

/// A running kube-apiserver with the certificates of another kube-apiserver. The process
/// ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Sibling {
    process: Process,
    port: u16,
    authority: String,
    log: PathBuf,
}

impl Sibling {
    /// Starts a sibling of the API server `of`, on the etcd at the URL `etcd`.
    ///
    /// # Panics
    /// Panics if it does not start.
    pub(crate) async fn start(of: &ApiServer, etcd: &str, flags: &[&str]) -> Self {
        let port = free_port();
        let mut command = of.serving(etcd, port);
        command.args(flags);
        let log = format!("sibling-{port}.log");
        let mut sibling = Self {
            process: of.spawn(command, &log),
            port,
            authority: of.authority().to_owned(),
            log: of.directory().join(log),
        };
        sibling.ready().await;
        sibling
    }

    async fn ready(&mut self) {
        let (client, none) = (self.client(), HeaderMap::new());
        eventually("a second kube-apiserver ready", START, async || {
            if let Some(status) = self.process.wait(Duration::ZERO) {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(5).collect();
                panic!(
                    "the second kube-apiserver ended with {status}:\n{}",
                    last.join("\n")
                );
            }
            let ready = client.try_send(Method::GET, "/readyz", &none, Bytes::new());
            ready.await.and_then(|answer| answer.is(200))
        })
        .await;
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Creates a client that authenticates as an admin.
    pub(crate) fn client(&self) -> Client {
        let connector = Connector::tls(&self.authority, None, &["http/1.1"]);
        Client::new(&self.url(), connector).as_token(ADMIN)
    }

    /// Returns the number of open watches of a resource at this API server.
    pub(crate) async fn open_watches(&self, resource: &str) -> f64 {
        open_watches(&self.client(), resource).await
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Writes a kubeconfig for this API server with the admin's token.
    pub(crate) fn write_kubeconfig(&self, path: &Path) {
        let authority = Some(self.authority.as_str());
        kubeconfig::write(path, &self.url(), authority, &User::Token(ADMIN));
    }
}
