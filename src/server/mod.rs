//! The request path: a request goes through these modules in this order, once each.
//!
//! ```text
//! filters/    trace, gzip, recover, local only
//! request/    what is asked: attributes of the request, facts about it
//!             (limits, authentication: to come)
//! decide      reject it, forward it, or read from a cache; pure
//!             (authorization: to come, before a cache is started for it)
//! acquire     the informer that can answer, waited for
//! prove       fresh enough, or not
//! read/       get, list, watch: a snapshot and a plan become parts or a stream
//! deliver/    bodies: framing, bursts, gzip, WebSockets
//! forward/    to the API server, the same reads together
//! rescue      any failure on the way becomes a Status
//! outcome     how it ended, for metrics and the log
//! ```
//!
//! Beside it: `admin`, the second listener; `collection`, what a read reads from; `authoritative`,
//! reads of a collection that follows nothing, as the simulator's; `miss`, why a cache gave no
//! answer.

mod acquire;
mod admin;
mod authoritative;
mod collection;
mod decide;
mod deliver;
mod filters;
mod forward;
mod miss;
mod outcome;
mod prove;
mod read;
mod request;
mod rescue;

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
use crate::body;
use crate::informer::InformerSet;
use crate::informer::InformerSpec;
use crate::informer::LiveRestMapper;
use crate::shutdown::Shutdown;
use crate::upstream::Forwarder;

/// A body of requests and answers.
pub use crate::body::Body;
/// Boxes any body of bytes.
pub use crate::body::boxed;
/// A body that is all there.
pub use crate::body::full;
pub use admin::Admin;
pub use authoritative::read_authoritative;
pub use collection::Collection;
pub use decide::Reason;
pub use deliver::GzipCacheMetrics;
#[cfg(test)]
pub(crate) use deliver::without_jitter;
pub use filters::RequestMetrics;
pub use miss::Miss;
pub use outcome::Outcome;
pub use outcome::RequestOutcome;
pub use request::RequestInfo;
pub use rescue::answer;
pub use rescue::plain_text;
pub use rescue::respond;

use acquire::acquire;
use decide::Decision;
use decide::KnownResources;
use decide::Read;
use decide::decide;
use deliver::Delivery;
use deliver::GzipCache;
use deliver::over_websocket;
use deliver::with_proof_header;
use filters::GzipLayer;
use filters::LocalOnlyLayer;
use filters::RecoverLayer;
use filters::TraceLayer;
use forward::Forwarding;
use miss::CacheAnswer;
use prove::prove;
use request::Facts;
use request::Handshake;
use rescue::Refusal;

/// How long after a client's deadline the API server, which began to count later, may still tell
/// that it is over.
const UPSTREAM_SLACK: Duration = Duration::from_millis(500);

/// Answers clients. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    informers: InformerSet,
    rest_mapper: Arc<LiveRestMapper>,
    forwarding: Forwarding,
    gzip_cache: GzipCache,
    metrics: RequestMetrics,
    shutdown: Shutdown,
}

impl Server {
    /// Reads come from `informers` where they can; everything else goes to `forwarder`.
    pub fn new(
        informers: InformerSet,
        rest_mapper: Arc<LiveRestMapper>,
        forwarder: Forwarder,
        metrics: RequestMetrics,
        gzip_cache_metrics: GzipCacheMetrics,
        shutdown: Shutdown,
    ) -> Self {
        let inner = Inner {
            informers,
            rest_mapper,
            forwarding: Forwarding::new(forwarder, shutdown.clone()),
            gzip_cache: GzipCache::new(gzip_cache_metrics, shutdown.clone()),
            metrics,
            shutdown,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The whole stack, in walking order.
    pub fn into_service(
        self,
    ) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static {
        let metrics = self.inner.metrics.clone();
        with_filters(metrics, move |request| {
            let server = self.clone();
            async move { server.answer(request).await }
        })
    }

    /// What becomes of a request behind the filters.
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let query = request.uri().query().unwrap_or_default();
        let info = RequestInfo::parse(request.method(), request.uri().path(), query);
        let handshake = Handshake::of_upgradable(&request);
        let facts = Facts::of(&request, &info, handshake.as_ref());
        let (response, outcome) = match decide(&facts, self.inner.rest_mapper.as_ref()) {
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
                let response = self.forward(request, &info, None, None).await;
                (response, Outcome::Forwarded(reason))
            }
            Decision::Read(read) => self.read(request, &info, handshake, &read).await,
        };
        self.with_outcome(response, &info, outcome)
    }

    /// What becomes of a read that a cache may answer.
    async fn read(
        &self,
        mut request: Request<Body>,
        info: &RequestInfo,
        handshake: Option<Handshake>,
        read: &Read,
    ) -> (Response<Body>, Outcome) {
        let deadline = read
            .timeout
            .and_then(|timeout| Instant::now().checked_add(timeout));
        let Inner {
            gzip_cache,
            shutdown,
            ..
        } = self.inner.as_ref();
        let is_websocket = handshake.is_some();
        let delivery = Delivery::of(&request, read.representation, is_websocket, gzip_cache);
        let answer = within(deadline, self.cached(read, &delivery)).await;
        let answer = answer.unwrap_or_else(|| Err(Status::timeout().into()));
        let refusal = || Refusal::of(&request);
        let (reason, limit) = match answer {
            Ok(response) => {
                // Of reads with a handshake, only watches come so far.
                let response = match handshake {
                    Some(handshake) => over_websocket(handshake, &mut request, response, shutdown),
                    None => response,
                };
                return (response, Outcome::Cache);
            }
            Err(Miss::Absent(status)) => return (refusal().respond(&status), Outcome::Cache),
            Err(Miss::Reject(status)) => return (refusal().respond(&status), Outcome::Rejected),
            Err(Miss::Forward(reason)) => (reason, None),
            Err(Miss::ForwardUnproven(limit)) => (Reason::Unproven, Some(limit)),
        };
        let response = self.forward(request, info, limit, deadline).await;
        (response, Outcome::Forwarded(reason))
    }

    /// What a cache answers.
    async fn cached(&self, read: &Read, delivery: &Delivery<'_>) -> CacheAnswer {
        let Inner {
            informers,
            rest_mapper,
            shutdown,
            ..
        } = self.inner.as_ref();
        let informer = acquire(informers, rest_mapper, read).await?;
        let proof = match prove(read, &informer).await {
            Ok(proof) => proof,
            Err(unproven) => return read::without_proof(&unproven, read, &informer, delivery),
        };
        let collection: Arc<dyn Collection> = informer;
        let answer = read::read(read, &collection, proof.as_ref(), delivery, shutdown).await?;
        Ok(with_proof_header(answer, proof.map(|proof| proof.method)))
    }

    /// What the API server answers, until shortly after `deadline`; with `limit`, only if that has a
    /// permit.
    async fn forward(
        &self,
        request: Request<Body>,
        info: &RequestInfo,
        limit: Option<Arc<Semaphore>>,
        deadline: Option<Instant>,
    ) -> Response<Body> {
        let refusal = Refusal::of(&request);
        let deadline = deadline.map(|deadline| deadline + UPSTREAM_SLACK);
        let forwarded = self.inner.forwarding.forward(request, info, limit);
        let forwarded = within(deadline, forwarded).await;
        forwarded
            .unwrap_or_else(|| Err(Status::timeout()))
            .unwrap_or_else(|status| refusal.respond(&status))
    }

    fn with_outcome(
        &self,
        mut response: Response<Body>,
        info: &RequestInfo,
        outcome: Outcome,
    ) -> Response<Body> {
        if !matches!(outcome, Outcome::Forwarded(_)) {
            // They go with everything said about the resource, refusals included.
            let warnings = self.inner.informers.warnings();
            warnings.add(|| info.gvr(), response.headers_mut());
        }
        let known = info.gvr().filter(|gvr| {
            let mapper = &self.inner.rest_mapper;
            mapper.with(|mapper| mapper.resource(gvr).is_some())
        });
        let request_outcome = RequestOutcome::new(&info.verb, known, outcome);
        response.extensions_mut().insert(request_outcome);
        response
    }
}

impl KnownResources for LiveRestMapper {
    fn spec(&self, gvr: &GroupVersionResource, format: WireFormat) -> Option<InformerSpec> {
        self.known_informer_spec(gvr, format)
    }
}

/// What `future` gives until `deadline`, if there is one.
async fn within<T>(deadline: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match deadline {
        None => Some(future.await),
        Some(deadline) => timeout_at(deadline, future).await.ok(),
    }
}

/// `handler` behind the filters that every request passes, in walking order.
pub fn with_filters<H, F>(
    metrics: RequestMetrics,
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
        .layer(GzipLayer)
        .layer(RecoverLayer)
        .layer(LocalOnlyLayer)
        .service(service_fn(move |request| {
            let answer = handler(request);
            async move { Ok::<_, Infallible>(answer.await) }
        }))
}
