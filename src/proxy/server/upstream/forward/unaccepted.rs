//! Requests of callers that the API server has not accepted yet.

use http::{HeaderMap, Response};
use kubefan_core::body::{Body, BodyGuard, guarded};

use crate::identity::{AccessControl, UnacceptedPermit};
use crate::ledger::{Charge, MemoryKind};
use crate::limit::Limit;
use crate::net::{ClientConnection, ClientHandle, FileSlot, NoFileSlot};
use crate::server::answers::rescue::Refused;
use crate::server::request::RequestInfo;

/// Bytes that an HTTP/1.1 connection to the API server holds: the buffers of TLS and HTTP, and the
/// task.
const CONNECTION_BYTES: u64 = 48 << 10;

/// What a request holds if the API server has not accepted its caller yet. Such a request has a
/// separate connection to the API server.
pub(super) struct Unaccepted {
    permit: Option<UnacceptedPermit>,
    connection: ClientConnection,
    file: Option<FileSlot>,
    _charge: Option<Charge>,
}

impl BodyGuard for Unaccepted {}

impl Unaccepted {
    /// Waits for the permission to forward a request of `client` with `headers`. The buffers of its
    /// connection are charged.
    ///
    /// # Errors
    /// A 429 if too many such requests wait, or memory is short.
    pub(super) async fn admit(
        access: &AccessControl,
        headers: &HeaderMap,
        client: &ClientHandle,
    ) -> Result<Self, Refused> {
        let permit = access.admit_unaccepted(headers, &client.peer).await?;
        let charge = client.charge(MemoryKind::Upstream, CONNECTION_BYTES);
        Ok(Self {
            permit: Some(permit),
            connection: client.connection.clone(),
            file: None,
            _charge: charge.map_err(|_| Limit::UnacceptedCallers)?,
        })
    }

    /// Lets a request last after the API server has accepted its caller. Its permit is free for
    /// other requests, and its connection to the API server counts like a client's connection.
    fn stay_open(&mut self) -> Result<(), NoFileSlot> {
        self.file = self.connection.take_file()?;
        self.permit = None;
        Ok(())
    }
}

/// Makes the body of `response` own `unaccepted`, which its request holds if its caller was not
/// accepted before.
///
/// # Errors
/// If the request lasts, and no file is free for its connection.
pub(super) fn held_until_end(
    response: Response<Body>,
    mut unaccepted: Option<Unaccepted>,
    info: &RequestInfo,
) -> Result<Response<Body>, NoFileSlot> {
    let may_last = response.status().is_success() && info.is_long_running();
    if may_last && let Some(unaccepted) = &mut unaccepted {
        unaccepted.stay_open()?;
    }
    Ok(guarded(response, unaccepted))
}
