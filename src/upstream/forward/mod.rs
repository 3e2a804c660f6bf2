//! Sends on what kubefan may not answer itself: streaming both ways, at the pace of the slower
//! side, with nothing changed that does not concern the connection.

mod headers;
#[cfg(test)]
mod tests;
mod upgrade;

use bytes::Bytes;
use http::Request;
use http::Response;
use http::StatusCode;
use http::header::HOST;
use hyper::upgrade::OnUpgrade;

use crate::body;
use crate::body::Body;
use crate::body::BoxError;
use crate::upstream::Client;
use crate::upstream::Error;
use crate::upstream::Identity;

use headers::insert_upgrade;
use headers::remove_hop_by_hop;
use headers::upgrade_protocol;

pub use headers::is_upgrade;
pub use upgrade::PendingUpgrade;
pub use upgrade::UpgradedBytes;

/// Forwards requests to the API server; cheap to clone.
#[derive(Clone, Debug)]
pub struct Forwarder {
    client: Client,
}

/// A forwarded request's answer.
#[derive(Debug)]
pub struct ForwardedResponse {
    /// The answer, whatever its status.
    pub response: Response<Body>,
    /// After a 101: the two connections to be joined, once `response` has been sent.
    pub upgrade: Option<PendingUpgrade>,
}

impl Forwarder {
    /// A forwarder over the connections of `client`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Sends `request` on as `identity`, and returns once the answer's headers are there.
    ///
    /// Headers that concern one connection only are dropped and `Host` becomes the API server's;
    /// everything else goes through as it is, path, query and trailers included. A request that
    /// asks to be upgraded must be the one that the server received, with its extensions.
    /// Dropping the future or the response's body cancels the request upstream.
    ///
    /// # Errors
    ///
    /// When the API server can't be reached, or ends the connection unanswered.
    pub async fn forward<B>(
        &self,
        mut request: Request<B>,
        identity: Identity,
    ) -> Result<ForwardedResponse, Error>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let protocol = upgrade_protocol(request.headers());
        let downstream = match protocol {
            Some(_) => request.extensions_mut().remove::<OnUpgrade>(),
            None => None,
        };
        remove_hop_by_hop(request.headers_mut());
        request.headers_mut().remove(HOST);
        let mut request = request.map(body::boxed);
        match (protocol, downstream) {
            (Some(protocol), Some(downstream)) => {
                insert_upgrade(request.headers_mut(), protocol);
                let response = self.client.request_http1(identity, request).await?;
                Ok(upgraded(response, downstream))
            }
            // No upgrade is possible on this connection, so none is asked for.
            _ => {
                let response = self.client.request(identity, request).await?;
                Ok(ForwardedResponse {
                    response: relayed(response),
                    upgrade: None,
                })
            }
        }
    }
}

fn upgraded(mut response: Response<Body>, downstream: OnUpgrade) -> ForwardedResponse {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return ForwardedResponse {
            response: relayed(response),
            upgrade: None,
        };
    }
    let protocol = upgrade_protocol(response.headers());
    let upstream = hyper::upgrade::on(&mut response);
    let mut response = relayed(response);
    if let Some(protocol) = protocol {
        insert_upgrade(response.headers_mut(), protocol);
    }
    ForwardedResponse {
        response,
        upgrade: Some(PendingUpgrade::new(downstream, upstream)),
    }
}

/// What of the answer concerns the client; connection details such as the HTTP version don't.
fn relayed(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    remove_hop_by_hop(&mut parts.headers);
    let mut relayed = Response::new(body);
    *relayed.status_mut() = parts.status;
    *relayed.headers_mut() = parts.headers;
    relayed
}
