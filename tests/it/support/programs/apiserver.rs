//! A real kube-apiserver and its etcd on loopback.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, SystemTime};
use std::{fs, thread};

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::assets::Assets;
use crate::support::programs::certificates::{Authority, Identity};
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::process::Process;

/// The token of a user in `system:masters`.
pub(crate) const ADMIN: &str = "admin-token";
/// The token of the user `reader`, which has only the permissions that a test grants.
pub(crate) const READER: &str = "reader-token";

const TOKENS: &str = "admin-token,admin,admin,\"system:masters\"\nreader-token,reader,reader\n";
/// The longest time that a server may need to start.
pub(super) const START: Duration = Duration::from_secs(90);

/// A running kube-apiserver with its own etcd; both end when it is dropped.
#[derive(Debug)]
pub(crate) struct ApiServer {
    assets: Assets,
    authority: Authority,
    admin: Identity,
    port: u16,
    etcd_ports: [u16; 2],
    flags: Vec<String>,
    // Declared before the directory, so that the processes end before their files are removed.
    apiserver: Mutex<Option<Process>>,
    etcd: Mutex<Option<Process>>,
    directory: TempDir,
}

/// Returns the API server that all tests share that neither restart nor restore it.
///
/// # Panics
/// Panics if there are no binaries, or if the server does not start.
pub(crate) fn shared() -> &'static ApiServer {
    static SHARED: OnceLock<ApiServer> = OnceLock::new();
    let assets = Assets::find();
    SHARED.get_or_init(|| {
        // The caller runs inside a runtime, where `block_on` would panic, so another thread with
        // its own runtime starts the server. The server needs no runtime after the start.
        let start = thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime
                .expect("a runtime")
                .block_on(ApiServer::start(assets, "", &[]))
        });
        start.join().expect("the shared API server starts")
    })
}

/// Starts an API server for one test, which may restart, restore or compact it.
///
/// # Panics
/// Panics in the same cases as [`shared`].
pub(crate) async fn private() -> ApiServer {
    private_with(&[]).await
}

/// Starts an API server for one test with additional flags.
///
/// # Panics
/// Panics in the same cases as [`shared`].
pub(crate) async fn private_with(flags: &[&str]) -> ApiServer {
    private_with_tokens("", flags).await
}

/// Starts an API server like [`private_with`]. `tokens` are further lines for its file with tokens.
///
/// # Panics
/// Panics in the same cases as [`shared`].
pub(crate) async fn private_with_tokens(tokens: &str, flags: &[&str]) -> ApiServer {
    ApiServer::start(Assets::find(), tokens, flags).await
}

/// Returns the minor version of Kubernetes 1 of the API server's binary, such as 37.
///
/// # Panics
/// Panics if there are no binaries.
pub(crate) fn minor() -> u32 {
    static MINOR: OnceLock<u32> = OnceLock::new();
    *MINOR.get_or_init(|| Assets::find().minor())
}

impl ApiServer {
    async fn start(assets: Assets, tokens: &str, flags: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("kubefan-it-").tempdir();
        let authority = Authority::new();
        let server = Self {
            admin: authority.client("certified-admin", "system:masters"),
            assets,
            authority,
            port: free_port(),
            etcd_ports: [free_port(), free_port()],
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            apiserver: Mutex::default(),
            etcd: Mutex::default(),
            directory: directory.expect("a temporary directory"),
        };
        server.write_files(tokens);
        server.start_etcd();
        server.start_apiserver();
        server.ready().await;
        server
    }

    fn write_files(&self, tokens: &str) {
        let tokens = format!("{TOKENS}{tokens}");
        let serving = self.authority.server();
        let account = self.authority.server();
        for (name, content) in [
            ("tokens.csv", &tokens),
            ("authority.pem", &self.authority.certificate),
            ("serving.pem", &serving.certificate),
            ("serving.key", &serving.key),
            ("account.pem", &account.certificate),
            ("account.key", &account.key),
        ] {
            fs::write(self.file(name), content).expect("the directory can be written");
        }
        fs::create_dir(self.file("etcd")).expect("the directory can be written");
        let authority = Some(self.authority.certificate.as_str());
        for (name, user) in [
            ("admin", User::Token(ADMIN)),
            ("reader", User::Token(READER)),
            ("certificate", User::Certificate(&self.admin)),
        ] {
            kubeconfig::write(&self.file(name), &self.url(), authority, &user);
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start_etcd(&self) {
        let [client, peer] = self
            .etcd_ports
            .map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new(self.assets.etcd());
        command
            .arg("--data-dir")
            .arg(self.file("etcd"))
            .args(["--unsafe-no-fsync", "--log-level=error", "--name=it"])
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &format!("it={peer}")]);
        *self.etcd.lock() = Some(self.spawn(command, "etcd.log"));
    }

    fn start_apiserver(&self) {
        let mut command = self.serving(&self.etcd_url(), self.port);
        command.args(&self.flags);
        *self.apiserver.lock() = Some(self.spawn(command, "kube-apiserver.log"));
    }

    /// Returns the command line of a kube-apiserver with this server's certificates and users, for
    /// the given etcd and port.
    pub(super) fn serving(&self, etcd: &str, port: u16) -> Command {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.file(name).display());
        let mut command = Command::new(self.assets.kube_apiserver());
        command
            .arg(format!("--etcd-servers={etcd}"))
            .arg(format!("--secure-port={port}"))
            .arg(file("tls-cert-file", "serving.pem"))
            .arg(file("tls-private-key-file", "serving.key"))
            .arg(file("client-ca-file", "authority.pem"))
            .arg(file("token-auth-file", "tokens.csv"))
            .arg(file("service-account-key-file", "account.pem"))
            .arg(file("service-account-signing-key-file", "account.key"))
            .args([
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--disable-admission-plugins=ServiceAccount",
                "--endpoint-reconciler-type=none",
                "--etcd-compaction-interval=0",
                "--kubelet-preferred-address-types=InternalIP",
                "--max-requests-inflight=20000",
            ]);
        let has_authorizers = |flag: &String| flag.starts_with("--authorization-config=");
        if !self.flags.iter().any(has_authorizers) {
            command.arg("--authorization-mode=RBAC");
        }
        command
    }

    /// Starts `command` with its stderr in the file `log` of the server's directory.
    pub(super) fn spawn(&self, mut command: Command, log: &str) -> Process {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.file(log))
            .expect("a log");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        Process::start(&mut command, Some(self.directory.path()))
    }

    async fn ready(&self) {
        let client = self.client();
        let headers = HeaderMap::new();
        eventually("kube-apiserver ready", START, async || {
            self.still_running()?;
            let answer = client.try_send(Method::GET, "/readyz", &headers, bytes::Bytes::new());
            match answer.await {
                Ok(answer) if answer.status.is_success() => Ok(()),
                Ok(answer) => Err(answer.to_string()),
                Err(error) => Err(error),
            }
        })
        .await;
        eventually("namespace default", START, async || {
            let answer = client.get("/api/v1/namespaces/default").await;
            if answer.status.is_success() {
                Ok(())
            } else {
                Err(answer.to_string())
            }
        })
        .await;
    }

    fn still_running(&self) -> Result<(), String> {
        for (slot, log) in [
            (&self.apiserver, "kube-apiserver.log"),
            (&self.etcd, "etcd.log"),
        ] {
            let ended = slot
                .lock()
                .as_mut()
                .and_then(|process| process.wait(Duration::ZERO));
            if let Some(status) = ended {
                let log = fs::read_to_string(self.file(log)).unwrap_or_default();
                let last = log.lines().rev().take(5).collect::<Vec<_>>().join("\n");
                panic!("a server ended with {status}:\n{last}");
            }
        }
        Ok(())
    }

    /// Returns the minor version of Kubernetes 1, such as 37.
    pub(crate) fn minor(&self) -> u32 {
        minor()
    }

    pub(crate) fn assets(&self) -> &Assets {
        &self.assets
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn etcd_port(&self) -> u16 {
        self.etcd_ports[0]
    }

    pub(crate) fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_ports[0])
    }

    /// Returns the certificate of the certificate authority, in PEM.
    pub(crate) fn authority(&self) -> &str {
        &self.authority.certificate
    }

    /// Issues a client certificate that the server accepts, for a user in one group.
    pub(crate) fn certificate(&self, user: &str, group: &str) -> Identity {
        self.authority.client(user, group)
    }

    /// Issues a client certificate of X.509 version 1 that the server accepts.
    pub(crate) fn certificate_of_version_1(&self, user: &str, group: &str) -> Identity {
        self.authority.client_of_version_1(user, group)
    }

    /// Issues a certificate like [`ApiServer::certificate`] that is valid until `end`.
    pub(crate) fn certificate_until(&self, user: &str, group: &str, end: SystemTime) -> Identity {
        self.authority.client_until(user, group, end)
    }

    /// Returns the server's directory, which is removed when the server is dropped.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Creates a client without credentials.
    pub(crate) fn anonymous(&self) -> Client {
        Client::new(
            &self.url(),
            Connector::tls(&self.authority.certificate, None, &["http/1.1"]),
        )
    }

    /// Creates a client that authenticates as an admin.
    pub(crate) fn client(&self) -> Client {
        self.anonymous().as_token(ADMIN)
    }

    /// Returns the path of the kubeconfig of a user: `admin` or `reader` with a token, or
    /// `certificate`, an admin with a client certificate.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.file(user)
    }

    /// Grants `reader` the `verbs` on `resources` of all API groups in one namespace.
    pub(crate) async fn allow_reader(&self, namespace: &str, verbs: &[&str], resources: &[&str]) {
        let reader = ("User", "reader");
        self.allow(reader, namespace, verbs, resources).await;
    }

    /// Grants a user or a group, given by its kind and name, the `verbs` on `resources` of all API
    /// groups in one namespace.
    pub(crate) async fn allow(
        &self,
        (kind, name): (&str, &str),
        namespace: &str,
        verbs: &[&str],
        resources: &[&str],
    ) {
        let client = self.client();
        let base = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
        let role = json!({
            "metadata": { "name": name },
            "rules": [{ "apiGroups": ["*"], "resources": resources, "verbs": verbs }],
        });
        client.create(&format!("{base}/roles"), &role).await.ok();
        let binding = json!({
            "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
            "subjects": [{ "kind": kind, "name": name }],
        });
        client
            .create(&format!("{base}/rolebindings"), &binding)
            .await
            .ok();
    }

    /// Creates a namespace with a generated name, and returns the name.
    pub(crate) async fn namespace(&self, prefix: &str) -> String {
        let body = json!({ "metadata": { "generateName": format!("{prefix}-") } });
        let made = self
            .client()
            .create("/api/v1/namespaces", &body)
            .await
            .ok()
            .json();
        made["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned()
    }

    /// Kills the API server and starts it again.
    pub(crate) async fn restart(&self) {
        self.stop();
        self.start_again().await;
    }

    /// Kills the API server.
    pub(crate) fn stop(&self) {
        drop(self.apiserver.lock().take());
    }

    /// Makes the API server stop gracefully (SIGTERM), without waiting for its end.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Stops the API server's process (SIGSTOP): its connections stay open, and it answers nothing.
    pub(crate) fn suspend(&self) {
        self.signal("STOP");
    }

    /// Continues a suspended API server.
    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let apiserver = self.apiserver.lock();
        apiserver
            .as_ref()
            .expect("the API server runs")
            .signal(name);
    }

    pub(crate) async fn start_again(&self) {
        self.start_apiserver();
        self.ready().await;
    }

    pub(crate) fn stop_etcd(&self) {
        drop(self.etcd.lock().take());
    }

    pub(crate) async fn start_etcd_again(&self) {
        self.start_etcd();
        self.ready().await;
    }

    /// Stops etcd, copies its data, and starts it again; returns the directory with the copy.
    pub(crate) async fn snapshot(&self) -> TempDir {
        self.stop_etcd();
        let copy = tempfile::tempdir().expect("a temporary directory");
        copy_directory(&self.file("etcd"), copy.path());
        self.start_etcd_again().await;
        copy
    }

    /// Stops both servers, replaces etcd's data by an older snapshot, and starts them again.
    pub(crate) async fn restore(&self, snapshot: &TempDir) {
        self.stop();
        self.stop_etcd();
        fs::remove_dir_all(self.file("etcd")).expect("etcd's data can be removed");
        copy_directory(snapshot.path(), &self.file("etcd"));
        self.start_etcd();
        self.start_again().await;
    }

    /// Compacts etcd at its current revision, and returns the revision.
    pub(crate) async fn compact(&self) -> u64 {
        let etcd = Client::new(&self.etcd_url(), Connector::plain());
        let status = etcd
            .create("/v3/maintenance/status", &json!({}))
            .await
            .ok()
            .json();
        let revision = status["header"]["revision"]
            .as_str()
            .expect("a revision")
            .to_owned();
        let body = json!({ "revision": revision, "physical": true });
        etcd.create("/v3/kv/compaction", &body).await.ok();
        revision.parse().expect("a number")
    }

    /// Returns the sum of this server's metric `name` over all series with these labels.
    pub(crate) async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        metric(&self.client(), name, labels).await
    }

    /// Returns true if the API server compresses watch-lists by default, as 1.37 and newer do.
    pub(crate) fn compresses_watch_lists(&self) -> bool {
        self.minor() >= 37
    }

    pub(crate) fn pid(&self) -> u32 {
        let apiserver = self.apiserver.lock();
        apiserver.as_ref().expect("the API server runs").id()
    }

    pub(crate) fn etcd_pid(&self) -> u32 {
        let etcd = self.etcd.lock();
        etcd.as_ref().expect("etcd runs").id()
    }

    /// Waits until the server answers a GET of `path`, such as the list of a new custom resource.
    pub(crate) async fn serves(&self, path: &str) {
        let client = self.client();
        eventually(path, START, async || {
            client.get(path).await.is(200).map(|_| ())
        })
        .await;
    }

    /// Returns the number of open watches of a resource at this API server.
    pub(crate) async fn open_watches(&self, resource: &str) -> f64 {
        open_watches(&self.client(), resource).await
    }

    /// Reads an object and returns the value at a JSON pointer; null if it has none.
    pub(crate) async fn read(&self, path: &str, pointer: &str) -> Value {
        let object = self.client().get(path).await.ok().json();
        object.pointer(pointer).cloned().unwrap_or_default()
    }
}

/// Returns the sum of a server's metric `name` over all series with these labels.
pub(crate) async fn metric(client: &Client, name: &str, labels: &[(&str, &str)]) -> f64 {
    let answer = client.get("/metrics").await.ok();
    let text = String::from_utf8_lossy(&answer.body);
    let wanted: Vec<String> = labels
        .iter()
        .map(|(label, value)| format!("{label}=\"{value}\""))
        .collect();
    let series = text.lines().filter_map(|line| line.strip_prefix(name));
    let chosen = series.filter(|rest| rest.starts_with(['{', ' ']));
    chosen
        .filter(|rest| wanted.iter().all(|label| rest.contains(label.as_str())))
        .filter_map(|rest| {
            rest.rsplit(' ')
                .next()
                .and_then(|value| value.parse::<f64>().ok())
        })
        .sum()
}

pub(super) async fn open_watches(client: &Client, resource: &str) -> f64 {
    let labels = [("resource", resource), ("verb", "WATCH")];
    metric(client, "apiserver_longrunning_requests", &labels).await
}

/// Finds a free port. No other call of this process returns the port soon. The kernel gives the
/// port to no socket that asks for any port, because it chooses higher ports for such sockets.
pub(crate) fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(rand::random()));
    loop {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory can be made");
    for entry in fs::read_dir(from).expect("a directory can be read") {
        let entry = entry.expect("an entry can be read");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a file type").is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}
