//! The real kube-controller-manager works with kubefan as its only API server.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::clients::client::Client;
use crate::support::cluster::define_widgets;
use crate::support::outcomes::request_count;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, ApiServer, metric, private, shared};
use crate::support::programs::informers;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::process::Process;

/// The longest wait for a controller's effect. It is generous because controllers back off for
/// seconds after a conflict.
const LIMIT: Duration = Duration::from_secs(90);

/// How the controller manager's informers get their initial objects.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StartMode {
    /// A LIST at resourceVersion 0, then a watch from the list's version.
    List,
    /// A watch list of the most recent state, which client-go's inconsistency detector checks.
    WatchList,
}

/// How the controller manager proves its identity to kubefan.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Credentials {
    /// Not at all, over plain HTTP.
    None,
    /// With a client certificate, over TLS.
    Certificate,
    /// With a token, over TLS. Each controller writes with a token of a separate service account.
    Tokens,
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn controllers_that_list_do_their_work() {
    controllers_do_their_work(StartMode::List, Credentials::None).await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn controllers_that_watch_lists_do_their_work() {
    controllers_do_their_work(StartMode::WatchList, Credentials::Certificate).await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn controllers_with_tokens_of_their_own_do_their_work() {
    controllers_do_their_work(StartMode::WatchList, Credentials::Tokens).await;
}

async fn controllers_do_their_work(start_mode: StartMode, credentials: Credentials) {
    // A private server, because controllers change objects in all namespaces.
    let server = private().await;
    let program = server.assets().kube_controller_manager();
    let before = watches(&server).await;
    let certificate = server.certificate("manager", "system:masters");
    let tls = &["--tls-self-signed", "--cache-secrets"][..];
    let (flags, user) = match credentials {
        Credentials::None => (&[][..], User::Anonymous),
        Credentials::Certificate => (tls, User::Certificate(&certificate)),
        Credentials::Tokens => (tls, User::Token(ADMIN)),
    };
    let kubefan = Kubefan::start(&server, flags).await;
    let kubeconfig = kubefan.kubeconfig(&user);
    let mut command = manager_command(program, &server, &kubefan, &kubeconfig, start_mode);
    if credentials == Credentials::Tokens {
        command.arg("--use-service-account-credentials=true");
    }
    let manager = ControllerManager::start(command, &kubefan);
    let cluster = Cluster {
        client: server.client(),
        namespace: server.namespace("controllers").await,
        manager,
    };
    cluster.rolls_out_and_scales().await;
    cluster.collects_in_the_background().await;
    cluster.collects_in_the_foreground().await;
    cluster.leaves_orphans().await;
    cluster.fills_and_empties_a_namespace().await;
    reads_came_from_the_cache(&server, &kubefan, start_mode, before).await;
    cluster.manager.end();
    if credentials == Credentials::Tokens {
        let labels = [("kind", "SelfSubjectReview")];
        let reviewed = metric(&kubefan.admin(), "kubefan_reviews_total", &labels).await;
        // The tokens of the manager and of its controllers.
        assert!(reviewed > 5.0, "{reviewed} questions about tokens");
    }
}

/// Resources that the controllers read only with typed clients, so only in protobuf.
const WATCHED: [&str; 3] = ["replicasets", "deployments", "serviceaccounts"];

async fn watches(server: &ApiServer) -> Vec<f64> {
    let mut open = Vec::new();
    for resource in WATCHED {
        open.push(server.open_watches(resource).await);
    }
    open
}

async fn reads_came_from_the_cache(
    server: &ApiServer,
    kubefan: &Kubefan,
    start_mode: StartMode,
    before: Vec<f64>,
) {
    let metrics = kubefan.metrics().await;
    let request_count = |outcome, verb| request_count(&metrics, outcome, verb);
    // The controller manager's only way to the API server is kubefan, which forwards writes.
    for verb in ["create", "update", "delete", "deletecollection"] {
        assert!(request_count("forwarded", verb) > 0.0, "{verb}: {metrics}");
    }
    match start_mode {
        StartMode::List => assert!(request_count("cache", "list") > 20.0, "{metrics}"),
        StartMode::WatchList => assert!(request_count("cache", "watch") > 20.0, "{metrics}"),
    }
    let open = eventually("the caches' watches only", LIMIT, async || {
        let open = watches(server).await;
        let grown = open.iter().zip(&before).map(|(now, before)| now - before);
        let grown: Vec<f64> = grown.collect();
        if grown.iter().all(|grown| *grown == 1.0) {
            Ok(grown)
        } else {
            Err(format!("{WATCHED:?}: {grown:?}"))
        }
    })
    .await;
    assert_eq!(open.len(), WATCHED.len());
    for resource in WATCHED {
        let watchers = metrics.lines().find_map(|line| {
            let is_meant = line.starts_with("kubefan_watchers{")
                && line.contains(&format!("resource=\"{resource}\""))
                && line.contains("format=\"protobuf\"");
            line.rsplit(' ')
                .next()
                .filter(|_| is_meant)?
                .parse::<f64>()
                .ok()
        });
        assert!(watchers >= Some(1.0), "{resource}: {metrics}");
    }
}

/// A running kube-controller-manager and the path of its log.
struct ControllerManager {
    process: Mutex<Process>,
    log: PathBuf,
}

fn manager_command(
    program: PathBuf,
    server: &ApiServer,
    kubefan: &Kubefan,
    kubeconfig: &Path,
    start_mode: StartMode,
) -> Command {
    let is_watch_list = start_mode == StartMode::WatchList;
    let mut command = Command::new(program);
    command
        .env(
            "KUBE_WATCHLIST_INCONSISTENCY_DETECTOR",
            is_watch_list.to_string(),
        )
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--feature-gates=WatchListClient={is_watch_list}"))
        .arg(format!(
            "--service-account-private-key-file={}",
            server.directory().join("account.key").display()
        ))
        .arg(format!(
            "--root-ca-file={}",
            server.directory().join("authority.pem").display()
        ))
        .arg(format!(
            "--flex-volume-plugin-dir={}",
            kubefan.file("plugins").display()
        ))
        .args(["--leader-elect=true", "--secure-port=0"]);
    command
}

impl ControllerManager {
    fn start(mut command: Command, kubefan: &Kubefan) -> Self {
        let log = kubefan.file("kube-controller-manager.log");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("a log"));
        Self {
            process: Mutex::new(Process::start(&mut command, None)),
            log,
        }
    }

    /// Returns the last lines of the log, for a failure message. Panics if the program has ended.
    fn state(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(15).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        let end = self.process.lock().wait(Duration::ZERO);
        if let Some(status) = end {
            panic!(
                "the controller manager ended with {status}:\n{}",
                lines.join("\n")
            );
        }
        lines.join("\n")
    }

    fn end(self) {
        self.state();
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        for word in ["inconsistency detected", "panic"] {
            assert!(!log.contains(word), "{word}: {log}");
        }
        let _ = self.process.into_inner().stop();
    }
}

/// A namespace where the controllers work, and a client that reads it at the API server.
struct Cluster {
    client: Client,
    namespace: String,
    manager: ControllerManager,
}

impl Cluster {
    async fn rolls_out_and_scales(&self) {
        self.make_deployment("scaled", 3).await;
        self.settles("scaled", 1, 3).await;
        let sets = self.owned("apps/v1", "replicasets", "scaled").await;
        let owner = &sets[0]["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["name"]),
            (&json!("Deployment"), &json!("scaled"))
        );
        for replicas in [5, 1] {
            let path = self.path("apps/v1", "deployments/scaled");
            let change = json!({ "spec": { "replicas": replicas } });
            self.client.merge(&path, &change).await.ok();
            self.settles("scaled", 1, replicas).await;
        }
        let path = self.path("apps/v1", "deployments/scaled");
        eventually("status", LIMIT, async || {
            let deployment = self.client.get(&path).await.ok().json();
            match &deployment["status"] {
                status if status["replicas"] == 1 => Ok(()),
                status => Err(format!("{status}\n{}", self.manager.state())),
            }
        })
        .await;
    }

    async fn collects_in_the_background(&self) {
        self.delete("scaled", "Background").await;
        self.is_gone("scaled").await;
        self.settles("scaled", 0, 0).await;
    }

    async fn collects_in_the_foreground(&self) {
        self.make_deployment("front", 2).await;
        self.settles("front", 1, 2).await;
        self.delete("front", "Foreground").await;
        self.is_gone("front").await;
        // Foreground deletion removes the owner last, so nothing is left now.
        assert_eq!(self.counts("front").await, (0, 0));
    }

    async fn leaves_orphans(&self) {
        self.make_deployment("parent", 2).await;
        self.settles("parent", 1, 2).await;
        let sets = self.owned("apps/v1", "replicasets", "parent").await;
        self.delete("parent", "Orphan").await;
        self.is_gone("parent").await;
        let orphans = self.owned("apps/v1", "replicasets", "parent").await;
        assert_eq!(orphans.len(), 1, "{orphans:?}");
        assert_eq!(orphans[0]["metadata"]["uid"], sets[0]["metadata"]["uid"]);
        assert_eq!(orphans[0]["metadata"]["ownerReferences"], Value::Null);
        // The orphaned replica set still works: it replaces a deleted pod.
        let pods = self.owned("v1", "pods", "parent").await;
        let name = pods[0]["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        self.client
            .delete(&self.path("v1", &format!("pods/{name}")))
            .await
            .ok();
        eventually("another pod", LIMIT, async || {
            let pods = self.owned("v1", "pods", "parent").await;
            let is_there = pods
                .iter()
                .any(|pod| pod["metadata"]["name"] == name.as_str());
            match (pods.len(), is_there) {
                (2, false) => Ok(()),
                _ => Err(format!("{pods:?}\n{}", self.manager.state())),
            }
        })
        .await;
    }

    /// Checks that a deleted namespace is emptied, including the objects made by controllers.
    async fn fills_and_empties_a_namespace(&self) {
        let service = json!({
            "metadata": { "name": "web" },
            "spec": { "selector": { "app": "parent" }, "ports": [{ "port": 80 }] },
        });
        let services = self.path("v1", "services");
        self.client.create(&services, &service).await.ok();
        let made_by_controllers = [
            ("v1", "serviceaccounts"),
            ("v1", "configmaps"),
            ("discovery.k8s.io/v1", "endpointslices"),
        ];
        for (version, resource) in made_by_controllers {
            let path = self.path(version, resource);
            eventually(resource, LIMIT, async || {
                let items = self.client.get(&path).await.ok().json()["items"].take();
                match items.as_array().is_some_and(|items| !items.is_empty()) {
                    true => Ok(()),
                    false => Err(self.manager.state()),
                }
            })
            .await;
        }
        let namespace = format!("/api/v1/namespaces/{}", self.namespace);
        self.client.delete(&namespace).await.ok();
        eventually("the end of the namespace", LIMIT, async || {
            let answer = self.client.get(&namespace).await;
            let is_gone = answer.status == 404;
            is_gone
                .then_some(())
                .ok_or_else(|| format!("{answer}\n{}", self.manager.state()))
        })
        .await;
        let rest = [
            ("apps/v1", "replicasets"),
            ("v1", "pods"),
            ("v1", "services"),
        ];
        for (version, resource) in made_by_controllers.into_iter().chain(rest) {
            let list = self
                .client
                .get(&self.path(version, resource))
                .await
                .ok()
                .json();
            assert_eq!(list["items"], json!([]), "{resource}");
        }
    }

    /// Waits until there are exactly this many replica sets and pods with the deployment's label.
    async fn settles(&self, name: &str, sets: usize, pods: usize) {
        eventually(name, LIMIT, async || {
            let counts = self.counts(name).await;
            match counts == (sets, pods) {
                true => Ok(()),
                false => Err(format!(
                    "{counts:?}, not {:?}\n{}",
                    (sets, pods),
                    self.manager.state()
                )),
            }
        })
        .await;
    }

    async fn is_gone(&self, name: &str) {
        let path = self.path("apps/v1", &format!("deployments/{name}"));
        eventually("the end of the deployment", LIMIT, async || {
            let answer = self.client.get(&path).await;
            let is_gone = answer.status == 404;
            is_gone
                .then_some(())
                .ok_or_else(|| format!("{answer}\n{}", self.manager.state()))
        })
        .await;
    }

    async fn counts(&self, name: &str) -> (usize, usize) {
        let sets = self.owned("apps/v1", "replicasets", name).await;
        let pods = self.owned("v1", "pods", name).await;
        (sets.len(), pods.len())
    }

    async fn owned(&self, version: &str, resource: &str, name: &str) -> Vec<Value> {
        let path = format!("{}?labelSelector=app={name}", self.path(version, resource));
        let list = self.client.get(&path).await.ok().json();
        list["items"].as_array().expect("items").clone()
    }

    async fn make_deployment(&self, name: &str, replicas: usize) {
        let labels = json!({ "app": name });
        let deployment = json!({
            "metadata": { "name": name },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": "main", "image": "example.com/none" }] },
                },
            },
        });
        let path = self.path("apps/v1", "deployments");
        self.client.create(&path, &deployment).await.ok();
    }

    async fn delete(&self, name: &str, propagation: &str) {
        let path = self.path("apps/v1", &format!("deployments/{name}"));
        let path = format!("{path}?propagationPolicy={propagation}");
        self.client.delete(&path).await.ok();
    }

    fn path(&self, version: &str, rest: &str) -> String {
        let root = if version.contains('/') {
            "/apis"
        } else {
            "/api"
        };
        format!("{root}/{version}/namespaces/{}/{rest}", self.namespace)
    }
}

/// How long informers are restarted for each resourceVersion, in seconds, unless
/// `KUBEFAN_DETECTOR_SECONDS` (at most 60) is set.
const DETECTOR_SECONDS: &str = "5";

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn client_gos_detector_finds_watch_lists_consistent() {
    let server = shared();
    define_widgets(server).await;
    let namespace = server.namespace("detector").await;
    let kubefan = Kubefan::start(server, &[]).await;
    // A watch-list of the most recent state needs a proof; a watch-list of any version does not.
    let mut starts = 0;
    for version in ["", "0"] {
        let output = restart_under_churn(server, &kubefan, &namespace, version).await;
        assert_eq!(output["watchErrors"]["count"], 0, "{output}");
        let started = output["starts"]
            .as_object()
            .expect("a count for each source");
        assert_eq!(started.len(), 7, "{output}");
        for (source, count) in started {
            assert!(count.as_u64() >= Some(2), "{source}: {output}");
            // The detector compared each start with a LIST at the version of the start.
            assert_eq!(&output["comparisons"][source], count, "{source}: {output}");
        }
        println!("version {version:?}: {}", output["comparisons"]);
        let counts = started.values().filter_map(Value::as_u64);
        starts += counts.sum::<u64>();
    }
    let metrics = kubefan.metrics().await;
    let seen =
        request_count(&metrics, "cache", "list") + request_count(&metrics, "forwarded", "list");
    assert_eq!(seen, starts as f64, "{metrics}");
    assert!(
        request_count(&metrics, "cache", "watch") > 10.0,
        "{metrics}"
    );
}

/// Restarts informers through kubefan while their objects change; returns their output.
async fn restart_under_churn(
    server: &ApiServer,
    kubefan: &Kubefan,
    namespace: &str,
    version: &str,
) -> Value {
    let (assets, direct) = (server.assets(), server.kubeconfig("admin"));
    let through = kubefan.kubeconfig(&User::Anonymous);
    let seconds = env::var("KUBEFAN_DETECTOR_SECONDS").unwrap_or(DETECTOR_SECONDS.to_owned());
    let duration = format!("{seconds}s");
    let churn = ["churn", "--namespace", namespace, "--writes", "1000000"];
    let restarts = ["restarts", "--namespace", namespace, "--version", version];
    let restarts = [&restarts[..], &["--duration", &duration]].concat();
    tokio::select! {
        output = informers::run(assets, &direct, &churn) => panic!("no churn: {output}"),
        output = informers::run(assets, &through, &restarts) => output,
    }
}
