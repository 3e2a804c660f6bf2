//! The buffers of connections, which the ledger measures, with `kubefan serve` as a program before
//! the simulator.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{MissedTickBehavior, interval};

use crate::limits::{metric, resident};
use crate::support::clients::client::Client;
use crate::support::clients::connector::{Connector, Io};
use crate::support::poll::eventually;
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::sim::Sim;

const LIST: &str = "/api/v1/namespaces/default/configmaps?resourceVersion=0";
const LIMIT: u64 = 16 << 20;
/// Memory that the allocator does not return, the state of the connections, and what buffers hold
/// more before the next sweep.
const SLACK: u64 = 24 << 20;
/// The slack with TLS, with 75 KiB of state per connection, and with an
/// open list on each connection.
const SLACK_OF_TLS: u64 = 40 << 20;
const CONNECTIONS: usize = 200;
/// A frame's type and flags (RFC 9113, 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&[a, b, c, kind, flags, 0, 0, 0, stream][..], payload].concat()
}

/// Returns the opening of an HTTP/2 connection of a client that takes any number of bytes.
fn opening() -> Vec<u8> {
    // The initial window of streams, and the increment of the connection's.
    let window = [0, 4, 0x7f, 0xff, 0xff, 0xff];
    let increment = 0x7fff_0000_u32.to_be_bytes();
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &window),
        frame(WINDOW_UPDATE, 0, 0, &increment),
    ]
    .concat()
}

/// Returns the head of a GET over HTTP/2 with TLS.
fn head_of_get(path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).expect("a short path");
    assert!(length < 0x7f, "one byte has the length");
    // GET, https, and the literal values of the path and of the authority.
    let path = [&[0x82, 0x87, 0x04, length], path.as_bytes()].concat();
    let authority = [&[0x01, 9][..], b"127.0.0.1"].concat();
    let block = [path, authority].concat();
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)
}

async fn connect(kubefan: &Kubefan, connector: &Connector) -> Box<dyn Io> {
    let dialled = connector.dial(kubefan.url(), Ipv4Addr::LOCALHOST).await;
    dialled.expect("a connection")
}

/// Returns the bytes of a kind in the ledger.
async fn held(kubefan: &Kubefan, kind: &str) -> u64 {
    let name = format!("kubefan_reader_memory_bytes{{kind=\"{kind}\"}}");
    metric(kubefan, &name).await.expect("a metric") as u64
}

async fn closed(kubefan: &Kubefan) -> u64 {
    let name = "kubefan_reader_memory_dropped_total{why=\"connection\"}";
    metric(kubefan, name).await.unwrap_or(0.0) as u64
}

/// Opens connections, which send `sent` and then nothing, and read nothing. Whenever the buffers of
/// these connections hold more than half of the limit, waits until kubefan has closed some of them.
/// Checks that another client is served all the time.
async fn attack(kubefan: &Kubefan, connector: &Connector, kind: &str, sent: &[u8], slack: u64) {
    const BATCH: usize = 25;
    let honest = Client::new(kubefan.url(), connector.clone());
    let before = resident(kubefan);
    let closed_before = closed(kubefan).await;
    let (mut open, mut largest, mut grown) = (Vec::new(), 0, 0);
    while open.len() < CONNECTIONS {
        for _ in 0..BATCH {
            let mut connection = connect(kubefan, connector).await;
            // A connection that was closed already does not take it.
            connection.write_all(sent).await.ok();
            open.push(connection);
        }
        let limit = Duration::from_secs(30);
        eventually("less in the buffers", limit, async || {
            let bytes = held(kubefan, kind).await;
            largest = largest.max(bytes);
            grown = grown.max(resident(kubefan).saturating_sub(before));
            match bytes {
                bytes if bytes <= LIMIT / 2 => Ok(()),
                bytes => Err(format!("{bytes} bytes")),
            }
        })
        .await;
        let answer = honest.get(&format!("{LIST}&limit=1")).await;
        assert_eq!(answer.status, 200, "{answer}");
    }
    let closed = closed(kubefan).await - closed_before;
    println!(
        "{kind}: at most {} KiB measured, {} KiB used, {closed} of {CONNECTIONS} closed",
        largest >> 10,
        grown >> 10
    );
    // If charges are refused, buffers may hold a quarter.
    assert!(largest > LIMIT / 4, "{largest} bytes");
    assert!(closed > 0 && closed < CONNECTIONS as u64, "{closed}");
    assert!(grown < LIMIT + slack, "{grown} bytes");
    drop(open);
    let limit = Duration::from_secs(30);
    eventually("empty buffers", limit, async || {
        match held(kubefan, kind).await {
            0 => Ok(()),
            bytes => Err(format!("{bytes} bytes")),
        }
    })
    .await;
    let answer = honest.get(&format!("{LIST}&limit=1")).await;
    assert_eq!(answer.status, 200, "{answer}");
}

/// Creates `count` objects of 100 KB.
async fn create_large_maps(sim: &Sim, count: usize) {
    for number in 0..count {
        let metadata = json!({"name": format!("map-{number}")});
        let object = json!({"metadata": metadata, "data": {"text": "x".repeat(100_000)}});
        let maps = "/api/v1/namespaces/default/configmaps";
        sim.client().create(maps, &object).await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_with_unfinished_heads_are_closed_when_memory_is_short() {
    let sim = Sim::start(&[]).await;
    create_large_maps(&sim, 1).await;
    let flags = ["-r", "configmaps", "--memory-limit", "16Mi"];
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &flags).await;
    let plain = Connector::plain();
    // Each field takes one byte on the wire.
    let known = [0x90; 4_000];
    let value = [&[0x00, 1, b'x', 0x7f, 0x81, 0x7e][..], &[b'y'; 16_256]].concat();
    let frames = |first: &[u8], others: usize| {
        let head = frame(HEADERS, END_STREAM, 1, first);
        let more = frame(CONTINUATION, 0, 1, &value).repeat(others);
        [opening(), head, more].concat()
    };
    let http1 = [b"GET / HTTP/1.1\r\nhost: x\r\nx: ", &[b'y'; 250_000][..]].concat();
    for sent in [frames(&known, 0), frames(&[0x82], 15), http1] {
        attack(&kubefan, &plain, "head", &sent, SLACK).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_clients_that_read_nothing_are_closed_when_memory_is_short() {
    let sim = Sim::start(&[]).await;
    create_large_maps(&sim, 100).await;
    let flags = ["-r", "configmaps", "--memory-limit", "16Mi"];
    let flags = [&flags[..], &["--tls-self-signed", "--auth", "none"]].concat();
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &flags).await;
    let sent = [opening(), head_of_get(LIST)].concat();
    let tls = Connector::unverified();
    attack(&kubefan, &tls, "output", &sent, SLACK_OF_TLS).await;
}

/// The client takes at most 640 KiB/s of ten megabytes, so some of these bytes
/// wait in kubefan most of the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_tls_client_gets_everything_while_memory_is_not_short() {
    const OBJECTS: usize = 100;
    const PART: usize = 64 << 10;
    let sim = Sim::start(&[]).await;
    create_large_maps(&sim, OBJECTS).await;
    let flags = ["-r", "configmaps", "--memory-limit", "64Mi"];
    let flags = [&flags[..], &["--tls-self-signed", "--auth", "none"]].concat();
    let kubefan = Kubefan::start_with(&sim.kubeconfig(), &flags).await;
    let mut connection = connect(&kubefan, &Connector::unverified()).await;
    let sent = [opening(), head_of_get(LIST)].concat();
    connection
        .write_all(&sent)
        .await
        .expect("an open connection");

    let mut pace = interval(Duration::from_millis(100));
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut body, mut unpaced, mut parts, mut most) = (0, 0, 0, 0);
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head).await.expect("a frame");
        let [_, a, b, kind, flags, ..] = head;
        let mut payload = vec![0; usize::from(u16::from_be_bytes([a, b]))];
        connection.read_exact(&mut payload).await.expect("a frame");
        if kind == DATA {
            body += payload.len();
            if flags & END_STREAM != 0 {
                break;
            }
        }
        unpaced += payload.len();
        if unpaced > PART {
            unpaced = 0;
            pace.tick().await;
            parts += 1;
            // Metrics are made once a second.
            if parts % 16 == 0 {
                most = most.max(held(&kubefan, "output").await);
            }
        }
    }
    println!("{body} bytes; at most {most} waited");
    assert!(body > OBJECTS * 100_000, "{body} bytes");
    // TLS holds most of it.
    assert!((64 << 10..=300 << 10).contains(&most), "{most} bytes");
    let limit = Duration::from_secs(10);
    eventually("empty buffers", limit, async || {
        match held(&kubefan, "output").await {
            0 => Ok(()),
            bytes => Err(format!("{bytes} bytes")),
        }
    })
    .await;
    assert_eq!(closed(&kubefan).await, 0);
    drop(connection);
}
