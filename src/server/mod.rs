//! The path of a request: every stage from the client's request to the answer.
//!
//! A [`Server`] is the service that `net` calls for each request. The request passes the stages
//! below from top to bottom, each at most once. `decide` chooses between three ways: a cache
//! answers (`Read`), the API server answers (`Forward`), or kubefan refuses (`Reject`).
//!
//! ```text
//! module      gets                         returns
//! filters/    the request                  the answer of the stages below, counted and logged
//!                                          (trace), compressed (gzip), or a 500 if one of them
//!                                          panicked (recover); a 403 if a foreign web page may
//!                                          have sent the request (web_pages)
//! request/    method, URL, headers         `RequestInfo` (verb, resource, name) and `Facts`
//! (identity)  headers, certificate         the `Caller`, or a refusal
//! decide      `Facts`, known resources     `Decision`: Reject(Status), Forward(Reason), Read(plan)
//!
//! only for Read:
//! access      the caller, `RequestInfo`    the attributes for the API server's authorizers, which
//!                                          must allow the read before anything is started for it
//! acquire     the plan                     the informer that can answer, or a `Miss`; starts it
//!                                          and waits for it if necessary
//! prove       the plan, the informer       the proof that the cache is fresh, if one is needed
//! in_flight   the verb, the caller         a seat that is held until the answer was sent, or a
//!                                          429 if the user holds too many; also for Forward
//! shares      the caller, the plan         the user's share of what few watches can have, or a 429
//! read/       plan, collection, proof      the answer of a GET, LIST or WATCH, or a `Miss`
//! deliver/    an answer's parts or stream  its body: indentation, bursts, gzip, WebSockets
//!
//! for Forward, and for a Read that the cache missed:
//! forbidden   the request, the caller      the API server's 403 of some seconds ago, if this user
//!                                          got one for the same request
//! forward/    the request                  the API server's answer; identical reads share a call
//!
//! for every error of a stage:
//! rescue      a Status                     the response in a format that the client accepts
//!
//! for every answer of a cache:
//! audit       the request, the caller      an event for the audit log, if there is one
//!
//! for every request:
//! judged_upstream  the answer's status     nothing; counts wrong credentials, and closes HTTP/2
//!                                          connections on which they are sent
//! outcome     the way that was taken       `RequestOutcome`, attached to the response for trace
//! ```
//!
//! Modules beside the path: `admin` serves the second listener (probes and metrics); `collection`
//! is the trait of what a read is answered from; `authoritative` answers reads of a collection that
//! is itself the source of truth, such as the simulator's; `miss` says why a cache gave no answer.
//!
//! # Errors
//!
//! Stages return errors as values: a [`Reason`] to forward, a [`Miss`], or a Status. [`Server`]
//! turns a miss into a forwarded request or a Status. Only `rescue` turns a Status into a response
//! and formats an upstream error; no stage builds an error response itself. There is one exception:
//! a WATCH that has started, or that must fail like a started one, gets its error as an ERROR event
//! in its stream (`read/watch.rs`, `deliver/watch_body.rs`). Services never return an error to
//! `net`: their error type is [`Infallible`].
//!
//! # What never happens
//!
//! - A later stage never calls an earlier one, and gets no callback. Results flow back only as
//!   return values. A body is polled by the connection and reads from the cache; the cache's wake
//!   is the only signal in the other direction.
//! - `request` and `decide` do no I/O and start nothing. A caller that kubefan refuses causes no
//!   discovery, no informer and no call to the API server.
//! - A cached answer is never a mixture: GET and LIST use exactly one snapshot. If a cache cannot
//!   answer, the whole request is forwarded, and it never returns to a cache.

mod access;
mod acquire;
mod admin;
mod audit;
mod authoritative;
mod collection;
mod config;
mod decide;
mod deliver;
mod filters;
mod forbidden;
mod forward;
mod in_flight;
mod judged_upstream;
mod miss;
mod outcome;
mod prove;
mod read;
mod request;
mod rescue;
mod shares;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http::Response;
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio::time::timeout_at;
use tower::Service;
use tower::ServiceBuilder;
use tower::service_fn;

use crate::api::GroupVersionResource;
use crate::api::Status;
use crate::api::WireFormat;
use crate::audit::AuditLog;
use crate::body;
use crate::body::guarded;
use crate::identity::AccessControl;
use crate::identity::Caller;
use crate::identity::Verdict;
use crate::informer::Informer;
use crate::informer::InformerSet;
use crate::informer::InformerSpec;
use crate::informer::LiveRestMapper;
use crate::informer::Proof;
use crate::informer::ProofError;
use crate::net::ClientConnection;
use crate::net::Peer;
use crate::shutdown::Shutdown;
use crate::upstream::Forwarder;

/// The body of a request or of an answer.
pub use crate::body::Body;
/// Boxes any body of bytes.
pub use crate::body::boxed;
/// A body whose bytes are all in memory.
pub use crate::body::full;
pub use admin::Admin;
pub use authoritative::read_authoritative;
pub use collection::Collection;
pub use config::Config;
pub use config::Metrics;
pub use decide::Reason;
#[cfg(test)]
pub(crate) use deliver::without_jitter;
pub use filters::RequestMetrics;
pub use filters::WebPageRules;
pub use miss::Miss;
pub use outcome::Outcome;
pub use outcome::RequestOutcome;
pub use request::RequestInfo;
pub use rescue::answer;
pub use rescue::plain_text;
pub use rescue::respond;

use access::Rights;
use access::verdict;
use acquire::acquire;
use audit::AuditedRequest;
use audit::audited;
use decide::Decision;
use decide::KnownResources;
use decide::Read;
use decide::decide;
use deliver::Delivery;
use deliver::GzipCache;
use deliver::over_websocket;
use deliver::with_proof_header;
use filters::ChargeLayer;
use filters::GzipLayer;
use filters::RecoverLayer;
use filters::TraceLayer;
use filters::WebPagesLayer;
use forbidden::ForbiddenAnswers;
use forbidden::ForbiddenRead;
use forward::Forwarding;
use in_flight::Holder;
use in_flight::InFlight;
use in_flight::Seat;
use in_flight::TooManyRequests;
use in_flight::is_long_running;
use judged_upstream::JudgedUpstream;
use miss::CacheAnswer;
use outcome::LongRunning;
use prove::prove;
use request::Facts;
use request::Handshake;
use rescue::Refusal;
use shares::Shares;

/// How long after a client's deadline kubefan still waits for a forwarded answer. The API server
/// began to count later, so its own timeout Status may arrive in this time.
const UPSTREAM_SLACK: Duration = Duration::from_millis(500);

/// The service that answers clients' requests. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    access: AccessControl,
    informers: InformerSet,
    rest_mapper: Arc<LiveRestMapper>,
    forwarding: Forwarding,
    forbidden: ForbiddenAnswers,
    gzip_cache: GzipCache,
    in_flight: InFlight,
    shares: Shares,
    request_timeout: Duration,
    max_url_bytes: usize,
    web_pages: WebPageRules,
    metrics: RequestMetrics,
    audit: Option<Arc<AuditLog>>,
    shutdown: Shutdown,
}

impl Server {
    /// A server that answers reads from `informers` as far as `access` permits, and forwards all
    /// that it can't answer.
    pub fn new(
        access: AccessControl,
        informers: InformerSet,
        rest_mapper: Arc<LiveRestMapper>,
        forwarder: Forwarder,
        config: Config,
        metrics: Metrics,
        shutdown: Shutdown,
    ) -> Self {
        let shares = Shares::new(config.max_unindexed_selectors);
        let forwarding =
            Forwarding::new(access.clone(), forwarder, shares.clone(), shutdown.clone());
        let inner = Inner {
            access,
            informers,
            rest_mapper,
            forwarding,
            forbidden: ForbiddenAnswers::default(),
            gzip_cache: GzipCache::new(metrics.gzip_cache, shutdown.clone()),
            in_flight: InFlight::new(config.max_requests_inflight, metrics.in_flight),
            shares,
            request_timeout: config.request_timeout,
            max_url_bytes: config.max_url_bytes,
            web_pages: config.web_pages,
            metrics: metrics.requests,
            audit: None,
            shutdown,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The same server, which writes an event to `audit` for each request that a cache answers.
    ///
    /// # Panics
    /// If the server was cloned before.
    #[must_use]
    pub fn with_audit(mut self, audit: Arc<AuditLog>) -> Self {
        let inner = Arc::get_mut(&mut self.inner);
        inner.expect("the server is not shared yet").audit = Some(audit);
        self
    }

    /// The service for `net`: the whole request path, filters included.
    pub fn into_service(
        self,
    ) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static {
        let (metrics, web_pages) = (self.inner.metrics.clone(), self.inner.web_pages);
        with_filters(metrics, web_pages, move |request| {
            let server = self.clone();
            // In a box, because the stream keeps the memory of the future while its body is sent.
            Box::pin(async move { server.answer(request).await })
        })
    }

    /// Answers a request that has passed the filters.
    async fn answer(&self, mut request: Request<Body>) -> Response<Body> {
        let url = request.uri().path_and_query();
        let url_bytes = url.map_or(0, |url| url.as_str().len());
        if url_bytes > self.inner.max_url_bytes {
            let status = Status::url_too_long(self.inner.max_url_bytes);
            return Refusal::of(&request).respond(&status);
        }
        let query = request.uri().query().unwrap_or_default();
        let info = RequestInfo::parse(request.method(), request.uri().path(), query);
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.expect("net adds it to every request");
        let deadline = Instant::now().checked_add(self.inner.request_timeout);
        let caller = within(deadline, self.caller(&mut request, &peer)).await;
        let caller = caller.unwrap_or_else(|| Err(Status::timeout()));
        let (response, outcome) = match caller {
            Ok(caller) => {
                if let Some(log) = &self.inner.audit {
                    let audited = AuditedRequest::new(log, &request, &info, &caller);
                    request.extensions_mut().insert(audited);
                }
                let judged_upstream = JudgedUpstream::of(&request, &info, &caller);
                let (response, outcome) = self.answer_caller(request, &info, &caller).await;
                if let Some(judged) = judged_upstream {
                    judged.answered(response.status(), &self.inner.access, &peer);
                }
                (response, outcome)
            }
            Err(status) => {
                judged_upstream::refused(&request, &status);
                (Refusal::of(&request).respond(&status), Outcome::Rejected)
            }
        };
        self.with_outcome(response, &info, outcome)
    }

    async fn caller(&self, request: &mut Request<Body>, peer: &Peer) -> Result<Caller, Status> {
        let connection = request.extensions().get::<ClientConnection>().cloned();
        let connection = connection.expect("net adds it to every request");
        let access = &self.inner.access;
        access
            .caller(request.headers_mut(), &connection, peer)
            .await
    }

    /// Answers a request of `caller`.
    async fn answer_caller(
        &self,
        request: Request<Body>,
        info: &RequestInfo,
        caller: &Caller,
    ) -> (Response<Body>, Outcome) {
        let handshake = Handshake::of_upgradable(&request);
        let facts = Facts::of(&request, info, caller, handshake.as_ref());
        match decide(&facts, self.inner.rest_mapper.as_ref()) {
            Decision::Reject(status) => {
                let refusal = Refusal::of(&request);
                (refusal.respond(&status), Outcome::Rejected)
            }
            Decision::Forward(reason) => {
                if reason == Reason::NotCacheable
                    && let Some(gvr) = info.gvr()
                {
                    self.inner.rest_mapper.refresh_unless_known(&gvr);
                }
                self.forward(request, info, caller, reason, None, None)
                    .await
            }
            Decision::Read(read) => self.read(request, info, caller, handshake, &read).await,
        }
    }

    /// Answers a read from a cache; forwards or refuses the request if the cache can't answer.
    async fn read(
        &self,
        mut request: Request<Body>,
        info: &RequestInfo,
        caller: &Caller,
        handshake: Option<Handshake>,
        read: &Read,
    ) -> (Response<Body>, Outcome) {
        let Inner {
            gzip_cache,
            request_timeout,
            shutdown,
            ..
        } = self.inner.as_ref();
        let after = |timeout: Duration| Instant::now().checked_add(timeout);
        let client_deadline = read.timeout.and_then(after);
        let deadline = read.time_to_head(*request_timeout).and_then(after);
        let is_websocket = handshake.is_some();
        let delivery = Delivery::of(&request, read.representation, is_websocket, gzip_cache);
        let prepared = within(deadline, self.prepare(info, caller, read)).await;
        let prepared = prepared.unwrap_or_else(|| Err(Status::timeout().into()));
        let answer = match prepared {
            Ok((informer, proof)) => {
                let Ok(seat) = self.seat(&request, info, caller) else {
                    return (rescue::too_many_requests(), Outcome::Rejected);
                };
                match self.inner.shares.selection(caller, read) {
                    Ok(share) => {
                        let answer = cached(read, informer, proof, &delivery, shutdown);
                        let answer = within(deadline, answer).await;
                        let answer = answer.unwrap_or_else(|| Err(Status::timeout().into()));
                        answer.map(|response| guarded(guarded(response, seat), share))
                    }
                    Err(status) => Err(status.into()),
                }
            }
            Err(miss) => Err(miss),
        };
        let refusal = || Refusal::of(&request);
        let (reason, limit) = match answer {
            Ok(response) => {
                let response = audited(&mut request, response);
                let abort = request.extensions().get();
                let forwarding = &self.inner.forwarding;
                let right = forwarding.keep_judging(info, caller, abort);
                let response = guarded(response, right);
                // Every upgrade except a WATCH is forwarded, so a read with a handshake is a watch.
                let response = match handshake {
                    Some(handshake) => over_websocket(handshake, &mut request, response, shutdown),
                    None => response,
                };
                return (response, Outcome::Cache);
            }
            Err(Miss::Absent(status)) => {
                let response = refusal().respond(&status);
                return (audited(&mut request, response), Outcome::Cache);
            }
            Err(Miss::Reject(status)) => return (refusal().respond(&status), Outcome::Rejected),
            Err(Miss::Forward(reason)) => (reason, None),
            Err(Miss::ForwardLimited(reason, limit)) => (reason, Some(limit)),
        };
        self.forward(request, info, caller, reason, limit, client_deadline)
            .await
    }

    /// Checks that `caller` may read, acquires an informer for `read`, and proves that its cache is
    /// fresh.
    async fn prepare(
        &self,
        info: &RequestInfo,
        caller: &Caller,
        read: &Read,
    ) -> Result<(Arc<Informer>, ProofResult), Miss> {
        let Inner {
            informers,
            rest_mapper,
            ..
        } = self.inner.as_ref();
        let asked_at = Instant::now();
        // Nothing is looked up or started for a caller that may not read.
        match verdict(&self.inner.access, info, caller, read).await {
            Verdict::Allowed => {}
            Verdict::NotAllowed => return Err(Miss::Forward(Reason::NotAuthorized)),
            Verdict::Busy => return Err(Status::too_many_reviews().into()),
        }
        let may_start = matches!(caller, Caller::Trusted) || info.name.is_empty();
        let informer = acquire(informers, rest_mapper, read, may_start).await?;
        let proof = prove(read, asked_at, &informer).await;
        Ok((informer, proof))
    }

    /// Takes a seat for `request` under the limit of requests in flight, if it needs one.
    fn seat(
        &self,
        request: &Request<Body>,
        info: &RequestInfo,
        caller: &Caller,
    ) -> Result<Option<Seat>, TooManyRequests> {
        let connection = request.extensions().get::<ClientConnection>();
        let connection = connection.expect("net adds it to every request");
        let holder = Holder::of(caller, connection);
        self.inner.in_flight.take(info, &holder)
    }

    /// Forwards the request, and answers with a timeout shortly after `deadline`. If `limit` is set
    /// and has no free permit, the answer is 429 and the request is not forwarded.
    async fn forward(
        &self,
        mut request: Request<Body>,
        info: &RequestInfo,
        caller: &Caller,
        reason: Reason,
        limit: Option<Arc<Semaphore>>,
        deadline: Option<Instant>,
    ) -> (Response<Body>, Outcome) {
        let denied = match (caller, reason) {
            (Caller::Known(caller), Reason::NotAuthorized) => ForbiddenRead::of(&request, caller),
            _ => None,
        };
        let kept = denied
            .as_ref()
            .and_then(|read| self.inner.forbidden.answer(read));
        if let Some(kept) = kept {
            return (audited(&mut request, kept), Outcome::Rejected);
        }
        let Ok(mut seat) = self.seat(&request, info, caller) else {
            return (rescue::too_many_requests(), Outcome::Rejected);
        };
        let refusal = Refusal::of(&request);
        let deadline = deadline.map(|deadline| deadline + UPSTREAM_SLACK);
        let is_native = info.gvr().is_some_and(|gvr| {
            let rest_mapper = &self.inner.rest_mapper;
            rest_mapper.with(|mapper| mapper.is_native(&gvr))
        });
        let asked_at = Instant::now();
        let forwarding = &self.inner.forwarding;
        let forwarded = forwarding.forward(request, info, caller, is_native, limit, seat.as_mut());
        let forwarded = within(deadline, forwarded).await;
        let response = forwarded
            .unwrap_or_else(|| Err(Status::timeout()))
            .unwrap_or_else(|status| refusal.respond(&status));
        let response = match caller {
            Caller::Known(caller) if is_native => {
                let rights = Rights {
                    access: &self.inner.access,
                    forbidden: &self.inner.forbidden,
                };
                let kept = rights.learn(caller, info, denied, response, asked_at);
                let kept = kept.await;
                kept.unwrap_or_else(|status| refusal.respond(&status))
            }
            _ => response,
        };
        (guarded(response, seat), Outcome::Forwarded(reason))
    }

    fn with_outcome(
        &self,
        mut response: Response<Body>,
        info: &RequestInfo,
        outcome: Outcome,
    ) -> Response<Body> {
        if !matches!(outcome, Outcome::Forwarded(_)) {
            // Forwarded answers have the API server's warnings already; all others get them here.
            let warnings = self.inner.informers.warnings();
            warnings.add(|| info.gvr(), response.headers_mut());
        }
        let known = info.gvr().filter(|gvr| {
            let mapper = &self.inner.rest_mapper;
            mapper.with(|mapper| mapper.resource(gvr).is_some())
        });
        let request_outcome = RequestOutcome::new(&info.verb, known, outcome);
        response.extensions_mut().insert(request_outcome);
        if is_long_running(info) {
            response.extensions_mut().insert(LongRunning);
        }
        response
    }
}

impl KnownResources for LiveRestMapper {
    fn spec(&self, gvr: &GroupVersionResource, format: WireFormat) -> Option<InformerSpec> {
        self.known_informer_spec(gvr, format)
    }
}

/// The proof that a read needs, `None` if it needs none, or why there is no proof.
type ProofResult = Result<Option<Proof>, ProofError>;

/// Answers `read` from the cache of `informer`, which was proven fresh if the read needs it.
async fn cached(
    read: &Read,
    informer: Arc<Informer>,
    proof: ProofResult,
    delivery: &Delivery<'_>,
    shutdown: &Shutdown,
) -> CacheAnswer {
    let proof = match proof {
        Ok(proof) => proof,
        Err(unproven) => return read::without_proof(&unproven, read, &informer, delivery),
    };
    let collection: Arc<dyn Collection> = informer;
    let answer = read::read(read, &collection, proof.as_ref(), delivery, shutdown).await?;
    Ok(with_proof_header(answer, proof.map(|proof| proof.method)))
}

/// The output of `future`, or `None` if `deadline` passes first.
async fn within<T>(deadline: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match deadline {
        None => Some(future.await),
        Some(deadline) => timeout_at(deadline, future).await.ok(),
    }
}

/// Wraps `handler` in the filters that every request passes: trace, charge, gzip, recover, web
/// pages (with `web_pages`).
pub fn with_filters<H, F>(
    metrics: RequestMetrics,
    web_pages: WebPageRules,
    handler: H,
) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static
where
    H: Fn(Request<Body>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    ServiceBuilder::new()
        .map_request(|request: Request<Incoming>| request.map(body::boxed))
        .layer(TraceLayer::new(metrics))
        .layer(ChargeLayer)
        .layer(GzipLayer)
        .layer(RecoverLayer)
        .layer(WebPagesLayer::new(web_pages))
        .service(service_fn(move |request| {
            let answer = handler(request);
            async move { Ok::<_, Infallible>(answer.await) }
        }))
}
