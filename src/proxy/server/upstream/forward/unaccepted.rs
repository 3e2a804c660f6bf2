//! Requests of callers that the API server has not accepted yet.

use std::sync::Arc;

use http::{Extensions, HeaderMap, Response};
use kubefan_core::api::Status;
use kubefan_core::body::{Body, BodyGuard, guarded};

use crate::identity::{AccessControl, UnacceptedPermit};
use crate::ledger::{Account, Charge, Kind, Short};
use crate::net::{ClientConnection, FileSlot, NoFileSlot, Peer};
use crate::server::answers::rescue;
use crate::server::limits::in_flight::is_long_running;
use crate::server::request::RequestInfo;

/// Bytes that an HTTP/1.1 connection to the API server holds: the buffers of TLS and HTTP, and the
/// task.
const CONNECTION_BYTES: u64 = 48 << 10;

/// What a request holds if the API server has not accepted its caller yet. Such a request has a
/// separate connection to the API server.
pub(super) struct Unaccepted {
    permit: Option<UnacceptedPermit>,
    connection: Option<ClientConnection>,
    file: Option<FileSlot>,
    _charge: Option<Charge>,
}

impl BodyGuard for Unaccepted {}

impl Unaccepted {
    /// Waits for the permission to forward a request of `peer` with `headers`. The buffers of its
    /// connection are charged.
    pub(super) async fn admit(
        access: &AccessControl,
        headers: &HeaderMap,
        extensions: &Extensions,
        peer: &Peer,
    ) -> Result<Self, Status> {
        let permit = access.admit_unaccepted(headers, peer).await?;
        let account = extensions.get::<Arc<Account>>();
        let charge = account.map(|account| account.charge(Kind::Upstream, CONNECTION_BYTES));
        let charge = charge.transpose();
        Ok(Self {
            permit: Some(permit),
            connection: extensions.get().cloned(),
            file: None,
            _charge: charge.map_err(|_: Short| Status::too_many_unaccepted())?,
        })
    }

    /// Lets a request last after the API server has accepted its caller. Its permit is free for
    /// other requests, and its connection to the API server counts like a client's connection.
    fn stay_open(&mut self) -> Result<(), NoFileSlot> {
        let connection = self.connection.as_ref();
        let file = connection.map(ClientConnection::take_file).transpose()?;
        self.file = file.flatten();
        self.permit = None;
        Ok(())
    }
}

/// Makes the body of `response` own `unaccepted`, which its request holds if its caller was not
/// accepted before.
pub(super) fn held_until_end(
    response: Response<Body>,
    mut unaccepted: Option<Unaccepted>,
    info: &RequestInfo,
) -> Response<Body> {
    let may_last = response.status().is_success() && is_long_running(info);
    let unaccepted_that_lasts = unaccepted.as_mut().filter(|_| may_last);
    match unaccepted_that_lasts.map(Unaccepted::stay_open).transpose() {
        Ok(_) => guarded(response, unaccepted),
        Err(NoFileSlot) => rescue::too_many_requests(),
    }
}
