//! Reads that kubefan's serving code answers from a collection that has no upstream.
//!
//! The simulator cannot forward requests. Requests that kubefan would forward to the API server are
//! answered here.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use kubefan_core::api::{
    ContinueToken, GetOptions, ListOptions, ListRequest, Malformed, Query, ResourceVersion,
    SelectableFields, Status, request_timeout,
};
use kubefan_core::codec::Representation;
use kubefan_core::shutdown::Shutdown;
use kubefan_proxy::limit::Limit;
use kubefan_proxy::server::{Body, Collection, Miss, Reason, RequestInfo, read_authoritative};
use tokio::time::Instant;

use crate::sim::kinds::Kind;

/// How long a read waits for a resource version in the future; the API server waits equally long.
const FUTURE_WAIT: Duration = Duration::from_secs(3);

/// Answers the `get`, `list` or `watch` of objects of `kind` that `info` and `query` describe.
/// `representation` must have the collection's format, except that metadata of a JSON collection
/// may be protobuf.
///
/// # Errors
///
/// The Status to answer the request with.
pub(super) async fn read(
    (collection, kind): (&Arc<dyn Collection>, &Kind),
    representation: Representation,
    info: &RequestInfo,
    query: &str,
    shutdown: &Shutdown,
) -> Result<Response<Body>, Status> {
    let reader = collection.reader();
    match info.verb.as_str() {
        "get" | "watch" => {}
        // Pin the snapshot, because the client may later ask for exactly its version.
        "list" => reader
            .snapshot()
            .iter()
            .for_each(|newest| reader.pin(newest)),
        other => {
            let gvr = &kind.resource.gvr;
            return Err(Status::verb_not_supported(gvr, other));
        }
    }
    let resource = (&kind.resource, &kind.fields);
    let answered =
        || read_authoritative(collection, resource, representation, info, query, shutdown);
    let mut answer = answered().await;
    if matches!(answer, Err(Miss::Forward(Reason::AheadOfCache))) {
        let deadline = Instant::now() + FUTURE_WAIT;
        if reader.wait_for(requested_version(query), deadline).await {
            answer = answered().await;
        }
    }
    answer.map_err(|miss| match miss {
        Miss::Absent(status) => *status,
        Miss::Reject(refused) => refused.status(),
        Miss::ForwardLimited(..) => Limit::UnprovenReads.status(),
        Miss::Forward(reason) => status_for(reason, (collection, kind), info, query),
    })
}

/// Returns the Status for a request that kubefan would forward to the
/// API server because of `reason`.
fn status_for(
    reason: Reason,
    (collection, kind): (&Arc<dyn Collection>, &Kind),
    info: &RequestInfo,
    query: &str,
) -> Status {
    let requested = requested_version(query);
    let current = collection.reader().applied().unwrap_or_default();
    match reason {
        Reason::AheadOfCache => Status::too_large_resource_version(requested, current),
        Reason::PastState if requested > current => {
            Status::too_large_resource_version(requested, current)
        }
        Reason::PastState => match continue_token(query) {
            Some(token) => Status::expired_continue(&token),
            None => Status::expired_list(),
        },
        Reason::NotCached => Status::storage_reinitializing(1),
        Reason::Malformed | Reason::UnknownField => {
            check_parameters(info.verb.as_str(), query, &kind.fields)
                .map_or_else(Status::from, |()| {
                    Status::bad_request("malformed parameters")
                })
        }
        _ => Status::path_not_found(),
    }
}

/// Validates the query parameters of a read.
fn check_parameters(verb: &str, query: &str, fields: &SelectableFields) -> Result<(), Malformed> {
    if verb != "watch" {
        request_timeout(&Query::parse(query))?;
    }
    if verb == "get" {
        return GetOptions::parse(query).map(drop);
    }
    let options = ListOptions::parse(query)?;
    options.selection(None, fields)?;
    if verb == "watch" {
        options.validate_watch().map(drop)
    } else {
        options.validate_list().map(drop)
    }
}

fn requested_version(query: &str) -> ResourceVersion {
    let query = Query::parse(query);
    let text = query.first("resourceVersion").unwrap_or_default();
    text.parse().unwrap_or_default()
}

fn continue_token(query: &str) -> Option<ContinueToken> {
    let options = ListOptions::parse(query).ok()?;
    match options.validate_list().ok()? {
        ListRequest::Continue { token, .. } => Some(token),
        _ => None,
    }
}
