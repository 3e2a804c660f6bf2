//! The limits of requests and connections, with `kubefan serve` as a program before the simulator.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::poll::eventually;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::sim::Sim;
use crate::support::proxies::scripted_proxy::{RequestAction, ScriptedProxy, SeenRequest};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Opens an HTTP/2 connection. Each of its streams takes at most `window` bytes that are not read.
async fn http2(kubefan: &Kubefan, window: u32) -> SendRequest<Empty<Bytes>> {
    let address = kubefan.url().trim_start_matches("http://");
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(TokioIo::new(stream))
        .await
        .expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

async fn get(
    kubefan: &Kubefan,
    connection: &mut SendRequest<Empty<Bytes>>,
    path: &str,
) -> Response<Incoming> {
    get_encoded(kubefan, connection, path, "identity").await
}

async fn get_encoded(
    kubefan: &Kubefan,
    connection: &mut SendRequest<Empty<Bytes>>,
    path: &str,
    accept_encoding: &str,
) -> Response<Incoming> {
    let answer = try_get_encoded(kubefan, connection, path, accept_encoding).await;
    answer.expect("an answer")
}

/// Fails if kubefan closes the connection.
async fn try_get_encoded(
    kubefan: &Kubefan,
    connection: &mut SendRequest<Empty<Bytes>>,
    path: &str,
    accept_encoding: &str,
) -> hyper::Result<Response<Incoming>> {
    let uri = format!("{}{path}", kubefan.url());
    let request = Request::get(uri).header(ACCEPT_ENCODING, accept_encoding);
    let request = request.body(Empty::new()).expect("a request");
    connection.ready().await?;
    connection.send_request(request).await
}

/// Returns the value of a metric without labels.
pub(crate) async fn metric(kubefan: &Kubefan, name: &str) -> Option<f64> {
    let metrics = kubefan.metrics().await;
    let mut lines = metrics.lines();
    lines.find_map(|line| line.strip_prefix(&format!("{name} "))?.parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_over_the_limit_get_429_until_another_answer_was_read() {
    let sim = Sim::start(&[]).await;
    // Several chunks, so that the body waits for a client that does not read.
    for name in ["a", "b", "c"] {
        let object = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(100_000)}});
        sim.client().create(MAPS, &object).await.ok();
    }
    let flags = ["-r", "configmaps", "--max-requests-inflight", "2"];
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &flags).await;
    let cached = format!("{MAPS}?resourceVersion=0");
    let forwarded = format!("{MAPS}/a");

    let mut busy = http2(&kubefan, 100).await;
    let unread = get(&kubefan, &mut busy, &cached).await;
    assert_eq!(unread.status(), 200);
    for path in [&cached, &forwarded] {
        let refused = get(&kubefan, &mut busy, path).await;
        assert_eq!(refused.status(), 429, "{path}");
        let header = |name| refused.headers()[name].to_str().expect("text").to_owned();
        assert_eq!(header("content-type"), "text/plain; charset=utf-8");
        assert_eq!(header("x-content-type-options"), "nosniff");
        let seconds: u32 = header("retry-after").parse().expect("a number");
        assert!((1..=5).contains(&seconds), "{seconds}");
    }
    // Watches need no seat, and another connection always gets one.
    let watch = get(&kubefan, &mut busy, &format!("{cached}&watch=1")).await;
    assert_eq!(watch.status(), 200);
    let mut idle = http2(&kubefan, 100).await;
    let second = get(&kubefan, &mut idle, &cached).await;
    assert_eq!(second.status(), 200);
    assert_eq!(
        metric(&kubefan, "kubefan_inflight_requests").await,
        Some(2.0)
    );
    assert_eq!(
        metric(&kubefan, "kubefan_inflight_rejected_total").await,
        Some(2.0)
    );

    drop((unread, second));
    loop {
        // The resets that free the seats may arrive after the next request of the other connection.
        let again = get(&kubefan, &mut busy, &cached).await;
        match again.status().as_u16() {
            200 => break,
            status => assert_eq!(status, 429),
        }
    }
    drop((watch, busy, idle));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_does_not_answer_in_time_is_reported_as_a_timeout() {
    let sim = Sim::start(&[]).await;
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &["--request-timeout", "1s"]).await;
    // The first list of a cache is a watch, so it takes longer than the request may.
    sim.admin(Method::POST, "/faults/slow?milliseconds=5000")
        .await
        .ok();
    let answer = kubefan
        .client()
        .get(&format!("{MAPS}?resourceVersion=0"))
        .await;
    assert_eq!(answer.status, 504, "{answer}");
    assert_eq!(answer.json()["reason"], "Timeout");
    sim.admin(Method::POST, "/faults/slow?milliseconds=0")
        .await
        .ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_that_is_too_long_gets_414() {
    let sim = Sim::start(&[]).await;
    let flags = ["-r", "configmaps", "--max-url-bytes", "2Ki"];
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &flags).await;
    let url = |bytes: usize| {
        let start = format!("{MAPS}?resourceVersion=0&labelSelector=");
        format!("{start}{}", "x".repeat(bytes - start.len()))
    };
    let mut connection = http2(&kubefan, 1 << 20).await;
    for (bytes, status) in [(2_048, 400), (2_049, 414)] {
        let answer = kubefan.client().get(&url(bytes)).await;
        assert_eq!(answer.status, status, "{answer}");
        let answer = get(&kubefan, &mut connection, &url(bytes)).await;
        assert_eq!(answer.status(), status);
    }
    let answer = kubefan.client().get(&url(2_049)).await.json();
    let message = "the URL has more than 2048 bytes; use shorter selectors";
    assert_eq!(answer["message"], message);
}

#[tokio::test]
async fn an_http2_connection_has_the_configured_number_of_streams() {
    let sim = Sim::start(&[]).await;
    let flags = ["--http2-max-streams-per-connection", "3"];
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &flags).await;
    let address = kubefan.url().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(preface).await.expect("a sent preface");
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.expect("a frame");
    assert_eq!(head[3], 4, "SETTINGS come first: {head:?}");
    let mut settings = vec![0; usize::from(head[2])];
    stream.read_exact(&mut settings).await.expect("settings");
    // Each setting has an identifier (two bytes) and a value (four bytes); RFC 9113, 6.5.1.
    let max_concurrent_streams = [0, 3, 0, 0, 0, 3];
    assert!(
        settings
            .chunks(6)
            .any(|setting| setting == max_concurrent_streams),
        "{settings:?}"
    );
}

#[tokio::test]
async fn a_watch_with_one_selector_too_many_that_no_index_answers_gets_429() {
    let sim = Sim::start(&[]).await;
    let flags = ["-r", "configmaps", "--max-unindexed-selectors", "2"];
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &flags).await;
    let mut connection = http2(&kubefan, 65_535).await;
    let path = |place: &str, selector: &str| {
        format!("/api/v1/{place}?resourceVersion=0&watch=1&labelSelector={selector}")
    };
    let mut open = Vec::new();
    // The last four watches share a selector, are found by the namespace or
    // a label, or have no selector.
    for (place, selector) in [
        ("configmaps", "!a"),
        ("configmaps", "!b"),
        ("configmaps", "!b"),
        ("namespaces/default/configmaps", "!c"),
        ("configmaps", "app=web"),
        ("configmaps", ""),
    ] {
        let path = path(place, selector);
        let watch = get(&kubefan, &mut connection, &path).await;
        assert_eq!(watch.status(), 200, "{path}");
        open.push(watch);
    }
    let refused = get(&kubefan, &mut connection, &path("configmaps", "!c")).await;
    assert_eq!(refused.status(), 429);
    let seconds = refused.headers()["retry-after"].to_str();
    let seconds: u32 = seconds.expect("text").parse().expect("a number");
    assert!((1..=5).contains(&seconds), "{seconds}");
    let metrics = kubefan.metrics().await;
    let counted = |line: &str| {
        line.starts_with("kubefan_watches_refused_total{") && line.trim_end().ends_with(" 1")
    };
    assert!(metrics.lines().any(counted), "{metrics}");
    drop((open, connection));
}

/// Every change of a namespace is tested against all watches of the namespace that have no other
/// condition for the index.
#[tokio::test(flavor = "multi_thread")]
async fn watches_of_one_namespace_that_no_other_condition_finds_are_limited() {
    const PER_ENTRY: usize = 256;
    let sim = Sim::start(&[]).await;
    let flags = ["-r", "configmaps", "--max-unindexed-selectors", "2"];
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &flags).await;
    let mut connection = http2(&kubefan, 65_535).await;
    let path = |namespace: &str, selector: &str| {
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        format!("{maps}?resourceVersion=0&watch=1&labelSelector={selector}")
    };
    let mut open = Vec::new();
    let mut statuses = Vec::new();
    for number in 0..PER_ENTRY + 4 {
        let path = path("default", &format!("!x{number}"));
        let answer = get(&kubefan, &mut connection, &path).await;
        statuses.push(answer.status().as_u16());
        open.push(answer);
    }
    let (accepted, refused) = statuses.split_at(PER_ENTRY + 2);
    assert!(accepted.iter().all(|status| *status == 200), "{accepted:?}");
    assert_eq!(refused, [429, 429]);
    // The limit does not apply to a watch with a selector that is open already, a watch with an
    // index, a watch of the namespace without a selector, and a watch in another namespace.
    let others = [
        ("default", "!x7"),
        ("default", "app=web"),
        ("default", ""),
        ("other", "!x"),
    ];
    for (namespace, selector) in others {
        let path = path(namespace, selector);
        let answer = get(&kubefan, &mut connection, &path).await;
        assert_eq!(answer.status(), 200, "{path}");
        open.push(answer);
    }
    drop((open, connection));
}

/// The name of a form of selectors, and the selectors by their number.
type Form<'a> = (&'a str, &'a dyn Fn(usize) -> String);

/// Selectors of 60 KB: a set of values, one condition again and again, and different conditions.
#[tokio::test(flavor = "multi_thread")]
async fn long_selectors_are_charged_and_freed() {
    const BYTES: usize = 60_000;
    const WATCHES: usize = 250;
    /// The free memory of the allocator, and the buffers of the connection.
    const SLACK: u64 = 32 << 20;
    let sim = Sim::start(&[]).await;
    create_maps(&sim, 1).await;
    let flags = ["-r", "configmaps", "--memory-limit", "1Gi"];
    let flags = [&flags[..], &["--connection-memory-limit", "1Gi"]].concat();
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &flags).await;
    let numbers = |prefix: &str| {
        let numbers: Vec<_> = (0..BYTES / (prefix.len() + 5))
            .map(|number| format!("{prefix}{number:04x}"))
            .collect();
        numbers.join(",")
    };
    let set = |number: usize| format!("a{number}%20in%20({})", numbers(""));
    let again = |number: usize| vec![format!("a{number:04}"); BYTES / 6].join(",");
    let different = |number: usize| format!("a{number},{}", numbers("!"));
    let forms: [Form<'_>; 3] = [("set", &set), ("again", &again), ("different", &different)];
    let before = resident(&kubefan);
    for (form, selector) in forms {
        let mut connection = http2(&kubefan, 65_535).await;
        let mut open = Vec::new();
        for number in 0..WATCHES {
            let path = format!(
                "{MAPS}?resourceVersion=0&watch=1&labelSelector={}",
                selector(number)
            );
            let answer = get(&kubefan, &mut connection, &path).await;
            match answer.status().as_u16() {
                200 => open.push(answer),
                status => assert_eq!(status, 429),
            }
        }
        let grown = resident(&kubefan).saturating_sub(before);
        let charged = held(&kubefan).await as u64;
        println!(
            "{form}: {} of {WATCHES} watches, {} KiB, charged {}",
            open.len(),
            grown >> 10,
            charged >> 10
        );
        assert!(!open.is_empty(), "{form}");
        assert!(
            grown <= charged * 3 / 2 + SLACK,
            "{form}: {charged} of {grown} bytes"
        );
        drop((open, connection));
        ledger_is_empty(&kubefan).await;
        // Groups without watches are remembered for a while, but not such long selectors.
        eventually(
            "the memory",
            Duration::from_secs(60),
            async || match resident(&kubefan).saturating_sub(before) {
                held if held <= SLACK => Ok(()),
                held => Err(format!("{form}: {held} of {grown} bytes")),
            },
        )
        .await;
    }
}

/// Bytes of memory that the process uses.
pub(crate) fn resident(kubefan: &Kubefan) -> u64 {
    let path = format!("/proc/{}/status", kubefan.pid());
    let status = std::fs::read_to_string(path).expect("a running process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kibibytes: u64 = kibibytes
        .and_then(|text| text.parse().ok())
        .expect("a size");
    kibibytes << 10
}

/// Bytes that the ledger holds for readers, of all kinds.
async fn held(kubefan: &Kubefan) -> f64 {
    let metrics = kubefan.metrics().await;
    let lines = metrics.lines();
    let of_kinds = lines.filter_map(|line| line.strip_prefix("kubefan_reader_memory_bytes{"));
    let values = of_kinds.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_are_small_if_the_memory_is() {
    let sim = Sim::start(&[]).await;
    // Over TLS callers are authenticated, so decisions about them are remembered.
    let flags = ["-r", "configmaps", "--tls-self-signed"];
    let flags = [&flags[..], &["--memory-limit", "16Mi"]].concat();
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &flags).await;
    let kinds = [
        "list",
        "chunk",
        "row",
        "document",
        "forbidden",
        "bridge",
        "decision",
        "queue",
    ];
    for kind in kinds {
        let name = |name: &str| format!("{name}{{kind=\"{kind}\"}}");
        let limit = metric(&kubefan, &name("kubefan_kept_memory_limit_bytes")).await;
        assert_eq!(limit, Some(f64::from(2 << 20)), "{kind}");
        let kept = metric(&kubefan, &name("kubefan_kept_memory_bytes")).await;
        assert!(kept.is_some_and(|bytes| bytes < f64::from(2 << 20)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_no_client_reads_take_little_memory() {
    const CONNECTIONS: usize = 4;
    const STREAMS: usize = 1_000;
    const OBJECTS: usize = 5_000;
    let sim = Sim::start(&[]).await;
    create_maps(&sim, OBJECTS).await;
    let flags = ["-r", "configmaps", "--max-requests-inflight", "0"];
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &flags).await;
    let list = format!("{MAPS}?resourceVersion=0");
    let (_, length) = kubefan.client().drain(&list).await;
    assert!(length > OBJECTS * 1_000, "{length} bytes");

    let before = resident(&kubefan);
    let connections = open(&kubefan, &list, (CONNECTIONS, STREAMS), 0).await;
    let grown = resident(&kubefan).saturating_sub(before);
    println!("{} lists: {} KiB", CONNECTIONS * STREAMS, grown >> 10);
    assert!(grown <= 100_000_000, "{grown} bytes");
    // The ledger has not less than what the process really uses. The growth includes memory that
    // the allocator does not return after requests.
    let charged = held(&kubefan).await;
    assert!(charged * 1.25 >= grown as f64, "{charged} of {grown} bytes");

    drop(connections);
    ledger_is_empty(&kubefan).await;
}

async fn ledger_is_empty(kubefan: &Kubefan) {
    eventually(
        "an empty ledger",
        Duration::from_secs(20),
        async || match held(kubefan).await {
            0.0 => Ok(()),
            bytes => Err(format!("{bytes} bytes")),
        },
    )
    .await;
}

/// Creates `count` objects of a kilobyte.
async fn create_maps(sim: &Sim, count: usize) {
    let client = sim.client();
    let create = |number| {
        let (client, name) = (client.clone(), format!("map-{number}"));
        async move {
            let object = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(1_000)}});
            client.create(MAPS, &object).await.ok();
        }
    };
    let all = futures::stream::iter((0..count).map(create));
    all.buffer_unordered(16).collect::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_of_an_idle_cache_is_returned() {
    const OBJECTS: usize = 400;
    const BYTES: usize = 100_000;
    let sim = Sim::start(&[]).await;
    for number in 0..OBJECTS {
        let metadata = json!({"name": format!("map-{number}")});
        let object = json!({"metadata": metadata, "data": {"text": "x".repeat(BYTES)}});
        sim.client().create(MAPS, &object).await.ok();
    }
    let flags = ["--idle-timeout", "3s"];
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &flags).await;
    let before = resident(&kubefan);
    let (status, length) = kubefan
        .client()
        .drain(&format!("{MAPS}?resourceVersion=0"))
        .await;
    assert_eq!(status, 200);
    assert!(length > OBJECTS * BYTES, "{length} bytes");
    let cached = resident(&kubefan).saturating_sub(before);
    assert!(cached > (OBJECTS * BYTES) as u64, "{cached} bytes");
    // The allocator returns free memory to the system within seconds.
    let limit = Duration::from_secs(60);
    eventually("the memory", limit, async || {
        match resident(&kubefan).saturating_sub(before) {
            held if held < cached / 4 => Ok(()),
            held => Err(format!("{held} of {cached} bytes")),
        }
    })
    .await;
    let metrics = kubefan.metrics().await;
    let cache = |line: &str| {
        line.starts_with("kubefan_cache_bytes{") && line.contains("resource=\"configmaps\"")
    };
    assert!(!metrics.lines().any(cache), "{metrics}");
}

type Unread = (SendRequest<Empty<Bytes>>, Vec<Response<Incoming>>);

/// Requests `path` on many streams of many connections. Each stream takes `window` bytes that are
/// not read. All must get 200.
async fn open(kubefan: &Kubefan, path: &str, number: (usize, usize), window: u32) -> Vec<Unread> {
    open_encoded(kubefan, path, number, window, "identity").await
}

/// Opens streams like [`open`], with the header `Accept-Encoding`.
async fn open_encoded(
    kubefan: &Kubefan,
    path: &str,
    (connections, streams): (usize, usize),
    window: u32,
    encoding: &str,
) -> Vec<Unread> {
    let mut opened = Vec::new();
    for _ in 0..connections {
        let connection = http2(kubefan, window).await;
        let answers = (0..streams).map(|_| {
            let mut connection = connection.clone();
            async move { get_encoded(kubefan, &mut connection, path, encoding).await }
        });
        let answers = futures::future::join_all(answers).await;
        assert!(answers.iter().all(|answer| answer.status() == 200));
        opened.push((connection, answers));
    }
    opened
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_whose_initial_events_no_client_reads_take_little_memory() {
    const CONNECTIONS: usize = 4;
    const STREAMS: usize = 1_000;
    let sim = Sim::start(&[]).await;
    create_maps(&sim, 5_000).await;
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &["-r", "configmaps"]).await;
    kubefan
        .client()
        .drain(&format!("{MAPS}?resourceVersion=0"))
        .await;
    let watch = format!("{MAPS}?watch=1&resourceVersion=0");
    // With a window of a byte, the HTTP library holds one chunk more.
    for window in [0, 1] {
        let before = resident(&kubefan);
        let watches = open(&kubefan, &watch, (CONNECTIONS, STREAMS), window).await;
        let grown = resident(&kubefan).saturating_sub(before);
        let charged = held(&kubefan).await;
        println!(
            "window {window}: {} KiB, charged {}",
            grown >> 10,
            charged as u64 >> 10
        );
        assert!(grown <= 100_000_000, "{grown} bytes");
        // As above; some of the growth is memory that the allocator does
        // not return after the requests.
        assert!(charged * 1.5 >= grown as f64, "{charged} of {grown} bytes");
        drop(watches);
        ledger_is_empty(&kubefan).await;
    }
}

/// The first event fits into the first chunk, the second one does not.
#[tokio::test(flavor = "multi_thread")]
async fn large_initial_events_that_no_client_reads_take_no_memory() {
    const STREAMS: usize = 1_000;
    let sim = Sim::start(&[]).await;
    for (name, bytes) in [("a", 1_000), ("b", 1_000_000)] {
        let object = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(bytes)}});
        sim.client().create(MAPS, &object).await.ok();
    }
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &["-r", "configmaps"]).await;
    let list = format!("{MAPS}?resourceVersion=0");
    kubefan.client().drain(&list).await;
    let watch = format!("{MAPS}?watch=1&resourceVersion=0");
    let before = resident(&kubefan);
    let watches = open(&kubefan, &watch, (1, STREAMS), 0).await;
    let grown = resident(&kubefan).saturating_sub(before);
    println!("{STREAMS} watches: {} KiB", grown >> 10);
    assert!(grown <= 100_000_000, "{grown} bytes");
    drop(watches);
    ledger_is_empty(&kubefan).await;
    // A client that reads gets both.
    let mut reading = http2(&kubefan, 1 << 22).await;
    let mut events = get(&kubefan, &mut reading, &watch).await.into_body();
    let mut received = 0;
    while received < 1_001_000 {
        let frame = events.frame().await;
        let frame = frame.expect("an open watch").expect("no error");
        received += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// Returns the simulator's version, raised to a version of an API
/// server that compresses watch-lists.
fn with_newer_version(seen: &SeenRequest) -> RequestAction {
    if seen.path != "/version" {
        return RequestAction::Forward;
    }
    RequestAction::ChangeFrames(Box::new(|line| {
        let text = String::from_utf8(line).expect("JSON is UTF-8");
        Some(vec![text.replace("v1.36.", "v1.37.").into_bytes()])
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_watches_whose_initial_events_no_client_reads_take_little_memory() {
    const CONNECTIONS: usize = 4;
    const STREAMS: usize = 1_000;
    const OBJECTS: usize = 5_000;
    let sim = Sim::start(&[]).await;
    create_maps(&sim, OBJECTS).await;
    let proxy = ScriptedProxy::start(sim.client(), with_newer_version).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("config");
    kubeconfig::write(&config, proxy.url(), None, &User::Anonymous);
    let kubefan = Kubefan::start_with(&config, &["-r", "configmaps"]).await;
    let watch = format!(
        "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
         &resourceVersion=0&allowWatchBookmarks=true"
    );
    let limit = Duration::from_secs(20);
    eventually("a compressed watch", limit, async || {
        let mut connection = http2(&kubefan, 0).await;
        let answer = get_encoded(&kubefan, &mut connection, &watch, "gzip").await;
        match answer.headers().get(CONTENT_ENCODING) {
            Some(encoding) if encoding == "gzip" => Ok(()),
            _ => Err(format!("{:?}", answer.headers())),
        }
    })
    .await;
    ledger_is_empty(&kubefan).await;
    for window in [0, 1] {
        let before = resident(&kubefan);
        let number = (CONNECTIONS, STREAMS);
        let watches = open_encoded(&kubefan, &watch, number, window, "gzip").await;
        let grown = resident(&kubefan).saturating_sub(before);
        let charged = held(&kubefan).await;
        println!(
            "window {window}: {} KiB, charged {}",
            grown >> 10,
            charged as u64 >> 10
        );
        assert!(grown <= 100_000_000, "{grown} bytes");
        // As above; some of the growth is memory that the allocator does
        // not return after the requests.
        assert!(charged * 1.5 >= grown as f64, "{charged} of {grown} bytes");
        drop(watches);
        ledger_is_empty(&kubefan).await;
    }
    // Each chunk was compressed once, for the first watch that needed it.
    let metrics = kubefan.metrics().await;
    let compressed = metrics.lines().find_map(|line| {
        line.strip_prefix("kubefan_gzip_initial_chunks_total{how=\"compressed\"} ")
    });
    let compressed: f64 = compressed.expect("a counter").parse().expect("a number");
    assert!((1.0..=OBJECTS as f64).contains(&compressed), "{compressed}");
    let kept = metric(&kubefan, "kubefan_kept_memory_bytes{kind=\"chunk\"}").await;
    assert!(
        kept.is_some_and(|bytes| bytes <= f64::from(32 << 20)),
        "{kept:?}"
    );
}

/// Each unread watch holds another large event, which no cache holds any more.
#[tokio::test(flavor = "multi_thread")]
async fn watches_that_hold_old_events_are_closed_when_the_memory_is_used_up() {
    const EVENTS: usize = 400;
    const BYTES: usize = 100_000;
    const LIMIT: usize = 16 << 20;
    let sim = Sim::start(&[]).await;
    let flags = ["-r", "configmaps", "--memory-limit", "16Mi"];
    let flags = [&flags[..], &["--retention-bytes", "1Mi"]].concat();
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &flags).await;
    let watch = format!("{MAPS}?watch=1&resourceVersion=0");
    let mut honest = http2(&kubefan, 1 << 20).await;
    let mut events = get(&kubefan, &mut honest, &watch).await.into_body();
    let mut greedy = http2(&kubefan, 0).await;
    let mut unread = Vec::new();
    let mut received = 0;
    let mut largest = 0.0_f64;
    for number in 0..EVENTS {
        if !greedy.is_closed() {
            let watch = format!("{watch}&fieldSelector=metadata.name=map-{number}");
            // kubefan may close the connection at any time.
            let answer = try_get_encoded(&kubefan, &mut greedy, &watch, "identity").await;
            unread.extend(answer);
        }
        let metadata = json!({"name": format!("map-{number}")});
        let object = json!({"metadata": metadata, "data": {"text": "x".repeat(BYTES)}});
        sim.client().create(MAPS, &object).await.ok();
        while received < (number + 1) * BYTES {
            let frame = events.frame().await;
            let frame = frame.expect("an open watch").expect("no error");
            received += frame.data_ref().map_or(0, Bytes::len);
        }
        if number % 40 == 0 {
            largest = largest.max(held(&kubefan).await);
        }
    }
    let limit = Duration::from_secs(20);
    eventually(
        "the end of the unread watches",
        limit,
        async || match greedy.is_closed() {
            true => Ok(()),
            false => Err(format!("{largest} bytes held")),
        },
    )
    .await;
    drop((unread, greedy));
    println!("at most {} KiB", largest as u64 >> 10);
    assert!(largest > LIMIT as f64 / 2.0, "{largest}");
    assert!(largest < 1.5 * LIMIT as f64, "{largest}");
    drop((events, honest));
    ledger_is_empty(&kubefan).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_idle_watches_fit_in_the_memory_of_a_small_container() {
    let sim = Sim::start(&[]).await;
    // The default in a container of 256 MiB.
    let flags = ["-r", "configmaps", "--memory-limit", "64Mi"];
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &flags).await;
    let watch = format!("{MAPS}?watch=1");
    let before = resident(&kubefan);
    let watches = open(&kubefan, &watch, (100, 100), 65_535).await;
    let grown = resident(&kubefan).saturating_sub(before);
    let charged = held(&kubefan).await;
    println!(
        "10,000 watches: {} KiB, charged {}",
        grown >> 10,
        charged as u64 >> 10
    );
    assert!(charged * 1.25 >= grown as f64, "{charged} of {grown} bytes");
    drop(watches);
    ledger_is_empty(&kubefan).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_of_a_client_that_reads_nothing_is_reset() {
    let sim = Sim::start(&[]).await;
    create_maps(&sim, 1).await;
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &["-r", "configmaps"]).await;
    let list = format!("{MAPS}?resourceVersion=0");
    // The list fits into one chunk: the HTTP library has all of it, and does not poll the body.
    let mut connection = http2(&kubefan, 0).await;
    let answer = get(&kubefan, &mut connection, &list).await;
    let ended = tokio::time::timeout(Duration::from_secs(60), answer.into_body().collect());
    let error = ended.await.expect("an end").expect_err("no clean end");
    assert!(format!("{error:?}").contains("CANCEL"), "{error:?}");
    drop(connection);
    ledger_is_empty(&kubefan).await;
}
