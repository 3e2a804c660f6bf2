//! The stages of a request that a cache answers.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use kubefan_core::api::Status;
use kubefan_core::body::Body;
use kubefan_core::cache::group_weight;
use kubefan_core::concurrency::AskerId;
use kubefan_core::informer::{Informer, ProofRequest};
use kubefan_core::shutdown::Shutdown;
use tokio::time::Instant;

use super::acquire::{acquire, acquire_ready};
use super::collection::Collection;
use super::miss::{CacheAnswer, Miss};
use super::prove::{ProofResult, prove};
use super::read;
use crate::identity::{Caller, Verdict};
use crate::ledger::{Account, Charge, Kind, Short};
use crate::server::access::{verdict, warned};
use crate::server::answers::audit::{AnsweredBy, audited};
use crate::server::answers::held::Held;
use crate::server::answers::outcome::Outcome;
use crate::server::answers::rescue;
use crate::server::answers::rescue::Refusal;
use crate::server::decide::{Plan, Read, Reason};
use crate::server::deliver::{Delivery, over_websocket, with_proof_header};
use crate::server::request::{Handshake, RequestInfo};
use crate::server::service::{Inner, Server, holder, within};

/// If a read has waited for longer than this, its right is looked up again before the read is
/// answered. The decision may have expired, or the caller's roles may have changed. The API server
/// is asked only in these cases.
const VERDICT_COUNTS_FOR: Duration = Duration::from_secs(1);

/// Bytes of a selection that are not charged separately, because the charge for the request covers
/// them.
const FREE_SELECTION: usize = 512;

/// The first minor version of the API server that compresses watch-lists by default.
const WATCH_LIST_GZIP_SINCE: u32 = 37;

/// The decision about the caller's right, the informer, the collection that is read, and the proof
/// that the cache is fresh.
type Prepared = (Verdict, Arc<Informer>, Arc<dyn Collection>, ProofResult);

impl Server {
    /// Answers a read from a cache; forwards or refuses the request if the cache can't answer.
    pub(in crate::server) async fn read(
        &self,
        mut request: Request<Body>,
        info: &RequestInfo,
        caller: &Caller,
        handshake: Option<Handshake>,
        read: &Read,
    ) -> (Response<Body>, Outcome) {
        let Inner {
            gzip_cache,
            initial_chunks,
            request_timeout,
            write_timeout,
            shutdown,
            ..
        } = self.inner.as_ref();
        let after = |timeout: Duration| Instant::now().checked_add(timeout);
        let client_deadline = read.timeout.and_then(after);
        let deadline = read.time_to_head(*request_timeout).and_then(after);
        let is_websocket = handshake.is_some();
        let mut delivery = Delivery::of(&request, read.representation, is_websocket, gzip_cache);
        delivery = delivery.to(AskerId::of(&holder(&request, caller)));
        if self.compresses_watch_lists() {
            delivery = delivery.compressing_watch_lists(initial_chunks);
        }
        let Ok(memory) = charge_selection(&request, read) else {
            return (rescue::too_many_requests(), Outcome::Rejected);
        };
        let prepared = within(deadline, self.prepare(info, caller, read)).await;
        let prepared = prepared.unwrap_or_else(|| Err(Status::timeout().into()));
        let verdict = prepared.as_ref().ok().map(|(verdict, ..)| *verdict);
        let answer = match prepared {
            Ok((_, informer, collection, proof)) => {
                let Ok(seat) = self.seat(&request, info, caller) else {
                    return (rescue::too_many_requests(), Outcome::Rejected);
                };
                let source = (informer, collection);
                let answer = cached(read, source, proof, &delivery, shutdown);
                let answer = within(deadline, answer).await;
                let answer = answer.unwrap_or_else(|| Err(Status::timeout().into()));
                answer.and_then(|response| {
                    let shares = &self.inner.shares;
                    let selection = shares.selection(caller, read, &response)?;
                    Ok((response, seat, selection))
                })
            }
            Err(miss) => Err(miss),
        };
        let miss = match answer {
            Ok((response, seat, selection)) => {
                let extensions = request.extensions();
                let (abort, account) = (extensions.get(), extensions.get());
                let forwarding = &self.inner.forwarding;
                let Ok(right) = forwarding.keep_judging(info, caller, abort, account) else {
                    return (rescue::too_many_requests(), Outcome::Rejected);
                };
                let response = warned(response, verdict);
                let response = audited(&mut request, response, AnsweredBy::Cache);
                let held = Held {
                    seat,
                    selection,
                    memory,
                    right,
                    request: request.extensions_mut().remove(),
                };
                let response = held.by(response);
                // Every upgrade except a WATCH is forwarded, so a read with a handshake is a watch.
                let response = match handshake {
                    Some(handshake) => {
                        let limit = *write_timeout;
                        over_websocket(handshake, &mut request, response, limit, shutdown)
                    }
                    None => response,
                };
                return (response, Outcome::Cache);
            }
            Err(miss) => miss,
        };
        self.answer_miss(request, info, caller, verdict, miss, client_deadline)
            .await
    }

    /// Returns true if the API server compresses watch-lists by default. The clients of an older
    /// API server may not expect compressed ones.
    fn compresses_watch_lists(&self) -> bool {
        let minor = self.inner.rest_mapper.server_minor();
        minor.is_some_and(|minor| minor >= WATCH_LIST_GZIP_SINCE)
    }

    /// Refuses the request with `status` if `caller` may do `read`. Otherwise the API server
    /// refuses it.
    pub(in crate::server) async fn reject_authorized(
        &self,
        request: Request<Body>,
        info: &RequestInfo,
        caller: &Caller,
        read: &Read,
        status: Status,
    ) -> (Response<Body>, Outcome) {
        let after = |timeout: Duration| Instant::now().checked_add(timeout);
        let client_deadline = read.timeout.and_then(after);
        let deadline = read
            .time_to_head(self.inner.request_timeout)
            .and_then(after);
        let may_read = within(deadline, self.may_read(info, caller, read)).await;
        let may_read = may_read.unwrap_or_else(|| Err(Status::timeout().into()));
        let miss = may_read.err().unwrap_or_else(|| status.into());
        self.answer_miss(request, info, caller, None, miss, client_deadline)
            .await
    }

    /// Answers a request that a cache does not answer, because of `miss`. `verdict` is the decision
    /// about the caller's right, if there is one.
    async fn answer_miss(
        &self,
        mut request: Request<Body>,
        info: &RequestInfo,
        caller: &Caller,
        verdict: Option<Verdict>,
        miss: Miss,
        deadline: Option<Instant>,
    ) -> (Response<Body>, Outcome) {
        let refusal = Refusal::of(&request);
        let (reason, limit) = match miss {
            Miss::Absent(status) => {
                let response = warned(refusal.respond(&status), verdict);
                let answer = audited(&mut request, response, AnsweredBy::Cache);
                return (answer, Outcome::Cache);
            }
            Miss::Reject(status) => return (refusal.respond(&status), Outcome::Rejected),
            Miss::Forward(reason) => (reason, None),
            Miss::ForwardLimited(reason, limit) => (reason, Some(limit)),
        };
        self.forward(request, info, caller, reason, limit, deadline)
            .await
    }

    /// Checks that `caller` may read, acquires an informer for `read`, and proves that its cache is
    /// fresh.
    async fn prepare(
        &self,
        info: &RequestInfo,
        caller: &Caller,
        read: &Read,
    ) -> Result<Prepared, Miss> {
        let Inner {
            informers,
            rest_mapper,
            tables,
            ..
        } = self.inner.as_ref();
        let asked_at = Instant::now();
        // Nothing is looked up or started for a caller that may not read.
        let mut verdict = self.may_read(info, caller, read).await?;
        let judged_at = Instant::now();
        let may_start = matches!(caller, Caller::Trusted) || info.name.is_empty();
        let informer = match read.representation.view.is_table() {
            false => acquire(informers, rest_mapper, read, may_start).await?,
            true => acquire_ready(informers, read).await.inspect_err(|_| {
                if may_start {
                    tables.missed(read);
                }
            })?,
        };
        let collection = tables.collection(read, &informer)?;
        let shares = &self.inner.shares;
        let share = |request: &ProofRequest| shares.proof(caller, read, request);
        let proof = prove(read, asked_at, &informer, share).await?;
        if judged_at.elapsed() >= VERDICT_COUNTS_FOR {
            verdict = self.may_read(info, caller, read).await?;
        }
        Ok((verdict, informer, collection, proof))
    }

    /// Returns how `caller` may read.
    ///
    /// # Errors
    /// A [`Miss`] if a cache must not answer the caller.
    async fn may_read(
        &self,
        info: &RequestInfo,
        caller: &Caller,
        read: &Read,
    ) -> Result<Verdict, Miss> {
        match verdict(&self.inner.access, info, caller, read).await {
            allowed @ (Verdict::Allowed | Verdict::Stale) => Ok(allowed),
            Verdict::NotAllowed => Err(Miss::Forward(Reason::NotAuthorized)),
            Verdict::Busy => Err(Status::too_many_reviews().into()),
        }
    }
}

/// Charges what `read` selects to the account of the client's connection, until the read is
/// answered and the body dropped. A selector may have thousands of conditions.
fn charge_selection(request: &Request<Body>, read: &Read) -> Result<Option<Charge>, Short> {
    let selection = match &read.plan {
        Plan::Get { .. } => return Ok(None),
        Plan::List { selection, .. } | Plan::Watch { selection, .. } => selection,
    };
    let bytes = group_weight(selection);
    let account = request.extensions().get::<Arc<Account>>();
    let account = account.filter(|_| bytes > FREE_SELECTION);
    let charge = account.map(|account| account.charge(Kind::Stream, bytes as u64));
    charge.transpose()
}

/// Answers `read` from the cache of the informer. If the read needs a fresh cache, `proof` has
/// shown that it is. The collection shows its objects in the form that the client asks for.
async fn cached(
    read: &Read,
    (informer, collection): (Arc<Informer>, Arc<dyn Collection>),
    proof: ProofResult,
    delivery: &Delivery<'_>,
    shutdown: &Shutdown,
) -> CacheAnswer {
    let proof = match proof {
        Ok(proof) => proof,
        Err(unproven) => return read::without_proof(&unproven, read, &informer, delivery),
    };
    let answer = read::read(read, &collection, proof.as_ref(), delivery, shutdown).await?;
    Ok(with_proof_header(answer, proof.map(|proof| proof.method)))
}
