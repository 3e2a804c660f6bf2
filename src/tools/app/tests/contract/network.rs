//! A simulator and kubefans in one process, with in-memory connections that tests can cut.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kubefan_core::informer::{InformerSet, LiveRestMapper};
use kubefan_core::shutdown::{Phase, Shutdown};
use kubefan_core::telemetry::Registry;
use kubefan_core::upstream::{Client, Dial, Forwarder};
use kubefan_core::{informer, shutdown};
use kubefan_proxy::identity::AccessControl;
use kubefan_proxy::ledger::Limits;
use kubefan_proxy::net::{Peer, Protocol, RequestBody, ServedSocket, serve_connection};
use kubefan_proxy::server::{Body, RequestMetrics, Server, WebPageRules};
use kubefan_proxy::{identity, net, server};
use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tokio::time::sleep;
use tower::Service;

use crate::sim::Simulator;

/// The buffers, in bytes, of a connection between a kubefan and the simulator, and of one between a
/// client and a kubefan. They are small, so that a client that does not read soon blocks its watch.
const UPSTREAM_BUFFER: usize = 16 << 10;
const CLIENT_BUFFER: usize = 256;

/// The pause before another attempt after a failed discovery.
const DISCOVERY_PAUSE: Duration = Duration::from_secs(1);

/// The network path to a server, which tests can cut.
#[derive(Clone)]
pub(super) struct Link {
    /// Whether new connections are accepted, and how often the path was cut.
    state: Arc<watch::Sender<(bool, u32)>>,
}

/// A kubefan in front of the simulator. `link` is its path to the simulator.
pub(super) struct Replica {
    dial: Dial,
    pub(super) link: Link,
    config: informer::Config,
    shutdown: Shutdown,
}

// === impl Link ===

impl Link {
    fn new() -> Self {
        Self {
            state: Arc::new(watch::Sender::new((true, 0))),
        }
    }

    /// Breaks all open connections. If `up` is false, refuses new ones until [`Link::heal`].
    pub(super) fn cut(&self, up: bool) {
        self.state.send_modify(|state| *state = (up, state.1 + 1));
    }

    pub(super) fn heal(&self) {
        self.state.send_modify(|state| state.0 = true);
    }

    /// Returns a function that opens connections to `service`; each has `buffer` bytes of buffer.
    fn dial<S>(&self, service: S, shutdown: &Shutdown, buffer: usize) -> Dial
    where
        S: Service<Request<RequestBody>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
    {
        let (link, shutdown, service) = (self.clone(), shutdown.clone(), Mutex::new(service));
        Arc::new(move || {
            let mut state = link.state.subscribe();
            if !state.borrow_and_update().0 {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (near, far) = tokio::io::duplex(buffer);
            let service = service.lock().clone();
            let stop = shutdown.reached(Phase::StopAccepting);
            tokio::spawn(async move {
                let config = net::Config::default();
                let far = ServedSocket::new(far, config.write_timeout);
                let served =
                    serve_connection(far, Protocol::Http1, peer(), service, &config, None, stop);
                tokio::select! {
                    biased;
                    // Dropping the server's end breaks the connection for the client too.
                    _ = cut(state) => {}
                    _ = served => {}
                }
            });
            Ok(near)
        })
    }
}

async fn cut(mut state: watch::Receiver<(bool, u32)>) {
    let cuts = state.borrow().1;
    // An error means that the test is over and the sender was dropped.
    let _ = state.wait_for(|state| state.1 != cuts).await;
}

fn peer() -> Peer {
    Peer {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        tls: false,
        certificates: None,
    }
}

// === impl Replica ===

impl Replica {
    /// Starts a kubefan as the composition root does, but with in-memory connections.
    pub(super) async fn start(simulator: &Simulator, config: informer::Config) -> Self {
        let shutdown = Shutdown::new(shutdown::Config::default());
        let link = Link::new();
        let registry = Registry::new();
        let answering = simulator.clone();
        let answer = move |request| answering.clone().answer(request);
        let simulated = server::with_filters(
            RequestMetrics::new(&registry),
            WebPageRules::default(),
            answer,
        );
        let client = Client::in_memory(&link.dial(simulated, &shutdown, UPSTREAM_BUFFER));
        let rest_mapper = loop {
            match LiveRestMapper::discover(client.clone()).await {
                Ok(rest_mapper) => break rest_mapper,
                // After a restart, faults may be active. The process then waits and tries again.
                Err(_) => sleep(DISCOVERY_PAUSE).await,
            }
        };
        let informers = InformerSet::new(client.clone(), config.clone(), shutdown.clone());
        let registry = Registry::new();
        let access = identity::Config::default();
        let server = Server::new(
            AccessControl::new(
                &access,
                client.clone(),
                identity::Metrics::new(&registry),
                &registry,
                &shutdown,
            ),
            informers,
            Arc::new(rest_mapper),
            Forwarder::new(client),
            server::Config::default(),
            server::Metrics::new(&registry, &Limits::default()),
            shutdown.clone(),
        );
        let clients = Link::new();
        Self {
            dial: clients.dial(server.into_service(), &shutdown, CLIENT_BUFFER),
            link,
            config,
            shutdown,
        }
    }

    /// Kills the kubefan and starts another one with empty caches in its place.
    pub(super) async fn restart(&mut self, simulator: &Simulator) {
        self.link.cut(false);
        self.shutdown.drain().await;
        *self = Self::start(simulator, self.config.clone()).await;
    }

    /// Sends a GET over a new connection.
    pub(super) async fn get(&self, target: &str) -> Result<Response<Incoming>, String> {
        let io: DuplexStream = (self.dial)().map_err(|error| error.to_string())?;
        let (mut sender, connection) = http1::handshake::<_, String>(TokioIo::new(io))
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        let request = Request::get(target)
            .header("host", "localhost")
            .header("accept", "application/json")
            .body(String::new());
        let request = request.expect("a request");
        let response = sender.send_request(request).await;
        response.map_err(|error| format!("GET {target}: {error}"))
    }
}
