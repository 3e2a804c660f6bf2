//! The accept loop that all proxies of the tests share.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A listener on a port of 127.0.0.1; it and its connections end when this is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SocketAddr,
    http_url: String,
    accepting: JoinHandle<()>,
}

impl Listener {
    /// Starts to accept, and runs the future of `serve` for each connection as a separate task.
    /// `serve` gets the connection's number, which starts at 1.
    pub(crate) async fn start<F, S>(serve: F) -> Self
    where
        F: FnMut(usize, TcpStream) -> S + Send + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        Self::start_at(0, serve).await
    }

    /// Starts a listener like [`Listener::start`] on `port`; 0 is any free port.
    pub(crate) async fn start_at<F, S>(port: u16, serve: F) -> Self
    where
        F: FnMut(usize, TcpStream) -> S + Send + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("an address");
        Self {
            address,
            http_url: format!("http://{address}"),
            accepting: tokio::spawn(accept(listener, serve)),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn http_url(&self) -> &str {
        &self.http_url
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept<F, S>(listener: TcpListener, mut serve: F)
where
    F: FnMut(usize, TcpStream) -> S,
    S: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let mut number = 0;
    while let Ok((tcp, _)) = listener.accept().await {
        number += 1;
        connections.spawn(serve(number, tcp));
        while connections.try_join_next().is_some() {}
    }
}

#[tokio::test]
async fn connections_close_with_the_listener() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let listener = Listener::start(|number, mut tcp| async move {
        let number = u8::try_from(number).expect("few connections");
        tcp.write_all(&[number]).await.expect("a reader");
        std::future::pending().await
    })
    .await;
    let mut clients = Vec::new();
    for number in 1..=2 {
        let mut client = TcpStream::connect(listener.address())
            .await
            .expect("a connection");
        assert_eq!(client.read_u8().await.ok(), Some(number));
        clients.push(client);
    }
    drop(listener);
    for client in &mut clients {
        assert_eq!(client.read(&mut [0]).await.ok(), Some(0));
    }
}
