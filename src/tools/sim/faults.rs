//! Faults on demand: what an API server, or the way to it, does on a bad day.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use http_body::Frame;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::time::Sleep;

use crate::api::ResourceVersion;
use crate::api::Status;
use crate::api::WireFormat;
use crate::codec::Encoder;
use crate::net::BoxError;
use crate::server::Body;

/// What happens to the next requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// 429, with so many seconds in `Retry-After`.
    TooManyRequests(u32),
    /// 500.
    ServerError,
    /// The right answer, called `text/html`.
    WrongContentType,
}

/// What happens to the watches that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// The connection breaks between two frames.
    Drop,
    /// An ERROR frame with 410, then the end.
    Gone,
    /// Half of the next frame, then the connection breaks.
    HalfFrame,
    /// Half of the next frame, then nothing, while the connection stays open.
    Stall,
    /// Nothing any more, not even a bookmark, while the connection stays open.
    Silence,
}

/// The faults that are asked for. Cheap to clone.
#[derive(Clone)]
pub struct FaultInjector {
    requests: Arc<Mutex<Option<(RequestFault, u32)>>>,
    watches: broadcast::Sender<WatchFault>,
    /// Milliseconds before each frame of a watch.
    delay: Arc<AtomicU64>,
}

type NextWatchFault =
    Pin<Box<dyn Future<Output = (broadcast::Receiver<WatchFault>, WatchFault)> + Send>>;

/// A watch's body that faults reach.
pub(super) struct FaultyBody {
    inner: Body,
    faults: FaultInjector,
    next_fault: NextWatchFault,
    state: StreamState,
    delayed: Option<(Pin<Box<Sleep>>, Bytes)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Healthy,
    Broken,
    Gone,
    /// Half of a frame is to be sent, then this follows.
    Half {
        breaks: bool,
    },
    Silent,
    Ended,
}

// === impl FaultInjector ===

impl Default for FaultInjector {
    fn default() -> Self {
        Self {
            requests: Arc::default(),
            watches: broadcast::channel(16).0,
            delay: Arc::default(),
        }
    }
}

impl FaultInjector {
    /// Lets the next `count` requests for resources fail so; none when it is 0.
    pub fn fail_requests(&self, fault: RequestFault, count: u32) {
        *self.requests.lock() = (count > 0).then_some((fault, count));
    }

    /// Does this to all watches that are open.
    pub fn fail_watches(&self, fault: WatchFault) {
        // Nobody watches: nobody is harmed.
        let _ = self.watches.send(fault);
    }

    /// Holds each frame of every watch back for so long; zero is no longer.
    pub fn slow_down(&self, delay: Duration) {
        let milliseconds = delay.as_millis().try_into().unwrap_or(u64::MAX);
        self.delay.store(milliseconds, Ordering::Relaxed);
    }

    /// The fault of the request that has come now, if it is to have one.
    pub(super) fn take_request_fault(&self) -> Option<RequestFault> {
        let mut requests = self.requests.lock();
        let (fault, count) = (*requests)?;
        *requests = (count > 1).then_some((fault, count - 1));
        Some(fault)
    }

    /// `body` with the faults that are going to be.
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
    /// The Status of the answer; `None` for the right answer.
    pub(super) fn status(self) -> Option<Status> {
        match self {
            Self::TooManyRequests(seconds) => {
                let message = "Too many requests, please try again later.";
                let mut status = Status::failure(429, "TooManyRequests", message);
                status.details = Some(crate::api::StatusDetails {
                    retry_after_seconds: seconds,
                    ..Default::default()
                });
                Some(status)
            }
            Self::ServerError => Some(Status::internal_error("a fault that was asked for")),
            Self::WrongContentType => None,
        }
    }
}

// === impl FaultyBody ===

impl FaultyBody {
    fn take_fault(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready((receiver, fault)) = self.next_fault.as_mut().poll(cx) {
            self.next_fault = next_watch_fault(receiver);
            self.state = match fault {
                WatchFault::Drop => StreamState::Broken,
                WatchFault::Gone => StreamState::Gone,
                WatchFault::HalfFrame => StreamState::Half { breaks: true },
                WatchFault::Stall => StreamState::Half { breaks: false },
                WatchFault::Silence => StreamState::Silent,
            };
        }
    }

    /// The next frame, after the delay that is asked for.
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            if let Some((sleep, bytes)) = &mut self.delayed {
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                let bytes = std::mem::take(bytes);
                self.delayed = None;
                return Poll::Ready(Some(Ok(bytes)));
            }
            let frame = match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
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
                StreamState::Broken => {
                    this.state = StreamState::Ended;
                    let error = std::io::Error::from(std::io::ErrorKind::ConnectionAborted);
                    return Poll::Ready(Some(Err(error.into())));
                }
                StreamState::Gone => {
                    this.state = StreamState::Ended;
                    return Poll::Ready(Some(Ok(Frame::data(gone_frame()))));
                }
                StreamState::Healthy | StreamState::Half { .. } | StreamState::Silent => {}
            }
            let bytes = match this.poll_inner(cx) {
                Poll::Ready(Some(Ok(bytes))) => bytes,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            };
            match this.state {
                // Taken off all the same: so the body ends when the process drains.
                StreamState::Silent => {}
                StreamState::Half { breaks } => {
                    this.state = if breaks {
                        StreamState::Broken
                    } else {
                        StreamState::Silent
                    };
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
