//! Parses a request into the facts that decide how it is answered.

mod exchange;
mod handshake;
mod info;
mod path;
mod shard_selectors;
mod verb;

pub(in crate::server) use exchange::Exchange;
pub(crate) use handshake::Handshake;
use http::{HeaderMap, HeaderName, Method, header};
pub use info::RequestInfo;
use kubefan_core::api::Query;
use kubefan_core::upstream;
pub(crate) use path::PathForm;
pub use shard_selectors::ShardSelectors;
pub use verb::Verb;

/// The facts about a request on which the decision depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub method: &'a Method,
    /// Verb, resource and name, parsed from method and URL.
    pub info: &'a RequestInfo,
    /// The parameters of the query string.
    pub query: &'a Query,
    /// How the path is spelled.
    pub path: PathForm,
    /// The first `Accept` header, the only one that the API server reads; `None` if there is none.
    pub accept: Option<&'a str>,
    /// The `User-Agent` header; empty if there is none.
    pub user_agent: &'a str,
    /// True if the request asks for an upgrade to a protocol that the API server supports.
    pub is_upgrade: bool,
    /// True if the upgrade is to a WebSocket, and kubefan itself can grant it.
    pub is_websocket: bool,
    /// True if only the API server can judge the caller's identity.
    pub is_unknown_caller: bool,
    /// True if the `Connection` header lists a header that does not belong to the connection.
    pub connection_lists_others: bool,
    /// What kubefan does with a `shardSelector`.
    pub shard_selectors: ShardSelectors,
}

impl<'a> Facts<'a> {
    /// Collects the facts about the request of `exchange`, which has the parameters `query`.
    pub(super) fn of(
        exchange: &'a Exchange,
        query: &'a Query,
        handshake: Option<&Handshake>,
        shard_selectors: ShardSelectors,
    ) -> Self {
        let request = &exchange.request;
        let headers = request.headers();
        Self {
            method: request.method(),
            info: &exchange.info,
            query,
            path: PathForm::of(request.uri().path()),
            accept: first(headers, header::ACCEPT),
            user_agent: first(headers, header::USER_AGENT).unwrap_or_default(),
            is_upgrade: upstream::is_upgrade(headers),
            is_websocket: handshake.is_some(),
            is_unknown_caller: !exchange.caller.may_use_cache(),
            connection_lists_others: upstream::connection_lists_end_to_end_header(headers),
            shard_selectors,
        }
    }
}

fn first(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}
