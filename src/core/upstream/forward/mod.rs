//! Forwards the requests that kubefan does not answer from a cache. Bodies stream both ways, at the
//! speed of the slower side. Only hop-by-hop headers are changed.

mod headers;
#[cfg(test)]
mod tests;
mod upgrade;

use bytes::Bytes;
pub use headers::{connection_lists_end_to_end_header, is_upgrade};
use headers::{insert_upgrade, remove_hop_by_hop, upgrade_protocol};
use http::header::HOST;
use http::{Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
pub use upgrade::{PendingUpgrade, UpgradedBytes};

use crate::body;
use crate::body::{Body, BoxError};
use crate::upstream::{Client, Error, Identity, client};

/// Forwards requests to the API server; cheap to clone.
#[derive(Clone, Debug)]
pub struct Forwarder {
    client: Client,
}

/// The API server's answer to a forwarded request.
#[derive(Debug)]
pub struct ForwardedResponse {
    /// The answer with its status, headers and body, even if it is a failure.
    pub response: Response<Body>,
    /// If the status is 101, the two connections to join after `response` has been sent.
    pub upgrade: Option<PendingUpgrade>,
}

impl Forwarder {
    /// Creates a forwarder that uses the connections of `client`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns the client that forwards requests.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Forwards `request` as `identity`, and returns when the answer's headers have arrived.
    ///
    /// Hop-by-hop headers are dropped, and `Host` becomes the API server's host. Everything else is
    /// forwarded unchanged, including path, query and trailers. A request without the HTTP server's
    /// upgrade extension is forwarded without the upgrade. Dropping the future or the response's
    /// body cancels the request.
    ///
    /// # Errors
    /// If the API server can't be reached, or closes the connection without an answer.
    /// [`Error::CredentialsRefused`] if the API server answers 401 to kubefan's identity.
    /// [`Error::Request`] if `Connection` lists a header that is meant for the API server.
    pub async fn forward<B>(
        &self,
        mut request: Request<B>,
        identity: Identity,
    ) -> Result<ForwardedResponse, Error>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if connection_lists_end_to_end_header(request.headers()) {
            return Err(Error::Request(
                "Connection lists an end-to-end header".into(),
            ));
        }
        let protocol = upgrade_protocol(request.headers());
        let downstream = match protocol {
            Some(_) => request.extensions_mut().remove::<OnUpgrade>(),
            None => None,
        };
        let is_refusable =
            identity == Identity::Kubefan && !client::is_answered_by_backend(request.uri().path());
        let accepted = |response: Response<Body>| {
            if is_refusable && response.status() == StatusCode::UNAUTHORIZED {
                // Relayed, the answer would make a client throw away its own credentials.
                Err(Error::CredentialsRefused)
            } else {
                Ok(response)
            }
        };
        remove_hop_by_hop(request.headers_mut());
        request.headers_mut().remove(HOST);
        let mut request = request.map(body::boxed);
        match (protocol, downstream) {
            (Some(protocol), Some(downstream)) => {
                insert_upgrade(request.headers_mut(), protocol);
                let response = self.client.request_http1(identity, request).await?;
                Ok(upgraded(accepted(response)?, downstream))
            }
            // The client requests no upgrade, or its connection can't be upgraded.
            _ => {
                let response = self.client.request(identity, request).await?;
                Ok(ForwardedResponse {
                    response: relayed(accepted(response)?),
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
        upgrade: Some(PendingUpgrade {
            downstream,
            upstream,
        }),
    }
}

/// Returns the answer for the client: the status, end-to-end headers and body of the
/// API server's answer.
fn relayed(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    remove_hop_by_hop(&mut parts.headers);
    let mut relayed = Response::new(body);
    *relayed.status_mut() = parts.status;
    *relayed.headers_mut() = parts.headers;
    relayed
}
