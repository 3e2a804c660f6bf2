//! Charges each request and its answer to the ledger, and refuses requests if memory is short.

use std::sync::Arc;

use http::HeaderMap;
use http_body::Body as _;
use kubefan_core::body::{Body, BodyGuard, guarded};
use kubefan_core::{body, upstream};

use crate::ledger::{Account, Charge, MemoryKind, Short};
use crate::net::Abort;
use crate::server::answers::answer::Answer;
use crate::server::answers::ending::Ending;
use crate::server::answers::outcome::Outcome;
use crate::server::deliver::{BodyReader, COMPRESSOR_BYTES, RevocableBody};
use crate::server::request::{Exchange, Verb};

/// Bytes of a request's future, its state in the HTTP library, and the head of its answer.
const STREAM_BYTES: u64 = 12 << 10;
/// Bytes of an open watch: its future, its state in the HTTP library, and its position in the cache.
/// Events belong to the cache, and bursts and initial events are charged while they are sent.
const WATCH_BYTES: u64 = 4 << 10;
/// Bytes of the headers that the record of an open watch holds at most, if there are logs.
const RECORD_HEADERS: u64 = 4 << 10;
/// Largest body of a request, in bytes, that is charged. Longer bodies are not held while the
/// request is sent to the API server.
const MAX_REQUEST_BODY: u64 = 256 << 10;

/// What the charge for an answer depends on.
#[derive(Clone, Copy)]
struct Requested {
    is_watch: bool,
    /// Bytes of the head of a watch that are held until it ends.
    held: u64,
    is_long_running: bool,
}

/// The charge ends when the body was sent or dropped.
impl BodyGuard for Charge {}

/// Charges the request, and what its answer holds until the client has read it, to the account of
/// its connection. Without an account, as in the simulator, it does nothing.
pub(super) async fn charge<F: Future<Output = Answer>>(
    exchange: Box<Exchange>,
    next: impl FnOnce(Box<Exchange>) -> F,
) -> Answer {
    let Some(account) = exchange.client.account.clone() else {
        return next(exchange).await;
    };
    let end = (exchange.client.abort.clone(), exchange.ending.clone());
    let request = &exchange.request;
    let target = request.uri().path_and_query();
    let target = target.map_or(0, |target| target.as_str().len()) as u64;
    let headers = size(request.headers());
    let requested = Requested {
        held: held(exchange.ending.as_deref(), target, headers),
        is_watch: exchange.info.verb == Verb::Watch,
        is_long_running: exchange.info.is_long_running(),
    };
    let charges = charge_body(&account, request.body());
    let charges = charges.and_then(|body| Ok((body, charges_of(&account, target + headers)?)));
    let (body, charges) = match charges {
        Ok(charges) => charges,
        Err(short) => return exchange.refuse(short),
    };
    let errors = exchange.errors.clone();
    let mut answer = next(exchange).await;
    drop(body);
    if let Err(short) = charge_answer(&mut answer, &account, charges, requested, end) {
        let Answer {
            response, outcome, ..
        } = Answer::refused(&errors, &short.into());
        (answer.response, answer.outcome) = (response, outcome);
    }
    answer
}

/// Returns the bytes of all names and values.
fn size(headers: &HeaderMap) -> u64 {
    let bytes = headers
        .iter()
        .map(|(name, value)| (name.as_str().len() + value.len()) as u64);
    bytes.sum()
}

/// Returns the bytes of the head that the record of an open watch holds: the target as the client
/// wrote it and parsed, and some headers. It is 0 if nothing wants the record at the end.
fn held(ending: Option<&Ending>, target: u64, headers: u64) -> u64 {
    if ending.is_some_and(Ending::holds_watches) {
        2 * target + headers.min(RECORD_HEADERS)
    } else {
        0
    }
}

/// Charges a request's body, which may be held until the API server has answered. Returns `None` if
/// there is no body, or if the body is streamed because it is long or has an unknown length.
fn charge_body(account: &Arc<Account>, body: &Body) -> Result<Option<Charge>, Short> {
    let length = body.size_hint().exact();
    let kept = length.filter(|length| (1..=MAX_REQUEST_BODY).contains(length));
    kept.map(|length| account.charge(MemoryKind::Request, length))
        .transpose()
}

/// Charges a request with a head of `head` bytes, and the first chunks of its answer.
fn charges_of(account: &Arc<Account>, head: u64) -> Result<(Charge, Charge), Short> {
    let stream = account.charge(MemoryKind::Stream, STREAM_BYTES + head)?;
    let chunks = account.charge(MemoryKind::Body, RevocableBody::FIRST_CHARGE)?;
    Ok((stream, chunks))
}

/// Makes the body of `answer` own the charges, or gives them to `answer`. A body that the ledger
/// drops ends with `abort`, and notes in `ending` if its reader was too slow.
///
/// # Errors
/// If the account has no room for what the answer holds.
fn charge_answer(
    answer: &mut Answer,
    account: &Arc<Account>,
    (stream, chunks): (Charge, Charge),
    requested: Requested,
    (abort, ending): (Option<Abort>, Option<Arc<Ending>>),
) -> Result<(), Short> {
    let is_forwarded = matches!(answer.outcome, Outcome::Forwarded(_));
    let is_refused = matches!(answer.outcome, Outcome::KeptRefusal | Outcome::Rejected(_));
    if requested.is_watch && !is_forwarded && answer.response.status().is_success() {
        // The head of the request is not held, but for what its record has copied.
        drop((stream, chunks));
        let bytes = WATCH_BYTES + requested.held;
        answer.charge = Some(account.charge(MemoryKind::Watch, bytes)?);
        return Ok(());
    }
    let gzip = answer
        .has_compressor
        .then(|| account.charge(MemoryKind::Gzip, COMPRESSOR_BYTES));
    let gzip = gzip.transpose()?;
    // The charge ends when the ledger drops the compressor with the body.
    answer.replace(|response| guarded(response, gzip));
    if answer.response.body().is_end_stream() {
        answer.charge = Some(stream);
        return Ok(());
    }
    let length = answer.response.body().size_hint().upper();
    let window = length.unwrap_or(u64::MAX).min(upstream::STREAM_WINDOW);
    let reader = BodyReader {
        account,
        stream,
        chunks,
        snapshot: answer.snapshot.take(),
        window: if is_forwarded { window } else { 0 },
        has_minimum_rate: !requested.is_long_running || is_refused,
        abort,
        ending,
    };
    let revocable = |body| body::boxed(RevocableBody::new(body, reader));
    answer.replace(|response| response.map(revocable));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;
    use futures_util::FutureExt;
    use http::{Request, Response, StatusCode};
    use http_body_util::BodyExt;
    use kubefan_core::telemetry::Registry;

    use super::*;
    use crate::ledger::{Ledger, Limits};
    use crate::line_log::{LineLog, LogKind};
    use crate::net::ClientHandle;
    use crate::server::Reason;
    use crate::server::answers::consumers::Consumers;
    use crate::server::answers::ending::sending;
    use crate::server::answers::outcome::Hit;

    const CACHE: Outcome = Outcome::Cache(Hit {
        is_json_instead: false,
        proof: None,
    });

    const PODS: &str = "/api/v1/pods";
    const WATCH: &str = "/api/v1/pods?watch=1";

    /// A request on a connection of `account`.
    fn exchange(account: Option<&Arc<Account>>, path: &str, body: Body) -> Box<Exchange> {
        let mut request = Request::new(body);
        *request.uri_mut() = path.parse().expect("a URI");
        let client = ClientHandle::for_tests(account.cloned());
        request.extensions_mut().insert(client);
        Exchange::of(request)
    }

    /// Sends a GET of `path`, and gets an answer of 100 KiB with this outcome.
    async fn send(
        account: Option<&Arc<Account>>,
        path: &str,
        outcome: Outcome,
        has_compressor: bool,
    ) -> Response<Body> {
        let next = |_| async {
            let response = Response::new(body::full(vec![b'x'; 100 << 10]));
            Answer {
                has_compressor,
                ..Answer::from(response).with_outcome(outcome)
            }
        };
        let answer = charge(exchange(account, path, body::empty()), next).await;
        sending(answer.response, answer.charge, None, None)
    }

    fn used(ledger: &Ledger, kind: MemoryKind) -> u64 {
        let usage = ledger.usage();
        let of_kind = usage.iter().find(|(name, _)| *name == kind.name());
        of_kind.map_or(0, |(_, bytes)| *bytes)
    }

    #[tokio::test]
    async fn requests_get_429_while_their_connection_holds_too_much() {
        let limits = Limits::new(Some(64 << 20), Some(1 << 20), 0);
        let ledger = Ledger::new(limits);
        let account = ledger.open_account();
        for (path, outcome, has_compressor, kind) in [
            (PODS, CACHE, false, MemoryKind::Body),
            (WATCH, CACHE, false, MemoryKind::Watch),
            (PODS, CACHE, true, MemoryKind::Gzip),
        ] {
            let mut unread = Vec::new();
            let refused = loop {
                let response = send(Some(&account), path, outcome, has_compressor).await;
                if response.status() != StatusCode::OK {
                    break response;
                }
                unread.push(response);
                assert!(unread.len() < 1_000, "{path} is never refused");
            };
            assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
            assert!(used(&ledger, kind) > 0, "{kind:?}");
            assert!(!unread.is_empty(), "{kind:?}");
            let other = ledger.open_account();
            let served = send(Some(&other), path, outcome, has_compressor).await;
            assert_eq!(served.status(), StatusCode::OK);
            drop((unread, served));
            let again = send(Some(&account), path, outcome, has_compressor).await;
            let bytes = again.into_body().collect().await.expect("no error");
            assert_eq!(bytes.to_bytes(), Bytes::from(vec![b'x'; 100 << 10]));
            assert_eq!(used(&ledger, kind), 0, "{kind:?}");
            assert_eq!(used(&ledger, MemoryKind::Stream), 0);
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
            let mut answer = answers.subscribe();
            let body = body::full(vec![b'x'; length]);
            let write = exchange(Some(&account), PODS, body);
            tokio::spawn(charge(write, move |exchange| async move {
                drop(exchange);
                answer.recv().await.ok();
                Answer::from(Response::new(body::empty()))
            }))
        };
        let mut writes: Vec<_> = (0..2).map(|_| sent(MAX_REQUEST_BODY as usize)).collect();
        // A longer body is streamed.
        writes.push(sent(MAX_REQUEST_BODY as usize + 1));
        while used(&ledger, MemoryKind::Stream) < 3 * STREAM_BYTES {
            tokio::task::yield_now().await;
        }
        assert_eq!(used(&ledger, MemoryKind::Request), 2 * MAX_REQUEST_BODY);
        writes.push(sent(MAX_REQUEST_BODY as usize));
        writes.push(sent(MAX_REQUEST_BODY as usize));
        let refused = writes.pop().expect("five").await.expect("no panic");
        assert_eq!(refused.response.status(), StatusCode::TOO_MANY_REQUESTS);
        answers.send(()).expect("they wait");
        for write in writes {
            let answered = write.await.expect("no panic");
            assert_eq!(answered.response.status(), StatusCode::OK);
        }
        assert_eq!(used(&ledger, MemoryKind::Request), 0);
        drop(account);
        assert_eq!(ledger.leased(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn only_short_requests_have_a_minimum_rate() {
        let limits = Limits::new(Some(1 << 30), None, 64 << 10);
        let ledger = Ledger::new(limits);
        let account = ledger.open_account();
        let forwarded = Outcome::forwarded(Reason::Unknown);
        let pod = "/api/v1/namespaces/n/pods/p";
        let short = send(Some(&account), pod, forwarded, false).await;
        let log = send(Some(&account), &format!("{pod}/log"), forwarded, false).await;
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
        let swept = ledger.sweep(tokio::time::Instant::now(), &mut false);
        assert_eq!(swept.slow, 1);
        assert!(short.into_body().collect().await.is_err());
        assert!(log.into_body().collect().await.is_ok());
    }

    #[tokio::test]
    async fn what_the_logs_hold_of_a_watch_is_charged() {
        let limits = Limits::new(Some(64 << 20), Some(1 << 20), 0);
        let ledger = Ledger::new(limits);
        let account = ledger.open_account();
        let log = LineLog::open(LogKind::Access, Path::new("/dev/null"), &Registry::new());
        let with_log = Consumers {
            access_log: Some(Arc::new(log.expect("opened"))),
            ..Consumers::default()
        };
        let target = format!("{WATCH}&labelSelector={}", "a".repeat(1_000));
        for (consumers, held) in [
            (Consumers::default(), 0),
            (with_log, 2 * target.len() as u64),
        ] {
            let mut watch = exchange(Some(&account), &target, body::empty());
            watch.ending = Some(Arc::new(Ending::new(consumers)));
            let next = |_| async { Answer::from(Response::new(body::empty())).with_outcome(CACHE) };
            let answer = charge(watch, next).await;
            assert_eq!(used(&ledger, MemoryKind::Watch), WATCH_BYTES + held);
            drop(answer);
        }
    }

    #[tokio::test]
    async fn without_an_account_nothing_is_charged() {
        let mut response = send(None, PODS, CACHE, false).await;
        let whole = response.body_mut().frame().now_or_never().flatten();
        let whole = whole.expect("a frame").expect("no error");
        assert_eq!(whole.data_ref().map(Bytes::len), Some(100 << 10));
    }
}
