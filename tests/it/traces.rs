//! Traces: what a collector and the API server get, with `kubefan serve` as a program before the
//! simulator.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use parking_lot::Mutex;
use prost::Message;

use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::sim::Sim;
use crate::support::proxies::listener::Listener;
use crate::support::proxies::scripted_proxy::{RequestAction, ScriptedProxy};

const SECRET: &str = "/api/v1/namespaces/default/configmaps/secret?pretty=secret";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A collector that keeps what it gets.
struct Collector {
    listener: Listener,
    received: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

impl Collector {
    async fn start() -> Self {
        let received: Arc<Mutex<Vec<_>>> = Arc::default();
        let keeping = Arc::clone(&received);
        let listener = Listener::start(move |_, tcp| {
            let keeping = Arc::clone(&keeping);
            let service = service_fn(move |request: Request<Incoming>| {
                let keeping = Arc::clone(&keeping);
                async move {
                    assert_eq!(
                        (request.method(), request.uri().path()),
                        (&Method::POST, "/spans")
                    );
                    let body = request.into_body().collect().await?.to_bytes();
                    let message = ExportTraceServiceRequest::decode(body).expect("a message");
                    keeping.lock().push(message);
                    Ok::<_, hyper::Error>(Response::new(Empty::<Bytes>::new()))
                }
            });
            async move {
                // The error is that of a client that leaves.
                let _ = Builder::new()
                    .serve_connection(TokioIo::new(tcp), service)
                    .await;
            }
        });
        Self {
            listener: listener.await,
            received,
        }
    }

    fn spans(&self) -> Vec<Span> {
        let received = self.received.lock().clone();
        let scopes = received
            .into_iter()
            .flat_map(|message| message.resource_spans);
        let scopes = scopes.flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_span_of_the_call_is_the_parent_of_what_the_api_server_records() {
    let sim = Sim::start(&[]).await;
    let proxy = ScriptedProxy::start(sim.client(), |_| RequestAction::Forward).await;
    let collector = Collector::start().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("config");
    kubeconfig::write(&config, proxy.url(), None, &User::Anonymous);
    let endpoint = format!("{}/spans", collector.listener.http_url());
    let all = ["--tracing-sampling-rate-per-million", "1000000"];
    let flags = ["--tracing-endpoint", &endpoint, all[0], all[1]];
    let mut kubefan = Kubefan::start_with(&config, &flags).await;
    for (name, flag) in [
        ("sampled", Some("01")),
        ("unsampled", Some("00")),
        ("new", None),
    ] {
        let mut client = kubefan.client().with("audit-id", name);
        if let Some(flag) = flag {
            let parent = format!("00-{TRACE}-{PARENT}-{flag}");
            client = client
                .with("traceparent", &parent)
                .with("tracestate", "a=1");
        }
        assert_eq!(client.get(SECRET).await.status, 404, "{name}");
    }
    kubefan.terminate();
    assert!(kubefan.wait_for_exit().success());

    let spans = collector.spans();
    let by_id: BTreeMap<_, _> = spans
        .iter()
        .map(|span| (hex(&span.span_id), span))
        .collect();
    let seen = proxy.seen();
    let sent = |name: &str| {
        let seen = seen.iter().find(|seen| seen.header("audit-id") == name);
        let seen = seen.expect("it was forwarded");
        let parent = seen.header("traceparent").to_owned();
        (parent, seen.header("tracestate").to_owned())
    };
    assert_eq!(
        sent("unsampled"),
        (format!("00-{TRACE}-{PARENT}-00"), "a=1".to_owned())
    );
    for (name, state, client) in [("sampled", "a=1", PARENT), ("new", "", "")] {
        let (parent, found) = sent(name);
        assert_eq!(found, state, "{name}");
        let parts: Vec<_> = parent.split('-').collect();
        let ["00", trace, span, "01"] = parts[..] else {
            panic!("{name}: {parent:?}");
        };
        assert_eq!(trace == TRACE, name == "sampled");
        let forward = by_id[span];
        assert_eq!(forward.name, "forward");
        assert_eq!(
            (hex(&forward.trace_id), forward.kind()),
            (trace.to_owned(), SpanKind::Client)
        );
        let root = by_id[&hex(&forward.parent_span_id)];
        let route = "GET /api/v1/namespaces/{namespace}/configmaps/{name}";
        assert_eq!((root.name.as_str(), root.kind()), (route, SpanKind::Server));
        assert_eq!(hex(&root.trace_id), trace);
        assert_eq!(hex(&root.parent_span_id), client);
        assert!(root.start_time_unix_nano <= forward.start_time_unix_nano);
        assert!(forward.end_time_unix_nano <= root.end_time_unix_nano);
    }
    let of_clients = spans.iter().filter(|span| span.kind() == SpanKind::Server);
    assert_eq!(of_clients.count(), 2, "the third was not sampled");
    assert!(!format!("{spans:?}").contains("secret"), "{spans:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_is_passed_on_unchanged_without_traces() {
    let sim = Sim::start(&[]).await;
    let proxy = ScriptedProxy::start(sim.client(), |_| RequestAction::Forward).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("config");
    kubeconfig::write(&config, proxy.url(), None, &User::Anonymous);
    let kubefan = Kubefan::start_with(&config, &[]).await;
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let client = kubefan.client().with("audit-id", "mine");
    let client = client
        .with("traceparent", &parent)
        .with("tracestate", "a=1");
    assert_eq!(client.get(SECRET).await.status, 404);
    let seen = proxy.seen();
    let seen = seen.iter().find(|seen| seen.header("audit-id") == "mine");
    let seen = seen.expect("it was forwarded");
    assert_eq!(seen.header("traceparent"), parent);
    assert_eq!(seen.header("tracestate"), "a=1");
    assert!(!kubefan.metrics().await.contains("kubefan_spans_"));
}
