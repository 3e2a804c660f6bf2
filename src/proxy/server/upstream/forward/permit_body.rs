//! Bodies of forwarded lists that hold a permit. The permit is released when the API server has
//! sent everything, and also when the client reads too slowly. In the second case the list is
//! broken off, so that a few clients that stop reading do not block all others.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::SizeHint;
use kubefan_core::body;
use kubefan_core::body::{Body, BoxError};
use kubefan_core::shutdown::Shutdown;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use crate::server::deliver::PolledFrame;

/// The longest time that the client may leave received bytes unread.
const STALL_LIMIT: Duration = Duration::from_secs(10);

/// The error of a body that was read too slowly, or took too long in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the list was broken off: it was read too slowly")]
struct BrokenOff;

/// A body with a permit. A background task takes the permit away when the time of the body is over.
struct PermitBody {
    transfer: Arc<Mutex<Option<Transfer>>>,
    has_ended: bool,
}

/// An answer that the API server is still sending.
struct Transfer {
    body: Body,
    _permit: OwnedSemaphorePermit,
    deadline: Instant,
    /// When the client took the last frame; `None` while it waits for the API server.
    unread_since: Option<Instant>,
    waker: Option<Waker>,
}

/// Makes the body of `response` hold `permit` until the API server has sent all of it. The body is
/// broken off at `deadline`, or if the client leaves it unread for 10 s.
pub(super) fn with_permit(
    response: Response<Body>,
    permit: OwnedSemaphorePermit,
    deadline: Instant,
    shutdown: &Shutdown,
) -> Response<Body> {
    response.map(|body| {
        let transfer = Arc::new(Mutex::new(Some(Transfer {
            body,
            _permit: permit,
            deadline,
            unread_since: Some(Instant::now()),
            waker: None,
        })));
        shutdown.spawn_background(break_off_when_due(Arc::downgrade(&transfer)));
        body::boxed(PermitBody {
            transfer,
            has_ended: false,
        })
    })
}

/// Drops the transfer together with its permit when its time is over.
async fn break_off_when_due(transfer: Weak<Mutex<Option<Transfer>>>) {
    loop {
        let next = {
            let Some(transfer) = transfer.upgrade() else {
                return;
            };
            let mut transfer = transfer.lock();
            let Some(due) = transfer.as_ref().map(Transfer::due) else {
                return;
            };
            if due > Instant::now() {
                Ok(due)
            } else {
                Err(transfer.take())
            }
        };
        match next {
            Ok(due) => sleep_until(due).await,
            Err(broken) => {
                let waker = broken.and_then(|broken| broken.waker);
                waker.into_iter().for_each(Waker::wake);
                return;
            }
        }
    }
}

// === impl Transfer ===

impl Transfer {
    /// Returns the time at which the transfer is broken off, unless the client reads on.
    fn due(&self) -> Instant {
        let since = self.unread_since.unwrap_or_else(Instant::now);
        self.deadline.min(since + STALL_LIMIT)
    }
}

// === impl PermitBody ===

impl http_body::Body for PermitBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let this = self.get_mut();
        if this.has_ended {
            return Poll::Ready(None);
        }
        let mut guard = this.transfer.lock();
        let Some(transfer) = guard.as_mut() else {
            this.has_ended = true;
            return Poll::Ready(Some(Err(BrokenOff.into())));
        };
        transfer.unread_since = None;
        transfer.waker = Some(cx.waker().clone());
        let frame = ready!(Pin::new(&mut transfer.body).poll_frame(cx));
        transfer.unread_since = Some(Instant::now());
        this.has_ended = !matches!(frame, Some(Ok(_))) || transfer.body.is_end_stream();
        let sent = guard.take_if(|_| this.has_ended);
        drop(guard);
        drop(sent);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let transfer = self.transfer.lock();
        let is_end = |transfer: &Transfer| transfer.body.is_end_stream();
        self.has_ended || transfer.as_ref().is_some_and(is_end)
    }

    fn size_hint(&self) -> SizeHint {
        let transfer = self.transfer.lock();
        let hint = transfer.as_ref().map(|transfer| transfer.body.size_hint());
        match hint {
            Some(hint) => hint,
            None if self.has_ended => SizeHint::with_exact(0),
            None => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{StreamExt, stream};
    use http_body::{Body as _, Frame};
    use http_body_util::{BodyExt, StreamBody};
    use kubefan_core::shutdown;
    use tokio::sync::Semaphore;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    /// Returns a body of `chunks` that never ends, and a semaphore. The body holds its only permit.
    fn endless(chunks: usize) -> (Body, Arc<Semaphore>) {
        let frames = stream::repeat_with(|| Ok::<_, Infallible>(Frame::data(Bytes::from("x"))));
        let frames = frames.take(chunks).chain(stream::pending());
        limited(body::boxed(StreamBody::new(frames)))
    }

    fn limited(body: Body) -> (Body, Arc<Semaphore>) {
        let semaphore = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&semaphore).try_acquire_owned().expect("free");
        let shutdown = Shutdown::new(shutdown::Config::default());
        let deadline = Instant::now() + DEADLINE;
        let response = with_permit(Response::new(body), permit, deadline, &shutdown);
        (response.into_body(), semaphore)
    }

    /// Waits for a permit of `semaphore`, and returns how long it took.
    async fn released_after(semaphore: &Semaphore) -> Duration {
        let began = Instant::now();
        let _permit = semaphore.acquire().await.expect("open");
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_answer_releases_the_permit() {
        let (mut body, semaphore) = limited(body::full("list"));
        assert_eq!(body.size_hint().exact(), Some(4));
        assert_eq!(semaphore.available_permits(), 0);
        let frame = body.frame().await.expect("a frame").expect("no error");
        assert_eq!(frame.into_data().expect("data"), "list");
        assert_eq!(
            semaphore.available_permits(),
            1,
            "the API server has sent all"
        );
        assert!(body.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_the_answer_releases_the_permit() {
        let (body, semaphore) = endless(1);
        drop(body);
        assert_eq!(semaphore.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_reading_loses_the_answer() {
        let (mut body, semaphore) = endless(3);
        body.frame().await.expect("a frame").expect("no error");
        assert_eq!(released_after(&semaphore).await, STALL_LIMIT);
        let error = body.frame().await.expect("an error").expect_err("cut off");
        assert!(error.is::<BrokenOff>(), "{error}");
        assert!(body.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_drop_by_drop_loses_the_answer_at_the_deadline() {
        let (mut body, semaphore) = endless(usize::MAX);
        let reader = async {
            loop {
                match body.frame().await.expect("no end") {
                    Ok(_) => tokio::time::sleep(STALL_LIMIT / 2).await,
                    Err(error) => return error,
                }
            }
        };
        let (error, held_for) = tokio::join!(reader, released_after(&semaphore));
        assert!(error.is::<BrokenOff>(), "{error}");
        assert_eq!(held_for, DEADLINE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_for_the_api_server_is_not_slow_until_the_deadline() {
        let (mut body, semaphore) = endless(1);
        body.frame().await.expect("a frame").expect("no error");
        let (frame, held_for) = tokio::join!(body.frame(), released_after(&semaphore));
        frame.expect("an error").expect_err("woken and cut off");
        assert_eq!(held_for, DEADLINE);
    }
}
