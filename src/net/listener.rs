//! The accept loop. Each connection gets a task, which a drain waits for.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus::IntGauge;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;
use tokio::time::error::Elapsed;
use tokio::time::sleep;
use tokio::time::timeout;
use tracing::debug;
use tracing::warn;

use crate::net::Acceptor;
use crate::net::Config;
use crate::net::HttpService;
use crate::net::Metrics;
use crate::net::Peer;
use crate::net::Protocol;
use crate::net::ResponseBody;
use crate::net::ServingThreads;
use crate::net::serve_connection;
use crate::shutdown::Phase;
use crate::shutdown::Shutdown;

/// Pause after accepting failed for lack of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The first bytes of a client that uses HTTP/2 by prior knowledge (RFC 9113, 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Pause before the first bytes are read again, if only a part of the HTTP/2 preface has arrived.
const PREFACE_PAUSE: Duration = Duration::from_millis(5);

/// A bound socket, and the settings that its connections share.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    tls: Option<Acceptor>,
    threads: Option<Arc<ServingThreads>>,
    context: Arc<Context>,
}

#[derive(Debug)]
struct Context {
    name: &'static str,
    config: Config,
    metrics: Metrics,
    shutdown: Shutdown,
}

/// A connection's slot under the limit of open connections, which also counts in the gauge.
struct ConnectionSlot {
    open: IntGauge,
    _permit: OwnedSemaphorePermit,
}

impl Listener {
    /// A listener without TLS; `name` is its label in metrics and logs.
    pub fn new(
        name: &'static str,
        socket: TcpListener,
        config: Config,
        metrics: Metrics,
        shutdown: Shutdown,
    ) -> Listener {
        let context = Context {
            name,
            config,
            metrics,
            shutdown,
        };
        Listener {
            socket,
            tls: None,
            threads: None,
            context: Arc::new(context),
        }
    }

    /// Accepts only TLS connections from now on.
    pub fn with_tls(mut self, acceptor: Acceptor) -> Listener {
        self.tls = Some(acceptor);
        self
    }

    /// Serves connections on `threads`, in turn, instead of where [`Listener::serve`] runs.
    pub fn on_threads(mut self, threads: Arc<ServingThreads>) -> Listener {
        self.threads = Some(threads);
        self
    }

    /// The address that the socket is bound to.
    ///
    /// # Errors
    /// If the system can't report the address.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts connections until [`Phase::StopAccepting`]; then closes the socket. Open connections
    /// continue until they end.
    pub async fn serve<B: ResponseBody>(self, service: impl HttpService<B>) {
        let slots = Arc::new(Semaphore::new(self.context.config.max_connections));
        let mut stop = self.context.shutdown.reached(Phase::StopAccepting);
        loop {
            let (slot, stream, address) = tokio::select! {
                () = &mut stop => return,
                accepted = self.accept(&slots) => accepted,
            };
            let context = self.context.clone();
            let tls = self.tls.clone();
            let service = service.clone();
            let shutdown = &self.context.shutdown;
            let Some(threads) = &self.threads else {
                shutdown.spawn(async move {
                    context.serve_one(stream, address, tls, service).await;
                    drop(slot);
                });
                continue;
            };
            // The socket must be registered with the runtime of its serving thread.
            let stream = match stream.into_std() {
                Ok(stream) => stream,
                Err(error) => {
                    context.record_accept_failure(&error);
                    continue;
                }
            };
            shutdown.spawn_on(threads.next_runtime(), async move {
                match TcpStream::from_std(stream) {
                    Ok(stream) => context.serve_one(stream, address, tls, service).await,
                    Err(error) => context.record_accept_failure(&error),
                }
                drop(slot);
            });
        }
    }

    /// The next connection, once there is a free slot for it. Cancel safe.
    async fn accept(&self, slots: &Arc<Semaphore>) -> (ConnectionSlot, TcpStream, SocketAddr) {
        let permit = slots
            .clone()
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        loop {
            match self.socket.accept().await {
                Ok((stream, address)) => {
                    let slot = ConnectionSlot::take(self.context.open_gauge(), permit);
                    return (slot, stream, address);
                }
                Err(error) if is_peer_error(&error) => {
                    debug!(listener = self.context.name, %error, "peer left before its connection was accepted");
                }
                Err(error) => {
                    self.context.record_accept_failure(&error);
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

fn is_peer_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

impl Context {
    async fn serve_one<B: ResponseBody>(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        tls: Option<Acceptor>,
        service: impl HttpService<B>,
    ) {
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%address, %error, "cannot set TCP_NODELAY");
        }
        let peer = Peer {
            address,
            tls: tls.is_some(),
        };
        let stop = self.shutdown.reached(Phase::StopAccepting);
        let served = match tls {
            Some(acceptor) => {
                let handshake = Box::pin(acceptor.accept(stream));
                let handshake = timeout(self.config.handshake_timeout, handshake);
                let Some((stream, protocol)) = self.record_opening(address, handshake.await) else {
                    return;
                };
                serve_connection(stream, protocol, peer, service, &self.config, stop)
            }
            None => {
                let first_bytes = timeout(self.config.head_timeout, detect_protocol(stream));
                let opening = tokio::select! {
                    opening = first_bytes => opening,
                    // The peer has sent too little to detect the protocol: the connection is idle.
                    () = stop.clone() => return,
                };
                let Some((stream, protocol)) = self.record_opening(address, opening) else {
                    return;
                };
                serve_connection(stream, protocol, peer, service, &self.config, stop)
            }
        };
        if let Err(error) = served.await {
            self.count_failure("serve");
            debug!(listener = self.name, %address, error, "connection ended");
        }
    }

    /// Counts and logs the result of the TLS handshake or protocol detection; `None` if it failed.
    fn record_opening<T>(
        &self,
        address: SocketAddr,
        opening: Result<io::Result<(T, Protocol)>, Elapsed>,
    ) -> Option<(T, Protocol)> {
        let error = match opening {
            Ok(Ok(opened)) => {
                let labels = [self.name, opened.1.name()];
                self.metrics.connections.with_label_values(&labels).inc();
                return Some(opened);
            }
            Ok(Err(error)) => error,
            Err(late) => late.into(),
        };
        self.count_failure("open");
        debug!(listener = self.name, %address, %error, "connection could not be opened");
        None
    }

    fn open_gauge(&self) -> IntGauge {
        self.metrics.open.with_label_values(&[self.name])
    }

    fn record_accept_failure(&self, error: &io::Error) {
        self.count_failure("accept");
        warn!(listener = self.name, %error, "cannot accept connections");
    }

    fn count_failure(&self, stage: &str) {
        let labels = [self.name, stage];
        self.metrics.failures.with_label_values(&labels).inc();
    }
}

/// Detects HTTP/2 by prior knowledge, or else HTTP/1, without consuming any bytes.
async fn detect_protocol(stream: TcpStream) -> io::Result<(TcpStream, Protocol)> {
    let mut seen = [0; HTTP2_PREFACE.len()];
    loop {
        let length = stream.peek(&mut seen).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if seen[..length] != HTTP2_PREFACE[..length] {
            return Ok((stream, Protocol::Http1));
        }
        if length == HTTP2_PREFACE.len() {
            return Ok((stream, Protocol::Http2));
        }
        // The socket is already readable, so waiting for the rest would return at once. No client
        // is known that sends its preface in two parts.
        sleep(PREFACE_PAUSE).await;
    }
}

impl ConnectionSlot {
    fn take(open: IntGauge, permit: OwnedSemaphorePermit) -> ConnectionSlot {
        open.inc();
        ConnectionSlot {
            open,
            _permit: permit,
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.open.dec();
    }
}
