//! Discovery, OpenAPI and `/version`: documents that change rarely, and that many clients read.
//!
//! Each request for a document is forwarded with the credentials of its caller, so the API server
//! decides which callers read the document. If kubefan has the document, the request also has its
//! `ETag` in `If-None-Match`. After a 304 the client gets the document from memory, and the API
//! server has neither rendered nor compressed nor sent it.
//!
//! Only if the API server does not answer, clients get documents from memory without it, with a
//! `Warning`. If callers are not authenticated, they get all documents. Otherwise they get those
//! that the API server let their user read while it answered, for as long as its decisions count.
//! So `kubectl` starts in an outage, and can read what the caches have. OpenAPI v3 has many
//! documents, and a client reads only those that it needs, so kubefan fetches all of them
//! (`prefetch`) after their index was read.

mod acceptable;
mod key;
mod memory;
mod prefetch;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body::SizeHint;
use key::{DocumentKey, VersionHash};
use kubefan_core::body;
use kubefan_core::body::{Body, BoxError};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use kubefan_core::upstream::Forwarder;
use memory::{Document, Memory};
use prefetch::Prefetch;
use prometheus::{IntCounter, IntCounterVec};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::identity::{AccessControl, Caller, UserKey};
use crate::ledger::{Account, Budget, GrowingCharge, MemoryKind};
use crate::server::answers::rescue::FailedForward;
use crate::server::deliver::PolledFrame;
use crate::server::request::{Exchange, RequestInfo};

/// Marks a document that may be out of date. Clients print it.
const OUTDATED: HeaderValue = HeaderValue::from_static(
    r#"299 - "kubefan: the API server does not answer; this document is the last one that it sent""#,
);

/// The statuses that an API server answers with while it shuts down, and a load balancer if no API
/// server answers.
const UNAVAILABLE: [StatusCode; 3] = [
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];

/// Number of documents that are received to be remembered at a time. Their received bytes are in
/// memory in addition to what their clients hold.
const MAX_RECEIVING: usize = 8;

/// Headers of a 304 that do not belong to the document.
const OF_THE_EMPTY_BODY: [http::HeaderName; 3] = [
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::TRANSFER_ENCODING,
];

/// The documents of the API server. Cheap to clone.
#[derive(Clone)]
pub(in crate::server) struct Documents {
    inner: Arc<Inner>,
}

struct Inner {
    memory: Memory,
    prefetch: Prefetch,
    /// Remembers what callers could read while the API server answered.
    access: AccessControl,
    /// Whether the API server itself serves the resources of a group and version.
    is_native: Box<IsNative>,
    /// A permit for each document that is being received to be remembered.
    receiving: Arc<Semaphore>,
    metrics: DocumentMetrics,
}

type IsNative = dyn Fn(&str, &str) -> bool + Send + Sync;

/// A request for a document.
pub(in crate::server) struct DocumentRequest {
    key: DocumentKey,
    hash: VersionHash,
    /// The account of the client's connection. A copy is charged to it while it is received.
    account: Option<Arc<Account>>,
    /// The `If-None-Match` that the client itself sent.
    condition: Option<HeaderValue>,
    /// The document that kubefan has offered to the API server by its `ETag`.
    offered: Option<Arc<Document>>,
    asked_at: Instant,
}

/// Metrics of the documents.
#[derive(Clone)]
pub(in crate::server) struct DocumentMetrics {
    answers: IntCounterVec,
    fetched: IntCounter,
}

/// A body that is remembered when all of it was received.
struct RememberedBody {
    body: Body,
    /// `None` when it is remembered, or if it is too long.
    receiving: Option<Receiving>,
}

struct Receiving {
    documents: Documents,
    request: DocumentRequest,
    /// The client's user; `None` if it has kubefan's rights.
    user: Option<UserKey>,
    _permit: OwnedSemaphorePermit,
    charge: GrowingCharge,
    headers: HeaderMap,
    chunks: Vec<Bytes>,
    length: usize,
}

// === impl Documents ===

impl Documents {
    /// Creates the documents, which are remembered within the budget. Those of OpenAPI v3 are
    /// fetched through `forwarder`. `access` remembers which callers may read them.
    /// `is_native(group, version)` is true if the API server itself serves these resources.
    pub(in crate::server) fn new(
        access: AccessControl,
        forwarder: Forwarder,
        is_native: impl Fn(&str, &str) -> bool + Send + Sync + 'static,
        (metrics, budget): (DocumentMetrics, Budget),
        shutdown: Shutdown,
    ) -> Self {
        let inner = Inner {
            memory: Memory::new(budget),
            prefetch: Prefetch::new(forwarder, shutdown),
            access,
            is_native: Box::new(is_native),
            receiving: Arc::new(Semaphore::new(MAX_RECEIVING)),
            metrics,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns the document that the request of `exchange` asks for, if it asks for one. Adds the
    /// `ETag` of the remembered document to the request.
    pub(in crate::server) fn request(&self, exchange: &mut Exchange) -> Option<DocumentRequest> {
        let Exchange { request, info, .. } = exchange;
        let (key, hash) = DocumentKey::of(request, info, &*self.inner.is_native)?;
        let account = exchange.client.account.clone();
        let headers = request.headers_mut();
        let condition = headers.get(header::IF_NONE_MATCH).cloned();
        let remembered = self.inner.memory.get(&key, &hash);
        // Without an ETag a 304 says only that the copy of the client is current, not that ours is.
        let offered =
            remembered.filter(|document| condition.is_none() && document.etag().is_some());
        if let Some(etag) = offered.as_ref().and_then(|document| document.etag()) {
            headers.insert(header::IF_NONE_MATCH, etag.clone());
        }
        Some(DocumentRequest {
            key,
            hash,
            account,
            condition,
            offered,
            asked_at: Instant::now(),
        })
    }

    /// Returns whether the `ETag` of a remembered document would be sent with `request`. Returns
    /// `None` if it asks for no document.
    pub(in crate::server) fn peek(
        &self,
        request: &Request<Body>,
        info: &RequestInfo,
    ) -> Option<bool> {
        let (key, hash) = DocumentKey::of(request, info, &*self.inner.is_native)?;
        let has_condition = request.headers().contains_key(header::IF_NONE_MATCH);
        Some(!has_condition && self.inner.memory.has_tagged(&key, &hash))
    }

    /// Returns the answer to `request`; `forwarded` is the result of forwarding it. A document is
    /// remembered if the caller is authenticated or has kubefan's rights. If the API server did not
    /// answer, the document is taken from memory. This requires that the caller has kubefan's
    /// rights, or could read the path when the API server last answered. A document that was sent
    /// for other headers will then do, if the request accepts its type.
    ///
    /// # Errors
    /// The error of `forwarded`.
    pub(in crate::server) fn answer(
        &self,
        request: DocumentRequest,
        forwarded: Result<Response<Body>, FailedForward>,
        caller: &Caller,
    ) -> Result<Response<Body>, FailedForward> {
        let has_our_rights = matches!(caller, Caller::Trusted);
        let is_outage = match &forwarded {
            Ok(response) => UNAVAILABLE.contains(&response.status()),
            Err(failed) => failed.is_outage,
        };
        if is_outage
            && let Some(document) = self.inner.memory.acceptable(&request.key, &request.hash)
            && (has_our_rights || self.could_read(&request, caller))
        {
            self.count("outage");
            return Ok(outdated(&document, request.condition.as_ref()));
        }
        let response = forwarded?;
        self.learn(&request, caller, response.status());
        let is_confirmed = response.status() == StatusCode::NOT_MODIFIED;
        if has_our_rights && (is_confirmed || response.status() == StatusCode::OK) {
            self.inner.prefetch.after(self, &request.key);
        }
        match &request.offered {
            Some(document) if is_confirmed => {
                self.count("confirmed");
                Ok(confirmed(document, response.headers()))
            }
            _ if response.status() == StatusCode::OK => {
                self.count("upstream");
                Ok(if caller.may_use_cache() {
                    self.remembering(request, response, caller.name_key())
                } else {
                    response
                })
            }
            _ => Ok(response),
        }
    }

    /// Evaluates the `status` of the API server's answer: remembers whether `caller` may read the
    /// path, or that its credentials were not accepted.
    fn learn(&self, request: &DocumentRequest, caller: &Caller, status: StatusCode) {
        let Some(caller) = caller.known() else {
            return;
        };
        let access = &self.inner.access;
        let was_allowed = match status {
            StatusCode::OK | StatusCode::NOT_MODIFIED => true,
            StatusCode::FORBIDDEN => false,
            // This is no decision about the user, because the user may have another token.
            StatusCode::UNAUTHORIZED => return access.not_accepted(caller),
            _ => return,
        };
        access.learn_path(caller, &request.key.path, was_allowed, request.asked_at);
    }

    fn could_read(&self, request: &DocumentRequest, caller: &Caller) -> bool {
        let access = &self.inner.access;
        caller
            .known()
            .is_some_and(|caller| access.could_read_path(caller, &request.key.path))
    }

    /// Returns `response` with a body that is remembered when all of it was received. The body
    /// stays as it is if many others are being received.
    fn remembering(
        &self,
        request: DocumentRequest,
        response: Response<Body>,
        user: Option<UserKey>,
    ) -> Response<Body> {
        let Ok(permit) = Arc::clone(&self.inner.receiving).try_acquire_owned() else {
            return response;
        };
        let (parts, body) = response.into_parts();
        let receiving = Receiving {
            documents: self.clone(),
            _permit: permit,
            charge: GrowingCharge::new(MemoryKind::Shared, request.account.clone()),
            request,
            user,
            headers: parts.headers.clone(),
            chunks: Vec::new(),
            length: 0,
        };
        let body = RememberedBody {
            body,
            receiving: Some(receiving),
        };
        Response::from_parts(parts, body::boxed(body))
    }

    fn count(&self, source: &str) {
        let answers = &self.inner.metrics.answers;
        answers.with_label_values(&[source]).inc();
    }
}

/// Makes `document` the answer to a request. `headers` are those of the 304 to this request.
fn confirmed(document: &Document, headers: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(body::full(document.body.clone()));
    let merged = response.headers_mut();
    *merged = document.headers.clone();
    for name in headers.keys() {
        if OF_THE_EMPTY_BODY.contains(name) {
            continue;
        }
        merged.remove(name);
        for value in headers.get_all(name) {
            merged.append(name, value.clone());
        }
    }
    response
}

/// Makes `document` the answer to a request that the API server did not answer. The answer is a 304
/// if the client has the document already.
fn outdated(document: &Document, condition: Option<&HeaderValue>) -> Response<Body> {
    let mut response = Response::new(body::full(document.body.clone()));
    *response.headers_mut() = document.headers.clone();
    if let (Some(etag), Some(condition)) = (document.etag(), condition)
        && has_tag(condition, etag)
    {
        *response.body_mut() = body::empty();
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        for name in OF_THE_EMPTY_BODY {
            response.headers_mut().remove(name);
        }
    }
    response.headers_mut().append(header::WARNING, OUTDATED);
    response
}

/// Returns true if `condition`, a value of `If-None-Match`, names `etag`. The comparison is the
/// weak one of RFC 9110, section 8.8.3.2.
fn has_tag(condition: &HeaderValue, etag: &HeaderValue) -> bool {
    let (Ok(condition), Ok(etag)) = (condition.to_str(), etag.to_str()) else {
        return false;
    };
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let is_same = |tag: &str| tag.trim() == "*" || opaque(tag) == opaque(etag);
    condition.split(',').any(is_same)
}

// === impl DocumentMetrics ===

impl DocumentMetrics {
    /// Registers the metrics in `registry`.
    pub(in crate::server) fn new(registry: &Registry) -> Self {
        Self {
            answers: registry.counter_vec(
                "kubefan_api_documents_total",
                "Answers with a discovery or OpenAPI document, by where its bytes came from: the \
                 API server (upstream), kubefan's memory after the API server has confirmed them \
                 (confirmed), or memory alone because the API server did not answer (outage).",
                &["source"],
            ),
            fetched: registry.counter(
                "kubefan_api_documents_fetched_total",
                "OpenAPI documents that kubefan has fetched for an outage, after a client has \
                 read their index.",
            ),
        }
    }
}

// === impl RememberedBody ===

impl Receiving {
    /// Adds a chunk. Returns false if the document is too long to be remembered, or if there is no
    /// memory for it.
    fn add(&mut self, chunk: &Bytes) -> bool {
        self.length += chunk.len();
        self.chunks.push(chunk.clone());
        self.length <= self.documents.inner.memory.max_document() && self.charge.fits(self.length)
    }

    /// Remembers the document, unless it ended before its announced length.
    fn finish(self) {
        let announced = self.headers.get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
        if announced.is_some_and(|announced: usize| announced != self.length) {
            return;
        }
        let body = match <[Bytes; 1]>::try_from(self.chunks) {
            Ok([whole]) => whole,
            Err(chunks) => chunks.concat().into(),
        };
        let request = self.request;
        let document = Document::new(&self.headers, body, request.hash);
        let memory = &self.documents.inner.memory;
        memory.put(request.key, document, self.user);
    }
}

impl http_body::Body for RememberedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let has_ended = match &frame {
            Some(Ok(frame)) => {
                let data = frame.data_ref();
                let receiving = self.receiving.as_mut();
                if let (Some(data), Some(receiving)) = (data, receiving)
                    && !receiving.add(data)
                {
                    self.receiving = None;
                }
                // A connection does not ask for more once it has the announced length.
                self.body.is_end_stream() || self.body.size_hint().exact() == Some(0)
            }
            Some(Err(_)) => {
                self.receiving = None;
                false
            }
            None => true,
        };
        if has_ended && let Some(receiving) = self.receiving.take() {
            receiving.finish();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // The end must be seen by `poll_frame` first, which remembers the document.
        self.receiving.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
