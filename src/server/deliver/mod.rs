//! Bodies: how an answer's parts travel to its client.

mod chunks;
mod gzip;
mod merged;
mod watch_body;
mod websocket;

use bytes::Bytes;
use http::HeaderName;
use http::HeaderValue;
use http::Request;
use http::Response;
use http::Version;

use crate::body;
use crate::body::Body;
use crate::body::YieldingBody;
use crate::codec::ListParts;
use crate::codec::Representation;
use crate::informer::ProofMethod;

use super::rescue;

pub(crate) use chunks::Chunks;
pub(crate) use chunks::THRESHOLD;
pub(crate) use gzip::Found;
pub(crate) use gzip::Gzip;
pub(crate) use gzip::ListKey;
pub use gzip::RenderingMetrics;
pub(crate) use gzip::Renderings;
pub(crate) use gzip::announced;
pub(crate) use gzip::is_accepted;
pub(crate) use watch_body::WatchBody;
#[cfg(test)]
pub(crate) use watch_body::without_jitter;
pub(crate) use websocket::over_websocket;

/// Says how an answer from the cache was proven to be the most recent state.
const PROOF: HeaderName = HeaderName::from_static("x-kubefan-proof");

/// How the answer to a read travels to its client.
pub(super) struct Delivery<'a> {
    representation: Representation,
    /// Where long lists are compressed, if the client accepts that.
    renderings: Option<&'a Renderings>,
    /// In HTTP/2, where each frame of a body costs as much as some KiB.
    is_framed: bool,
    /// Each event of a watch is a frame of its own, even where several are there: over a WebSocket
    /// it is a message.
    pub(super) one_by_one: bool,
}

impl<'a> Delivery<'a> {
    /// Of the answer to `request`.
    pub(super) fn of(
        request: &Request<Body>,
        representation: Representation,
        is_websocket: bool,
        renderings: &'a Renderings,
    ) -> Self {
        Self {
            representation,
            renderings: is_accepted(request).then_some(renderings),
            is_framed: request.version() == Version::HTTP_2,
            one_by_one: is_websocket,
        }
    }

    /// Uncompressed, part by part.
    pub(super) fn plain(representation: Representation) -> Self {
        Self {
            representation,
            renderings: None,
            is_framed: false,
            one_by_one: true,
        }
    }

    /// `parts`, which are `length` bytes, as the client wants them.
    pub(super) fn chunks<P>(&self, parts: P, length: u64) -> Chunks<P>
    where
        P: Iterator<Item = Bytes> + Send + Unpin + 'static,
    {
        let chunks = Chunks::new(parts, length);
        if self.representation.indent {
            chunks.indented()
        } else {
            chunks
        }
    }

    /// The answer with `chunks`.
    pub(super) fn answer<P>(&self, chunks: Chunks<P>) -> Response<Body>
    where
        P: Iterator<Item = Bytes> + Send + Unpin + 'static,
    {
        self.response(if self.is_framed {
            chunks.gathered()
        } else {
            chunks.boxed()
        })
    }

    /// True when the client takes lists that are compressed for several.
    pub(super) fn shares_lists(&self) -> bool {
        self.renderings.is_some()
    }

    /// The list of `key`, if another client asked for it just now.
    pub(super) fn shared_list(&self, key: &ListKey) -> Option<Found> {
        self.renderings?.get(key)
    }

    /// The answer with a list of `chunks`: compressed for all who ask for the list of `key`, if it is
    /// long.
    pub(super) fn list(
        &self,
        key: Option<ListKey>,
        chunks: Chunks<ListParts>,
        has_more: bool,
    ) -> Response<Body> {
        match (self.renderings, key) {
            (Some(renderings), Some(key)) if chunks.is_long() => {
                self.compressed(renderings.render(key, chunks, has_more))
            }
            _ => self.answer(chunks),
        }
    }

    /// The answer with `body`, which is gzip.
    pub(super) fn compressed(&self, body: Body) -> Response<Body> {
        announced(self.response(body))
    }

    /// The answer with the stream of a watch.
    pub(super) fn watch(&self, stream: WatchBody) -> Response<Body> {
        self.watch_response(body::boxed(YieldingBody::new(stream)))
    }

    /// The answer with a watch that only has this `frame`.
    pub(super) fn watch_error(&self, frame: Bytes) -> Response<Body> {
        self.watch_response(body::full(frame))
    }

    fn watch_response(&self, body: Body) -> Response<Body> {
        rescue::answer(self.representation.format.watch_media_type(), body)
    }

    fn response(&self, body: Body) -> Response<Body> {
        rescue::answer(self.representation.format.media_type(), body)
    }
}

/// `answer` with how it was proven.
pub(super) fn with_proof(
    mut answer: Response<Body>,
    method: Option<ProofMethod>,
) -> Response<Body> {
    let method = method.map(|method| match method {
        ProofMethod::Barrier => HeaderValue::from_static("barrier"),
        ProofMethod::VerificationList => HeaderValue::from_static("verification-list"),
        ProofMethod::Recent => HeaderValue::from_static("recent"),
        ProofMethod::Any => HeaderValue::from_static("any"),
    });
    let headers = answer.headers_mut();
    headers.extend(method.map(|method| (PROOF, method)));
    answer
}
