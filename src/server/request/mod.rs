//! What is asked: the facts of a request that decide how it is answered.

mod caller;
mod handshake;
mod info;
mod path;

use http::HeaderMap;
use http::HeaderName;
use http::Method;
use http::Request;
use http::header;

use crate::body::Body;
use crate::upstream;

pub(crate) use caller::has_identity;
pub(crate) use handshake::Handshake;
pub use info::RequestInfo;
pub(crate) use path::PathForm;

/// What a request looks like from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its attributes.
    pub info: &'a RequestInfo,
    /// What stands behind `?`.
    pub query: &'a str,
    /// How its path is spelt.
    pub path: PathForm,
    /// Its first `Accept` line: Go looks at no other.
    pub accept: Option<&'a str>,
    /// Its `User-Agent`.
    pub user_agent: &'a str,
    /// True with `Connection: Upgrade`.
    pub is_upgrade: bool,
    /// True when that upgrade is to a WebSocket, and can be granted here.
    pub is_websocket: bool,
    /// True when it brings credentials or claims.
    pub has_identity: bool,
}

impl<'a> Facts<'a> {
    /// Of `request`, whose attributes are `info`.
    pub(super) fn of(
        request: &'a Request<Body>,
        info: &'a RequestInfo,
        handshake: Option<&Handshake>,
    ) -> Self {
        let headers = request.headers();
        Self {
            method: request.method(),
            info,
            query: request.uri().query().unwrap_or_default(),
            path: PathForm::of(request.uri().path()),
            accept: first(headers, header::ACCEPT),
            user_agent: first(headers, header::USER_AGENT).unwrap_or_default(),
            is_upgrade: upstream::is_upgrade(headers),
            is_websocket: handshake.is_some(),
            has_identity: has_identity(headers),
        }
    }
}

fn first(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}
