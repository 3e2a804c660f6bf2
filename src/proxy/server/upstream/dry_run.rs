//! Dry run: what the stages for Forward would find out, without the request. They send, count and
//! note nothing.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::from_upstream::{Upstream, denied_read};
use super::sharding;
use crate::limit::Limit;
use crate::server::answers::rescue::Refused;
use crate::server::decide::Reason;
use crate::server::request::Exchange;

/// How a request would be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum ExpectedCall {
    /// The API server would get it.
    Sent,
    /// The API server would get it, with the `ETag` of a document that kubefan remembers.
    WithEtag,
    /// The client would get the API server's 403 of some seconds ago.
    KeptRefusal,
}

impl Upstream {
    /// Returns how the request of `exchange` would be forwarded for `reason`, with a permit of
    /// `limit` if there is one.
    ///
    /// # Errors
    /// Why kubefan would refuse the request instead.
    pub(in crate::server) fn dry_run(
        &self,
        exchange: &Exchange,
        reason: Reason,
        limit: Option<&Arc<Semaphore>>,
    ) -> Result<ExpectedCall, Refused> {
        let info = &exchange.info;
        if !info.verb.is_read() {
            return Ok(ExpectedCall::Sent);
        }
        if self.shard_selectors.serves(info)
            && let Some(status) = sharding::refusal(reason)
        {
            return Err(status.into());
        }
        let denied = denied_read(exchange, reason);
        let kept = denied.and_then(|read| self.forbidden.answer(&read));
        if kept.is_some() {
            return Ok(ExpectedCall::KeptRefusal);
        }
        if !self.in_flight.has_room(info, &exchange.holder()) {
            return Err(Limit::RequestsInFlight.into());
        }
        if limit.is_some_and(|limit| limit.available_permits() == 0) {
            return Err(Limit::UnprovenReads.into());
        }
        Ok(match self.documents.peek(&exchange.request, info) {
            Some(true) => ExpectedCall::WithEtag,
            Some(false) | None => ExpectedCall::Sent,
        })
    }
}
