//! The body of an answer, with the values that must live until the client has the answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

use super::abort::Answer;
use crate::ledger::RequestInProgress;
use crate::net::input::received::InProgress;
use crate::net::input::resets::Unanswered;

/// The body of an answer. The request counts as answered when the body is first polled: when its
/// head was passed on, and the output has room. A reset before this drops the body unpolled.
#[derive(Debug)]
pub(in crate::net) struct AnswerBody<B> {
    body: B,
    unanswered: Unanswered,
    /// Over HTTP/1.1, the state that an [`Abort`](crate::net::Abort) changes.
    answer: Option<Answer>,
    /// Over HTTP/1.1, notes that no head is read until the answer has ended.
    _in_progress: Option<InProgress>,
    /// `None` if the connection has no account.
    _counted: Option<RequestInProgress>,
}

impl<B: Body> AnswerBody<B> {
    pub(in crate::net) fn new(
        body: B,
        mut unanswered: Unanswered,
        answer: Option<Answer>,
        in_progress: Option<InProgress>,
    ) -> AnswerBody<B> {
        if body.is_end_stream() {
            // The head is the complete answer, and the body is not polled.
            unanswered.answer();
        }
        AnswerBody {
            body,
            unanswered,
            answer,
            _in_progress: in_progress,
            _counted: None,
        }
    }

    /// Counts the request as in progress until the body is dropped.
    pub(in crate::net) fn counted_as(
        mut self,
        counted: Option<RequestInProgress>,
    ) -> AnswerBody<B> {
        self._counted = counted;
        self
    }
}

impl<B: Body + Unpin> Body for AnswerBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.unanswered.answer();
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match (&polled, &self.answer) {
            // The answer was aborted, and its connection will be closed at once. Until then, the
            // client must not see a clean end.
            (Poll::Ready(None), Some(answer)) if !answer.end() => Poll::Pending,
            _ => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for AnswerBody<B> {
    fn drop(&mut self) {
        // The HTTP library does not poll for an end that the body has announced.
        if let Some(answer) = &self.answer {
            answer.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use super::*;
    use crate::net::input::resets::PeerLimit;

    #[tokio::test]
    async fn answers_do_not_count_as_resets() {
        let limit = Arc::new(PeerLimit::new(NonZeroU32::MIN, NonZeroU32::MIN));
        let unanswered = || Unanswered(Some(Arc::clone(&limit)));
        let text = |text: &str| http_body_util::Full::new(bytes::Bytes::from(text.to_owned()));
        for _ in 0..3 {
            drop(AnswerBody::new(text(""), unanswered(), None, None));
            let body = AnswerBody::new(text("x"), unanswered(), None, None);
            http_body_util::BodyExt::collect(body)
                .await
                .expect("a body");
        }
        assert_eq!(limit.pause(), None);
        drop(unanswered());
        assert_eq!(limit.pause(), None);
        drop(AnswerBody::new(text("x"), unanswered(), None, None));
        assert!(limit.pause().is_some());
    }
}
