//! The answer that an HTTP/1.1 connection sends. The HTTP library polls its body, until the body is
//! taken from the library.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{CONNECTION, CONTENT_LENGTH, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use super::answer_body::AnswerBody;

/// The place of the current answer of a connection. Clones share it.
pub(in crate::net) struct AnswerSlot<B>(Arc<Mutex<Slot<B>>>);

/// The body in an [`AnswerSlot`], for the HTTP library. Dropping it drops the body that is in the
/// slot.
pub(in crate::net) struct SlotBody<B>(Arc<Mutex<Slot<B>>>);

struct Slot<B> {
    /// `None` if there is no answer, or its body was taken.
    body: Option<AnswerBody<B>>,
    /// True if the rest of the answer is nothing but chunks, and another request may follow.
    is_plain: bool,
    /// True if the last poll of the body was pending.
    is_waiting: bool,
}

/// Returns true if an answer to `request` may be sent as plain chunks: the request is complete, and
/// permits them without trailers, on a connection that persists.
pub(in crate::net) fn permits_plain_chunks<B: Body>(request: &Request<B>) -> bool {
    let headers = request.headers();
    request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && request.body().is_end_stream()
        && persists(headers)
        && !headers.contains_key(TE)
        && !headers.contains_key(UPGRADE)
}

fn persists(headers: &HeaderMap) -> bool {
    let mut fields = headers.get_all(CONNECTION).iter();
    fields.all(|field| field.as_bytes().eq_ignore_ascii_case(b"keep-alive"))
}

/// Returns true if the HTTP library sends `answer` as chunks, and not with a known length.
fn is_chunked<B: Body>(answer: &Response<B>) -> bool {
    let (headers, body) = (answer.headers(), answer.body());
    answer.status() == StatusCode::OK
        && !headers.contains_key(CONTENT_LENGTH)
        && !headers.contains_key(TRANSFER_ENCODING)
        && persists(headers)
        && !body.is_end_stream()
        && body.size_hint().exact().is_none()
}

// === impl AnswerSlot ===

impl<B: Body + Unpin> AnswerSlot<B> {
    /// Puts the body of `answer` into the slot. `is_permitted` is the result of
    /// [`permits_plain_chunks`].
    pub(in crate::net) fn put(
        &self,
        answer: Response<AnswerBody<B>>,
        is_permitted: bool,
    ) -> Response<SlotBody<B>> {
        let is_plain = is_permitted && is_chunked(&answer);
        let (head, body) = answer.into_parts();
        *self.0.lock() = Slot {
            body: Some(body),
            is_plain,
            is_waiting: false,
        };
        Response::from_parts(head, SlotBody(Arc::clone(&self.0)))
    }

    /// Takes the body if the answer is plain, and its body waits. The caller sends the rest of it.
    pub(in crate::net) fn take_waiting(&self) -> Option<AnswerBody<B>> {
        let mut slot = self.0.lock();
        let is_taken = slot.is_plain && slot.is_waiting;
        slot.body.take_if(|_| is_taken)
    }
}

impl<B> Default for AnswerSlot<B> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Slot {
            body: None,
            is_plain: false,
            is_waiting: false,
        })))
    }
}

impl<B> Clone for AnswerSlot<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

// === impl SlotBody ===

impl<B: Body + Unpin> Body for SlotBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut slot = self.0.lock();
        let Some(body) = &mut slot.body else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(body).poll_frame(cx);
        slot.is_waiting = polled.is_pending();
        polled
    }

    fn is_end_stream(&self) -> bool {
        let slot = self.0.lock();
        slot.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let slot = self.0.lock();
        slot.body
            .as_ref()
            .map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl<B> Drop for SlotBody<B> {
    fn drop(&mut self) {
        let body = self.0.lock().body.take();
        // Not under the lock, because this may run any code.
        drop(body);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::{Empty, Full};

    use super::*;

    #[test]
    fn a_request_that_is_complete_and_common_permits_plain_chunks() {
        for (method, version, headers, expected) in [
            ("GET", Version::HTTP_11, vec![], true),
            ("GET", Version::HTTP_11, vec![("accept", "x/y")], true),
            (
                "GET",
                Version::HTTP_11,
                vec![("connection", "Keep-Alive")],
                true,
            ),
            (
                "GET",
                Version::HTTP_11,
                vec![("connection", "close")],
                false,
            ),
            ("GET", Version::HTTP_11, vec![("te", "trailers")], false),
            ("GET", Version::HTTP_11, vec![("upgrade", "x")], false),
            ("GET", Version::HTTP_10, vec![], false),
            ("HEAD", Version::HTTP_11, vec![], false),
            ("POST", Version::HTTP_11, vec![], false),
        ] {
            let mut request = Request::builder().method(method).version(version);
            for (name, value) in &headers {
                request = request.header(*name, *value);
            }
            let request = request.body(Empty::<Bytes>::new()).expect("a request");
            let name = format!("{method} {version:?} {headers:?}");
            assert_eq!(permits_plain_chunks(&request), expected, "{name}");
        }
        let with_body = Request::new(Full::new(Bytes::from_static(b"x")));
        assert!(!permits_plain_chunks(&with_body));
    }
}
