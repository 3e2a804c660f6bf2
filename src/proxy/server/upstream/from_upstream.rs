//! The stages of a request that the API server answers.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use kubefan_core::api::Status;
use kubefan_core::body::Body;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::forbidden::ForbiddenRead;
use super::forward::ForwardedWith;
use super::sharding;
use crate::identity::Caller;
use crate::server::access::Rights;
use crate::server::answers::audit::{AnsweredBy, audited};
use crate::server::answers::held::Held;
use crate::server::answers::outcome::Outcome;
use crate::server::answers::rescue;
use crate::server::answers::rescue::Refusal;
use crate::server::decide::Reason;
use crate::server::limits::shares::RequestShare;
use crate::server::request::RequestInfo;
use crate::server::service::{Server, within};

/// How long after a client's deadline kubefan still waits for a forwarded answer. The API server
/// begins to measure the time later, so its own timeout Status may arrive in this time.
const UPSTREAM_SLACK: Duration = Duration::from_millis(500);

impl Server {
    /// Forwards the request, and answers with a timeout shortly after `deadline`. If `limit` is set
    /// and has no free permit, the answer is 429 and the request is not forwarded.
    pub(in crate::server) async fn forward(
        &self,
        mut request: Request<Body>,
        info: &RequestInfo,
        caller: &Caller,
        reason: Reason,
        limit: Option<Arc<Semaphore>>,
        deadline: Option<Instant>,
    ) -> (Response<Body>, Outcome) {
        let serves_shard = self.inner.shard_selectors.serves(info);
        if serves_shard && let Some(status) = sharding::refusal(reason) {
            return (Refusal::of(&request).respond(&status), Outcome::Rejected);
        }
        let denied = match (caller, reason) {
            (Caller::Known(caller), Reason::NotAuthorized) => ForbiddenRead::of(&request, caller),
            _ => None,
        };
        let kept = denied
            .as_ref()
            .and_then(|read| self.inner.forbidden.answer(read));
        if let Some(kept) = kept {
            let answer = audited(&mut request, kept, AnsweredBy::KeptRefusal);
            return (answer, Outcome::Rejected);
        }
        let share = request.extensions_mut().remove::<RequestShare>();
        let Ok(mut seat) = self.seat(&request, info, caller) else {
            return (rescue::too_many_requests(), Outcome::Rejected);
        };
        let refusal = Refusal::of(&request);
        let deadline = deadline.map(|deadline| deadline + UPSTREAM_SLACK);
        let is_native = info.gvr().is_some_and(|gvr| {
            let rest_mapper = &self.inner.rest_mapper;
            rest_mapper.with(|mapper| mapper.is_native(&gvr))
        });
        let documents = &self.inner.documents;
        let document = documents.request(&mut request, info);
        let asked_at = Instant::now();
        let forwarding = &self.inner.forwarding;
        let held = ForwardedWith {
            limit,
            share: share.clone(),
            seat: seat.as_mut(),
        };
        let may_share = is_native || document.is_some();
        let forwarded = forwarding.forward(request, info, caller, may_share, held);
        let forwarded = within(deadline, forwarded).await;
        let forwarded = forwarded.unwrap_or_else(|| Err(Status::timeout().into()));
        let forwarded = match document {
            Some(document) => documents.answer(document, forwarded, caller),
            None => forwarded,
        };
        let response = forwarded.unwrap_or_else(|failed| refusal.respond(&failed.status));
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
        let replacement = || sharding::replacement_of(response.status(), reason);
        let response = match serves_shard.then(replacement).flatten() {
            Some(status) => refusal.respond(&status),
            None => response,
        };
        let held = Held {
            seat,
            request: share,
            ..Held::default()
        };
        (held.by(response), Outcome::Forwarded(reason))
    }
}
