//! Shares forwarded reads: identical reads that wait at the same time get the answer of one call to
//! the API server, which is sent after all of them have arrived.
//!
//! So each client gets a state that is at least as new as its request, and a thousand clients that
//! read one object at the same time cost etcd only a few reads.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use http::HeaderValue;
use http::Method;
use http::Request;
use http::Response;
use http::StatusCode;
use http::Uri;
use http::header;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;

use crate::body;
use crate::body::Body;
use crate::body::guarded;
use crate::concurrency::CallSpacing;
use crate::concurrency::GroupCommit;
use crate::server::request::RequestInfo;
use crate::upstream;
use crate::upstream::Error;
use crate::upstream::Forwarder;
use crate::upstream::Identity;

/// Longest answer, in bytes, that is shared. A shared answer is kept in memory as a whole.
const MAX_SHARED_BYTES: usize = 16 << 20;
/// Upper limit of concurrent calls by callers whose answer was too long to be shared.
const MAX_OWN_CALLS: usize = 2;
/// Request headers on which the answer to a URL depends.
const VARYING_HEADERS: [header::HeaderName; 4] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::ORIGIN,
    // The user agent determines whether JSON is indented.
    header::USER_AGENT,
];
/// The answer to a request with one of these headers is not shared.
const UNSHAREABLE_HEADERS: [header::HeaderName; 6] = [
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];
const AUDIT_ID: &str = "audit-id";

/// Forwards reads with kubefan's identity; identical reads share a call. Cheap to clone.
#[derive(Clone)]
pub(super) struct SharedReads {
    inner: Arc<Inner>,
}

struct Inner {
    forwarder: Forwarder,
    /// A group for each read that at least one caller waits for.
    reads: DashMap<ReadKey, Arc<Group>>,
    /// Number of the next caller; callers are numbered so that a call knows how many share it.
    next_caller: AtomicU64,
    own_calls: Semaphore,
}

/// Why a shared read has no answer.
#[derive(Clone, Debug)]
pub(super) enum SharedReadError {
    /// The limit allows no more concurrent calls.
    TooMany,
    /// The API server can't be reached, or broke off its answer.
    Upstream(Arc<Error>),
}

type Group = GroupCommit<u64, CallResult>;

/// Everything that two reads must have in common to share an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ReadKey {
    uri: Uri,
    headers: Vec<Option<HeaderValue>>,
}

/// The result of a call.
#[derive(Clone)]
enum CallResult {
    /// The answer for a single caller, streamed as it arrives.
    Streamed(Arc<Mutex<Option<Response<Body>>>>),
    Buffered {
        status: StatusCode,
        headers: Arc<HeaderMap>,
        body: Bytes,
    },
    /// The answer is too long to share, so each caller makes a call of its own.
    TooLong,
    Failed(SharedReadError),
}

/// A caller's membership in a group. When the last one is dropped, the group is removed.
struct GroupMembership<'a> {
    reads: &'a DashMap<ReadKey, Arc<Group>>,
    key: ReadKey,
    group: Option<Arc<Group>>,
}

// === impl ReadKey ===

impl ReadKey {
    /// The key of `request`; `None` if its answer can't be shared: it is not a GET or LIST of whole
    /// objects (but a log, for example), or it has a header that makes its answer unique.
    pub(super) fn of<B>(request: &Request<B>, info: &RequestInfo) -> Option<Self> {
        let headers = request.headers();
        let is_read = *request.method() == Method::GET
            && info.is_resource_request
            && matches!(info.verb.as_str(), "get" | "list")
            && info.subresource.is_empty()
            && !upstream::is_upgrade(headers);
        let is_unshareable = UNSHAREABLE_HEADERS
            .iter()
            .any(|name| headers.contains_key(name));
        (is_read && !is_unshareable).then(|| Self {
            uri: request.uri().clone(),
            headers: VARYING_HEADERS
                .map(|name| headers.get(name).cloned())
                .into(),
        })
    }
}

// === impl SharedReads ===

impl SharedReads {
    /// Forwards through `forwarder`.
    pub(super) fn new(forwarder: Forwarder) -> Self {
        let inner = Inner {
            forwarder,
            reads: DashMap::new(),
            next_caller: AtomicU64::new(0),
            own_calls: Semaphore::new(MAX_OWN_CALLS),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The answer to `request`, whose key is `key`, from a call to the API server that is sent
    /// after this function was called. If `limit` has no free permit, fails instead of waiting.
    /// Cancel safe.
    ///
    /// # Errors
    ///
    /// [`SharedReadError`] if the call fails or has no permit.
    pub(super) async fn forward(
        &self,
        key: ReadKey,
        request: Request<Body>,
        limit: Option<Arc<Semaphore>>,
    ) -> Result<Response<Body>, SharedReadError> {
        let own_request = without_body(&request);
        let membership = self.inner.join(key);
        let caller = self.inner.next_caller.fetch_add(1, Ordering::Relaxed);
        let forwarder = self.inner.forwarder.clone();
        let call = move |callers: HashSet<u64>| call(forwarder, request, limit, callers.len());
        let shared = membership.group().join(caller, Duration::ZERO, call).await;
        drop(membership);
        match shared {
            CallResult::Failed(failed) => Err(failed),
            CallResult::Buffered {
                status,
                headers,
                body,
            } => Ok(buffered_response(status, &headers, body)),
            CallResult::Streamed(response) => match response.lock().take() {
                Some(response) => Ok(response),
                None => unreachable!("an answer for one caller was given to two"),
            },
            CallResult::TooLong => {
                let permit = self.inner.own_calls.acquire().await;
                let answer = self
                    .inner
                    .forwarder
                    .forward(own_request, Identity::Kubefan)
                    .await;
                drop(permit);
                let answer = answer.map(|forwarded| forwarded.response);
                answer.map_err(|error| SharedReadError::Upstream(Arc::new(error)))
            }
        }
    }
}

impl Inner {
    fn join(&self, key: ReadKey) -> GroupMembership<'_> {
        let group = Arc::clone(&self.reads.entry(key.clone()).or_insert_with(new_group));
        GroupMembership {
            reads: &self.reads,
            key,
            group: Some(group),
        }
    }
}

fn new_group() -> Arc<Group> {
    // Calls are never delayed: reading an object takes a few milliseconds, so any delay matters.
    Arc::new(Group::new(CallSpacing::default()))
}

fn call(
    forwarder: Forwarder,
    request: Request<Body>,
    limit: Option<Arc<Semaphore>>,
    callers: usize,
) -> BoxFuture<'static, CallResult> {
    Box::pin(async move {
        let permit = match limit.map(Semaphore::try_acquire_owned).transpose() {
            Ok(permit) => permit,
            Err(_) => return CallResult::Failed(SharedReadError::TooMany),
        };
        match forwarder.forward(request, Identity::Kubefan).await {
            Ok(forwarded) => share_response(forwarded.response, callers, permit).await,
            Err(error) => CallResult::Failed(SharedReadError::Upstream(Arc::new(error))),
        }
    })
}

/// Reads an answer for several callers completely; an answer for one caller is streamed. `permit`
/// is released when the API server has sent the whole answer.
async fn share_response(
    response: Response<Body>,
    callers: usize,
    permit: Option<OwnedSemaphorePermit>,
) -> CallResult {
    if callers == 1 {
        let response = guarded(response, permit);
        return CallResult::Streamed(Arc::new(Mutex::new(Some(response))));
    }
    let (parts, body) = response.into_parts();
    let mut headers = parts.headers;
    // Each caller's own audit ID is set later.
    headers.remove(AUDIT_ID);
    let collected = upstream::collect(body, MAX_SHARED_BYTES).await;
    drop(permit);
    match collected {
        Ok(body) => CallResult::Buffered {
            status: parts.status,
            headers: Arc::new(headers),
            body,
        },
        Err(Error::TooLarge { .. }) => CallResult::TooLong,
        Err(error) => CallResult::Failed(SharedReadError::Upstream(Arc::new(error))),
    }
}

fn buffered_response(status: StatusCode, headers: &HeaderMap, body: Bytes) -> Response<Body> {
    let mut response = Response::new(body::full(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers.clone();
    response
}

fn without_body(request: &Request<Body>) -> Request<Body> {
    let mut own_request = Request::new(body::empty());
    *own_request.method_mut() = request.method().clone();
    *own_request.uri_mut() = request.uri().clone();
    *own_request.headers_mut() = request.headers().clone();
    own_request
}

// === impl GroupMembership ===

impl GroupMembership<'_> {
    fn group(&self) -> &Group {
        self.group.as_ref().expect("taken out only on drop")
    }
}

impl Drop for GroupMembership<'_> {
    fn drop(&mut self) {
        self.group = None;
        // `remove_if` holds the lock of the entry, so no caller can join at the same time.
        self.reads
            .remove_if(&self.key, |_, group| Arc::strong_count(group) == 1);
    }
}
