//! The connections of watchers and listing clients.

use kubefan_core::upstream::{Client, DedicatedConnection, Error, HttpVersion};
use tokio::sync::Mutex;

use crate::load::http2;
use crate::load::http2::Windows;

/// A connection that one or more clients share. It is opened on first use, and opened again when it
/// takes no more requests.
pub(crate) struct Slot {
    kind: ConnectionKind,
    state: Mutex<SlotState>,
}

#[derive(Clone, Copy)]
enum ConnectionKind {
    Plain(HttpVersion),
    /// HTTP/2, and sinks may take the bodies of answers.
    WithSinks(Windows),
}

#[derive(Default)]
struct SlotState {
    current: Option<DedicatedConnection>,
    /// Connections that take no more requests. Requests over them may still be open.
    former: Vec<DedicatedConnection>,
    is_cut: bool,
}

/// A connection of a slot, for one request.
pub(super) struct SlotConnection {
    pub(super) connection: DedicatedConnection,
    /// True if the connection was opened after [`Slot::cut`].
    pub(super) is_after_cut: bool,
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
            state: Mutex::default(),
        }
    }

    pub(crate) async fn connection(&self, client: &Client) -> Result<DedicatedConnection, Error> {
        Ok(self.acquire(client).await?.connection)
    }

    pub(super) async fn acquire(&self, client: &Client) -> Result<SlotConnection, Error> {
        let mut state = self.state.lock().await;
        if let Some(closed) = state.current.take_if(|connection| connection.is_closed()) {
            state.former.retain(|former| !former.has_ended());
            state.former.push(closed);
        }
        let connection = match &state.current {
            Some(connection) => connection.clone(),
            None => {
                let opened = self.open(client).await?;
                state.current.insert(opened).clone()
            }
        };
        Ok(SlotConnection {
            connection,
            is_after_cut: state.is_cut,
        })
    }

    async fn open(&self, client: &Client) -> Result<DedicatedConnection, Error> {
        match self.kind {
            ConnectionKind::Plain(version) => client.open_connection(version).await,
            ConnectionKind::WithSinks(windows) => http2::open(client, windows).await,
        }
    }

    /// Closes all connections of the slot, with all requests on them, as if they broke.
    pub(super) async fn cut(&self) {
        let mut state = self.state.lock().await;
        state.is_cut = true;
        let current = state.current.take();
        for connection in state.former.drain(..).chain(current) {
            connection.abort();
        }
    }

    /// Drops the connection, so that the next request opens a new one.
    pub(super) async fn forget(&self) {
        self.state.lock().await.current = None;
    }
}
