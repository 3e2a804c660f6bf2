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
const SHARED_BYTES: usize = 16 << 20;
/// Calls at a time by askers whose answer was too long to be shared.
const OWN_CALLS: usize = 2;
/// The headers by which two requests for one URL may be answered differently.
const THAT_MATTER: [header::HeaderName; 4] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::ORIGIN,
    // It decides whether JSON is indented.
    header::USER_AGENT,
];
/// With one of these, an answer is the asker's alone.
const PERSONAL: [header::HeaderName; 6] = [
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
    askers: AtomicU64,
    own_calls: Semaphore,
}

/// Why a read was not answered.
#[derive(Clone, Debug)]
pub(super) enum Failed {
    /// As many calls are under way as the limit allows.
    TooMany,
    /// The API server can't be reached, or broke off.
    Upstream(Arc<Error>),
}

type Group = GroupCommit<u64, Shared>;

/// What makes two reads the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ReadKey {
    uri: Uri,
    headers: Vec<Option<HeaderValue>>,
}

/// What came of a call.
#[derive(Clone)]
enum Shared {
    /// Of the only one who asked, as it comes.
    Alone(Arc<Mutex<Option<Response<Body>>>>),
    Whole {
        status: StatusCode,
        headers: Arc<HeaderMap>,
        body: Bytes,
    },
    /// Each has to ask for itself.
    TooLong,
    Failed(Failed),
}

/// Somebody's use of a group; the last one to end takes the group out.
struct Use<'a> {
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
        let is_personal = PERSONAL.iter().any(|name| headers.contains_key(name));
        (is_read && !is_personal).then(|| Self {
            uri: request.uri().clone(),
            headers: THAT_MATTER.map(|name| headers.get(name).cloned()).into(),
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
            askers: AtomicU64::new(0),
            own_calls: Semaphore::new(OWN_CALLS),
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
    /// [`Failed`].
    pub(super) async fn forward(
        &self,
        key: ReadKey,
        request: Request<Body>,
        limit: Option<Arc<Semaphore>>,
    ) -> Result<Response<Body>, Failed> {
        let own = bodiless(&request);
        let used = self.inner.join(key);
        let asker = self.inner.askers.fetch_add(1, Ordering::Relaxed);
        let forwarder = self.inner.forwarder.clone();
        let call = move |askers: HashSet<u64>| call(forwarder, request, limit, askers.len());
        let shared = used.group().join(asker, Duration::ZERO, call).await;
        drop(used);
        match shared {
            Shared::Failed(failed) => Err(failed),
            Shared::Whole {
                status,
                headers,
                body,
            } => Ok(whole(status, &headers, body)),
            Shared::Alone(response) => match response.lock().take() {
                Some(response) => Ok(response),
                None => unreachable!("an answer for one asker was given to two"),
            },
            Shared::TooLong => {
                let turn = self.inner.own_calls.acquire().await;
                let answer = self.inner.forwarder.forward(own, Identity::Kubefan).await;
                drop(turn);
                let answer = answer.map(|forwarded| forwarded.response);
                answer.map_err(|error| Failed::Upstream(Arc::new(error)))
            }
        }
    }
}

impl Inner {
    fn join(&self, key: ReadKey) -> Use<'_> {
        let group = Arc::clone(&self.reads.entry(key.clone()).or_insert_with(new_group));
        Use {
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
    askers: usize,
) -> BoxFuture<'static, Shared> {
    Box::pin(async move {
        let permit = match limit.map(Semaphore::try_acquire_owned).transpose() {
            Ok(permit) => permit,
            Err(_) => return Shared::Failed(Failed::TooMany),
        };
        match forwarder.forward(request, Identity::Kubefan).await {
            Ok(forwarded) => shared(forwarded.response, askers, permit).await,
            Err(error) => Shared::Failed(Failed::Upstream(Arc::new(error))),
        }
    })
}

/// `permit` is given up when the API server has done its part.
async fn shared(
    response: Response<Body>,
    askers: usize,
    permit: Option<OwnedSemaphorePermit>,
) -> Shared {
    if askers == 1 {
        let response = guarded(response, permit);
        return Shared::Alone(Arc::new(Mutex::new(Some(response))));
    }
    let (parts, body) = response.into_parts();
    let mut headers = parts.headers;
    // Each asker's own is put there instead.
    headers.remove(AUDIT_ID);
    let collected = upstream::collect(body, SHARED_BYTES).await;
    drop(permit);
    match collected {
        Ok(body) => Shared::Whole {
            status: parts.status,
            headers: Arc::new(headers),
            body,
        },
        Err(Error::TooLarge { .. }) => Shared::TooLong,
        Err(error) => Shared::Failed(Failed::Upstream(Arc::new(error))),
    }
}

fn whole(status: StatusCode, headers: &HeaderMap, body: Bytes) -> Response<Body> {
    let mut response = Response::new(body::full(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers.clone();
    response
}

fn bodiless(request: &Request<Body>) -> Request<Body> {
    let mut own = Request::new(body::empty());
    *own.method_mut() = request.method().clone();
    *own.uri_mut() = request.uri().clone();
    *own.headers_mut() = request.headers().clone();
    own
}

// === impl Use ===

impl Use<'_> {
    fn group(&self) -> &Group {
        self.group.as_ref().expect("taken out only when dropped")
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        self.group = None;
        // Under the entry's lock, where nobody can join.
        self.reads
            .remove_if(&self.key, |_, group| Arc::strong_count(group) == 1);
    }
}
