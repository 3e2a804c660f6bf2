//! Measures a LIST of 5,000 pods as gzip from the request to the last byte, over HTTP/1.1
//! on loopback without TLS, for 1 and for 50 concurrent clients, with and without a
//! cached compressed list.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use divan::Bencher;
use divan::counter::ItemsCount;
use futures::future::join_all;
use kubefan_tools::app::DemoApp;
use kubefan_tools::config::DemoConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

const PODS: usize = 5_000;

/// A running kubefan in front of a simulated cluster with objects that do not change.
struct KubefanServer {
    runtime: Runtime,
    address: SocketAddr,
    _app: DemoApp,
}

static SERVER: LazyLock<KubefanServer> = LazyLock::new(|| {
    let runtime = Runtime::new().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let app = runtime.block_on(DemoApp::start(DemoConfig {
        agents: 0,
        nodes: 200,
        pods: PODS,
        churn: 0,
        seed: 1,
        listen: any,
        kubeconfig_out: directory.path().join("kubeconfig"),
    }));
    let app = app.expect("a demo");
    let url = app.kubefan.url();
    let address = url.strip_prefix("http://").expect("plain HTTP");
    KubefanServer {
        address: address.parse().expect("an address"),
        runtime,
        _app: app,
    }
});

/// A number in the selector of each list, so that no compressed list is cached for it.
static OTHER: AtomicU64 = AtomicU64::new(1_000_000);

fn main() {
    // The first list starts the informer, so it is not measured.
    let warm = SERVER.runtime.block_on(list(0));
    println!("{warm} bytes as gzip");
    divan::main();
}

/// Sends a LIST, and returns the length of the answer in bytes.
async fn list(other: u64) -> usize {
    let path = format!("/api/v1/pods?resourceVersion=0&labelSelector=none%21%3D{other}");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\
         Accept-Encoding: gzip\r\nConnection: close\r\n\r\n"
    );
    let mut socket = TcpStream::connect(SERVER.address).await.expect("connected");
    let sent = socket.write_all(request.as_bytes()).await;
    sent.expect("sent");
    let mut answer = Vec::with_capacity(8 << 20);
    let read = socket.read_to_end(&mut answer).await;
    assert!(answer.starts_with(b"HTTP/1.1 200"), "the answer is not 200");
    read.expect("an answer")
}

fn lists(other: u64, clients: usize) -> usize {
    let all = join_all((0..clients).map(|_| list(other)));
    SERVER.runtime.block_on(all).into_iter().sum()
}

/// Measures lists with new selectors: the gzip cache does not have them, so kubefan compresses
/// them.
#[divan::bench(args = [1, 50], sample_count = 20, sample_size = 1)]
fn rendered(bencher: Bencher<'_, '_>, clients: usize) {
    bencher
        .counter(ItemsCount::new(clients))
        .with_inputs(|| OTHER.fetch_add(1, Ordering::Relaxed))
        .bench_local_values(|other| lists(other, clients));
}

/// Measures lists with one selector: kubefan sends the cached compressed list.
#[divan::bench(args = [1, 50], sample_count = 20, sample_size = 1)]
fn shared(bencher: Bencher<'_, '_>, clients: usize) {
    lists(1, 1);
    bencher
        .counter(ItemsCount::new(clients))
        .bench_local(|| lists(1, clients));
}
