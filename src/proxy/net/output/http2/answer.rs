//! The body of an answer over HTTP/2 while it is sent.

use std::error::Error;
use std::iter::successors;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http::HeaderMap;
use http_body::{Body, Frame};
use kubefan_core::body::BoxError;

use crate::net::Transport;
use crate::net::output::answer_body::AnswerBody;
use crate::net::output::data_frames::StreamData;

/// A long answer that has taken this many bytes of its body waits until other streams of the
/// connection had their turn. Otherwise a body that always has data would fill the output each time
/// before them. It is half of the largest merged burst: so watches that are equally far behind take
/// one large burst in turn, and share it.
const MAX_TAKEN: usize = 8 << 10;

/// An answer whose head was passed on.
pub(super) enum Answer<B, I> {
    Short(ShortAnswer<B>),
    Long(LongAnswer<B, I>),
}

/// An answer whose data `h2` sends.
pub(super) struct ShortAnswer<B> {
    stream: SendStream<Bytes>,
    body: AnswerBody<B>,
    /// Data of the body that waits for the peer's window.
    data: Bytes,
}

/// An answer whose data is sent beside `h2`, which sends only its end. While the body waits, a poll
/// does not touch the memory of `h2`.
pub(super) struct LongAnswer<B, I> {
    data_frames: StreamData<I>,
    stream: SendStream<Bytes>,
    body: AnswerBody<B>,
    /// Data of the body that waits for the peer's window, or for room in the connection's output.
    data: Bytes,
}

/// The end of a body: its trailers, or its failure.
type End = Result<Option<HeaderMap>, BoxError>;

// === impl Answer ===

impl<B, I> Answer<B, I> {
    /// Creates an answer on `stream`. Its data is sent in `data_frames`, or by `h2` if they are
    /// `None`.
    pub(super) fn new(
        stream: SendStream<Bytes>,
        body: AnswerBody<B>,
        data_frames: Option<StreamData<I>>,
    ) -> Self {
        let data = Bytes::new();
        match data_frames {
            None => Self::Short(ShortAnswer { stream, body, data }),
            Some(data_frames) => Self::Long(LongAnswer {
                data_frames,
                stream,
                body,
                data,
            }),
        }
    }
}

impl<B, I> Answer<B, I>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    I: Transport,
{
    /// Sends what the body has and the peer takes. Ready when the rest was passed on, or the stream
    /// was reset.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            // If this fails, the stream or its connection has ended.
            Self::Short(answer) => answer.poll(cx).map(drop),
            Self::Long(answer) => answer.poll(cx),
        }
    }
}

// === impl ShortAnswer ===

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> ShortAnswer<B> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        // `h2` wakes a stream when it grants capacity, even the capacity that this poll asks for.
        // So it gets the stream's waker only when the poll is going to wait.
        let mut unwoken = Context::from_waker(Waker::noop());
        if self.stream.poll_reset(&mut unwoken)?.is_ready() {
            return Poll::Ready(Ok(()));
        }
        let sent = self.poll_send(cx);
        if sent.is_pending() && self.stream.poll_reset(cx)?.is_ready() {
            return Poll::Ready(Ok(()));
        }
        sent
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            if !self.data.is_empty() {
                ready!(self.poll_capacity(cx))?;
                let is_last = self.body.is_end_stream();
                self.stream.send_data(mem::take(&mut self.data), is_last)?;
                if is_last {
                    return Poll::Ready(Ok(()));
                }
            }
            match ready!(poll_data(&mut self.body, cx)) {
                Ok(data) if data.is_empty() => {}
                Ok(data) => {
                    // Not for all data: streams that wait with a part of the connection's window
                    // would keep it from those that could go on.
                    self.stream.reserve_capacity(1);
                    self.data = data;
                }
                Err(end) => return Poll::Ready(send_end(&mut self.stream, end)),
            }
        }
    }

    /// Waits until `h2` takes data. It takes all data then, and sends it as the windows permit.
    fn poll_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        while self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(granted) => granted?,
                None => return Poll::Ready(Err(Reason::STREAM_CLOSED.into())),
            };
        }
        Poll::Ready(Ok(()))
    }
}

// === impl LongAnswer ===

impl<B, I> LongAnswer<B, I>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    I: Transport,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Not before the output has room, so that a blocked connection takes nothing from bodies.
        let Ok(()) = ready!(self.data_frames.poll_ready()) else {
            return Poll::Ready(());
        };
        let mut taken = 0;
        loop {
            // Ready only when all data was written.
            if !self.data.is_empty() {
                let Ok(()) = ready!(self.data_frames.write(&mut self.data)) else {
                    return Poll::Ready(());
                };
            }
            if taken >= MAX_TAKEN {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match ready!(poll_data(&mut self.body, cx)) {
                Ok(data) => {
                    taken += data.len();
                    self.data = data;
                }
                Err(end) => {
                    // If this fails, the stream or its connection has ended.
                    let _ = send_end(&mut self.stream, end);
                    return Poll::Ready(());
                }
            }
        }
    }
}

/// Returns the next data of a body, or its end.
fn poll_data<B>(body: &mut AnswerBody<B>, cx: &mut Context<'_>) -> Poll<Result<Bytes, End>>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    loop {
        let frame = match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Err(Err(error.into()))),
            None => return Poll::Ready(Err(Ok(None))),
        };
        match frame.into_data().map_err(Frame::into_trailers) {
            Ok(data) => return Poll::Ready(Ok(data)),
            Err(Ok(trailers)) => return Poll::Ready(Err(Ok(Some(trailers)))),
            // Another kind of frame has no place in HTTP/2.
            Err(Err(_)) => {}
        }
    }
}

/// Ends the data of `stream`. A failure resets it.
fn send_end(stream: &mut SendStream<Bytes>, end: End) -> Result<(), h2::Error> {
    match end {
        Ok(None) => stream.send_data(Bytes::new(), true),
        Ok(Some(trailers)) => stream.send_trailers(trailers),
        Err(error) => {
            stream.send_reset(reason_of(error.as_ref()));
            Ok(())
        }
    }
}

/// Returns the reason of the reset after `error`: that of an error of HTTP/2 among its causes, such
/// as a reset by another server.
pub(super) fn reason_of(error: &(dyn Error + 'static)) -> Reason {
    let mut causes = successors(Some(error), |&cause| cause.source());
    let reason = causes.find_map(|cause| cause.downcast_ref::<h2::Error>()?.reason());
    reason.unwrap_or(Reason::INTERNAL_ERROR)
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    /// An error with a cause.
    #[derive(Debug)]
    struct Caused(h2::Error);

    impl fmt::Display for Caused {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "caused by {}", self.0)
        }
    }

    impl Error for Caused {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_reset_has_the_reason_of_its_cause() {
        let reset = || h2::Error::from(Reason::ENHANCE_YOUR_CALM);
        for (error, expected) in [
            (BoxError::from("no reason"), Reason::INTERNAL_ERROR),
            (reset().into(), Reason::ENHANCE_YOUR_CALM),
            (Caused(reset()).into(), Reason::ENHANCE_YOUR_CALM),
        ] {
            assert_eq!(reason_of(error.as_ref()), expected, "{error}");
        }
    }
}
