//! A body wrapper that lets other tasks of its thread run.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::concurrency::CoopBudget;

/// A body that yields to other tasks after each `CoopBudget::UNITS` bytes.
///
/// A connection's task sends without a pause while the body has data and the peer accepts it. On a
/// fast network, a large body would delay every watch on that thread.
pub struct YieldingBody<B> {
    body: B,
    budget: CoopBudget,
}

impl<B> YieldingBody<B> {
    /// Wraps `body` with a full budget.
    pub fn new(body: B) -> Self {
        Self {
            body,
            budget: CoopBudget::new(),
        }
    }
}

impl<B> Body for YieldingBody<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        ready!(self.budget.poll_proceed(cx));
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_pending() {
            self.budget.renew();
        }
        let frame = ready!(polled);
        if let Some(Ok(frame)) = &frame {
            self.budget.charge(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::FutureExt;
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    #[tokio::test]
    async fn no_frame_is_lost_and_other_tasks_run_in_between() {
        let size = CoopBudget::UNITS / 4 + 1;
        let frames = (0..9_u8).map(|number| Ok(Frame::data(Bytes::from(vec![number; size]))));
        let frames: Vec<Result<_, Infallible>> = frames.collect();
        let stream = StreamBody::new(futures_util::stream::iter(frames));
        let mut body = YieldingBody::new(stream);
        let mut received = Vec::new();
        let mut polls = 1;
        loop {
            match body.frame().now_or_never() {
                None => polls += 1,
                Some(None) => break,
                Some(Some(frame)) => {
                    let data = frame.expect("no failure").into_data().expect("data");
                    assert_eq!(data.len(), size);
                    received.push(data[0]);
                }
            }
        }
        assert_eq!(received, (0..9).collect::<Vec<_>>());
        assert_eq!(polls, 3);
    }
}
