//! A balancer of TCP connections in front of several servers, each in turn. TLS passes through it.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::io::copy_bidirectional;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The balancer; ends when dropped, and all its connections with it.
#[derive(Debug)]
pub(crate) struct Balancer {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    ports: Vec<u16>,
    connections: AtomicUsize,
    preferred: Mutex<Option<usize>>,
    /// Counts the cuts.
    cuts: watch::Sender<u64>,
}

impl Balancer {
    /// In front of what listens on these ports of 127.0.0.1.
    pub(crate) async fn start(ports: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            ports: ports.to_vec(),
            connections: AtomicUsize::new(0),
            preferred: Mutex::default(),
            cuts: watch::Sender::new(0),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Self {
            port,
            shared,
            accepting,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Ends all connections, so that the next ones are shared out anew.
    pub(crate) fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Gives all new connections to this server, or to each in turn.
    pub(crate) fn prefer(&self, server: Option<usize>) {
        *self.shared.preferred.lock() = server;
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let turn = shared.connections.fetch_add(1, Ordering::Relaxed) % shared.ports.len();
        let port = shared.ports[shared.preferred.lock().unwrap_or(turn)];
        let mut cuts = shared.cuts.subscribe();
        connections.spawn(async move {
            tokio::select! {
                // A connection that breaks is the client's to notice.
                _ = pass(client, port) => {}
                _ = cuts.changed() => {}
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn pass(mut client: TcpStream, port: u16) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
