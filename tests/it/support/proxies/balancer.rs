//! A TCP load balancer in front of several servers, which get the connections in turn. It passes
//! TLS through unchanged.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::support::proxies::listener::Listener;

/// A running load balancer; it and all its connections end when this is dropped.
#[derive(Debug)]
pub(crate) struct Balancer {
    listener: Listener,
    state: Arc<BalancerState>,
}

#[derive(Debug)]
struct BalancerState {
    ports: Mutex<Vec<u16>>,
    preferred: Mutex<Option<usize>>,
    /// The number of calls of `cut`; each change ends the open connections.
    cuts: watch::Sender<u64>,
}

impl Balancer {
    /// Starts a balancer in front of servers that listen on these ports of 127.0.0.1.
    pub(crate) async fn start(ports: &[u16]) -> Self {
        Self::start_at(0, ports).await
    }

    /// Starts a balancer like [`Balancer::start`] that listens on `port`.
    pub(crate) async fn start_at(port: u16, ports: &[u16]) -> Self {
        let state = Arc::new(BalancerState {
            ports: Mutex::new(ports.to_vec()),
            preferred: Mutex::default(),
            cuts: watch::Sender::new(0),
        });
        let serving = state.clone();
        Self {
            listener: Listener::start_at(port, move |number, tcp| {
                serve(tcp, number, serving.clone())
            })
            .await,
            state,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.listener.address())
    }

    /// Ends all connections, so that clients reconnect and are distributed again.
    pub(crate) fn cut(&self) {
        self.state.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Returns the ports of the servers that get new connections.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.state.ports.lock().clone()
    }

    /// Sends new connections to servers that listen on these ports. Open connections stay open.
    pub(crate) fn send_to(&self, ports: &[u16]) {
        *self.state.ports.lock() = ports.to_vec();
    }

    /// Sends all new connections to the server with this index; `None` to all servers in turn.
    pub(crate) fn prefer(&self, server: Option<usize>) {
        *self.state.preferred.lock() = server;
    }
}

async fn serve(client: TcpStream, number: usize, state: Arc<BalancerState>) {
    let port = {
        let ports = state.ports.lock();
        let turn = (number - 1) % ports.len().max(1);
        let chosen = state.preferred.lock().unwrap_or(turn);
        ports.get(chosen).copied()
    };
    let Some(port) = port else { return };
    let mut cuts = state.cuts.subscribe();
    tokio::select! {
        // Errors of a connection are ignored here: the client sees that it broke.
        _ = pass(client, port) => {}
        _ = cuts.changed() => {}
    }
}

async fn pass(mut client: TcpStream, port: u16) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
