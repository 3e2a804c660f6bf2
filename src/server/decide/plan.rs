//! How a cache answers a read: which state it needs, and what is made of it.

use std::sync::Arc;
use std::time::Duration;

use crate::api::Consistency;
use crate::api::GetOptions;
use crate::api::ListOptions;
use crate::api::ListRequest;
use crate::api::Query;
use crate::api::ResourceVersion;
use crate::api::WatchStart;
use crate::api::request_timeout;
use crate::cache::WatchFrom;
use crate::codec::Representation;
use crate::informer::InformerSpec;
use crate::informer::ProofRequest;
use crate::server::request::RequestInfo;
use crate::upstream::Scope;

use super::reason::Reason;

/// A read that a cache may answer.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    /// Resource, and the format of the cache.
    pub spec: InformerSpec,
    /// The namespace asked for; `None` for all, and for cluster scope.
    pub namespace: Option<String>,
    /// How the answer shows objects.
    pub representation: Representation,
    /// What the cache must have to answer it.
    pub need: Need,
    /// What is read.
    pub plan: Plan,
    /// When it must be answered, if the client says so.
    pub timeout: Option<Duration>,
}

/// What a cache must have to answer a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Proof that it has the most recent state.
    MostRecent,
    /// The state at exactly this resource version, which only a cache that runs already can have.
    At(ResourceVersion),
    /// A state at least this new.
    NotOlderThan(ResourceVersion),
}

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// One object.
    Get {
        /// Its name.
        name: String,
    },
    /// A collection.
    List {
        /// Which objects.
        proof_request: ProofRequest,
        /// Which part of the list.
        page: Page,
    },
    /// A collection's changes.
    Watch {
        /// Of which objects.
        proof_request: ProofRequest,
        /// Where the stream begins.
        from: WatchFrom,
        /// How it is streamed.
        terms: WatchTerms,
    },
}

/// Which part of a list is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// Only keys greater than this.
    pub after: Option<String>,
    /// At most so many items.
    pub limit: Option<usize>,
}

/// How a watch is to be streamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchTerms {
    /// `allowWatchBookmarks`
    pub bookmarks: bool,
    /// Close the initial events with an annotated bookmark.
    pub initial_events_end: bool,
    /// `timeoutSeconds`; `None` leaves it to the server. Zero ends at once.
    pub timeout: Option<Duration>,
}

/// How a cache of `subject` answers the `get`, `list` or `watch` that `info` and `query` describe.
///
/// # Errors
///
/// Why it can't.
pub(crate) fn plan(
    spec: InformerSpec,
    representation: Representation,
    info: &RequestInfo,
    query: &str,
) -> Result<Read, Reason> {
    let namespace = namespace(&spec, info)?;
    let (need, plan) = match info.verb.as_str() {
        "get" => plan_get(&spec, namespace.as_deref(), info, query)?,
        "list" => plan_list(&spec, namespace.as_deref(), query)?,
        _ => plan_watch(&spec, namespace.as_deref(), query)?,
    };
    // A watch is long-running: it never looks at the parameter.
    let timeout = match plan {
        Plan::Watch { .. } => None,
        Plan::Get { .. } | Plan::List { .. } => {
            request_timeout(&Query::parse(query)).map_err(|_| Reason::Malformed)?
        }
    };
    Ok(Read {
        spec,
        namespace,
        representation,
        need,
        plan,
        timeout,
    })
}

/// The namespace asked for. A scope that is not that of the resource is the API server's to answer.
fn namespace(spec: &InformerSpec, info: &RequestInfo) -> Result<Option<String>, Reason> {
    if info.namespace.is_empty() {
        return Ok(None);
    }
    if spec.resource.namespaced {
        return Ok(Some(info.namespace.clone()));
    }
    // A Namespace's own URL reads as if it lay in itself; /api/v1/namespaces/NAME/namespaces/NAME
    // reads the same, and there is none.
    let gvr = &spec.resource.gvr;
    let is_own = gvr.group.is_empty()
        && gvr.resource == "namespaces"
        && info.verb == "get"
        && info.path.matches("/namespaces/").count() == 1;
    if is_own {
        Ok(None)
    } else {
        Err(Reason::NotCacheable)
    }
}

fn plan_get(
    spec: &InformerSpec,
    namespace: Option<&str>,
    info: &RequestInfo,
    query: &str,
) -> Result<(Need, Plan), Reason> {
    let options = GetOptions::parse(query).map_err(|_| Reason::Malformed)?;
    let name = info.name.as_str();
    // The API server has words of its own for names and scopes that no object can have.
    let is_possible = name
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"%/\"\\".contains(&byte));
    if !is_possible || spec.resource.namespaced != namespace.is_some() {
        return Err(Reason::NotCacheable);
    }
    let name = name.to_owned();
    Ok((need(options.consistency), Plan::Get { name }))
}

fn plan_list(
    spec: &InformerSpec,
    namespace: Option<&str>,
    query: &str,
) -> Result<(Need, Plan), Reason> {
    let options = ListOptions::parse(query).map_err(|_| Reason::Malformed)?;
    let request = options.validate_list().map_err(|_| Reason::Malformed)?;
    let proof_request = proof_request(&options, spec, namespace, query)?;
    let first = |limit| Page { after: None, limit };
    let (need, page) = match request {
        ListRequest::MostRecent { limit } => (Need::MostRecent, first(limit)),
        ListRequest::Any => (Need::NotOlderThan(ResourceVersion::ZERO), first(None)),
        ListRequest::NotOlderThan {
            resource_version,
            limit,
        } => (Need::NotOlderThan(resource_version), first(limit)),
        ListRequest::Exact {
            resource_version,
            limit,
        } => (Need::At(resource_version), first(limit)),
        ListRequest::Continue { token, limit } => {
            // No later than the token's state, if it names one: what comes behind the key now.
            let need = token.resource_version.map_or(Need::MostRecent, Need::At);
            let start = token.start_key(namespace);
            // A token that names its first key, and not the last one shown, is not of our making.
            let after = start.strip_suffix('\0').ok_or(Reason::PastState)?;
            let after = Some(after.to_owned());
            (need, Page { after, limit })
        }
    };
    Ok((
        need,
        Plan::List {
            proof_request,
            page,
        },
    ))
}

fn plan_watch(
    spec: &InformerSpec,
    namespace: Option<&str>,
    query: &str,
) -> Result<(Need, Plan), Reason> {
    let options = ListOptions::parse(query).map_err(|_| Reason::Malformed)?;
    let request = options.validate_watch().map_err(|_| Reason::Malformed)?;
    let proof_request = proof_request(&options, spec, namespace, query)?;
    let any = Need::NotOlderThan(ResourceVersion::ZERO);
    let (need, from) = match request.start {
        WatchStart::InitialEvents(consistency) => (need(consistency), WatchFrom::Snapshot),
        WatchStart::FromMostRecent => (Need::MostRecent, WatchFrom::Tip),
        WatchStart::FromAny => (any, WatchFrom::Tip),
        // One that lies in the future waits in the stream, as the API server's does.
        WatchStart::After(version) => (any, WatchFrom::After(version)),
    };
    let terms = WatchTerms {
        bookmarks: request.allow_bookmarks,
        initial_events_end: request.initial_events_end,
        timeout: request.timeout,
    };
    Ok((
        need,
        Plan::Watch {
            proof_request,
            from,
            terms,
        },
    ))
}

fn need(consistency: Consistency) -> Need {
    match consistency {
        Consistency::MostRecent => Need::MostRecent,
        Consistency::Any => Need::NotOlderThan(ResourceVersion::ZERO),
        Consistency::NotOlderThan(version) => Need::NotOlderThan(version),
    }
}

/// Which objects the options select. A field that our table lacks may be one that the API server
/// has, of another version or of a definition that changed just now.
fn proof_request(
    options: &ListOptions,
    spec: &InformerSpec,
    namespace: Option<&str>,
    query: &str,
) -> Result<ProofRequest, Reason> {
    let selection = options.selection(namespace, &spec.fields);
    let selection = selection.map_err(|_| Reason::UnknownField)?;
    let query = Query::parse(query);
    Ok(ProofRequest {
        scope: Scope {
            namespace: namespace.map(str::to_owned),
            label_selector: query.text("labelSelector"),
            field_selector: query.text("fieldSelector"),
        },
        selection: Arc::new(selection),
    })
}
