//! The response of a WATCH as a stream of decoded events.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use http_body::Body as _;
use tokio::time::Sleep;

use super::watch_liveness::OpenWatch;
use crate::api::{WatchEvent, WireFormat};
use crate::body::Body;
use crate::codec::{Decoder, FrameSplitter};
use crate::upstream::Error;

/// The largest event, in bytes. An object has at most about 1.5 MiB in etcd, but can be several
/// times as large in JSON.
const FRAME_LIMIT: usize = 64 << 20;

/// The stream of events of one watch; dropping it ends the watch.
///
/// The stream ends without an error if the response ends. Its last item is an error if the
/// connection broke, a frame was cut off or can't be decoded, or the watch outlived its time limit.
#[derive(Debug)]
pub struct WatchEvents {
    /// The response's body; `None` after the stream has ended.
    body: Option<Body>,
    splitter: FrameSplitter,
    decoder: Decoder,
    time_limit: Duration,
    overdue: Pin<Box<Sleep>>,
    /// Records the watch's liveness; `None` if it is not recorded.
    _open: Option<OpenWatch>,
}

impl WatchEvents {
    /// Creates a stream of the events in `body`, which must end within `time_limit`.
    pub(super) fn new(
        body: Body,
        format: WireFormat,
        decoder: Decoder,
        time_limit: Duration,
        open: Option<OpenWatch>,
    ) -> Self {
        Self {
            body: Some(body),
            splitter: FrameSplitter::new(format, FRAME_LIMIT),
            decoder,
            time_limit,
            overdue: Box::pin(tokio::time::sleep(time_limit)),
            _open: open,
        }
    }

    /// Returns the next event, or `None` if the stream has ended.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchEvent, Error>>> {
        let decode = |error: crate::codec::Error| Error::Decode(error.into());
        loop {
            let Some(body) = &mut self.body else {
                return Poll::Ready(None);
            };
            if let Some(frame) = self.splitter.next() {
                let event = frame.and_then(|frame| self.decoder.event(frame));
                return Poll::Ready(Some(event.map_err(decode)));
            }
            let Poll::Ready(received) = Pin::new(body).poll_frame(cx) else {
                ready!(self.overdue.as_mut().poll(cx));
                return Poll::Ready(Some(Err(Error::Timeout(self.time_limit))));
            };
            let chunk = match received {
                Some(Ok(frame)) => frame.into_data(),
                Some(Err(error)) => return Poll::Ready(Some(Err(Error::Transport(error)))),
                None => {
                    self.body = None;
                    let cut = self.splitter.finish().err();
                    return Poll::Ready(cut.map(|error| Err(decode(error))));
                }
            };
            if let Ok(chunk) = chunk {
                self.splitter.push(chunk);
            }
        }
    }
}

impl Stream for WatchEvents {
    type Item = Result<WatchEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let event = ready!(self.poll_event(cx));
        if matches!(event, None | Some(Err(_))) {
            self.body = None;
        }
        Poll::Ready(event)
    }
}
