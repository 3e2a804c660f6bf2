//! Cache or forward: the product's riskiest rule, as pure functions with a table each.

use http::Method;

use crate::api::Consistency;
use crate::api::ListRequest;
use crate::api::ResourceVersion;
use crate::api::WatchStart;
use crate::api::WireFormat;
use crate::cache::WatchFrom;
use crate::codec::Negotiated;
use crate::codec::Representation;
use crate::codec::View;

use super::request_info::RequestInfo;

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
    /// Its path names a subresource.
    Subresource,
    /// Its path is one of the deprecated `/proxy/` ones.
    DeprecatedPath,
    /// It asks for a Table.
    Table,
    /// It asks for metadata only, of a kind in whose whole objects the API server shows other
    /// annotations.
    PartialMetadata,
    /// It asks for YAML, CBOR or nothing that is served.
    MediaType,
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
    /// It asks for the most recent state, which the cache can't prove that it has.
    Consistent,
    /// It asks for a state that the cache has not reached.
    AheadOfCache,
    /// It asks for a past state that is not retained.
    PastState,
    /// kubefan is going down, and starts no informer any more.
    ShuttingDown,
}

/// A read that the cache may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// What is read.
    pub verb: Verb,
    /// The format of the cache that can answer it.
    pub source: WireFormat,
    /// How the answer shows objects.
    pub representation: Representation,
}

/// The three reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// One object.
    Get,
    /// A collection.
    List,
    /// A collection's changes.
    Watch,
}

/// What a request looks like from outside.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its path and query.
    pub info: &'a RequestInfo,
    /// What its `Accept` comes to.
    pub negotiated: Negotiated,
    /// True with `Connection: Upgrade`.
    pub is_upgrade: bool,
    /// True when that upgrade is to a WebSocket, and can be granted here.
    pub is_websocket: bool,
    /// True when it brings credentials or claims.
    pub has_identity: bool,
    /// True when JSON would be indented for it.
    pub is_pretty: bool,
    /// True for custom resources, which the API server has in JSON alone.
    pub is_custom: bool,
}

/// The read that `facts` describe, if it is one that a cache could answer.
///
/// # Errors
///
/// Why it must be forwarded instead.
pub fn read(facts: &Facts<'_>) -> Result<Read, Reason> {
    let info = facts.info;
    let is_websocket_watch = facts.is_websocket && info.verb == "watch";
    let verb = match info.verb.as_str() {
        _ if facts.has_identity => return Err(Reason::CallerIdentity),
        _ if facts.is_upgrade && !is_websocket_watch => return Err(Reason::Upgrade),
        _ if *facts.method != Method::GET => return Err(Reason::NotGet),
        _ if !info.is_resource_request => return Err(Reason::NonResource),
        "proxy" => return Err(Reason::DeprecatedPath),
        _ if !info.subresource.is_empty() => return Err(Reason::Subresource),
        "get" => Verb::Get,
        "list" => Verb::List,
        "watch" => Verb::Watch,
        _ => return Err(Reason::NonResource),
    };
    let representation = match (facts.negotiated, facts.negotiated.representation()) {
        (_, Some(representation)) => representation,
        (Negotiated::Table, None) => return Err(Reason::Table),
        (_, None) => return Err(Reason::MediaType),
    };
    // Its `v1` tells in annotations what later versions have fields for.
    let is_autoscaler = info.resource == "horizontalpodautoscalers"
        && (info.group.as_str(), info.version.as_str()) == ("autoscaling", "v1");
    if is_autoscaler && representation.view != View::Whole {
        return Err(Reason::PartialMetadata);
    }
    let format = representation.format;
    Ok(Read {
        verb,
        source: match facts.is_custom {
            true => WireFormat::Json,
            false => format,
        },
        representation: Representation {
            indent: facts.is_pretty && format == WireFormat::Json && verb != Verb::Watch,
            ..representation
        },
    })
}

/// What the store stands for that a read is answered from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// It follows the truth, and can't prove that it has the most recent state.
    Cache,
    /// It is the truth: whatever it has now is the most recent state.
    Truth,
}

impl Authority {
    /// How a LIST of `namespace` is answered.
    pub fn plan_list(self, request: ListRequest, namespace: Option<&str>) -> ListPlan {
        let now =
            |after, limit| ListPlan::NotOlderThan(ResourceVersion::ZERO, Page { after, limit });
        match (self, request) {
            (Self::Truth, ListRequest::MostRecent { limit }) => now(None, limit),
            (Self::Truth, ListRequest::Continue { token, limit })
                if token.resource_version.is_none() =>
            {
                let start = token.start_key(namespace);
                now(Some(start.trim_end_matches('\0').to_owned()), limit)
            }
            (_, request) => plan_list(request, namespace),
        }
    }

    /// How a WATCH is answered.
    pub fn plan_watch(self, start: WatchStart) -> WatchPlan {
        let is_recent = matches!(
            start,
            WatchStart::InitialEvents(Consistency::MostRecent) | WatchStart::FromMostRecent
        );
        match self {
            Self::Truth if is_recent => WatchPlan::Stream {
                from: WatchFrom::Snapshot,
                not_older_than: ResourceVersion::ZERO,
            },
            Self::Cache | Self::Truth => plan_watch(start),
        }
    }

    /// How new the store must be to answer a GET.
    ///
    /// # Errors
    ///
    /// When it can't be new enough.
    pub fn plan_get(self, consistency: Consistency) -> Result<ResourceVersion, Reason> {
        match (self, consistency) {
            (Self::Truth, Consistency::MostRecent) => Ok(ResourceVersion::ZERO),
            _ => plan_get(consistency),
        }
    }
}

/// How the cache answers a LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListPlan {
    /// From the newest snapshot if it is at least this new.
    NotOlderThan(ResourceVersion, Page),
    /// From the snapshot at exactly this resource version.
    At(ResourceVersion, Page),
    /// Not at all.
    Forward(Reason),
}

/// Which part of a list is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Only keys greater than this.
    pub after: Option<String>,
    /// At most so many items.
    pub limit: Option<usize>,
}

/// How a LIST of `namespace` is answered.
pub fn plan_list(request: ListRequest, namespace: Option<&str>) -> ListPlan {
    let page = |limit| Page { after: None, limit };
    match request {
        ListRequest::MostRecent { .. } => ListPlan::Forward(Reason::Consistent),
        ListRequest::Any => ListPlan::NotOlderThan(ResourceVersion::ZERO, Page::default()),
        ListRequest::NotOlderThan {
            resource_version,
            limit,
        } => ListPlan::NotOlderThan(resource_version, page(limit)),
        ListRequest::Exact {
            resource_version,
            limit,
        } => ListPlan::At(resource_version, page(limit)),
        ListRequest::Continue { token, limit } => {
            let start = token.start_key(namespace);
            match (token.resource_version, start.strip_suffix('\0')) {
                (Some(at), Some(last)) => {
                    let after = Some(last.to_owned());
                    ListPlan::At(at, Page { after, limit })
                }
                (None, _) => ListPlan::Forward(Reason::Consistent),
                // A token that names its first key, and not the last one shown, is not of our making.
                (Some(_), None) => ListPlan::Forward(Reason::PastState),
            }
        }
    }
}

/// How the cache answers a WATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchPlan {
    /// From this place; initial events only if the cache is at least this new.
    Stream {
        /// Where the stream begins.
        from: WatchFrom,
        /// How new the cache must be.
        not_older_than: ResourceVersion,
    },
    /// Not at all.
    Forward(Reason),
}

/// How a WATCH is answered.
pub fn plan_watch(start: WatchStart) -> WatchPlan {
    let stream = |from, not_older_than| WatchPlan::Stream {
        from,
        not_older_than,
    };
    let any = ResourceVersion::ZERO;
    match start {
        WatchStart::InitialEvents(Consistency::Any) => stream(WatchFrom::Snapshot, any),
        WatchStart::InitialEvents(Consistency::NotOlderThan(asked)) => {
            stream(WatchFrom::Snapshot, asked)
        }
        WatchStart::After(after) => stream(WatchFrom::After(after), any),
        WatchStart::FromAny => stream(WatchFrom::Tip, any),
        WatchStart::InitialEvents(Consistency::MostRecent) | WatchStart::FromMostRecent => {
            WatchPlan::Forward(Reason::Consistent)
        }
    }
}

/// Whether a state that must be at least as new as `asked` is there.
///
/// # Errors
///
/// When the cache has not reached it.
pub fn not_older_than(asked: ResourceVersion, applied: ResourceVersion) -> Result<(), Reason> {
    match asked <= applied {
        true => Ok(()),
        false => Err(Reason::AheadOfCache),
    }
}

/// How new the cache must be to answer a GET.
///
/// # Errors
///
/// When it can't be new enough.
pub fn plan_get(consistency: Consistency) -> Result<ResourceVersion, Reason> {
    match consistency {
        Consistency::MostRecent => Err(Reason::Consistent),
        Consistency::Any => Ok(ResourceVersion::ZERO),
        Consistency::NotOlderThan(asked) => Ok(asked),
    }
}

impl Reason {
    /// The metric label.
    pub fn name(self) -> &'static str {
        match self {
            Self::CallerIdentity => "caller_identity",
            Self::Upgrade => "upgrade",
            Self::NotGet => "not_get",
            Self::NonResource => "non_resource",
            Self::Subresource => "subresource",
            Self::DeprecatedPath => "deprecated_path",
            Self::Table => "table",
            Self::PartialMetadata => "partial_metadata",
            Self::MediaType => "media_type",
            Self::NotCacheable => "not_cacheable",
            Self::UnknownField => "unknown_field",
            Self::NotCached => "not_cached",
            Self::Forbidden => "forbidden",
            Self::NoSuchFormat => "no_such_format",
            Self::Consistent => "consistent",
            Self::AheadOfCache => "ahead_of_cache",
            Self::PastState => "past_state",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

#[cfg(test)]
mod tests;
