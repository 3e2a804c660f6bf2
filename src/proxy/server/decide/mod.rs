//! Decides whether a cache answers a request or kubefan forwards it. This is the product's riskiest
//! rule, so it is made of pure functions with tables of test cases.
//!
//! The decision depends only on the request and on the results of discovery.

mod advice;
mod plan;
mod reason;

pub use advice::ChangeKind;
use kubefan_core::api::{
    GroupVersionResource, Query, ShardSelector, ShardSelectorError, Status, WireFormat,
    pretty_parameter, should_indent,
};
use kubefan_core::codec::{
    IncludeObject, MetaVersion, Negotiated, ReadVerb, Representation, View, negotiate,
    negotiate_json,
};
use kubefan_core::informer::InformerSpec;
use kubefan_core::upstream::NotCacheable;
pub(crate) use plan::{Need, Page, Plan, Read, WatchTerms, plan};
pub use reason::Reason;

use crate::server::request::{Facts, PathForm, ShardSelectors, Verb};

/// What a client must send if kubefan does not read its `shardSelector`.
const PLAIN_CALLS: &str = "kubefan does not read this CEL expression; send plain calls like \
                           shardRange(object.metadata.uid, '0x0000000000000000', \
                           '0x8000000000000000'), joined by ||";

/// How the server handles a request.
#[derive(Debug)]
pub(crate) enum Decision {
    /// kubefan refuses the request with this Status.
    Reject(Status),
    /// If the caller may do this read, kubefan refuses the request with this Status. Otherwise the
    /// API server refuses it.
    RejectAuthorized(Read, Box<Status>),
    /// The request is forwarded to the API server for this reason.
    Forward(Reason),
    /// A cache may answer the request; this is the plan of the read.
    Read(Read),
}

/// Decides how the server handles the request that `facts` describe. `spec_of` returns the spec of
/// an informer in JSON of a resource that discovery has found, or why there is none.
pub(crate) fn decide(
    facts: &Facts<'_>,
    spec_of: impl Fn(&GroupVersionResource) -> Result<InformerSpec, NotCacheable>,
) -> Decision {
    if facts.connection_lists_others {
        return Decision::Reject(Status::bad_request(
            "kubefan does not accept a Connection header that lists a header for the API server",
        ));
    }
    // An API server would perhaps delete more objects, although kubefan's lists show that shards
    // are served.
    if facts.shard_selectors.serves(facts.info) && facts.info.verb == Verb::DeleteCollection {
        return Decision::Reject(Status::bad_request(
            "kubefan does not forward the deletion of a collection with a shardSelector: an API \
             server without the feature gate ShardedListAndWatch would delete all of it",
        ));
    }
    match facts.path {
        PathForm::DotSegment => Decision::Reject(Status::bad_request(
            "kubefan does not accept a path with a segment '.' or '..': name the resource itself",
        )),
        PathForm::EncodedSlash => Decision::Reject(Status::bad_request(
            "kubefan does not accept a path with an encoded slash (%2F) in a name",
        )),
        PathForm::Plain | PathForm::EmptySegment => match read(facts, spec_of) {
            Ok(read) => of_shard(read, facts),
            Err(reason) => Decision::Forward(reason),
        },
    }
}

/// Limits `read` to the shard that the request selects, if kubefan serves shards.
fn of_shard(read: Read, facts: &Facts<'_>) -> Decision {
    match (&facts.info.shard_selector, facts.shard_selectors) {
        (None, _) => Decision::Read(read),
        (Some(_), ShardSelectors::Forward) => Decision::Forward(Reason::ShardSelector),
        (Some(text), ShardSelectors::Serve) => match ShardSelector::parse(text) {
            Ok(shard) => Decision::Read(read.of_shard(shard)),
            // The API server parses the selector after it has authorized the caller.
            Err(error) => Decision::RejectAuthorized(read, Box::new(refused_selector(&error))),
        },
    }
}

/// Returns the answer to a LIST or WATCH with a `shardSelector` that kubefan can't parse.
fn refused_selector(error: &ShardSelectorError) -> Status {
    match error {
        ShardSelectorError::Invalid(problem) => Status::invalid_shard_selector(problem),
        // An API server may parse the selector, but perhaps ignores it.
        ShardSelectorError::NotRead => Status::unserved_shard("shard_selector", Some(PLAIN_CALLS)),
    }
}

/// Plans the read that `facts` describe. The error says why a cache can't answer it.
fn read(
    facts: &Facts<'_>,
    spec_of: impl Fn(&GroupVersionResource) -> Result<InformerSpec, NotCacheable>,
) -> Result<Read, Reason> {
    let verb = verb(facts)?;
    let gvr = facts.info.gvr().ok_or(NotCacheable::Unknown);
    let spec = gvr.and_then(|gvr| spec_of(&gvr));
    let is_custom = spec.as_ref().is_ok_and(|spec| spec.custom);
    let (representation, prefers_other_type) = representation(facts, verb, is_custom)?;
    let mut spec = spec?;
    // The cache that answers a built-in resource has the answer's format. Custom resources are
    // always read from a JSON cache, even if their metadata alone is requested in protobuf.
    if !is_custom {
        spec.format = representation.format;
    }
    let read = plan(spec, representation, facts.info, facts.query)?;
    Ok(Read {
        prefers_other_type,
        ..read
    })
}

fn verb(facts: &Facts<'_>) -> Result<ReadVerb, Reason> {
    let info = facts.info;
    let is_websocket_watch = facts.is_websocket && info.verb == Verb::Watch;
    Err(match info.verb {
        _ if facts.is_unknown_caller => Reason::CallerIdentity,
        _ if facts.is_upgrade && !is_websocket_watch => Reason::Upgrade,
        _ if *facts.method != http::Method::GET => Reason::NotGet,
        _ if facts.path == PathForm::EmptySegment => Reason::EmptySegment,
        _ if !info.is_resource_request => Reason::NonResource,
        Verb::Proxy => Reason::DeprecatedPath,
        _ if info.watch_path => Reason::DeprecatedPath,
        _ if !info.subresource.is_empty() => Reason::Subresource,
        Verb::Get => return Ok(ReadVerb::Get),
        Verb::List => return Ok(ReadVerb::List),
        Verb::Watch => return Ok(ReadVerb::Watch),
        _ => Reason::NonResource,
    })
}

/// Returns the representation of the answer, and true if the client prefers a media type that no
/// cache has.
fn representation(
    facts: &Facts<'_>,
    verb: ReadVerb,
    is_custom: bool,
) -> Result<(Representation, bool), Reason> {
    let negotiated = negotiate(facts.accept, verb, is_custom);
    let preferred = negotiated.representation();
    let representation = match preferred {
        Some(preferred) => preferred,
        None => json_instead(negotiated, facts, verb, is_custom)?,
    };
    let info = facts.info;
    // In autoscaling/v1, a complete object has other annotations than an answer of metadata only.
    let is_autoscaler = info.resource == "horizontalpodautoscalers"
        && (info.group.as_str(), info.version.as_str()) == ("autoscaling", "v1");
    match representation.view {
        View::Metadata(MetaVersion::V1Beta1) => return Err(Reason::PartialMetadata),
        View::Metadata(MetaVersion::V1) if is_autoscaler => return Err(Reason::PartialMetadata),
        View::Metadata(MetaVersion::V1) | View::Table(..) | View::Whole => {}
    }
    let view = match representation.view {
        View::Table(version, _) => View::Table(version, include_object(facts.query)?),
        view => view,
    };
    let is_pretty = || {
        let parameter = pretty_parameter(facts.query);
        should_indent(parameter, representation.indent, facts.user_agent)
    };
    let can_indent = representation.format == WireFormat::Json && verb != ReadVerb::Watch;
    let representation = Representation {
        indent: can_indent && is_pretty(),
        view,
        ..representation
    };
    Ok((representation, preferred.is_none()))
}

/// Returns the representation in JSON for a client that prefers what the API server has `negotiated`
/// and a cache does not have, and accepts JSON too. Otherwise a new default of a client library
/// would make all of its reads forwarded.
fn json_instead(
    negotiated: Negotiated,
    facts: &Facts<'_>,
    verb: ReadVerb,
    is_custom: bool,
) -> Result<Representation, Reason> {
    let reason = match negotiated {
        Negotiated::NotAcceptable | Negotiated::OtherKind => return Err(Reason::MediaType),
        Negotiated::YamlTable => Reason::Table,
        _ => Reason::MediaType,
    };
    let json = negotiate_json(facts.accept, verb, is_custom);
    json.and_then(Negotiated::representation).ok_or(reason)
}

/// Returns which object each row of a Table contains besides its cells.
fn include_object(query: &Query) -> Result<IncludeObject, Reason> {
    IncludeObject::parse(query.first("includeObject")).map_err(|_| Reason::Malformed)
}

#[cfg(test)]
pub(super) mod tests;
