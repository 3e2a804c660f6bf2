//! The servers and honest clients around an attack, and what they measure.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fmt, fs};

use serde_json::Value;
use tokio::time::Instant;

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::pods;
use crate::support::programs::apiserver::{ApiServer, private_with};
use crate::support::programs::informers::Informers;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::proxies::fault_proxy::FaultProxy;
use crate::support::settings::setting;

const SAMPLE: Duration = Duration::from_millis(100);
/// The time limit after an attack for the memory to be released. Events
/// are remembered for 75 seconds.
const RECOVERY: Duration = Duration::from_secs(120);
/// Waits below this are not compared with the twin's, because the scheduler alone causes them.
const NOISE: f64 = 25.0;
const OPERATIONS: [&str; 4] = ["write", "event", "list", "get"];

/// The number of objects in the collection that attackers read.
const PODS: usize = 5_000;

pub(super) struct Scene {
    pub(super) server: ApiServer,
    pub(super) victim: Kubefan,
    /// The path of a collection of 5,000 pods.
    pub(super) path: String,
    pub(super) twin: Kubefan,
    honest: Informers,
    twins: Informers,
    /// The proxies between the API server and the attacked kubefan, and between
    /// the API server and the twin.
    proxies: Option<[FaultProxy; 2]>,
}

/// How the two kubefans are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connections {
    Plain,
    /// Clients connect with TLS.
    Tls,
    /// Each kubefan has a fault proxy before the API server.
    FaultProxies,
}

/// What one attack did to kubefan and to the honest client.
pub(super) struct Row {
    name: &'static str,
    before: u64,
    peak: u64,
    after: u64,
    honest: Value,
    twins: Value,
}

impl Scene {
    /// Starts all programs; `flags` are the flags of the attacked kubefan.
    pub(super) async fn start(flags: &[&str], connections: Connections) -> Self {
        let tls = connections == Connections::Tls;
        let server = private_with(&["--allow-privileged=true"]).await;
        let path = format!(
            "/api/v1/namespaces/{}/pods",
            server.namespace("abuse").await
        );
        pods::create(&server.client(), &path, scaled(PODS)).await;
        let folder = tempfile::tempdir().expect("a temporary directory");
        let tls_dir = folder.path().to_str().expect("text");
        let tls_flags: &[&str] = match tls {
            true => &["--auth", "none", "--tls-self-signed", "--tls-dir", tls_dir],
            false => &[],
        };
        let proxies = match connections {
            Connections::FaultProxies => Some([
                FaultProxy::start(&server).await,
                FaultProxy::start(&server).await,
            ]),
            Connections::Plain | Connections::Tls => None,
        };
        let upstream = |index: usize| match &proxies {
            Some(proxies) => {
                let config = folder.path().join(format!("config-{index}"));
                kubeconfig::write(&config, proxies[index].url(), None, &User::Anonymous);
                config
            }
            None => server.kubeconfig("admin"),
        };
        let victim = Kubefan::start_with(&upstream(0), &[flags, tls_flags].concat()).await;
        let twin = Kubefan::start_with(&upstream(1), tls_flags).await;
        let authority = tls.then(|| fs::read_to_string(folder.path().join("ca.crt")));
        let authority = authority.map(|read| read.expect("kubefan's CA"));
        let client = |kubefan: &Kubefan| match &authority {
            Some(authority) => Client::new(
                kubefan.url(),
                Connector::tls(authority, None, &["http/1.1"]),
            ),
            None => kubefan.client(),
        };
        for kubefan in [&victim, &twin] {
            let cached = format!("{path}?resourceVersion=0");
            client(kubefan).get(&cached).await.ok();
        }
        let probe = async |kubefan: &Kubefan, name| {
            let namespace = server.namespace(name).await;
            let config = kubefan.file("config");
            kubeconfig::write(
                &config,
                kubefan.url(),
                authority.as_deref(),
                &User::Anonymous,
            );
            Informers::start(
                server.assets(),
                &config,
                &["probe", "--namespace", &namespace],
            )
            .await
        };
        let honest = probe(&victim, "honest").await;
        let twins = probe(&twin, "twin").await;
        Self {
            victim,
            path,
            twin,
            honest,
            twins,
            proxies,
            server,
        }
    }

    /// Returns the proxy between the API server and the attacked kubefan.
    ///
    /// # Panics
    /// If the scene has no fault proxies.
    pub(super) fn victims_upstream(&self) -> &FaultProxy {
        let [victims, _] = self.proxies.as_ref().expect("fault proxies");
        victims
    }

    /// Returns the address of the attacked kubefan.
    pub(super) fn target(&self) -> SocketAddr {
        let (_, address) = self.victim.url().split_once("://").expect("a scheme");
        address.parse().expect("an address")
    }

    /// Runs an attack, waits until the memory is released, and measures.
    pub(super) async fn run(&mut self, name: &'static str, attack: impl AsyncFn(&Self)) -> Row {
        self.honest.send_command("report").await;
        self.twins.send_command("report").await;
        let pid = self.victim.pid();
        let before = resident(pid);
        let peak = Arc::new(AtomicU64::new(before));
        let sampler = tokio::spawn({
            let peak = peak.clone();
            async move {
                loop {
                    peak.fetch_max(resident(pid), Ordering::Relaxed);
                    tokio::time::sleep(SAMPLE).await;
                }
            }
        });
        attack(self).await;
        let honest = self.honest.send_command("report").await;
        let twins = self.twins.send_command("report").await;
        sampler.abort();
        let peak = peak.load(Ordering::Relaxed);
        let after = self.released(before).await;
        let row = Row {
            name,
            before,
            peak,
            after,
            honest,
            twins,
        };
        println!("{row}");
        row
    }

    /// Waits until the memory is about what it was before, and returns what is resident then or at
    /// the end of `RECOVERY`.
    async fn released(&self, before: u64) -> u64 {
        let deadline = Instant::now() + RECOVERY;
        loop {
            let now = resident(self.victim.pid());
            if now <= idle(before) || Instant::now() >= deadline {
                return now;
            }
            tokio::time::sleep(SAMPLE).await;
        }
    }
}

/// Returns the most memory that may be resident after an attack, when `before` was resident before
/// it. The allocator does not return some free pages.
fn idle(before: u64) -> u64 {
    before + before / 5 + (32 << 20)
}

impl Row {
    pub(super) fn problems(&self, limit: u64) -> Vec<String> {
        let mut problems = Vec::new();
        let most = self.before + limit + limit / 5;
        if self.peak > most {
            problems.push(format!("{}: {} bytes, not {most}", self.name, self.peak));
        }
        if self.after > idle(self.before) {
            let (after, before) = (self.after, self.before);
            problems.push(format!(
                "{}: {after} bytes after, {before} before",
                self.name
            ));
        }
        if self.honest["failures"]["count"] != 0 {
            problems.push(format!("{}: {}", self.name, self.honest["failures"]));
        }
        for operation in OPERATIONS {
            let wait = |report: &Value| report["waits"][operation]["p99Milliseconds"].as_f64();
            match (wait(&self.honest), wait(&self.twins)) {
                (Some(honest), Some(twin)) if honest <= 2.0 * twin.max(NOISE) => {}
                waits => problems.push(format!("{}: {operation}: {waits:?}", self.name)),
            }
        }
        problems
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        let (before, peak, after) = (mib(self.before), mib(self.peak), mib(self.after));
        write!(
            f,
            "{:<28} RSS {before:>4} → {peak:>4} → {after:>4} MiB",
            self.name
        )?;
        for operation in OPERATIONS {
            let wait = |report: &Value| {
                report["waits"][operation]["p99Milliseconds"]
                    .as_f64()
                    .unwrap_or(f64::NAN)
            };
            let (honest, twin) = (wait(&self.honest), wait(&self.twins));
            write!(f, "; {operation} p99 {honest:.0} ({twin:.0}) ms")?;
        }
        write!(f, "; failures {}", self.honest["failures"]["count"])
    }
}

/// Scales a number by `KUBEFAN_SCALE`; returns at least 1.
pub(super) fn scaled(number: usize) -> usize {
    let scale: f64 = setting("KUBEFAN_SCALE", 1.0);
    ((number as f64 * scale) as usize).max(1)
}

/// Returns true if the attack `name` is to run, by `KUBEFAN_ATTACKS`.
pub(super) fn is_chosen(name: &str) -> bool {
    name.contains(&setting("KUBEFAN_ATTACKS", String::new()))
}

/// Returns the resident memory of a process, in bytes.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a running process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok())
        .expect("a number")
        << 10
}
