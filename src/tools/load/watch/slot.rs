//! The connections of watchers and listing clients.

use kubefan_core::upstream::{DedicatedConnection, Error, HttpVersion};

use crate::load::run_state::RunState;

/// A connection that one or more clients share. It is opened on first use, and opened again after
/// it broke.
pub(crate) struct Slot {
    version: HttpVersion,
    connection: tokio::sync::Mutex<Option<DedicatedConnection>>,
}

impl Slot {
    /// Creates a slot for a connection of `version`; opens nothing yet.
    pub(super) fn new(version: HttpVersion) -> Self {
        Self {
            version,
            connection: tokio::sync::Mutex::default(),
        }
    }

    pub(super) async fn connection(
        &self,
        run_state: &RunState,
    ) -> Result<DedicatedConnection, Error> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let opened = run_state.client.open_connection(self.version).await?;
        Ok(slot.insert(opened).clone())
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
