//! The contract of list and watch as an end-to-end property: a simulated API server, one or two
//! kubefans in front of it, and clients that list, watch, disconnect and resume elsewhere, while
//! objects change and faults are injected.
//!
//! A client that applies a watch's events to its list has the cluster's state at each bookmark and
//! at the end, or its watch ends with 410 Expired. `PROPTEST_CASES` sets the number of scenarios. A
//! failure names its seed; `KUBEFAN_CONTRACT_SEED` runs that seed again.

mod client;
mod cluster;
mod network;

use std::cell::RefCell;
use std::env;
use std::future::Future;
use std::time::Duration;

use client::{CheckResult, Client, Counts, List, SUBSCRIPTIONS, Tamper, Testbed};
use cluster::{APPS, Cluster, NODES, PODS};
use kubefan_core::mutation::Mutation;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::{informer, mutation, shutdown};
use kubefan_proxy::server::without_jitter;
use network::Replica;
use proptest::collection::vec;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any};
use proptest::sample::select;
use proptest::test_runner::{
    Config as RunnerConfig, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner,
};
use proptest::{option, prop_oneof};
use tokio::time::{Instant, sleep};

use crate::sim::{RequestFault, WatchFault};

const CLIENTS: usize = 3;
/// The longest time from the end of all faults until every client has the current state. A
/// reflector notices a silent watch after 90 s, and waits up to 60 s between attempts.
const RECOVERY: Duration = Duration::from_secs(300);
/// Number of scenarios with all faults; with this many, every planted bug is detected.
const FAULTY_CASES: u64 = 80;
/// Seeds of scenarios with all faults and a client that stops reading for as long as kubefan waits
/// for it, so that kubefan may break the connection.
const IDLE_CLIENTS: [u64; 2] = [5088, 5948];
/// How many of the last lines of the trace a failure shows.
const TRACE: usize = 60;

#[derive(Clone, Debug)]
struct Scenario {
    replicas: usize,
    retention_bytes: Option<usize>,
    clients: Vec<ClientSpec>,
    ops: Vec<Op>,
    seed: u64,
}

#[derive(Clone, Debug)]
struct ClientSpec {
    subscription: usize,
    bookmarks: bool,
    seconds: u32,
}

#[derive(Clone, Debug)]
enum Op {
    Put {
        pod: usize,
        app: usize,
        node: usize,
    },
    Delete {
        pod: usize,
    },
    Recreate {
        pod: usize,
        app: usize,
    },
    /// A pod is created and deleted immediately.
    CreateAndDelete {
        pod: usize,
    },
    Burst {
        pod: usize,
        changes: usize,
    },
    /// An object of another resource changes.
    Tick,
    Wait(u64),
    Client {
        client: usize,
        action: ClientOp,
    },
    Fault(Fault),
}

#[derive(Clone, Debug)]
enum ClientOp {
    List(List),
    WatchList { is_recent: bool },
    Arrive { behind: u64 },
    Watch,
    Read { frames: usize },
    Cut,
    Switch,
    Get { pod: usize, is_recent: bool },
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Watches(WatchFault),
    Requests(RequestFault, u32),
    Slow(u64),
    Compact,
    RestoreBackup,
    /// All connections of this replica to the simulator break; new ones succeed.
    Sever(usize),
    /// All connections of this replica to the simulator break; new ones fail until `Heal`.
    Partition(usize),
    Heal(usize),
    /// This replica is killed and started again, so that its caches are empty.
    Restart(usize),
}

/// A deliberate bug, of a client or of the cache, which the property must detect.
#[derive(Clone, Copy, Debug)]
enum PlantedBug {
    Client(Tamper),
    Cache(Mutation),
}

/// Returns the proptest strategy that chooses the faults of a scenario.
type FaultStrategy = fn() -> BoxedStrategy<Fault>;

fn watch_faults(fault: WatchFault) -> BoxedStrategy<Fault> {
    Just(Fault::Watches(fault)).boxed()
}

fn request_faults(fault: RequestFault) -> BoxedStrategy<Fault> {
    (1..4_u32)
        .prop_map(move |count| Fault::Requests(fault, count))
        .boxed()
}

fn link_faults() -> BoxedStrategy<Fault> {
    let replica = || select(vec![0_usize, 1]);
    prop_oneof![
        2 => replica().prop_map(Fault::Sever),
        2 => replica().prop_map(Fault::Partition),
        2 => replica().prop_map(Fault::Heal),
    ]
    .boxed()
}

fn restarts() -> BoxedStrategy<Fault> {
    select(vec![0_usize, 1]).prop_map(Fault::Restart).boxed()
}

/// Injects `fault`, which changes the history of the API server. kubefan notices the change only
/// when it opens a watch again, so faults that break watches are mixed in.
fn history_faults(fault: Fault) -> BoxedStrategy<Fault> {
    prop_oneof![2 => Just(fault), 1 => Just(Fault::Watches(WatchFault::Drop)), 1 => link_faults()]
        .boxed()
}

/// Every kind of fault with its name. Faults of requests are mixed with faults that end watches,
/// because these make kubefan send requests.
const FAULTS: [(&str, FaultStrategy); 13] = [
    ("drop-watches", || watch_faults(WatchFault::Drop)),
    ("gone", || watch_faults(WatchFault::Gone)),
    ("half-frame", || watch_faults(WatchFault::HalfFrame)),
    ("stall", || watch_faults(WatchFault::Stall)),
    ("silence", || watch_faults(WatchFault::Silence)),
    ("too-many-requests", || {
        let fault = request_faults(RequestFault::TooManyRequests(2));
        prop_oneof![fault, watch_faults(WatchFault::Drop)].boxed()
    }),
    ("server-error", || {
        let fault = request_faults(RequestFault::ServerError);
        prop_oneof![fault, watch_faults(WatchFault::Gone)].boxed()
    }),
    ("wrong-content-type", || {
        let fault = request_faults(RequestFault::WrongContentType);
        prop_oneof![fault, watch_faults(WatchFault::Gone)].boxed()
    }),
    ("slow", || {
        select(vec![0, 5, 300, 2000]).prop_map(Fault::Slow).boxed()
    }),
    ("compact", || history_faults(Fault::Compact)),
    ("revision-back", || history_faults(Fault::RestoreBackup)),
    ("links", link_faults),
    ("restart", restarts),
];

fn no_faults() -> BoxedStrategy<Fault> {
    Just(Fault::Slow(0)).boxed()
}

fn all_faults() -> BoxedStrategy<Fault> {
    select(FAULTS.map(|(_, fault)| fault).to_vec())
        .prop_flat_map(|fault| fault())
        .boxed()
}

fn client_op() -> impl Strategy<Value = ClientOp> {
    let list = prop_oneof![
        3 => Just(List::Any),
        1 => Just(List::MostRecent),
        1 => Just(List::NotOlder),
        1 => Just(List::Exact),
        1 => (1..3_u32).prop_map(List::Pages),
    ];
    prop_oneof![
        2 => list.prop_map(ClientOp::List),
        1 => any::<bool>().prop_map(|is_recent| ClientOp::WatchList { is_recent }),
        2 => (0..8_u64).prop_map(|behind| ClientOp::Arrive { behind }),
        6 => Just(ClientOp::Watch),
        5 => (1..5_usize).prop_map(|frames| ClientOp::Read { frames }),
        3 => Just(ClientOp::Read { frames: 1000 }),
        1 => Just(ClientOp::Cut),
        3 => Just(ClientOp::Switch),
        1 => (0..PODS.len(), any::<bool>())
            .prop_map(|(pod, is_recent)| ClientOp::Get { pod, is_recent }),
    ]
}

fn op(faults: BoxedStrategy<Fault>) -> impl Strategy<Value = Op> {
    let (pod, app, node) = (0..PODS.len(), 0..APPS.len(), 0..NODES.len());
    let wait = select(vec![1, 1, 300, 1000, 3000, 20_000, 100_000]);
    prop_oneof![
        8 => (pod.clone(), app.clone(), node).prop_map(|(pod, app, node)| Op::Put { pod, app, node }),
        3 => pod.clone().prop_map(|pod| Op::Delete { pod }),
        2 => (pod.clone(), app).prop_map(|(pod, app)| Op::Recreate { pod, app }),
        1 => pod.clone().prop_map(|pod| Op::CreateAndDelete { pod }),
        1 => (pod, 10..40_usize).prop_map(|(pod, changes)| Op::Burst { pod, changes }),
        1 => Just(Op::Tick),
        5 => wait.prop_map(Op::Wait),
        4 => faults.prop_map(Op::Fault),
        20 => (0..CLIENTS, client_op()).prop_map(|(client, action)| Op::Client { client, action }),
    ]
}

fn scenario(replicas: usize, faults: FaultStrategy) -> impl Strategy<Value = Scenario> {
    let seconds = select(vec![5, 30, 600]);
    let spec = (0..SUBSCRIPTIONS.len(), any::<bool>(), seconds).prop_map(
        |(subscription, bookmarks, seconds)| ClientSpec {
            subscription,
            bookmarks,
            seconds,
        },
    );
    let retention = option::weighted(0.5, select(vec![3000, 8000]));
    let clients = vec(spec, CLIENTS);
    (retention, clients, vec(op(faults()), 1..80), any::<u64>()).prop_map(
        move |(retention_bytes, clients, ops, seed)| Scenario {
            replicas,
            retention_bytes,
            clients,
            ops,
            seed,
        },
    )
}

struct ContractRun {
    testbed: Testbed,
    clients: Vec<Client>,
}

// === impl ContractRun ===

impl ContractRun {
    async fn new(scenario: &Scenario, tamper: Option<Tamper>) -> Self {
        let cluster = Cluster::new(Shutdown::new(shutdown::Config::default()));
        let mut replicas = Vec::new();
        for replica in 0..scenario.replicas {
            let config = informer::Config {
                retention_age: informer::Config::SERVER_RETENTION_AGE,
                retention_bytes: scenario.retention_bytes,
                seed: Some(scenario.seed.wrapping_add(replica as u64)),
                ..informer::Config::default()
            };
            replicas.push(Replica::start(&cluster.simulator, config).await);
        }
        let client = |(name, spec): (usize, &ClientSpec)| {
            let ClientSpec {
                subscription,
                bookmarks,
                seconds,
            } = *spec;
            Client::new(name, subscription, bookmarks, seconds).with_tamper(tamper)
        };
        let first = cluster.now();
        Self {
            clients: scenario.clients.iter().enumerate().map(client).collect(),
            testbed: Testbed {
                shown: vec![first; replicas.len()],
                cluster,
                replicas,
                trace: Vec::new(),
                counts: Counts::default(),
            },
        }
    }

    async fn run(&mut self, ops: &[Op]) -> CheckResult {
        for op in ops {
            self.testbed.note(|| format!("> {op:?}"));
            self.step(op).await?;
        }
        self.recover().await?;
        // All clients have recovered; the open watches must also deliver what happens next.
        self.testbed.cluster.put(0, 0, 0);
        self.testbed.cluster.put(0, 1, 1);
        self.testbed.cluster.delete(0);
        self.recover().await
    }

    async fn step(&mut self, op: &Op) -> CheckResult {
        let cluster = &mut self.testbed.cluster;
        match *op {
            Op::Put { pod, app, node } => cluster.put(pod, app, node),
            Op::Delete { pod } => cluster.delete(pod),
            Op::Recreate { pod, app } => {
                cluster.delete(pod);
                cluster.put(pod, app, 0);
            }
            Op::CreateAndDelete { pod } => {
                cluster.put(pod, 0, 0);
                cluster.delete(pod);
            }
            Op::Burst { pod, changes } => {
                (0..changes).for_each(|change| cluster.put(pod, change % 3 % 2, change % 2));
            }
            Op::Tick => cluster.tick(),
            Op::Wait(milliseconds) => sleep(Duration::from_millis(milliseconds)).await,
            Op::Fault(fault) => self.fail(fault).await,
            Op::Client { client, ref action } => self.client(client, action).await?,
        }
        Ok(())
    }

    async fn client(&mut self, client: usize, action: &ClientOp) -> CheckResult {
        let (client, testbed) = (&mut self.clients[client], &mut self.testbed);
        match *action {
            ClientOp::List(how) => client.list(testbed, how).await,
            ClientOp::WatchList { is_recent } => client.watch_list(testbed, is_recent).await,
            ClientOp::Arrive { behind } => {
                client.arrive(testbed, behind);
                client.watch(testbed).await
            }
            ClientOp::Watch => client.watch(testbed).await,
            ClientOp::Read { frames } => client.read(testbed, frames).await,
            ClientOp::Cut => {
                client.cut();
                Ok(())
            }
            ClientOp::Switch => {
                client.replica = (client.replica + 1) % testbed.replicas.len();
                client.watch(testbed).await
            }
            ClientOp::Get { pod, is_recent } => client.get(testbed, pod, is_recent).await,
        }
    }

    async fn fail(&mut self, fault: Fault) {
        let Testbed {
            cluster, replicas, ..
        } = &mut self.testbed;
        let link = |replica: usize| &replicas[replica % replicas.len()].link;
        match fault {
            Fault::Watches(fault) => cluster.simulator.faults().fail_watches(fault),
            Fault::Requests(fault, count) => cluster.simulator.faults().fail_requests(fault, count),
            Fault::Slow(delay) => {
                cluster
                    .simulator
                    .faults()
                    .slow_down(Duration::from_millis(delay));
            }
            Fault::Compact => {
                cluster.simulator.compact();
            }
            Fault::RestoreBackup => cluster.restore_backup(),
            Fault::Sever(replica) => link(replica).cut(true),
            Fault::Partition(replica) => link(replica).cut(false),
            Fault::Heal(replica) => link(replica).heal(),
            Fault::Restart(replica) => self.restart(replica).await,
        }
    }

    /// Restarts a replica. Its clients lose their watches, and remember what they have seen.
    async fn restart(&mut self, replica: usize) {
        let replica = replica % self.testbed.replicas.len();
        for client in &mut self.clients {
            if client.replica == replica {
                client.cut();
            }
        }
        let Testbed {
            cluster, replicas, ..
        } = &mut self.testbed;
        replicas[replica].restart(&cluster.simulator).await;
    }

    /// Ends all faults, then checks that every client, and a new client at each replica, has the
    /// current state within [`RECOVERY`].
    async fn recover(&mut self) -> CheckResult {
        let faults = self.testbed.cluster.simulator.faults();
        faults.fail_requests(RequestFault::ServerError, 0);
        faults.slow_down(Duration::ZERO);
        self.testbed
            .replicas
            .iter()
            .for_each(|replica| replica.link.heal());
        let newcomers = (0..self.testbed.replicas.len()).map(|replica| {
            let mut newcomer = Client::new(CLIENTS + replica, 0, true, 600);
            newcomer.replica = replica;
            newcomer
        });
        let mut newcomers: Vec<_> = newcomers.collect();
        let limit = Instant::now() + RECOVERY;
        self.testbed.note(|| "> recover".to_owned());
        let noted = self.testbed.trace.len() + TRACE / 2;
        loop {
            self.testbed.trace.truncate(noted);
            let mut behind = None;
            for client in self.clients.iter_mut().chain(&mut newcomers) {
                client.follow(&mut self.testbed).await?;
                if !client.is_current(&self.testbed) {
                    behind = Some(client.describe(&self.testbed));
                }
            }
            match behind {
                None => return Ok(()),
                Some(behind) if Instant::now() > limit => {
                    return Err(format!("after {RECOVERY:?}, {behind}"));
                }
                Some(_) => sleep(Duration::from_secs(1)).await,
            }
        }
    }
}

/// Runs `test` on paused time, so that a scenario has the same result in every run.
fn on_paused_time<T>(test: impl Future<Output = T>) -> T {
    without_jitter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(test)
}

fn run_scenario(scenario: &Scenario, tamper: Option<Tamper>) -> Result<Counts, String> {
    on_paused_time(async {
        let mut run = ContractRun::new(scenario, tamper).await;
        let outcome = run.run(&scenario.ops).await;
        outcome.map_err(|error| {
            let trace = &run.testbed.trace;
            let last = trace.iter().skip(trace.len().saturating_sub(TRACE));
            let last: Vec<_> = last.map(String::as_str).collect();
            format!("{error}\n{}\n", last.join("\n"))
        })?;
        Ok(run.testbed.counts)
    })
}

fn env_number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// Runs `cases` random scenarios with consecutive seeds, beginning with `first`. Returns the counts
/// of all of them, or the error, the seed and the smallest form of the first scenario that fails.
fn try_contract(
    first: u64,
    cases: u64,
    replicas: usize,
    faults: FaultStrategy,
    bug: Option<PlantedBug>,
) -> Result<Counts, String> {
    let tamper = match bug {
        Some(PlantedBug::Client(tamper)) => Some(tamper),
        Some(PlantedBug::Cache(_)) | None => None,
    };
    let total = RefCell::new(Counts::default());
    for seed in first..first + cases {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let settings = RunnerConfig {
            failure_persistence: None,
            max_shrink_iters: if bug.is_some() { 0 } else { 600 },
            ..RunnerConfig::default()
        };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(settings, rng);
        let tree = scenario(replicas, faults).new_tree(&mut runner);
        let tree = tree.expect("the strategy rejects no values");
        let outcome = runner.run_one(tree, |scenario| {
            let counts = match bug {
                Some(PlantedBug::Cache(rule)) => {
                    mutation::with(rule, || run_scenario(&scenario, tamper))
                }
                Some(PlantedBug::Client(_)) | None => run_scenario(&scenario, tamper),
            };
            total.borrow_mut().add(counts.map_err(TestCaseError::fail)?);
            Ok(())
        });
        match outcome {
            Ok(_) => {}
            Err(TestError::Fail(why, least)) => {
                return Err(format!(
                    "KUBEFAN_CONTRACT_SEED={seed}: {why}\nsmallest scenario: {least:?}"
                ));
            }
            Err(error) => return Err(format!("KUBEFAN_CONTRACT_SEED={seed}: {error}")),
        }
    }
    Ok(total.into_inner())
}

/// Runs `cases` scenarios, or the number in `PROPTEST_CASES`. If `KUBEFAN_CONTRACT_SEED` is set,
/// begins with that seed and runs one scenario by default. Panics if a scenario fails.
fn contract(cases: u64, replicas: usize, faults: FaultStrategy) -> Counts {
    let replayed = env_number("KUBEFAN_CONTRACT_SEED");
    let cases = env_number("PROPTEST_CASES").unwrap_or(if replayed.is_some() { 1 } else { cases });
    match try_contract(replayed.unwrap_or(0), cases, replicas, faults, None) {
        Ok(counts) => counts,
        Err(error) => panic!("{error}"),
    }
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.cases += 1;
        self.lists += other.lists;
        self.changes += other.changes;
        self.bookmarks += other.bookmarks;
        self.expired += other.expired;
        self.resumed += other.resumed;
        self.implied_deletions += other.implied_deletions;
        self.abandoned += other.abandoned;
    }
}

#[test]
fn one_replica_honours_the_contract() {
    let counts = contract(40, 1, no_faults);
    assert!(counts.changes > counts.cases * 5, "{counts:?}");
    assert!(counts.resumed > counts.cases * 2, "{counts:?}");
    assert!(counts.bookmarks > 0, "{counts:?}");
    // Clients that do not read for long fall behind a small log. Clients that arrive with a version
    // from before the cache's first list are bridged.
    assert!(counts.expired > 0, "{counts:?}");
}

#[test]
fn two_replicas_honour_the_contract() {
    let counts = contract(40, 2, no_faults);
    assert!(counts.changes > counts.cases * 5, "{counts:?}");
    assert!(counts.resumed > counts.cases * 2, "{counts:?}");
}

#[test]
fn replicas_honour_the_contract_under_random_faults() {
    let counts = contract(FAULTY_CASES, 2, all_faults);
    assert!(counts.changes > counts.cases * 5, "{counts:?}");
    assert!(counts.expired > 0, "{counts:?}");
}

#[test]
fn a_client_that_takes_nothing_for_long_may_be_cut() {
    let mut abandoned = 0;
    for seed in IDLE_CLIENTS {
        let outcome = try_contract(seed, 1, 2, all_faults, None);
        abandoned += outcome.unwrap_or_else(|error| panic!("{error}")).abandoned;
    }
    assert!(abandoned > 0, "other seeds are needed");
}

#[test]
fn replicas_honour_the_contract_under_each_fault() {
    for (name, faults) in FAULTS {
        let counts = contract(6, 2, faults);
        assert!(counts.changes > counts.cases * 2, "{name}: {counts:?}");
    }
}

#[test]
fn the_contract_property_detects_planted_bugs() {
    let bugs = [
        PlantedBug::Client(Tamper::Drop),
        PlantedBug::Client(Tamper::Duplicate),
        PlantedBug::Client(Tamper::Swap),
        PlantedBug::Client(Tamper::Postpone),
        PlantedBug::Cache(Mutation::HoleServed),
        PlantedBug::Cache(Mutation::BlockNotRepeated),
        PlantedBug::Cache(Mutation::BlockAtList),
        PlantedBug::Cache(Mutation::NewObjectOnly),
    ];
    for bug in bugs {
        let outcome = try_contract(0, FAULTY_CASES, 2, all_faults, Some(bug));
        let found = outcome.expect_err("the property should notice");
        eprintln!("{bug:?}: {}", found.lines().next().unwrap_or_default());
    }
}

/// Checks that a client does not miss that pod 0 left its selection. While replica 0 cannot
/// reach the simulator, pod 0 stops matching the client's selector, pod 1 is created, and pod 0
/// changes again. Replica 0 then relists, and the client reads only some of the resulting events
/// before it resumes at replica 1.
#[test]
fn unseen_departures_from_a_selection_are_sent_before_other_changes() {
    let client = |action| Op::Client { client: 0, action };
    let put = |pod, app| Op::Put { pod, app, node: 0 };
    let frames = |frames| client(ClientOp::Read { frames });
    let spec = ClientSpec {
        subscription: 3,
        bookmarks: false,
        seconds: 600,
    };
    let scenario = Scenario {
        replicas: 2,
        retention_bytes: None,
        clients: vec![spec],
        ops: vec![
            put(0, 0),
            client(ClientOp::Switch),
            client(ClientOp::Switch),
            Op::Fault(Fault::Partition(0)),
            Op::Wait(1),
            put(0, 1),
            put(1, 0),
            put(0, 1),
            Op::Wait(1),
            Op::Fault(Fault::Compact),
            Op::Fault(Fault::Heal(0)),
            Op::Wait(100_000),
            frames(1),
            client(ClientOp::Switch),
        ],
        seed: 0,
    };
    for read in 0..4 {
        let mut scenario = scenario.clone();
        let at = scenario.ops.len() - 2;
        scenario.ops[at] = frames(read);
        if let Err(error) = run_scenario(&scenario, None) {
            panic!("{read}: {error}");
        }
    }
    let rule = Mutation::DepartureWithChange;
    let without = mutation::with(rule, || run_scenario(&scenario, None));
    without.expect_err("the rule is needed");
}

/// Lets clients of every subscription return after a restart of kubefan, some with an older version
/// than others. While kubefan was down, objects changed, and objects change while clients catch up.
/// Within three seconds every client must have the current state, and none may have got 410.
fn resume_after_a_restart(changes: usize) -> CheckResult {
    let spec = |client| ClientSpec {
        subscription: client % SUBSCRIPTIONS.len(),
        bookmarks: client % 2 == 0,
        seconds: 600,
    };
    let scenario = Scenario {
        replicas: 1,
        retention_bytes: None,
        clients: (0..3 * SUBSCRIPTIONS.len()).map(spec).collect(),
        ops: Vec::new(),
        seed: 0,
    };
    on_paused_time(async {
        let mut run = ContractRun::new(&scenario, None).await;
        let all = |run: &ContractRun| 0..run.clients.len();
        let change = |run: &mut ContractRun, change: usize| {
            let pod = change % PODS.len();
            match change % 7 {
                3 => run.testbed.cluster.delete(pod),
                5 => run.testbed.cluster.tick(),
                _ => run.testbed.cluster.put(pod, change / 2 % 2, change % 2),
            }
        };
        (0..PODS.len()).for_each(|pod| run.testbed.cluster.put(pod, pod % 2, pod / 2 % 2));
        for client in all(&run) {
            run.client(client, &ClientOp::List(List::Any)).await?;
            run.client(client, &ClientOp::Watch).await?;
            // So the clients of a subscription have different versions.
            change(&mut run, client);
            sleep(Duration::from_millis(100)).await;
            run.client(client, &ClientOp::Read { frames: 100 }).await?;
        }
        (0..changes).for_each(|number| change(&mut run, number));
        run.step(&Op::Fault(Fault::Restart(0))).await?;
        for client in all(&run) {
            run.client(client, &ClientOp::Watch).await?;
            change(&mut run, client + changes);
        }
        sleep(Duration::from_secs(3)).await;
        for client in all(&run) {
            run.client(client, &ClientOp::Read { frames: 1000 }).await?;
            if !run.clients[client].is_current(&run.testbed) {
                return Err(run.clients[client].describe(&run.testbed));
            }
        }
        match run.testbed.counts.expired {
            0 => run.recover().await,
            expired => Err(format!("{expired} watches expired")),
        }
    })
}

#[test]
fn clients_survive_a_restart_of_kubefan() {
    for changes in 0..12 {
        if let Err(error) = resume_after_a_restart(changes) {
            panic!("{changes} changes: {error}");
        }
    }
}

#[test]
fn the_restart_test_detects_wrong_bridges() {
    for rule in [Mutation::BridgeLeftEarly, Mutation::BridgeRepeatsKnown] {
        let outcome = mutation::with(rule, || resume_after_a_restart(8));
        let found = outcome.expect_err("the test should notice");
        eprintln!("{rule:?}: {found}");
    }
}
