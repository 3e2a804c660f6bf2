//! A simulator and kubefans in one process, joined by connections that can be cut.

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::sync::Arc;

use http::Request;
use http::Response;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tower::Service;

use crate::informer;
use crate::informer::InformerSet;
use crate::informer::LiveRestMapper;
use crate::net;
use crate::net::Peer;
use crate::net::Protocol;
use crate::net::serve_connection;
use crate::server;
use crate::server::Body;
use crate::server::GzipCacheMetrics;
use crate::server::RequestMetrics;
use crate::server::Server;
use crate::shutdown;
use crate::shutdown::Phase;
use crate::shutdown::Shutdown;
use crate::telemetry::Registry;
use crate::tools::sim::Simulator;
use crate::upstream::Client;
use crate::upstream::Dial;
use crate::upstream::Forwarder;

/// Bytes on the way between a kubefan and the simulator, and between a client and a kubefan: so few
/// that a client which does not read is felt.
const UPSTREAM_BUFFER: usize = 16 << 10;
const CLIENT_BUFFER: usize = 256;

/// The way from a kubefan to the simulator.
#[derive(Clone)]
pub(super) struct Link {
    /// Whether there is one, and how often it was cut.
    state: Arc<watch::Sender<(bool, u32)>>,
}

/// A kubefan, before the simulator that `link` leads to.
pub(super) struct Replica {
    dial: Dial,
    pub(super) link: Link,
}

// === impl Link ===

impl Link {
    fn new() -> Self {
        Self {
            state: Arc::new(watch::Sender::new((true, 0))),
        }
    }

    /// Breaks all connections; new ones are refused while it is not `up`.
    pub(super) fn cut(&self, up: bool) {
        self.state.send_modify(|state| *state = (up, state.1 + 1));
    }

    pub(super) fn heal(&self) {
        self.state.send_modify(|state| state.0 = true);
    }

    /// Connections over this link to `service`.
    fn dial<S>(&self, service: S, shutdown: &Shutdown, buffer: usize) -> Dial
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
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
                let served = serve_connection(far, Protocol::Http1, peer(), service, &config, stop);
                tokio::select! {
                    biased;
                    // Both ends see it break.
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
    // The sender is dropped with everything else.
    let _ = state.wait_for(|state| state.1 != cuts).await;
}

fn peer() -> Peer {
    Peer {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        tls: false,
    }
}

// === impl Replica ===

impl Replica {
    /// As the composition root builds one, without its sockets.
    pub(super) async fn start(simulator: &Simulator, config: informer::Config) -> Self {
        let shutdown = Shutdown::new(shutdown::Config::default());
        let link = Link::new();
        let registry = Registry::new();
        let answering = simulator.clone();
        let answer = move |request| answering.clone().answer(request);
        let simulated = server::with_filters(RequestMetrics::new(&registry), answer);
        let client = Client::in_memory(&link.dial(simulated, &shutdown, UPSTREAM_BUFFER));
        let rest_mapper = LiveRestMapper::discover(client.clone()).await;
        let informers = InformerSet::new(client.clone(), config, shutdown.clone());
        let registry = Registry::new();
        let server = Server::new(
            informers,
            Arc::new(rest_mapper.expect("discovered")),
            Forwarder::new(client),
            RequestMetrics::new(&registry),
            GzipCacheMetrics::new(&registry),
            shutdown.clone(),
        );
        let clients = Link::new();
        Self {
            dial: clients.dial(server.into_service(), &shutdown, CLIENT_BUFFER),
            link,
        }
    }

    /// Sends a GET over a connection of its own.
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
        let answered = sender.send_request(request).await;
        answered.map_err(|error| format!("GET {target}: {error}"))
    }
}
