//! Tests of LIST and WATCH against a server whose answers the test chooses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use parking_lot::Mutex;
use serde_json::json;

use super::{
    FreshnessProbe, ListCall, ListerWatcher, ResourceClient, ResumePoint, Scope, WatchCall,
    list_query, watch_query,
};
use crate::api::{
    EventType, GroupVersionResource, Resource, ResourceVersion, SelectableFields, WatchEvent,
    WireFormat,
};
use crate::body::{Body, BoxError, boxed, full};
use crate::codec::Decoder;
use crate::upstream::tests::support::{StoppableServer, TestServer};
use crate::upstream::{Client, Error, PROOF_HEADER, WatchLiveness};

const LIST: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"10","continue":"more"},"items":[{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7"}}]}
"#;
const ADDED: &str = r#"{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"11"}}}
"#;
const WATCH: WatchCall = WatchCall {
    start: ResumePoint::After(ResourceVersion(10)),
    timeout: Duration::from_secs(300),
};

async fn resource_client(
    server: &TestServer,
    namespace: Option<&str>,
    format: WireFormat,
) -> ResourceClient {
    resource_client_of(server.client().await, namespace, format)
}

fn resource_client_of(
    client: Client,
    namespace: Option<&str>,
    format: WireFormat,
) -> ResourceClient {
    let resource = Resource {
        gvr: GroupVersionResource::new("", "v1", "pods"),
        kind: "Pod".into(),
        singular: "pod".into(),
        short_names: vec!["po".into()],
        namespaced: true,
        verbs: vec!["list".into(), "watch".into()],
    };
    let decoder = Decoder::new(format, Arc::new(SelectableFields::default()));
    let namespace = namespace.map(str::to_owned);
    ResourceClient::new(client, Arc::new(resource), namespace, format, decoder)
}

fn respond(media_type: &str, body: Body) -> Response<Body> {
    let response = Response::builder().header("content-type", media_type);
    response.body(body).expect("a response")
}

#[tokio::test]
async fn lists_a_page_and_returns_its_revision() {
    let server = TestServer::plain(|request| async move {
        let expected = match request.uri().query() {
            Some("limit=1") => true,
            query => query == Some("limit=500&continue=t%2B"),
        };
        assert!(expected, "{}", request.uri());
        assert_eq!(request.uri().path(), "/api/v1/namespaces/a%2Fb/pods");
        assert_eq!(request.headers()["accept"], "application/json");
        let agent = request.headers()["user-agent"].to_str().expect("text");
        assert!(agent.starts_with("kubefan/"));
        respond("application/json", full(LIST))
    })
    .await;
    let client = resource_client(&server, Some("a/b"), WireFormat::Json).await;
    let request = ListCall {
        limit: 500,
        continue_token: Some("t+".into()),
    };
    let page = client.list(request).await.expect("a page");
    assert_eq!(page.resource_version, ResourceVersion(10));
    assert_eq!(page.continue_token.as_deref(), Some("more"));
    assert_eq!(page.items[0].key.as_str(), "n/a");
    let version = ListerWatcher::barrier(&client).await.expect("a revision");
    assert_eq!(version, ResourceVersion(10));
}

#[tokio::test]
async fn a_client_in_a_scope_sends_its_namespace_and_selectors() {
    let server = TestServer::plain(|request| async move {
        assert_eq!(request.uri().path(), "/api/v1/namespaces/n/pods");
        let query = request.uri().query().unwrap_or_default();
        let selectors = "&labelSelector=a+in+%28b%29&fieldSelector=spec.nodeName%3Dx";
        let start = query.strip_suffix(selectors);
        let start = start.unwrap_or_else(|| panic!("{query}"));
        assert!(
            ["limit=500", &watch_query(&WATCH)].contains(&start),
            "{query}"
        );
        respond("application/json", full(LIST))
    })
    .await;
    let scope = Scope {
        namespace: Some("n".into()),
        label_selector: "a in (b)".into(),
        field_selector: "spec.nodeName=x".into(),
    };
    let client = resource_client(&server, None, WireFormat::Json).await;
    let client = client.in_scope(&scope);
    let request = ListCall {
        limit: 500,
        continue_token: None,
    };
    client.list(request).await.expect("a page");
    client.watch(WATCH).await.expect("a stream");
    // A client for one namespace stays in it.
    let client = resource_client(&server, Some("n"), WireFormat::Json).await;
    let elsewhere = Scope {
        namespace: Some("other".into()),
        ..scope
    };
    client
        .in_scope(&elsewhere)
        .watch(WATCH)
        .await
        .expect("a stream");
}

#[tokio::test]
async fn another_format_than_requested_is_an_error() {
    let server = TestServer::plain(|request| async move {
        let protobuf = "application/vnd.kubernetes.protobuf";
        assert_eq!(request.headers()["accept"], protobuf);
        respond("application/json", full(LIST))
    })
    .await;
    let client = resource_client(&server, None, WireFormat::Protobuf).await;
    for failed in [
        client.list(ListCall::default()).await.err(),
        client.watch(WATCH).await.err(),
    ] {
        assert!(
            matches!(&failed, Some(Error::MediaType { received, .. }) if received == "application/json"),
            "{failed:?}"
        );
    }
}

#[tokio::test]
async fn failures_keep_their_status() {
    let server = TestServer::plain(|_| async {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "only the following media types are accepted: application/json",
            "reason": "NotAcceptable", "code": 406,
        });
        let mut response = respond("application/json", full(status.to_string()));
        *response.status_mut() = http::StatusCode::NOT_ACCEPTABLE;
        response
    })
    .await;
    let client = resource_client(&server, None, WireFormat::Protobuf).await;
    let failed = client.list(ListCall::default()).await.expect_err("406");
    let status = failed.status().expect("an answer");
    assert_eq!(
        (status.code, status.reason.as_deref()),
        (406, Some("NotAcceptable"))
    );
}

#[tokio::test]
async fn an_answer_that_may_be_older_than_its_request_proves_nothing() {
    let method = Arc::new(Mutex::new(None));
    let answered = Arc::clone(&method);
    let server = TestServer::plain(move |_| {
        let mut response = respond("application/json", full(LIST));
        let method = answered.lock().map(HeaderValue::from_static);
        let headers = response.headers_mut();
        headers.extend(method.map(|method| (PROOF_HEADER, method)));
        async move { response }
    })
    .await;
    for (answered_by, is_proven) in [
        (None, true),
        (Some("barrier"), true),
        (Some("recent"), false),
        (Some("any"), false),
    ] {
        *method.lock() = answered_by;
        let client = resource_client(&server, None, WireFormat::Json).await;
        let barrier = FreshnessProbe::barrier(&client).await.err();
        let list = client.verification_list(&Scope::default()).await.err();
        for failed in [barrier, list] {
            match (failed, answered_by) {
                (None, _) => assert!(is_proven, "{answered_by:?}"),
                (Some(Error::Unproven { method }), Some(answered_by)) => {
                    assert!(!is_proven && method == answered_by, "{answered_by}");
                }
                (Some(other), _) => panic!("{answered_by:?}: {other}"),
            }
        }
        assert_eq!(client.unproven_at().is_none(), is_proven);
        // The reflector gets the answer, and its clone knows whether the list proves anything.
        let next_page = ListCall {
            limit: 1,
            continue_token: Some("more".into()),
        };
        let initial_events = WatchCall {
            start: ResumePoint::InitialEvents,
            ..WATCH
        };
        let client = resource_client(&server, None, WireFormat::Json).await;
        ListerWatcher::barrier(&client).await.expect("a revision");
        client.list(next_page).await.expect("a page");
        client.watch(WATCH).await.expect("a stream");
        assert_eq!(client.unproven_at(), None, "{answered_by:?}");
        let reflector = client.clone();
        reflector.watch(initial_events).await.expect("a stream");
        assert_eq!(client.unproven_at().is_none(), is_proven);
        let before = client.unproven_at();
        let scoped = client.in_scope(&Scope::default());
        scoped.list(ListCall::default()).await.expect("a page");
        assert_eq!(client.unproven_at() > before, !is_proven);
    }
}

/// A server, its client, and a receiver that gets a [`Script`] for the body of each watch.
async fn scripted() -> (TestServer, ResourceClient, mpsc::Receiver<Script>) {
    let (senders, scripts) = mpsc::channel(1);
    let server = TestServer::plain(move |_| {
        let mut senders = senders.clone();
        async move {
            let (script, frames) = mpsc::channel(0);
            senders.send(script).await.expect("the test listens");
            let frames = frames.map(|chunk: Option<&'static str>| match chunk {
                Some(chunk) => Ok(Frame::data(Bytes::from_static(chunk.as_bytes()))),
                None => Err(BoxError::from("cut")),
            });
            respond("application/json", boxed(StreamBody::new(frames)))
        }
    })
    .await;
    let client = resource_client(&server, None, WireFormat::Json).await;
    (server, client, scripts)
}

/// Sends the chunks of a watch's body. `None` cuts the connection; dropping the sender ends the
/// body without an error.
type Script = mpsc::Sender<Option<&'static str>>;

#[tokio::test]
async fn a_watch_yields_whole_events_and_ends_cleanly() {
    let (_server, client, mut scripts) = scripted().await;
    let mut events = client.watch(WATCH).await.expect("a watch");
    let mut script = scripts.next().await.expect("a request");
    let (start, end) = ADDED.split_at(40);
    script.send(Some(start)).await.expect("taken");
    assert!(
        futures::poll!(events.next()).is_pending(),
        "half a frame is not an event"
    );
    script.send(Some(end)).await.expect("taken");
    let event = events.next().await.expect("an event").expect("no error");
    match event {
        WatchEvent::Change {
            event_type,
            object,
            frame,
        } => {
            assert_eq!(event_type, EventType::Added);
            assert_eq!(object.resource_version, ResourceVersion(11));
            assert_eq!(frame, ADDED);
        }
        other => panic!("{other:?}"),
    }
    drop(script);
    assert!(events.next().await.is_none());
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_broken_watch_ends_with_an_error() {
    let (_server, client, mut scripts) = scripted().await;
    let (half, _) = ADDED.split_at(40);
    for (chunks, decodes) in [
        (vec![Some(ADDED), Some(half)], true),
        (vec![Some(ADDED), Some("{\"type\":\"NONE\"}\n")], true),
        (vec![Some(ADDED), None], false),
    ] {
        let mut events = client.watch(WATCH).await.expect("a watch");
        let mut script = scripts.next().await.expect("a request");
        let mut received = Vec::new();
        for chunk in chunks {
            // The first event is received before a cut of the connection could overtake it.
            script.send(chunk).await.expect("taken");
            if chunk == Some(ADDED) {
                received.push(events.next().await.expect("an event"));
            }
        }
        drop(script);
        received.extend(events.by_ref().collect::<Vec<_>>().await);
        assert!(matches!(received[0], Ok(WatchEvent::Change { .. })));
        let last = received.pop().expect("an error");
        if decodes {
            assert!(matches!(last, Err(Error::Decode(_))), "{last:?}")
        } else {
            assert!(matches!(last, Err(Error::Transport(_))), "{last:?}")
        }
        assert_eq!(received.len(), 1);
        assert!(events.next().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_outlives_its_timeout_ends() {
    let body = boxed(StreamBody::new(futures::stream::pending::<
        Result<Frame<Bytes>, BoxError>,
    >()));
    let decoder = Decoder::new(WireFormat::Json, Arc::new(SelectableFields::default()));
    let longest = Duration::from_secs(330);
    let started = tokio::time::Instant::now();
    let mut events = super::WatchEvents::new(body, WireFormat::Json, decoder, longest, None);
    let overdue = events.next().await.expect("an error");
    assert!(matches!(overdue, Err(Error::Timeout(_))), "{overdue:?}");
    assert_eq!(started.elapsed(), longest);
    assert!(events.next().await.is_none());
}

#[test]
fn list_queries() {
    let query = |limit, token: Option<&str>| {
        list_query(&ListCall {
            limit,
            continue_token: token.map(str::to_owned),
        })
    };
    assert_eq!(query(0, None), "");
    assert_eq!(query(500, None), "limit=500");
    assert_eq!(query(1, Some("a+b=")), "limit=1&continue=a%2Bb%3D");
}

#[test]
fn watch_queries() {
    let query = |start| {
        watch_query(&WatchCall {
            start,
            timeout: Duration::from_secs(300),
        })
    };
    assert_eq!(
        query(ResumePoint::After(ResourceVersion(7))),
        "watch=true&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion=7"
    );
    assert_eq!(
        query(ResumePoint::InitialEvents),
        "watch=true&allowWatchBookmarks=true&timeoutSeconds=300&sendInitialEvents=true\
         &resourceVersionMatch=NotOlderThan"
    );
}

#[tokio::test(start_paused = true)]
async fn pings_prove_a_silent_watch_alive_and_end_it_when_the_server_stops() {
    let server = StoppableServer::start(|_| async {
        let silent = futures::stream::pending::<Result<Frame<Bytes>, BoxError>>();
        let response = Response::builder().header("content-type", "application/json");
        response
            .body(boxed(StreamBody::new(silent)))
            .expect("a response")
    });
    let liveness = WatchLiveness::default();
    let client = resource_client_of(server.client.clone(), None, WireFormat::Json);
    let client = client.with_liveness(liveness.clone());
    let mut events = client.watch(WATCH).await.expect("a watch");
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(3700)).await;
        let age = liveness.age().expect("an open watch");
        assert!(age <= Duration::from_millis(3001), "{age:?}");
    }
    server.stopped.send_replace(true);
    let stopped_at = tokio::time::Instant::now();
    let last = events.next().await.expect("an error");
    assert!(matches!(last, Err(Error::Transport(_))), "{last:?}");
    let took = stopped_at.elapsed();
    assert!(took <= Duration::from_millis(8001), "{took:?}");
    drop(events);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let age = liveness.age().expect("an earlier watch");
    assert!(age >= Duration::from_secs(65), "{age:?}");
}
