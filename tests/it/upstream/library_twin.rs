//! The example `namespace_configmap` beside its twin on controller-runtime, on the same namespaces:
//! two candidates each. One candidate loses its Lease and one is killed while labels change.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use futures::future::{join, join_all};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use crate::support::clients::client::Client;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, private};
use crate::support::programs::example::built;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::process::Process;
use crate::support::proxies::fault_proxy::{FaultProxy, RequestKind};
use crate::support::settings::dice;

/// The longest wait for a Lease or for the end of all work.
const LIMIT: Duration = Duration::from_secs(120);
/// Seconds of changes after another candidate leads.
const CHANGES_AFTER: usize = 5;
const LABEL: &str = "kubefan-example";

/// How much the controllers have to do.
struct Size {
    namespaces: usize,
    /// The number of namespaces that are changed concurrently.
    lanes: usize,
    /// Changes a second.
    rate: u32,
    /// Changes in each part of the run.
    changes: usize,
    /// Changes while no controller runs.
    unseen: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    /// The example; the name is that of its ConfigMaps and of its Lease.
    Ours,
    Twin,
}

/// What a candidate has logged.
#[derive(Default)]
struct Log {
    reconciles: Vec<Reconcile>,
    leads_since: Option<Timestamp>,
}

struct Reconcile {
    at: Timestamp,
    namespace: String,
    /// True if the reconcile ends, false if it begins.
    ends: bool,
}

struct Candidate {
    process: Process,
    log: Arc<Mutex<Log>>,
    /// Ends with the process's output.
    reader: Option<JoinHandle<()>>,
}

/// The two candidates of one side. Each candidate has a separate proxy, which
/// counts the candidate's requests.
struct Team {
    side: Side,
    program: PathBuf,
    kubeconfigs: Vec<PathBuf>,
    proxies: Vec<FaultProxy>,
    candidates: Vec<Candidate>,
    /// The logs of all candidates that were ever started.
    logs: Vec<Arc<Mutex<Log>>>,
}

/// Some of the namespaces, and what their labels are.
struct Lane {
    client: Client,
    dice: StdRng,
    number: u64,
    labels: BTreeMap<String, BTreeMap<String, String>>,
    /// When the last change of each namespace's labels was sent.
    changed_at: BTreeMap<String, Timestamp>,
}

type Maps = BTreeMap<String, Value>;

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_config_map_example_equals_its_twin() {
    let size = Size {
        namespaces: 40,
        lanes: 4,
        rate: 50,
        changes: 100,
        unseen: 40,
    };
    run(size).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: 2,000 namespaces, 200 changes a second"]
async fn the_config_map_example_equals_its_twin_at_scale() {
    let size = Size {
        namespaces: 2_000,
        lanes: 20,
        rate: 200,
        changes: 6_000,
        unseen: 1_000,
    };
    run(size).await;
}

async fn run(size: Size) {
    let server = private().await;
    let mut lanes = lanes(&server, &size).await;
    let mut ours = Team::start(&server, Side::Ours).await;
    let mut twin = Team::start(&server, Side::Twin).await;
    let began = Instant::now();
    settle(&server, &lanes, &ours).await;
    let first = (ours.writes(), twin.writes());
    println!("first lists: {first:?} writes in {:?}", began.elapsed());
    not_many_more(first);
    let began = Instant::now();
    drive(&mut lanes, size.changes, size.rate).await;
    settle(&server, &lanes, &ours).await;
    let before = (ours.writes(), twin.writes());

    // The leaders cannot renew their Leases, and can do everything else.
    let (old, old_twin) = (ours.leader().await, twin.leader().await);
    let refused = Timestamp::now();
    ours.refuse_leases(old);
    twin.refuse_leases(old_twin);
    let (new, new_twin) = while_changing(&mut lanes, async {
        (
            ours.leader_after(old).await,
            twin.leader_after(old_twin).await,
        )
    })
    .await;
    settle(&server, &lanes, &ours).await;
    // No change was merged with another change, so a new leader that writes what is
    // right already would show here.
    let during = (ours.writes() - before.0, twin.writes() - before.1);
    println!("while the leaders changed: {during:?} writes");
    not_many_more(during);
    // There is work for the old leader, too, if it does not know.
    drive(&mut lanes, CHANGES_AFTER * size.rate as usize, size.rate).await;
    let status = tokio::task::block_in_place(|| ours.candidates[old].end());
    assert_eq!(status.code(), Some(1));
    ours.stopped_before(old, new, refused);
    ours.restart(old);
    twin.restart(old_twin);
    drive(&mut lanes, size.changes, size.rate).await;

    // A new leader finds what has changed while there was no leader.
    ours.candidates[new].process.kill();
    twin.candidates[new_twin].process.kill();
    drive(&mut lanes, size.unseen, size.rate).await;
    for team in [&mut ours, &mut twin] {
        team.free_lease(&server).await;
    }
    ours.leader_after(new).await;
    twin.leader_after(new_twin).await;
    ours.restart(new);
    twin.restart(new_twin);
    drive(&mut lanes, size.changes, size.rate).await;
    let changes: u64 = lanes.iter().map(|lane| lane.number).sum();
    println!("{changes} changes in all in {:?}", began.elapsed());
    settle(&server, &lanes, &ours).await;
    println!("settled after {:?}", began.elapsed());

    ours.reconciled_one_at_a_time();
    let written = (ours.writes(), twin.writes());
    println!("{written:?} writes; {} reconciles", ours.reconciles());
    not_many_more(written);
    for team in [&mut ours, &mut twin] {
        team.stop(&server).await;
    }
}

/// Checks that the example made at most a tenth more writes than the twin.
fn not_many_more((ours, of_twin): (u32, u32)) {
    let limit = 1.1 * f64::from(of_twin);
    assert!(
        f64::from(ours) <= limit,
        "{ours} writes, the twin {of_twin}"
    );
}

// === Namespaces ===

/// Creates the namespaces, most of them with the label.
async fn lanes(server: &ApiServer, size: &Size) -> Vec<Lane> {
    let mut dice = dice();
    let mut lanes: Vec<_> = (0..size.lanes)
        .map(|_| Lane {
            client: server.client(),
            dice: StdRng::seed_from_u64(dice.random()),
            number: 0,
            labels: BTreeMap::new(),
            changed_at: BTreeMap::new(),
        })
        .collect();
    let create = async |(index, lane): (usize, &mut Lane)| {
        for number in (index..size.namespaces).step_by(size.lanes) {
            lane.create(&format!("twin-{number}")).await;
        }
    };
    join_all(lanes.iter_mut().enumerate().map(create)).await;
    lanes
}

/// Makes `count` changes of random namespaces, at `rate` per second.
async fn drive(lanes: &mut [Lane], count: usize, rate: u32) {
    let began = Instant::now();
    let in_lane = count / lanes.len();
    let period = Duration::from_secs(1) / rate * lanes.len() as u32;
    let drive = async |lane: &mut Lane| {
        let mut ticks = interval(period);
        for _ in 0..in_lane {
            ticks.tick().await;
            lane.change().await;
        }
    };
    join_all(lanes.iter_mut().map(drive)).await;
    println!("{count} changes in {:?}", began.elapsed());
}

/// Changes each namespace once in twenty seconds, so that no reconcile sees two changes at once,
/// until `condition` completes.
async fn while_changing<T>(lanes: &mut [Lane], condition: impl Future<Output = T>) -> T {
    let stop = AtomicBool::new(false);
    let change = async |lane: &mut Lane| {
        let names: Vec<_> = lane.labels.keys().cloned().collect();
        let mut ticks = interval(Duration::from_secs(20) / names.len() as u32);
        for name in names.iter().cycle() {
            ticks.tick().await;
            if stop.load(Ordering::Relaxed) {
                return;
            }
            lane.number += 1;
            let value = format!("team-{}", lane.number);
            lane.label(name, "example.com/team", Some(value)).await;
        }
    };
    let condition = async {
        let found = condition.await;
        stop.store(true, Ordering::Relaxed);
        found
    };
    let changes = join_all(lanes.iter_mut().map(change));
    join(condition, changes).await.0
}

impl Lane {
    async fn create(&mut self, name: &str) {
        let mut labels = BTreeMap::from([("example.com/team".to_owned(), "none".to_owned())]);
        if self.dice.random_bool(0.9) {
            labels.insert(LABEL.to_owned(), "true".to_owned());
        }
        let object = json!({ "metadata": { "name": name, "labels": labels } });
        let sent = Timestamp::now();
        let path = "/api/v1/namespaces";
        self.client.create(path, &object).await.ok();
        // The API server adds it.
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.to_owned());
        self.labels.insert(name.to_owned(), labels);
        self.changed_at.insert(name.to_owned(), sent);
    }

    /// Changes a label of a namespace, or what the controllers have made in it.
    async fn change(&mut self) {
        let index = self.dice.random_range(0..self.labels.len());
        let name = self.labels.keys().nth(index).expect("a namespace").clone();
        let kind = self.dice.random_range(0..100);
        self.number += 1;
        let labels = &self.labels[&name];
        let (label, value) = match kind {
            0..70 => ("example.com/team", Some(format!("team-{}", self.number))),
            70..85 if labels.get(LABEL).is_some_and(|value| value == "true") => match kind {
                70..78 => (LABEL, None),
                _ => (LABEL, Some("false".to_owned())),
            },
            70..85 => (LABEL, Some("true".to_owned())),
            85..95 if labels.contains_key("zone") => ("zone", None),
            85..95 => ("zone", Some("north".to_owned())),
            _ => return self.tamper(&name, kind % 2 == 0).await,
        };
        self.label(&name, label, value).await;
    }

    async fn label(&mut self, name: &str, label: &str, value: Option<String>) {
        let change = json!({ "metadata": { "labels": { (label): value } } });
        let sent = Timestamp::now();
        let path = format!("/api/v1/namespaces/{name}");
        self.client.merge(&path, &change).await.ok();
        self.changed_at.insert(name.to_owned(), sent);
        let labels = self.labels.get_mut(name).expect("it exists");
        match value {
            Some(value) => labels.insert(label.to_owned(), value),
            None => labels.remove(label),
        };
    }

    /// Deletes or changes the ConfigMaps of a namespace, if there are any.
    async fn tamper(&self, namespace: &str, deletes: bool) {
        for side in [Side::Ours, Side::Twin] {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps/{}", side.name());
            let foreign = json!({ "data": { "foreign": "yes" } });
            let answer = match deletes {
                true => self.client.delete(&path).await,
                false => self.client.merge(&path, &foreign).await,
            };
            assert!(answer.status == 404 || answer.status == 200, "{answer}");
        }
    }

    /// Returns the data of the ConfigMap of each namespace that must have one.
    fn expected(&self) -> Maps {
        let is_on =
            |labels: &BTreeMap<_, _>| labels.get(LABEL).is_some_and(|value| value == "true");
        let dotted = |labels: &BTreeMap<String, String>| {
            let data = labels.iter();
            let data = data.map(|(key, value)| (key.replace('/', "."), value.clone().into()));
            Value::Object(data.collect())
        };
        let selected = self.labels.iter().filter(|(_, labels)| is_on(labels));
        selected
            .map(|(name, labels)| (name.clone(), dotted(labels)))
            .collect()
    }
}

/// Waits until both controllers have made what the labels say, and until the example has reconciled
/// each namespace after its last change.
async fn settle(server: &ApiServer, lanes: &[Lane], ours: &Team) {
    let expected: Maps = lanes.iter().flat_map(Lane::expected).collect();
    let client = server.client();
    eventually("all config maps", LIMIT, async || {
        let made = maps(&client, Side::Ours).await;
        let made_by_twin = maps(&client, Side::Twin).await;
        differ("those of the example", &made, &expected)?;
        differ("those of the twin", &made_by_twin, &made)?;
        let changed = lanes.iter().flat_map(|lane| &lane.changed_at);
        let mut late = changed.filter(|(name, sent)| !ours.has_reconciled(name, **sent));
        match late.next() {
            None => Ok(()),
            Some((name, sent)) => Err(format!("{name} has no reconcile after {sent}")),
        }
    })
    .await;
}

fn differ(what: &str, maps: &Maps, others: &Maps) -> Result<(), String> {
    let keys: BTreeSet<_> = maps.keys().chain(others.keys()).collect();
    let different = keys
        .iter()
        .filter(|key| maps.get(**key) != others.get(**key));
    let different: Vec<_> = different.collect();
    match different.first() {
        None => Ok(()),
        Some(key) => Err(format!(
            "{what}: {} differ, {key} is {:?} and not {:?}",
            different.len(),
            maps.get(**key),
            others.get(**key)
        )),
    }
}

/// Returns the data of the ConfigMaps of one side, by namespace.
async fn maps(client: &Client, side: Side) -> Maps {
    let selector = format!("fieldSelector=metadata.name%3D{}", side.name());
    let list = client.get(&format!("/api/v1/configmaps?{selector}")).await;
    let mut list = list.ok().json();
    let items = list["items"].as_array_mut().expect("items");
    let entry = |item: &mut Value| {
        let namespace = item["metadata"]["namespace"].as_str().expect("a namespace");
        (namespace.to_owned(), item["data"].take())
    };
    items.iter_mut().map(entry).collect()
}

// === Candidates ===

impl Side {
    /// Returns the name of the ConfigMaps, and of the Lease in the namespace `default`.
    fn name(self) -> &'static str {
        match self {
            Self::Ours => "kubefan-example",
            Self::Twin => "kubefan-twin",
        }
    }

    fn lease(self) -> String {
        let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
        format!("{leases}/{}", self.name())
    }
}

impl Team {
    async fn start(server: &ApiServer, side: Side) -> Self {
        let program = match side {
            Side::Ours => tokio::task::block_in_place(|| built("namespace_configmap")),
            Side::Twin => server.assets().configmaps(),
        };
        let mut team = Self {
            side,
            program,
            kubeconfigs: Vec::new(),
            proxies: Vec::new(),
            candidates: Vec::new(),
            logs: Vec::new(),
        };
        for number in 0..2 {
            let proxy = FaultProxy::start(server).await;
            let path = server.directory().join(format!("{}-{number}", side.name()));
            kubeconfig::write(&path, proxy.url(), None, &User::Anonymous);
            team.kubeconfigs.push(path);
            team.proxies.push(proxy);
            let candidate = team.candidate(number);
            team.candidates.push(candidate);
        }
        team
    }

    fn candidate(&mut self, number: usize) -> Candidate {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfigs[number]);
        command.env(
            "RUST_LOG",
            "warn,kubefan::controller=debug,kubefan::leader_election=info",
        );
        command.stdin(Stdio::null());
        match self.side {
            Side::Ours => command.stdout(Stdio::null()).stderr(Stdio::piped()),
            Side::Twin => command.stdout(Stdio::piped()).stderr(Stdio::null()),
        };
        let mut process = Process::start(&mut command, None);
        let child = process.child();
        let output: Box<dyn Read + Send> = match (child.stdout.take(), child.stderr.take()) {
            (Some(output), _) => Box::new(output),
            (None, output) => Box::new(output.expect("one of them is piped")),
        };
        let log = Arc::new(Mutex::new(Log::default()));
        self.logs.push(Arc::clone(&log));
        let into = Arc::clone(&log);
        let reader = thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                into.lock().read(&line);
            }
        });
        Candidate {
            process,
            log,
            reader: Some(reader),
        }
    }

    /// Starts a candidate again that has ended.
    fn restart(&mut self, number: usize) {
        self.proxies[number].refuse(RequestKind::Other, "", 0);
        self.candidates[number] = self.candidate(number);
    }

    async fn leader(&self) -> usize {
        self.leader_among(&[0, 1]).await
    }

    /// Waits until the other candidate leads.
    async fn leader_after(&self, old: usize) -> usize {
        self.leader_among(&[1 - old]).await
    }

    async fn leader_among(&self, numbers: &[usize]) -> usize {
        eventually(self.side.name(), LIMIT, async || {
            let leads = |number: &&usize| self.log(**number).lock().leads_since.is_some();
            let found = numbers.iter().find(leads);
            found.copied().ok_or("nobody leads")
        })
        .await
    }

    fn log(&self, number: usize) -> &Mutex<Log> {
        &self.candidates[number].log
    }

    fn refuse_leases(&self, number: usize) {
        self.proxies[number].refuse(RequestKind::Other, "/leases/", u32::MAX);
    }

    /// Frees the Lease of a candidate that was killed, so that the test need not wait for its end.
    async fn free_lease(&self, server: &ApiServer) {
        let change = json!({ "spec": { "holderIdentity": "" } });
        let client = server.client();
        client.merge(&self.side.lease(), &change).await.ok();
    }

    /// Counts the writes of ConfigMaps so far.
    fn writes(&self) -> u32 {
        let proxies = self.proxies.iter();
        let writes = proxies.map(|proxy| proxy.count(RequestKind::Other, "/configmaps"));
        writes.sum()
    }

    fn reconciles(&self) -> usize {
        let logs = self.logs.iter();
        logs.map(|log| log.lock().reconciles.len() / 2).sum()
    }

    /// Returns true if a reconcile that began after `time` has ended.
    fn has_reconciled(&self, namespace: &str, time: Timestamp) -> bool {
        self.logs.iter().any(|log| {
            let log = log.lock();
            let of_namespace = log.reconciles.iter().filter(|it| it.namespace == namespace);
            let mut after = of_namespace.skip_while(|it| it.ends || it.at < time);
            after.any(|it| it.ends)
        })
    }

    /// Checks that the candidate `old` did nothing since `new` leads. The Lease of `old` was
    /// refused since `refused`, and `old` has ended.
    fn stopped_before(&self, old: usize, new: usize, refused: Timestamp) {
        let leads_since = self.log(new).lock().leads_since.expect("it leads");
        let log = self.log(old).lock();
        let last = log.reconciles.last().expect("it led");
        let margin = leads_since.duration_since(last.at);
        println!("last reconcile {margin:#} before the next leader");
        assert!(last.at < leads_since, "{} after {leads_since}", last.at);
        // Changes came all the time, so the old leader worked until it could no
        // longer be sure that it leads.
        let worked = last.at.duration_since(refused);
        assert!(worked >= SignedDuration::from_secs(5), "only {worked:#}");
    }

    /// Checks the order of reconciles of each candidate.
    fn reconciled_one_at_a_time(&self) {
        for log in &self.logs {
            let mut running = BTreeSet::new();
            for Reconcile {
                namespace,
                ends,
                at,
            } in &log.lock().reconciles
            {
                match ends {
                    false => assert!(running.insert(namespace), "{namespace} twice at {at}"),
                    true => assert!(running.remove(namespace), "{namespace} at {at}"),
                }
            }
        }
    }

    /// Sends SIGTERM to both candidates, and expects that they end well and give the Lease back.
    async fn stop(&mut self, server: &ApiServer) {
        for candidate in &mut self.candidates {
            candidate.process.signal("TERM");
        }
        for candidate in &mut self.candidates {
            let status = tokio::task::block_in_place(|| candidate.process.wait(LIMIT));
            let status = status.expect("it ends after SIGTERM");
            assert_eq!(status.code(), Some(0), "{:?}", self.side);
        }
        let lease = server.client().get(&self.side.lease()).await.ok().json();
        let holder = lease["spec"]["holderIdentity"].as_str();
        assert_eq!(holder.unwrap_or_default(), "", "{:?}", self.side);
    }
}

impl Candidate {
    /// Waits until the process has ended by itself and its log is read to the end.
    fn end(&mut self) -> ExitStatus {
        let status = self.process.wait(LIMIT).expect("it ends by itself");
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the log is read");
        }
        status
    }
}

impl Log {
    fn read(&mut self, line: &str) {
        if line == "leading" {
            self.leads_since = Some(Timestamp::now());
        }
        let Some((time, rest)) = line.split_once(' ') else {
            return;
        };
        let at = || time.parse::<Timestamp>().expect("a time");
        if rest.contains("this candidate leads identity=") {
            self.leads_since = Some(at());
        }
        let (begins, ends) = (": a reconcile begins ", ": a reconcile ends ");
        if rest.contains(begins) || rest.contains(ends) {
            let (_, namespace) = line.rsplit_once("request=").expect("a request");
            self.reconciles.push(Reconcile {
                at: at(),
                namespace: namespace.to_owned(),
                ends: rest.contains(ends),
            });
        }
    }
}
