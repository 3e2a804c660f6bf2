//! ClientHandle: from whom a request came, and on which connection.

use std::sync::Arc;

use crate::bill::CpuAccount;
use crate::ledger::{Account, Charge, MemoryKind, Short};
use crate::net::{Abort, ClientConnection, Peer};

/// The client's side of one request. Every request that `net` passes to its service has this value
/// as an extension.
#[derive(Clone)]
pub struct ClientHandle {
    /// The client's end of the connection.
    pub peer: Peer,
    /// The connection that the request arrived on.
    pub connection: ClientConnection,
    /// The account of the connection; `None` if the listener has no ledger.
    pub account: Option<Arc<Account>>,
    /// Ends the answer to the request; `None` if there is no account.
    pub abort: Option<Abort>,
    /// The CPU time of the connection; `None` if it is not measured.
    pub cpu: Option<Arc<CpuAccount>>,
}

impl ClientHandle {
    /// Charges `bytes` to the account of the connection. Returns `None` if there is no account.
    ///
    /// # Errors
    /// If the account has no room for the bytes.
    pub fn charge(&self, kind: MemoryKind, bytes: u64) -> Result<Option<Charge>, Short> {
        let account = self.account.as_ref();
        account
            .map(|account| account.charge(kind, bytes))
            .transpose()
    }

    /// Creates the handle of a client on this machine, on a connection of its own.
    #[cfg(any(test, feature = "test-support"))]
    pub fn for_tests(account: Option<Arc<Account>>) -> Self {
        Self {
            peer: Peer {
                address: std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 1)),
                tls: false,
                certificates: None,
            },
            connection: ClientConnection::next(),
            account,
            abort: None,
            cpu: None,
        }
    }
}
