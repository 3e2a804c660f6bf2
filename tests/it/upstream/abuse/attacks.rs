//! The attacks. Each returns when the honest clients have been observed long enough, and closes all
//! its connections.

use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use http::{HeaderMap, Method};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::attacker::{Http2, PREFACE};
use super::scene::{Scene, scaled};

/// How long the honest clients are measured while an attack lasts.
const DURATION: Duration = Duration::from_secs(15);
const OPEN_WINDOW: u32 = 1 << 20;
/// The limit of streams per connection.
const STREAMS: usize = 1_000;

async fn connections(server: SocketAddr, count: usize, window: u32) -> Vec<Http2> {
    let connecting = (0..count.max(1)).map(|_| Http2::connect(server, window));
    let connected = join_all(connecting).await;
    connected
        .into_iter()
        .map(|c| c.expect("a connection"))
        .collect()
}

/// Makes no attack, to show what the machine alone causes.
pub(super) async fn none(_: &Scene) {
    sleep(DURATION).await;
}

/// Sends LISTs of 5,000 pods with bodies that have no window, 20,000 in all.
pub(super) async fn closed_window_lists(scene: &Scene) {
    let mut attackers = connections(scene.target(), scaled(20), 0).await;
    let path = format!("{}?resourceVersion=0", scene.path);
    for attacker in &mut attackers {
        // Fails if kubefan closes the connection, which is a success for kubefan.
        let _ = attacker.get(vec![path.clone(); STREAMS]).await;
    }
    sleep(DURATION).await;
}

/// Opens 50,000 watches, each with a selector that no index finds, while config maps change. Half
/// of the watches are of the namespace of the changes.
pub(super) async fn unindexed_watches(scene: &Scene) {
    let mut attackers = connections(scene.target(), scaled(50), OPEN_WINDOW).await;
    for (number, attacker) in attackers.iter_mut().enumerate() {
        let paths = (0..STREAMS).map(|stream| {
            let maps = match stream % 2 {
                0 => "/api/v1/configmaps".to_owned(),
                _ => scene.path.replace("/pods", "/configmaps"),
            };
            format!("{maps}?watch=1&resourceVersion=0&labelSelector=!x{number}-{stream}")
        });
        let _ = attacker.get(paths.collect::<Vec<_>>()).await;
    }
    let client = scene.server.client();
    let end = Instant::now() + DURATION;
    let path = scene.path.replace("/pods", "/configmaps");
    let mut number = 0;
    while Instant::now() < end {
        let object = serde_json::json!({ "metadata": { "name": format!("change-{number}") } });
        client.create(&path, &object).await.ok();
        number += 1;
        sleep(Duration::from_millis(50)).await;
    }
}

/// Cuts 5,000 watches of a node's pods each. They resume at once when 7,500 pods have changed.
pub(super) async fn resumed_node_watches(scene: &Scene) {
    const WRITERS: usize = 16;
    let client = scene.server.client();
    let list = client.get(&format!("{}?limit=1", scene.path)).await.ok();
    let version = list.json()["metadata"]["resourceVersion"].clone();
    let version = version.as_str().expect("a version").to_owned();
    let nodes = scaled(5_000);
    let watch_all = async || {
        let mut attackers = connections(scene.target(), nodes.div_ceil(STREAMS), OPEN_WINDOW).await;
        for (number, attacker) in attackers.iter_mut().enumerate() {
            let last = nodes.min((number + 1) * STREAMS);
            let paths = (number * STREAMS..last).map(|node| {
                format!(
                    "/api/v1/pods?watch=1&resourceVersion={version}\
                     &fieldSelector=spec.nodeName%3Dnode-{node}"
                )
            });
            let _ = attacker.get(paths.collect::<Vec<_>>()).await;
        }
        attackers
    };
    let watching = watch_all().await;
    let changes = (0..scaled(7_500)).map(|number| {
        let (client, path) = (&client, &scene.path);
        async move {
            let pod = serde_json::json!({
                "metadata": { "name": format!("resumed-{number}") },
                "spec": {
                    "nodeName": format!("node-{}", number % nodes),
                    "containers": [{ "name": "a", "image": "a" }],
                },
            });
            client.create(path, &pod).await.ok();
        }
    });
    let changing = futures::stream::iter(changes).buffer_unordered(WRITERS);
    changing.collect::<()>().await;
    drop(watching);
    let end = Instant::now() + DURATION;
    while Instant::now() < end {
        let resumed = watch_all().await;
        sleep(Duration::from_secs(3)).await;
        drop(resumed);
    }
}

/// Connections that send a part of the HTTP/2 preface and stop.
pub(super) async fn half_prefaces(scene: &Scene) {
    silent_after(scene, &PREFACE[..14]).await;
}

/// Connections that send the head of a TLS handshake record and stop.
pub(super) async fn half_open_handshakes(scene: &Scene) {
    silent_after(scene, &[0x16, 0x03, 0x01, 0x02, 0x00]).await;
}

/// Opens 10,000 connections that send `start` and then nothing.
async fn silent_after(scene: &Scene, start: &[u8]) {
    let mut open = Vec::new();
    for _ in 0..scaled(10_000) {
        // Fails if kubefan refuses connections, which is a success for kubefan.
        let Ok(mut stream) = TcpStream::connect(scene.target()).await else {
            continue;
        };
        let _ = stream.write_all(start).await;
        open.push(stream);
    }
    sleep(DURATION).await;
}

/// Connections that open streams and reset them at once, and reconnect when they are closed or not
/// read.
pub(super) async fn resets(scene: &Scene) {
    let end = Instant::now() + DURATION;
    let path = format!("{}?resourceVersion=0", scene.path);
    let attacking = (0..4).map(|_| async {
        while Instant::now() < end {
            let Ok(mut attacker) = Http2::connect(scene.target(), 0).await else {
                continue;
            };
            let stall = Duration::from_millis(100);
            while Instant::now() < end
                && let Ok(Ok(())) = timeout(stall, attacker.get_and_reset(&path, 100)).await
            {
                sleep(Duration::from_millis(1)).await;
            }
        }
    });
    join_all(attacking).await;
}

/// Sends LISTs over HTTP/1.1 with readers that take one byte and then nothing.
pub(super) async fn slow_readers(scene: &Scene) {
    let mut open = Vec::new();
    for _ in 0..scaled(2_000) {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4_096).expect("an option");
        let mut stream = socket.connect(scene.target()).await.expect("a connection");
        let request = format!(
            "GET {}?resourceVersion=0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
            scene.path
        );
        let _ = stream.write_all(request.as_bytes()).await;
        open.push(stream);
    }
    for stream in &mut open {
        let _ = stream.read(&mut [0]).await;
    }
    sleep(DURATION).await;
}

/// Opens watches with a header list of 240 KB each. All but the first cost the client 60 bytes.
pub(super) async fn full_header_blocks(scene: &Scene) {
    let mut attackers = connections(scene.target(), scaled(20), 0).await;
    let path = format!("{}?watch=1", scene.path);
    for attacker in &mut attackers {
        let _ = attacker.get_with_headers(&path, STREAMS as u32, 60).await;
    }
    sleep(DURATION).await;
}

/// Requests with tokens that the API server does not know.
pub(super) async fn garbage_tokens(scene: &Scene) {
    let end = Instant::now() + DURATION;
    let client = scene.victim.client();
    let attacking = (0..16).map(|worker| {
        let client = &client;
        let path = scene.path.replace("/pods", "/configmaps");
        async move {
            let mut number = 0;
            while Instant::now() < end {
                let client = client.as_token(&format!("garbage-{worker}-{number}"));
                let none = HeaderMap::new();
                let answer = client.try_send(Method::GET, &path, &none, bytes::Bytes::new());
                // 401, or 429 or 503 if kubefan limits them.
                let _ = timeout_at(end, answer).await;
                number += 1;
            }
        }
    });
    join_all(attacking).await;
    sleep_until(end).await;
}
