//! What many node agents cost the API server, directly and through one kubefan in one run. It
//! prints a table and asserts nothing about time, so it is run by hand:
//!
//! ```sh
//! ulimit -n 20000
//! KUBEFAN_TEST_BINARY=target/dist/kubefan \
//!     cargo test --profile dist --test it measure_node_agents -- --ignored --nocapture
//! ```

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::Format;
use crate::support::pods;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, ApiServer, private_with};
use crate::support::programs::kubefan::Kubefan;
use crate::support::settings::setting;

const FLAGS: [&str; 2] = ["--allow-privileged=true", "--request-timeout=15m"];
const WATCH_LIST: &str =
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
const PODS_OF_A_NODE: usize = 5;
const SERVICES: usize = 200;
const WATCHES_OF_AN_AGENT: u64 = 4;
/// How many agents start per second.
const AGENTS_PER_SECOND: u32 = 100;
/// How long a watch that was refused waits until it is opened again.
const REOPEN: Duration = Duration::from_secs(1);
const START: Duration = Duration::from_secs(600);
/// Writes per second: to a pod, for one agent; to an EndpointSlice and
/// to a ConfigMap, for all agents.
const POD_WRITES: u64 = 40;
const SLICE_WRITES: u64 = 2;
const CONFIG_WRITES: u64 = 1;

/// What all agents have received so far.
#[derive(Default)]
struct Received {
    synced: AtomicU64,
    frames: AtomicU64,
    /// Watches that ended, and were opened again as client-go does.
    ended: AtomicU64,
}

/// What a process has used.
#[derive(Clone, Copy)]
struct Usage {
    cpu: f64,
    resident: f64,
}

impl Usage {
    fn of(pid: u32) -> Self {
        let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a process");
        let (stat, status) = (read("stat"), read("status"));
        let (_, rest) = stat.rsplit_once(')').expect("a name in brackets");
        let ticks = rest.split_whitespace().skip(11).take(2);
        let ticks: f64 = ticks
            .map(|ticks| ticks.parse::<f64>().expect("a number"))
            .sum();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|rest| rest.split_whitespace().next());
        let kib = kib.and_then(|kib| kib.parse::<f64>().ok());
        Self {
            cpu: ticks / 100.0,
            resident: kib.expect("a number") / 1024.0,
        }
    }
}

/// Opens a watch-list, again whenever it ends.
async fn watch(client: Client, path: String, received: Arc<Received>) {
    let (mut is_synced, headers) = (false, Format::Protobuf.accept_watch());
    loop {
        let opened = client.open(Method::GET, &path, &headers, Bytes::new());
        match opened.await {
            Ok(response) if response.status() == 200 => {
                read(response.into_body(), &received, &mut is_synced).await;
            }
            _ => sleep(REOPEN).await,
        }
        received.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads a watch-list in protobuf to its end. Its first bookmark ends the initial events.
async fn read(mut body: Incoming, received: &Received, is_synced: &mut bool) {
    let mut pending = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        pending.extend_from_slice(&data);
        while let Some(length) = pending.first_chunk::<4>() {
            let end = 4 + u32::from_be_bytes(*length) as usize;
            if pending.len() < end {
                break;
            }
            received.frames.fetch_add(1, Ordering::Relaxed);
            let is_bookmark = pending[..end].windows(8).any(|bytes| bytes == b"BOOKMARK");
            if is_bookmark && !*is_synced {
                *is_synced = true;
                received.synced.fetch_add(1, Ordering::Relaxed);
            }
            pending.drain(..end);
        }
    }
}

/// Starts the agent of a node, which has one connection and four watches.
fn start(client: &Client, node: usize, received: &Arc<Received>, tasks: &mut JoinSet<()>) {
    for path in [
        format!("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-{node}&{WATCH_LIST}"),
        format!("/api/v1/services?{WATCH_LIST}"),
        format!("/apis/discovery.k8s.io/v1/endpointslices?{WATCH_LIST}"),
        format!("/api/v1/configmaps?{WATCH_LIST}"),
    ] {
        tasks.spawn(watch(client.clone(), path, Arc::clone(received)));
    }
}

/// Creates the objects that the agents watch; returns the path of their namespace.
async fn objects(server: &ApiServer, agents: usize) -> String {
    let client = server.client();
    let namespace = server.namespace("agents").await;
    let path = format!("/api/v1/namespaces/{namespace}");
    pods::create_on_nodes(
        &client,
        &format!("{path}/pods"),
        agents * PODS_OF_A_NODE,
        agents,
    )
    .await;
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    for number in 0..SERVICES {
        let name = format!("service-{number}");
        let service = json!({ "metadata": { "name": name },
            "spec": { "selector": { "app": name }, "ports": [{ "port": 80 }] } });
        client
            .create(&format!("{path}/services"), &service)
            .await
            .ok();
        let endpoints: Vec<_> = (0..20)
            .map(|pod| json!({ "addresses": [format!("10.1.{number}.{pod}")] }))
            .collect();
        let slice = json!({ "metadata": { "name": name,
            "labels": { "kubernetes.io/service-name": name } },
            "addressType": "IPv4", "ports": [{ "name": "http", "port": 80 }],
            "endpoints": endpoints });
        client.create(&slices, &slice).await.ok();
        let config =
            json!({ "metadata": { "name": name }, "data": { "config": "x".repeat(1000) } });
        client
            .create(&format!("{path}/configmaps"), &config)
            .await
            .ok();
    }
    namespace
}

/// Writes for `time`; returns the number of frames that all agents should have received for it.
async fn write(server: &ApiServer, namespace: &str, agents: usize, time: Duration) -> u64 {
    let client = server.client();
    let ticks = time.as_secs() * POD_WRITES;
    let mut clock = interval(Duration::from_secs(1) / POD_WRITES as u32);
    let mut expected = 0;
    for tick in 0..ticks {
        clock.tick().await;
        let change = json!({ "metadata": { "annotations": { "tick": tick.to_string() } } });
        let number = tick as usize % (agents * PODS_OF_A_NODE);
        let core = format!("/api/v1/namespaces/{namespace}");
        let discovery = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}");
        client
            .merge(&format!("{core}/pods/pod-{number}"), &change)
            .await
            .ok();
        expected += 1;
        let name = format!("service-{}", tick % SERVICES as u64);
        if tick % (POD_WRITES / SLICE_WRITES) == 0 {
            let path = format!("{discovery}/endpointslices/{name}");
            client.merge(&path, &change).await.ok();
            expected += agents as u64;
        }
        if tick % (POD_WRITES / CONFIG_WRITES) == 0 {
            let path = format!("{core}/configmaps/{name}");
            client.merge(&path, &change).await.ok();
            expected += agents as u64;
        }
    }
    expected
}

/// Runs the agents against a URL, and prints what the API server and kubefan used.
async fn run(
    way: &str,
    server: &ApiServer,
    kubefan: Option<&Kubefan>,
    namespace: &str,
    agents: usize,
) {
    let time = Duration::from_secs(setting("KUBEFAN_SECONDS", 30));
    let (url, authority) = match kubefan {
        Some(kubefan) => (
            kubefan.url().to_owned(),
            kubefan.authority().expect("a CA of its own"),
        ),
        None => (server.url(), server.authority().to_owned()),
    };
    let pids = [Some(server.pid()), kubefan.map(Kubefan::pid)];
    let usage = || pids.map(|pid| pid.map(Usage::of));
    let (received, mut tasks) = (Arc::new(Received::default()), JoinSet::new());
    let (before, began) = (usage(), Instant::now());
    let mut clock = interval(Duration::from_secs(1) / AGENTS_PER_SECOND);
    for node in 0..agents {
        clock.tick().await;
        let connector = Connector::tls(&authority, None, &["h2"]);
        let client = Client::http2(&url, connector).as_token(ADMIN);
        start(&client, node, &received, &mut tasks);
    }
    eventually(
        "all agents have their initial objects",
        START,
        async || match received.synced.load(Ordering::Relaxed) {
            synced if synced == agents as u64 * WATCHES_OF_AN_AGENT => Ok(()),
            synced => Err(synced),
        },
    )
    .await;
    let (synced, took) = (usage(), began.elapsed().as_secs_f64());
    let initial = received.frames.load(Ordering::Relaxed);
    let expected = write(server, namespace, agents, time).await;
    eventually("all agents have all events", START, async || {
        match received.frames.load(Ordering::Relaxed) - initial {
            frames if frames >= expected => Ok(()),
            frames => Err(frames),
        }
    })
    .await;
    let after = usage();
    let ended = received.ended.load(Ordering::Relaxed);
    let names = ["kube-apiserver", "kubefan"];
    for (index, name) in names.into_iter().enumerate() {
        let (Some(before), Some(synced), Some(after)) =
            (before[index], synced[index], after[index])
        else {
            continue;
        };
        println!(
            "| {way} | {name} | {took:.1} s | {:.1} s | {:.1} s | {:.0} MiB | {:.0} MiB | {ended} |",
            synced.cpu - before.cpu,
            after.cpu - synced.cpu,
            before.resident,
            after.resident,
        );
    }
}

/// `KUBEFAN_AGENTS` sets the number of agents (2,000), and `KUBEFAN_SECONDS` the time of the writes
/// (30).
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_node_agents() {
    let agents = setting("KUBEFAN_AGENTS", 2_000);
    let server = private_with(&FLAGS).await;
    let namespace = objects(&server, agents).await;
    println!(
        "{agents} agents with {} watches each, {} pods, {SERVICES} services, endpoint slices and \
         config maps; {POD_WRITES} writes/s to pods, {SLICE_WRITES} to endpoint slices, \
         {CONFIG_WRITES} to config maps",
        WATCHES_OF_AN_AGENT,
        agents * PODS_OF_A_NODE,
    );
    println!(
        "| agents connect | process | all have their objects after | CPU until then | \
         CPU during the writes | memory before | memory after | watches opened again |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    server.restart().await;
    run("directly", &server, None, &namespace, agents).await;
    server.restart().await;
    let kubefan = Kubefan::start(&server, &["--tls-self-signed", "--auth", "caller"]).await;
    run(
        "through kubefan",
        &server,
        Some(&kubefan),
        &namespace,
        agents,
    )
    .await;
}
