//! The request path: filters, then the router's decision, then a handler.

mod admin;
mod answered;
mod cached;
mod chunks;
mod collection;
mod consistent;
mod filters;
mod gzip;
mod handlers;
mod merged;
mod rendering;
mod renderings;
pub mod request_info;
mod rescue;
pub mod router;
mod shared_reads;
mod truth;
mod watch_body;
mod websocket;

#[cfg(test)]
mod watch_body_tests;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::Request;
use http::Response;
use http::header;
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio::time::timeout_at;
use tower::Service;
use tower::ServiceBuilder;
use tower::service_fn;

use crate::api::Query;
use crate::api::Status;
use crate::api::pretty_parameter;
use crate::api::wants_pretty;
use crate::body;
use crate::codec::Negotiated;
use crate::codec::ReadVerb;
use crate::codec::negotiate;
use crate::informer::InformerSet;
use crate::informer::LiveRestMapper;
use crate::informer::Subject;
use crate::shutdown::Shutdown;
use crate::upstream;
use crate::upstream::Forwarder;

pub use admin::Admin;
pub use answered::Answered;
pub use answered::Outcome;
pub use collection::Collection;
pub use filters::RequestMetrics;
pub use renderings::RenderingMetrics;
pub use rescue::answer;
pub use rescue::plain_text;
pub use rescue::respond;
pub use truth::read_truth;
#[cfg(test)]
pub(crate) use watch_body::without_jitter;

/// A body of requests and answers.
pub use crate::body::Body;
/// Boxes any body of bytes.
pub use crate::body::boxed;
/// A body that is all there.
pub use crate::body::full;

use answered::verb_label;
use filters::GzipLayer;
use filters::LocalOnlyLayer;
use filters::RecoverLayer;
use filters::TraceLayer;
use handlers::Delivery;
use handlers::Miss;
use renderings::Renderings;
use request_info::RequestInfo;
use rescue::Refusal;
use router::Facts;
use router::Read;
use router::Reason;
use shared_reads::Failed;
use shared_reads::ReadKey;
use shared_reads::SharedReads;
use websocket::Handshake;

/// How long after a client's deadline the API server, which began to count later, may still tell
/// that it is over.
const UPSTREAM_SLACK: Duration = Duration::from_millis(500);

/// Answers clients. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    informers: InformerSet,
    rest_mapper: Arc<LiveRestMapper>,
    forwarder: Forwarder,
    shared_reads: SharedReads,
    renderings: Renderings,
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
        rendering_metrics: RenderingMetrics,
        shutdown: Shutdown,
    ) -> Self {
        let shared = Shared {
            informers,
            rest_mapper,
            shared_reads: SharedReads::new(forwarder.clone()),
            renderings: Renderings::new(rendering_metrics, shutdown.clone()),
            forwarder,
            metrics,
            shutdown,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The whole stack, in walking order.
    pub fn into_service(
        self,
    ) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static {
        let metrics = self.shared.metrics.clone();
        filtered(metrics, move |request| {
            let server = self.clone();
            async move { server.answer(request).await }
        })
    }

    async fn answer(&self, mut request: Request<Body>) -> Response<Body> {
        let query = request.uri().query().unwrap_or_default();
        let info = RequestInfo::parse(request.method(), request.uri().path(), query);
        let recognised = self.recognise(&request, &info);
        let refusal = Refusal::of(&request);
        let delivery = Delivery::of(&request);
        let cached = self.cached_answer(recognised, &info, query, delivery);
        let (answer, deadline) = cached.await;
        let forwarded = match answer {
            Ok(response) => {
                let response = match Handshake::possible(&request) {
                    // Of reads with a handshake, only watches come so far.
                    Some(handshake) => {
                        handshake.serve(&mut request, response, &self.shared.shutdown)
                    }
                    None => response,
                };
                return self.with_outcome(response, &info, Outcome::Cache);
            }
            // Found absent is as much an answer of the cache as found.
            Err(Miss::Reject(status)) if status.code == 404 => Err((status, Outcome::Cache)),
            Err(Miss::Reject(status)) => Err((status, Outcome::Rejected)),
            Err(Miss::Forward(reason)) => Ok((reason, None)),
            Err(Miss::ForwardUnproven(limit)) => Ok((Reason::Unproven, Some(limit))),
        };
        let (response, outcome) = match forwarded {
            Err((status, outcome)) if refusal.is_exact() => (refusal.respond(&status), outcome),
            refused => {
                let (reason, limit) = refused.unwrap_or((Reason::MediaType, None));
                let forwarded = self.forward(request, &info, limit, &refusal);
                let response = match deadline {
                    None => forwarded.await,
                    Some(deadline) => timeout_at(deadline + UPSTREAM_SLACK, forwarded)
                        .await
                        .unwrap_or_else(|_| refusal.respond(&Status::timeout())),
                };
                (response, Outcome::Forwarded(reason))
            }
        };
        self.with_outcome(response, &info, outcome)
    }

    /// What the API server answers; with `limit`, only if that has a permit.
    async fn forward(
        &self,
        request: Request<Body>,
        info: &RequestInfo,
        limit: Option<Arc<Semaphore>>,
        refusal: &Refusal,
    ) -> Response<Body> {
        let Shared {
            forwarder,
            shared_reads,
            shutdown,
            ..
        } = self.shared.as_ref();
        let has_identity = handlers::forward::has_identity(request.headers());
        if !has_identity && let Some(key) = ReadKey::of(&request, info) {
            let answer = shared_reads.forward(key, request, limit).await;
            return answer.unwrap_or_else(|failed| match failed {
                Failed::TooMany => refusal.respond(&Status::too_many_consistent_reads()),
                Failed::Upstream(error) => refusal.respond(&rescue::forwarding_failed(&error)),
            });
        }
        let permit = match limit.map(Semaphore::try_acquire_owned).transpose() {
            Ok(permit) => permit,
            Err(_) => return refusal.respond(&Status::too_many_consistent_reads()),
        };
        let is_watch = info.verb == "watch";
        let response = handlers::forward::forward(request, is_watch, forwarder, shutdown).await;
        match permit {
            Some(permit) => consistent::holding(response, permit),
            None => response,
        }
    }

    fn with_outcome(
        &self,
        mut response: Response<Body>,
        info: &RequestInfo,
        outcome: Outcome,
    ) -> Response<Body> {
        if !matches!(outcome, Outcome::Forwarded(_)) {
            // They go with everything said about the resource, refusals included.
            let warnings = self.shared.informers.warnings();
            warnings.add(|| info.gvr(), response.headers_mut());
        }
        let answered = self.answered(info, outcome);
        response.extensions_mut().insert(answered);
        response
    }

    /// The read that `request` is, and of what, if a cache could answer it.
    fn recognise(
        &self,
        request: &Request<Body>,
        info: &RequestInfo,
    ) -> Result<(Read, Subject), Reason> {
        let headers = request.headers();
        let gvr = info.gvr();
        let is_custom = gvr.as_ref().is_some_and(|gvr| {
            let mapper = &self.shared.rest_mapper;
            mapper.with(|mapper| mapper.is_custom(gvr))
        });
        let negotiated = negotiated(headers, info, is_custom);
        let facts = Facts {
            method: request.method(),
            info,
            negotiated,
            is_upgrade: upstream::is_upgrade(headers),
            is_websocket: Handshake::possible(request).is_some(),
            has_identity: handlers::forward::has_identity(headers),
            is_pretty: is_pretty(headers, request.uri().query(), negotiated),
            is_custom,
        };
        let read = router::read(&facts)?;
        let gvr = gvr.ok_or(Reason::NonResource)?;
        let subject = self.shared.rest_mapper.subject(&gvr, read.source);
        Ok((read, subject.ok_or(Reason::NotCacheable)?))
    }

    fn answered(&self, info: &RequestInfo, outcome: Outcome) -> Answered {
        let known = info.gvr().filter(|gvr| {
            let mapper = &self.shared.rest_mapper;
            mapper.with(|mapper| mapper.resource(gvr).is_some())
        });
        let (group, resource) = known
            .map(|gvr| (gvr.group, gvr.resource))
            .unwrap_or_default();
        Answered {
            verb: verb_label(&info.verb),
            group,
            resource,
            outcome,
        }
    }
}

/// `handler` behind the filters that every request passes, in walking order.
pub fn filtered<H, F>(
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

fn accept(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(header::ACCEPT).iter();
    let first = values.next()?.to_str().ok()?;
    // Go looks at the first line only.
    Some(first.to_owned())
}

fn negotiated(headers: &HeaderMap, info: &RequestInfo, is_custom: bool) -> Negotiated {
    let verb = match info.verb.as_str() {
        "watch" => ReadVerb::Watch,
        "list" => ReadVerb::List,
        _ => ReadVerb::Get,
    };
    negotiate(accept(headers).as_deref(), verb, is_custom)
}

fn is_pretty(headers: &HeaderMap, query: Option<&str>, negotiated: Negotiated) -> bool {
    let parameter = pretty_parameter(&Query::parse(query.unwrap_or_default()));
    let representation = negotiated.representation();
    let accepts = representation.is_some_and(|representation| representation.indent);
    let agent = headers.get(header::USER_AGENT);
    let agent = agent
        .and_then(|agent| agent.to_str().ok())
        .unwrap_or_default();
    wants_pretty(parameter, accepts, agent)
}
