//! The connections of watchers and listing clients.

use kubefan_core::upstream::{Client, DedicatedConnection, Error, HttpVersion};

/// A connection that one or more clients share. It is opened on first use, and opened again after
/// it broke.
pub(crate) struct Slot {
    version: HttpVersion,
    connection: tokio::sync::Mutex<Option<DedicatedConnection>>,
}

impl Slot {
    /// Creates a slot for a connection of `version`; opens nothing yet.
    pub(crate) fn new(version: HttpVersion) -> Self {
        Self {
            version,
            connection: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) async fn connection(&self, client: &Client) -> Result<DedicatedConnection, Error> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let opened = client.open_connection(self.version).await?;
        Ok(slot.insert(opened).clone())
    }

    /// Closes the connection, with all requests on it, as if it broke.
    pub(super) async fn cut(&self) {
        if let Some(connection) = self.connection.lock().await.take() {
            connection.abort();
        }
    }

    pub(super) async fn forget(&self) {
        *self.connection.lock().await = None;
    }

    /// Drops the connection if `error` is a transport error, so that the next request opens a new
    /// one.
    pub(super) async fn forget_broken(&self, error: &Error) {
        if matches!(
            error,
            Error::Transport(_) | Error::InDoubt(_) | Error::Unreachable(_)
        ) {
            self.forget().await;
        }
    }
}
