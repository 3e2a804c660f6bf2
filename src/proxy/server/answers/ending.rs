//! Ending: passes the record of a request on when its answer has ended.

use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame};
use kubefan_core::body::{Body, BodyGuard, guarded};
use parking_lot::Mutex;

use super::consumers::Consumers;
use super::record::{End, Ended, Record};
use crate::ledger::Charge;

/// The end of one answer. When its last owner drops it, the record goes to its consumers. Its owner
/// is the body of the answer, or the task of an upgraded connection.
pub(in crate::server) struct Ending {
    consumers: Consumers,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Set when the head of the answer is known, if a consumer wants the record.
    record: Option<Record>,
    bytes: u64,
    end: Option<End>,
}

/// What the body of an answer owns until it is dropped. It is one guard, so that the events of a
/// watch pass through only one more body.
struct Sending {
    _charge: Option<Charge>,
    /// Boxed, because most answers have no consumer of their end.
    counted: Option<Box<Counted>>,
}

/// What was sent of an answer.
struct Counted {
    ending: Arc<Ending>,
    /// The length of all of the body, if it is known.
    length: Option<u64>,
    bytes: u64,
    end: Option<End>,
}

impl Ending {
    /// Creates the end of an answer, which `consumers` may want.
    pub(in crate::server) fn new(consumers: Consumers) -> Self {
        Self {
            consumers,
            state: Mutex::default(),
        }
    }

    /// Makes the consumers get `record` at the end.
    pub(in crate::server) fn begin(&self, record: Record) {
        self.consumers.began(&record);
        self.state.lock().record = Some(record);
    }

    /// Notes why the answer ends, unless another reason was noted before.
    pub(in crate::server) fn note(&self, end: End) {
        self.state.lock().end.get_or_insert(end);
    }

    /// Notes the bytes that were sent.
    pub(in crate::server) fn sent(&self, bytes: u64) {
        self.state.lock().bytes = bytes;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let State { record, bytes, end } = std::mem::take(self.state.get_mut());
        let Some(record) = record else {
            return;
        };
        let ended = Ended {
            bytes,
            lasted: record.arrival.began.elapsed(),
            end: end.unwrap_or(End::Complete),
        };
        self.consumers.ended(&record, &ended);
    }
}

/// Makes the body of `response` own `charge`, and count what is sent for `ending`. Without both it
/// returns `response` unchanged.
pub(in crate::server) fn sending(
    response: Response<Body>,
    charge: Option<Charge>,
    ending: Option<Arc<Ending>>,
) -> Response<Body> {
    if charge.is_none() && ending.is_none() {
        return response;
    }
    let length = response.body().size_hint().exact();
    let counted = ending.map(|ending| {
        Box::new(Counted {
            ending,
            length,
            bytes: 0,
            end: None,
        })
    });
    let sending = Sending {
        _charge: charge,
        counted,
    };
    guarded(response, Some(sending))
}

impl BodyGuard for Sending {
    fn passed(&mut self, next: Option<Result<&Frame<Bytes>, &dyn Display>>) {
        let Some(counted) = &mut self.counted else {
            return;
        };
        match next {
            Some(Ok(frame)) => counted.bytes += frame.data_ref().map_or(0, Bytes::len) as u64,
            Some(Err(error)) => counted.end = Some(End::Failed(error.to_string())),
            None => {
                counted.end.get_or_insert(End::Complete);
            }
        }
    }

    fn body_dropped(&mut self, is_complete: impl FnOnce() -> bool) {
        let Some(counted) = self.counted.take() else {
            return;
        };
        let Counted {
            ending,
            length,
            bytes,
            end,
        } = *counted;
        // The HTTP library does not ask for more after the announced length.
        let has_all = length == Some(bytes) || is_complete();
        let otherwise = if has_all {
            End::Complete
        } else {
            End::ClientGone
        };
        ending.sent(bytes);
        ending.note(end.unwrap_or(otherwise));
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures_util::{FutureExt, stream};
    use http_body_util::{BodyExt, StreamBody};
    use kubefan_core::body;

    use super::*;

    /// Sends the frames of a body, up to `most` of them, and returns what was noted at its end.
    fn sent(body: Body, most: usize) -> (u64, Option<End>) {
        let ending = Arc::new(Ending::new(Consumers::default()));
        let response = sending(Response::new(body), None, Some(Arc::clone(&ending)));
        let mut body = response.into_body();
        for _ in 0..most {
            if body.frame().now_or_never().flatten().is_none() {
                break;
            }
        }
        drop(body);
        let state = ending.state.lock();
        (state.bytes, state.end.clone())
    }

    fn frames(results: Vec<io::Result<&'static str>>) -> Body {
        let frames = results
            .into_iter()
            .map(|text| text.map(|text| Frame::data(text.into())));
        body::boxed(StreamBody::new(stream::iter(frames)))
    }

    #[test]
    fn the_bytes_and_the_end_of_a_body_are_noted() {
        let failed = || Err(io::Error::other("too slow"));
        let failure = End::Failed("too slow".to_owned());
        for (body, most, bytes, end) in [
            (body::empty(), 0, 0, End::Complete),
            // The HTTP library stops at the announced length.
            (body::full("four"), 1, 4, End::Complete),
            (body::full("four"), 0, 0, End::ClientGone),
            (frames(vec![Ok("one"), Ok("two")]), 3, 6, End::Complete),
            (frames(vec![Ok("one"), Ok("two")]), 1, 3, End::ClientGone),
            (frames(vec![Ok("one"), failed()]), 3, 3, failure),
        ] {
            assert_eq!(sent(body, most), (bytes, Some(end)), "{most} frames");
        }
    }

    #[test]
    fn the_first_reason_for_an_end_counts() {
        let ending = Ending::new(Consumers::default());
        ending.note(End::RightLost);
        ending.note(End::Complete);
        assert_eq!(ending.state.lock().end, Some(End::RightLost));
    }
}
