//! Bodies that own a guard until they are dropped. The guard may end the body early.

use std::fmt::Display;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};

use crate::body;

/// A value that a [`GuardedBody`] owns until the body is dropped.
pub trait BodyGuard: Unpin {
    /// Returns `Ready` when the body must end, even if the inner body has more data.
    ///
    /// It is polled before each frame. The default is never ready.
    fn poll_end(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    /// Returns true while the inner body is not polled. It is asked after each
    /// [`poll_end`](Self::poll_end) that is pending, which must wake the body when this becomes
    /// false. The default is false.
    fn is_held(&self) -> bool {
        false
    }

    /// Is called with what the inner body has returned: a frame, its error, or `None` at its end.
    /// The default does nothing.
    fn passed(&mut self, _next: Option<Result<&Frame<Bytes>, &dyn Display>>) {}

    /// Is called before the body is dropped. `is_complete` returns true if the inner body has no
    /// more data. The default does nothing.
    fn body_dropped(&mut self, _is_complete: impl FnOnce() -> bool) {}
}

/// A body together with the guard that it owns.
pub struct GuardedBody<B: Body, G: BodyGuard> {
    body: B,
    guard: G,
    has_ended: bool,
}

impl<B: Body, G: BodyGuard> GuardedBody<B, G> {
    /// Wraps `body` so that it owns `guard`.
    pub fn new(body: B, guard: G) -> Self {
        Self {
            body,
            guard,
            has_ended: false,
        }
    }
}

impl<B: Body, G: BodyGuard> Drop for GuardedBody<B, G> {
    fn drop(&mut self) {
        self.guard.body_dropped(|| self.body.is_end_stream());
    }
}

/// Makes the body of `response` own `guard`; returns `response` unchanged if `guard` is `None`.
pub fn guarded<G>(response: Response<body::Body>, guard: Option<G>) -> Response<body::Body>
where
    G: BodyGuard + Send + 'static,
{
    match guard {
        Some(guard) => response.map(|body| body::boxed(GuardedBody::new(body, guard))),
        None => response,
    }
}

impl<B, G> Body for GuardedBody<B, G>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
    G: BodyGuard,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if this.has_ended {
            return Poll::Ready(None);
        }
        if this.guard.poll_end(cx).is_ready() {
            this.has_ended = true;
            return Poll::Ready(None);
        }
        if this.guard.is_held() {
            return Poll::Pending;
        }
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        if let Poll::Ready(next) = &polled {
            let next = next.as_ref().map(Result::as_ref);
            this.guard
                .passed(next.map(|next| next.map_err(|error| error as &dyn Display)));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Waker;

    use futures_util::{StreamExt, stream};
    use http_body_util::StreamBody;

    use super::*;

    #[test]
    fn a_guard_is_held_until_the_body_is_dropped() {
        let flag = Arc::new(AtomicBool::new(false));
        let guarded = GuardedBody::new(body::full("x"), Flag(Arc::clone(&flag)));
        assert_eq!(guarded.size_hint().exact(), Some(1));
        assert_eq!(Arc::strong_count(&flag), 2);
        drop(guarded);
        assert_eq!(Arc::strong_count(&flag), 1);
    }

    /// Holds the body back while the flag is set.
    struct Hold(Arc<AtomicBool>);

    impl BodyGuard for Hold {
        fn is_held(&self) -> bool {
            self.0.load(Ordering::Acquire)
        }
    }

    #[test]
    fn a_held_body_loses_nothing() {
        let flag = Arc::new(AtomicBool::new(true));
        let mut guarded = GuardedBody::new(body::full("x"), Hold(Arc::clone(&flag)));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut guarded).poll_frame(&mut cx).is_pending());
        flag.store(false, Ordering::Release);
        let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut guarded).poll_frame(&mut cx) else {
            panic!("no frame");
        };
        assert_eq!(frame.into_data().ok().as_deref(), Some(&b"x"[..]));
    }

    struct Flag(Arc<AtomicBool>);

    impl BodyGuard for Flag {
        fn poll_end(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
            if self.0.load(Ordering::Relaxed) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }
    }

    #[test]
    fn a_guard_ends_a_body_with_and_without_a_frame_ready() {
        let frame = || Ok::<_, std::io::Error>(Frame::data(Bytes::from("x")));
        let quiet = body::boxed(StreamBody::new(
            stream::iter([frame()]).chain(stream::pending()),
        ));
        let busy = body::boxed(StreamBody::new(stream::repeat_with(frame)));
        for (inner, is_busy) in [(quiet, false), (busy, true)] {
            check_guard(inner, is_busy);
        }
    }

    fn check_guard(inner: body::Body, is_busy: bool) {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut guarded = GuardedBody::new(inner, Flag(Arc::clone(&is_over)));
        let mut cx = Context::from_waker(Waker::noop());
        let mut poll = || Pin::new(&mut guarded).poll_frame(&mut cx);
        assert!(matches!(poll(), Poll::Ready(Some(Ok(_)))));
        assert_eq!(poll().is_ready(), is_busy);
        is_over.store(true, Ordering::Relaxed);
        assert!(matches!(poll(), Poll::Ready(None)));
        assert!(matches!(poll(), Poll::Ready(None)));
        assert!(guarded.is_end_stream());
    }
}
