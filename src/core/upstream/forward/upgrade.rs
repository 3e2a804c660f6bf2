//! Joins the client's and the API server's connection after both were upgraded, for exec, attach,
//! port-forward and WebSocket watches.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use crate::upstream::Error;

/// The client's and the API server's connections, which are about to be upgraded.
#[derive(Debug)]
pub struct PendingUpgrade {
    pub(super) downstream: OnUpgrade,
    pub(super) upstream: OnUpgrade,
}

/// The number of bytes that were copied over an upgraded connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpgradedBytes {
    /// Bytes from the client to the API server.
    pub sent: u64,
    /// Bytes from the API server to the client.
    pub received: u64,
}

impl PendingUpgrade {
    /// Copies bytes both ways until both sides have ended. The caller must spawn the future,
    /// because the client's upgrade completes only after the response was sent. Dropping the future
    /// closes both connections.
    ///
    /// # Errors
    /// If one of the connections breaks.
    pub async fn join(self) -> Result<UpgradedBytes, Error> {
        let broken = |error: hyper::Error| Error::Transport(error.into());
        let mut upstream = TokioIo::new(self.upstream.await.map_err(broken)?);
        let mut downstream = TokioIo::new(self.downstream.await.map_err(broken)?);
        let copied = tokio::io::copy_bidirectional(&mut downstream, &mut upstream).await;
        let (sent, received) = copied.map_err(|error| Error::Transport(error.into()))?;
        Ok(UpgradedBytes { sent, received })
    }
}
