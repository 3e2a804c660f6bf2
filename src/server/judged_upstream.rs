//! What follows when the API server does not accept the credentials of a forwarded request.

use http::Request;
use http::StatusCode;
use http::Version;

use crate::api::Status;
use crate::body::Body;
use crate::identity::AccessControl;
use crate::identity::Caller;
use crate::identity::has_credentials;
use crate::net::ClientConnection;
use crate::net::Peer;

use super::forward::is_proxied;
use super::request::RequestInfo;

/// A request whose sender only the API server can authenticate.
pub(super) struct JudgedUpstream {
    has_credentials: bool,
    /// The connection, if it is one of HTTP/2.
    http2: Option<ClientConnection>,
}

/// kubefan itself refuses `request` with `status`. After a 401, its HTTP/2 connection is closed as
/// after one of the API server.
pub(super) fn refused(request: &Request<Body>, status: &Status) {
    let connection = request.extensions().get::<ClientConnection>();
    if status.code == StatusCode::UNAUTHORIZED.as_u16()
        && request.version() == Version::HTTP_2
        && let Some(connection) = connection
    {
        connection.finish();
    }
}

impl JudgedUpstream {
    /// `None` if kubefan knows the caller, or a pod or service behind the API server may answer.
    pub(super) fn of(request: &Request<Body>, info: &RequestInfo, caller: &Caller) -> Option<Self> {
        if !matches!(caller, Caller::Unknown) || is_proxied(info) {
            return None;
        }
        let is_http2 = request.version() == Version::HTTP_2;
        let connection = request.extensions().get::<ClientConnection>();
        Some(Self {
            has_credentials: has_credentials(request.headers()),
            http2: connection.filter(|_| is_http2).cloned(),
        })
    }

    /// If the API server did not accept the request's credentials, closes an HTTP/2 connection after
    /// its other answers, as the API server does: otherwise one connection would be enough to send
    /// any number of wrong credentials.
    pub(super) fn answered(self, status: StatusCode, access: &AccessControl, peer: &Peer) {
        if status != StatusCode::UNAUTHORIZED {
            return;
        }
        if self.has_credentials {
            access.refused(peer);
        }
        if let Some(connection) = self.http2 {
            connection.finish();
        }
    }
}
