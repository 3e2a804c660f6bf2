//! Measures what the authentication and authorization of callers cost, and what the bill costs:
//! `cargo bench --bench authorized_get`.
//!
//! One thread runs three kubefans, and the simulated API server behind them: one with `--auth none`,
//! one with `--auth caller`, and one with `--auth caller --bill=false`. Another thread sends GETs
//! that a cache answers, to each kubefan in turn. kubefan remembers the owner of the token and its
//! right. The CPU time of the first thread does not depend on other programs on the machine, except
//! for the CPU's own caches.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;
use std::{fs, mem, thread};

use bytes::Bytes;
use cpu_time::ThreadTime;
use http::{Request, Response};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubefan::informer::ResourceRules;
use kubefan::{informer, shutdown};
use kubefan_proxy::app::App;
use kubefan_proxy::config::{AdminConfig, Resources, ServeConfig, Tls};
use kubefan_proxy::identity::Mode;
use kubefan_proxy::server::Config;
use kubefan_proxy::{identity, ledger, net};
use kubefan_tools::app::DemoApp;
use kubefan_tools::config::DemoConfig;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream as AsyncStream};
use tokio::sync::oneshot;

/// As in the program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The number of rounds of GETs to each kubefan, and the number of GETs in a round for each
/// connection.
const ROUNDS: usize = 60;
const GETS: usize = 100;
/// The connections of a caller. With only one, the kubefans would sleep after each answer, and most
/// of the measured time would be that of waking up.
const CONNECTIONS: usize = 16;
/// Long enough for all rounds.
const TTL: Duration = Duration::from_secs(3_600);
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(measure());
}

async fn measure() {
    let directory = tempfile::tempdir().expect("a directory");
    let demo = DemoApp::start(DemoConfig {
        agents: 0,
        nodes: 10,
        pods: 100,
        churn: 0,
        seed: 1,
        listen: ANY,
        kubeconfig_out: directory.path().join("demo"),
    });
    let demo = demo.await.expect("a demo");
    let api_server = reviewing(address(&demo.simulated.url())).await;
    let kubeconfig = directory.path().join("kubeconfig");
    write_kubeconfig(&kubeconfig, api_server);
    let billed = authorizing(&kubeconfig, true).await;
    let unbilled = authorizing(&kubeconfig, false).await;
    // As long as the token of a service account that is bound to a pod.
    let token = format!(
        "Authorization: Bearer e30.{}.{}\r\n",
        "e".repeat(800),
        "s".repeat(342)
    );
    let mut callers = [
        Caller::connect(&demo.kubefan, "").await,
        Caller::connect(&billed, &token).await,
        Caller::connect(&unbilled, &token).await,
    ];
    let mut costs = [const { Vec::new() }; 3];
    for round in 0..=ROUNDS {
        for (caller, costs) in callers.iter_mut().zip(&mut costs) {
            let cost = caller.gets().await;
            // The first round warms up.
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    for (app, mode) in [
        (&demo.kubefan, "none"),
        (&billed, "caller"),
        (&unbilled, "caller without the bill"),
    ] {
        let from_cache = r#"outcome="cache""#;
        let (_, metrics) = app.registry().render();
        let of_nodes = metrics.lines().filter(|line| {
            line.starts_with("kubefan_requests_total{") && line.contains(from_cache)
        });
        let counts = of_nodes.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        let count: f64 = counts.sum();
        assert!(
            count >= (ROUNDS * GETS * CONNECTIONS) as f64,
            "{mode}: {count} from the cache"
        );
    }
    let [none, caller, unbilled] = costs.map(median);
    println!(
        "CPU time of a GET over HTTP/1.1 that a cache answers: {none:.2} µs with --auth none, \
         {caller:.2} µs with --auth caller: {:.2} µs more, ratio {:.3}; {unbilled:.2} µs with --auth \
         caller --bill=false: ratio with the bill {:.3}",
        caller - none,
        caller / none,
        caller / unbilled
    );
}

fn median(mut costs: Vec<f64>) -> f64 {
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}

fn address(url: &str) -> SocketAddr {
    let address = url.strip_prefix("http://").expect("plain HTTP");
    address.parse().expect("an address")
}

fn write_kubeconfig(file: &Path, server: SocketAddr) {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": format!("http://{server}")}}],
        "users": [{"name": "bench", "user": {}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    });
    fs::write(file, kubeconfig.to_string()).expect("room");
}

/// Starts a kubefan that authenticates its callers, with or without a bill.
async fn authorizing(kubeconfig: &Path, has_bill: bool) -> App {
    let access = identity::Config {
        mode: Mode::Caller,
        token_ttl: TTL,
        allowed_ttl: TTL,
        ..identity::Config::default()
    };
    let app = App::start(ServeConfig {
        kubeconfig: Some(kubeconfig.to_owned()),
        context: None,
        ping_interval: Duration::from_secs(3),
        ping_timeout: Duration::from_secs(5),
        listen: ANY,
        is_exposed: false,
        admin: AdminConfig::loopback(),
        threads: None,
        resources: Resources::All,
        rules: ResourceRules::default(),
        cache_secrets: true,
        informer: informer::Config {
            retention_age: informer::Config::SERVER_RETENTION_AGE,
            ..informer::Config::default()
        },
        audit_log: None,
        access_log: None,
        traces: None,
        tls: Tls::Plain,
        access,
        authorities: Some(identity::AuthoritySources::default()),
        connections: net::Config::default(),
        memory: ledger::Limits::default(),
        requests: Config {
            has_bill,
            ..Config::default()
        },
        shutdown: shutdown::Config {
            not_ready_delay: Duration::ZERO,
            grace: Duration::ZERO,
        },
    });
    app.await.expect("a kubefan")
}

// === The API server ===

type Answer = Response<Either<Full<Bytes>, Incoming>>;

/// An API server that answers reviews, and forwards everything else to `simulated`.
#[expect(
    clippy::disallowed_methods,
    reason = "the tasks end with the runtime of the bench"
)]
async fn reviewing(simulated: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(ANY).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(move |request: Request<Incoming>| async move {
                let answer = match request.uri().path().ends_with("reviews") {
                    true => review(),
                    false => relayed(simulated, request).await,
                };
                Ok::<_, Infallible>(answer)
            });
            let connection = server::Builder::new().serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(connection);
        }
    });
    address
}

/// Answers a review: the token belongs to a service account with every right.
fn review() -> Answer {
    let user = json!({
        "username": "system:serviceaccount:shop:web",
        "uid": "1f3a2a1e-6a1c-4c5a-9a35-0d6a3fb5a8f1",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"],
    });
    let review = json!({"status": {"userInfo": user, "allowed": true}}).to_string();
    let response = Response::builder().status(201);
    let response = response.header("content-type", "application/json");
    let response = response.body(Either::Left(Full::from(review)));
    response.expect("a response")
}

#[expect(
    clippy::disallowed_methods,
    reason = "the tasks end with the runtime of the bench"
)]
async fn relayed(simulated: SocketAddr, request: Request<Incoming>) -> Answer {
    let stream = AsyncStream::connect(simulated).await.expect("a connection");
    let (mut sender, connection) = client::handshake(TokioIo::new(stream))
        .await
        .expect("HTTP/1.1");
    tokio::spawn(connection);
    let answer = sender.send_request(request).await.expect("an answer");
    answer.map(Either::Right)
}

// === The caller ===

/// The connections of a caller. A separate thread uses them.
struct Caller {
    sockets: Vec<TcpStream>,
    request: String,
}

impl Caller {
    /// Connects to `kubefan`, and makes it fill the cache. `token` is a line of the head.
    async fn connect(kubefan: &App, token: &str) -> Self {
        let address = address(&kubefan.url());
        let connect = |_| TcpStream::connect(address).expect("a connection");
        let head = format!("Host: localhost\r\nAccept: application/json\r\n{token}\r\n");
        let list = format!("GET /api/v1/nodes?resourceVersion=0 HTTP/1.1\r\n{head}");
        let mut caller = Self {
            sockets: (0..CONNECTIONS).map(connect).collect(),
            request: list,
        };
        let (nodes, _) = caller.send(1).await;
        let nodes: Value = serde_json::from_slice(&nodes).expect("a list");
        let name = nodes["items"][0]["metadata"]["name"].as_str();
        let path = format!("/api/v1/nodes/{}?resourceVersion=0", name.expect("a node"));
        caller.request = format!("GET {path} HTTP/1.1\r\n{head}");
        caller
    }

    /// Returns the CPU time of a GET in microseconds.
    async fn gets(&mut self) -> f64 {
        let (_, cpu) = self.send(GETS).await;
        cpu.as_secs_f64() * 1e6 / (GETS * CONNECTIONS) as f64
    }

    /// Sends the request `count` times on each connection, each time after all previous answers.
    /// Returns the body of the last answer, and the CPU time of this thread.
    async fn send(&mut self, count: usize) -> (Vec<u8>, Duration) {
        let mut sockets = mem::take(&mut self.sockets);
        let request = self.request.clone();
        let (done, answered) = oneshot::channel();
        let before = ThreadTime::now();
        let sender = thread::spawn(move || {
            let mut body = Vec::new();
            for _ in 0..count {
                for socket in &mut sockets {
                    socket.write_all(request.as_bytes()).expect("sent");
                }
                for socket in &mut sockets {
                    body = answer(socket);
                }
            }
            done.send((sockets, body)).expect("the bench waits");
        });
        let (sockets, body) = answered.await.expect("answers");
        let cpu = before.elapsed();
        sender.join().expect("a sender");
        self.sockets = sockets;
        (body, cpu)
    }
}

/// Reads an answer 200 with a length, and returns its body.
fn answer(socket: &mut TcpStream) -> Vec<u8> {
    let mut read = Vec::new();
    let mut buffer = [0; 64 << 10];
    loop {
        let count = socket.read(&mut buffer).expect("an answer");
        assert_ne!(count, 0, "the connection is open");
        read.extend_from_slice(&buffer[..count]);
        let Some(end) = read.windows(4).position(|end| end == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.expect("a length").parse().expect("a number");
        if read.len() == end + 4 + length {
            return read.split_off(end + 4);
        }
    }
}
