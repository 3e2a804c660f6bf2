//! Everything that the API server answers itself.

use std::pin::Pin;
use std::task::Context;
use std::task::Poll;

use http::HeaderMap;
use http::Request;
use http::Response;

use crate::body;
use crate::body::Body;
use crate::body::BodyGuard;
use crate::body::GuardedBody;
use crate::server::rescue;
use crate::server::rescue::Refusal;
use crate::shutdown::Shutdown;
use crate::shutdown::WatchEnd;
use crate::upstream::Forwarder;
use crate::upstream::Identity;

/// A WebSocket client that can't set headers gives its token as a subprotocol.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Sends `request` on, as the caller if it brings an identity of its own, else as kubefan.
pub(crate) async fn forward(
    request: Request<Body>,
    is_watch: bool,
    forwarder: &Forwarder,
    shutdown: &Shutdown,
) -> Response<Body> {
    let identity = match has_identity(request.headers()) {
        true => Identity::Caller,
        false => Identity::Kubefan,
    };
    let refusal = Refusal::of(&request);
    let forwarded = match forwarder.forward(request, identity).await {
        Ok(forwarded) => forwarded,
        Err(error) => {
            return refusal.respond(&rescue::forwarding_failed(&error));
        }
    };
    if let Some(upgrade) = forwarded.upgrade {
        let drain = is_watch.then(|| shutdown.watch_end());
        shutdown.spawn(async move {
            let drained = async {
                match drain {
                    Some(drain) => drain.await,
                    // exec and the like have the whole grace.
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                joined = upgrade.join() => {
                    if let Err(error) = joined {
                        tracing::debug!(%error, "upgraded connection broke");
                    }
                }
                () = drained => {}
            }
        });
    }
    match is_watch {
        false => forwarded.response,
        true => forwarded
            .response
            .map(|body| body::boxed(GuardedBody::new(body, shutdown.watch_end()))),
    }
}

/// True when the request brings credentials or claims, which only the API server can judge.
pub(crate) fn has_identity(headers: &HeaderMap) -> bool {
    let is_claim = |name: &http::HeaderName| {
        let name = name.as_str();
        name == "authorization" || name.starts_with("impersonate-") || name.starts_with("x-remote-")
    };
    let protocols = headers.get_all(http::header::SEC_WEBSOCKET_PROTOCOL);
    headers.keys().any(is_claim)
        || protocols.iter().any(|protocols| {
            let protocols = protocols.as_bytes().split(|byte| *byte == b',');
            let mut protocols = protocols.map(<[u8]>::trim_ascii);
            protocols.any(|protocol| protocol.starts_with(TOKEN_PROTOCOL.as_bytes()))
        })
}

/// A drain ends a forwarded watch cleanly, as it does those from the cache.
impl BodyGuard for WatchEnd {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(self).poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_with_an_identity_are_recognised() {
        let rows = [
            ("authorization", "Bearer x", true),
            ("impersonate-user", "jane", true),
            ("impersonate-extra-scopes", "x", true),
            ("x-remote-user", "jane", true),
            ("x-remote-extra-a", "x", true),
            (
                "sec-websocket-protocol",
                "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.eA",
                true,
            ),
            ("sec-websocket-protocol", "v5.channel.k8s.io", false),
            ("accept", "application/json", false),
        ];
        for (name, value, expected) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().expect("a header value"));
            assert_eq!(has_identity(&headers), expected, "{name}: {value}");
        }
    }
}
