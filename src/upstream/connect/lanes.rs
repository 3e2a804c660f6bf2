//! HTTP/2 connections shared by forwarded requests. The API server allows some 100 streams a
//! connection, so a lane takes fewer, and another is opened when all are full.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Uri;
use hyper::body::Incoming;
use hyper::client::conn::http2::Builder;
use hyper::client::conn::http2::SendRequest;
use hyper::rt::Executor;
use hyper_util::rt::TokioTimer;
use parking_lot::Mutex;
use tower::ServiceExt;

use super::connector::Connector;
use super::route;
use crate::body::Body;
use crate::body::BodyGuard;
use crate::body::BoxError;
use crate::body::GuardedBody;

/// Requests that a lane has in flight at most; the API server refuses more than 100 streams.
const LANE_REQUESTS: usize = 90;
/// Free places that must be left elsewhere before an idle lane is closed.
const SPARE_PLACES: usize = LANE_REQUESTS / 2;
/// Unread bytes that a connection takes: so many that streams which nobody reads (at most
/// `LANE_REQUESTS` times `STREAM_WINDOW`) can't stop the others.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Unread bytes that one stream takes.
const STREAM_WINDOW: u32 = 1 << 20;
/// Bytes of an upload that a stream buffers.
const SEND_BUFFER: usize = 64 << 10;
/// Bytes of response headers; warnings are long.
const HEADER_LIST: u32 = 256 << 10;
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The lanes of one identity.
pub(super) struct Lanes {
    connector: Connector,
    server: Uri,
    set: Arc<LaneSet>,
    /// Held by the one that opens a lane, so that a burst opens no more than it needs.
    opening: tokio::sync::Mutex<()>,
    /// True once the server chose HTTP/1.1.
    http1_only: AtomicBool,
}

/// A place on a lane; dropping it frees the place.
pub(super) struct Place {
    set: Arc<LaneSet>,
    lane: u64,
}

#[derive(Default)]
struct LaneSet(Mutex<LaneSetState>);

#[derive(Default)]
struct LaneSetState {
    lanes: Vec<Lane>,
    opened: u64,
}

struct Lane {
    id: u64,
    sender: SendRequest<Body>,
    in_flight: usize,
}

impl Lanes {
    /// Lanes to `server`; plain http has none, as there is no ALPN to choose HTTP/2.
    pub(super) fn new(connector: Connector, server: Uri) -> Self {
        let plain = server.scheme() != Some(&http::uri::Scheme::HTTPS);
        Self {
            connector,
            server,
            set: Arc::default(),
            opening: tokio::sync::Mutex::default(),
            http1_only: AtomicBool::new(plain),
        }
    }

    /// A place on a lane, opened if needed; `None` when the server speaks only HTTP/1.1.
    pub(super) async fn acquire(&self) -> Result<Option<(SendRequest<Body>, Place)>, BoxError> {
        if self.http1_only.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if let Some(acquired) = self.set.acquire() {
            return Ok(Some(acquired));
        }
        // While the server does not answer, those behind the one who tries give up in time too.
        let opening = tokio::time::timeout(route::CONNECT_TIMEOUT, self.opening.lock());
        let _opening = opening.await?;
        if let Some(acquired) = self.set.acquire() {
            return Ok(Some(acquired));
        }
        match self.open().await? {
            Some(sender) => Ok(Some(self.set.add(sender))),
            None => {
                self.http1_only.store(true, Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    async fn open(&self) -> Result<Option<SendRequest<Body>>, BoxError> {
        let stream = self.connector.clone().oneshot(self.server.clone()).await?;
        if !stream.http2 {
            return Ok(None);
        }
        let home = self.connector.home();
        let mut builder = Builder::new(home.clone());
        builder
            .timer(TokioTimer::new())
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_stream_window_size(STREAM_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(HEADER_LIST)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true);
        // At home too, as the timer of its pings begins with it.
        let handshake = async move { builder.handshake(stream).await };
        let (sender, connection) = home.run(handshake).await??;
        home.execute(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to the API server broke");
            }
        });
        Ok(Some(sender))
    }
}

impl LaneSet {
    /// A place on the first lane that has one, so that later lanes run empty.
    fn acquire(self: &Arc<Self>) -> Option<(SendRequest<Body>, Place)> {
        let mut state = self.0.lock();
        state.lanes.retain(|lane| !lane.sender.is_closed());
        let free = |lane: &&mut Lane| lane.in_flight < LANE_REQUESTS;
        let lane = state.lanes.iter_mut().find(free)?;
        lane.in_flight += 1;
        Some((lane.sender.clone(), self.place(lane.id)))
    }

    fn add(self: &Arc<Self>, sender: SendRequest<Body>) -> (SendRequest<Body>, Place) {
        let mut state = self.0.lock();
        state.opened += 1;
        let id = state.opened;
        state.lanes.push(Lane {
            id,
            sender: sender.clone(),
            in_flight: 1,
        });
        (sender, self.place(id))
    }

    fn place(self: &Arc<Self>, lane: u64) -> Place {
        Place {
            set: Arc::clone(self),
            lane,
        }
    }

    /// Frees a place, and drops the lane when it is idle and the others have room enough.
    fn release(&self, id: u64) {
        let mut state = self.0.lock();
        let Some(index) = state.lanes.iter().position(|lane| lane.id == id) else {
            return;
        };
        state.lanes[index].in_flight -= 1;
        let others = state.lanes.iter().filter(|lane| lane.id != id);
        let spare: usize = others.map(|lane| LANE_REQUESTS - lane.in_flight).sum();
        if state.lanes[index].in_flight == 0 && spare >= SPARE_PLACES {
            state.lanes.remove(index);
        }
    }
}

impl Place {
    /// Lets no further request onto this lane.
    pub(super) fn close_lane(&self) {
        let mut state = self.set.0.lock();
        state.lanes.retain(|lane| lane.id != self.lane);
    }

    /// `body`, which holds the place until it is dropped.
    pub(super) fn hold_by(self, body: Incoming) -> GuardedBody<Incoming, Self> {
        GuardedBody::new(body, self)
    }
}

impl BodyGuard for Place {}

impl Drop for Place {
    fn drop(&mut self) {
        self.set.release(self.lane);
    }
}
