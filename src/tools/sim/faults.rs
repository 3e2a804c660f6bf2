//! Fault injection: failures of an API server, or of the network to it, on demand.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame};
use kubefan_core::api::{ResourceVersion, Status, WireFormat};
use kubefan_core::codec::Encoder;
use kubefan_proxy::net::BoxError;
use kubefan_proxy::server::Body;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::time::{Instant, Sleep};

/// A fault to inject into the next requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// The request gets 429, with this number of seconds in `Retry-After`.
    TooManyRequests(u32),
    /// The request gets 500.
    ServerError,
    /// The request gets the correct answer with the content type `text/html`.
    WrongContentType,
}

/// A fault to inject into all open watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// The watch's connection breaks between two frames.
    Drop,
    /// The watch sends an ERROR frame with 410 and ends.
    Gone,
    /// The watch sends half of the next frame, and then the connection breaks.
    HalfFrame,
    /// The watch sends half of the next frame and then nothing more; the connection stays open.
    Stall,
    /// The watch sends nothing more, not even bookmarks; the connection stays open.
    Silence,
}

/// Injects faults into requests and watches. Clones are cheap and share their state.
#[derive(Clone)]
pub struct FaultInjector {
    requests: Arc<Mutex<Option<(RequestFault, u32)>>>,
    watches: broadcast::Sender<WatchFault>,
    /// The delay before each frame of a watch, in milliseconds; 0 for none.
    delay: Arc<AtomicU64>,
    /// The end of the last cut by [`FaultInjector::go_away`]; every request before it is refused.
    away_until: Arc<Mutex<Option<Instant>>>,
}

type NextWatchFault =
    Pin<Box<dyn Future<Output = (broadcast::Receiver<WatchFault>, WatchFault)> + Send>>;

/// The body of a watch that accepts injected faults.
pub(super) struct FaultyBody {
    inner: Body,
    faults: FaultInjector,
    next_fault: NextWatchFault,
    state: StreamState,
    delayed: Option<(Pin<Box<Sleep>>, Bytes)>,
}

/// The state of a watch's body. `Faulty` holds what happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Healthy,
    Faulty(WatchFault),
    Ended,
}

// === impl FaultInjector ===

impl Default for FaultInjector {
    fn default() -> Self {
        Self {
            requests: Arc::default(),
            watches: broadcast::channel(16).0,
            delay: Arc::default(),
            away_until: Arc::default(),
        }
    }
}

impl FaultInjector {
    /// Injects `fault` into the next `count` requests for resources. Replaces an earlier request
    /// fault; 0 removes it.
    pub fn fail_requests(&self, fault: RequestFault, count: u32) {
        *self.requests.lock() = (count > 0).then_some((fault, count));
    }

    /// Injects `fault` into all open watches.
    pub fn fail_watches(&self, fault: WatchFault) {
        // Sending fails only if no watch is open, and then there is nothing to do.
        let _ = self.watches.send(fault);
    }

    /// Delays each frame of every watch by `delay`; zero ends the delay.
    pub fn slow_down(&self, delay: Duration) {
        let milliseconds = delay.as_millis().try_into().unwrap_or(u64::MAX);
        self.delay.store(milliseconds, Ordering::Relaxed);
    }

    /// Cuts the API server off for `duration`: breaks every open watch, and refuses every request
    /// with 503. Its objects may change during that time, as if other API servers went on. A
    /// duration of zero ends the cut.
    pub fn go_away(&self, duration: Duration) {
        *self.away_until.lock() = (!duration.is_zero()).then(|| Instant::now() + duration);
        if !duration.is_zero() {
            self.fail_watches(WatchFault::Drop);
        }
    }

    /// Returns how long the API server stays cut off; `None` if it answers.
    pub fn away_for(&self) -> Option<Duration> {
        let until = (*self.away_until.lock())?;
        let left = until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Takes the fault of the current request, if there is one, and counts the request.
    pub(super) fn take_request_fault(&self) -> Option<RequestFault> {
        let mut requests = self.requests.lock();
        let (fault, count) = (*requests)?;
        *requests = (count > 1).then_some((fault, count - 1));
        Some(fault)
    }

    /// Wraps the body of a watch, so that faults can be injected into it later.
    pub(super) fn wrap(&self, body: Body) -> FaultyBody {
        FaultyBody {
            inner: body,
            faults: self.clone(),
            next_fault: next_watch_fault(self.watches.subscribe()),
            state: StreamState::Healthy,
            delayed: None,
        }
    }
}

fn next_watch_fault(mut faults: broadcast::Receiver<WatchFault>) -> NextWatchFault {
    Box::pin(async move {
        loop {
            match faults.recv().await {
                Ok(fault) => return (faults, fault),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    })
}

impl RequestFault {
    /// Returns the Status of a request that fails; `None` if the request gets the correct answer.
    pub(super) fn status(self) -> Option<Status> {
        match self {
            Self::TooManyRequests(seconds) => {
                let message = "Too many requests, please try again later.";
                let mut status = Status::failure(429, "TooManyRequests", message);
                status.details = Some(kubefan_core::api::StatusDetails {
                    retry_after_seconds: seconds,
                    ..Default::default()
                });
                Some(status)
            }
            Self::ServerError => Some(Status::internal_error("an injected fault")),
            Self::WrongContentType => None,
        }
    }
}

// === impl FaultyBody ===

impl FaultyBody {
    fn take_fault(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready((receiver, fault)) = self.next_fault.as_mut().poll(cx) {
            self.next_fault = next_watch_fault(receiver);
            self.state = StreamState::Faulty(fault);
        }
    }

    /// Polls the wrapped body for its next frame, and delays the frame if a delay is set.
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            if let Some((sleep, bytes)) = &mut self.delayed {
                ready!(sleep.as_mut().poll(cx));
                let bytes = std::mem::take(bytes);
                self.delayed = None;
                return Poll::Ready(Some(Ok(bytes)));
            }
            let Some(frame) = ready!(Pin::new(&mut self.inner).poll_frame(cx)?) else {
                return Poll::Ready(None);
            };
            let Ok(bytes) = frame.into_data() else {
                continue;
            };
            match self.faults.delay.load(Ordering::Relaxed) {
                0 => return Poll::Ready(Some(Ok(bytes))),
                milliseconds => {
                    let delay = Duration::from_millis(milliseconds);
                    self.delayed = Some((Box::pin(tokio::time::sleep(delay)), bytes));
                }
            }
        }
    }
}

impl http_body::Body for FaultyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        this.take_fault(cx);
        loop {
            match this.state {
                StreamState::Ended => return Poll::Ready(None),
                StreamState::Faulty(WatchFault::Drop) => {
                    this.state = StreamState::Ended;
                    let error = std::io::Error::from(std::io::ErrorKind::ConnectionAborted);
                    return Poll::Ready(Some(Err(error.into())));
                }
                StreamState::Faulty(WatchFault::Gone) => {
                    this.state = StreamState::Ended;
                    return Poll::Ready(Some(Ok(Frame::data(gone_frame()))));
                }
                _ => {}
            }
            let Some(bytes) = ready!(this.poll_inner(cx)?) else {
                return Poll::Ready(None);
            };
            match this.state {
                // A silent watch still reads and drops its frames, so that it ends when the process
                // drains.
                StreamState::Faulty(WatchFault::Silence) => {}
                StreamState::Faulty(fault @ (WatchFault::HalfFrame | WatchFault::Stall)) => {
                    this.state = StreamState::Faulty(match fault {
                        WatchFault::HalfFrame => WatchFault::Drop,
                        _ => WatchFault::Silence,
                    });
                    let half = bytes.slice(..bytes.len() / 2);
                    return Poll::Ready(Some(Ok(Frame::data(half))));
                }
                _ => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
            }
        }
    }
}

fn gone_frame() -> Bytes {
    let status = Status::expired_watch(ResourceVersion(1), ResourceVersion(2));
    Encoder::new(WireFormat::Json, "", "").error(&status)
}
