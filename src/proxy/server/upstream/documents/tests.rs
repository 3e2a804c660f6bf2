use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubefan_core::api::Status;
use kubefan_core::shutdown;
use kubefan_core::upstream::Client;
use tokio::io::duplex;
use tokio::time::advance;

use super::*;
use crate::identity;
use crate::identity::{KnownCaller, Mode};
use crate::ledger::Budget;
use crate::net::ClientHandle;

/// Documents whose own fetches get an empty answer. Callers are not authenticated.
fn documents() -> Documents {
    documents_for(&identity::Config::default())
}

fn documents_for(config: &identity::Config) -> Documents {
    let empty = |_| async { Ok::<_, Infallible>(Response::new(body::empty())) };
    let client = Client::in_memory(
        &(Arc::new(move || {
            let (near, far) = duplex(1 << 10);
            let connection = server::Builder::new();
            let connection = connection.serve_connection(TokioIo::new(far), service_fn(empty));
            tokio::spawn(connection);
            Ok(near)
        }) as _),
    );
    let registry = Registry::new();
    let shutdown = Shutdown::new(shutdown::Config::default());
    let metrics = identity::Metrics::new(&registry);
    let access = AccessControl::new(config, client.clone(), metrics, &registry, &shutdown);
    Documents::new(
        access,
        Forwarder::new(client),
        |_, _| true,
        (DocumentMetrics::new(&registry), Budget::for_tests(64 << 20)),
        shutdown,
    )
}

fn asked(documents: &Documents, condition: Option<&str>) -> (Request<Body>, DocumentRequest) {
    let mut request = Request::get("/apis");
    if let Some(condition) = condition {
        request = request.header("if-none-match", condition);
    }
    let mut request = request.body(body::empty()).expect("a request");
    request
        .extensions_mut()
        .insert(ClientHandle::for_tests(None));
    let mut exchange = Exchange::of(request);
    let document = documents.request(&mut exchange);
    (exchange.request, document.expect("a document"))
}

fn response(status: u16, lines: &[(&str, &str)], body: Body) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for (name, value) in lines {
        response = response.header(*name, *value);
    }
    response.body(body).expect("a response")
}

fn outage() -> FailedForward {
    FailedForward {
        refused: Status::unreachable("away").into(),
        is_outage: true,
    }
}

async fn text(response: Response<Body>) -> String {
    let body = response.into_body().collect().await.expect("a body");
    String::from_utf8(body.to_bytes().to_vec()).expect("text")
}

/// Returns the API server's first answer, which is read to its end.
async fn remembered(documents: &Documents) {
    let (_, document) = asked(documents, None);
    let lines = [
        ("etag", "\"1\""),
        ("audit-id", "a"),
        ("content-type", "x/y"),
    ];
    let answer = response(200, &lines, body::full("groups"));
    let answer = documents.answer(document, Ok(answer), &Caller::Trusted);
    assert_eq!(text(answer.expect("an answer")).await, "groups");
}

#[tokio::test]
async fn a_confirmed_document_has_the_headers_of_its_own_request() {
    let documents = documents();
    remembered(&documents).await;
    let (request, document) = asked(&documents, None);
    assert_eq!(request.headers()["if-none-match"], "\"1\"");
    let lines = [
        ("etag", "\"1\""),
        ("audit-id", "b"),
        ("content-length", "0"),
    ];
    let answer = documents.answer(
        document,
        Ok(response(304, &lines, body::empty())),
        &Caller::Trusted,
    );
    let answer = answer.expect("an answer");
    let headers = ["etag", "audit-id", "content-type"].map(|name| &answer.headers()[name]);
    assert_eq!(answer.status(), 200);
    assert_eq!(headers, ["\"1\"", "b", "x/y"]);
    assert!(!answer.headers().contains_key("content-length"));
    assert_eq!(text(answer).await, "groups");
}

#[tokio::test]
async fn other_answers_are_passed_on() {
    let documents = documents();
    remembered(&documents).await;
    for (condition, status) in [(None, 403), (None, 500), (Some("\"1\""), 304)] {
        let (request, document) = asked(&documents, condition);
        let sent = &request.headers()["if-none-match"];
        assert_eq!(sent, "\"1\"");
        let answer = response(status, &[], body::full("text"));
        let answer = documents.answer(document, Ok(answer), &Caller::Trusted);
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), status);
        assert_eq!(text(answer).await, "text");
    }
}

#[tokio::test]
async fn a_304_for_the_copy_of_the_client_does_not_confirm_a_document_without_etag() {
    let documents = documents();
    let (_, document) = asked(&documents, None);
    let answer = response(200, &[("content-type", "x/y")], body::full("groups"));
    let answer = documents.answer(document, Ok(answer), &Caller::Trusted);
    assert_eq!(text(answer.expect("an answer")).await, "groups");
    let (request, document) = asked(&documents, None);
    assert!(!request.headers().contains_key("if-none-match"));
    let answer = response(304, &[], body::empty());
    let answer = documents.answer(document, Ok(answer), &Caller::Trusted);
    assert_eq!(answer.expect("an answer").status(), 304);
}

#[tokio::test]
async fn a_document_is_old_only_in_an_outage_and_where_it_may_be() {
    let documents = documents();
    let refused = FailedForward::refused(Status::timeout());
    let (_, unknown) = asked(&documents, None);
    assert!(
        documents
            .answer(unknown, Err(outage()), &Caller::Trusted)
            .is_err()
    );
    remembered(&documents).await;
    for (failed, caller, expected) in [
        (outage(), Caller::Trusted, true),
        (outage(), Caller::Unknown, false),
        (refused, Caller::Trusted, false),
    ] {
        let (_, document) = asked(&documents, None);
        let answer = documents.answer(document, Err(failed), &caller);
        assert_eq!(answer.is_ok(), expected);
        let Ok(answer) = answer else { continue };
        assert_eq!(answer.headers()["warning"], OUTDATED);
        assert!(!answer.headers().contains_key("audit-id"));
        assert_eq!(text(answer).await, "groups");
    }
    for (condition, status) in [
        ("\"1\"", 304),
        ("\"0\", W/\"1\"", 304),
        ("*", 304),
        ("\"2\"", 200),
    ] {
        let (_, document) = asked(&documents, Some(condition));
        let answer = documents.answer(document, Err(outage()), &Caller::Trusted);
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), status, "{condition}");
        assert_eq!(text(answer).await.is_empty(), status == 304, "{condition}");
    }
}

#[tokio::test]
async fn an_answer_of_a_load_balancer_without_servers_is_an_outage() {
    let documents = documents();
    remembered(&documents).await;
    for (status, expected) in [(502, 200), (503, 200), (504, 200), (500, 500), (429, 429)] {
        for (caller, expected) in [(Caller::Trusted, expected), (Caller::Unknown, status)] {
            let (_, document) = asked(&documents, None);
            let answer = response(status, &[], body::empty());
            let answer = documents.answer(document, Ok(answer), &caller);
            assert_eq!(answer.expect("an answer").status(), expected, "{status}");
        }
    }
}

#[tokio::test]
async fn only_what_was_received_completely_is_remembered() {
    let frames = |last: Result<&'static str, &'static str>| {
        let frames = [Ok("gro"), last].map(|frame| {
            let frame = frame.map(|text| Frame::data(Bytes::from(text)));
            frame.map_err(BoxError::from)
        });
        body::boxed(StreamBody::new(futures_util::stream::iter(frames)))
    };
    for (what, body, announced, is_remembered) in [
        ("all of it", frames(Ok("ups")), "6", true),
        ("too little", frames(Ok("ups")), "7", false),
        ("a broken body", frames(Err("broken")), "6", false),
    ] {
        let documents = documents();
        let (_, document) = asked(&documents, None);
        let answer = response(200, &[("content-length", announced)], body);
        let answer = documents.answer(document, Ok(answer), &Caller::Trusted);
        // The client sees the end, or the error.
        let _ = answer.expect("an answer").into_body().collect().await;
        let (_, document) = asked(&documents, None);
        let old = documents.answer(document, Err(outage()), &Caller::Trusted);
        assert_eq!(old.is_ok(), is_remembered, "{what}");
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_user_gets_an_old_document_in_an_outage_if_it_could_read_the_path_before() {
    let known = |number| Caller::Known(Arc::new(KnownCaller::for_tests(number)));
    let (reader, other) = (known(1), known(2));
    for (stale, after, last_status, expected) in [
        (10 * MINUTE, 9 * MINUTE, 200, true),
        (10 * MINUTE, 9 * MINUTE, 304, true),
        (10 * MINUTE, 9 * MINUTE, 500, true),
        (10 * MINUTE, 9 * MINUTE, 403, false),
        // The user may have other tokens.
        (10 * MINUTE, 9 * MINUTE, 401, true),
        (10 * MINUTE, 11 * MINUTE, 200, false),
        (Duration::ZERO, Duration::ZERO, 200, false),
    ] {
        let config = identity::Config {
            mode: Mode::Caller,
            stale,
            ..identity::Config::default()
        };
        let documents = documents_for(&config);
        for status in [200, last_status] {
            let (_, document) = asked(&documents, None);
            let answer = response(status, &[("etag", "\"1\"")], body::full("groups"));
            let answer = documents.answer(document, Ok(answer), &reader);
            text(answer.expect("an answer")).await;
            advance(Duration::from_secs(1)).await;
        }
        advance(after).await;
        let old = |caller: &Caller| {
            let (_, document) = asked(&documents, None);
            documents.answer(document, Err(outage()), caller).ok()
        };
        let answer = old(&reader);
        assert_eq!(
            answer.is_some(),
            expected,
            "{stale:?} {after:?} {last_status}"
        );
        assert!(old(&other).is_none());
        assert!(old(&Caller::Unknown).is_none());
        let Some(answer) = answer else { continue };
        assert_eq!(answer.headers()["warning"], OUTDATED);
        assert_eq!(text(answer).await, "groups");
    }
}
