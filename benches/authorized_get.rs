//! Measures what the authentication and authorization of a GET cost while both answers are
//! remembered: `cargo bench --bench authorized_get`. The rest of the GET is the same with and
//! without them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use divan::Bencher;
use http::HeaderMap;
use http::HeaderValue;
use http::Method;
use http::Request;
use http::Response;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubefan::internals::identity::AccessControl;
use kubefan::internals::identity::Attributes;
use kubefan::internals::identity::Caller;
use kubefan::internals::identity::Config;
use kubefan::internals::identity::Metrics;
use kubefan::internals::identity::Mode;
use kubefan::internals::identity::Verdict;
use kubefan::internals::net::ClientConnection;
use kubefan::internals::net::Peer;
use kubefan::internals::server::RequestInfo;
use kubefan::shutdown;
use kubefan::shutdown::Shutdown;
use kubefan::telemetry::Registry;
use kubefan::upstream::Client;
use kubefan::upstream::ClientConfig;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::time::Instant;

fn main() {
    divan::main();
}

/// Long enough for all iterations.
const TTL: Duration = Duration::from_secs(3_600);

/// Answers each question about a token: it belongs to a service account.
async fn review(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let user = json!({
        "username": "system:serviceaccount:shop:web",
        "uid": "1f3a2a1e-6a1c-4c5a-9a35-0d6a3fb5a8f1",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"],
    });
    let review = json!({"status": {"userInfo": user}}).to_string();
    let response = Response::builder().status(201);
    let response = response.header("content-type", "application/json");
    Ok(response.body(Full::from(review)).expect("a response"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the tasks end with the runtime of the bench"
)]
async fn api_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let connection = http1::Builder::new();
            let connection = connection.serve_connection(TokioIo::new(stream), service_fn(review));
            tokio::spawn(connection);
        }
    });
    address
}

async fn access(mode: Mode) -> AccessControl {
    let address = api_server().await;
    let directory = tempfile::tempdir().expect("a directory");
    let kubeconfig = directory.path().join("config");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "bench", "user": {}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).expect("room");
    let client = Client::connect(ClientConfig {
        kubeconfig: Some(kubeconfig),
        ..ClientConfig::default()
    });
    let config = Config {
        mode,
        token_ttl: TTL,
        allowed_ttl: TTL,
        ..Config::default()
    };
    let shutdown = Shutdown::new(shutdown::Config::default());
    let registry = Registry::new();
    let metrics = Metrics::new(&registry);
    let client = client.await.expect("a client");
    AccessControl::new(&config, client, metrics, &registry, &shutdown)
}

/// A request as `net` and `server` see it.
struct Get {
    headers: HeaderMap,
    connection: ClientConnection,
    peer: Peer,
    info: RequestInfo,
}

impl Get {
    fn new(mode: Mode) -> Self {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("accept", "application/json"),
            ("accept-encoding", "gzip"),
            ("user-agent", "web/1.0 (linux/amd64) kubernetes/$Format"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if mode != Mode::None {
            // As long as the token of a service account that is bound to a pod.
            let token = format!("Bearer e30.{}.{}", "e".repeat(800), "s".repeat(342));
            headers.insert("authorization", token.try_into().expect("a header value"));
        }
        let path = "/api/v1/namespaces/shop/configmaps/settings";
        Self {
            headers,
            connection: ClientConnection::next(),
            peer: Peer {
                address: ([127, 0, 0, 1], 1).into(),
                tls: true,
                certificates: None,
            },
            info: RequestInfo::parse(&Method::GET, path, "resourceVersion=0"),
        }
    }

    fn attributes(&self) -> Attributes {
        let info = &self.info;
        Attributes {
            verb: info.verb.clone(),
            group: info.group.clone(),
            version: info.version.clone(),
            resource: info.resource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            ..Attributes::default()
        }
    }

    /// What the server does before it reads the cache.
    async fn verdict(&self, access: &AccessControl) -> Verdict {
        let mut headers = self.headers.clone();
        let caller = access.caller(&mut headers, &self.connection, &self.peer);
        match caller.await.expect("a caller") {
            Caller::Trusted => Verdict::Allowed,
            Caller::Unknown | Caller::Refused => Verdict::NotAllowed,
            Caller::Known(caller) => access
                .remembered(&caller, &self.attributes())
                .await
                .unwrap_or(Verdict::NotAllowed),
        }
    }
}

/// An access control that remembers the caller of `get` and what it may read.
fn warm(runtime: &Runtime, mode: Mode) -> (AccessControl, Get) {
    runtime.block_on(async {
        let (access, get) = (access(mode).await, Get::new(mode));
        let mut headers = get.headers.clone();
        let caller = access.caller(&mut headers, &get.connection, &get.peer);
        if let Caller::Known(caller) = caller.await.expect("a caller") {
            access.learn(&caller, &get.attributes(), Instant::now());
        }
        assert_eq!(get.verdict(&access).await, Verdict::Allowed);
        (access, get)
    })
}

#[divan::bench(args = ["none", "caller"])]
fn get(bencher: Bencher<'_, '_>, mode: &str) {
    let mode = match mode {
        "none" => Mode::None,
        _ => Mode::Caller,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let (access, get) = warm(&runtime, mode);
    bencher.bench_local(|| runtime.block_on(get.verdict(&access)));
}
