//! What follows for a connection when a request on it has no good credentials.

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

/// A request of the anonymous user, or one whose sender only the API server can authenticate.
pub(super) struct JudgedUpstream {
    has_credentials: bool,
    /// True if a refusal of its credentials has to be counted.
    is_counted: bool,
    /// True if a pod or service behind the API server may answer.
    is_proxied: bool,
    /// The connection, if it is one of HTTP/2.
    http2: Option<ClientConnection>,
}

/// kubefan itself refuses `request` with `status`. After a 401, its HTTP/2 connection is closed as
/// after one of the API server.
pub(super) fn refused(request: &Request<Body>, status: &Status) {
    if status.code == StatusCode::UNAUTHORIZED.as_u16()
        && let Some(connection) = http2_connection(request)
    {
        connection.finish();
    }
}

fn http2_connection(request: &Request<Body>) -> Option<&ClientConnection> {
    let connection = request.extensions().get::<ClientConnection>();
    connection.filter(|_| request.version() == Version::HTTP_2)
}

impl JudgedUpstream {
    /// `None` if kubefan knows the caller's user, or does not ask for credentials.
    pub(super) fn of(request: &Request<Body>, info: &RequestInfo, caller: &Caller) -> Option<Self> {
        let (has_credentials, is_counted) = match caller {
            Caller::Trusted | Caller::Impersonating => return None,
            Caller::Known(caller) if !caller.user().is_anonymous() => return None,
            Caller::Known(_) => (false, false),
            Caller::Unknown | Caller::Unnamed(_) => {
                let has_credentials = has_credentials(request.headers());
                (has_credentials, has_credentials)
            }
            Caller::Refused => (true, false),
        };
        Some(Self {
            has_credentials,
            is_counted,
            is_proxied: is_proxied(info),
            http2: http2_connection(request).cloned(),
        })
    }

    /// Closes an HTTP/2 connection after its other answers if the request has no credentials, or the
    /// API server did not accept them. The API server does the same: otherwise one connection would
    /// be enough for any number of such requests.
    pub(super) fn answered(self, status: StatusCode, access: &AccessControl, peer: &Peer) {
        let is_refused = status == StatusCode::UNAUTHORIZED && !self.is_proxied;
        if is_refused && self.is_counted {
            access.refused(peer);
        }
        if let Some(connection) = self.http2
            && (is_refused || !self.has_credentials)
        {
            connection.finish();
        }
    }
}
