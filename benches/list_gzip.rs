//! Measures a LIST of 5,000 pods from the request to the last byte, over HTTP/1.1 on loopback
//! without TLS, with and without a list that an earlier client has left in the cache: complete pods
//! as gzip, for 1 and for 50 concurrent clients, and metadata and Tables without gzip, for one.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

/// A number in the selector of each list, so that no list is cached for it.
static OTHER: AtomicU64 = AtomicU64::new(1_000_000);

fn main() {
    // The first lists start the informer, and the comparison of Tables, so they are not measured.
    for form in ["gzip", "metadata", "table"] {
        let warm = SERVER.runtime.block_on(warm(form));
        println!("{warm} bytes: {form}");
    }
    divan::main();
}

/// Sends LISTs until the cache answers, and returns the length of the answer in bytes.
async fn warm(form: &str) -> usize {
    loop {
        let (bytes, is_hit) = sent(form, 0).await;
        if is_hit {
            return bytes;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Sends a LIST that the cache answers, and returns the length of the answer in bytes.
async fn list(form: &str, other: u64) -> usize {
    let (bytes, is_hit) = sent(form, other).await;
    assert!(is_hit, "the cache has not answered");
    bytes
}

/// Sends a LIST. Returns the length of the answer in bytes, and true if the cache has answered.
async fn sent(form: &str, other: u64) -> (usize, bool) {
    let path = format!("/api/v1/pods?resourceVersion=0&labelSelector=none%21%3D{other}");
    let accept = match form {
        "metadata" => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        "table" => "application/json;as=Table;g=meta.k8s.io;v=v1",
        _ => "application/json\r\nAccept-Encoding: gzip",
    };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\
         Connection: close\r\n\r\n"
    );
    let mut socket = TcpStream::connect(SERVER.address).await.expect("connected");
    let sent = socket.write_all(request.as_bytes()).await;
    sent.expect("sent");
    let mut answer = Vec::with_capacity(16 << 20);
    let read = socket.read_to_end(&mut answer).await;
    assert!(answer.starts_with(b"HTTP/1.1 200"), "the answer is not 200");
    let head = &answer[..answer.len().min(4 << 10)];
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let is_hit = head.contains("cache-status: kubefan; hit");
    (read.expect("an answer"), is_hit)
}

fn lists(form: &str, other: u64, clients: usize) -> usize {
    let all = join_all((0..clients).map(|_| list(form, other)));
    SERVER.runtime.block_on(all).into_iter().sum()
}

/// Measures lists with new selectors: the cache of lists does not have them, so kubefan compresses
/// them.
#[divan::bench(args = [1, 50], sample_count = 20, sample_size = 1)]
fn rendered(bencher: Bencher<'_, '_>, clients: usize) {
    bencher
        .counter(ItemsCount::new(clients))
        .with_inputs(|| OTHER.fetch_add(1, Ordering::Relaxed))
        .bench_local_values(|other| lists("gzip", other, clients));
}

/// Measures lists with one selector: kubefan sends the cached compressed list.
#[divan::bench(args = [1, 50], sample_count = 20, sample_size = 1)]
fn shared(bencher: Bencher<'_, '_>, clients: usize) {
    lists("gzip", 1, 1);
    bencher
        .counter(ItemsCount::new(clients))
        .bench_local(|| lists("gzip", 1, clients));
}

/// Measures lists without gzip with new selectors: kubefan converts the objects.
#[divan::bench(args = ["metadata", "table"], sample_count = 20, sample_size = 1)]
fn text_rendered(bencher: Bencher<'_, '_>, form: &str) {
    bencher
        .with_inputs(|| OTHER.fetch_add(1, Ordering::Relaxed))
        .bench_local_values(|other| lists(form, other, 1));
}

/// Measures lists without gzip with one selector: kubefan sends the text that it has made. That of
/// a Table is made again each second.
#[divan::bench(args = ["metadata", "table"], sample_count = 20, sample_size = 1)]
fn text_shared(bencher: Bencher<'_, '_>, form: &str) {
    lists(form, 1, 1);
    bencher.bench_local(|| lists(form, 1, 1));
}
