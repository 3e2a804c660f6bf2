//! Plans a read from a cache: the state that the cache must have, and what is read from it.

use std::sync::Arc;
use std::time::Duration;

use kubefan_core::api::{
    Consistency, ContinueToken, GetOptions, ListOptions, ListRequest, Query, ResourceVersion,
    Selection, ShardSelector, WatchStart, request_timeout,
};
use kubefan_core::cache::WatchFrom;
use kubefan_core::codec::Representation;
use kubefan_core::informer::{InformerSpec, ProofRequest};
use kubefan_core::upstream::Scope;

use super::reason::Reason;
use crate::server::request::{RequestInfo, Verb};

/// A read that a cache may answer, with all its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    /// The resource, and the wire format of the cache that can answer.
    pub spec: InformerSpec,
    /// The namespace that the request names; `None` for all namespaces, and for cluster scope.
    pub namespace: Option<String>,
    /// The objects of the cache that answers. This cache has all objects that are read. For a GET,
    /// the named object is in this cache or in none.
    pub scope: Arc<Selection>,
    /// How the answer shows objects: wire format, complete or metadata only, indented or not.
    pub representation: Representation,
    /// True if the client gets JSON, but prefers a media type that no cache has.
    pub prefers_other_type: bool,
    pub need: Need,
    /// What is read: one object, a list, or changes.
    pub plan: Plan,
    /// How long the answer may take (parameter `timeout`); `None` for no limit, and for a WATCH.
    pub timeout: Option<Duration>,
}

/// The state that a cache must have to answer a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The most recent state; the cache must be proven to have it.
    MostRecent,
    /// The state at exactly this resource version.
    At(ResourceVersion),
    /// The state at this resource version or a later one.
    NotOlderThan(ResourceVersion),
}

/// The kind of a read, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// GET of one object.
    Get {
        /// Name of the object.
        name: String,
        /// True if the cache has the object unless the object does not exist.
        is_in_scope: bool,
    },
    /// LIST of a collection.
    List {
        /// The objects to list.
        selection: Arc<Selection>,
        /// The objects that must be up to date: the listed ones, but of all shards. For a list of a
        /// shard with a limit, all objects.
        proof_request: ProofRequest,
        page: Page,
    },
    /// WATCH of a collection's changes.
    Watch {
        /// The objects to watch.
        selection: Arc<Selection>,
        /// The objects that must be up to date: the watched ones, but of all shards.
        proof_request: ProofRequest,
        /// Where the stream begins: with a snapshot, at the log's tip, or after a resource version.
        from: WatchFrom,
        /// The client's options for the stream.
        terms: WatchTerms,
    },
}

/// The part of a list that the client wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Page {
    /// Only objects with a key greater than this; `None` for the first page.
    pub after: Option<String>,
    /// Largest number of items; `None` for no limit.
    pub limit: Option<usize>,
}

/// The client's options for a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchTerms {
    /// `allowWatchBookmarks`: whether the client wants bookmarks.
    pub bookmarks: bool,
    /// Whether an annotated bookmark marks the end of the initial events.
    pub initial_events_end: bool,
    /// `timeoutSeconds`. Zero ends the watch at once; `None` lets the server choose a time.
    pub timeout: Option<Duration>,
}

impl Read {
    /// Restricts the read to the objects in `shard`. A GET stays as it is.
    pub(crate) fn of_shard(mut self, shard: ShardSelector) -> Self {
        match &mut self.plan {
            Plan::Get { .. } => {}
            Plan::List {
                selection,
                proof_request,
                page,
            } => {
                Arc::make_mut(selection).shard = Some(shard);
                // No API server continues the list of a shard. A snapshot is only pinned for the
                // next pages if all of it is proven.
                if page.limit.is_some() {
                    *proof_request = ProofRequest::default();
                }
            }
            Plan::Watch { selection, .. } => Arc::make_mut(selection).shard = Some(shard),
        }
        self
    }

    /// Returns true if the read is of a shard. No API server answers such a read instead of the
    /// cache.
    pub(crate) fn is_of_shard(&self) -> bool {
        let selection = self.selection();
        selection.is_some_and(|selection| selection.shard.is_some())
    }

    /// Returns the selection of the objects that the client gets; `None` for a GET.
    pub(crate) fn selection(&self) -> Option<&Arc<Selection>> {
        match &self.plan {
            Plan::Get { .. } => None,
            Plan::List { selection, .. } | Plan::Watch { selection, .. } => Some(selection),
        }
    }

    /// Returns `timeoutSeconds` of a WATCH.
    pub(crate) fn watch_timeout(&self) -> Option<Duration> {
        match &self.plan {
            Plan::Watch { terms, .. } => terms.timeout,
            Plan::Get { .. } | Plan::List { .. } => None,
        }
    }

    /// Returns true if the read may start an informer. A GET may not, and neither may a list of a
    /// later page. A read of an exact version may only if it is of a shard, because a new cache
    /// rarely has the version.
    pub(crate) fn may_start_informer(&self) -> bool {
        match (&self.plan, self.need) {
            (Plan::Get { .. }, _) => false,
            (_, Need::At(_)) if !self.is_of_shard() => false,
            (Plan::List { page, .. }, _) => page.after.is_none(),
            (Plan::Watch { .. }, _) => true,
        }
    }

    /// Returns how long the head of the answer may take if a cache answers: at most `limit`, or
    /// less if the client asks for it. `None` for a WATCH, which is long-running.
    pub(crate) fn time_to_head(&self, limit: Duration) -> Option<Duration> {
        match self.plan {
            Plan::Watch { .. } => None,
            Plan::Get { .. } | Plan::List { .. } => {
                Some(self.timeout.map_or(limit, |timeout| timeout.min(limit)))
            }
        }
    }
}

/// Plans the `get`, `list` or `watch` that `info` and `query` describe, for a cache of `spec`.
///
/// # Errors
///
/// The [`Reason`] why a cache can't answer.
pub(crate) fn plan(
    spec: InformerSpec,
    representation: Representation,
    info: &RequestInfo,
    query: &Query,
) -> Result<Read, Reason> {
    let namespace = namespace(&spec, info)?;
    let (need, plan) = match info.verb {
        Verb::Get => plan_get(&spec, namespace.as_deref(), info, query)?,
        Verb::List => plan_list(&spec, namespace.as_deref(), query)?,
        _ => plan_watch(&spec, namespace.as_deref(), query)?,
    };
    let scope = match &plan {
        Plan::Get { .. } => spec.settings.scope_in(namespace.as_deref()),
        Plan::List { selection, .. } | Plan::Watch { selection, .. } => {
            spec.settings.scope_of(selection)
        }
    };
    let scope = Arc::clone(scope.ok_or(Reason::OutOfScope)?);
    // The API server ignores `timeout` for long-running requests such as a WATCH.
    let timeout = match plan {
        Plan::Watch { .. } => None,
        Plan::Get { .. } | Plan::List { .. } => {
            request_timeout(query).map_err(|_| Reason::Malformed)?
        }
    };
    Ok(Read {
        spec,
        namespace,
        scope,
        representation,
        prefers_other_type: false,
        need,
        plan,
        timeout,
    })
}

/// Returns the namespace that the request names, if any. A request that names a namespace for a
/// cluster-scoped resource is forwarded.
fn namespace(spec: &InformerSpec, info: &RequestInfo) -> Result<Option<String>, Reason> {
    if info.namespace.is_empty() {
        return Ok(None);
    }
    if spec.resource.namespaced {
        return Ok(Some(info.namespace.clone()));
    }
    // `RequestInfo` reads the URL of a Namespace object as if the object were in its own namespace.
    // /api/v1/namespaces/NAME/namespaces/NAME gives the same result, but has no object; the number
    // of `/namespaces/` in the path distinguishes them.
    let gvr = &spec.resource.gvr;
    let is_own = gvr.group.is_empty()
        && gvr.resource == "namespaces"
        && info.verb == Verb::Get
        && info.path.matches("/namespaces/").count() == 1;
    if is_own {
        Ok(None)
    } else {
        Err(Reason::WrongPath)
    }
}

fn plan_get(
    spec: &InformerSpec,
    namespace: Option<&str>,
    info: &RequestInfo,
    query: &Query,
) -> Result<(Need, Plan), Reason> {
    let options = GetOptions::from_query(query).map_err(|_| Reason::Malformed)?;
    let name = info.name.as_str();
    // Forward names and scopes that no object can have: the API server words the error.
    let is_possible = name
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"%/\"\\".contains(&byte));
    if !is_possible || spec.resource.namespaced != namespace.is_some() {
        return Err(Reason::WrongPath);
    }
    let name = name.to_owned();
    let is_in_scope = spec.settings.has_object(namespace, &name);
    let plan = Plan::Get { name, is_in_scope };
    Ok((need(options.consistency), plan))
}

fn plan_list(
    spec: &InformerSpec,
    namespace: Option<&str>,
    query: &Query,
) -> Result<(Need, Plan), Reason> {
    let options = ListOptions::from_query(query).map_err(|_| Reason::Malformed)?;
    let request = options.validate_list().map_err(|_| Reason::Malformed)?;
    let proof_request = proof_request(&options, spec, namespace, query)?;
    let first = |limit| Page { after: None, limit };
    let (need, page) = match request {
        ListRequest::MostRecent { limit } => (Need::MostRecent, first(limit)),
        // The API server reads Events from etcd, so their lists have pages at version 0, too.
        ListRequest::Any { limit } => {
            let limit = limit.filter(|_| spec.resource.gvr.is_events());
            (Need::NotOlderThan(ResourceVersion::ZERO), first(limit))
        }
        ListRequest::NotOlderThan {
            resource_version,
            limit,
        } => (Need::NotOlderThan(resource_version), first(limit)),
        ListRequest::Exact {
            resource_version,
            limit,
        } => (Need::At(resource_version), first(limit)),
        ListRequest::Continue { token, limit } => {
            // A continue token with a resource version continues the list of exactly that state. A
            // token without one continues with the current objects after its key.
            let need = token.resource_version.map_or(Need::MostRecent, Need::At);
            let start = start_key(&token, &proof_request.selection);
            // A continue token of kubefan's has the last key that was sent, followed by `\0`. A
            // token without the `\0` was not made by kubefan.
            let after = start.strip_suffix('\0').ok_or(Reason::PastState)?;
            let after = Some(after.to_owned());
            (need, Page { after, limit })
        }
    };
    Ok((
        need,
        Plan::List {
            selection: Arc::clone(&proof_request.selection),
            proof_request,
            page,
        },
    ))
}

fn plan_watch(
    spec: &InformerSpec,
    namespace: Option<&str>,
    query: &Query,
) -> Result<(Need, Plan), Reason> {
    let options = ListOptions::from_query(query).map_err(|_| Reason::Malformed)?;
    let request = options.validate_watch().map_err(|_| Reason::Malformed)?;
    let proof_request = proof_request(&options, spec, namespace, query)?;
    let any = Need::NotOlderThan(ResourceVersion::ZERO);
    let (need, from) = match request.start {
        WatchStart::InitialEvents(consistency) => (need(consistency), WatchFrom::Snapshot),
        WatchStart::FromMostRecent => (Need::MostRecent, WatchFrom::Tip),
        WatchStart::FromAny => (any, WatchFrom::Tip),
        // A watch from a version in the future waits in its stream, as it does at the API server.
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
            selection: Arc::clone(&proof_request.selection),
            proof_request,
            from,
            terms,
        },
    ))
}

/// Returns the key after which the next page begins. The token of a list of all namespaces begins
/// with a namespace, with one exception: if a field selector requires one namespace, the API
/// server's token for the second page is only a name. (With this token, the API server itself
/// returns wrong objects.)
fn start_key(token: &ContinueToken, selection: &Selection) -> String {
    let has_namespace = token.start.contains('/');
    token.start_key(if has_namespace {
        selection.namespace.as_deref()
    } else {
        selection.single_namespace()
    })
}

fn need(consistency: Consistency) -> Need {
    match consistency {
        Consistency::MostRecent => Need::MostRecent,
        Consistency::Any => Need::NotOlderThan(ResourceVersion::ZERO),
        Consistency::NotOlderThan(version) => Need::NotOlderThan(version),
    }
}

/// Returns the objects that `options` select. Fails for a field that kubefan does not recognize, so
/// that the request is forwarded: the API server may support the field in another version or a new
/// definition.
fn proof_request(
    options: &ListOptions,
    spec: &InformerSpec,
    namespace: Option<&str>,
    query: &Query,
) -> Result<ProofRequest, Reason> {
    let selection = options.selection(namespace, &spec.fields);
    let selection = selection.map_err(|_| Reason::UnknownField)?;
    Ok(ProofRequest {
        scope: Scope {
            namespace: namespace.map(str::to_owned),
            label_selector: query.text("labelSelector"),
            field_selector: query.text("fieldSelector"),
        },
        selection: Arc::new(selection),
    })
}
