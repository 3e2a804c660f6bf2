//! Cache or forward: the product's riskiest rule, as pure functions with a table each.
//!
//! It goes by the request and by what discovery knows already; it starts and asks nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::api::Consistency;
use crate::api::GetOptions;
use crate::api::GroupVersionResource;
use crate::api::ListOptions;
use crate::api::ListRequest;
use crate::api::Query;
use crate::api::ResourceVersion;
use crate::api::Status;
use crate::api::WatchStart;
use crate::api::WireFormat;
use crate::api::pretty_parameter;
use crate::api::request_timeout;
use crate::api::wants_pretty;
use crate::cache::WatchFrom;
use crate::codec::MetaVersion;
use crate::codec::Negotiated;
use crate::codec::ReadVerb;
use crate::codec::Representation;
use crate::codec::View;
use crate::codec::negotiate;
use crate::informer::Asked;
use crate::informer::Subject;
use crate::upstream::Scope;

use super::request::Facts;
use super::request::PathForm;
use super::request::RequestInfo;

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Decision {
    /// kubefan refuses it.
    Reject(Status),
    /// The API server answers it.
    Forward(Reason),
    /// A cache may answer it.
    Read(Read),
}

/// Why a request is forwarded. The names are metric labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It brings an identity of its own, for which only the API server can answer.
    CallerIdentity,
    /// It is an upgrade: exec, attach, port-forward, a handshake that only the API server can word
    /// the refusal of.
    Upgrade,
    /// It is no GET.
    NotGet,
    /// Its path is no resource: discovery, OpenAPI, /version.
    NonResource,
    /// Its path has an empty segment (`//`).
    EmptySegment,
    /// Its path names a subresource.
    Subresource,
    /// Its path is one of the deprecated `/proxy/` and `/watch/` ones.
    DeprecatedPath,
    /// It asks for a Table.
    Table,
    /// It asks for metadata only, of a kind in whose whole objects the API server shows other
    /// annotations, or in a version that hardly anybody asks for.
    PartialMetadata,
    /// It asks for YAML, CBOR or nothing that is served.
    MediaType,
    /// Its parameters can't be read or contradict each other: the API server words the refusal.
    Malformed,
    /// Discovery does not know the resource, or it is never cached.
    NotCacheable,
    /// It selects by a field that is not known to be selectable.
    UnknownField,
    /// No informer runs that could answer it, and this request starts none.
    NotCached,
    /// kubefan's identity may not list and watch the resource.
    Forbidden,
    /// The API server does not have the resource in this format.
    NoSuchFormat,
    /// It asks for the most recent state of one object, which only the API server has for certain.
    Consistent,
    /// It asks for the most recent state, and the cache could not be proven to have it.
    Unproven,
    /// It asks for a state that the cache has not reached.
    AheadOfCache,
    /// It asks for a past state that is not retained.
    PastState,
    /// kubefan is going down, and starts no informer any more.
    ShuttingDown,
}

/// A read that a cache may answer.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    /// Resource, and the format of the cache.
    pub subject: Subject,
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
        asked: Asked,
        /// Which part of the list.
        page: Page,
    },
    /// A collection's changes.
    Watch {
        /// Of which objects.
        asked: Asked,
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

/// What discovery knows.
pub(crate) trait KnownResources {
    /// What an informer of `gvr` in `format` needs to know; `None` when discovery does not have it
    /// or it is never cached.
    fn subject(&self, gvr: &GroupVersionResource, format: WireFormat) -> Option<Subject>;
}

/// What becomes of the request that `facts` describe.
pub(crate) fn decide(facts: &Facts<'_>, known: &impl KnownResources) -> Decision {
    match facts.path {
        PathForm::DotSegment => Decision::Reject(Status::bad_request(
            "kubefan takes no path with a segment '.' or '..': name the resource itself",
        )),
        PathForm::EncodedSlash => Decision::Reject(Status::bad_request(
            "kubefan takes no path with an encoded slash (%2F) in a name",
        )),
        PathForm::Plain | PathForm::EmptySegment => match read(facts, known) {
            Ok(read) => Decision::Read(read),
            Err(reason) => Decision::Forward(reason),
        },
    }
}

/// The read that `facts` describe, if a cache could answer it.
fn read(facts: &Facts<'_>, known: &impl KnownResources) -> Result<Read, Reason> {
    let verb = verb(facts)?;
    let subject = facts
        .info
        .gvr()
        .and_then(|gvr| known.subject(&gvr, WireFormat::Json));
    let is_custom = subject.as_ref().is_some_and(|subject| subject.custom);
    let representation = representation(facts, verb, is_custom)?;
    let mut subject = subject.ok_or(Reason::NotCacheable)?;
    // Custom resources are JSON everywhere; their metadata alone may be answered in protobuf.
    if !is_custom {
        subject.format = representation.format;
    }
    plan(subject, representation, facts.info, facts.query)
}

fn verb(facts: &Facts<'_>) -> Result<ReadVerb, Reason> {
    let info = facts.info;
    let is_websocket_watch = facts.is_websocket && info.verb == "watch";
    Err(match info.verb.as_str() {
        _ if facts.has_identity => Reason::CallerIdentity,
        _ if facts.is_upgrade && !is_websocket_watch => Reason::Upgrade,
        _ if *facts.method != http::Method::GET => Reason::NotGet,
        _ if facts.path == PathForm::EmptySegment => Reason::EmptySegment,
        _ if !info.is_resource_request => Reason::NonResource,
        "proxy" => Reason::DeprecatedPath,
        _ if info.watch_path => Reason::DeprecatedPath,
        _ if !info.subresource.is_empty() => Reason::Subresource,
        "get" => return Ok(ReadVerb::Get),
        "list" => return Ok(ReadVerb::List),
        "watch" => return Ok(ReadVerb::Watch),
        _ => Reason::NonResource,
    })
}

fn representation(
    facts: &Facts<'_>,
    verb: ReadVerb,
    is_custom: bool,
) -> Result<Representation, Reason> {
    let negotiated = negotiate(facts.accept, verb, is_custom);
    let representation = match (negotiated, negotiated.representation()) {
        (_, Some(representation)) => representation,
        (Negotiated::Table, None) => return Err(Reason::Table),
        (_, None) => return Err(Reason::MediaType),
    };
    let info = facts.info;
    // Its `v1` tells in annotations what later versions have fields for.
    let is_autoscaler = info.resource == "horizontalpodautoscalers"
        && (info.group.as_str(), info.version.as_str()) == ("autoscaling", "v1");
    match representation.view {
        View::Metadata(MetaVersion::V1Beta1) => return Err(Reason::PartialMetadata),
        View::Metadata(MetaVersion::V1) if is_autoscaler => return Err(Reason::PartialMetadata),
        View::Metadata(MetaVersion::V1) | View::Whole => {}
    }
    let is_pretty = || {
        let parameter = pretty_parameter(&Query::parse(facts.query));
        wants_pretty(parameter, representation.indent, facts.user_agent)
    };
    let can_indent = representation.format == WireFormat::Json && verb != ReadVerb::Watch;
    Ok(Representation {
        indent: can_indent && is_pretty(),
        ..representation
    })
}

/// How a cache of `subject` answers the `get`, `list` or `watch` that `info` and `query` describe.
///
/// # Errors
///
/// Why it can't.
pub(crate) fn plan(
    subject: Subject,
    representation: Representation,
    info: &RequestInfo,
    query: &str,
) -> Result<Read, Reason> {
    let namespace = namespace(&subject, info)?;
    let (need, plan) = match info.verb.as_str() {
        "get" => plan_get(&subject, namespace.as_deref(), info, query)?,
        "list" => plan_list(&subject, namespace.as_deref(), query)?,
        _ => plan_watch(&subject, namespace.as_deref(), query)?,
    };
    // A watch is long-running: it never looks at the parameter.
    let timeout = match plan {
        Plan::Watch { .. } => None,
        Plan::Get { .. } | Plan::List { .. } => {
            request_timeout(&Query::parse(query)).map_err(|_| Reason::Malformed)?
        }
    };
    Ok(Read {
        subject,
        namespace,
        representation,
        need,
        plan,
        timeout,
    })
}

/// The namespace asked for. A scope that is not that of the resource is the API server's to answer.
fn namespace(subject: &Subject, info: &RequestInfo) -> Result<Option<String>, Reason> {
    if info.namespace.is_empty() {
        return Ok(None);
    }
    if subject.resource.namespaced {
        return Ok(Some(info.namespace.clone()));
    }
    // A Namespace's own URL reads as if it lay in itself; /api/v1/namespaces/NAME/namespaces/NAME
    // reads the same, and there is none.
    let gvr = &subject.resource.gvr;
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
    subject: &Subject,
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
    if !is_possible || subject.resource.namespaced != namespace.is_some() {
        return Err(Reason::NotCacheable);
    }
    let name = name.to_owned();
    Ok((need(options.consistency), Plan::Get { name }))
}

fn plan_list(
    subject: &Subject,
    namespace: Option<&str>,
    query: &str,
) -> Result<(Need, Plan), Reason> {
    let options = ListOptions::parse(query).map_err(|_| Reason::Malformed)?;
    let request = options.validate_list().map_err(|_| Reason::Malformed)?;
    let asked = asked(&options, subject, namespace, query)?;
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
    Ok((need, Plan::List { asked, page }))
}

fn plan_watch(
    subject: &Subject,
    namespace: Option<&str>,
    query: &str,
) -> Result<(Need, Plan), Reason> {
    let options = ListOptions::parse(query).map_err(|_| Reason::Malformed)?;
    let request = options.validate_watch().map_err(|_| Reason::Malformed)?;
    let asked = asked(&options, subject, namespace, query)?;
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
    Ok((need, Plan::Watch { asked, from, terms }))
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
fn asked(
    options: &ListOptions,
    subject: &Subject,
    namespace: Option<&str>,
    query: &str,
) -> Result<Asked, Reason> {
    let selection = options.selection(namespace, &subject.fields);
    let selection = selection.map_err(|_| Reason::UnknownField)?;
    let query = Query::parse(query);
    Ok(Asked {
        scope: Scope {
            namespace: namespace.map(str::to_owned),
            label_selector: query.text("labelSelector"),
            field_selector: query.text("fieldSelector"),
        },
        selection: Arc::new(selection),
    })
}

// === impl Reason ===

impl Reason {
    /// The metric label.
    pub fn name(self) -> &'static str {
        match self {
            Self::CallerIdentity => "caller_identity",
            Self::Upgrade => "upgrade",
            Self::NotGet => "not_get",
            Self::NonResource => "non_resource",
            Self::EmptySegment => "empty_segment",
            Self::Subresource => "subresource",
            Self::DeprecatedPath => "deprecated_path",
            Self::Table => "table",
            Self::PartialMetadata => "partial_metadata",
            Self::MediaType => "media_type",
            Self::Malformed => "malformed",
            Self::NotCacheable => "not_cacheable",
            Self::UnknownField => "unknown_field",
            Self::NotCached => "not_cached",
            Self::Forbidden => "forbidden",
            Self::NoSuchFormat => "no_such_format",
            Self::Consistent => "consistent",
            Self::Unproven => "unproven",
            Self::AheadOfCache => "ahead_of_cache",
            Self::PastState => "past_state",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

#[cfg(test)]
mod tests;
