//! The request path: filters, then the router's decision, then a handler.

mod admin;
mod answered;
mod chunks;
mod collection;
mod consistent;
mod filters;
mod gzip;
mod handlers;
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
use tokio::time::Instant;
use tokio::time::sleep;
use tokio::time::timeout;
use tokio::time::timeout_at;
use tower::Service;
use tower::ServiceBuilder;
use tower::service_fn;

use crate::api::Query;
use crate::api::ResourceVersion;
use crate::api::Status;
use crate::api::pretty_parameter;
use crate::api::request_timeout;
use crate::api::wants_pretty;
use crate::codec::Negotiated;
use crate::codec::ReadVerb;
use crate::codec::negotiate;
use crate::informer::Informer;
use crate::informer::InformerSet;
use crate::informer::LiveRestMapper;
use crate::informer::Refused;
use crate::informer::Subject;
use crate::shutdown::Shutdown;
use crate::upstream;
use crate::upstream::Forwarder;

pub use admin::Admin;
pub use answered::Answered;
pub use answered::Outcome;
pub use collection::Collection;
pub use filters::RequestMetrics;
pub use rescue::answer;
pub use rescue::plain_text;
pub use rescue::respond;
pub use truth::read_truth;
#[cfg(test)]
pub(crate) use watch_body::without_jitter;

/// A body of requests and answers.
pub use crate::upstream::Body;
/// Boxes any body of bytes.
pub use crate::upstream::boxed;
/// A body that is all there.
pub use crate::upstream::full;

use answered::verb_label;
use consistent::prove;
use filters::GzipLayer;
use filters::LocalOnlyLayer;
use filters::RecoverLayer;
use filters::TraceLayer;
use handlers::Answer;
use handlers::Miss;
use handlers::Need;
use handlers::ReadRequest;
use request_info::RequestInfo;
use rescue::Refusal;
use router::Authority;
use router::Facts;
use router::Read;
use router::Reason;
use router::Verb;
use shared_reads::ReadKey;
use shared_reads::SharedReads;
use websocket::Handshake;

/// How long a read waits for an informer's first list.
const SYNC_WAIT: Duration = Duration::from_secs(3);
/// How long a read waits for a resource version that the cache has not reached.
const ON_THE_WAY: Duration = Duration::from_millis(100);
/// How long after a client's deadline the API server, which began to count later, may still tell
/// that it is over.
const UPSTREAM_SLACK: Duration = Duration::from_millis(500);
/// How long an informer that ended may still be found.
const ENDING: Duration = Duration::from_millis(5);

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
        shutdown: Shutdown,
    ) -> Self {
        let shared = Shared {
            informers,
            rest_mapper,
            shared_reads: SharedReads::new(forwarder.clone()),
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
        let (answer, deadline) = self.cached_answer(recognised, &info, query).await;
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
            Err(Miss::ForwardUnproven(leave)) => Ok((Reason::Unproven, Some(leave))),
        };
        let (response, outcome) = match forwarded {
            Err((status, outcome)) if refusal.is_exact() => (refusal.respond(&status), outcome),
            refused => {
                let (reason, leave) = refused.unwrap_or((Reason::MediaType, None));
                let response = self.forward(request, &info, deadline, &refusal).await;
                let response = match leave {
                    Some(leave) => consistent::holding(response, leave),
                    None => response,
                };
                (response, Outcome::Forwarded(reason))
            }
        };
        self.with_outcome(response, &info, outcome)
    }

    /// What a cache answers, and the deadline that the client set for it.
    async fn cached_answer(
        &self,
        recognised: Result<(Read, Subject), Reason>,
        info: &RequestInfo,
        query: &str,
    ) -> (Answer, Option<Instant>) {
        let (asked, subject) = match recognised {
            Ok(recognised) => recognised,
            Err(reason) => return (Err(Miss::Forward(reason)), None),
        };
        let deadline = match deadline_of(asked.verb, query) {
            Ok(deadline) => deadline,
            Err(status) => return (Err(status.into()), None),
        };
        let request = ReadRequest {
            subject: &subject,
            representation: asked.representation,
            info,
            query,
            authority: Authority::Cache,
        };
        let read = self.read(asked.verb, &request);
        let answer = match deadline {
            None => read.await,
            Some(deadline) => timeout_at(deadline, read)
                .await
                .unwrap_or_else(|_| Err(Status::timeout().into())),
        };
        (answer, deadline)
    }

    async fn forward(
        &self,
        request: Request<Body>,
        info: &RequestInfo,
        deadline: Option<Instant>,
        refusal: &Refusal,
    ) -> Response<Body> {
        let Shared {
            forwarder,
            shared_reads,
            shutdown,
            ..
        } = self.shared.as_ref();
        let forwarded = async {
            match handlers::forward::has_identity(request.headers()) {
                false if let Some(key) = ReadKey::of(&request, info) => {
                    let answer = shared_reads.forward(key, request).await;
                    answer
                        .unwrap_or_else(|error| refusal.respond(&rescue::forwarding_failed(&error)))
                }
                _ => {
                    let is_watch = info.verb == "watch";
                    handlers::forward::forward(request, is_watch, forwarder, shutdown).await
                }
            }
        };
        match deadline {
            None => forwarded.await,
            Some(deadline) => timeout_at(deadline + UPSTREAM_SLACK, forwarded)
                .await
                .unwrap_or_else(|_| refusal.respond(&Status::timeout())),
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

    async fn read(&self, verb: Verb, request: &ReadRequest<'_>) -> Answer {
        match verb {
            Verb::Get => {
                let informer = self.running(request)?.ok_or(Reason::NotCached)?;
                let (needed, proof) = match handlers::get::needed(request) {
                    Err(Miss::Forward(Reason::Consistent)) => {
                        let proof = informer.relaxed().ok_or(Reason::Consistent)?;
                        (ResourceVersion::ZERO, Some(proof))
                    }
                    needed => (needed?, None),
                };
                catch_up(&informer, needed).await;
                let answer = handlers::get::get(request, informer.as_ref(), needed, proof.as_ref());
                consistent::told(answer, proof.map(|proof| proof.method))
            }
            Verb::List => {
                let checked = handlers::list::check(request)?;
                let informer = self.informer(request, checked.need()).await?;
                let proof = prove(checked.need(), request, checked.selection(), &informer).await;
                let proof = proof.map_err(|_| consistent::forward_unproven(&informer))?;
                let answer =
                    handlers::list::list(request, &checked, informer.as_ref(), proof.as_ref());
                consistent::told(answer, proof.map(|proof| proof.method))
            }
            Verb::Watch => {
                let checked = handlers::watch::check(request)?;
                let informer = self.informer(request, checked.need()).await?;
                let proof = prove(checked.need(), request, checked.selection(), &informer).await;
                let proof = match proof {
                    Ok(proof) => proof,
                    Err(unproven) => {
                        return consistent::watch_unproven(&unproven, request, &informer);
                    }
                };
                let method = proof.as_ref().map(|proof| proof.method);
                let collection: Arc<dyn Collection> = informer;
                let shutdown = &self.shared.shutdown;
                let answer =
                    handlers::watch::watch(request, &checked, &collection, proof, shutdown);
                consistent::told(answer, method)
            }
        }
    }

    /// The informer that can answer `request`, if one runs.
    fn running(&self, request: &ReadRequest<'_>) -> Result<Option<Arc<Informer>>, Miss> {
        let scope = request.namespace()?;
        Ok(self.shared.informers.get_ready(request.subject, scope))
    }

    /// The informer for `request`, started if need be, as far along as it needs or will be soon.
    ///
    /// A consistent read waits for the first list as well, even where it is forwarded in the end:
    /// what it returns is then at least as new as the cache's first state, so a watch from there
    /// finds its start in the log.
    async fn informer(&self, request: &ReadRequest<'_>, need: Need) -> Result<Arc<Informer>, Miss> {
        if need == Need::Past {
            return self.running(request)?.ok_or(Reason::PastState.into());
        }
        match (timeout(SYNC_WAIT, self.synced(request)).await, need) {
            (Ok(Ok(informer)), Need::NotOlderThan(needed)) => {
                catch_up(&informer, needed).await;
                Ok(informer)
            }
            (Ok(outcome), _) => outcome,
            (Err(_), Need::Consistent) => Err(Miss::Forward(Reason::Unproven)),
            (Err(_), _) => Err(Status::storage_reinitializing(1).into()),
        }
    }

    /// The informer for `request` after its first list.
    async fn synced(&self, request: &ReadRequest<'_>) -> Result<Arc<Informer>, Miss> {
        let scope = request.namespace()?;
        let subject = request.subject;
        loop {
            // Its definition may have changed meanwhile, and with it what selectors mean.
            let current = self
                .shared
                .rest_mapper
                .subject(&subject.resource.gvr, subject.format);
            if current.is_none_or(|current| current.fields != subject.fields) {
                return Err(Miss::Forward(Reason::NotCacheable));
            }
            let informer = match self.shared.informers.get_or_start(subject, scope) {
                Ok(informer) => informer,
                Err(Refused::Forbidden) => return Err(Miss::Forward(Reason::Forbidden)),
                Err(Refused::NotAcceptable) => return Err(Miss::Forward(Reason::NoSuchFormat)),
                Err(Refused::Gone) => return Err(Miss::Forward(Reason::NotCacheable)),
                Err(Refused::ShuttingDown) => return Err(Miss::Forward(Reason::ShuttingDown)),
            };
            if informer.reader().ready().await {
                return Ok(informer);
            }
            // It ended: look again for what it ended with, or for its successor.
            sleep(ENDING).await;
        }
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
        .map_request(|request: Request<Incoming>| request.map(upstream::boxed))
        .layer(TraceLayer::new(metrics))
        .layer(GzipLayer)
        .layer(RecoverLayer)
        .layer(LocalOnlyLayer)
        .service(service_fn(move |request| {
            let answer = handler(request);
            async move { Ok::<_, Infallible>(answer.await) }
        }))
}

/// When a read must be answered, if its client says so with `timeout`; a watch never looks at it.
///
/// # Errors
///
/// 400 for what is no duration.
fn deadline_of(verb: Verb, query: &str) -> Result<Option<Instant>, Status> {
    if verb == Verb::Watch {
        return Ok(None);
    }
    let limit = request_timeout(&Query::parse(query))?;
    Ok(limit.and_then(|limit| Instant::now().checked_add(limit)))
}

/// Waits a little for events on the way; what has not arrived then is the API server's to answer.
async fn catch_up(informer: &Informer, needed: ResourceVersion) {
    let reader = informer.reader();
    reader.wait_for(needed, Instant::now() + ON_THE_WAY).await;
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
