//! Reads from a cache: the informer that can answer, a proof where one is called for, the handler.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio::time::sleep;
use tokio::time::timeout;
use tokio::time::timeout_at;

use crate::api::Query;
use crate::api::ResourceVersion;
use crate::api::Status;
use crate::api::request_timeout;
use crate::informer::Informer;
use crate::informer::Refused;
use crate::informer::Subject;

use super::Collection;
use super::Server;
use super::consistent;
use super::consistent::prove;
use super::handlers;
use super::handlers::Answer;
use super::handlers::Delivery;
use super::handlers::Miss;
use super::handlers::Need;
use super::handlers::ReadRequest;
use super::request_info::RequestInfo;
use super::router::Authority;
use super::router::Read;
use super::router::Reason;
use super::router::Verb;

/// How long a read waits for an informer's first list.
const SYNC_WAIT: Duration = Duration::from_secs(3);
/// How long a read waits for a resource version that the cache has not reached.
const ON_THE_WAY: Duration = Duration::from_millis(100);
/// How long an informer that ended may still be found.
const ENDING: Duration = Duration::from_millis(5);

impl Server {
    /// What a cache answers, and the deadline that the client set for it.
    pub(super) async fn cached_answer(
        &self,
        recognised: Result<(Read, Subject), Reason>,
        info: &RequestInfo,
        query: &str,
        delivery: Delivery,
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
            renderings: delivery.is_gzip_accepted.then_some(&self.shared.renderings),
            is_framed: delivery.is_framed,
            one_by_one: delivery.one_by_one,
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
                    handlers::list::list(request, &checked, informer.as_ref(), proof.as_ref())
                        .await;
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
            // Only a LIST may be forwarded: a watch stays with the API server for long.
            (Err(_), Need::Consistent) if request.info.verb == "list" => {
                let scope = request.namespace()?;
                let filling = self.shared.informers.get_or_start(request.subject, scope);
                Err(filling.map_or(Miss::Forward(Reason::Unproven), |informer| {
                    consistent::forward_unproven(&informer)
                }))
            }
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
}

/// Waits a little for events on the way; what has not arrived then is the API server's to answer.
async fn catch_up(informer: &Informer, needed: ResourceVersion) {
    let reader = informer.reader();
    reader.wait_for(needed, Instant::now() + ON_THE_WAY).await;
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
