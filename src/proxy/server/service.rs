//! Server: the service that answers clients. It finds the caller of a request, and chooses between
//! a cache (`from_cache.rs`) and the API server (`from_upstream.rs`).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use kubefan_core::api::{GroupVersionResource, Status, WireFormat};
use kubefan_core::body;
use kubefan_core::body::Body;
use kubefan_core::informer::{InformerSet, InformerSpec, LiveRestMapper};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::{Forwarder, NotCacheable};
use tokio::time::{Instant, timeout_at};
use tower::{Service, ServiceBuilder, service_fn};

use super::answers::audit::AuditedRequest;
use super::answers::outcome::{LongRunning, Outcome, RequestOutcome};
use super::answers::rescue;
use super::answers::rescue::Refusal;
use super::config::{Config, Metrics};
use super::decide::{Decision, KnownResources, Reason, decide};
use super::deliver::{GzipCache, InitialChunkCache};
use super::filters::{
    ChargeLayer, GzipLayer, RecoverLayer, RequestMetrics, TraceLayer, WebPageRules, WebPagesLayer,
};
use super::limits::in_flight::{Holder, InFlight, Seat, TooManyRequests, is_long_running};
use super::limits::shares::{Shares, TooMany};
use super::request::{Facts, Handshake, RequestInfo, ShardSelectors};
use super::tables::Tables;
use super::upstream::documents::Documents;
use super::upstream::forbidden::ForbiddenAnswers;
use super::upstream::forward::Forwarding;
use super::upstream::judged_upstream;
use super::upstream::judged_upstream::JudgedUpstream;
use crate::audit::AuditLog;
use crate::identity::{AccessControl, Caller};
use crate::net::{ClientConnection, Peer, RequestBody};

/// The service that answers clients' requests. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    pub(super) inner: Arc<Inner>,
}

/// What all clones of a [`Server`] share.
pub(super) struct Inner {
    pub(super) access: AccessControl,
    pub(super) documents: Documents,
    pub(super) informers: InformerSet,
    pub(super) rest_mapper: Arc<LiveRestMapper>,
    pub(super) forwarding: Forwarding,
    pub(super) forbidden: ForbiddenAnswers,
    pub(super) gzip_cache: GzipCache,
    pub(super) initial_chunks: InitialChunkCache,
    pub(super) in_flight: InFlight,
    pub(super) shares: Shares,
    pub(super) tables: Tables,
    pub(super) request_timeout: Duration,
    /// How long a client of a WebSocket may take no byte.
    pub(super) write_timeout: Duration,
    pub(super) max_url_bytes: usize,
    pub(super) shard_selectors: ShardSelectors,
    pub(super) web_pages: WebPageRules,
    pub(super) metrics: RequestMetrics,
    pub(super) audit: Option<Arc<AuditLog>>,
    pub(super) shutdown: Shutdown,
}

impl Server {
    /// Creates a server that answers reads from `informers` as far as `access` permits, and
    /// forwards all requests that it can't answer.
    pub fn new(
        access: AccessControl,
        informers: InformerSet,
        rest_mapper: Arc<LiveRestMapper>,
        forwarder: Forwarder,
        config: Config,
        metrics: Metrics,
        shutdown: Shutdown,
    ) -> Self {
        let unindexed = config.max_unindexed_selectors;
        let shares = Shares::new(config.users, unindexed, metrics.shares);
        let tables = Tables::new(
            forwarder.client().clone(),
            informers.clone(),
            Arc::clone(&rest_mapper),
            (metrics.tables, metrics.budgets.rows),
            shutdown.clone(),
        );
        shutdown.spawn_background(tables.clone().clean());
        let mapper = Arc::clone(&rest_mapper);
        let documents = Documents::new(
            access.clone(),
            forwarder.clone(),
            move |group, version| mapper.with(|known| known.is_native_version(group, version)),
            (metrics.documents, metrics.budgets.documents),
            shutdown.clone(),
        );
        let forwarding =
            Forwarding::new(access.clone(), forwarder, shares.clone(), shutdown.clone());
        let inner = Inner {
            access,
            documents,
            informers,
            rest_mapper,
            forwarding,
            forbidden: ForbiddenAnswers::new(metrics.budgets.forbidden),
            gzip_cache: GzipCache::new(metrics.budgets.lists, metrics.gzip_cache, shutdown.clone()),
            initial_chunks: InitialChunkCache::new(
                metrics.budgets.chunks,
                metrics.initial_chunks,
                shutdown.clone(),
            ),
            in_flight: InFlight::new(config.max_requests_inflight, metrics.in_flight),
            shares,
            tables,
            request_timeout: config.request_timeout,
            write_timeout: config.write_timeout,
            max_url_bytes: config.max_url_bytes,
            shard_selectors: config.shard_selectors,
            web_pages: config.web_pages,
            metrics: metrics.requests,
            audit: None,
            shutdown,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Makes the server write an event to `audit` for each request that kubefan answers itself.
    ///
    /// # Panics
    /// If the server was cloned before.
    #[must_use]
    pub fn with_audit(mut self, audit: Arc<AuditLog>) -> Self {
        let inner = Arc::get_mut(&mut self.inner);
        inner.expect("the server is not shared yet").audit = Some(audit);
        self
    }

    /// Applies the limits in `config` that can change while requests are served: the limits of
    /// requests in flight, and the limits of users.
    pub fn set_limits(&self, config: &Config) {
        self.inner.in_flight.set_limit(config.max_requests_inflight);
        self.inner.shares.set_limits(config.users);
    }

    /// Answers a request that has passed the filters.
    pub(super) async fn answer(&self, mut request: Request<Body>) -> Response<Body> {
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
                self.answer_judged(request, &info, &caller, &peer).await
            }
            Err(status) => {
                judged_upstream::refused(&request, &status);
                (Refusal::of(&request).respond(&status), Outcome::Rejected)
            }
        };
        self.with_outcome(response, &info, outcome)
    }

    /// Answers a request of `caller`, which came from `peer`. If only the API server can judge the
    /// credentials of the caller, its answer decides what happens to the connection.
    async fn answer_judged(
        &self,
        request: Request<Body>,
        info: &RequestInfo,
        caller: &Caller,
        peer: &Peer,
    ) -> (Response<Body>, Outcome) {
        let has_accepted = |headers: &_| self.inner.forwarding.has_accepted(headers);
        let Ok(judged) = JudgedUpstream::of(&request, info, caller, has_accepted) else {
            let response = Refusal::of(&request).respond(&Status::too_many_unaccepted());
            return (response, Outcome::Rejected);
        };
        let (response, outcome) = self.answer_caller(request, info, caller).await;
        if let Some(judged) = judged {
            judged.answered(response.status(), &self.inner.access, peer);
        }
        (response, outcome)
    }

    async fn caller(&self, request: &mut Request<Body>, peer: &Peer) -> Result<Caller, Status> {
        let connection = request.extensions().get::<ClientConnection>().cloned();
        let connection = connection.expect("net adds it to every request");
        let access = &self.inner.access;
        access
            .caller(request.headers_mut(), &connection, peer)
            .await
    }

    /// Answers a request of `caller`, unless the caller has too many requests in progress.
    async fn answer_caller(
        &self,
        mut request: Request<Body>,
        info: &RequestInfo,
        caller: &Caller,
    ) -> (Response<Body>, Outcome) {
        match self.inner.shares.request(caller, info) {
            Ok(None) => {}
            // The answer takes the share.
            Ok(Some(share)) => drop(request.extensions_mut().insert(share)),
            Err(TooMany) => return (rescue::too_many_requests(), Outcome::Rejected),
        }
        let handshake = Handshake::of_upgradable(&request);
        let shards = self.inner.shard_selectors;
        let facts = Facts::of(&request, info, caller, handshake.as_ref(), shards);
        match decide(&facts, self.inner.rest_mapper.as_ref()) {
            Decision::Reject(status) => {
                let refusal = Refusal::of(&request);
                (refusal.respond(&status), Outcome::Rejected)
            }
            Decision::RejectAuthorized(read, status) => {
                self.reject_authorized(request, info, caller, &read, *status)
                    .await
            }
            Decision::Forward(reason) => {
                let forwarded = self.forward(request, info, caller, reason, None, None);
                let (response, outcome) = forwarded.await;
                // Nothing is looked up for a caller that may not read.
                if reason == Reason::Unknown
                    && is_authorized(response.status())
                    && let Some(gvr) = info.gvr()
                {
                    self.inner.rest_mapper.refresh_unless_known(&gvr);
                }
                (response, outcome)
            }
            Decision::Read(read) => self.read(request, info, caller, handshake, &read).await,
        }
    }

    /// Takes a seat for `request` under the limit of requests in flight, if it needs one.
    pub(super) fn seat(
        &self,
        request: &Request<Body>,
        info: &RequestInfo,
        caller: &Caller,
    ) -> Result<Option<Seat>, TooManyRequests> {
        self.inner.in_flight.take(info, &holder(request, caller))
    }

    /// Returns true if discovery has the resource of the request that `info` describes.
    pub(super) fn is_known(&self, info: &RequestInfo) -> bool {
        let mapper = &self.inner.rest_mapper;
        let is_known = |gvr| mapper.with(|mapper| mapper.resource(&gvr).is_some());
        info.gvr().is_some_and(is_known)
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
        let known = info.gvr().filter(|_| self.is_known(info));
        let request_outcome = RequestOutcome::new(&info.verb, known, outcome);
        response.extensions_mut().insert(request_outcome);
        if is_long_running(info) {
            response.extensions_mut().insert(LongRunning);
        }
        response
    }
}

impl KnownResources for LiveRestMapper {
    fn spec(
        &self,
        gvr: &GroupVersionResource,
        format: WireFormat,
    ) -> Result<InformerSpec, NotCacheable> {
        self.spec_or_reason(gvr, format)
    }
}

/// Returns true if an answer with `status` shows that the API server has authorized its request.
/// This includes a 404 for a resource that the API server does not have.
fn is_authorized(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::NOT_FOUND
}

/// Returns the output of `future`, or `None` if `deadline` passes first.
pub(super) async fn within<T>(
    deadline: Option<Instant>,
    future: impl Future<Output = T>,
) -> Option<T> {
    match deadline {
        None => Some(future.await),
        Some(deadline) => timeout_at(deadline, future).await.ok(),
    }
}

/// Returns the holder for `request` of `caller`. Limited resources are shared among holders.
pub(super) fn holder(request: &Request<Body>, caller: &Caller) -> Holder {
    let connection = request.extensions().get::<ClientConnection>();
    Holder::of(caller, connection.expect("net adds it to every request"))
}

/// Wraps `handler` in the filters that every request passes: trace, charge, gzip, recover, web
/// pages (with `web_pages`).
pub fn with_filters<H, F>(
    metrics: RequestMetrics,
    web_pages: WebPageRules,
    handler: H,
) -> impl Service<Request<RequestBody>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static
where
    H: Fn(Request<Body>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    ServiceBuilder::new()
        .map_request(|request: Request<RequestBody>| request.map(body::boxed))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_is_refreshed_only_for_requests_that_the_api_server_has_authorized() {
        for (status, expected) in [
            (200, true),
            // It does not have the resource yet, but the caller may read it.
            (404, true),
            (401, false),
            (403, false),
            (429, false),
            (500, false),
            (503, false),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(is_authorized(status), expected, "{status}");
        }
    }
}
