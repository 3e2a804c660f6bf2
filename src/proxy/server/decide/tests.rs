use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kubefan_core::api::{
    ContinueToken, LabelSelector, RawFieldSelector, Resource, ResourceVersion, SelectableFields,
};
use kubefan_core::cache::WatchFrom;
use kubefan_core::informer::{CacheSettings, ResourceRule};
use kubefan_core::upstream::NotCacheable;

use super::*;
use crate::server::request::RequestInfo;

/// A cluster with a few built-in resources and one custom resource, `widgets`, in its discovery.
#[derive(Default)]
struct Cluster {
    /// Which objects of each resource are cached.
    settings: Arc<CacheSettings>,
}

impl Cluster {
    fn spec(&self, gvr: &GroupVersionResource) -> Result<InformerSpec, NotCacheable> {
        let (namespaced, custom) = match (gvr.group.as_str(), gvr.resource.as_str()) {
            ("", "pods") | ("apps", "deployments") => (true, false),
            ("autoscaling", "horizontalpodautoscalers") => (true, false),
            ("", "namespaces" | "nodes") => (false, false),
            ("example.com", "widgets") => (true, true),
            ("", "secrets") => return Err(NotCacheable::Excluded),
            ("", "bindings") => return Err(NotCacheable::Verbs),
            ("", "services") => return Err(NotCacheable::Never),
            ("metrics.k8s.io", "pods") => return Err(NotCacheable::Aggregated),
            ("custom.metrics.k8s.io", "pods") => return Err(NotCacheable::PerhapsAggregated),
            _ => return Err(NotCacheable::Unknown),
        };
        Ok(InformerSpec {
            resource: Arc::new(Resource {
                gvr: gvr.clone(),
                kind: String::new(),
                singular: String::new(),
                short_names: Vec::new(),
                namespaced,
                verbs: Vec::new(),
            }),
            format: WireFormat::Json,
            fields: Arc::new(SelectableFields::default()),
            custom,
            list_kind: None,
            settings: Arc::clone(&self.settings),
        })
    }
}

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const YAML_TABLE: &str = "application/yaml;as=Table;v=v1;g=meta.k8s.io";

/// The properties of a request other than its URL.
struct RequestAttributes<'a> {
    method: Method,
    accept: &'a str,
    user_agent: &'a str,
    is_upgrade: bool,
    is_websocket: bool,
    is_unknown_caller: bool,
    connection_lists_others: bool,
    shard_selectors: ShardSelectors,
}

impl Default for RequestAttributes<'_> {
    fn default() -> Self {
        Self {
            method: Method::GET,
            accept: JSON,
            user_agent: "",
            is_upgrade: false,
            is_websocket: false,
            is_unknown_caller: false,
            connection_lists_others: false,
            shard_selectors: ShardSelectors::Forward,
        }
    }
}

fn decision_with(url: &str, attributes: &RequestAttributes<'_>) -> Decision {
    decision_in(&Cluster::default(), url, attributes)
}

fn decision_in(cluster: &Cluster, url: &str, attributes: &RequestAttributes<'_>) -> Decision {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let info = RequestInfo::parse(&attributes.method, path, query);
    let query = Query::parse(query);
    let facts = Facts {
        method: &attributes.method,
        info: &info,
        query: &query,
        path: PathForm::of(path),
        accept: Some(attributes.accept),
        user_agent: attributes.user_agent,
        is_upgrade: attributes.is_upgrade,
        is_websocket: attributes.is_websocket,
        is_unknown_caller: attributes.is_unknown_caller,
        connection_lists_others: attributes.connection_lists_others,
        shard_selectors: attributes.shard_selectors,
    };
    decide(&facts, |gvr| cluster.spec(gvr))
}

fn decision_for(url: &str) -> Decision {
    decision_with(url, &RequestAttributes::default())
}

fn read_with(url: &str, attributes: &RequestAttributes<'_>) -> Read {
    match decision_with(url, attributes) {
        Decision::Read(read) => read,
        other => panic!("{url}: {other:?}"),
    }
}

pub(in crate::server) fn read_of(url: &str) -> Read {
    read_with(url, &RequestAttributes::default())
}

fn reason(decision: &Decision) -> Option<Reason> {
    match decision {
        Decision::Forward(reason) => Some(*reason),
        Decision::Read(_) => None,
        Decision::Reject(status) => panic!("rejected: {}", status.message),
        Decision::RejectAuthorized(_, status) => panic!("rejected: {}", status.message),
    }
}

#[test]
fn only_watches_and_first_pages_start_an_informer() {
    for (url, expected) in [
        ("/api/v1/pods", true),
        ("/api/v1/pods?limit=5", true),
        ("/api/v1/pods?resourceVersion=0", true),
        ("/api/v1/pods?watch=1", true),
        (
            "/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact",
            false,
        ),
        ("/api/v1/namespaces/n/pods/a", false),
        ("/api/v1/namespaces/n/pods/a?resourceVersion=0", false),
    ] {
        assert_eq!(read_of(url).may_start_informer(), expected, "{url}");
    }
    // No API server answers for a shard, so its informer must start.
    let text = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
    let shard = || ShardSelector::parse(text).expect("a selector");
    let mut exactly = read_of("/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact");
    exactly = exactly.of_shard(shard());
    assert!(exactly.may_start_informer());
    let mut next_page = read_of("/api/v1/pods?limit=5");
    let Plan::List { page, .. } = &mut next_page.plan else {
        panic!("{next_page:?}");
    };
    page.after = Some("n/a".to_owned());
    assert!(!next_page.may_start_informer());
    assert!(!next_page.of_shard(shard()).may_start_informer());
}

#[test]
fn a_connection_header_that_lists_other_headers_is_refused() {
    for url in ["/api/v1/pods", "/api/v1/pods?watch=1", "/version"] {
        let attributes = RequestAttributes {
            connection_lists_others: true,
            ..RequestAttributes::default()
        };
        match decision_with(url, &attributes) {
            Decision::Reject(status) => assert_eq!(status.code, 400),
            other => panic!("{url}: {other:?}"),
        }
    }
}

#[test]
fn reads_and_requests_that_are_not_reads() {
    let rows = [
        ("/api/v1/pods", None),
        ("/api/v1/pods?watch=1", None),
        ("/api/v1/pods?watch=false", None),
        ("/apis/apps/v1/namespaces/a/deployments/b", None),
        ("/api/v1/namespaces/a/pods/b?watch=true", None),
        ("/api/v1/namespaces/a", None),
        ("/api/v1/namespaces?fieldSelector=metadata.name=a", None),
        ("/version", Some(Reason::NonResource)),
        ("/apis/apps/v1", Some(Reason::NonResource)),
        ("/openapi/v3", Some(Reason::NonResource)),
        ("/api/v1/namespaces/a/pods/b/log", Some(Reason::Subresource)),
        ("/api/v1/namespaces/a/status", Some(Reason::Subresource)),
        ("/api/v1/watch/pods", Some(Reason::DeprecatedPath)),
        ("/api/v1/watch/namespaces/a", Some(Reason::DeprecatedPath)),
        ("/api/v1/watch", Some(Reason::NonResource)),
        (
            "/api/v1/proxy/namespaces/a/pods/b/c",
            Some(Reason::DeprecatedPath),
        ),
        ("/api/v1/secrets", Some(Reason::Secrets)),
        ("/api/v1/secret", Some(Reason::Unknown)),
        ("/api/v1/bindings", Some(Reason::NotWatchable)),
        ("/api/v1/services", Some(Reason::Never)),
        (
            "/apis/metrics.k8s.io/v1beta1/pods",
            Some(Reason::Aggregated),
        ),
        (
            "/apis/custom.metrics.k8s.io/v1beta1/pods",
            Some(Reason::Aggregated),
        ),
        // Each path has a scope that its resource does not have.
        ("/api/v1/namespaces/a/nodes", Some(Reason::WrongPath)),
        ("/api/v1/namespaces/a/nodes/b", Some(Reason::WrongPath)),
        ("/api/v1/pods/b", Some(Reason::WrongPath)),
        ("/api/v1/namespaces/a/namespaces/a", Some(Reason::WrongPath)),
        (
            "/api/v1/namespaces/a/namespaces?fieldSelector=metadata.name=a",
            Some(Reason::WrongPath),
        ),
        (
            "/api/v1/namespaces/a/namespaces?watch=1&fieldSelector=metadata.name=a",
            Some(Reason::WrongPath),
        ),
        ("//api/v1/pods", Some(Reason::EmptySegment)),
        (
            "/api/v1/namespaces/a/namespaces?fieldSelector=metadata.name=a",
            Some(Reason::WrongPath),
        ),
        (
            "/api/v1/namespaces/a/namespaces?watch=1&fieldSelector=metadata.name=a",
            Some(Reason::WrongPath),
        ),
        // No object can have these names.
        ("/api/v1/namespaces/a/pods/b%25c", Some(Reason::WrongPath)),
        ("/api/v1/namespaces/a/pods/%22b%22", Some(Reason::WrongPath)),
        ("/api/v1/namespaces/a/pods/%C3%A9", Some(Reason::WrongPath)),
        ("//api/v1/pods", Some(Reason::EmptySegment)),
        ("/api/v1//pods", Some(Reason::EmptySegment)),
        ("/api/v1/namespaces//pods", Some(Reason::EmptySegment)),
        // Valid and invalid query parameters.
        ("/api/v1/pods?limit=x", Some(Reason::Malformed)),
        ("/api/v1/pods?labelSelector=a in", Some(Reason::Malformed)),
        ("/api/v1/pods?continue=x", Some(Reason::Malformed)),
        ("/api/v1/pods?timeout=x", Some(Reason::Malformed)),
        (
            "/api/v1/pods?resourceVersionMatch=Exact",
            Some(Reason::Malformed),
        ),
        (
            "/api/v1/pods?watch=1&resourceVersion=x",
            Some(Reason::Malformed),
        ),
        ("/api/v1/pods?watch=1&timeout=x", None),
        (
            "/api/v1/namespaces/a/pods/b?resourceVersion=x",
            Some(Reason::Malformed),
        ),
        (
            "/api/v1/namespaces/a/pods/b?timeout=-5s",
            Some(Reason::Malformed),
        ),
        (
            "/api/v1/pods?fieldSelector=spec.nodeName=x",
            Some(Reason::UnknownField),
        ),
    ];
    for (url, expected) in rows {
        assert_eq!(reason(&decision_for(url)), expected, "{url}");
    }
    for method in [Method::HEAD, Method::POST, Method::DELETE, Method::PUT] {
        let attributes = RequestAttributes {
            method,
            ..RequestAttributes::default()
        };
        let decision = decision_with("/api/v1/namespaces/a/pods", &attributes);
        assert_eq!(
            reason(&decision),
            Some(Reason::NotGet),
            "{}",
            attributes.method
        );
    }
}

#[test]
fn ambiguous_paths_are_always_refused() {
    for url in [
        "/api/v1/namespaces/a/../b/pods",
        "/../v3/x",
        "/api/v1/namespaces/a/pods/%2e%2e",
        "/api/v1/namespaces/a%2Fb/pods",
        "/api/v1/nodes/n/proxy/..",
    ] {
        let attributes = RequestAttributes {
            is_unknown_caller: true,
            ..RequestAttributes::default()
        };
        let decision = decision_with(url, &attributes);
        let Decision::Reject(status) = decision else {
            panic!("{url}: {decision:?}");
        };
        assert_eq!(status.code, 400, "{url}");
    }
}

/// Requests with an identity, and upgrades other than a WebSocket watch, are forwarded. A cache
/// could answer these requests without the identity or the upgrade.
#[test]
fn identity_and_upgrade_are_forwarded() {
    let (list, watch) = ("/api/v1/pods", "/api/v1/pods?watch=1");
    let upgrade = || RequestAttributes {
        is_upgrade: true,
        ..RequestAttributes::default()
    };
    let websocket = || RequestAttributes {
        is_websocket: true,
        ..upgrade()
    };
    let with_identity = |attributes| RequestAttributes {
        is_unknown_caller: true,
        ..attributes
    };
    let rows = [
        (list, with_identity(upgrade()), Some(Reason::CallerIdentity)),
        (watch, upgrade(), Some(Reason::Upgrade)),
        (watch, websocket(), None),
        (
            watch,
            with_identity(websocket()),
            Some(Reason::CallerIdentity),
        ),
        // A LIST is not served over a WebSocket, only a WATCH is.
        (list, websocket(), Some(Reason::Upgrade)),
    ];
    for (url, attributes, expected) in rows {
        let decision = decision_with(url, &attributes);
        let is_websocket = attributes.is_websocket;
        assert_eq!(reason(&decision), expected, "{url} {is_websocket}");
    }
}

#[test]
fn representations_and_their_caches() {
    use WireFormat::{Json, Protobuf};
    let meta = |format, kind| format!("{format};as={kind};v=v1;g=meta.k8s.io");
    let list_json = meta(JSON, "PartialObjectMetadataList");
    let list_protobuf = meta(PROTOBUF, "PartialObjectMetadataList");
    let object_json = meta(JSON, "PartialObjectMetadata");
    let object_protobuf = meta(PROTOBUF, "PartialObjectMetadata");
    let (list, watch) = ("/api/v1/pods", "/api/v1/pods?watch=1");
    let custom = "/apis/example.com/v1/widgets";
    let custom_watch = "/apis/example.com/v1/widgets?watch=1";
    // Each row: URL, `Accept`, sent by a person's client, then the expected format of the cache,
    // format of the answer, and whether it is indented.
    let rows: [(_, &str, _, _); 11] = [
        (list, JSON, false, (Json, Json, false)),
        (list, JSON, true, (Json, Json, true)),
        (custom, JSON, true, (Json, Json, true)),
        (list, PROTOBUF, true, (Protobuf, Protobuf, false)),
        (list, &list_json, true, (Json, Json, true)),
        (custom, &list_json, false, (Json, Json, false)),
        (list, &list_protobuf, true, (Protobuf, Protobuf, false)),
        (custom, &list_protobuf, true, (Json, Protobuf, false)),
        (
            custom_watch,
            &object_protobuf,
            false,
            (Json, Protobuf, false),
        ),
        // A watch is never indented.
        (watch, JSON, true, (Json, Json, false)),
        (watch, &object_json, true, (Json, Json, false)),
    ];
    for (url, accept, by_people, (source, format, indent)) in rows {
        let attributes = RequestAttributes {
            accept,
            user_agent: if by_people { "curl/8" } else { "kubectl/v1" },
            ..RequestAttributes::default()
        };
        let read = read_with(url, &attributes);
        let found = (
            read.spec.format,
            read.representation.format,
            read.representation.indent,
        );
        assert_eq!(found, (source, format, indent), "{url} {accept}");
    }
    let autoscalers = "/apis/autoscaling/v1/horizontalpodautoscalers";
    let older = "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io";
    for (url, accept, expected) in [
        (list, YAML_TABLE, Some(Reason::Table)),
        (list, TABLE, None),
        ("/api/v1/secrets", TABLE, Some(Reason::Secrets)),
        (list, "application/yaml", Some(Reason::MediaType)),
        (list, "application/cbor", Some(Reason::MediaType)),
        (list, "text/html", Some(Reason::MediaType)),
        (list, older, Some(Reason::PartialMetadata)),
        (autoscalers, &list_json, Some(Reason::PartialMetadata)),
        (autoscalers, JSON, None),
    ] {
        let attributes = RequestAttributes {
            accept,
            ..RequestAttributes::default()
        };
        let decision = decision_with(url, &attributes);
        assert_eq!(reason(&decision), expected, "{url} {accept}");
    }
}

#[test]
fn a_client_that_also_accepts_json_gets_json() {
    let (list, watch) = ("/api/v1/pods", "/api/v1/pods?watch=1");
    let two_tables = format!("{YAML_TABLE},{TABLE}");
    for (url, accept, prefers_other) in [
        (list, "application/cbor, application/json", true),
        (list, "application/cbor, */*;q=0.1", true),
        (list, "application/yaml, application/*;q=0.5", true),
        (list, two_tables.as_str(), true),
        (watch, "application/cbor, application/json", true),
        (list, "application/json, application/cbor", false),
        (list, "application/cbor;q=0.9, application/json", false),
    ] {
        let attributes = RequestAttributes {
            accept,
            ..RequestAttributes::default()
        };
        let read = read_with(url, &attributes);
        let found = (read.representation.format, read.prefers_other_type);
        assert_eq!(found, (WireFormat::Json, prefers_other), "{url} {accept}");
    }
    for (url, accept, expected) in [
        (
            list,
            "application/cbor, application/json;q=0",
            Reason::MediaType,
        ),
        (list, "application/cbor, text/html", Reason::MediaType),
        (
            list,
            "application/yaml, application/json;sv=v2",
            Reason::MediaType,
        ),
        (
            list,
            "application/cbor, application/json;q=0, */*;q=0.5",
            Reason::MediaType,
        ),
        (
            list,
            "application/cbor, application/*;q=0, */*;q=0.1",
            Reason::MediaType,
        ),
        // The kind is that of one object.
        (
            list,
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io, application/json",
            Reason::MediaType,
        ),
        // The API server answers 406: it does not try the next clause.
        (
            watch,
            "application/yaml, application/json",
            Reason::MediaType,
        ),
    ] {
        let attributes = RequestAttributes {
            accept,
            ..RequestAttributes::default()
        };
        let decision = decision_with(url, &attributes);
        assert_eq!(reason(&decision), Some(expected), "{url} {accept}");
    }
}

fn list_of(url: &str) -> (Need, Page) {
    let read = read_of(url);
    match read.plan {
        Plan::List { page, .. } => (read.need, page),
        other => panic!("{url}: {other:?}"),
    }
}

#[test]
fn list_plans() {
    let at = ResourceVersion(7);
    let page = |after: Option<&str>, limit| Page {
        after: after.map(str::to_owned),
        limit,
    };
    let token = |resource_version, start: &str| {
        let start = start.to_owned();
        let token = ContinueToken {
            resource_version,
            start,
        };
        token.encode()
    };
    let rows = [
        (
            "/api/v1/pods?limit=2".to_owned(),
            (Need::MostRecent, page(None, Some(2))),
        ),
        (
            "/api/v1/pods?resourceVersion=0&limit=2".to_owned(),
            (Need::NotOlderThan(ResourceVersion::ZERO), page(None, None)),
        ),
        (
            "/api/v1/pods?resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=2".to_owned(),
            (Need::NotOlderThan(at), page(None, Some(2))),
        ),
        (
            "/api/v1/pods?resourceVersion=7&limit=2".to_owned(),
            (Need::At(at), page(None, Some(2))),
        ),
        (
            format!("/api/v1/pods?continue={}", token(Some(at), "a/b\0")),
            (Need::At(at), page(Some("a/b"), None)),
        ),
        (
            format!(
                "/api/v1/namespaces/a/pods?limit=2&continue={}",
                token(Some(at), "b\0")
            ),
            (Need::At(at), page(Some("a/b"), Some(2))),
        ),
        (
            format!("/api/v1/namespaces/a/pods?continue={}", token(None, "b\0")),
            (Need::MostRecent, page(Some("a/b"), None)),
        ),
        // The API server's token for the second page of one namespace has no namespace.
        (
            format!(
                "/api/v1/pods?fieldSelector=metadata.namespace=a&continue={}",
                token(Some(at), "b\0")
            ),
            (Need::At(at), page(Some("a/b"), None)),
        ),
        (
            format!(
                "/api/v1/pods?fieldSelector=metadata.namespace=a&continue={}",
                token(Some(at), "a/b\0")
            ),
            (Need::At(at), page(Some("a/b"), None)),
        ),
    ];
    for (url, expected) in rows {
        assert_eq!(list_of(&url), expected, "{url}");
    }
    let foreign_token_url = format!("/api/v1/pods?continue={}", token(Some(at), "a/b"));
    let decision = decision_for(&foreign_token_url);
    assert_eq!(reason(&decision), Some(Reason::PastState));
}

#[test]
fn watch_plans() {
    let seven = ResourceVersion(7);
    let any = Need::NotOlderThan(ResourceVersion::ZERO);
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let none = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let rows = [
        (String::new(), (Need::MostRecent, WatchFrom::Snapshot)),
        (
            format!("{initial}&resourceVersion=0"),
            (any, WatchFrom::Snapshot),
        ),
        (
            format!("{initial}&resourceVersion=7"),
            (Need::NotOlderThan(seven), WatchFrom::Snapshot),
        ),
        (
            "resourceVersion=7".to_owned(),
            (any, WatchFrom::After(seven)),
        ),
        (none.to_owned(), (Need::MostRecent, WatchFrom::Tip)),
        (format!("{none}&resourceVersion=0"), (any, WatchFrom::Tip)),
    ];
    for (query, expected) in rows {
        let read = read_of(&format!("/api/v1/pods?watch=1&{query}"));
        let Plan::Watch { from, .. } = read.plan else {
            panic!("{query}: {:?}", read.plan);
        };
        assert_eq!((read.need, from), expected, "{query}");
    }
}

#[test]
fn selectors_are_kept_as_the_client_wrote_them() {
    let url = "/api/v1/namespaces/a/pods?labelSelector=b,a&fieldSelector=metadata.name!=x";
    let Plan::List { proof_request, .. } = read_of(url).plan else {
        panic!("the plan is not a list");
    };
    assert_eq!(proof_request.scope.namespace.as_deref(), Some("a"));
    assert_eq!(proof_request.scope.label_selector, "b,a");
    assert_eq!(proof_request.scope.field_selector, "metadata.name!=x");
    assert_eq!(proof_request.selection.labels.to_string(), "a,b");
}

/// Each row: a URL with the parameter `shardSelector`, and what is decided if kubefan forwards or
/// serves it.
#[test]
fn shards_are_forwarded_or_served() {
    let shard = "shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')";
    let decisions = |method: &Method, url: &str| {
        [ShardSelectors::Forward, ShardSelectors::Serve].map(|shard_selectors| {
            let attributes = RequestAttributes {
                method: method.clone(),
                shard_selectors,
                ..RequestAttributes::default()
            };
            match decision_with(url, &attributes) {
                Decision::Forward(reason) => reason.name().to_owned(),
                Decision::Reject(status) => status.code.to_string(),
                Decision::RejectAuthorized(_, status) => format!("{} if allowed", status.code),
                Decision::Read(read) => match read.plan {
                    Plan::Get { .. } => "get".to_owned(),
                    Plan::List {
                        selection,
                        proof_request,
                        ..
                    }
                    | Plan::Watch {
                        selection,
                        proof_request,
                        ..
                    } => {
                        assert_eq!(proof_request.selection.shard, None);
                        let shard = selection.shard.as_ref().map(ToString::to_string);
                        shard.unwrap_or_else(|| "all".to_owned())
                    }
                },
            }
        })
    };
    let served = shard.replace(',', ", ");
    let (served, forwarded) = (served.as_str(), "shard_selector");
    let (pods, get, delete) = ("/api/v1/pods", Method::GET, Method::DELETE);
    for (method, url, expected) in [
        (
            &get,
            format!("{pods}?shardSelector={shard}"),
            [forwarded, served],
        ),
        (
            &get,
            format!("{pods}?watch=1&shardSelector={shard}"),
            [forwarded, served],
        ),
        (
            &get,
            format!("{pods}?%73hardSelector={shard}"),
            [forwarded, served],
        ),
        (
            &get,
            format!("{pods}?shardSelector=&shardSelector={shard}"),
            ["all", "all"],
        ),
        (
            &get,
            format!("{pods}?shardselector={shard}"),
            ["all", "all"],
        ),
        (
            &get,
            format!("{pods}?shardSelector=object()"),
            [forwarded, "500 if allowed"],
        ),
        (
            &get,
            format!("{pods}?shardSelector=%20"),
            [forwarded, "500 if allowed"],
        ),
        // The API server may read it, and then ignore it.
        (
            &get,
            format!("{pods}?shardSelector={}", shard.replace("'0x0", "'\\x30x0")),
            [forwarded, "429 if allowed"],
        ),
        // Other errors come first, as at the API server.
        (
            &get,
            format!("{pods}?limit=x&shardSelector=x"),
            ["malformed", "malformed"],
        ),
        (
            &get,
            format!("/api/v1/secrets?shardSelector={shard}"),
            ["secrets", "secrets"],
        ),
        (
            &get,
            format!("/api/v1/watch/pods?shardSelector={shard}"),
            ["deprecated_path", "deprecated_path"],
        ),
        // Other requests have no such parameter.
        (
            &get,
            format!("/api/v1/namespaces/a/pods/b?shardSelector={shard}"),
            ["get", "get"],
        ),
        (
            &Method::POST,
            format!("/api/v1/namespaces/a/pods?shardSelector={shard}"),
            ["not_get", "not_get"],
        ),
        (
            &delete,
            format!("/api/v1/namespaces/a/pods?shardSelector={shard}"),
            ["not_get", "400"],
        ),
        (
            &delete,
            format!("/api/v1/namespaces/a/pods/b?shardSelector={shard}"),
            ["not_get", "not_get"],
        ),
    ] {
        assert_eq!(decisions(method, &url), expected, "{method} {url}");
    }
}

#[test]
fn get_plans_and_deadlines() {
    let seven = ResourceVersion(7);
    let path = "/api/v1/namespaces/a/pods/b";
    for (query, need, seconds) in [
        ("", Need::MostRecent, None),
        (
            "resourceVersion=0",
            Need::NotOlderThan(ResourceVersion::ZERO),
            None,
        ),
        (
            "resourceVersion=7&timeout=5s",
            Need::NotOlderThan(seven),
            Some(5),
        ),
    ] {
        let read = read_of(&format!("{path}?{query}"));
        assert_eq!(read.need, need, "{query}");
        assert_eq!(read.timeout, seconds.map(Duration::from_secs), "{query}");
        let is_watch = matches!(read.plan, Plan::Watch { .. });
        for limit in [1, 60] {
            // The client can only shorten the time.
            let expected = (!is_watch).then(|| seconds.unwrap_or(limit).min(limit));
            let time_to_head = read.time_to_head(Duration::from_secs(limit));
            assert_eq!(time_to_head, expected.map(Duration::from_secs), "{query}");
        }
        assert_eq!(read.namespace.as_deref(), Some("a"));
        let name = "b".to_owned();
        let is_in_scope = true;
        assert_eq!(read.plan, Plan::Get { name, is_in_scope });
    }
}

#[test]
fn a_table_has_the_object_that_the_query_asks_for() {
    use kubefan_core::codec::{IncludeObject, MetaVersion, View};
    let older = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    for (url, accept, version, include) in [
        (
            "/api/v1/pods",
            TABLE,
            MetaVersion::V1,
            IncludeObject::Metadata,
        ),
        (
            "/api/v1/pods?includeObject=None",
            TABLE,
            MetaVersion::V1,
            IncludeObject::None,
        ),
        (
            "/api/v1/namespaces/a/pods/b?resourceVersion=0&includeObject=Object",
            older,
            MetaVersion::V1Beta1,
            IncludeObject::Object,
        ),
        (
            "/api/v1/pods?watch=1&includeObject=",
            older,
            MetaVersion::V1Beta1,
            IncludeObject::Metadata,
        ),
    ] {
        let attributes = RequestAttributes {
            accept,
            ..RequestAttributes::default()
        };
        let read = read_with(url, &attributes);
        assert_eq!(
            read.representation.view,
            View::Table(version, include),
            "{url}"
        );
        assert_eq!(read.spec.format, WireFormat::Json);
    }
    let attributes = RequestAttributes {
        accept: TABLE,
        ..RequestAttributes::default()
    };
    let url = "/api/v1/pods?includeObject=none";
    let decision = decision_with(url, &attributes);
    assert_eq!(reason(&decision), Some(Reason::Malformed));
}

/// Returns the settings of pods with a rule of these namespaces and selectors.
fn settings_of(namespaces: &[&str], labels: &str, fields: &str) -> Arc<CacheSettings> {
    let rule = ResourceRule {
        resource: "pods".to_owned(),
        namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        labels: LabelSelector::parse(labels).expect("a selector"),
        fields: RawFieldSelector::parse(fields).expect("a selector"),
        ..ResourceRule::default()
    };
    let gvr = GroupVersionResource::new("", "v1", "pods");
    let spec = Cluster::default().spec(&gvr);
    let spec = spec.expect("pods are known");
    let settings = rule.settings(&spec.resource, &spec.fields);
    Arc::new(settings.expect("the rule fits"))
}

/// Each row: namespaces and selectors of a rule for pods, a request, and the objects of the cache
/// that answers it, or the reason why it is forwarded.
#[test]
fn a_cache_of_some_objects_answers_only_what_it_has() {
    type Rule<'a> = (&'a [&'a str], &'a str, &'a str);
    let of_node: Rule<'_> = (&[], "", "metadata.name=p");
    let of_web: Rule<'_> = (&[], "app in (a,b)", "");
    let of_two: Rule<'_> = (&["a", "b"], "", "");
    let of_both: Rule<'_> = (&["a", "b"], "app=x", "");
    let out = Err("out_of_scope");
    for (rule, url, expected) in [
        // Everything is cached.
        ((&[][..], "", ""), "/api/v1/pods", Ok("")),
        (
            (&[], "", ""),
            "/api/v1/namespaces/a/pods?labelSelector=app",
            Ok(""),
        ),
        // A field.
        (of_node, "/api/v1/pods", out),
        (of_node, "/api/v1/pods?watch=1", out),
        (of_node, "/api/v1/namespaces/a/pods", out),
        (
            of_node,
            "/api/v1/pods?fieldSelector=metadata.name%3Dp",
            Ok("fields metadata.name=p"),
        ),
        (
            of_node,
            "/api/v1/pods?fieldSelector=metadata.name%3D%3Dp,metadata.namespace!%3Dx",
            Ok("fields metadata.name=p"),
        ),
        (
            of_node,
            "/api/v1/namespaces/a/pods?watch=1&fieldSelector=metadata.name%3Dp",
            Ok("fields metadata.name=p"),
        ),
        (of_node, "/api/v1/pods?fieldSelector=metadata.name%3Dq", out),
        (
            of_node,
            "/api/v1/pods?fieldSelector=metadata.name!%3Dq",
            out,
        ),
        (
            of_node,
            "/api/v1/namespaces/a/pods/p?resourceVersion=0",
            Ok("fields metadata.name=p, every"),
        ),
        (
            of_node,
            "/api/v1/namespaces/a/pods/q?resourceVersion=0",
            Ok("fields metadata.name=p"),
        ),
        // Labels.
        (
            of_web,
            "/api/v1/pods?labelSelector=app%3Da",
            Ok("labels app in (a,b)"),
        ),
        (
            of_web,
            "/api/v1/pods?labelSelector=app%20in%20(b,a),tier",
            Ok("labels app in (a,b)"),
        ),
        (of_web, "/api/v1/pods?labelSelector=app", out),
        (of_web, "/api/v1/pods?labelSelector=app%20in%20(a,c)", out),
        (of_web, "/api/v1/pods?labelSelector=app!%3Da", out),
        (
            of_web,
            "/api/v1/namespaces/a/pods/p?resourceVersion=0",
            Ok("labels app in (a,b)"),
        ),
        // Namespaces.
        (of_two, "/api/v1/pods", out),
        (of_two, "/api/v1/namespaces/a/pods", Ok("in a")),
        (
            of_two,
            "/api/v1/namespaces/b/pods?watch=1&labelSelector=app",
            Ok("in b"),
        ),
        (of_two, "/api/v1/namespaces/c/pods", out),
        (
            of_two,
            "/api/v1/pods?fieldSelector=metadata.namespace%3Db",
            Ok("in b"),
        ),
        (
            of_two,
            "/api/v1/namespaces/a/pods/p?resourceVersion=0",
            Ok("in a, every"),
        ),
        (of_two, "/api/v1/namespaces/c/pods/p?resourceVersion=0", out),
        // Both.
        (
            of_both,
            "/api/v1/namespaces/a/pods?labelSelector=app%3Dx",
            Ok("in a, labels app=x"),
        ),
        (of_both, "/api/v1/namespaces/a/pods", out),
        (
            of_both,
            "/api/v1/namespaces/c/pods?labelSelector=app%3Dx",
            out,
        ),
        (
            of_both,
            "/api/v1/namespaces/b/pods/p?resourceVersion=0",
            Ok("in b, labels app=x"),
        ),
    ] {
        let (namespaces, labels, fields) = rule;
        let cluster = Cluster {
            settings: settings_of(namespaces, labels, fields),
        };
        let found = match decision_in(&cluster, url, &RequestAttributes::default()) {
            Decision::Read(read) => {
                let scope = read.spec.upstream_scope(&read.scope).to_string();
                Ok(match read.plan {
                    Plan::Get { is_in_scope, .. } if is_in_scope => format!("{scope}, every"),
                    _ => scope,
                })
            }
            other => Err(reason(&other).expect("it is forwarded").name()),
        };
        assert_eq!(
            found.as_deref(),
            expected.as_ref().map(|text| *text),
            "{rule:?} {url}"
        );
    }
}

#[test]
fn a_shard_of_what_is_cached_is_read_and_any_other_is_forwarded() {
    let shard =
        "shardSelector=shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')";
    let cluster = Cluster {
        settings: settings_of(&["a"], "", ""),
    };
    let attributes = RequestAttributes {
        shard_selectors: ShardSelectors::Serve,
        ..RequestAttributes::default()
    };
    for (path, expected) in [
        ("/api/v1/namespaces/a/pods", None),
        ("/api/v1/pods", Some(Reason::OutOfScope)),
    ] {
        let found = decision_in(&cluster, &format!("{path}?{shard}"), &attributes);
        assert_eq!(reason(&found), expected, "{path}");
    }
}
