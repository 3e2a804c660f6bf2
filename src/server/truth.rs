//! Reads of a collection that is itself the truth, by the same handlers as a cache's.
//!
//! There is nobody to forward to: what a cache would leave to the API server is answered here, in
//! the API server's words.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use tokio::time::Instant;

use crate::api::ContinueToken;
use crate::api::ListOptions;
use crate::api::ListRequest;
use crate::api::Query;
use crate::api::ResourceVersion;
use crate::api::Status;
use crate::api::request_timeout;
use crate::body::Body;
use crate::codec::Representation;
use crate::informer::Subject;
use crate::shutdown::Shutdown;

use super::collection::Collection;
use super::handlers;
use super::handlers::Answer;
use super::handlers::Miss;
use super::handlers::ReadRequest;
use super::request_info::RequestInfo;
use super::router::Authority;
use super::router::Reason;
use super::router::Verb;

/// How long a read waits for a resource version that lies in the future, as the API server does.
const FUTURE_WAIT: Duration = Duration::from_secs(3);

/// Answers the `get`, `list` or `watch` that `info` and `query` describe, in `representation`: of
/// the collection's format, but metadata alone may be protobuf where the collection is JSON.
///
/// # Errors
///
/// The Status to answer with.
pub async fn read_truth(
    collection: &Arc<dyn Collection>,
    representation: Representation,
    info: &RequestInfo,
    query: &str,
    shutdown: &Shutdown,
) -> Result<Response<Body>, Status> {
    let subject = Subject {
        resource: Arc::clone(collection.resource()),
        format: collection.format(),
        fields: Arc::clone(collection.fields()),
        custom: false,
        list_kind: None,
    };
    let request = ReadRequest {
        subject: &subject,
        representation,
        info,
        query,
        authority: Authority::Truth,
        renderings: None,
        is_framed: false,
        one_by_one: true,
    };
    let verb = match info.verb.as_str() {
        "get" => Verb::Get,
        "list" => Verb::List,
        "watch" => Verb::Watch,
        other => return Err(Status::verb_not_supported(&subject.resource.gvr, other)),
    };
    if verb != Verb::Watch {
        request_timeout(&Query::parse(query))?;
    }
    let mut answer = read(verb, &request, collection, shutdown).await;
    if matches!(answer, Err(Miss::Forward(Reason::AheadOfCache))) {
        let asked = asked_version(query);
        let deadline = Instant::now() + FUTURE_WAIT;
        if collection.reader().wait_for(asked, deadline).await {
            answer = read(verb, &request, collection, shutdown).await;
        }
    }
    answer.map_err(|miss| match miss {
        Miss::Reject(status) => *status,
        Miss::ForwardUnproven(_) => Status::too_many_consistent_reads(),
        Miss::Forward(reason) => refusal(reason, &request, collection),
    })
}

async fn read(
    verb: Verb,
    request: &ReadRequest<'_>,
    collection: &Arc<dyn Collection>,
    shutdown: &Shutdown,
) -> Answer {
    match verb {
        Verb::Get => {
            let needed = handlers::get::needed(request)?;
            handlers::get::get(request, collection.as_ref(), needed, None)
        }
        Verb::List => {
            let checked = handlers::list::check(request)?;
            let reader = collection.reader();
            if let Some(snapshot) = reader.snapshot() {
                // Whoever saw this version may ask for exactly it later.
                reader.pin(&snapshot);
            }
            handlers::list::list(request, &checked, collection.as_ref(), None).await
        }
        Verb::Watch => {
            let checked = handlers::watch::check(request)?;
            handlers::watch::watch(request, &checked, collection, None, shutdown)
        }
    }
}

/// What the API server would say where a cache would ask it.
fn refusal(reason: Reason, request: &ReadRequest<'_>, collection: &Arc<dyn Collection>) -> Status {
    let asked = asked_version(request.query);
    let current = collection.reader().stats().applied.unwrap_or_default();
    match reason {
        Reason::AheadOfCache => Status::too_large_resource_version(asked, current),
        Reason::PastState if asked > current => Status::too_large_resource_version(asked, current),
        Reason::PastState => match continue_token(request.query) {
            Some(token) => Status::expired_continue(&token),
            None => Status::expired_list(),
        },
        Reason::NotCached => Status::storage_reinitializing(1),
        _ => Status::path_not_found(),
    }
}

fn asked_version(query: &str) -> ResourceVersion {
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
