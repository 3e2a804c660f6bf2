//! The connections of watchers and listing clients.

use kubefan_core::upstream::{Client, DedicatedConnection, Error, HttpVersion};

use crate::load::http2;
use crate::load::http2::Windows;

/// A connection that one or more clients share. It is opened on first use, and opened again after
/// it broke.
pub(crate) struct Slot {
    kind: ConnectionKind,
    connection: tokio::sync::Mutex<Option<DedicatedConnection>>,
}

#[derive(Clone, Copy)]
enum ConnectionKind {
    Plain(HttpVersion),
    /// HTTP/2, and sinks may take the bodies of answers.
    WithSinks(Windows),
}

impl Slot {
    /// Creates a slot for a connection of `version`; opens nothing yet.
    pub(crate) fn new(version: HttpVersion) -> Self {
        Self::of_kind(ConnectionKind::Plain(version))
    }

    /// Creates a slot for an HTTP/2 connection of [`http2::open`]; opens nothing yet.
    pub(super) fn with_sinks(windows: Windows) -> Self {
        Self::of_kind(ConnectionKind::WithSinks(windows))
    }

    fn of_kind(kind: ConnectionKind) -> Self {
        Self {
            kind,
            connection: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) async fn connection(&self, client: &Client) -> Result<DedicatedConnection, Error> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let opened = match self.kind {
            ConnectionKind::Plain(version) => client.open_connection(version).await?,
            ConnectionKind::WithSinks(windows) => http2::open(client, windows).await?,
        };
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
