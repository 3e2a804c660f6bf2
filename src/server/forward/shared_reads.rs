//! Forwarded reads that are the same and wait at a time: one call to the API server for all who
//! came before it was sent.
//!
//! So each gets a state that is at least as new as its request, and a thousand who ask for one
//! object at once cost a few reads of etcd.

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

/// A longer answer is not shared, so that it need not be kept in memory as a whole.
const MAX_SHARED_BYTES: usize = 16 << 20;
/// Calls at a time by askers whose answer was too long to be shared.
const MAX_OWN_CALLS: usize = 2;
/// The headers by which two requests for one URL may be answered differently.
const VARYING_HEADERS: [header::HeaderName; 4] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::ORIGIN,
    // It decides whether JSON is indented.
    header::USER_AGENT,
];
/// With one of these, an answer is the asker's alone.
const UNSHAREABLE_HEADERS: [header::HeaderName; 6] = [
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];
const AUDIT_ID: &str = "audit-id";

/// Forwards reads as kubefan, the same ones together. Cheap to clone.
#[derive(Clone)]
pub(super) struct SharedReads {
    inner: Arc<Inner>,
}

struct Inner {
    forwarder: Forwarder,
    /// Those that somebody waits for.
    reads: DashMap<ReadKey, Arc<Group>>,
    /// Numbers the askers, so that a call knows for how many it is made.
    next_caller: AtomicU64,
    own_calls: Semaphore,
}

/// Why a read was not answered.
#[derive(Clone, Debug)]
pub(super) enum SharedReadError {
    /// As many calls are under way as the limit allows.
    TooMany,
    /// The API server can't be reached, or broke off.
    Upstream(Arc<Error>),
}

type Group = GroupCommit<u64, CallResult>;

/// What makes two reads the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ReadKey {
    uri: Uri,
    headers: Vec<Option<HeaderValue>>,
}

/// What came of a call.
#[derive(Clone)]
enum CallResult {
    /// Of the only one who asked, as it comes.
    Streamed(Arc<Mutex<Option<Response<Body>>>>),
    Buffered {
        status: StatusCode,
        headers: Arc<HeaderMap>,
        body: Bytes,
    },
    /// Each has to ask for itself.
    TooLong,
    Failed(SharedReadError),
}

/// Somebody's use of a group; the last one to end takes the group out.
struct GroupMembership<'a> {
    reads: &'a DashMap<ReadKey, Arc<Group>>,
    key: ReadKey,
    group: Option<Arc<Group>>,
}

// === impl ReadKey ===

impl ReadKey {
    /// `None` where an answer can't be shared: with others it is not the same request, or is
    /// answered as it comes, as logs are.
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

    /// The answer to `request`, whose key is `key`, from a call sent after this one. With `limit`,
    /// calls don't wait for its permits, but fail without. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`SharedReadError`].
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
                None => unreachable!("an answer for one asker was given to two"),
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
    // At once, always: an object is read in a few milliseconds, and its readers count them.
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

/// `permit` is given up when the API server has done its part.
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
    // Each asker's own is put there instead.
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
        self.group.as_ref().expect("taken out only when dropped")
    }
}

impl Drop for GroupMembership<'_> {
    fn drop(&mut self) {
        self.group = None;
        // Under the entry's lock, where nobody can join.
        self.reads
            .remove_if(&self.key, |_, group| Arc::strong_count(group) == 1);
    }
}
