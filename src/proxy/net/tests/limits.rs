//! The limits of connections, with real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::{
    Server, get, http1_on, http2_on, only_the_accept_loop_is_left, soon, text_of, tls_connect,
    tls_server,
};
use crate::net::accept::client_socket::set_options;
use crate::net::{Acceptor, ClientConnection, Config, Lifetime, TlsFiles};

#[tokio::test]
async fn a_user_of_many_groups_may_use_http1() {
    let server = Server::start(Config::default(), None).await;
    let mut client = server.connect().await;
    let group = |number| format!("X-Remote-Group: group-{number}\r\n");
    let groups: String = (0..1_000).map(group).collect();
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{groups}\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    soon(client.read_exact(&mut status)).await.unwrap();
    assert_ne!(&status, b"HTTP/1.1 431");
}

#[tokio::test]
async fn an_upgraded_connection_keeps_its_slot_until_it_is_closed() {
    let config = Config {
        max_connections: 1.try_into().unwrap(),
        ..Config::default()
    };
    let server = Server::start(config, None).await;
    let mut client = http1_on(server.connect().await).await;
    let mut request = get("/upgrade");
    let headers = request.headers_mut();
    headers.insert("connection", "upgrade".parse().unwrap());
    headers.insert("upgrade", "echo".parse().unwrap());
    let response = soon(client.send_request(request)).await.unwrap();
    let upgraded = hyper::upgrade::on(response).await.unwrap();
    // The accept loop and the task of the upgraded connection: that of the connection has ended.
    soon(async {
        while server.shutdown.serving_tasks() > 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(server.has_metric(r#"kubefan_connections_open{listener="test"} 1"#));

    let mut io = TokioIo::new(upgraded);
    io.shutdown().await.unwrap();
    drop(io);
    let mut second = http1_on(server.connect().await).await;
    let response = soon(second.send_request(get("/peer"))).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    drop((second, response));
    only_the_accept_loop_is_left(&server).await;
    assert!(server.has_metric(r#"kubefan_connections_open{listener="test"} 0"#));
}

#[tokio::test]
async fn silent_connections_are_closed_for_new_ones() {
    let config = Config {
        max_pending_openings: 8.try_into().unwrap(),
        ..Config::default()
    };
    let (_, directory, roots) = tls_server().await;
    let files = TlsFiles {
        certificate: directory.path().join("tls.crt"),
        key: directory.path().join("tls.key"),
    };
    for tls in [None, Some(Acceptor::from_files(&files).unwrap())] {
        let is_tls = tls.is_some();
        let server = Server::start(config.clone(), tls).await;
        let mut silent = Vec::new();
        for _ in 0..30 {
            let mut stream = server.connect().await;
            // Half a preface, or the head of a TLS record of a handshake.
            let half = if is_tls {
                &b"\x16\x03\x01"[..]
            } else {
                b"PRI * H"
            };
            stream.write_all(half).await.unwrap();
            silent.push(stream);
        }
        if is_tls {
            tls_connect(&server, roots.clone(), "localhost", "h2")
                .await
                .unwrap();
        } else {
            let mut client = http2_on(server.connect().await).await;
            text_of(soon(client.send_request(get("/peer"))).await.unwrap()).await;
        }
        // The oldest 22 were closed: the kernel reports the end, or a reset for unread bytes.
        for stream in &mut silent[..22] {
            let read = soon(stream.read(&mut [0; 64])).await;
            assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
        }
        let newest = silent.last().unwrap();
        assert!(newest.try_read(&mut [0; 64]).is_err(), "closed too");
    }
}

#[tokio::test]
async fn an_admin_listener_with_tls_offers_only_http1() {
    let (_, directory, roots) = tls_server().await;
    let files = TlsFiles {
        certificate: directory.path().join("tls.crt"),
        key: directory.path().join("tls.key"),
    };
    let acceptor = Acceptor::from_files(&files).unwrap();
    let server = Server::start(Config::admin(), Some(acceptor)).await;
    let connect = |protocol| tls_connect(&server, roots.clone(), "localhost", protocol);
    let mut stream = soon(connect("http/1.1")).await.unwrap();
    let request = b"GET /peer HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(soon(connect("h2")).await.is_err());
}

#[tokio::test]
async fn tls_without_a_preface_of_http2_ends_after_the_head_timeout() {
    let config = Config {
        head_timeout: Duration::from_millis(20),
        ..Config::default()
    };
    let (_, directory, roots) = tls_server().await;
    let files = TlsFiles {
        certificate: directory.path().join("tls.crt"),
        key: directory.path().join("tls.key"),
    };
    let tls = Acceptor::from_files(&files).unwrap();
    let server = Server::start(config, Some(tls)).await;
    let mut stream = tls_connect(&server, roots, "localhost", "h2")
        .await
        .unwrap();
    let ended = soon(stream.read(&mut [0; 64])).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    only_the_accept_loop_is_left(&server).await;
}

#[tokio::test]
async fn heads_and_urls_that_are_too_long_are_refused() {
    let server = Server::plain().await;
    let with_header = |bytes: usize| {
        let mut request = get("/peer");
        let value = "x".repeat(bytes).parse().unwrap();
        request.headers_mut().insert("x-long", value);
        request
    };
    let mut http1 = http1_on(server.connect().await).await;
    let fits = soon(http1.send_request(with_header(250 << 10)))
        .await
        .unwrap();
    assert_eq!(fits.status(), StatusCode::OK);
    text_of(fits).await;
    // hyper reads up to twice the limit. It closes the connection while the client may still send.
    let refused = soon(http1.send_request(with_header(520 << 10))).await;
    let is_431 = |status| status == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    assert!(refused.map_or(true, |refused| is_431(refused.status())));

    let mut http2 = http2_on(server.connect().await).await;
    let fits = soon(http2.send_request(with_header(250 << 10)))
        .await
        .unwrap();
    assert_eq!(fits.status(), StatusCode::OK);
    let refused = soon(http2.send_request(with_header(257 << 10))).await;
    assert!(refused.map_or(true, |refused| is_431(refused.status())));

    let mut stream = server.connect().await;
    let request = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(65_534));
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    soon(stream.read_to_string(&mut response)).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 414 "), "{response}");
}

#[tokio::test]
async fn a_stream_whose_url_is_too_long_is_reset() {
    let server = Server::plain().await;
    let mut stream = server.connect().await;
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    // GET, http, and a path of 65,535 bytes as a literal; its length is an integer of RFC 7541.
    let mut head = b"\x82\x86\x04\x7f\x80\xff\x03".to_vec();
    head.extend_from_slice(&b"/".repeat(65_535));
    head.extend_from_slice(b"\x41\x01x");
    let parts: Vec<_> = head.chunks(16_384).collect();
    for (number, part) in parts.iter().enumerate() {
        let [_, a, b, c] = u32::try_from(part.len()).unwrap().to_be_bytes();
        let kind = if number == 0 { 1 } else { 9 };
        let end_stream = u8::from(number == 0);
        let end_headers = 4 * u8::from(number + 1 == parts.len());
        let frame = [a, b, c, kind, end_stream + end_headers, 0, 0, 0, 1];
        stream.write_all(&frame).await.unwrap();
        stream.write_all(part).await.unwrap();
    }
    let (mut read, mut write) = stream.into_split();
    loop {
        let mut head = [0; 9];
        soon(read.read_exact(&mut head)).await.unwrap();
        let mut payload = vec![0; usize::from(head[2]) + 256 * usize::from(head[1])];
        read.read_exact(&mut payload).await.unwrap();
        // HEADERS, GOAWAY
        assert!(![1, 7].contains(&head[3]), "{head:?} {payload:?}");
        if head[3] == 3 {
            assert_eq!(
                (&head[5..], &payload[..]),
                (&[0, 0, 0, 1][..], &[0, 0, 0, 1][..])
            );
            break;
        }
    }
    soon(ping(&mut read, &mut write)).await;
}

#[tokio::test]
async fn the_kernel_ends_connections_whose_peer_is_gone() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let _client = TcpStream::connect(address).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let limit = Config::default().write_timeout;
    set_options(&stream, Duration::from_secs(7), limit).unwrap();
    let socket = SockRef::from(&stream);
    assert!(socket.keepalive().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(7));
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(limit));
    assert!(stream.nodelay().unwrap());
    // An upgraded connection may stall for any time.
    crate::net::Transport::allow_stalls(&stream).unwrap();
    assert_eq!(socket.tcp_user_timeout().unwrap(), None);
}

/// A HEADERS frame with `GET http://x/wait` on `stream`, and a RST_STREAM frame for it.
fn request_and_reset(stream: u32) -> Vec<u8> {
    let [a, b, c, d] = stream.to_be_bytes();
    let headers = b"\x82\x86\x04\x05/wait\x41\x01x";
    let mut frames = vec![0, 0, headers.len() as u8, 1, 5, a, b, c, d];
    frames.extend_from_slice(headers);
    frames.extend_from_slice(&[0, 0, 4, 3, 0, a, b, c, d, 0, 0, 0, 8]);
    frames
}

#[tokio::test]
async fn a_peer_that_resets_unanswered_streams_too_fast_is_read_later() {
    const ALLOWED: u32 = 10;
    let config = Config {
        max_resets_per_second: ALLOWED.try_into().unwrap(),
        ..Config::default()
    };
    let server = Server::start(config, None).await;
    let mut stream = server.connect().await;
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    let (mut read, mut write) = stream.into_split();
    let started = tokio::time::Instant::now();
    let sender = async {
        for number in 0..3 * ALLOWED {
            let frames = request_and_reset(2 * number + 1);
            write.write_all(&frames).await.unwrap();
            // So that the server reads each request before the next one.
            ping(&mut read, &mut write).await;
        }
    };
    soon(sender).await;
    // Two seconds' resets were allowed at once, and the last ten at their rate.
    let waited = started.elapsed();
    assert!(waited > Duration::from_millis(900), "{waited:?}");
}

/// Sends a PING frame, and waits for the server's answer to it.
async fn ping(read: &mut OwnedReadHalf, write: &mut OwnedWriteHalf) {
    write
        .write_all(&[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8])
        .await
        .unwrap();
    loop {
        let mut head = [0; 9];
        read.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; usize::from(head[2]) + 256 * usize::from(head[1])];
        read.read_exact(&mut payload).await.unwrap();
        if (head[3], head[4]) == (6, 1) {
            return;
        }
    }
}

#[tokio::test]
async fn a_connection_with_many_long_reads_leaves_time_to_others() {
    const STEPS: usize = 10;
    let steps = Arc::new(AtomicUsize::new(0));
    let work = |connection: &ClientConnection| {
        let (connection, steps) = (connection.clone(), Arc::clone(&steps));
        async move {
            let _turn = connection.turn().await;
            for _ in 0..STEPS {
                tokio::task::yield_now().await;
                steps.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let (busy, other) = (ClientConnection::next(), ClientConnection::next());
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..100 {
        running.spawn(work(&busy));
    }
    work(&other).await;
    // The other connection made as many steps as each of the two reads that had a turn.
    let before = steps.load(Ordering::Relaxed);
    assert!((STEPS..=4 * STEPS).contains(&before), "{before} steps");
    running.join_all().await;
    assert_eq!(steps.load(Ordering::Relaxed), 101 * STEPS);
}

#[tokio::test]
async fn an_admin_listener_has_http1_and_closes_the_oldest_connection_for_a_new_one() {
    let config = Config {
        // Longer than the test waits, so that only new connections close old ones.
        head_timeout: Duration::from_secs(100),
        ..Config::admin()
    };
    let server = Server::start(config, None).await;
    let mut first = server.connect().await;
    let head = b"GET /peer HTTP/1.1\r\nhost: localhost\r\n";
    first.write_all(head).await.unwrap();
    // More connections than there are slots, each with an unfinished head.
    let mut unfinished = Vec::new();
    for _ in 0..200 {
        let mut stream = server.connect().await;
        stream.write_all(head).await.unwrap();
        unfinished.push(stream);
    }
    let mut client = http1_on(server.connect().await).await;
    let response = soon(client.send_request(get("/peer"))).await.unwrap();
    assert!(text_of(response).await.starts_with("HTTP/1.1"));
    let ended = soon(first.read(&mut [0; 64])).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");

    let mut http2 = server.connect().await;
    http2
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    let mut received = Vec::new();
    let _ = soon(http2.read_to_end(&mut received)).await;
    assert!(received.is_empty(), "{received:?}");
}

#[tokio::test]
async fn connections_with_a_lifetime_end_after_it() {
    let config = Config {
        max_lifetime: Some(Lifetime {
            serving: Duration::from_millis(50),
            total: Duration::from_millis(100),
        }),
        ..Config::admin()
    };
    let server = Server::start(config, None).await;
    let mut client = http1_on(server.connect().await).await;
    soon(client.send_request(get("/wait"))).await.unwrap_err();
    only_the_accept_loop_is_left(&server).await;
}

#[tokio::test]
async fn an_answer_is_completed_after_the_time_in_which_its_connection_takes_requests() {
    let config = Config {
        max_lifetime: Some(Lifetime {
            serving: Duration::from_millis(50),
            total: Duration::from_secs(100),
        }),
        ..Config::admin()
    };
    let server = Server::start(config, None).await;
    let mut client = http1_on(server.connect().await).await;
    let response = soon(client.send_request(get("/stream"))).await.unwrap();
    // The idle connection is newer. So when its serving time has ended, that of the first
    // connection has ended too.
    let mut idle = server.connect().await;
    assert_eq!(soon(idle.read(&mut [0; 1])).await.unwrap(), 0);
    server.send_chunk("metrics");
    server.chunks.close_channel();
    assert_eq!(soon(text_of(response)).await, "metrics");
    only_the_accept_loop_is_left(&server).await;
}

/// If the server closed an idle connection just when the client sends its next scrape, the scrape
/// would fail. The limits are such that this does not happen at the usual intervals.
#[test]
fn regular_scrapes_never_meet_the_end_of_their_admin_connection() {
    let config = Config::admin();
    let lifetime = config.max_lifetime.unwrap();
    assert!(lifetime.serving < lifetime.total);
    for interval in [5, 10, 15, 20, 30, 60].map(Duration::from_secs) {
        // With scrapes at the times 0, `interval`, and so on.
        let end = if interval < config.head_timeout {
            lifetime.serving
        } else {
            config.head_timeout
        };
        let since_last = end.as_secs() % interval.as_secs();
        let until_next = interval.as_secs() - since_last;
        assert!(since_last.min(until_next) >= 2, "{interval:?}");
    }
}

/// Waits until the ledger measures `expected` bytes of `kind`.
async fn measured(server: &Server, kind: &str, expected: u64) {
    let bytes = || {
        let usage = server.ledger.usage();
        let of_kind = usage.iter().find(|(name, _)| *name == kind);
        of_kind.expect("the kind").1
    };
    let reached = async {
        while bytes() != expected {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), reached).await;
    assert!(
        waited.is_ok(),
        "{} bytes of {kind}, not {expected}",
        bytes()
    );
}

#[tokio::test]
async fn over_http1_unfinished_heads_and_bodies_are_measured() {
    let server = Server::plain().await;
    let mut client = server.connect().await;
    let head = format!("GET /peer HTTP/1.1\r\nhost: x\r\nx: {}", "x".repeat(20_000));
    client.write_all(head.as_bytes()).await.unwrap();
    measured(&server, "head", head.len() as u64).await;
    client.write_all(b"\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    soon(client.read_exact(&mut answer)).await.unwrap();
    // The library retains the memory for the next head.
    measured(&server, "head", (head.len() + 4) as u64).await;
    drop(client);
    measured(&server, "head", 0).await;

    let mut client = server.connect().await;
    let head = "POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&[b'x'; 1_000_000]).await.unwrap();
    let mut received = Vec::new();
    let answered = async {
        while !received.ends_with(b"1000000") {
            client.read_buf(&mut received).await.unwrap();
        }
    };
    soon(answered).await;
    measured(&server, "upload", 0).await;
    drop(client);
    measured(&server, "head", 0).await;

    // The library passes on the first part of the body, and reads no more before that was taken.
    let mut client = server.connect().await;
    let head = "POST /wait HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n";
    let request = [head.as_bytes(), &[b'x'; 1_000]].concat();
    client.write_all(&request).await.unwrap();
    measured(&server, "upload", 1_000).await;
}

#[tokio::test]
async fn over_http2_unfinished_heads_and_bodies_are_measured() {
    /// What a field without strings, and a frame of a body, counts besides its data.
    const FIELD: u64 = 104;
    const FRAME: u64 = 256;
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [0, length[0], length[1], kind, flags, 0, 0, 0, stream];
        [&head, payload].concat()
    };
    let server = Server::plain().await;
    let mut client = server.connect().await;
    let opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    client.write_all(opening).await.unwrap();
    // POST, http, and in the last frame the path `/wait`.
    let path = [&[0x04, 5][..], b"/wait"].concat();
    client
        .write_all(&frame(1, 0, 1, &[0x83, 0x86]))
        .await
        .unwrap();
    measured(&server, "head", 2 * FIELD).await;
    client.write_all(&frame(9, 4, 1, &path)).await.unwrap();
    measured(&server, "head", 0).await;
    for _ in 0..2 {
        let data = frame(0, 0, 1, &[b'x'; 5_000]);
        client.write_all(&data).await.unwrap();
    }
    measured(&server, "upload", 2 * (5_000 + FRAME)).await;
    // The reset of the stream drops its body.
    client
        .write_all(&frame(3, 0, 1, &[0, 0, 0, 8]))
        .await
        .unwrap();
    measured(&server, "upload", 0).await;

    // A body that is read, beside one that is not.
    let path = [&[0x83, 0x86, 0x04, 5][..], b"/wait"].concat();
    client.write_all(&frame(1, 4, 3, &path)).await.unwrap();
    client
        .write_all(&frame(0, 0, 3, &[b'x'; 100]))
        .await
        .unwrap();
    measured(&server, "upload", 100 + FRAME).await;
    let path = [&[0x83, 0x86, 0x04, 5][..], b"/read"].concat();
    client.write_all(&frame(1, 4, 5, &path)).await.unwrap();
    client
        .write_all(&frame(0, 0, 5, &[b'x'; 700]))
        .await
        .unwrap();
    client
        .write_all(&frame(0, 8, 5, &[&[9][..], &[0; 59]].concat()))
        .await
        .unwrap();
    client.write_all(&frame(0, 1, 5, &[])).await.unwrap();
    let mut received = Vec::new();
    let answered = async {
        while !received.windows(3).any(|window| window == b"750") {
            client.read_buf(&mut received).await.unwrap();
        }
    };
    soon(answered).await;
    measured(&server, "upload", 100 + FRAME).await;
    drop(client);
    measured(&server, "upload", 0).await;
}
