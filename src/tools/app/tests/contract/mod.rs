//! The contract as a property, from end to end: a simulated API server, kubefans before it, and
//! clients that list, watch, leave and come back, while objects come and go and everything breaks.
//!
//! A list and its watch, folded, are the list at the end, or the watch ends Expired. `PROPTEST_CASES`
//! sets another number of cases; a failure names its seed, and `KUBEFAN_CONTRACT_SEED` begins there.

mod client;
mod cluster;
mod network;

use std::cell::RefCell;
use std::env;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::BoxedStrategy;
use proptest::prelude::Just;
use proptest::prelude::Strategy;
use proptest::prelude::any;
use proptest::prop_oneof;
use proptest::sample::select;
use proptest::test_runner::Config as RunnerConfig;
use proptest::test_runner::RngAlgorithm;
use proptest::test_runner::TestCaseError;
use proptest::test_runner::TestError;
use proptest::test_runner::TestRng;
use proptest::test_runner::TestRunner;
use tokio::time::Instant;
use tokio::time::sleep;

use crate::informer;
use crate::mutation;
use crate::mutation::Mutation;
use crate::server::without_jitter;
use crate::shutdown;
use crate::shutdown::Shutdown;
use crate::tools::sim::RequestFault;
use crate::tools::sim::WatchFault;

use client::Checked;
use client::Client;
use client::Counts;
use client::List;
use client::Site;
use client::Tamper;
use client::WANTS;
use cluster::APPS;
use cluster::Cluster;
use cluster::NODES;
use cluster::PODS;
use network::Replica;

const CLIENTS: usize = 3;
/// Longest time from the end of all faults until everybody has what is: a silent watch is noticed
/// after 90 s, and waits between attempts go up to 60 s.
const RECOVERY: Duration = Duration::from_secs(300);
/// Cases with all faults: so many that each wrong rule is found in them.
const FAULTY_CASES: u64 = 80;
/// Lines of a failing run's trace that are shown.
const TRACE: usize = 60;

#[derive(Clone, Debug)]
struct Scenario {
    replicas: usize,
    retention_bytes: Option<usize>,
    clients: Vec<Customer>,
    ops: Vec<Op>,
    seed: u64,
}

#[derive(Clone, Debug)]
struct Customer {
    want: usize,
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
    /// Created and deleted at once.
    Flash {
        pod: usize,
    },
    Burst {
        pod: usize,
        changes: usize,
    },
    /// Another resource changes.
    Tick,
    Wait(u64),
    Client {
        client: usize,
        does: ClientOp,
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
    TurnBack,
    /// All connections of a replica break.
    Sever(usize),
    /// And can't be made anew.
    Part(usize),
    Heal(usize),
}

/// What is made wrong, for the property to find.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Client(Tamper),
    Cache(Mutation),
}

/// What may go wrong.
type Faults = fn() -> BoxedStrategy<Fault>;

fn of_watches(fault: WatchFault) -> BoxedStrategy<Fault> {
    Just(Fault::Watches(fault)).boxed()
}

fn of_requests(fault: RequestFault) -> BoxedStrategy<Fault> {
    (1..4_u32)
        .prop_map(move |count| Fault::Requests(fault, count))
        .boxed()
}

fn of_links() -> BoxedStrategy<Fault> {
    let replica = || select(vec![0_usize, 1]);
    prop_oneof![
        2 => replica().prop_map(Fault::Sever),
        2 => replica().prop_map(Fault::Part),
        2 => replica().prop_map(Fault::Heal),
    ]
    .boxed()
}

/// A watch that is resumed sees no difference; only one that can't be does.
fn of_history(fault: Fault) -> BoxedStrategy<Fault> {
    prop_oneof![2 => Just(fault), 1 => Just(Fault::Watches(WatchFault::Drop)), 1 => of_links()]
        .boxed()
}

/// Each fault by its name; those of requests go with what makes kubefan ask.
const FAULTS: [(&str, Faults); 12] = [
    ("drop-watches", || of_watches(WatchFault::Drop)),
    ("gone", || of_watches(WatchFault::Gone)),
    ("half-frame", || of_watches(WatchFault::HalfFrame)),
    ("stall", || of_watches(WatchFault::Stall)),
    ("silence", || of_watches(WatchFault::Silence)),
    ("too-many-requests", || {
        let fault = of_requests(RequestFault::TooManyRequests(2));
        prop_oneof![fault, of_watches(WatchFault::Drop)].boxed()
    }),
    ("server-error", || {
        let fault = of_requests(RequestFault::ServerError);
        prop_oneof![fault, of_watches(WatchFault::Gone)].boxed()
    }),
    ("wrong-content-type", || {
        let fault = of_requests(RequestFault::WrongContentType);
        prop_oneof![fault, of_watches(WatchFault::Gone)].boxed()
    }),
    ("slow", || {
        select(vec![0, 5, 300, 2000]).prop_map(Fault::Slow).boxed()
    }),
    ("compact", || of_history(Fault::Compact)),
    ("revision-back", || of_history(Fault::TurnBack)),
    ("links", of_links),
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
        1 => pod.clone().prop_map(|pod| Op::Flash { pod }),
        1 => (pod, 10..40_usize).prop_map(|(pod, changes)| Op::Burst { pod, changes }),
        1 => Just(Op::Tick),
        5 => wait.prop_map(Op::Wait),
        4 => faults.prop_map(Op::Fault),
        20 => (0..CLIENTS, client_op()).prop_map(|(client, does)| Op::Client { client, does }),
    ]
}

fn scenario(replicas: usize, faults: Faults) -> impl Strategy<Value = Scenario> {
    let seconds = select(vec![5, 30, 600]);
    let customer =
        (0..WANTS.len(), any::<bool>(), seconds).prop_map(|(want, bookmarks, seconds)| Customer {
            want,
            bookmarks,
            seconds,
        });
    let retention = option::weighted(0.5, select(vec![3000, 8000]));
    let clients = vec(customer, CLIENTS);
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

struct World {
    site: Site,
    clients: Vec<Client>,
}

// === impl World ===

impl World {
    async fn new(scenario: &Scenario, tamper: Option<Tamper>) -> Self {
        let cluster = Cluster::new(Shutdown::new(shutdown::Config::default()));
        let mut replicas = Vec::new();
        for replica in 0..scenario.replicas {
            let config = informer::Config {
                retention_bytes: scenario.retention_bytes,
                seed: Some(scenario.seed.wrapping_add(replica as u64)),
                ..informer::Config::default()
            };
            replicas.push(Replica::start(&cluster.simulator, config).await);
        }
        let client = |(name, customer): (usize, &Customer)| {
            let Customer {
                want,
                bookmarks,
                seconds,
            } = *customer;
            Client::new(name, want, bookmarks, seconds).with_tamper(tamper)
        };
        let first = cluster.now();
        Self {
            clients: scenario.clients.iter().enumerate().map(client).collect(),
            site: Site {
                shown: vec![first; replicas.len()],
                cluster,
                replicas,
                trace: Vec::new(),
                counts: Counts::default(),
            },
        }
    }

    async fn run(&mut self, ops: &[Op]) -> Checked {
        for op in ops {
            self.site.note(|| format!("> {op:?}"));
            self.step(op).await?;
        }
        self.recover().await?;
        // Whoever watches is told what comes next.
        self.site.cluster.put(0, 0, 0);
        self.site.cluster.put(0, 1, 1);
        self.site.cluster.delete(0);
        self.recover().await
    }

    async fn step(&mut self, op: &Op) -> Checked {
        let cluster = &mut self.site.cluster;
        match *op {
            Op::Put { pod, app, node } => cluster.put(pod, app, node),
            Op::Delete { pod } => cluster.delete(pod),
            Op::Recreate { pod, app } => {
                cluster.delete(pod);
                cluster.put(pod, app, 0);
            }
            Op::Flash { pod } => {
                cluster.put(pod, 0, 0);
                cluster.delete(pod);
            }
            Op::Burst { pod, changes } => {
                (0..changes).for_each(|change| cluster.put(pod, change % 3 % 2, change % 2));
            }
            Op::Tick => cluster.tick(),
            Op::Wait(milliseconds) => sleep(Duration::from_millis(milliseconds)).await,
            Op::Fault(fault) => self.fail(fault),
            Op::Client { client, ref does } => self.client(client, does).await?,
        }
        Ok(())
    }

    async fn client(&mut self, client: usize, does: &ClientOp) -> Checked {
        let (client, site) = (&mut self.clients[client], &mut self.site);
        match *does {
            ClientOp::List(how) => client.list(site, how).await,
            ClientOp::WatchList { is_recent } => client.watch_list(site, is_recent).await,
            ClientOp::Arrive { behind } => {
                client.arrive(site, behind);
                client.watch(site).await
            }
            ClientOp::Watch => client.watch(site).await,
            ClientOp::Read { frames } => client.read(site, frames).await,
            ClientOp::Cut => {
                client.cut();
                Ok(())
            }
            ClientOp::Switch => {
                client.replica = (client.replica + 1) % site.replicas.len();
                client.watch(site).await
            }
            ClientOp::Get { pod, is_recent } => client.get(site, pod, is_recent).await,
        }
    }

    fn fail(&mut self, fault: Fault) {
        let Site {
            cluster, replicas, ..
        } = &mut self.site;
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
            Fault::TurnBack => cluster.turn_back(),
            Fault::Sever(replica) => link(replica).cut(true),
            Fault::Part(replica) => link(replica).cut(false),
            Fault::Heal(replica) => link(replica).heal(),
        }
    }

    /// Once nothing goes wrong any more, everybody has what is before long.
    async fn recover(&mut self) -> Checked {
        let faults = self.site.cluster.simulator.faults();
        faults.fail_requests(RequestFault::ServerError, 0);
        faults.slow_down(Duration::ZERO);
        self.site
            .replicas
            .iter()
            .for_each(|replica| replica.link.heal());
        let newcomers = (0..self.site.replicas.len()).map(|replica| {
            let mut newcomer = Client::new(CLIENTS + replica, 0, true, 600);
            newcomer.replica = replica;
            newcomer
        });
        let mut newcomers: Vec<_> = newcomers.collect();
        let limit = Instant::now() + RECOVERY;
        self.site.note(|| "> recover".to_owned());
        let noted = self.site.trace.len() + TRACE / 2;
        loop {
            self.site.trace.truncate(noted);
            let mut behind = None;
            for client in self.clients.iter_mut().chain(&mut newcomers) {
                client.follow(&mut self.site).await?;
                if !client.is_current(&self.site) {
                    behind = Some(client.describe(&self.site));
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

fn play(scenario: &Scenario, tamper: Option<Tamper>) -> Result<Counts, String> {
    without_jitter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut world = World::new(scenario, tamper).await;
        let outcome = world.run(&scenario.ops).await;
        outcome.map_err(|error| {
            let trace = &world.site.trace;
            let last = trace.iter().skip(trace.len().saturating_sub(TRACE));
            let last: Vec<_> = last.map(String::as_str).collect();
            format!("{error}\n{}\n", last.join("\n"))
        })?;
        Ok(world.site.counts)
    })
}

fn variable(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// Plays `cases` scenarios from the seed `first` on; what was counted in them, or the first that
/// fails, with its seed.
fn try_contract(
    first: u64,
    cases: u64,
    replicas: usize,
    faults: Faults,
    wrong: Option<Wrong>,
) -> Result<Counts, String> {
    let tamper = match wrong {
        Some(Wrong::Client(tamper)) => Some(tamper),
        Some(Wrong::Cache(_)) | None => None,
    };
    let total = RefCell::new(Counts::default());
    for seed in first..first + cases {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let settings = RunnerConfig {
            failure_persistence: None,
            max_shrink_iters: if wrong.is_some() { 0 } else { 600 },
            ..RunnerConfig::default()
        };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(settings, rng);
        let tree = scenario(replicas, faults).new_tree(&mut runner);
        let tree = tree.expect("the strategy filters nothing");
        let outcome = runner.run_one(tree, |scenario| {
            let counts = match wrong {
                Some(Wrong::Cache(rule)) => mutation::with(rule, || play(&scenario, tamper)),
                Some(Wrong::Client(_)) | None => play(&scenario, tamper),
            };
            total.borrow_mut().add(counts.map_err(TestCaseError::fail)?);
            Ok(())
        });
        match outcome {
            Ok(_) => {}
            Err(TestError::Fail(why, least)) => {
                return Err(format!(
                    "KUBEFAN_CONTRACT_SEED={seed}: {why}\nleast: {least:?}"
                ));
            }
            Err(error) => return Err(format!("KUBEFAN_CONTRACT_SEED={seed}: {error}")),
        }
    }
    Ok(total.into_inner())
}

/// Plays `cases` scenarios, or as many as `PROPTEST_CASES` or a seed to be replayed says.
fn contract(cases: u64, replicas: usize, faults: Faults) -> Counts {
    let replayed = variable("KUBEFAN_CONTRACT_SEED");
    let cases = variable("PROPTEST_CASES").unwrap_or(if replayed.is_some() { 1 } else { cases });
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
        self.implied += other.implied;
    }
}

#[test]
fn one_kubefan_keeps_the_contract() {
    let counts = contract(40, 1, no_faults);
    assert!(counts.changes > counts.cases * 5, "{counts:?}");
    assert!(counts.resumed > counts.cases * 2, "{counts:?}");
    assert!(counts.bookmarks > 0, "{counts:?}");
    // Of clients that come from elsewhere with a version from before the cache's first list.
    assert!(counts.expired > 0, "{counts:?}");
}

#[test]
fn two_kubefans_keep_it_together() {
    let counts = contract(40, 2, no_faults);
    assert!(counts.changes > counts.cases * 5, "{counts:?}");
    assert!(counts.resumed > counts.cases * 2, "{counts:?}");
}

#[test]
fn they_keep_it_whatever_fails() {
    let counts = contract(FAULTY_CASES, 2, all_faults);
    assert!(counts.changes > counts.cases * 5, "{counts:?}");
    assert!(counts.expired > 0, "{counts:?}");
}

#[test]
fn they_keep_it_through_each_fault() {
    for (name, faults) in FAULTS {
        let counts = contract(6, 2, faults);
        assert!(counts.changes > counts.cases * 2, "{name}: {counts:?}");
    }
}

#[test]
fn the_property_can_fail() {
    let wrongs = [
        Wrong::Client(Tamper::Drop),
        Wrong::Client(Tamper::Duplicate),
        Wrong::Client(Tamper::Swap),
        Wrong::Client(Tamper::Postpone),
        Wrong::Cache(Mutation::HoleServed),
        Wrong::Cache(Mutation::BlockNotRepeated),
        Wrong::Cache(Mutation::BlockAtList),
        Wrong::Cache(Mutation::NewObjectOnly),
    ];
    for wrong in wrongs {
        let outcome = try_contract(0, FAULTY_CASES, 2, all_faults, Some(wrong));
        let found = outcome.expect_err("the property should notice");
        eprintln!("{wrong:?}: {}", found.lines().next().unwrap_or_default());
    }
}

/// An object leaves a selection while a kubefan can't see it, and changes once more; a client that
/// was cut between the two goes on elsewhere.
#[test]
fn what_left_a_selection_unseen_is_told_before_all_changes() {
    let client = |does| Op::Client { client: 0, does };
    let put = |pod, app| Op::Put { pod, app, node: 0 };
    let frames = |frames| client(ClientOp::Read { frames });
    let customer = Customer {
        want: 3,
        bookmarks: false,
        seconds: 600,
    };
    let scenario = Scenario {
        replicas: 2,
        retention_bytes: None,
        clients: vec![customer],
        ops: vec![
            put(0, 0),
            client(ClientOp::Switch),
            client(ClientOp::Switch),
            Op::Fault(Fault::Part(0)),
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
        if let Err(error) = play(&scenario, None) {
            panic!("{read}: {error}");
        }
    }
    let rule = Mutation::DepartureWithChange;
    let without = mutation::with(rule, || play(&scenario, None));
    without.expect_err("the rule is needed");
}
