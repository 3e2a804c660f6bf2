//! Shares forwarded reads: identical reads that wait concurrently get the answer of one call to the
//! API server, which is sent after all of them have arrived.
//!
//! Each client therefore gets a state that is at least as new as its request, and a thousand
//! clients that read one object concurrently cost etcd only a few reads.
//!
//! A shared answer is read completely, up to a limit. A longer answer is streamed to one of its
//! callers. The others, and all callers of this read during the next minute, make separate calls,
//! and only a few of these calls are made concurrently.

#![expect(
    clippy::mutable_key_type,
    reason = "callers are compared by their numbers, which do not change"
)]

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dashmap::DashMap;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use kubefan_core::body;
use kubefan_core::body::Body;
use kubefan_core::concurrency::{CallSpacing, GroupCommit};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::{Error, Forwarder, Identity};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::long_reads::LongReads;
use super::permit_body::with_permit;
use super::read_key::{AUDIT_ID, ReadKey};
use crate::ledger;
use crate::ledger::{Account, GrowingCharge, MemoryKind};
use crate::limit::Limit;
use crate::server::answers::rescue::Refused;
use crate::server::limits::in_flight::Seat;
use crate::traces::{RequestTrace, SharedCall, SpanContext, TRACEPARENT};

/// Longest answer, in bytes, that is shared. All of a shared answer is held in memory.
const MAX_SHARED_BYTES: usize = 16 << 20;
/// Length, in bytes, of the chunks in which the received part of a long answer is sent on. A slow
/// client must be able to read one chunk within the time for which it may leave bytes unread.
const CHUNK: usize = 64 << 10;
/// Longest time for a call and its answer. The API server itself breaks off a LIST after 60 s.
const CALL_TIMEOUT: Duration = Duration::from_secs(65);
/// How long a caller of a long read waits for one of the permits of the read.
const PERMIT_WAIT: Duration = Duration::from_secs(30);

/// Forwards reads with kubefan's identity; identical reads share a call. Cheap to clone.
#[derive(Clone)]
pub(super) struct SharedReads {
    inner: Arc<Inner>,
}

struct Inner {
    forwarder: Forwarder,
    shutdown: Shutdown,
    long_reads: LongReads,
    /// A group for each read that at least one caller waits for.
    reads: DashMap<ReadKey, Arc<Group>>,
    /// Number of the next caller.
    next_caller: AtomicU64,
}

/// Why a forwarded read has no answer.
#[derive(Clone, Debug)]
pub(super) enum ForwardError {
    /// kubefan refuses the request.
    Refused(Refused),
    /// The API server can't be reached, or broke off its answer.
    Upstream(Arc<Error>),
}

impl<R: Into<Refused>> From<R> for ForwardError {
    fn from(refused: R) -> Self {
        Self::Refused(refused.into())
    }
}

type Group = GroupCommit<WaitingCaller, CallResult>;

/// One caller of a read. Callers are equal only to themselves.
#[derive(Clone)]
struct WaitingCaller {
    number: u64,
    /// If set, a call for only this caller needs a permit.
    limit: Option<Arc<Semaphore>>,
    caller: SharingCaller,
}

/// What a caller adds to the call for its read.
#[derive(Clone, Default)]
pub(super) struct SharingCaller {
    /// The headers of a call for only this caller.
    pub(super) headers: HeaderMap,
    /// Set if the caller's request is recorded.
    pub(super) trace: Option<Arc<RequestTrace>>,
    /// The account of the caller's connection. A shared answer may be charged to it.
    pub(super) account: Option<Arc<Account>>,
}

/// The result of a call.
#[derive(Clone)]
enum CallResult {
    /// An answer that is streamed to one caller, because there is only one or because the answer is
    /// too long to be shared. In the second case the other callers make separate calls.
    Streamed {
        response: Arc<Mutex<Option<Response<Body>>>>,
        /// The span of the call, if it was for several callers.
        call: Option<SpanContext>,
    },
    Buffered {
        call: Option<SpanContext>,
        status: StatusCode,
        headers: Arc<HeaderMap>,
        body: Bytes,
    },
    Failed(ForwardError),
}

/// The first bytes of an answer: all of it, or a part and the rest.
pub(in crate::server) enum Beginning {
    Whole(Bytes),
    Part(Bytes, Body),
}

/// A caller's membership in a group. When the last one is dropped, the group is removed.
struct GroupMembership<'a> {
    reads: &'a DashMap<ReadKey, Arc<Group>>,
    key: ReadKey,
    group: Option<Arc<Group>>,
}

// === impl SharedReads ===

impl SharedReads {
    /// Creates the shared reads. Calls are made through `forwarder`.
    pub(super) fn new(forwarder: Forwarder, shutdown: Shutdown) -> Self {
        let inner = Inner {
            forwarder,
            shutdown,
            long_reads: LongReads::default(),
            reads: DashMap::new(),
            next_caller: AtomicU64::new(0),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns the answer to the read `key`, from a call to the API server that is sent after this
    /// function was called, and true if other callers get the answer of the same call. If all
    /// callers of the call have a `limit`, the call needs a permit of one of these limits, and fails
    /// instead of waiting if no permit is free. While a caller waits for a permit of a long read, it
    /// has no `seat`. An answer that several callers share is charged to the account of one of
    /// them; if there is no memory for the answer, it counts as too long to be shared. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`ForwardError`] if the call fails or has no permit.
    pub(super) async fn forward(
        &self,
        key: ReadKey,
        limit: Option<Arc<Semaphore>>,
        caller: SharingCaller,
        seat: Option<&mut Seat>,
    ) -> Result<(Response<Body>, bool), ForwardError> {
        let long_reads = &self.inner.long_reads;
        let trace = caller.trace.clone();
        let note = |call: Option<SpanContext>| {
            if let (Some(trace), Some(call)) = (&trace, call) {
                trace.shared(call);
            }
        };
        let caller = WaitingCaller {
            number: self.inner.next_caller.fetch_add(1, Ordering::Relaxed),
            limit,
            caller,
        };
        if let Some(permits) = long_reads.permits(&key) {
            let response = self.call_alone(&key, caller, permits, seat).await?;
            return Ok((response, false));
        }
        match self.shared_call(&key, caller.clone()).await {
            CallResult::Failed(failed) => Err(failed),
            CallResult::Buffered {
                call,
                status,
                headers,
                body,
            } => {
                note(call);
                Ok((buffered_response(status, &headers, body), true))
            }
            CallResult::Streamed { response, call } => {
                let response = response.lock().take();
                let response = match response {
                    Some(response) => {
                        note(call);
                        response
                    }
                    None => {
                        let permits = long_reads.remember(&key);
                        self.call_alone(&key, caller, permits, seat).await?
                    }
                };
                Ok((response, false))
            }
        }
    }

    /// Joins the call for `key` that is about to be sent, or makes one.
    async fn shared_call(&self, key: &ReadKey, caller: WaitingCaller) -> CallResult {
        let groups = &self.inner.reads;
        // Calls are never delayed: reading an object takes a few milliseconds, so any delay matters.
        let new_group = || Arc::new(Group::new(CallSpacing::default()));
        let group = Arc::clone(&groups.entry(key.clone()).or_insert_with(new_group));
        let membership = GroupMembership {
            reads: groups,
            key: key.clone(),
            group: Some(group),
        };
        let (reads, key) = (self.clone(), key.clone());
        let call = move |callers| reads.call_for(key, callers);
        membership.group().join(caller, Duration::ZERO, call).await
    }

    /// Makes the call for a group of callers.
    fn call_for(
        self,
        key: ReadKey,
        callers: HashSet<WaitingCaller>,
    ) -> BoxFuture<'static, CallResult> {
        Box::pin(async move {
            let result = self.try_call_for(&key, &callers).await;
            result.unwrap_or_else(CallResult::Failed)
        })
    }

    async fn try_call_for(
        &self,
        key: &ReadKey,
        callers: &HashSet<WaitingCaller>,
    ) -> Result<CallResult, ForwardError> {
        let permit = permit_for(callers)?;
        let deadline = Instant::now() + CALL_TIMEOUT;
        let mut each = callers.iter().map(|waiting| &waiting.caller);
        let single = each.next().filter(|_| each.next().is_none());
        let Some(single) = single else {
            let mut each = callers.iter().map(|waiting| &waiting.caller);
            let account = each.clone().find_map(|caller| caller.account.clone());
            let trace = each.find_map(|caller| caller.trace.as_ref());
            let call = trace.map(|trace| trace.share_call());
            let headers = call
                .as_ref()
                .map(|call| (TRACEPARENT, call.context.header()));
            let request = key.request(headers.into_iter().collect());
            let response = self.send(request, Identity::Kubefan, deadline).await?;
            let charge = GrowingCharge::new(MemoryKind::Shared, account);
            let shared = self.share(key, response, permit, deadline, (charge, call));
            return shared.await;
        };
        let request = key.request(single.headers.clone());
        let response = self.send(request, Identity::Kubefan, deadline).await?;
        let response = match permit {
            Some(permit) => with_permit(response, permit, deadline, &self.inner.shutdown),
            None => response,
        };
        Ok(CallResult::streamed(response, None))
    }

    /// Reads an answer for several callers completely. If it is too long, one caller gets the part
    /// that was read, followed by the rest. The span of the call, if there is one, ends then.
    async fn share(
        &self,
        key: &ReadKey,
        response: Response<Body>,
        permit: Option<OwnedSemaphorePermit>,
        deadline: Instant,
        (charge, mut call): (GrowingCharge, Option<SharedCall>),
    ) -> Result<CallResult, ForwardError> {
        let (mut parts, body) = response.into_parts();
        let span = call.as_mut().map(|call| {
            call.answered(parts.status);
            call.context
        });
        // The audit ID of each caller is set later.
        parts.headers.remove(AUDIT_ID);
        match in_time(deadline, beginning(body, charge, MAX_SHARED_BYTES)).await? {
            Beginning::Whole(body) => Ok(CallResult::Buffered {
                call: span,
                status: parts.status,
                headers: Arc::new(parts.headers),
                body,
            }),
            Beginning::Part(received, rest) => {
                let permits = self.inner.long_reads.remember(key);
                let permit = permit.or_else(|| permits.try_acquire_owned().ok());
                Ok(match permit {
                    Some(permit) => {
                        let response = Response::from_parts(parts, rejoined(received, rest));
                        let response =
                            with_permit(response, permit, deadline, &self.inner.shutdown);
                        CallResult::streamed(response, span)
                    }
                    None => CallResult::Streamed {
                        response: Arc::default(),
                        call: None,
                    },
                })
            }
        }
    }

    /// Makes a call for one caller of a long read, with a permit of the caller's limit. A caller
    /// without a limit waits for one of `permits`, which are for all calls of this read. During the
    /// wait its `seat` is free for other requests of its connection, because a long wait holds no
    /// memory.
    async fn call_alone(
        &self,
        key: &ReadKey,
        caller: WaitingCaller,
        permits: Arc<Semaphore>,
        seat: Option<&mut Seat>,
    ) -> Result<Response<Body>, ForwardError> {
        let permit = match caller.limit {
            Some(limit) => {
                let permit = limit.try_acquire_owned();
                permit.map_err(|_| Limit::UnprovenReads)?
            }
            None => {
                let waiting = timeout(PERMIT_WAIT, permits.acquire_owned());
                let permit = match seat {
                    Some(seat) => seat.free_during(waiting).await,
                    None => Ok(waiting.await),
                };
                // The connection may have no seat left after the wait.
                let permit = permit.map_err(|_| Limit::LongReads)?;
                permit
                    .map_err(|_| Limit::LongReads)?
                    .expect("the semaphore is never closed")
            }
        };
        let request = key.request(caller.caller.headers);
        self.forward_alone(request, Identity::Kubefan, permit).await
    }

    /// Sends the request for one caller, which has a permit. The answer holds the permit until the
    /// API server has sent all of it, but not if the client reads too slowly.
    ///
    /// # Errors
    ///
    /// [`ForwardError::Upstream`] if the call fails.
    pub(super) async fn forward_alone(
        &self,
        request: Request<Body>,
        identity: Identity,
        permit: OwnedSemaphorePermit,
    ) -> Result<Response<Body>, ForwardError> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        let response = self.send(request, identity, deadline).await?;
        let shutdown = &self.inner.shutdown;
        Ok(with_permit(response, permit, deadline, shutdown))
    }

    async fn send(
        &self,
        request: Request<Body>,
        identity: Identity,
        deadline: Instant,
    ) -> Result<Response<Body>, ForwardError> {
        let forwarded = self.inner.forwarder.forward(request, identity);
        Ok(in_time(deadline, forwarded).await?.response)
    }
}

/// Returns a permit for a call that serves `callers`, or `None` if the call needs none because one
/// of them has no limit.
fn permit_for(
    callers: &HashSet<WaitingCaller>,
) -> Result<Option<OwnedSemaphorePermit>, ForwardError> {
    let limits: Option<Vec<_>> = callers.iter().map(|caller| caller.limit.clone()).collect();
    let Some(limits) = limits else {
        return Ok(None);
    };
    let mut permits = limits.into_iter().map(Semaphore::try_acquire_owned);
    let permit = permits.find_map(Result::ok);
    permit.map(Some).ok_or(Limit::UnprovenReads.into())
}

async fn in_time<T>(
    deadline: Instant,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, ForwardError> {
    let result = timeout_at(deadline, call).await;
    let result = result.unwrap_or(Err(Error::Timeout(CALL_TIMEOUT)));
    result.map_err(|error| ForwardError::Upstream(Arc::new(error)))
}

/// Reads `body` until it ends, or has more than `max` bytes, or `charge` has no memory for more.
///
/// # Errors
/// The error of the body.
pub(in crate::server) async fn beginning(
    mut body: Body,
    mut charge: GrowingCharge,
    max: usize,
) -> Result<Beginning, Error> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > max || !charge.fits(announced) {
        return Ok(Beginning::Part(Bytes::new(), body));
    }
    let mut received = BytesMut::with_capacity(announced);
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(Error::Transport)?.into_data() {
            received.extend_from_slice(&data);
        }
        if received.len() > max || !charge.fits(received.capacity()) {
            return Ok(Beginning::Part(received_bytes(received, charge), body));
        }
    }
    Ok(Beginning::Whole(received_bytes(received, charge)))
}

/// Returns the bytes that were read. They stay charged until their last clone is dropped.
fn received_bytes(received: BytesMut, charge: GrowingCharge) -> Bytes {
    let bytes = received.freeze();
    match charge.into_charge() {
        Some(charge) => ledger::charged(bytes, charge),
        None => bytes,
    }
}

/// Returns a body that sends `received` and then `rest`.
pub(in crate::server) fn rejoined(mut received: Bytes, rest: Body) -> Body {
    let chunks = iter::from_fn(move || {
        let chunk = received.split_to(CHUNK.min(received.len()));
        (!chunk.is_empty()).then(|| Ok(Frame::data(chunk)))
    });
    let chunks = stream::iter(chunks);
    body::boxed(StreamBody::new(chunks.chain(BodyStream::new(rest))))
}

fn buffered_response(status: StatusCode, headers: &HeaderMap, body: Bytes) -> Response<Body> {
    let mut response = Response::new(body::full(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers.clone();
    response
}

// === impl WaitingCaller, CallResult, GroupMembership ===

impl PartialEq for WaitingCaller {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for WaitingCaller {}

impl Hash for WaitingCaller {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl CallResult {
    fn streamed(response: Response<Body>, call: Option<SpanContext>) -> Self {
        Self::Streamed {
            response: Arc::new(Mutex::new(Some(response))),
            call,
        }
    }
}

impl GroupMembership<'_> {
    fn group(&self) -> &Group {
        self.group.as_ref().expect("taken out only on drop")
    }
}

impl Drop for GroupMembership<'_> {
    fn drop(&mut self) {
        self.group = None;
        // `remove_if` holds the lock of the entry, so no caller can join during the call.
        self.reads
            .remove_if(&self.key, |_, group| Arc::strong_count(group) == 1);
    }
}

#[cfg(test)]
mod tests;
