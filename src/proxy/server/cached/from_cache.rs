//! The stages of a request that a cache answers.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use http_body::Body as _;
use kubefan_core::api::Status;
use kubefan_core::body::Body;
use kubefan_core::cache::group_weight;
use kubefan_core::informer::{Informer, InformerSet, LiveRestMapper, ProofRequest};
use kubefan_core::shutdown::Shutdown;
use tokio::time::{Instant, timeout_at};

use super::acquire::acquire;
use super::collection::Collection;
use super::cost::cached_read;
use super::miss::{CacheAnswer, Miss};
use super::prove::{ProofResult, prove};
use super::read;
use super::sessions::Sessions;
use crate::identity::{AccessControl, Caller, Verdict};
use crate::ledger::{Charge, MemoryKind, Short};
use crate::limit::Limit;
use crate::server::access::{verdict, warned};
use crate::server::answers::answer::{Answer, Shown, Waits};
use crate::server::answers::held::Held;
use crate::server::answers::outcome::{Hit, Outcome, UsedProof};
use crate::server::answers::spans;
use crate::server::decide::{Need, Plan, Read, Reason};
use crate::server::deliver::{
    Delivery, InitialChunkCache, ListCache, charge_websocket, over_websocket, with_proof_header,
};
use crate::server::limits::crowds::{Crowds, WaitingRead};
use crate::server::limits::in_flight::InFlight;
use crate::server::limits::shares::Shares;
use crate::server::request::{Exchange, Handshake, RequestInfo};
use crate::server::tables::Tables;
use crate::server::upstream::forward::Right;

/// If a read has waited for longer than this, its right is looked up again before the read is
/// answered. The API server is asked only if the decision has expired or the caller's roles have
/// changed.
const VERDICT_COUNTS_FOR: Duration = Duration::from_secs(1);

/// Bytes of a selection that are not charged separately, because the charge for the request covers
/// them.
const FREE_SELECTION: usize = 512;

/// The first minor version of the API server that compresses watch-lists by default.
const WATCH_LIST_GZIP_SINCE: u32 = 37;

/// The caches, and what reads of them need.
pub(in crate::server) struct Caches {
    pub(in crate::server) access: AccessControl,
    pub(in crate::server) informers: InformerSet,
    pub(in crate::server) rest_mapper: Arc<LiveRestMapper>,
    pub(in crate::server) tables: Tables,
    pub(in crate::server) lists: ListCache,
    pub(in crate::server) initial_chunks: InitialChunkCache,
    pub(in crate::server) in_flight: InFlight,
    pub(in crate::server) shares: Shares,
    pub(in crate::server) crowds: Crowds,
    pub(in crate::server) sessions: Sessions,
    pub(in crate::server) request_timeout: Duration,
    /// How long a client of a WebSocket may take no byte.
    pub(in crate::server) write_timeout: Duration,
    pub(in crate::server) shutdown: Shutdown,
}

/// What an allowed read needs.
struct Prepared {
    /// The decision about the caller's right, and when it was made.
    verdict: Verdict,
    judged_at: Instant,
    informer: Arc<Informer>,
    /// The collection that is read.
    collection: Arc<dyn Collection>,
    /// Counts the read as waiting, if crowds of such reads are counted.
    waiting: Option<WaitingRead>,
    /// The proof that the cache is fresh.
    proof: ProofResult,
}

impl Prepared {
    /// Returns the proof that the answer relies on, if it needs one.
    fn used_proof(&self) -> Option<UsedProof> {
        let proof = self.proof.as_ref().ok()?.as_ref()?;
        Some(UsedProof {
            method: proof.method,
            as_of: proof.as_of,
        })
    }
}

impl Caches {
    /// Answers `read` from a cache. `handshake` is that of a WATCH over a WebSocket: every other
    /// upgrade is forwarded.
    ///
    /// # Errors
    /// A [`Miss`] if no cache can answer, but not [`Miss::Absent`].
    pub(in crate::server) async fn read(
        &self,
        exchange: &mut Exchange,
        handshake: Option<Handshake>,
        read: &Read,
    ) -> CacheAnswer {
        let deadline = self.deadline(read);
        let memory = charge_selection(exchange, read)?;
        let caller = (&*exchange.info, &exchange.caller);
        let work = self.prepare(caller, read, &mut exchange.waits);
        let mut prepared = in_time(deadline, pin!(work)).await?;
        if let (Some(trace), Ok(Some(proof))) = (&exchange.trace, &prepared.proof) {
            spans::proven(trace, proof);
        }
        let outcome = Outcome::Cache(Hit {
            is_json_instead: read.prefers_other_type,
            proof: prepared.used_proof(),
        });
        exchange.waiting = prepared.waiting.take();
        let seat = self.in_flight.take(&exchange.info, &exchange.holder())?;
        let delivery = self.delivery(exchange, read, handshake.is_some());
        let informer = Arc::clone(&prepared.informer);
        let work = self.answer(caller, read, &mut prepared, &delivery);
        let answer = in_time(deadline, pin!(work)).await;
        let verdict = prepared.verdict;
        let answer = match answer {
            Ok(answer) => answer,
            Err(Miss::Absent(status)) => {
                let response = warned(exchange.errors.respond(&status), Some(verdict));
                let absent = absent(response).with_outcome(outcome);
                return Ok(self.with_cost(exchange, read, &informer, absent));
            }
            Err(miss) => return Err(miss),
        };
        let units = answer.limited_units;
        let selection = self.shares.selection(&exchange.caller, read, units)?;
        let right = Right::of(&self.access, exchange)?;
        let websocket = match handshake {
            Some(handshake) => Some((handshake, charge_websocket(&exchange.client)?)),
            None => None,
        };
        let answer = answer.with_outcome(outcome);
        let mut answer = self.with_cost(exchange, read, &informer, answer);
        let response = warned(answer.response, Some(verdict));
        let held = Held {
            seat,
            selection,
            memory,
            right,
            request: exchange.share.take(),
        };
        answer.response = held.by(response);
        if let Some(websocket) = websocket {
            let limits = (read.watch_timeout(), self.write_timeout);
            let watch = (answer.response, answer.meter.clone());
            answer.response = over_websocket(websocket, exchange, watch, limits, &self.shutdown);
        }
        Ok(answer)
    }

    /// Adds to `answer`, which the cache of `informer` has made, what it would have cost the API
    /// server. Does nothing without a bill, which alone needs that.
    fn with_cost(
        &self,
        exchange: &Exchange,
        read: &Read,
        informer: &Informer,
        answer: Answer,
    ) -> Answer {
        let ending = exchange.ending.as_ref();
        if !ending.is_some_and(|ending| ending.is_billed()) {
            return answer;
        }
        let query = exchange.request.uri().query().unwrap_or_default();
        let (shown, minor) = (answer.shown, self.rest_mapper.server_minor());
        let made = (shown, answer.limited_units);
        let read = cached_read((read, query), informer.reader(), made, minor);
        Answer {
            read: Some(read),
            ..answer
        }
    }

    /// Returns why no cache answers `read`: it is refused with `status` if `caller` may do the
    /// read. Otherwise the API server refuses it.
    pub(in crate::server) async fn refusal_reason(
        &self,
        info: &RequestInfo,
        caller: &Caller,
        read: &Read,
        status: Status,
    ) -> Miss {
        let work = self.may_read(info, caller, read);
        let verdict = in_time(self.deadline(read), pin!(work)).await;
        verdict.err().unwrap_or_else(|| status.into())
    }

    /// Returns the time until which the head of the answer to `read` must be sent.
    fn deadline(&self, read: &Read) -> Option<Instant> {
        let time = read.time_to_head(self.request_timeout)?;
        Instant::now().checked_add(time)
    }

    /// Checks that `caller` may read, acquires an informer for `read`, and proves that its cache
    /// is fresh. Notes in `waits` how long that took.
    async fn prepare(
        &self,
        (info, caller): (&RequestInfo, &Caller),
        read: &Read,
        waits: &mut Waits,
    ) -> Result<Prepared, Miss> {
        let asked_at = Instant::now();
        waits.began = Some(asked_at);
        // Nothing is looked up or started for a caller that may not read.
        let verdict = self.may_read(info, caller, read).await?;
        let judged_at = Instant::now();
        waits.authorize = judged_at - asked_at;
        let session = self.sessions.read(caller, read);
        let informer = self.informer(info, caller, read).await?;
        let acquired_at = Instant::now();
        waits.acquire = acquired_at - judged_at;
        let columns = self.tables.definition_version(read);
        let mut collection = self.tables.collection(read, &informer)?;
        let waiting = self.crowds.wait(caller, read, &informer);
        let is_lone = waiting.as_ref().is_some_and(|read| !read.is_in_crowd());
        let share = |request: &ProofRequest| self.shares.proof(caller, read, request);
        let definitions = (&self.informers, self.rest_mapper.as_ref());
        let proven_since = match &session {
            Some(session) => self.sessions.catch_up(session, &informer).await,
            None => asked_at,
        };
        let asked = (proven_since, is_lone);
        let proof = prove(read, asked, &informer, definitions, share).await?;
        waits.prove = acquired_at.elapsed();
        if let (Some(session), Ok(Some(proof))) = (&session, &proof) {
            self.sessions.shown(session, &informer, proof);
        }
        if self.tables.definition_version(read) != columns {
            collection = self.tables.collection(read, &informer)?;
        }
        Ok(Prepared {
            verdict,
            judged_at,
            informer,
            collection,
            waiting,
            proof,
        })
    }

    /// Returns the informer that can answer `read`, after its first list, and starts it if this
    /// read may start one.
    ///
    /// # Errors
    /// A [`Miss`] if no informer can answer.
    async fn informer(
        &self,
        info: &RequestInfo,
        caller: &Caller,
        read: &Read,
    ) -> Result<Arc<Informer>, Miss> {
        let may_start = self.may_start(info, caller, read);
        let acquired = acquire(&self.informers, &self.rest_mapper, read, may_start).await;
        acquired.inspect_err(|_| {
            if may_start && read.representation.view.is_table() {
                self.tables.missed(read);
            }
        })
    }

    /// Returns true if this `read` may start an informer, if it is of a kind that may.
    pub(super) fn may_start(&self, info: &RequestInfo, caller: &Caller, read: &Read) -> bool {
        (matches!(caller, Caller::Trusted) || info.name.is_empty()) && !self.is_rarely_proven(read)
    }

    /// Returns true for a strict LIST of Events, which starts no cache, because most such LISTs are
    /// forwarded in the end. One of a shard can't be forwarded.
    fn is_rarely_proven(&self, read: &Read) -> bool {
        matches!(read.plan, Plan::List { .. })
            && read.need == Need::MostRecent
            && read.spec.resource.gvr.is_events()
            && self.informers.is_strict(&read.spec)
            && !read.is_of_shard()
    }

    /// Returns how `caller` may read.
    ///
    /// # Errors
    /// A [`Miss`] if a cache must not answer the caller.
    pub(super) async fn may_read(
        &self,
        info: &RequestInfo,
        caller: &Caller,
        read: &Read,
    ) -> Result<Verdict, Miss> {
        match verdict(&self.access, info, caller, read).await {
            allowed @ (Verdict::Allowed | Verdict::Stale) => Ok(allowed),
            Verdict::NotAllowed => Err(Miss::Forward(Reason::NotAuthorized)),
            Verdict::Busy => Err(Limit::Reviews.into()),
        }
    }

    /// Answers `read` from the cache of the informer. If the read needs a fresh cache, the proof
    /// has shown that it is. The collection shows its objects in the form that the client asks for.
    ///
    /// A read may have waited for its cache, for its proof, or for the request that makes an equal
    /// list. After a long wait, its right is checked again.
    async fn answer(
        &self,
        (info, caller): (&RequestInfo, &Caller),
        read: &Read,
        prepared: &mut Prepared,
        delivery: &Delivery<'_>,
    ) -> CacheAnswer {
        let answer = match &prepared.proof {
            Ok(proof) => {
                let (collection, proof) = (&prepared.collection, proof.as_ref());
                let answer = read::read(read, collection, proof, delivery, &self.shutdown).await;
                let method = proof.map(|proof| proof.method);
                answer.map(|answer| answer.map(|response| with_proof_header(response, method)))
            }
            Err(unproven) => read::without_proof(unproven, read, &prepared.informer, delivery),
        };
        // The API server itself judges what is forwarded.
        let is_forwarded = matches!(answer, Err(Miss::Forward(_) | Miss::ForwardLimited(..)));
        if !is_forwarded && prepared.judged_at.elapsed() >= VERDICT_COUNTS_FOR {
            prepared.verdict = self.may_read(info, caller, read).await?;
        }
        answer
    }

    /// Returns how the answer to `read` is encoded and sent.
    fn delivery(&self, exchange: &Exchange, read: &Read, is_websocket: bool) -> Delivery<'_> {
        // The clients of an older API server may not expect compressed watch-lists.
        let minor = self.rest_mapper.server_minor();
        let compresses = minor.is_some_and(|minor| minor >= WATCH_LIST_GZIP_SINCE);
        let chunks = compresses.then_some(&self.initial_chunks);
        let (representation, lists) = (read.representation, &self.lists);
        Delivery::of(exchange, representation, is_websocket, lists, chunks)
    }
}

/// Returns the answer with the `response` that an object does not exist.
fn absent(response: Response<Body>) -> Answer {
    let bytes = response.body().size_hint().exact().unwrap_or_default();
    Answer {
        shown: Shown { objects: 0, bytes },
        ..response.into()
    }
}

/// Returns the output of `work`, or a 504 if `deadline` passes first. The callers pin long work,
/// because it would be copied several times here.
async fn in_time<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, Miss>>,
) -> Result<T, Miss> {
    match deadline {
        None => work.await,
        Some(deadline) => timeout_at(deadline, work)
            .await
            .unwrap_or_else(|_| Err(Status::timeout().into())),
    }
}

/// Charges what `read` selects to the account of the client's connection, until the read is
/// answered and the body dropped. A selector may have thousands of conditions.
fn charge_selection(exchange: &Exchange, read: &Read) -> Result<Option<Charge>, Short> {
    match read.selection().map(|selection| group_weight(selection)) {
        Some(bytes) if bytes > FREE_SELECTION => {
            exchange.client.charge(MemoryKind::Stream, bytes as u64)
        }
        _ => Ok(None),
    }
}
