//! Open watches with a task that reads all their events.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http2::Builder;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::support::clients::client::Client;
use crate::support::clients::frames::{Event, Format, WatchReader};
use crate::support::poll::{eventually, within};

/// How long an event, or the end of a watch that must end, may take.
pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// An open watch. Its task is aborted when this is dropped.
#[derive(Debug)]
pub(super) struct Observed {
    what: String,
    events: Arc<AtomicUsize>,
    /// When the watch ended cleanly, or how it failed.
    task: JoinHandle<Result<Instant, String>>,
}

impl Observed {
    /// Opens a watch, and waits until it has `events` events. While the cache fills, kubefan answers
    /// 429, which clients repeat. Every other refusal is a failure.
    pub(super) async fn open(client: &Client, path: &str, events: usize) -> Self {
        let opened = eventually(path, LIMIT, async || {
            match client.watch(path, Format::Json).await {
                Err(error) if error.contains("storage is (re)initializing") => Err(error),
                opened => Ok(opened),
            }
        });
        let reader = opened.await.unwrap_or_else(|error| panic!("{error}"));
        let count = Arc::<AtomicUsize>::default();
        let observed = Self {
            what: path.to_owned(),
            events: Arc::clone(&count),
            task: tokio::spawn(read(reader, count)),
        };
        observed.has(events).await;
        observed
    }

    /// Waits until the watch has this many events.
    pub(super) async fn has(&self, events: usize) {
        eventually(&self.what, LIMIT, async || {
            match self.events.load(Ordering::SeqCst) {
                found if found >= events => Ok(()),
                found => Err(format!("{found} of {events} events")),
            }
        })
        .await;
    }

    pub(super) fn is_open(&self) -> bool {
        !self.task.is_finished()
    }

    /// Waits until the watch has ended, and returns the moment of its end.
    ///
    /// # Panics
    /// If it does not end, or ends with an ERROR event or a broken stream.
    pub(super) async fn ended(self) -> Instant {
        self.ended_within(LIMIT).await
    }

    /// Waits like [`Observed::ended`] for a watch that ends within `limit`.
    ///
    /// # Panics
    /// As [`Observed::ended`].
    pub(super) async fn ended_within(mut self, limit: Duration) -> Instant {
        let ended = within(&self.what, limit, &mut self.task).await;
        let ended = ended.expect("no panic");
        ended.unwrap_or_else(|error| panic!("{}: {error}", self.what))
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read(mut reader: WatchReader, count: Arc<AtomicUsize>) -> Result<Instant, String> {
    loop {
        match reader.next().await? {
            Some(Event::Error { code, message }) => return Err(format!("{code} {message}")),
            Some(Event::Bookmark { .. }) => {}
            Some(_) => {
                count.fetch_add(1, Ordering::SeqCst);
            }
            None => return Ok(Instant::now()),
        }
    }
}

/// Opens a watch with a stream that takes `window` bytes, and reads nothing of it.
pub(super) async fn unread(url: &str, token: &str, path: &str, window: u32) -> Response<Incoming> {
    let address = url.trim_start_matches("http://");
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (mut sender, connection) = Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(TokioIo::new(stream))
        .await
        .expect("HTTP/2");
    tokio::spawn(connection);
    let request = Request::get(format!("{url}{path}")).header("authorization", bearer(token));
    let request = request.body(Empty::<Bytes>::new()).expect("a request");
    let response = sender.send_request(request).await.expect("an answer");
    assert_eq!(response.status(), 200, "{path}");
    // The connection ends when there is neither a sender nor an open stream.
    response
}

/// Opens a watch over a WebSocket.
pub(super) async fn websocket(client: &Client, path: &str) -> TokioIo<Upgraded> {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("origin", client.server()),
        ("accept", "application/json"),
    ] {
        headers.insert(name, value.parse().expect("a value"));
    }
    let opened = client.open(Method::GET, path, &headers, Bytes::new());
    let response = opened.await.expect("an answer");
    assert_eq!(response.status(), 101, "{path}");
    TokioIo::new(hyper::upgrade::on(response).await.expect("an upgrade"))
}

/// Reads a WebSocket until the server closes it.
pub(super) async fn websocket_ended(what: &str, mut socket: TokioIo<Upgraded>) {
    let mut bytes = Vec::new();
    // The end may be a reset.
    let read = socket.read_to_end(&mut bytes);
    let _ = within(what, LIMIT, read).await;
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains("ERROR"), "{what}: {text}");
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}
