//! One stream of an HTTP/2 connection: a request and its answer.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Method, Request, Response};
use http_body::Body;
use kubefan_core::body::BoxError;
use pin_project_lite::pin_project;

use super::answer::{Answer, reason_of};
use super::head;
use crate::net::Transport;
use crate::net::output::answer_body::AnswerBody;
use crate::net::output::data_frames::DataFrames;

pin_project! {
    /// Waits for the answer to a request, and sends it. Completes when the answer was passed on, or
    /// the stream was reset.
    #[project = RequestStreamProjection]
    pub(super) enum RequestStream<F, B, I> {
        /// The service works on the request.
        Waiting {
            #[pin]
            service: F,
            responder: Responder<I>,
        },
        Sending { answer: Answer<B, I> },
    }
}

/// What sends the head of an answer.
pub(super) struct Responder<I> {
    respond: SendResponse<Bytes>,
    data_frames: DataFrames<I>,
    /// True if the request is a GET that was received completely.
    is_complete_get: bool,
}

// === impl RequestStream ===

impl<F, B, I> RequestStream<F, B, I> {
    pub(super) fn new(service: F, responder: Responder<I>) -> Self {
        Self::Waiting { service, responder }
    }
}

impl<F, B, I, E> Future for RequestStream<F, B, I>
where
    F: Future<Output = Result<Response<AnswerBody<B>>, E>>,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    I: Transport,
    E: Into<BoxError>,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let answer = match self.as_mut().project() {
                RequestStreamProjection::Waiting { service, responder } => {
                    match service.poll(cx) {
                        Poll::Ready(Ok(answer)) => responder.send(answer, cx.waker()),
                        Poll::Ready(Err(error)) => {
                            let error: BoxError = error.into();
                            responder.respond.send_reset(reason_of(error.as_ref()));
                            None
                        }
                        // A failure is the end of the connection, which reports it.
                        Poll::Pending => return responder.respond.poll_reset(cx).map(drop),
                    }
                }
                RequestStreamProjection::Sending { answer } => return answer.poll(cx),
            };
            let Some(answer) = answer else {
                return Poll::Ready(());
            };
            self.set(Self::Sending { answer });
        }
    }
}

// === impl Responder ===

impl<I: Transport> Responder<I> {
    pub(super) fn new(
        request: &Request<RecvStream>,
        respond: SendResponse<Bytes>,
        data_frames: DataFrames<I>,
    ) -> Self {
        let is_complete_get = request.method() == Method::GET && request.body().is_end_stream();
        Self {
            respond,
            data_frames,
            is_complete_get,
        }
    }

    /// Sends the head of an answer. Returns the rest; `None` if there is none, or the stream was
    /// reset. `waker` wakes the stream.
    fn send<B: Body + Unpin>(
        &mut self,
        answer: Response<AnswerBody<B>>,
        waker: &Waker,
    ) -> Option<Answer<B, I>> {
        let (mut head, body) = answer.into_parts();
        head::complete(&mut head.headers, &body);
        let is_long =
            self.is_complete_get && head::is_open_ended(head.status, &head.headers, &body);
        let stream = self.respond.stream_id().as_u32();
        let data_frames = is_long.then(|| self.data_frames.take_over(stream, waker.clone()));
        let has_ended = body.is_end_stream();
        let head = Response::from_parts(head, ());
        match self.respond.send_response(head, has_ended) {
            Ok(_) if has_ended => None,
            Ok(stream) => Some(Answer::new(stream, body, data_frames.flatten())),
            // The stream was reset already, or `h2` refuses the head.
            Err(_) => {
                self.respond.send_reset(Reason::INTERNAL_ERROR);
                None
            }
        }
    }
}
