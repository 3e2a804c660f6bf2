//! Charges each request and its answer to the ledger, and refuses requests if memory is short.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response};
use http_body::Body as _;
use kubefan_core::body::{Body, BodyGuard, guarded};
use kubefan_core::{body, upstream};
use tower::{Layer, Service};

use super::AnswerFuture;
use crate::ledger::{Account, Charge, Kind, Short, SnapshotAge};
use crate::net::Abort;
use crate::server::answers::outcome::{LongRunning, Outcome, RequestOutcome};
use crate::server::answers::rescue;
use crate::server::deliver::{HeldBody, Holder, OwnCompressor};

/// Bytes of a request's task, its state in the HTTP library, and the head of its answer.
const STREAM_BYTES: u64 = 12 << 10;
/// Bytes of an open watch: its task, its state in the HTTP library, and its position in the cache.
/// Events belong to the cache, and bursts and initial events are charged while they are sent.
const WATCH_BYTES: u64 = 4 << 10;
/// Largest body of a request, in bytes, that is charged. Longer bodies are not held while the
/// request is sent to the API server.
const MAX_REQUEST_BODY: u64 = 256 << 10;

/// The layer that adds [`ChargeToLedger`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChargeLayer;

/// Charges each request, and what its answer holds until the client has read it, to the account of
/// its connection. Without an account, as in the simulator, it does nothing.
#[derive(Clone, Debug)]
pub(crate) struct ChargeToLedger<S> {
    inner: S,
}

/// The charge ends when the body was sent or dropped.
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
        let abort = request.extensions().get::<Abort>().cloned();
        let charges = charge_body(&account, request.body());
        let charges = charges.and_then(|body| Ok((body, charges_of(&account, head as u64)?)));
        match charges {
            Ok((body, charges)) => {
                let answer: AnswerFuture = Box::pin(self.inner.call(request));
                Box::pin(async move {
                    let answer = answer.await?;
                    drop(body);
                    Ok(charged(answer, &account, charges, abort))
                })
            }
            Err(_) => Box::pin(async { Ok(rescue::too_many_requests()) }),
        }
    }
}

/// Returns the bytes of all names and values.
fn size(headers: &HeaderMap) -> usize {
    let bytes = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len());
    bytes.sum()
}

/// Charges a request's body, which may be held until the API server has answered. Returns `None` if
/// there is no body, or if the body is streamed because it is long or has an unknown length.
fn charge_body(account: &Arc<Account>, body: &Body) -> Result<Option<Charge>, Short> {
    let length = body.size_hint().exact();
    let kept = length.filter(|length| (1..=MAX_REQUEST_BODY).contains(length));
    kept.map(|length| account.charge(Kind::Request, length))
        .transpose()
}

/// Charges a request with a head of `head` bytes, and the first chunks of its answer.
fn charges_of(account: &Arc<Account>, head: u64) -> Result<(Charge, Charge), Short> {
    let stream = account.charge(Kind::Stream, STREAM_BYTES + head)?;
    let chunks = account.charge(Kind::Body, HeldBody::FIRST_CHARGE)?;
    Ok((stream, chunks))
}

/// Makes the body of `response` own the charges.
fn charged(
    mut response: Response<Body>,
    account: &Arc<Account>,
    (stream, chunks): (Charge, Charge),
    abort: Option<Abort>,
) -> Response<Body> {
    let snapshot = response.extensions_mut().remove::<SnapshotAge>();
    let compressor = response.extensions_mut().remove::<OwnCompressor>();
    let is_long_running = response.extensions_mut().remove::<LongRunning>().is_some();
    let outcome = response.extensions().get::<RequestOutcome>();
    let is_watch = outcome.is_some_and(|outcome| outcome.verb == "watch");
    let outcome = outcome.map(|outcome| outcome.outcome);
    let is_forwarded = matches!(outcome, Some(Outcome::Forwarded(_)));
    if is_watch && !is_forwarded && response.status().is_success() {
        // The head of the request is not held.
        drop((stream, chunks));
        return match account.charge(Kind::Watch, WATCH_BYTES) {
            Ok(watch) => guarded(response, Some(watch)),
            Err(_) => rescue::too_many_requests(),
        };
    }
    let gzip = compressor.map(|_| account.charge(Kind::Gzip, OwnCompressor::BYTES));
    let Ok(gzip) = gzip.transpose() else {
        return rescue::too_many_requests();
    };
    // The charge ends when the ledger drops the compressor with the body.
    let response = guarded(response, gzip);
    if response.body().is_end_stream() {
        return guarded(response, Some(stream));
    }
    let length = response.body().size_hint().upper();
    let window = length.unwrap_or(u64::MAX).min(upstream::STREAM_WINDOW);
    let holder = Holder {
        account,
        stream,
        chunks,
        snapshot,
        window: if is_forwarded { window } else { 0 },
        has_minimum_rate: !is_long_running,
        abort,
    };
    response.map(|body| body::boxed(HeldBody::new(body, holder)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt;
    use http::StatusCode;
    use http_body_util::BodyExt;
    use tower::{ServiceExt, service_fn};

    use super::*;
    use crate::ledger::{Ledger, Limits};

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
    async fn the_body_of_a_request_is_charged_until_it_is_answered() {
        let limits = Limits::new(Some(64 << 20), Some(1 << 20), 0);
        let ledger = Ledger::new(limits);
        let account = ledger.open_account();
        let (answers, _) = tokio::sync::broadcast::channel::<()>(1);
        let sent = |length: usize| {
            let answer = answers.subscribe();
            let handler = service_fn(move |request: Request<Body>| {
                let mut answer = answer.resubscribe();
                async move {
                    drop(request);
                    answer.recv().await.ok();
                    Ok::<_, Infallible>(Response::new(body::empty()))
                }
            });
            let mut request = Request::new(body::full(vec![b'x'; length]));
            request.extensions_mut().insert(Arc::clone(&account));
            tokio::spawn(ChargeLayer.layer(handler).oneshot(request))
        };
        let mut writes: Vec<_> = (0..2).map(|_| sent(MAX_REQUEST_BODY as usize)).collect();
        // A longer body is streamed.
        writes.push(sent(MAX_REQUEST_BODY as usize + 1));
        while used(&ledger, Kind::Stream) < 3 * STREAM_BYTES {
            tokio::task::yield_now().await;
        }
        assert_eq!(used(&ledger, Kind::Request), 2 * MAX_REQUEST_BODY);
        writes.push(sent(MAX_REQUEST_BODY as usize));
        writes.push(sent(MAX_REQUEST_BODY as usize));
        let refused = writes.pop().expect("five").await.expect("no panic");
        let status = refused.unwrap_or_else(|error| match error {}).status();
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        answers.send(()).expect("they wait");
        for write in writes {
            let answered = write.await.expect("no panic");
            let answered = answered.unwrap_or_else(|error| match error {});
            assert_eq!(answered.status(), StatusCode::OK);
        }
        assert_eq!(used(&ledger, Kind::Request), 0);
        drop(account);
        assert_eq!(ledger.leased(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn only_short_requests_have_a_minimum_rate() {
        let limits = Limits::new(Some(1 << 30), None, 64 << 10);
        let ledger = Ledger::new(limits);
        let account = ledger.open_account();
        let forwarded = Outcome::Forwarded(crate::server::Reason::Unknown);
        let short = send(&account, "get", forwarded, None).await;
        let handler = service_fn(move |_: Request<Body>| async move {
            let mut log = answer("get", forwarded, None);
            log.extensions_mut().insert(LongRunning);
            Ok::<_, Infallible>(log)
        });
        let mut request = Request::new(body::empty());
        request.extensions_mut().insert(Arc::clone(&account));
        let log = ChargeLayer.layer(handler).oneshot(request).await;
        let log = log.unwrap_or_else(|error| match error {});
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
        let swept = ledger.sweep(tokio::time::Instant::now(), &mut false);
        assert_eq!(swept.slow, 1);
        assert!(short.into_body().collect().await.is_err());
        assert!(log.into_body().collect().await.is_ok());
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
