//! Builds the bodies of answers: chunks of shared bytes, bursts of events, gzip, and WebSockets.

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
pub(crate) use chunks::GZIP_THRESHOLD;
pub(crate) use gzip::GzipBody;
pub(crate) use gzip::GzipCache;
pub(crate) use gzip::GzipCacheMetrics;
pub(crate) use gzip::ListKey;
pub(crate) use gzip::SharedList;
pub(crate) use gzip::client_accepts_gzip;
pub(crate) use gzip::with_gzip_headers;
pub(crate) use watch_body::WatchBody;
pub(crate) use watch_body::WatchSource;
#[cfg(test)]
pub(crate) use watch_body::without_jitter;
pub(crate) use websocket::over_websocket;

/// Header that names the method by which the cache was proven to have the most recent state.
const PROOF: HeaderName = HeaderName::from_static("x-kubefan-proof");

/// How the answer to a read is encoded and sent.
pub(super) struct Delivery<'a> {
    representation: Representation,
    /// Compresses long lists; `None` if the client does not accept gzip.
    gzip_cache: Option<&'a GzipCache>,
    /// True for HTTP/2, in which sending a frame costs as much as copying some KiB.
    is_http2: bool,
    /// Whether each event of a watch is a frame of its own, even if several events are waiting.
    /// Over a WebSocket each event is one message.
    pub(super) one_event_per_frame: bool,
}

impl<'a> Delivery<'a> {
    /// The delivery of the answer to `request`.
    pub(super) fn of(
        request: &Request<Body>,
        representation: Representation,
        is_websocket: bool,
        gzip_cache: &'a GzipCache,
    ) -> Self {
        Self {
            representation,
            gzip_cache: client_accepts_gzip(request).then_some(gzip_cache),
            is_http2: request.version() == Version::HTTP_2,
            one_event_per_frame: is_websocket,
        }
    }

    /// A delivery without compression. Each part of the answer, and each watch event, is sent as a
    /// frame of its own.
    pub(super) fn plain(representation: Representation) -> Self {
        Self {
            representation,
            gzip_cache: None,
            is_http2: false,
            one_event_per_frame: true,
        }
    }

    /// A body of `parts`, which have `length` bytes in total. It is indented if the client
    /// requested indented JSON.
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

    /// The response whose body is `chunks`. For HTTP/2, short parts are copied into one frame.
    pub(super) fn answer<P>(&self, chunks: Chunks<P>) -> Response<Body>
    where
        P: Iterator<Item = Bytes> + Send + Unpin + 'static,
    {
        self.response(if self.is_http2 {
            chunks.gathered()
        } else {
            chunks.boxed()
        })
    }

    /// True if the client accepts gzip, so that it can share compressed lists with other clients.
    pub(super) fn shares_lists(&self) -> bool {
        self.gzip_cache.is_some()
    }

    /// The compressed list of `key`, if another client asked for it recently.
    pub(super) fn shared_list(&self, key: &ListKey) -> Option<SharedList> {
        self.gzip_cache?.get(key)
    }

    /// The response with the list in `chunks`. If the client accepts gzip, a long list with a `key`
    /// is compressed once, and all requests with an equal key share the result.
    pub(super) fn list(
        &self,
        key: Option<ListKey>,
        chunks: Chunks<ListParts>,
        has_more: bool,
    ) -> Response<Body> {
        match (self.gzip_cache, key) {
            (Some(gzip_cache), Some(key)) if chunks.is_long() => {
                self.compressed(gzip_cache.compress(key, chunks, has_more))
            }
            _ => self.answer(chunks),
        }
    }

    /// The response with `body`, which is gzip already.
    pub(super) fn compressed(&self, body: Body) -> Response<Body> {
        with_gzip_headers(self.response(body))
    }

    /// The response to a WATCH, with the events of `stream`.
    pub(super) fn watch(&self, stream: WatchBody) -> Response<Body> {
        self.watch_response(body::boxed(YieldingBody::new(stream)))
    }

    /// The response to a WATCH whose only event is `frame`.
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

/// Adds the header that names the proof's method to `answer`, if there was a proof.
pub(super) fn with_proof_header(
    mut answer: Response<Body>,
    method: Option<ProofMethod>,
) -> Response<Body> {
    let method = method.map(|method| match method {
        ProofMethod::Barrier => HeaderValue::from_static("barrier"),
        ProofMethod::VerificationList => HeaderValue::from_static("verification-list"),
        ProofMethod::InformerList => HeaderValue::from_static("informer-list"),
        ProofMethod::Recent => HeaderValue::from_static("recent"),
        ProofMethod::Any => HeaderValue::from_static("any"),
    });
    let headers = answer.headers_mut();
    headers.extend(method.map(|method| (PROOF, method)));
    answer
}
