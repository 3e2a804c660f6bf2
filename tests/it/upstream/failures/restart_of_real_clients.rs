//! kubefan is killed and started again under informers of client-go, a manager of
//! controller-runtime and kubectl. The long form is run by hand, with the release binary:
//!
//! ```sh
//! KUBEFAN_TEST_BINARY=target/dist/kubefan \
//!     cargo test --test it restart_of_real_clients -- --ignored --nocapture
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::restart::{Restartable, SELECTORS, metric, write, write_elsewhere};
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, free_port, private};
use crate::support::programs::informers::Informers;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::Kubectl;
use crate::support::proxies::balancer::Balancer;
use crate::support::settings::setting;

const LIMIT: Duration = Duration::from_secs(60);
/// The config maps of a namespace, read in protobuf and in JSON.
pub(super) const RESOURCES: &str = "configmaps:typed,configmaps:json";
pub(super) const FORMATS: usize = 2;
/// How many writes of the manager show that clients are at work.
const AT_WORK: u64 = 40;
/// How long kubectl's user waits before it starts kubectl again.
const KUBECTL_PAUSE: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn clients_survive_a_restart() {
    survive(6, Duration::ZERO).await;
}

/// Checks 504 informers. kubefan is away for `KUBEFAN_AWAY` seconds (0). client-go then waits
/// longer before it connects again, as after an equally long absence of the API server.
/// Without other load, the informers are current at most 3 s later than informers that lost
/// the API server for that time.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand"]
async fn long_five_hundred_clients_survive_a_restart() {
    let away = Duration::from_secs(setting("KUBEFAN_AWAY", 0));
    let [through, control] = survive(63, away).await;
    let limit = Duration::from_secs(3);
    assert!(through < control + limit, "{through:?}, {control:?}");
}

/// All clients of the namespace: informers that are connected to the API server, and, connected to
/// kubefan, equal informers, a manager and two `kubectl get --watch`.
struct Clients {
    direct: Informers,
    /// The informers that are connected to the API server through `relay`, which is away when
    /// kubefan is.
    control: Informers,
    relay: Relay,
    informers: Informers,
    manager: Informers,
    kubectl: [KubectlWatch; 2],
}

impl Clients {
    async fn start(server: &ApiServer, through: &Path, namespace: &str, copies: usize) -> Self {
        let (assets, direct) = (server.assets(), server.kubeconfig("admin"));
        let kubectl = [&[][..], &["--selector", "side=a"]].map(|selector| {
            KubectlWatch::start(Kubectl::new(assets, through, namespace), selector)
        });
        let relay = Relay::start(server).await;
        let text = fs::read_to_string(&direct).expect("a kubeconfig");
        let relayed = through.with_file_name("relayed");
        fs::write(&relayed, text.replace(&server.url(), &relay.url())).expect("a written file");
        Self {
            direct: start_informers(server, &direct, namespace, 1).await,
            control: start_informers(server, &relayed, namespace, copies).await,
            relay,
            informers: start_informers(server, through, namespace, copies).await,
            manager: Informers::start_manager(assets, through, namespace).await,
            kubectl,
        }
    }

    /// Waits until the manager has written 40 more Secrets, and kubectl has printed more lines.
    async fn are_at_work(&mut self) {
        let printed = self.kubectl.each_ref().map(KubectlWatch::lines);
        let begun = self.manager.send_command("report").await["writes"].as_u64();
        eventually("changes in all clients", LIMIT, async || {
            let report = self.manager.send_command("report").await;
            let is_printing = |index: usize| self.kubectl[index].lines() > printed[index] + 10;
            match report["writes"].as_u64() > begun.map(|writes| writes + AT_WORK)
                && is_printing(0)
                && is_printing(1)
            {
                true => Ok(()),
                false => Err(report),
            }
        })
        .await;
    }

    /// Waits until all informers have the state of the informers that are connected to the
    /// API server, with the object `last`. Returns when kubefan's informers and the
    /// relay's informers had this state.
    async fn informers_are_current(&mut self, last: &str) -> [Instant; 2] {
        let mut current = [None; 2];
        eventually("current informers", LIMIT, async || {
            let wanted = self.direct.send_command("dump").await;
            if !wanted.to_string().contains(last) {
                return Err(format!("{last} is missing"));
            }
            let mut reason = String::new();
            let both = [&mut self.informers, &mut self.control];
            for (informers, at) in both.into_iter().zip(&mut current) {
                if at.is_some() {
                    continue;
                }
                let got = informers.send_command("dump").await;
                match each_equals(&wanted["resources"], &got["resources"]) {
                    Ok(()) => *at = Some(Instant::now()),
                    Err(different) => reason = different,
                }
            }
            match current {
                [Some(through), Some(control)] => Ok([through, control]),
                _ => Err(reason),
            }
        })
        .await
    }

    async fn manager_is_current(&mut self, last: &str) {
        eventually("the copies of the manager", LIMIT, async || {
            let report = self.manager.send_command("report").await;
            let is_current = report["configMaps"][last] == last;
            match is_current && report["configMaps"] == report["copies"] {
                true => Ok(()),
                false => Err(report),
            }
        })
        .await;
    }

    async fn kubectl_prints(&self, last: &str) {
        eventually("the last object", LIMIT, async || {
            match self.kubectl.iter().all(|watch| watch.has_printed(last)) {
                true => Ok(()),
                false => Err(format!("{:?}", self.kubectl)),
            }
        })
        .await;
    }

    /// Returns the lists and watch-lists of the informers and of the manager so far.
    async fn lists(&mut self) -> [u64; 4] {
        let report = self.informers.send_command("errors").await;
        let requests = report["requests"].as_object().expect("counts");
        let sum = |name| {
            requests
                .values()
                .filter_map(|counts| counts[name].as_u64())
                .sum()
        };
        let manager = &self.manager.send_command("report").await["requests"];
        let of_manager = |name: &str| manager[name].as_u64().unwrap_or(0);
        [
            sum("lists"),
            sum("watchLists"),
            of_manager("list"),
            of_manager("watchList"),
        ]
    }

    /// Checks that each informer has seen as many additions, changes and deletions as the directly
    /// connected informer with an equal selection. Checks that no client has seen 410, a stale
    /// read, or a write that a stale read misled.
    async fn have_lost_nothing(&mut self) {
        eventually("the same events", LIMIT, async || {
            let wanted = self.direct.send_command("errors").await;
            let got = self.informers.send_command("errors").await;
            each_equals(&wanted["events"], &got["events"])
        })
        .await;
        let errors = self.informers.send_command("errors").await["watchErrors"].to_string();
        let report = self.manager.send_command("report").await;
        eprintln!(
            "errors of the informers: {errors}; the manager: {} reconciles, {} writes, errors {}",
            report["reconciles"], report["writes"], report["errors"]
        );
        assert_eq!(report["staleReads"], json!({}), "{report}");
        let mut all = vec![
            errors,
            report["watchErrors"].to_string(),
            report["errors"].to_string(),
        ];
        all.extend(
            self.kubectl
                .each_ref()
                .map(|watch| watch.errors.lock().clone()),
        );
        for error in all {
            let is_expired = ["xpired", "too old", "410"]
                .iter()
                .any(|text| error.contains(text));
            assert!(!is_expired, "{error}");
        }
    }
}

/// Passes connections on to the API server. Until kubefan is ready again, connections to the relay
/// are refused, like connections to a killed kubefan: clients wait differently after other errors.
struct Relay {
    port: u16,
    balancer: Option<Balancer>,
}

impl Relay {
    async fn start(server: &ApiServer) -> Self {
        let mut relay = Self {
            port: free_port(),
            balancer: None,
        };
        relay.restart(server).await;
        relay
    }

    async fn restart(&mut self, server: &ApiServer) {
        self.balancer = Some(Balancer::start_at(self.port, &[server.port()]).await);
    }

    fn stop(&mut self) {
        self.balancer = None;
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }
}

/// Informers that get their first objects by a watch-list: `copies` for each format and selection.
async fn start_informers(
    server: &ApiServer,
    kubeconfig: &Path,
    namespace: &str,
    copies: usize,
) -> Informers {
    let copies = copies.to_string();
    let mut flags = vec![
        "--namespace",
        namespace,
        "--resources",
        RESOURCES,
        "--copies",
        &copies,
    ];
    flags.extend(
        SELECTORS
            .iter()
            .flat_map(|selector| ["--selection", selector]),
    );
    Informers::start_plainly(server.assets(), kubeconfig, &flags).await
}

/// Compares what each informer reports with the report of the informer
/// of that name without a number.
pub(super) fn each_equals(wanted: &Value, got: &Value) -> Result<(), String> {
    let wanted: BTreeMap<_, _> = wanted.as_object().expect("informers").iter().collect();
    for (name, got) in got.as_object().expect("informers") {
        let (of, _) = name.split_once('#').unwrap_or((name, ""));
        let wanted = wanted[&of.to_owned()];
        if wanted != got {
            return Err(format!("{name}: {got} instead of {wanted}"));
        }
    }
    Ok(())
}

/// A `kubectl get configmaps --watch`. It has an output that needs no Table, because the first
/// Tables after a start are forwarded. kubectl ends with its connection, and is then started again.
#[derive(Debug)]
struct KubectlWatch {
    printed: Arc<Mutex<Vec<String>>>,
    errors: Arc<Mutex<String>>,
    task: JoinHandle<()>,
}

impl KubectlWatch {
    fn start(kubectl: Kubectl, selector: &[&str]) -> Self {
        let fixed = ["get", "configmaps", "--watch", "--output", "name"];
        let arguments: Vec<_> = fixed
            .iter()
            .chain(selector)
            .map(|&text| text.to_owned())
            .collect();
        let (printed, errors) = <(Arc<Mutex<Vec<String>>>, Arc<Mutex<String>>)>::default();
        let (lines, texts) = (Arc::clone(&printed), Arc::clone(&errors));
        let task = tokio::spawn(async move {
            loop {
                let mut child = kubectl.start(&arguments);
                let mut stdout = BufReader::new(child.stdout.take().expect("piped")).lines();
                while let Some(line) = stdout.next_line().await.expect("text") {
                    lines.lock().push(line);
                }
                let mut text = String::new();
                let mut stderr = child.stderr.take().expect("piped");
                stderr.read_to_string(&mut text).await.expect("text");
                texts.lock().push_str(&text);
                sleep(KUBECTL_PAUSE).await;
            }
        });
        Self {
            printed,
            errors,
            task,
        }
    }

    fn lines(&self) -> usize {
        self.printed.lock().len()
    }

    fn has_printed(&self, name: &str) -> bool {
        let wanted = format!("configmap/{name}");
        self.printed.lock().contains(&wanted)
    }
}

impl Drop for KubectlWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Creates an object that all selections but `side!=a` and the one by name select. Returns its
/// name.
pub(super) async fn create_last(server: &ApiServer, path: &str) -> String {
    let name = format!("last-{}", rand::random::<u32>());
    let metadata = json!({ "name": name, "labels": { "side": "a" } });
    let object = json!({ "metadata": metadata, "data": { "round": name } });
    server.client().create(path, &object).await.ok();
    name
}

/// Kills kubefan and starts it again after `pause`, with `copies` informers of each selection and
/// format. Returns the times from kubefan's readiness until all its informers were current, and
/// until the relay's informers were.
async fn survive(copies: usize, pause: Duration) -> [Duration; 2] {
    let server = private().await;
    let namespace = server.namespace("restart").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let running = Restartable::start(&server).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let through = directory.path().join("config");
    kubeconfig::write(&through, running.kubefan.url(), None, &User::Anonymous);
    // All informers start with an empty namespace, so they must see equal events.
    let mut clients = Clients::start(&server, &through, &namespace, copies).await;
    let writer = write(server.client(), path.clone());
    let elsewhere = write_elsewhere(&server).await;
    clients.are_at_work().await;
    let lists = clients.lists().await;

    let killed = Instant::now();
    clients.relay.stop();
    let running = running.kill_and_start(&server, pause).await;
    clients.relay.restart(&server).await;
    let (ready, away) = (Instant::now(), killed.elapsed());
    writer.abort();
    let last = create_last(&server, &path).await;
    let [through, control] = clients.informers_are_current(&last).await;
    let [informers_after, control_after] = [through, control].map(|at| at - ready);
    clients.manager_is_current(&last).await;
    clients.kubectl_prints(&last).await;
    let kinds = FORMATS * SELECTORS.len();
    eprintln!(
        "kubefan was away for {away:?}; after it was ready, {} informers were current in \
         {informers_after:?}, those of the relay in {control_after:?}, and then all clients in {:?}",
        kinds * copies,
        ready.elapsed()
    );

    // The clients continue with events from the log.
    let writer = write(server.client(), path.clone());
    clients.are_at_work().await;
    writer.abort();
    let last = create_last(&server, &path).await;
    clients.informers_are_current(&last).await;
    clients.manager_is_current(&last).await;
    clients.have_lost_nothing().await;
    assert_eq!(clients.lists().await, lists, "lists and watch-lists");

    let of = async |name, label| metric(&running.kubefan, name, label).await;
    assert_eq!(of("kubefan_bridged_watches_total", "expired").await, 0.0);
    elsewhere.abort();
    let bridges = of("kubefan_bridge_upstream_watches_total", "").await;
    eprintln!("{bridges} upstream watches of bridges");
    // The manager adds its Secrets. A bridge may need a second watch, and a late client with an old
    // version a second bridge.
    let kinds = kinds as f64;
    assert!(bridges > 0.0 && bridges <= 3.0 * (kinds + 1.0), "{bridges}");
    // One watch for each wire format, beside the watches of the informers that are connected to the
    // API server, directly or through the relay.
    let open = server.open_watches("configmaps").await;
    drop((clients, running));
    eventually(
        "the end of kubefan's and the clients' watches",
        LIMIT,
        async || {
            let left = server.open_watches("configmaps").await;
            let closed = open - left;
            match closed == FORMATS as f64 + kinds * (1.0 + copies as f64) {
                true => Ok(()),
                false => Err(format!("{closed} of {open} watches have ended")),
            }
        },
    )
    .await;
    [informers_after, control_after]
}
