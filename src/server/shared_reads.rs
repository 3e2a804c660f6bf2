//! Forwarded reads that are the same and wait at a time: one call to the API server for all who
//! came before it was sent.
//!
//! So each gets a state that is at least as new as its request, and a thousand who ask for one
//! object at once cost a few reads of etcd.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

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

use crate::upstream;
use crate::upstream::Body;
use crate::upstream::Error;
use crate::upstream::Forwarder;
use crate::upstream::GroupCommit;
use crate::upstream::Identity;

use super::request_info::RequestInfo;

/// A longer answer is not shared, so that it need not be kept in memory as a whole.
const SHARED_BYTES: usize = 16 << 20;
/// The headers by which two requests for one URL may be answered differently.
const THAT_MATTER: [header::HeaderName; 3] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
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
    Failed(Arc<Error>),
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
            && info.subresource.is_empty();
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
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The answer to `request`, whose key is `key`, from a call sent after this one. Cancel safe.
    ///
    /// # Errors
    ///
    /// When the API server can't be reached, or breaks off.
    pub(super) async fn forward(
        &self,
        key: ReadKey,
        request: Request<Body>,
    ) -> Result<Response<Body>, Arc<Error>> {
        let own = bodiless(&request);
        let used = self.inner.join(key);
        let asker = self.inner.askers.fetch_add(1, Ordering::Relaxed);
        let forwarder = self.inner.forwarder.clone();
        let call = move |askers: HashSet<u64>| call(forwarder, request, askers.len());
        let shared = used.group().join(asker, call).await;
        drop(used);
        match shared {
            Shared::Failed(error) => Err(error),
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
                let answer = self.inner.forwarder.forward(own, Identity::Kubefan).await;
                answer.map(|forwarded| forwarded.response).map_err(Arc::new)
            }
        }
    }
}

impl Inner {
    fn join(&self, key: ReadKey) -> Use<'_> {
        let group = Arc::clone(&self.reads.entry(key.clone()).or_default());
        Use {
            reads: &self.reads,
            key,
            group: Some(group),
        }
    }
}

fn call(forwarder: Forwarder, request: Request<Body>, askers: usize) -> BoxFuture<'static, Shared> {
    Box::pin(async move {
        let forwarded = forwarder.forward(request, Identity::Kubefan).await;
        match forwarded {
            Ok(forwarded) => shared(forwarded.response, askers).await,
            Err(error) => Shared::Failed(Arc::new(error)),
        }
    })
}

async fn shared(response: Response<Body>, askers: usize) -> Shared {
    if askers == 1 {
        return Shared::Alone(Arc::new(Mutex::new(Some(response))));
    }
    let (parts, body) = response.into_parts();
    let mut headers = parts.headers;
    // Each asker's own is put there instead.
    headers.remove(AUDIT_ID);
    match upstream::collect(body, SHARED_BYTES).await {
        Ok(body) => Shared::Whole {
            status: parts.status,
            headers: Arc::new(headers),
            body,
        },
        Err(Error::TooLarge { .. }) => Shared::TooLong,
        Err(error) => Shared::Failed(Arc::new(error)),
    }
}

fn whole(status: StatusCode, headers: &HeaderMap, body: Bytes) -> Response<Body> {
    let mut response = Response::new(upstream::full(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers.clone();
    response
}

fn bodiless(request: &Request<Body>) -> Request<Body> {
    let mut own = Request::new(upstream::empty());
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
