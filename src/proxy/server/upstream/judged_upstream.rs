//! Decides what happens to a connection after a request on it without good credentials.

use http::{HeaderMap, StatusCode, Version};
use kubefan_core::api::Status;

use crate::identity::{AccessControl, Caller, has_credentials, is_anonymous};
use crate::limit::Limit;
use crate::net::{ClientConnection, Peer};
use crate::server::request::Exchange;

/// Upper limit of the requests on one HTTP/2 connection from callers that the API server has not
/// accepted. The API server allows this number of streams on one connection.
const MAX_UNACCEPTED: usize = 100;

/// A request of the anonymous user, or one with a sender that only the API server can authenticate.
pub(in crate::server) struct JudgedUpstream {
    /// True if the API server takes the sender for the anonymous user.
    is_anonymous: bool,
    /// True if a refusal of its credentials has to be counted.
    is_counted: bool,
    /// True if the answer may come from a pod or service behind the API server.
    is_proxied: bool,
    peer: Peer,
    /// The connection, if it is an HTTP/2 connection.
    http2: Option<ClientConnection>,
    counted: Option<Counted>,
}

/// A request that counts as one that the API server has not accepted, on its HTTP/2 connection.
/// When it is dropped, it does not count any more, unless it was refused, or nothing in it can be
/// accepted.
struct Counted {
    connection: ClientConnection,
    counts_for_ever: bool,
}

/// Reacts to a refusal of the request by kubefan itself, with `status`. After a 401, the HTTP/2
/// connection of the request is closed, as after a 401 of the API server.
pub(in crate::server) fn refused(exchange: &Exchange, status: &Status) {
    if status.code == StatusCode::UNAUTHORIZED.as_u16()
        && let Some(connection) = http2_connection(exchange)
    {
        connection.finish();
    }
}

fn http2_connection(exchange: &Exchange) -> Option<&ClientConnection> {
    let is_http2 = exchange.request.version() == Version::HTTP_2;
    is_http2.then_some(&exchange.client.connection)
}

impl JudgedUpstream {
    /// Returns `None` if kubefan has determined a user other than the anonymous one, or does not
    /// ask for credentials. `has_accepted` returns whether the API server has accepted the
    /// credentials in a request's headers before.
    ///
    /// # Errors
    /// [`Limit::UnacceptedCallers`] if the connection has too many requests that are not accepted.
    /// Further ones are not forwarded, because the API server itself would not answer more of them
    /// on one connection.
    pub(in crate::server) fn of(
        exchange: &Exchange,
        has_accepted: impl FnOnce(&HeaderMap) -> bool,
    ) -> Result<Option<Self>, Limit> {
        let headers = exchange.request.headers();
        let is_counted = match &exchange.caller {
            Caller::Trusted | Caller::Impersonating => return Ok(None),
            Caller::Known(caller) if !caller.user().is_anonymous() => return Ok(None),
            Caller::Known(_) | Caller::Refused => false,
            Caller::Unknown | Caller::Unnamed(_) => has_credentials(headers),
        };
        let is_anonymous = is_anonymous(headers);
        let http2 = http2_connection(exchange);
        let unaccepted = http2.filter(|_| is_anonymous || !has_accepted(headers));
        let counted = unaccepted.map(|connection| Counted::of(connection, is_anonymous));
        Ok(Some(Self {
            is_anonymous,
            is_counted,
            is_proxied: exchange.info.is_proxied(),
            peer: exchange.client.peer.clone(),
            counted: counted.transpose()?,
            http2: http2.cloned(),
        }))
    }

    /// Closes an HTTP/2 connection after its other answers if the request has no credentials, or if
    /// the API server did not accept them. The API server closes such connections too: otherwise
    /// one connection would be enough for any number of such requests.
    pub(in crate::server) fn answered(self, status: StatusCode, access: &AccessControl) {
        let is_refused = status == StatusCode::UNAUTHORIZED && !self.is_proxied;
        if is_refused && self.is_counted {
            access.refused(&self.peer);
        }
        if let Some(connection) = self.http2
            && (is_refused || self.is_anonymous)
        {
            connection.finish();
            if let Some(mut counted) = self.counted {
                counted.counts_for_ever = true;
            }
        }
    }
}

impl Counted {
    fn of(connection: &ClientConnection, counts_for_ever: bool) -> Result<Self, Limit> {
        if !connection.count_unaccepted(MAX_UNACCEPTED) {
            return Err(Limit::UnacceptedCallers);
        }
        Ok(Self {
            connection: connection.clone(),
            counts_for_ever,
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if !self.counts_for_ever {
            self.connection.uncount_unaccepted();
        }
    }
}
