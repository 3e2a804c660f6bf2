//! Limits the requests that are forwarded for callers without accepted credentials: callers without
//! any credentials, and callers with a token that the API server has not accepted yet.
//!
//! Each of these requests needs a separate connection, because the API server closes an HTTP/2
//! connection when it answers such a request. So a few requests are in flight at a time, and the
//! others wait. Source addresses take turns. Requests without a token can never be accepted, and
//! cost their sender nothing, so an address may send as many of them as it may send wrong tokens.

use std::num::NonZeroU32;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use kubefan_core::concurrency::{Full, Permit};
use kubefan_core::upstream::bearer_token;
use prometheus::IntCounter;

use super::claims;
use crate::identity::asking::failed_attempts::{FailedAttempts, Source};
use crate::identity::asking::queue::{AskQueue, QueueMetrics};
use crate::net::Peer;

/// The limit of requests in flight. One address may have half of them.
const IN_FLIGHT: usize = 32;
/// The limit of requests that wait or are in flight.
const CAPACITY: usize = 64 * IN_FLIGHT;

/// The requests of callers that the API server has not accepted yet.
pub(in crate::identity) struct UnacceptedRequests {
    queue: AskQueue<Source>,
    anonymous: FailedAttempts<Source>,
    /// Counts requests without credentials that got 429 because their address sent too many.
    limited: IntCounter,
}

/// The permission to forward one such request. It is valid until the request's answer was sent or
/// dropped.
pub struct UnacceptedPermit {
    _permit: Permit<Source>,
}

/// Returns true if the API server takes the sender of a request with `headers` for the anonymous
/// user. Tokens are the only credentials that the API server reads here; a certificate never
/// reaches it.
pub(crate) fn is_anonymous(headers: &HeaderMap) -> bool {
    let authorization = headers.get(AUTHORIZATION);
    authorization.and_then(bearer_token).is_none() && !claims::has_token_protocol(headers)
}

impl UnacceptedRequests {
    /// Creates the limits. `per_second` is how many requests without credentials an address may
    /// send, on average.
    pub(in crate::identity) fn new(
        per_second: NonZeroU32,
        queue: QueueMetrics,
        limited: IntCounter,
    ) -> Self {
        Self {
            queue: AskQueue::new(IN_FLIGHT, CAPACITY, queue),
            anonymous: FailedAttempts::new(per_second),
            limited,
        }
    }

    /// Waits until a request of `peer` with `headers` may be forwarded. Cancel safe.
    ///
    /// # Errors
    /// [`Full`] if the address sends too many.
    pub(in crate::identity) async fn admit(
        &self,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Result<UnacceptedPermit, Full> {
        let source = Source::of(peer.address.ip());
        if is_anonymous(headers) {
            if self.anonymous.is_exhausted(source) {
                self.limited.inc();
                return Err(Full);
            }
            self.anonymous.count(source);
        }
        let permit = self.queue.admit(source).await?;
        Ok(UnacceptedPermit { _permit: permit })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use futures_util::FutureExt;
    use prometheus::IntGauge;

    use super::*;

    fn requests() -> UnacceptedRequests {
        let counter = || IntCounter::new("count", "count").expect("a counter");
        let queue = QueueMetrics {
            waiting: IntGauge::new("waiting", "waiting").expect("a gauge"),
            refused: counter(),
        };
        let per_second = NonZeroU32::new(100).expect("100 is not 0");
        UnacceptedRequests::new(per_second, queue, counter())
    }

    fn peer(address: &str) -> Peer {
        Peer {
            address: SocketAddr::new(address.parse().expect("an address"), 1),
            tls: true,
            certificates: None,
        }
    }

    fn headers(authorization: Option<&str>) -> HeaderMap {
        let value = authorization.map(|value| value.parse().expect("a header"));
        value
            .map(|value| (AUTHORIZATION, value))
            .into_iter()
            .collect()
    }

    #[test]
    fn what_the_api_server_does_not_read_is_no_credential() {
        for (authorization, expected) in [
            (None, true),
            (Some("Basic YWRtaW46YWRtaW4="), true),
            (Some("Bearer"), true),
            (Some("Bearer  x"), true),
            (Some("Bearer x"), false),
        ] {
            let found = is_anonymous(&headers(authorization));
            assert_eq!(found, expected, "{authorization:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_has_half_of_the_places_and_a_rate_without_a_token() {
        let requests = requests();
        let (bad, good) = (peer("192.0.2.1"), peer("192.0.2.2"));
        let token = headers(Some("Bearer x"));
        let admit = |headers: &HeaderMap, peer: &Peer| requests.admit(headers, peer).now_or_never();
        let held: Vec<_> = std::iter::from_fn(|| admit(&token, &bad)).collect();
        assert_eq!(held.len(), IN_FLIGHT / 2);
        assert!(admit(&token, &good).is_some_and(|admitted| admitted.is_ok()));
        drop(held);
        let anonymous = headers(None);
        let sent = (0..2_000).filter(|_| {
            let admitted = admit(&anonymous, &bad);
            admitted.expect("a place").is_ok()
        });
        assert_eq!(sent.count(), 1_000);
        assert_eq!(requests.limited.get(), 1_000);
        assert!(admit(&anonymous, &good).is_some_and(|admitted| admitted.is_ok()));
        assert!(admit(&token, &bad).is_some_and(|admitted| admitted.is_ok()));
    }
}
