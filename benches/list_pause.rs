//! Measures how long lists delay other streams of their thread: `cargo bench --bench list_pause`.
//!
//! One thread runs kubefan, a simulated cluster of 5,000 pods, and a task that is always ready. The
//! CPU time that the thread uses between two polls of this task is how long a watch event would
//! wait. CPU time does not depend on other programs on the machine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use cpu_time::ThreadTime;
use kubefan_tools::app::DemoApp;
use kubefan_tools::config::DemoConfig;

const PODS: usize = 5_000;
const CLIENTS: usize = 4;
const LISTS: usize = 10;

/// A number in the selector of each list, so that no earlier answer can be reused.
static NEXT_SELECTOR: AtomicU64 = AtomicU64::new(0);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(measure());
}

async fn measure() {
    let directory = tempfile::tempdir().expect("a directory");
    let app = DemoApp::start(DemoConfig {
        agents: 0,
        nodes: 200,
        pods: PODS,
        churn: 0,
        seed: 1,
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        kubeconfig_out: directory.path().join("kubeconfig"),
    });
    let app = app.await.expect("a demo");
    let url = app.kubefan.url();
    let address = url.strip_prefix("http://").expect("plain HTTP");
    let address: SocketAddr = address.parse().expect("an address");
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let whole = "application/json";
    println!("CPU time between two polls of another task, in microseconds");
    for (what, accept, encoding, is_same) in [
        ("warm-up", whole, "identity", true),
        ("identity", whole, "identity", true),
        ("selective", whole, "identity", false),
        ("metadata", metadata, "identity", true),
        ("gzip, all alike", whole, "gzip", true),
        ("gzip, all different", whole, "gzip", false),
        ("metadata, gzip, all different", metadata, "gzip", false),
    ] {
        let is_over = Arc::new(AtomicBool::new(false));
        let listing = thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || {
                lists(address, accept, encoding, is_same);
                is_over.store(true, Ordering::Release);
            }
        });
        let mut pauses = Vec::new();
        let mut before = ThreadTime::now();
        while !is_over.load(Ordering::Acquire) {
            tokio::task::yield_now().await;
            pauses.push(before.elapsed());
            before = ThreadTime::now();
        }
        listing.join().expect("lists");
        pauses.sort_unstable();
        let at = |share: f64| pauses[((pauses.len() - 1) as f64 * share) as usize].as_micros();
        println!(
            "{what:30} p50 {:5}  p99 {:5}  p99.9 {:5}  max {:5}  of {} polls",
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
            pauses.len()
        );
    }
}

/// Runs concurrent clients. Each client sends several LISTs.
fn lists(address: SocketAddr, accept: &'static str, encoding: &'static str, is_same: bool) {
    let clients = (0..CLIENTS).map(|_| {
        thread::spawn(move || {
            for _ in 0..LISTS {
                let number = match is_same {
                    true => 0,
                    false => NEXT_SELECTOR.fetch_add(1, Ordering::Relaxed),
                };
                list(address, accept, encoding, number);
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.join().expect("a client");
    }
}

fn list(address: SocketAddr, accept: &str, encoding: &str, number: u64) {
    let mut socket = TcpStream::connect(address).expect("connected");
    let request = format!(
        "GET /api/v1/pods?resourceVersion=0&labelSelector=none%21%3D{number} HTTP/1.1\r\n\
         Host: localhost\r\nAccept: {accept}\r\nAccept-Encoding: {encoding}\r\n\
         Connection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).expect("sent");
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0;
    loop {
        match socket.read(&mut buffer).expect("an answer") {
            0 => break,
            read => total += read,
        }
    }
    assert!(total > 1 << 20, "a long list");
}
