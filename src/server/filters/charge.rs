//! Charges each request and its answer to the ledger, and refuses requests if memory is short.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;

use http::HeaderMap;
use http::Request;
use http::Response;
use http_body::Body as _;
use tower::Layer;
use tower::Service;

use crate::body;
use crate::body::Body;
use crate::body::BodyGuard;
use crate::body::guarded;
use crate::ledger::Account;
use crate::ledger::Charge;
use crate::ledger::Kind;
use crate::ledger::Short;
use crate::ledger::SnapshotAge;
use crate::server::deliver::HeldBody;
use crate::server::deliver::OwnCompressor;
use crate::server::outcome::Outcome;
use crate::server::outcome::RequestOutcome;
use crate::server::rescue;
use crate::upstream;

use super::AnswerFuture;

/// Bytes of a request's task, its state in the HTTP library, and the head of its answer.
const STREAM_BYTES: u64 = 12 << 10;
/// Bytes of chunks that the HTTP library may hold of a watch, and of events that it has fetched.
const WATCH_BYTES: u64 = 16 << 10;

/// The layer that adds [`ChargeToLedger`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChargeLayer;

/// Charges each request, and what its answer holds until the client has read it, to the account of
/// its connection. Without an account, as in the simulator, it does nothing.
#[derive(Clone, Debug)]
pub(crate) struct ChargeToLedger<S> {
    inner: S,
}

/// Charged until the body was sent or dropped.
impl BodyGuard for Charge {}

impl<S> Layer<S> for ChargeLayer {
    type Service = ChargeToLedger<S>;

    fn layer(&self, inner: S) -> ChargeToLedger<S> {
        ChargeToLedger { inner }
    }
}

impl<S> Service<Request<Body>> for ChargeToLedger<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = AnswerFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Some(account) = request.extensions().get::<Arc<Account>>().cloned() else {
            return Box::pin(self.inner.call(request));
        };
        let head = request.uri().path_and_query();
        let head = head.map_or(0, |target| target.as_str().len()) + size(request.headers());
        match charges(&account, head as u64) {
            Ok(charges) => {
                let answer: AnswerFuture = Box::pin(self.inner.call(request));
                Box::pin(async move { Ok(charged(answer.await?, &account, charges)) })
            }
            Err(_) => Box::pin(async { Ok(rescue::too_many_requests()) }),
        }
    }
}

/// Bytes of all names and values.
fn size(headers: &HeaderMap) -> usize {
    let bytes = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len());
    bytes.sum()
}

/// The charges of a request whose head has `head` bytes, and of the first chunks of its answer.
fn charges(account: &Arc<Account>, head: u64) -> Result<(Charge, Charge), Short> {
    let stream = account.charge(Kind::Stream, STREAM_BYTES + head)?;
    let chunks = account.charge(Kind::Body, HeldBody::FIRST_CHARGE)?;
    Ok((stream, chunks))
}

/// Makes the body of `response` own the charges.
fn charged(
    mut response: Response<Body>,
    account: &Arc<Account>,
    (stream, chunks): (Charge, Charge),
) -> Response<Body> {
    let snapshot = response.extensions_mut().remove::<SnapshotAge>();
    let compressor = response.extensions_mut().remove::<OwnCompressor>();
    let outcome = response.extensions().get::<RequestOutcome>();
    let is_watch = outcome.is_some_and(|outcome| outcome.verb == "watch");
    let outcome = outcome.map(|outcome| outcome.outcome);
    if is_watch && response.status().is_success() {
        drop(chunks);
        return match account.charge(Kind::Watch, WATCH_BYTES) {
            Ok(events) => guarded(guarded(response, Some(events)), Some(stream)),
            Err(_) => rescue::too_many_requests(),
        };
    }
    let gzip = compressor.map(|_| account.charge(Kind::Gzip, OwnCompressor::BYTES));
    let Ok(gzip) = gzip.transpose() else {
        return rescue::too_many_requests();
    };
    // The charge ends when the ledger drops the compressor with the body.
    let response = guarded(response, gzip);
    let length = response.body().size_hint().upper();
    if length.is_some_and(|length| length <= HeldBody::MAX_TAKEN_AT_ONCE) {
        return guarded(guarded(response, Some(chunks)), Some(stream));
    }
    let is_forwarded = matches!(outcome, Some(Outcome::Forwarded(_)));
    let window = length.unwrap_or(u64::MAX).min(upstream::STREAM_WINDOW);
    let window = if is_forwarded { window } else { 0 };
    let held = |body| HeldBody::new(body, account, chunks, snapshot, window);
    guarded(response.map(|body| body::boxed(held(body))), Some(stream))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt;
    use http::StatusCode;
    use http_body_util::BodyExt;
    use tower::ServiceExt;
    use tower::service_fn;

    use super::*;
    use crate::ledger::Ledger;
    use crate::ledger::Limits;

    /// Answers with a body of 100 KiB, to a request with this verb and outcome.
    fn answer(
        verb: &'static str,
        outcome: Outcome,
        extension: Option<OwnCompressor>,
    ) -> Response<Body> {
        let mut response = Response::new(body::full(vec![b'x'; 100 << 10]));
        let outcome = RequestOutcome {
            verb,
            outcome,
            ..RequestOutcome::default()
        };
        response.extensions_mut().insert(outcome);
        if let Some(compressor) = extension {
            response.extensions_mut().insert(compressor);
        }
        response
    }

    async fn send(
        account: &Arc<Account>,
        verb: &'static str,
        outcome: Outcome,
        compressor: Option<OwnCompressor>,
    ) -> Response<Body> {
        let handler = service_fn(move |_: Request<Body>| async move {
            Ok::<_, Infallible>(answer(verb, outcome, compressor))
        });
        let mut request = Request::new(body::empty());
        request.extensions_mut().insert(Arc::clone(account));
        let answered = ChargeLayer.layer(handler).oneshot(request).await;
        answered.unwrap_or_else(|error| match error {})
    }

    fn used(ledger: &Ledger, kind: Kind) -> u64 {
        let usage = ledger.usage();
        let of_kind = usage.iter().find(|(name, _)| *name == kind.name());
        of_kind.map_or(0, |(_, bytes)| *bytes)
    }

    #[tokio::test]
    async fn requests_get_429_while_their_connection_holds_too_much() {
        let limits = Limits::new(Some(64 << 20), Some(1 << 20), 0);
        let ledger = Ledger::new(limits);
        let account = ledger.open_account();
        for (verb, outcome, compressor, kind) in [
            ("list", Outcome::Cache, None, Kind::Body),
            ("watch", Outcome::Cache, None, Kind::Watch),
            ("list", Outcome::Cache, Some(OwnCompressor), Kind::Gzip),
        ] {
            let mut unread = Vec::new();
            let refused = loop {
                let response = send(&account, verb, outcome, compressor).await;
                if response.status() != StatusCode::OK {
                    break response;
                }
                unread.push(response);
                assert!(unread.len() < 1_000, "{verb} is never refused");
            };
            assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
            assert!(used(&ledger, kind) > 0, "{kind:?}");
            assert!(!unread.is_empty(), "{kind:?}");
            let other = ledger.open_account();
            let served = send(&other, verb, outcome, compressor).await;
            assert_eq!(served.status(), StatusCode::OK);
            drop((unread, served));
            let again = send(&account, verb, outcome, compressor).await;
            let bytes = again.into_body().collect().await.expect("no error");
            assert_eq!(bytes.to_bytes(), Bytes::from(vec![b'x'; 100 << 10]));
            assert_eq!(used(&ledger, kind), 0, "{kind:?}");
            assert_eq!(used(&ledger, Kind::Stream), 0);
        }
        drop(account);
        assert_eq!(ledger.leased(), 0);
    }

    #[tokio::test]
    async fn without_an_account_nothing_is_charged() {
        let handler = service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(answer("list", Outcome::Cache, None))
        });
        let request = Request::new(body::empty());
        let mut response = ChargeLayer
            .layer(handler)
            .oneshot(request)
            .await
            .expect("infallible");
        let whole = response.body_mut().frame().now_or_never().flatten();
        let whole = whole.expect("a frame").expect("no error");
        assert_eq!(whole.data_ref().map(Bytes::len), Some(100 << 10));
    }
}
