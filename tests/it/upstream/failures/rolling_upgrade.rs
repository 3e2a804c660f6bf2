//! Two replicas of kubefan behind a load balancer are replaced one after the other, under informers
//! of client-go and writes. The long form is run by hand, with the release binary:
//!
//! ```sh
//! KUBEFAN_TEST_BINARY=target/dist/kubefan \
//!     cargo test --test it rolling_upgrade -- --ignored --nocapture
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval};

use super::restart::{SELECTORS, write};
use super::restart_of_real_clients::{FORMATS, RESOURCES, create_last, each_equals};
use crate::support::clients::client::Client;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, ApiServer, private_with_tokens};
use crate::support::programs::informers::Informers;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::proxies::balancer::Balancer;

const LIMIT: Duration = Duration::from_secs(60);
/// How often the load balancer probes the replicas.
const PROBE: Duration = Duration::from_millis(200);
/// The longest time that a client may be without service.
const OUTAGE: u64 = 2_000;
/// The limit beside other tests, which share the CPUs.
const OUTAGE_BESIDE_TESTS: u64 = 10_000;
/// How long a pod has by default to end.
const TERMINATION: Duration = Duration::from_secs(30);
/// The token of the replicas' own user.
const TOKEN: &str = "kubefan-token";
const TOKENS: &str = "kubefan-token,kubefan,kubefan,\"system:masters\"\n";
const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, users: [kubefan]}, {level: None}]
";

/// 48 informers: 24 that share an HTTP/2 connection, and 24 over HTTP/1.1.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn replicas_are_replaced_without_loss() {
    upgrade(3).await;
}

/// 512 informers.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand"]
async fn long_five_hundred_informers_lose_nothing() {
    upgrade(32).await;
}

/// The replicas, and the load balancer that sends new connections to those that are ready.
struct Replicas {
    balancer: Arc<Balancer>,
    probed: Arc<Mutex<Vec<(u16, Client)>>>,
    kubeconfig: PathBuf,
    directory: TempDir,
    probing: JoinHandle<()>,
}

struct Replica {
    port: u16,
    kubefan: Kubefan,
}

impl Replicas {
    async fn start(server: &ApiServer) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let kubeconfig = directory.path().join("kubefan");
        let authority = Some(server.authority());
        kubeconfig::write(&kubeconfig, &server.url(), authority, &User::Token(TOKEN));
        let balancer = Arc::new(Balancer::start(&[]).await);
        let probed = Arc::default();
        Self {
            probing: tokio::spawn(probe(Arc::clone(&balancer), Arc::clone(&probed))),
            balancer,
            probed,
            kubeconfig,
            directory,
        }
    }

    /// Starts a replica and waits until it gets connections.
    async fn add(&self) -> Replica {
        let tls = self.directory.path().join("tls").display().to_string();
        let flags = [
            &["--tls-self-signed", "--tls-dir", &tls][..],
            &["--resource", "configmaps"],
            &["--shutdown-delay-duration", "2s"],
            &["--shutdown-grace-period", "20s"],
        ];
        let kubefan = Kubefan::start_with(&self.kubeconfig, &flags.concat()).await;
        let (_, port) = kubefan.url().rsplit_once(':').expect("an address");
        let port = port.parse().expect("a port");
        let probed = kubefan.admin();
        self.probed.lock().push((port, probed));
        let replica = Replica { port, kubefan };
        self.knows(port, true).await;
        replica
    }

    /// Ends a replica as a node ends a pod.
    async fn remove(&self, mut replica: Replica) {
        let begun = Instant::now();
        replica.kubefan.terminate();
        self.knows(replica.port, false).await;
        let noticed = begun.elapsed();
        assert_eq!(replica.kubefan.wait_for_exit().code(), Some(0));
        let took = begun.elapsed();
        eprintln!("a replica was not ready after {noticed:?}, and ended after {took:?}");
        assert!(took < TERMINATION, "{took:?}");
        self.probed.lock().retain(|(port, _)| *port != replica.port);
    }

    async fn knows(&self, port: u16, is_ready: bool) {
        eventually("the load balancer", LIMIT, async || {
            let ports = self.balancer.ports();
            match ports.contains(&port) == is_ready {
                true => Ok(()),
                false => Err(format!("{ports:?}")),
            }
        })
        .await;
    }

    /// Writes a kubeconfig for clients, and returns its path.
    fn client(&self) -> PathBuf {
        let authority = fs::read_to_string(self.directory.path().join("tls/ca.crt"));
        let authority = authority.expect("a CA");
        let path = self.directory.path().join("client");
        let url = self.balancer.url();
        kubeconfig::write(&path, &url, Some(&authority), &User::Token(ADMIN));
        path
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.probing.abort();
    }
}

/// Probes the readiness of the replicas, as the nodes of a cluster do for a Service.
async fn probe(balancer: Arc<Balancer>, probed: Arc<Mutex<Vec<(u16, Client)>>>) {
    let mut ticks = interval(PROBE);
    loop {
        ticks.tick().await;
        let replicas = probed.lock().clone();
        let mut ready = Vec::new();
        for (port, admin) in replicas {
            let none = http::HeaderMap::new();
            let answer = admin.try_send(http::Method::GET, "/readyz", &none, bytes::Bytes::new());
            if answer.await.is_ok_and(|answer| answer.status == 200) {
                ready.push(port);
            }
        }
        balancer.send_to(&ready);
    }
}

/// Starts `copies` informers of each format and selection. They get their objects by a watch-list.
async fn informers(
    server: &ApiServer,
    config: &Path,
    namespace: &str,
    copies: usize,
    more: &[&str],
) -> Informers {
    let copies = copies.to_string();
    let fixed = ["--namespace", namespace, "--resources", RESOURCES];
    let mut flags = [&fixed[..], &["--copies", &copies], more].concat();
    for selector in SELECTORS {
        flags.extend(["--selection", selector]);
    }
    Informers::start_plainly(server.assets(), config, &flags).await
}

/// Counts the lists and watch-lists that the informers have sent.
async fn lists(informers: &mut Informers) -> u64 {
    let report = informers.send_command("errors").await;
    let requests = report["requests"].as_object().expect("counts");
    let counts = requests.values().map(|counts| {
        let count = |name: &str| counts[name].as_u64().expect("a count");
        count("lists") + count("watchLists")
    });
    counts.sum()
}

/// Returns the replicas' watch-lists of ConfigMaps so far, by the audit
/// log, and their other full lists.
fn initial_lists(audit: &Path) -> (usize, Vec<String>) {
    let log = fs::read_to_string(audit).expect("an audit log");
    let complete = log.rsplit_once('\n').map_or("", |(complete, _)| complete);
    // A watch has an event for its start and one for its end.
    let requests: BTreeMap<_, _> = complete
        .lines()
        .map(|line| {
            let event: Value = serde_json::from_str(line).expect("an event");
            let text = |key: &str| event[key].as_str().expect("text").to_owned();
            (text("auditID"), text("requestURI"))
        })
        .collect();
    let uris = requests.into_values();
    let of_maps = uris.filter(|uri| uri.starts_with("/api/v1/configmaps?"));
    let (watch_lists, others): (Vec<_>, Vec<_>) =
        of_maps.partition(|uri| uri.contains("sendInitialEvents=true"));
    let pages = others.into_iter().filter(|uri| uri.contains("limit=500"));
    (watch_lists.len(), pages.collect())
}

async fn upgrade(copies: usize) {
    let files = tempfile::tempdir().expect("a temporary directory");
    let (policy, audit) = (files.path().join("policy"), files.path().join("audit"));
    fs::write(&policy, POLICY).expect("a file");
    let flags = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", audit.display()),
        "--audit-log-mode=blocking".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = private_with_tokens(TOKENS, &flags).await;
    let namespace = server.namespace("upgrade").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let replicas = Replicas::start(&server).await;
    let old = [replicas.add().await, replicas.add().await];

    // All informers start with an empty namespace, so they must see equal events.
    let through = replicas.client();
    let mut direct = informers(&server, &server.kubeconfig("admin"), &namespace, 1, &[]).await;
    let mut all = [
        informers(&server, &through, &namespace, copies, &[]).await,
        informers(&server, &through, &namespace, copies, &["--http1"]).await,
    ];
    let before = [lists(&mut all[0]).await, lists(&mut all[1]).await];
    let writer = write(server.client(), path.clone());
    let mut new = Vec::new();
    for old in old {
        new.push(replicas.add().await);
        replicas.remove(old).await;
    }
    writer.abort();
    let last = create_last(&server, &path).await;

    for (informers, before) in all.iter_mut().zip(before) {
        eventually("the same events", LIMIT, async || {
            let wanted = direct.send_command("errors").await;
            let got = informers.send_command("errors").await;
            each_equals(&wanted["events"], &got["events"])?;
            let wanted = direct.send_command("dump").await;
            let got = informers.send_command("dump").await;
            match wanted.to_string().contains(&last) {
                true => each_equals(&wanted["resources"], &got["resources"]),
                false => Err(format!("{last} is missing")),
            }
        })
        .await;
        assert_eq!(lists(informers).await, before, "lists and watch-lists");
        let errors = informers.send_command("errors").await["watchErrors"].take();
        assert_eq!(errors["count"], 0, "{errors}");
        let service = informers.send_command("service").await;
        let number = |name: &str| service[name].as_u64().expect("a number");
        let (outage, delay) = (
            number("longestOutageMilliseconds"),
            number("longestDelayMilliseconds"),
        );
        let interrupted = service["interruptions"].as_object().expect("counts");
        eprintln!("without a watch for {outage} ms at most, events after {delay} ms at most");
        assert_eq!(
            interrupted.len(),
            copies * FORMATS * SELECTORS.len(),
            "{service}"
        );
        let limit = match copies {
            ..=3 => OUTAGE_BESIDE_TESTS,
            _ => OUTAGE,
        };
        assert!(outage < limit && delay < limit, "{service}");
    }
    let (watch_lists, pages) = initial_lists(&audit);
    assert_eq!(watch_lists, 4 * FORMATS, "one for each replica and format");
    assert_eq!(pages, Vec::<String>::new(), "other full lists");
}
