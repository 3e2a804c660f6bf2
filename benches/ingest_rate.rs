//! Measures what a change costs `kubefan serve`, and how long it takes to a client, while the API
//! server changes objects at a certain rate: `cargo bench --package kubefan-cli --bench ingest_rate`.
//!
//! The API server is a fake in this process, which sends prepared watch frames over TLS and
//! HTTP/2. The clients are in this process, too: one watch of all objects, and watches of single
//! names, over HTTP/2 without TLS. kubefan is the built program in a process of its own, whose CPU
//! is counted alone. The time is that from the fake server's frame to the watch of all objects. The
//! bench fails if a watch misses an event.
//!
//! `RATE` and `SINGLES` in the environment select another rate and another number of watches of
//! single names. `SECONDS` is the measured time of each row, 10 by default. `KUBEFAN_BINARY` names
//! another program, to compare two versions.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::future::{pending, ready};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{env, fs, slice};

use bytes::{Bytes, BytesMut};
use futures::stream;
use h2::RecvStream;
use h2::client::SendRequest;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use kubefan::api::WireFormat;
use kubefan::shutdown;
use kubefan::shutdown::Shutdown;
use kubefan::telemetry::Registry;
use kubefan_core::body;
use kubefan_core::body::{Body, BoxError};
use kubefan_proxy::net;
use kubefan_proxy::net::{Acceptor, Listener};
use kubefan_proxy::server::{RequestMetrics, WebPageRules, with_filters};
use memchr::{memchr, memmem};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

#[allow(dead_code, reason = "other benches use the rest")]
mod pods;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Changes per second, and watches of single names.
const ROWS: [(u64, usize); 3] = [(50_000, 1_000), (20_000, 1_000), (500, 0)];
const PODS: usize = 50_000;
const POD_BYTES: usize = 1 << 10;
/// Every seventh pod is changed next.
const STEP: u64 = 7;
/// The version of the list. All versions have ten digits, so all frames have one length.
const LISTED: u64 = 2_000_000_000;
const WARM_UP: Duration = Duration::from_secs(2);
/// The bytes that the fake server sends at once, at most.
const CHUNK: usize = 64 << 10;
const STREAMS_PER_CONNECTION: usize = 100;
const PATIENCE: Duration = Duration::from_secs(60);

/// The API server of one resource: pods.
struct FakeServer {
    /// A MODIFIED frame of each pod.
    frames: Vec<Bytes>,
    /// The offset of the version's digits in each frame.
    version_at: usize,
    rate: u64,
    /// The clients are connected, so changes may begin.
    begin: Notify,
    opened: Instant,
    /// When each change was sent, in nanoseconds after `opened`.
    sent_at: Vec<AtomicU64>,
}

/// The body of a watch-list: all pods, and then the changes at the rate.
struct WatchList {
    upstream: Arc<FakeServer>,
    listed: usize,
    began: Option<Instant>,
    sent: usize,
}

/// What the clients have received.
#[derive(Default)]
struct Received {
    all: AtomicU64,
    singles: AtomicU64,
}

/// Cuts chunks into lines.
#[derive(Default)]
struct Lines(Vec<u8>);

/// A running `kubefan serve`, which is killed when this is dropped.
struct Kubefan {
    process: Child,
    /// The address for clients.
    address: String,
}

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let seconds = number("SECONDS").unwrap_or(10);
    let mut rows = ROWS.to_vec();
    if let Some(rate) = number("RATE") {
        rows = vec![(rate, number("SINGLES").unwrap_or(1_000) as usize)];
    }
    let frames = frames();
    for (rate, singles) in rows {
        let upstream = Arc::new(FakeServer::new(frames.clone(), rate, seconds));
        runtime.block_on(measure(&upstream, singles))?;
    }
    Ok(())
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// Returns a MODIFIED frame of each pod. All have the same length.
fn frames() -> Vec<Bytes> {
    let mut template = pods::pods(1, |_| POD_BYTES).remove(0);
    let mut frame = |index: usize| {
        let version = LISTED - PODS as u64 + index as u64;
        let metadata = &mut template["metadata"];
        metadata["name"] = json!(name(index));
        metadata["uid"] = json!(format!("8d3f7c1e-0000-4000-8000-{index:012}"));
        metadata["resourceVersion"] = json!(version.to_string());
        template["spec"]["nodeName"] = json!(format!("node-{:05}", index / 30));
        pods::frames(slice::from_ref(&template), WireFormat::Json, "MODIFIED").remove(0)
    };
    (0..PODS).map(&mut frame).collect()
}

fn name(index: usize) -> String {
    format!("pod-{index:06}")
}

async fn measure(upstream: &Arc<FakeServer>, singles: usize) -> Outcome<()> {
    let shutdown = Shutdown::new(shutdown::Config::default());
    let directory = tempfile::tempdir()?;
    let url = serve(upstream, &shutdown).await?;
    let kubefan = Kubefan::start(&url, directory.path()).await?;
    let received = Arc::new(Received::default());
    let mut clients = open_watches(&kubefan, upstream, singles, &received).await?;
    upstream.begin.notify_one();
    sleep(WARM_UP).await;
    let (cpu, began) = (kubefan.cpu()?, Instant::now());
    let first = received.all.load(Ordering::Relaxed);
    let total = upstream.sent_at.len() as u64;
    let expected = (total, upstream.changes_below(singles));
    let deadline = Instant::now() + PATIENCE + upstream.duration();
    while received.counts() != expected {
        if let Some(ended) = clients.try_join_next() {
            return Err(format!("a watch has ended: {ended:?}").into());
        }
        if Instant::now() > deadline {
            return Err(format!("{:?} events of {expected:?} came", received.counts()).into());
        }
        sleep(Duration::from_millis(5)).await;
    }
    let cpu = kubefan.cpu()? - cpu;
    let changes = (total - first) as f64;
    println!(
        "{} changes/s, {singles} watches of single names and one of all: {:.0}/s came, \
         {:.2} us of CPU a change",
        upstream.rate,
        changes / began.elapsed().as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / changes,
    );
    print_delays(&upstream.sent_at[usize::try_from(first)?..]);
    clients.shutdown().await;
    drop(kubefan);
    shutdown.drain().await;
    Ok(())
}

/// Opens the watches, each of which counts what it receives.
async fn open_watches(
    kubefan: &Kubefan,
    upstream: &Arc<FakeServer>,
    singles: usize,
    received: &Arc<Received>,
) -> Outcome<JoinSet<Result<(), String>>> {
    let mut clients = JoinSet::new();
    let connection = connect(&kubefan.address).await?;
    let all = kubefan.watch(&connection, "").await?;
    let (upstream, counts) = (Arc::clone(upstream), Arc::clone(received));
    clients.spawn(receive_all(all, upstream, counts));
    for first in (0..singles).step_by(STREAMS_PER_CONNECTION) {
        let connection = connect(&kubefan.address).await?;
        for index in first..singles.min(first + STREAMS_PER_CONNECTION) {
            let query = format!("&fieldSelector=metadata.name%3D{}", name(index));
            let single = kubefan.watch(&connection, &query).await?;
            clients.spawn(receive_single(single, Arc::clone(received)));
        }
    }
    Ok(clients)
}

/// Prints the delays that the watch of all objects has recorded in place of the times.
fn print_delays(delays: &[AtomicU64]) {
    let mut delays: Vec<_> = delays.iter().map(|at| at.load(Ordering::Relaxed)).collect();
    delays.sort_unstable();
    let quantile = |part: f64| delays[((delays.len() - 1) as f64 * part) as usize] as f64 / 1e6;
    println!(
        "    from the API server to the watch of all: p50 {:.2} ms, p99 {:.2} ms, longest {:.2} ms",
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
    );
}

// The fake API server.

/// Serves the fake server until `shutdown`, and returns its URL.
async fn serve(upstream: &Arc<FakeServer>, shutdown: &Shutdown) -> Outcome<String> {
    let registry = Registry::new();
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let (address, metrics) = (socket.local_addr()?, net::Metrics::new(&registry));
    let config = net::Config::default();
    let names = [Ipv4Addr::LOCALHOST.to_string()];
    let listener = Listener::new("clients", socket, config, metrics, shutdown.clone())
        .with_tls(Acceptor::with_throwaway_certificate(&names)?);
    let upstream = Arc::clone(upstream);
    let answer = move |request: Request<Body>| ready(upstream.answer(&request));
    let metrics = RequestMetrics::new(&registry);
    let service = with_filters(metrics, WebPageRules::default(), answer);
    shutdown.spawn(listener.serve(service));
    Ok(format!("https://{address}"))
}

impl FakeServer {
    /// Prepares the changes of the warm-up and of `seconds` more.
    fn new(frames: Vec<Bytes>, rate: u64, seconds: u64) -> Self {
        let key = b"\"resourceVersion\":\"";
        let version_at = frames.first().and_then(|frame| memmem::find(frame, key));
        let changes = rate * (WARM_UP.as_secs() + seconds);
        Self {
            version_at: version_at.expect("a version") + key.len(),
            frames,
            rate,
            begin: Notify::new(),
            opened: Instant::now(),
            sent_at: (0..changes).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(self.sent_at.len() as u64 / self.rate)
    }

    /// Returns the index of the pod that a change changes.
    fn changed(change: usize) -> usize {
        (change as u64 * STEP % PODS as u64) as usize
    }

    /// Returns the number of changes of the first `singles` pods.
    fn changes_below(&self, singles: usize) -> u64 {
        let changes = 0..self.sent_at.len();
        changes
            .filter(|change| Self::changed(*change) < singles)
            .count() as u64
    }

    fn elapsed(&self) -> u64 {
        self.opened.elapsed().as_nanos() as u64
    }

    fn answer(self: &Arc<Self>, request: &Request<Body>) -> Response<Body> {
        let accept = request.headers().get(ACCEPT);
        let is_json =
            accept.is_none_or(|accept| accept.as_bytes().starts_with(b"application/json"));
        let query = request.uri().query().unwrap_or_default();
        let (status, answer) = match request.uri().path() {
            "/version" => (
                StatusCode::OK,
                json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3"}),
            ),
            "/api" => (
                StatusCode::OK,
                json!({"kind": "APIVersions", "versions": ["v1"]}),
            ),
            "/apis" => (
                StatusCode::OK,
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}),
            ),
            "/api/v1" => (StatusCode::OK, resources()),
            "/api/v1/pods" if !is_json => (StatusCode::NOT_ACCEPTABLE, failure(406)),
            "/api/v1/pods" if query.contains("sendInitialEvents=true") => {
                return response(StatusCode::OK, WatchList::body(Arc::clone(self)));
            }
            "/api/v1/pods" if !query.contains("watch=true") => (StatusCode::OK, empty_list()),
            _ => (StatusCode::NOT_FOUND, failure(404)),
        };
        response(status, body::full(answer.to_string()))
    }
}

fn response(status: StatusCode, body: Body) -> Response<Body> {
    let response = Response::builder().status(status);
    let response = response.header(CONTENT_TYPE, "application/json").body(body);
    response.expect("a valid answer")
}

fn resources() -> Value {
    json!({
        "kind": "APIResourceList", "groupVersion": "v1",
        "resources": [{
            "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod",
            "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        }],
    })
}

fn empty_list() -> Value {
    let version = LISTED.to_string();
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": []})
}

fn failure(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code})
}

impl WatchList {
    fn body(upstream: Arc<FakeServer>) -> Body {
        let this = Self {
            upstream,
            listed: 0,
            began: None,
            sent: 0,
        };
        let chunks = stream::unfold(this, |mut this| async move {
            let chunk = this.next().await;
            Some((Ok::<_, BoxError>(Frame::data(chunk)), this))
        });
        body::boxed(StreamBody::new(chunks))
    }

    async fn next(&mut self) -> Bytes {
        if self.listed < PODS {
            return self.initial_events();
        }
        let began = match self.began {
            Some(began) => began,
            None => {
                self.upstream.begin.notified().await;
                *self.began.insert(Instant::now())
            }
        };
        let total = self.upstream.sent_at.len();
        loop {
            let due = began.elapsed().as_secs_f64() * self.upstream.rate as f64;
            let due = total.min(due as usize);
            if self.sent < due {
                return self.changes(due);
            }
            if self.sent == total {
                pending::<()>().await;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns the next initial events, with the bookmark after the last one.
    fn initial_events(&mut self) -> Bytes {
        let mut chunk = Vec::with_capacity(CHUNK + 2 * POD_BYTES);
        while self.listed < PODS && chunk.len() < CHUNK {
            let frame = &self.upstream.frames[self.listed];
            chunk.extend_from_slice(br#"{"type":"ADDED""#);
            chunk.extend_from_slice(&frame[br#"{"type":"MODIFIED""#.len()..]);
            self.listed += 1;
        }
        if self.listed == PODS {
            let metadata = json!({
                "resourceVersion": LISTED.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"},
            });
            let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata});
            let bookmark = json!({"type": "BOOKMARK", "object": pod});
            chunk.extend_from_slice(bookmark.to_string().as_bytes());
            chunk.push(b'\n');
        }
        chunk.into()
    }

    /// Returns the next changes, up to `due`.
    fn changes(&mut self, due: usize) -> Bytes {
        let upstream = &self.upstream;
        let mut chunk = BytesMut::with_capacity(CHUNK + 2 * POD_BYTES);
        let now = upstream.elapsed();
        while self.sent < due && chunk.len() < CHUNK {
            let start = chunk.len() + upstream.version_at;
            chunk.extend_from_slice(&upstream.frames[FakeServer::changed(self.sent)]);
            let digits = (LISTED + 1 + self.sent as u64).to_string();
            chunk[start..start + digits.len()].copy_from_slice(digits.as_bytes());
            upstream.sent_at[self.sent].store(now, Ordering::Relaxed);
            self.sent += 1;
        }
        chunk.freeze()
    }
}

// The clients.

async fn connect(address: &str) -> Outcome<SendRequest<Bytes>> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let connecting = h2::client::Builder::new()
        .initial_window_size(16 << 20)
        .initial_connection_window_size(64 << 20)
        .handshake(socket)
        .await;
    let (sender, connection) = connecting?;
    #[expect(clippy::disallowed_methods, reason = "it ends with the connection")]
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("a connection broke: {error}");
        }
    });
    Ok(sender)
}

/// Receives the changes of all pods in order, and replaces the time of each by its delay.
async fn receive_all(
    mut stream: RecvStream,
    upstream: Arc<FakeServer>,
    received: Arc<Received>,
) -> Result<(), String> {
    let mut lines = Lines::default();
    let mut next = LISTED + 1;
    while let Some(chunk) = next_chunk(&mut stream).await? {
        let now = upstream.elapsed();
        for line in lines.push(&chunk) {
            if line.starts_with(br#"{"type":"BOOKMARK""#) {
                continue;
            }
            let digits = line.get(upstream.version_at..upstream.version_at + 10);
            if digits != Some(next.to_string().as_bytes()) {
                let line = String::from_utf8_lossy(&line);
                return Err(format!("not version {next}: {line}"));
            }
            let at = &upstream.sent_at[(next - LISTED - 1) as usize];
            at.store(
                now.saturating_sub(at.load(Ordering::Relaxed)),
                Ordering::Relaxed,
            );
            next += 1;
        }
        received.all.store(next - LISTED - 1, Ordering::Relaxed);
    }
    Err("the watch of all pods has ended".to_owned())
}

/// Counts the changes of one pod.
async fn receive_single(mut stream: RecvStream, received: Arc<Received>) -> Result<(), String> {
    let mut lines = Lines::default();
    while let Some(chunk) = next_chunk(&mut stream).await? {
        let changes = lines.push(&chunk);
        let changes = changes
            .iter()
            .filter(|line| line.starts_with(br#"{"type":"MODIFIED""#));
        received
            .singles
            .fetch_add(changes.count() as u64, Ordering::Relaxed);
    }
    Err("the watch of one pod has ended".to_owned())
}

async fn next_chunk(stream: &mut RecvStream) -> Result<Option<Bytes>, String> {
    let Some(chunk) = stream.data().await else {
        return Ok(None);
    };
    let chunk = chunk.map_err(|error| error.to_string())?;
    let released = stream.flow_control().release_capacity(chunk.len());
    released.map_err(|error| error.to_string())?;
    Ok(Some(chunk))
}

impl Received {
    fn counts(&self) -> (u64, u64) {
        let counts = [&self.all, &self.singles].map(|count| count.load(Ordering::Relaxed));
        counts.into()
    }
}

impl Lines {
    /// Adds a chunk, and returns the lines that are complete.
    fn push(&mut self, chunk: &[u8]) -> VecDeque<Vec<u8>> {
        let mut lines = VecDeque::new();
        let mut rest = chunk;
        while let Some(end) = memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end + 1);
            self.0.extend_from_slice(line);
            lines.push_back(std::mem::take(&mut self.0));
            rest = after;
        }
        self.0.extend_from_slice(rest);
        lines
    }
}

// The measured program.

impl Kubefan {
    /// Starts kubefan in front of the server at `url`, and waits until it has the pods.
    async fn start(url: &str, directory: &Path) -> Outcome<Self> {
        let kubeconfig = directory.join("kubeconfig");
        let cluster = json!({"server": url, "insecure-skip-tls-verify": true});
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": cluster}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "users": [{"name": "a", "user": {}}],
        });
        fs::write(&kubeconfig, config.to_string())?;
        let log = directory.join("log");
        let output = File::create(&log)?;
        let program = env::var_os("KUBEFAN_BINARY");
        let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_kubefan").into());
        let process = Command::new(program)
            .args(["serve", "--resource", "pods", "--kubeconfig"])
            .arg(&kubeconfig)
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .env("HOME", directory)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        let mut kubefan = Self {
            process,
            address: String::new(),
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = fs::read_to_string(&log)?;
            let address = text.split_once("clients=\"http://");
            let address = address.and_then(|(_, rest)| rest.split_once('"'));
            if let Some((address, _)) = address.filter(|_| text.contains("listed replaced=First")) {
                address.clone_into(&mut kubefan.address);
                return Ok(kubefan);
            }
            if Instant::now() > deadline || kubefan.process.try_wait()?.is_some() {
                return Err(format!("kubefan does not serve: {text}").into());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Opens a watch that begins with the list of the API server.
    async fn watch(&self, connection: &SendRequest<Bytes>, query: &str) -> Outcome<RecvStream> {
        let path = format!("/api/v1/pods?watch=true&resourceVersion={LISTED}{query}");
        let request = Request::get(format!("http://{}{path}", self.address));
        let request = request.header(ACCEPT, "application/json").body(())?;
        let mut connection = connection.clone().ready().await?;
        let (response, _) = connection.send_request(request, true)?;
        let response = response.await?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            other => Err(format!("a watch was answered with {other}").into()),
        }
    }

    /// Returns the CPU time of all threads.
    fn cpu(&self) -> Outcome<Duration> {
        let mut nanoseconds = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            let times = fs::read_to_string(thread?.path().join("schedstat"))?;
            let running = times.split(' ').next().unwrap_or_default();
            nanoseconds += running.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanoseconds))
    }
}

impl Drop for Kubefan {
    fn drop(&mut self) {
        if let Err(error) = self.process.kill().and_then(|()| self.process.wait()) {
            eprintln!("kubefan was not stopped: {error}");
        }
    }
}
