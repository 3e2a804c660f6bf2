//! The accept loop. Each connection gets a task, and a drain waits for these tasks.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::sync::Arc;
use std::time::Duration;

use kubefan_core::shutdown::{Phase, Shutdown};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::client_socket::{FirstBytes, read_first_bytes, refuse_plain_http, set_options};
use super::file_slots::ConnectionSlot;
use super::lifetime::{ended_within, stop_within};
use super::pending_openings::{Opening, PendingOpenings};
use super::proxy_protocol::read_header;
use crate::ledger::{Account, Ledger};
use crate::net::tls::acceptor::Accepted as Handshaken;
use crate::net::{
    Acceptor, Config, ConnectionFuture, HttpService, Metrics, Peer, Protocol, ResponseBody,
    ServedSocket, ServingThreads, Transport, serve_connection,
};

/// Pause after accepting failed for lack of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound socket, and the settings that its connections share.
pub struct Listener {
    socket: TcpListener,
    tls: Option<Acceptor>,
    threads: Option<Arc<ServingThreads>>,
    ledger: Option<Ledger>,
    context: Arc<Context>,
}

struct Context {
    name: &'static str,
    config: Config,
    metrics: Metrics,
    shutdown: Shutdown,
}

/// A connection after its PROXY header and its TLS handshake, as far as it has them, and the
/// address of its client.
type Begun<I> = (Handshaken<I>, SocketAddr);

/// Why a connection could not be opened.
struct OpenError {
    /// The value of the metric label `stage`.
    stage: &'static str,
    error: io::Error,
}

/// A connection that was accepted, but has not finished its handshake yet.
struct Accepted {
    address: SocketAddr,
    slot: ConnectionSlot,
    opening: Opening,
    /// The account that the connection's streams are charged to; `None` without a ledger.
    account: Option<Arc<Account>>,
}

impl Listener {
    /// Creates a listener without TLS. `name` is its label in metrics and logs.
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
            ledger: None,
            context: Arc::new(context),
        }
    }

    /// Accepts only TLS connections from now on. The handshake offers HTTP/2 if the listener serves
    /// it.
    pub fn with_tls(mut self, acceptor: Acceptor) -> Listener {
        self.tls = Some(if self.context.config.http2 {
            acceptor
        } else {
            acceptor.without_http2()
        });
        self
    }

    /// Serves connections on `threads`, each on the one with the fewest, and not on the thread of
    /// [`Listener::serve`], unless all of `threads` have panicked.
    pub fn on_threads(mut self, threads: Arc<ServingThreads>) -> Listener {
        self.threads = Some(threads);
        self
    }

    /// Opens an account of `ledger` for each connection.
    pub fn with_ledger(mut self, ledger: Ledger) -> Listener {
        self.ledger = Some(ledger);
        self
    }

    /// Returns the address that the socket is bound to.
    ///
    /// # Errors
    /// If the system can't report the address.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts connections until [`Phase::StopAccepting`], and then closes the socket. Open
    /// connections continue until they end.
    pub async fn serve<B: ResponseBody>(self, service: impl HttpService<B>) {
        let slots = Arc::new(Semaphore::new(self.context.config.max_connections.get()));
        let openings = PendingOpenings::new(self.context.config.max_pending_openings.get());
        let mut stop = self.context.shutdown.reached(Phase::StopAccepting);
        loop {
            let (slot, stream, address) = tokio::select! {
                () = &mut stop => return,
                accepted = self.accept(&slots) => accepted,
            };
            let accepted = Accepted {
                address,
                slot,
                opening: openings.begin(),
                account: self.ledger.as_ref().map(Ledger::open_account),
            };
            // The socket must be registered with the runtime of its serving thread.
            let stream = match stream.into_std() {
                Ok(stream) => stream,
                Err(error) => {
                    self.context.record_accept_failure(&error);
                    continue;
                }
            };
            let (context, tls) = (Arc::clone(&self.context), self.tls.clone());
            // Boxed, so that the memory of a handshake is freed before the connection is served.
            let opening =
                Box::pin(Arc::clone(&context).begin(stream, accepted, tls, service.clone()));
            let serving = async move {
                let opened = opening.await;
                if let Some((served, client)) = opened {
                    context.serve_opened(served, client).await;
                }
            };
            let shutdown = &self.context.shutdown;
            let threads = self.threads.as_ref();
            match threads.and_then(|threads| threads.next_runtime()) {
                Some(runtime) => shutdown.spawn_on(runtime, serving),
                None => shutdown.spawn(serving),
            };
        }
    }

    /// Accepts the next connection, once there is a free slot for it. Cancel safe.
    async fn accept(&self, slots: &Arc<Semaphore>) -> (ConnectionSlot, TcpStream, SocketAddr) {
        let permit = slots
            .clone()
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        loop {
            match self.socket.accept().await {
                Ok((stream, address)) => {
                    let context = &self.context;
                    let open = context.metrics.open.with_label_values(&[context.name]);
                    let limit = context.config.max_connections.get();
                    let slot = ConnectionSlot::take(open, permit, limit);
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

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        OpenError {
            stage: "open",
            error,
        }
    }
}

impl From<Elapsed> for OpenError {
    fn from(elapsed: Elapsed) -> OpenError {
        io::Error::from(elapsed).into()
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
    /// Opens the connection of an accepted socket, on the runtime that will serve it. Returns the
    /// future that serves it, and the address of the client; `None` if the connection could not be
    /// opened.
    async fn begin<B: ResponseBody>(
        self: Arc<Self>,
        stream: StdTcpStream,
        accepted: Accepted,
        tls: Option<Acceptor>,
        service: impl HttpService<B>,
    ) -> Option<(ConnectionFuture, SocketAddr)> {
        let stream = match TcpStream::from_std(stream) {
            Ok(stream) => stream,
            Err(error) => {
                self.record_accept_failure(&error);
                return None;
            }
        };
        let address = accepted.address;
        let (keepalive, stall) = (self.config.tcp_keepalive, self.config.write_timeout);
        if let Err(error) = set_options(&stream, keepalive, stall) {
            debug!(%address, %error, "cannot set the options of the socket");
        }
        match tls {
            Some(acceptor) => {
                let begin = async {
                    let (mut stream, client) = self.client_of(stream, address).await?;
                    let handshake = async {
                        refuse_plain_http(&mut stream).await?;
                        acceptor.accept(stream).await
                    };
                    let handshaken = timeout(self.config.handshake_timeout, handshake).await??;
                    Ok((handshaken, client))
                };
                self.open(accepted, true, begin, service).await
            }
            None => {
                let begin = async {
                    let (stream, client) = self.client_of(stream, address).await?;
                    let handshaken = Handshaken {
                        stream,
                        protocol: None,
                        certificates: None,
                    };
                    Ok((handshaken, client))
                };
                self.open(accepted, false, begin, service).await
            }
        }
    }

    /// Serves an open connection to its end.
    async fn serve_opened(&self, served: ConnectionFuture, client: SocketAddr) {
        if let Err(error) = served.await {
            self.count_failure("serve");
            debug!(listener = self.name, address = %client, error, "connection ended");
        }
    }

    /// Returns the address of the client of `stream`. It is `address`, the other end of `stream`,
    /// unless that is a load balancer's: then reads the PROXY header, and returns the address in
    /// it.
    async fn client_of(
        &self,
        mut stream: TcpStream,
        address: SocketAddr,
    ) -> Result<(TcpStream, SocketAddr), OpenError> {
        if !self.config.proxies.contains(address.ip()) {
            return Ok((stream, address));
        }
        let header = timeout(self.config.handshake_timeout, read_header(&mut stream)).await;
        let client = header.unwrap_or_else(|elapsed| Err(elapsed.into()));
        let stage = "proxy";
        let client = client.map_err(|error| OpenError { stage, error })?;
        Ok((stream, client.unwrap_or(address)))
    }

    /// Opens a connection. `begin` returns its stream, and its protocol if TLS has chosen one;
    /// otherwise the first bytes show the protocol. Also returns the address of the client. Returns
    /// `None` if the connection could not be opened.
    async fn open<I: Transport + Send + 'static, B: ResponseBody>(
        &self,
        mut accepted: Accepted,
        tls: bool,
        begin: impl Future<Output = Result<Begun<I>, OpenError>>,
        service: impl HttpService<B>,
    ) -> Option<(ConnectionFuture, SocketAddr)> {
        let stop = self.shutdown.reached(Phase::StopAccepting);
        let opened = tokio::select! {
            biased;
            // Polled first, because a connection with first bytes that have arrived gets an answer
            // in a drain.
            opened = self.detect_protocol(begin) => opened,
            () = &mut accepted.opening => {
                Err(io::Error::other("too many connections are being opened").into())
            }
            // The peer has sent too little to detect the protocol, and so no request. Handshakes
            // are also aborted, like connections in the kernel's accept queue: otherwise attackers
            // could prolong each drain.
            () = stop.clone() => return None,
        };
        let ((handshaken, client), first, protocol) = match opened {
            Ok(opened) => opened,
            Err(OpenError { stage, error }) => {
                self.count_failure(stage);
                let address = accepted.address;
                debug!(listener = self.name, %address, %error, "connection could not be opened");
                return None;
            }
        };
        let labels = [self.name, protocol.name()];
        self.metrics.connections.with_label_values(&labels).inc();
        let peer = Peer {
            address: client,
            tls,
            certificates: handshaken.certificates,
        };
        let socket = ServedSocket::new(handshaken.stream, self.config.write_timeout);
        let socket = socket.accepted(first, accepted.slot);
        let lifetime = self.config.max_lifetime;
        let stop = stop_within(lifetime, stop);
        let (config, account) = (&self.config, accepted.account);
        let served = serve_connection(socket, protocol, peer, service, config, account, stop);
        Some((ended_within(lifetime, accepted.opening, served), client))
    }

    /// Begins a connection, and finds out its protocol. Returns also the bytes that were read for
    /// this.
    async fn detect_protocol<I: Transport>(
        &self,
        begin: impl Future<Output = Result<Begun<I>, OpenError>>,
    ) -> Result<(Begun<I>, FirstBytes, Protocol), OpenError> {
        let (mut handshaken, client) = begin.await?;
        let chosen = handshaken.protocol;
        if chosen == Some(Protocol::Http1) || !self.config.http2 {
            let first = FirstBytes::default();
            return Ok(((handshaken, client), first, Protocol::Http1));
        }
        let first = read_first_bytes(&mut handshaken.stream);
        let (first, is_http2) = timeout(self.config.head_timeout, first).await??;
        // If TLS chose HTTP/2, `h2` refuses any other first bytes.
        let protocol = if is_http2 || chosen.is_some() {
            Protocol::Http2
        } else {
            Protocol::Http1
        };
        Ok(((handshaken, client), first, protocol))
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
