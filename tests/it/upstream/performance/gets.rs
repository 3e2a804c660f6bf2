//! Measures GETs of single pods, directly and through kubefan in one run: with `--freshness
//! session`, and those of a crowd with `--freshness strict`. It prints a table and asserts nothing
//! about time, so it is run by hand. This takes 13 minutes.
//!
//! ```sh
//! KUBEFAN_TEST_BINARY=target/dist/kubefan cargo test --profile dist --package kubefan-cli \
//!     --test it upstream::performance::gets -- --ignored --nocapture --test-threads=1
//! ```
//!
//! Each client has an HTTP/1.1 connection over TLS to itself, a bearer token, and one request in
//! flight. kubefan runs with `--auth caller`, and is started again for each row of the table. The
//! clients are in this process, so it is built in the profile `dist`, too; the table shows what
//! they cost.

use std::cell::RefCell;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use memchr::memmem;
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::clients::client::Answer;
use crate::support::clients::connection::Connection;
use crate::support::clients::connector::Connector;
use crate::support::pods;
use crate::support::programs::apiserver::{ApiServer, private_with_tokens};
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::process;
use crate::support::settings::setting as environment;
use crate::upstream::performance::measure::{many, percentile};

/// The header of an answer of the cache.
pub(super) const PROOF: &str = "x-kubefan-proof";
const GROUP: &str = "getters";
const USERS: usize = 64;
const CONNECTIONS: usize = 64;
const READERS: usize = 200;
/// Every twentieth request of a connection is a write, so 5 % are.
const WRITE_EVERY: usize = 20;
const PACED_GETS: f64 = 50.0;
/// The writes per second beside the crowd.
const WRITES_BESIDE: f64 = 80.0;
/// Rows with few requests are noisy, so they last longer than others by this factor.
const PACED_TIMES: u32 = 3;
/// How long a row's requests are not counted: until the sessions of all users have begun, and
/// kubefan knows the users.
const WARM_UP: Duration = Duration::from_secs(4);

/// The ways of the requests: their names, and the flags of kubefan.
///
/// The API server has only RBAC, so names are covered by the right to GET all pods. If they are not,
/// kubefan forwards the GET of each name until a success shows the user's right to it, for the ten
/// seconds of `authorization.allowedTtl`.
const WAYS: [(&str, Option<&[&str]>); 3] = [
    ("directly", None),
    ("kubefan, names covered", Some(&[])),
    (
        "kubefan, names not covered",
        Some(&["--authorization-names-covered=false"]),
    ),
];

const COLUMNS: [&str; 15] = [
    "requests",
    "way",
    "GETs/s",
    "p50",
    "p99",
    "kube-apiserver's CPU per GET, without the writes'",
    "kubefan's CPU per GET",
    "the clients' CPU per GET",
    "from the cache",
    "writes/s",
    "writes/s alone",
    "kube-apiserver's CPU for these",
    "GETs/s to direct",
    "p99 to direct",
    "kube-apiserver's CPU to direct",
];

/// What connections send.
#[derive(Clone, Copy)]
struct Load {
    connections: usize,
    /// The number of users that the connections are of, in turn.
    users: usize,
    /// The number of pods. Each connection reads or writes all of them in turn, and begins with
    /// another one.
    pods: usize,
    /// Every how many requests of a connection one is a write; `None` for no writes.
    write_every: Option<usize>,
    /// The requests per second of all connections together; `None` for as many as possible.
    rate: Option<f64>,
}

/// Some rows of the table, one for each way.
struct Phase {
    what: &'static str,
    freshness: &'static str,
    load: Load,
    /// Writes that are sent directly meanwhile.
    beside: Option<Load>,
}

fn phases(pods: usize) -> [Phase; 6] {
    let gets = Load {
        connections: CONNECTIONS,
        users: 1,
        pods,
        write_every: None,
        rate: None,
    };
    let mixed = Load {
        write_every: Some(WRITE_EVERY),
        ..gets
    };
    let share_of_gets = (WRITE_EVERY - 1) as f64 / WRITE_EVERY as f64;
    let paced = Load {
        rate: Some(PACED_GETS / share_of_gets),
        ..mixed
    };
    let of_users = |load| Load {
        users: USERS,
        ..load
    };
    let crowd = Load {
        connections: READERS,
        ..gets
    };
    let of_session = |what, load| Phase {
        what,
        freshness: "session",
        load,
        beside: None,
    };
    [
        of_session("GETs, 1 user", gets),
        of_session("5 % writes, 1 user", mixed),
        of_session("5 % writes, 64 users", of_users(mixed)),
        of_session("50 GETs/s, 5 % writes, 1 user", paced),
        of_session("50 GETs/s, 5 % writes, 64 users", of_users(paced)),
        Phase {
            what: "strict GETs of a crowd of 200, 1 user, 80 writes/s to one pod",
            freshness: "strict",
            load: crowd,
            beside: Some(Load {
                connections: 1,
                users: 1,
                pods: 1,
                write_every: Some(1),
                rate: Some(WRITES_BESIDE),
            }),
        },
    ]
}

fn token(user: usize) -> String {
    format!("user-{user}-token")
}

// === The clients ===

/// A server, and how clients connect to it.
struct Target {
    url: String,
    connector: Connector,
}

/// What was sent while it was counted.
#[derive(Default)]
struct Sent {
    /// The milliseconds of each GET.
    waits: Vec<f64>,
    /// The number of GETs that a cache answered.
    from_cache: usize,
    writes: usize,
}

impl Target {
    fn new(url: &str, authority: &str) -> Self {
        Self {
            url: url.to_owned(),
            connector: Connector::tls(authority, None, &["http/1.1"]),
        }
    }
}

/// Reads the pod at `path`. Returns true if a cache has answered.
async fn get(client: &mut Connection, path: &str, pod: &str) -> bool {
    let (url, none) = (format!("{path}/{pod}"), HeaderMap::new());
    let answer = client.send(Method::GET, &url, &none, Bytes::new()).await;
    check(&answer, pod);
    answer.header(PROOF).is_some()
}

/// Changes the pod at `path`.
async fn write(client: &mut Connection, path: &str, pod: &str) {
    let number = rand::random::<u64>();
    let change = format!(r#"{{"metadata":{{"annotations":{{"n":"{number}"}}}}}}"#);
    let media_type = HeaderValue::from_static("application/merge-patch+json");
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, media_type)]);
    let url = format!("{path}/{pod}");
    let answer = client.send(Method::PATCH, &url, &headers, change.into());
    check(&answer.await, pod);
}

/// Checks that an answer has the pod, without parsing it.
fn check(answer: &Answer, pod: &str) {
    let name = format!(r#""name":"{pod}""#);
    let has_pod = memmem::find(&answer.body, name.as_bytes()).is_some();
    assert!(answer.status == 200 && has_pod, "{pod}: {answer}");
}

impl Load {
    fn is_write(self, number: usize, turn: usize) -> bool {
        let every = self.write_every;
        every.is_some_and(|every| (number + turn).is_multiple_of(every))
    }

    /// Sends the requests of connection `number` until the future is dropped. Counts in `sent`,
    /// unless it is `None`.
    async fn send(
        self,
        number: usize,
        (target, path): (&Target, &str),
        sent: &RefCell<Option<Sent>>,
    ) {
        let token = token(number % self.users);
        let opened = Connection::open(&target.url, &target.connector, &token);
        let (mut client, driver) = opened.await;
        let requests = async {
            let began = Instant::now();
            for turn in 0_usize.. {
                if let Some(rate) = self.rate {
                    let before = (turn * self.connections + number) as f64;
                    sleep_until(began + Duration::from_secs_f64(before / rate)).await;
                }
                let first = number * self.pods / self.connections;
                let pod = format!("pod-{}", (first + turn) % self.pods);
                let asked = Instant::now();
                let is_write = self.is_write(number, turn);
                let is_cached = match is_write {
                    true => {
                        write(&mut client, path, &pod).await;
                        false
                    }
                    false => get(&mut client, path, &pod).await,
                };
                if let Some(sent) = sent.borrow_mut().as_mut() {
                    match is_write {
                        true => sent.writes += 1,
                        false => sent.waits.push(asked.elapsed().as_secs_f64() * 1e3),
                    }
                    sent.from_cache += usize::from(is_cached);
                }
            }
        };
        tokio::select! {
            ended = driver => panic!("connection {number} has ended: {ended:?}"),
            () = requests => {}
        }
    }
}

// === The rows ===

/// An API server with the pods and the users.
struct Scene {
    server: ApiServer,
    pods: usize,
    /// The path of all pods.
    path: String,
}

/// What was sent, in how many seconds, and the CPU time of the API server, of kubefan, and of this
/// process meanwhile, in seconds.
struct Measured {
    sent: Sent,
    seconds: f64,
    cpu: [f64; 3],
}

/// A row of the table.
struct Row {
    gets_per_second: f64,
    /// The median and the 99th percentile of the GETs, in milliseconds.
    waits: [f64; 2],
    /// CPU time per GET of the API server, of kubefan, and of this process, in microseconds. That
    /// of the API server does not include what the writes cost.
    cpu: [f64; 3],
    from_cache: f64,
    writes_per_second: f64,
    /// What was measured of the writes alone: their number per second, and the API server's CPU
    /// time, in seconds per second.
    alone: [f64; 2],
}

impl Scene {
    async fn start() -> Self {
        let lines = (0..USERS).map(|user| format!("{},user-{user},{user},{GROUP}\n", token(user)));
        let tokens: Vec<_> = lines.collect();
        let server = private_with_tokens(&tokens.concat(), &["--allow-privileged=true"]).await;
        let namespace = server.namespace("gets").await;
        let group = ("Group", GROUP);
        server
            .allow(group, &namespace, &["get", "patch"], &["pods"])
            .await;
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let (client, count) = (server.client(), many());
        pods::create(&client, &path, count).await;
        let (_, bytes) = client.drain(&path).await;
        println!("{count} pods of {} bytes each in JSON", bytes / count);
        Self {
            server,
            pods: count,
            path,
        }
    }

    /// Sends the loads to their targets. Measures for `time`, after the warm-up.
    async fn measure(
        &self,
        loads: &[(&Target, Load)],
        kubefan: Option<&Kubefan>,
        time: Duration,
    ) -> Measured {
        let sent = RefCell::new(None);
        let connections = loads.iter().flat_map(|(target, load)| {
            let (place, load, sent) = ((*target, self.path.as_str()), *load, &sent);
            (0..load.connections).map(move |number| load.send(number, place, sent))
        });
        let cpu = || {
            let kubefan = kubefan.map_or(0.0, Kubefan::cpu);
            let [server, clients] = [self.server.pid(), std::process::id()].map(process::cpu);
            [server, kubefan, clients]
        };
        let measuring = async {
            sleep(WARM_UP).await;
            let (before, began) = (cpu(), Instant::now());
            *sent.borrow_mut() = Some(Sent::default());
            sleep(time).await;
            let (after, seconds) = (cpu(), began.elapsed().as_secs_f64());
            Measured {
                sent: sent.take().expect("what was counted"),
                seconds,
                cpu: [0, 1, 2].map(|of| after[of] - before[of]),
            }
        };
        // All connections are in one task, and close before this function returns.
        tokio::select! {
            measured = measuring => measured,
            _ = join_all(connections) => unreachable!("connections send until they are dropped"),
        }
    }

    async fn row(&self, phase: &Phase, flags: Option<&[&str]>) -> Row {
        let times = phase.load.rate.map_or(1, |_| PACED_TIMES);
        let time = Duration::from_secs(environment("KUBEFAN_SECONDS", 10)) * times;
        let kubefan = match flags {
            Some(flags) => Some(self.kubefan(phase, flags).await),
            None => None,
        };
        let direct = Target::new(&self.server.url(), self.server.authority());
        let through = kubefan.as_ref().map(|kubefan| {
            let authority = kubefan.authority().expect("a CA of its own");
            Target::new(kubefan.url(), &authority)
        });
        let mut loads = vec![(through.as_ref().unwrap_or(&direct), phase.load)];
        loads.extend(phase.beside.map(|beside| (&direct, beside)));
        let measured = self.measure(&loads, kubefan.as_ref(), time).await;
        drop(kubefan);
        let writes_per_second = measured.sent.writes as f64 / measured.seconds;
        if measured.sent.writes == 0 {
            return Row::new(measured, [0.0; 2]);
        }
        let alone = Load {
            write_every: Some(1),
            rate: Some(writes_per_second),
            ..phase.beside.unwrap_or(phase.load)
        };
        let alone = self.measure(&[(&direct, alone)], None, time).await;
        let alone = [alone.sent.writes as f64, alone.cpu[0]].map(|sum| sum / alone.seconds);
        Row::new(measured, alone)
    }

    async fn kubefan(&self, phase: &Phase, flags: &[&str]) -> Kubefan {
        let caller = ["--tls-self-signed", "--auth", "caller"];
        let pods = ["--resource", "pods", "--freshness", phase.freshness];
        Kubefan::start(&self.server, &[&caller[..], &pods, flags].concat()).await
    }
}

impl Row {
    fn new(measured: Measured, alone: [f64; 2]) -> Self {
        let (seconds, mut waits) = (measured.seconds, measured.sent.waits);
        waits.sort_by(f64::total_cmp);
        let gets = waits.len() as f64;
        let [server, kubefan, clients] = measured.cpu;
        let of_gets = [server - alone[1] * seconds, kubefan, clients];
        Self {
            gets_per_second: gets / seconds,
            waits: [0.5, 0.99].map(|of| percentile(&waits, of)),
            cpu: of_gets.map(|cpu| cpu * 1e6 / gets),
            from_cache: measured.sent.from_cache as f64 / gets,
            writes_per_second: measured.sent.writes as f64 / seconds,
            alone,
        }
    }

    fn print(&self, what: &str, way: &str, direct: &Self) {
        let [p50, p99] = self.waits;
        let [server, kubefan, clients] = self.cpu;
        let [writes_alone, cpu_alone] = self.alone;
        println!(
            "| {what} | {way} | {:.0} | {p50:.2} ms | {p99:.2} ms | {server:.1} us | \
             {kubefan:.1} us | {clients:.1} us | {:.1} % | {:.1} | {writes_alone:.1} | \
             {:.1} ms/s | {:.2} | {:.2} | {:.3} |",
            self.gets_per_second,
            self.from_cache * 1e2,
            self.writes_per_second,
            cpu_alone * 1e3,
            self.gets_per_second / direct.gets_per_second,
            p99 / direct.waits[1],
            server / direct.cpu[0],
        );
    }
}

/// `KUBEFAN_PODS` sets the number of pods (5,000), `KUBEFAN_SECONDS` the time of each row (10), and
/// `KUBEFAN_ROWS` selects the rows with names that contain its value.
#[tokio::test]
#[ignore = "a measurement"]
async fn measure_gets() {
    let scene = Scene::start().await;
    println!("| {} |", COLUMNS.join(" | "));
    println!("|{}", "---|".repeat(COLUMNS.len()));
    let part: String = environment("KUBEFAN_ROWS", String::new());
    let phases = phases(scene.pods).into_iter();
    for phase in phases.filter(|phase| phase.what.contains(&part)) {
        let mut rows: Vec<Row> = Vec::new();
        for (way, flags) in WAYS {
            rows.push(scene.row(&phase, flags).await);
            rows[rows.len() - 1].print(phase.what, way, &rows[0]);
        }
    }
}
