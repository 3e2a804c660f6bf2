//! Server: the service that answers clients. It finds the caller of a request, and chooses between
//! a cache (`from_cache.rs`) and the API server (`from_upstream.rs`).

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use http::header::USER_AGENT;
use http::{HeaderMap, Request, Response, StatusCode};
use kubefan_core::api::{GroupVersionResource, Status, WireFormat};
use kubefan_core::body;
use kubefan_core::body::Body;
use kubefan_core::informer::{InformerSet, LiveRestMapper};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::Forwarder;
use tokio::time::{Instant, timeout};
use tower::service_fn;

use super::answers::answer::Answer;
use super::answers::outcome::Outcome;
use super::cached::from_cache::Caches;
use super::cached::miss::Miss;
use super::cached::sessions::Sessions;
use super::config::{Config, Metrics};
use super::decide::{Decision, Reason, decide};
use super::deliver::{InitialChunkCache, ListCache};
use super::filters::{Records, RequestMetrics, WebPageRules, answer_through_filters};
use super::limits::budgets::Budgets;
use super::limits::crowds::Crowds;
use super::limits::in_flight::InFlight;
use super::limits::shares::Shares;
use super::request::{Exchange, Facts, Handshake};
use super::tables::Tables;
use super::upstream::forbidden::ForbiddenAnswers;
use super::upstream::from_upstream::{Forward, Upstream};
use super::upstream::judged_upstream;
use super::upstream::judged_upstream::JudgedUpstream;
use crate::identity::{AccessControl, Caller};
use crate::net::{ClientHandle, HttpService, RequestBody};

/// The service that answers clients' requests. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    pub(super) inner: Arc<Inner>,
}

/// What all clones of a [`Server`] share.
pub(super) struct Inner {
    pub(super) caches: Caches,
    pub(super) upstream: Upstream,
    max_url_bytes: usize,
    pub(super) web_pages: WebPageRules,
    pub(super) records: Records,
    /// The budgets of what clients share, to be shown.
    pub(super) budgets: Budgets,
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
        let budgets = metrics.budgets;
        let shown_budgets = budgets.clone();
        let tables = Tables::new(
            forwarder.client().clone(),
            informers.clone(),
            Arc::clone(&rest_mapper),
            (metrics.tables, budgets.rows),
            shutdown.clone(),
        );
        shutdown.spawn_background(tables.clone().clean());
        let sessions = Sessions::new(
            informers.clone(),
            Arc::clone(&rest_mapper),
            config.has_sessions,
            budgets.sessions,
        );
        let (lists, chunks) = (metrics.lists, metrics.initial_chunks);
        let caches = Caches {
            access,
            informers,
            rest_mapper,
            tables,
            lists: ListCache::new(budgets.lists, lists, shutdown.clone()),
            initial_chunks: InitialChunkCache::new(budgets.chunks, chunks, shutdown.clone()),
            in_flight: InFlight::new(config.max_requests_inflight, metrics.in_flight),
            shares: Shares::new(config.users, unindexed, metrics.shares),
            crowds: Crowds::default(),
            sessions,
            request_timeout: config.request_timeout,
            write_timeout: config.write_timeout,
            shutdown,
        };
        let documents = (metrics.documents, budgets.documents);
        let forbidden = ForbiddenAnswers::new(budgets.forbidden);
        let shards = config.shard_selectors;
        Self {
            inner: Arc::new(Inner {
                upstream: Upstream::new(&caches, forwarder, documents, forbidden, shards),
                caches,
                max_url_bytes: config.max_url_bytes,
                web_pages: config.web_pages,
                records: Records::new(metrics.requests, config.has_cache_status),
                budgets: shown_budgets,
            }),
        }
    }

    /// Applies the limits in `config` that can change while requests are served: the limits of
    /// requests in flight, and the limits of users. All sessions begin again, because policies of
    /// freshness may have changed, too.
    pub fn set_limits(&self, config: &Config) {
        let caches = &self.inner.caches;
        caches.sessions.clear(config.has_sessions);
        caches.in_flight.set_limit(config.max_requests_inflight);
        caches.shares.set_limits(config.users);
    }

    /// Answers a request that has passed the filters.
    pub(super) async fn answer(&self, mut exchange: Box<Exchange>) -> Answer {
        if let Err(status) = self.check_url(&exchange) {
            return exchange.refuse(status);
        }
        let gvr = exchange.info.gvr();
        let mut answer = self.identify_and_answer(&mut exchange).await;
        if !matches!(answer.outcome, Outcome::Forwarded(_)) {
            // Forwarded answers have the API server's warnings already; all others get them here.
            let warnings = self.inner.caches.informers.warnings();
            warnings.add(|| gvr.clone(), answer.response.headers_mut());
        }
        answer.resource = gvr.filter(|gvr| self.is_known(gvr));
        answer.caller = exchange.caller.known().cloned();
        answer.waits = exchange.waits;
        answer
    }

    /// Finds the caller, and answers the request. If only the API server can judge the
    /// credentials of the caller, its answer decides what happens to the connection.
    async fn identify_and_answer(&self, exchange: &mut Exchange) -> Answer {
        let caches = &self.inner.caches;
        let access = &caches.access;
        let client = exchange.client.clone();
        let headers = exchange.request.headers_mut();
        let caller = access.caller(headers, &client.connection, &client.peer);
        let caller = timeout(caches.request_timeout, pin!(caller)).await;
        match caller.unwrap_or_else(|_| Err(Status::timeout())) {
            Ok(caller) => {
                note_sender(&client, exchange.request.headers(), &caller);
                exchange.caller = caller;
            }
            Err(status) => {
                judged_upstream::refused(exchange, &status);
                return exchange.refuse(status);
            }
        }
        let has_accepted = |headers: &_| self.inner.upstream.forwarding.has_accepted(headers);
        let judged = match JudgedUpstream::of(exchange, has_accepted) {
            Ok(judged) => judged,
            Err(limit) => return exchange.refuse(limit),
        };
        let answer = self.answer_caller(exchange).await;
        if let Some(judged) = judged {
            judged.answered(answer.response.status(), access);
        }
        answer
    }

    /// Answers a request whose caller was found, unless the caller has too many in progress.
    ///
    /// The work is boxed. A future contains those that it awaits, and is copied twice into that of
    /// its caller. So without the boxes, all stages and filters would copy the work.
    async fn answer_caller(&self, exchange: &mut Exchange) -> Answer {
        let caches = &self.inner.caches;
        match caches.shares.request(&exchange.caller, &exchange.info) {
            Ok(share) => exchange.share = share,
            Err(limit) => return exchange.refuse(limit),
        }
        let handshake = Handshake::of_upgradable(&exchange.request);
        let (read, status) = match self.decide(exchange, handshake.as_ref()) {
            Decision::Reject(status) => return exchange.refuse(status),
            Decision::Forward(reason) => return self.forward(exchange, reason).await,
            Decision::Read(read) => (read, None),
            Decision::RejectAuthorized(read, status) => (read, Some(status)),
        };
        let deadline = read
            .timeout
            .and_then(|time| Instant::now().checked_add(time));
        let miss = match status {
            Some(status) => {
                let (info, caller) = (&exchange.info, &exchange.caller);
                Box::pin(caches.refusal_reason(info, caller, &read, *status)).await
            }
            None => match Box::pin(caches.read(exchange, handshake, &read)).await {
                Ok(answer) => return answer,
                Err(miss) => miss,
            },
        };
        // Its selection may be long, and is charged only while a cache reads it.
        drop(read);
        let (reason, limit) = match miss {
            // `Caches::read` answers a missing object itself, so this is not reached.
            Miss::Absent(status) => return exchange.refuse(*status),
            Miss::Reject(refused) => return exchange.refuse(refused),
            Miss::Forward(reason) => (reason, None),
            Miss::ForwardLimited(reason, limit) => (reason, Some(limit)),
        };
        let forward = Forward {
            reason,
            limit,
            deadline,
        };
        Box::pin(self.inner.upstream.forward(exchange, forward)).await
    }

    /// Checks the length of the URL.
    ///
    /// # Errors
    /// The Status of the refusal.
    pub(super) fn check_url(&self, exchange: &Exchange) -> Result<(), Status> {
        let url = exchange.request.uri().path_and_query();
        let url_bytes = url.map_or(0, |url| url.as_str().len());
        let max_bytes = self.inner.max_url_bytes;
        if url_bytes > max_bytes {
            return Err(Status::url_too_long(max_bytes));
        }
        Ok(())
    }

    /// Decides how the request of `exchange`, whose caller was found, is handled. `handshake` is its
    /// WebSocket handshake, if kubefan can grant it.
    pub(super) fn decide(&self, exchange: &Exchange, handshake: Option<&Handshake>) -> Decision {
        let query = exchange.query();
        let shard_selectors = self.inner.upstream.shard_selectors;
        let facts = Facts::of(exchange, &query, handshake, shard_selectors);
        let mapper = &self.inner.caches.rest_mapper;
        decide(&facts, |gvr| mapper.spec_or_reason(gvr, WireFormat::Json))
    }

    /// Forwards a request that no cache could answer.
    async fn forward(&self, exchange: &mut Exchange, reason: Reason) -> Answer {
        let gvr = exchange.info.gvr();
        let forward = Forward {
            reason,
            limit: None,
            deadline: None,
        };
        let answer = Box::pin(self.inner.upstream.forward(exchange, forward)).await;
        // Nothing is looked up for a caller that may not read.
        if reason == Reason::Unknown
            && is_authorized(answer.response.status())
            && let Some(gvr) = gvr
        {
            self.inner.caches.rest_mapper.refresh_unless_known(&gvr);
        }
        answer
    }

    /// Returns true if discovery has the resource.
    fn is_known(&self, gvr: &GroupVersionResource) -> bool {
        let mapper = &self.inner.caches.rest_mapper;
        mapper.with(|mapper| mapper.resource(gvr).is_some())
    }
}

/// Notes the user and the program that have sent a request with `headers`, to be shown.
fn note_sender(client: &ClientHandle, headers: &HeaderMap, caller: &Caller) {
    let account = client.account.as_ref();
    if let Some(client) = account.and_then(|account| account.client()) {
        let user = caller.known().map(|caller| caller.user().name.as_str());
        let agent = headers.get(USER_AGENT);
        client.note_sender(user, agent.and_then(|agent| agent.to_str().ok()));
    }
}

/// Returns true if an answer with `status` shows that the API server has authorized its request.
/// This includes a 404 for a resource that the API server does not have.
fn is_authorized(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::NOT_FOUND
}

/// Wraps `handler` in the filters that every request passes: trace, charge, gzip, recover, web
/// pages (with `web_pages`).
pub fn with_filters<H, F>(
    metrics: RequestMetrics,
    web_pages: WebPageRules,
    handler: H,
) -> impl HttpService<Body, Error = Infallible, Future: Send>
where
    H: Fn(Request<Body>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let records = Records::new(metrics, false);
    filtered(records, web_pages, move |exchange: Box<Exchange>| {
        let response = handler(exchange.request);
        async move { Answer::from(response.await) }
    })
}

/// Does what [`with_filters`] does, for a handler of exchanges.
pub(super) fn filtered<H, F>(
    records: Records,
    web_pages: WebPageRules,
    handler: H,
) -> impl HttpService<Body, Error = Infallible, Future: Send>
where
    H: Fn(Box<Exchange>) -> F + Clone + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    service_fn(move |request: Request<RequestBody>| {
        let (records, handler) = (records.clone(), handler.clone());
        // The future is boxed, because the stream holds its memory while its body is sent.
        Box::pin(async move {
            let exchange = Exchange::of(request.map(body::boxed));
            let response = answer_through_filters(exchange, &records, web_pages, handler).await;
            Ok::<_, Infallible>(response)
        })
    })
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
