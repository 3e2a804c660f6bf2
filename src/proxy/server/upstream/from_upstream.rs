//! The stages of a request that the API server answers.

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use kubefan_core::api::Status;
use kubefan_core::body::Body;
use kubefan_core::informer::LiveRestMapper;
use kubefan_core::upstream::Forwarder;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::documents::{DocumentMetrics, Documents};
use super::forbidden::{ForbiddenAnswers, ForbiddenRead};
use super::forward::Forwarding;
use super::sharding;
use crate::identity::{AccessControl, KnownCaller};
use crate::ledger::{Account, Budget};
use crate::server::access::{attributes, is_proof, learn_token};
use crate::server::answers::answer::Answer;
use crate::server::answers::held::Held;
use crate::server::answers::outcome::{Forwarded, Outcome};
use crate::server::answers::rescue::FailedForward;
use crate::server::cached::from_cache::Caches;
use crate::server::cached::sessions::{Pending, Sessions};
use crate::server::decide::Reason;
use crate::server::limits::in_flight::{InFlight, Seat};
use crate::server::request::{Exchange, RequestInfo, ShardSelectors};

/// How long after a client's deadline kubefan still waits for a forwarded answer. The API server
/// begins to measure the time later, so its own timeout Status may arrive in this time.
const UPSTREAM_SLACK: Duration = Duration::from_millis(500);

/// The API server, and what requests that are forwarded to it need.
pub(in crate::server) struct Upstream {
    access: AccessControl,
    pub(super) documents: Documents,
    pub(in crate::server) forwarding: Forwarding,
    pub(super) forbidden: ForbiddenAnswers,
    pub(super) in_flight: InFlight,
    rest_mapper: Arc<LiveRestMapper>,
    pub(in crate::server) shard_selectors: ShardSelectors,
    sessions: Sessions,
}

/// Why a request is forwarded, and what limits the wait for its answer.
pub(in crate::server) struct Forward {
    pub(in crate::server) reason: Reason,
    /// If it is set and has no free permit, the answer is 429 and the request is not forwarded.
    pub(in crate::server) limit: Option<Arc<Semaphore>>,
    /// The client's deadline. Shortly after it, the answer is a timeout.
    pub(in crate::server) deadline: Option<Instant>,
}

impl Upstream {
    /// Creates the way to the API server, through `forwarder`, for the requests that `caches`
    /// can't answer.
    pub(in crate::server) fn new(
        caches: &Caches,
        forwarder: Forwarder,
        documents: (DocumentMetrics, Budget),
        forbidden: ForbiddenAnswers,
        shard_selectors: ShardSelectors,
    ) -> Self {
        let (access, shutdown) = (caches.access.clone(), caches.shutdown.clone());
        let mapper = Arc::clone(&caches.rest_mapper);
        let documents = Documents::new(
            access.clone(),
            forwarder.clone(),
            move |group, version| mapper.with(|known| known.is_native_version(group, version)),
            documents,
            shutdown.clone(),
        );
        let shares = caches.shares.clone();
        Self {
            documents,
            forwarding: Forwarding::new(access.clone(), forwarder, shares, shutdown),
            forbidden,
            access,
            in_flight: caches.in_flight.clone(),
            rest_mapper: Arc::clone(&caches.rest_mapper),
            shard_selectors,
            sessions: caches.sessions.clone(),
        }
    }

    /// Forwards the request, and returns the API server's answer.
    pub(in crate::server) async fn forward(
        &self,
        exchange: &mut Exchange,
        forward: Forward,
    ) -> Answer {
        let reason = forward.reason;
        let gvr = exchange.info.gvr();
        let is_native =
            gvr.is_some_and(|gvr| self.rest_mapper.with(|mapper| mapper.is_native(&gvr)));
        let answer = if exchange.info.verb.is_read() {
            let forwarded = self.forward_read(exchange, is_native, forward);
            forwarded.await
        } else {
            Ok(self.forward_write(exchange, is_native).await)
        };
        match answer {
            Ok(response) => {
                let call = exchange.call;
                let outcome = Outcome::Forwarded(Forwarded { reason, call });
                Answer::from(response).with_outcome(outcome)
            }
            Err(refused) => refused,
        }
    }

    /// Forwards a request that no cache can answer, and that shares no answer, such as a write. If
    /// `is_native` is true, the API server itself serves its resource.
    async fn forward_write(&self, exchange: &mut Exchange, is_native: bool) -> Response<Body> {
        let pending = self.sessions.write(exchange);
        let forwarded = self.forwarding.forward(exchange, false, None, None).await;
        let response = forwarded.unwrap_or_else(|failed| exchange.errors.refuse(&failed.refused));
        let response = noted(pending, exchange.client.account.clone(), response).await;
        if let Some(caller) = exchange.caller.known()
            && is_native
        {
            learn_token(&self.access, caller, &exchange.info, response.status());
        }
        let held = Held {
            request: exchange.share.take(),
            ..Held::default()
        };
        held.by(response)
    }

    /// Forwards a GET, LIST or WATCH. If `is_native` is true, the API server itself serves its
    /// resource.
    ///
    /// # Errors
    /// kubefan's own answer, if it does not forward the read.
    async fn forward_read(
        &self,
        exchange: &mut Exchange,
        is_native: bool,
        forward: Forward,
    ) -> Result<Response<Body>, Answer> {
        let reason = forward.reason;
        let serves_shard = self.shard_selectors.serves(&exchange.info);
        if serves_shard && let Some(status) = sharding::refusal(reason) {
            return Err(exchange.refuse(status));
        }
        let denied = denied_read(exchange, reason);
        let kept = denied.as_ref();
        if let Some(kept) = kept.and_then(|read| self.forbidden.answer(read)) {
            return Err(Answer::from(kept).with_outcome(Outcome::KeptRefusal));
        }
        let seat = self.in_flight.take(&exchange.info, &exchange.holder());
        let mut seat = seat.map_err(|limit| exchange.refuse(limit))?;
        let asked_at = Instant::now();
        let pending = self.sessions.forwarded_read(exchange);
        let forwarded = self.forwarded(exchange, is_native, forward, seat.as_mut());
        let forwarded = forwarded.await;
        let mut response =
            forwarded.unwrap_or_else(|failed| exchange.errors.refuse(&failed.refused));
        if let Some(caller) = exchange.caller.known()
            && is_native
        {
            learn_token(&self.access, caller, &exchange.info, response.status());
            let learned = self.learn(caller, &exchange.info, denied, response, asked_at);
            response = learned
                .await
                .unwrap_or_else(|status| exchange.errors.respond(&status));
        }
        response = noted(pending, exchange.client.account.clone(), response).await;
        let replacement = || sharding::replacement_of(response.status(), reason);
        if let Some(status) = serves_shard.then(replacement).flatten() {
            response = exchange.errors.respond(&status);
        }
        let held = Held {
            seat,
            request: exchange.share.take(),
            ..Held::default()
        };
        Ok(held.by(response))
    }

    /// Returns `response`, the API server's answer to the forwarded read that `info` describes, and
    /// remembers what it shows about the rights of `caller`. The read was forwarded at `asked_at`.
    /// `denied` is the read if kubefan forwarded it because `caller` may not read it from a cache.
    ///
    /// # Errors
    /// The Status for the client, if the API server broke off a 403.
    async fn learn(
        &self,
        caller: &KnownCaller,
        info: &RequestInfo,
        denied: Option<ForbiddenRead>,
        mut response: Response<Body>,
        asked_at: Instant,
    ) -> Result<Response<Body>, Status> {
        if let Some(read) = denied {
            let keep_for = self.access.denied_for(caller);
            let kept = self.forbidden.keep(read, response, asked_at, keep_for);
            response = kept.await?;
            if response.status() != StatusCode::FORBIDDEN {
                self.access.not_denied(caller, &attributes(info));
            }
        }
        if is_proof(info, response.status()) {
            self.access.learn(caller, &attributes(info), asked_at);
        }
        Ok(response)
    }

    /// Returns the API server's answer. If the request is for a document that kubefan remembers,
    /// and the API server has confirmed it or does not answer, returns the remembered document.
    async fn forwarded(
        &self,
        exchange: &mut Exchange,
        is_native: bool,
        forward: Forward,
        seat: Option<&mut Seat>,
    ) -> Result<Response<Body>, FailedForward> {
        let document = self.documents.request(exchange);
        let may_share = is_native || document.is_some();
        let forwarding = &self.forwarding;
        let forwarded = forwarding.forward(exchange, may_share, forward.limit, seat);
        let forwarded = match forward.deadline {
            None => forwarded.await,
            Some(deadline) => timeout_at(deadline + UPSTREAM_SLACK, forwarded)
                .await
                .unwrap_or_else(|_| Err(FailedForward::refused(Status::timeout()))),
        };
        let Some(document) = document else {
            return forwarded;
        };
        let answer = self
            .documents
            .answer(document, forwarded, &exchange.caller)?;
        let call = &mut exchange.call;
        // A document from memory has another status than the 304 or the error of the API server.
        call.is_remembered = call.status != Some(answer.status());
        Ok(answer)
    }
}

/// Returns the read of `exchange` if it is forwarded because its caller may not read it from a cache.
pub(super) fn denied_read(exchange: &Exchange, reason: Reason) -> Option<ForbiddenRead> {
    let caller = exchange.caller.known();
    let caller = caller.filter(|_| reason == Reason::NotAuthorized)?;
    ForbiddenRead::of(&exchange.request, caller)
}

/// Returns `response`, after the session of its user has noted what it shows.
async fn noted(
    pending: Option<Pending>,
    account: Option<Arc<Account>>,
    response: Response<Body>,
) -> Response<Body> {
    match pending {
        Some(pending) => pending.answered(response, account).await,
        None => response,
    }
}
