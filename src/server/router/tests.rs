use super::*;
use crate::api::ContinueToken;
use crate::codec::MetaVersion;

fn decide(method: &Method, path_and_query: &str, negotiated: Negotiated) -> Result<Read, Reason> {
    let (path, query) = path_and_query
        .split_once('?')
        .unwrap_or((path_and_query, ""));
    read(&Facts {
        method,
        info: &RequestInfo::parse(method, path, query),
        negotiated,
        is_upgrade: false,
        is_websocket: false,
        has_identity: false,
        is_pretty: false,
        is_custom: false,
    })
}

fn plain(verb: Verb, format: WireFormat) -> Read {
    Read {
        verb,
        source: format,
        representation: Representation::plain(format),
    }
}

#[test]
fn reads_and_what_is_none() {
    const JSON: Negotiated = Negotiated::Plain(WireFormat::Json, false);
    const PROTOBUF: Negotiated = Negotiated::Plain(WireFormat::Protobuf, false);
    let of = |verb, format| Ok(plain(verb, format));
    let json = WireFormat::Json;
    let rows = [
        (Method::GET, "/api/v1/pods", JSON, of(Verb::List, json)),
        (
            Method::GET,
            "/api/v1/pods",
            PROTOBUF,
            of(Verb::List, WireFormat::Protobuf),
        ),
        (
            Method::GET,
            "/api/v1/pods?watch=1",
            JSON,
            of(Verb::Watch, json),
        ),
        (
            Method::GET,
            "/api/v1/pods?watch=false",
            JSON,
            of(Verb::List, json),
        ),
        (
            Method::GET,
            "/apis/apps/v1/namespaces/a/deployments/b",
            JSON,
            of(Verb::Get, json),
        ),
        (
            Method::GET,
            "/api/v1/namespaces/a/pods/b?watch=true",
            JSON,
            of(Verb::Get, json),
        ),
        (
            Method::GET,
            "/api/v1/namespaces/a",
            JSON,
            of(Verb::Get, json),
        ),
        (Method::HEAD, "/api/v1/pods", JSON, Err(Reason::NotGet)),
        (
            Method::POST,
            "/api/v1/namespaces/a/pods",
            JSON,
            Err(Reason::NotGet),
        ),
        (
            Method::DELETE,
            "/api/v1/namespaces/a/pods",
            JSON,
            Err(Reason::NotGet),
        ),
        (Method::GET, "/version", JSON, Err(Reason::NonResource)),
        (Method::GET, "/apis/apps/v1", JSON, Err(Reason::NonResource)),
        (Method::GET, "/openapi/v3", JSON, Err(Reason::NonResource)),
        (
            Method::GET,
            "/api/v1/namespaces/a/pods/b/log",
            JSON,
            Err(Reason::Subresource),
        ),
        (
            Method::GET,
            "/api/v1/namespaces/a/status",
            JSON,
            Err(Reason::Subresource),
        ),
        (
            Method::GET,
            "/api/v1/watch/pods",
            JSON,
            of(Verb::Watch, json),
        ),
        (
            Method::GET,
            "/api/v1/watch/namespaces/a",
            PROTOBUF,
            of(Verb::Watch, WireFormat::Protobuf),
        ),
        (
            Method::GET,
            "/apis/apps/v1/watch/namespaces/a/deployments/b",
            JSON,
            of(Verb::Watch, json),
        ),
        (
            Method::GET,
            "/api/v1/watch/namespaces/a/pods/b/status",
            JSON,
            Err(Reason::Subresource),
        ),
        (Method::GET, "/api/v1/watch", JSON, Err(Reason::NonResource)),
        (
            Method::POST,
            "/api/v1/watch/pods",
            JSON,
            Err(Reason::NotGet),
        ),
        (
            Method::GET,
            "/api/v1/proxy/namespaces/a/pods/b/c",
            JSON,
            Err(Reason::DeprecatedPath),
        ),
        (
            Method::GET,
            "/api/v1/pods",
            Negotiated::Table,
            Err(Reason::Table),
        ),
        (
            Method::GET,
            "/apis/autoscaling/v1/horizontalpodautoscalers",
            Negotiated::PartialObjectMetadata(json, MetaVersion::V1, false),
            Err(Reason::PartialMetadata),
        ),
        (
            Method::GET,
            "/apis/autoscaling/v1/horizontalpodautoscalers",
            JSON,
            of(Verb::List, json),
        ),
        (
            Method::GET,
            "/api/v1/pods",
            Negotiated::Yaml,
            Err(Reason::MediaType),
        ),
        (
            Method::GET,
            "/api/v1/pods",
            Negotiated::Other,
            Err(Reason::MediaType),
        ),
        (
            Method::GET,
            "/api/v1/pods",
            Negotiated::NotAcceptable,
            Err(Reason::MediaType),
        ),
    ];
    for (method, path, negotiated, expected) in rows {
        let decided = decide(&method, path, negotiated);
        assert_eq!(decided, expected, "{method} {path} {negotiated:?}");
    }
}

/// What must never be answered from a cache, however cacheable the rest of the request is.
#[test]
fn identity_and_upgrade_are_forwarded() {
    let method = Method::GET;
    let list = RequestInfo::parse(&method, "/api/v1/pods", "");
    let watch = RequestInfo::parse(&method, "/api/v1/pods", "watch=1");
    let deprecated = RequestInfo::parse(&method, "/api/v1/watch/pods", "");
    let watched = Ok(plain(Verb::Watch, WireFormat::Json));
    let facts = Facts {
        method: &method,
        info: &list,
        negotiated: Negotiated::Plain(WireFormat::Json, false),
        is_upgrade: false,
        is_websocket: false,
        has_identity: false,
        is_pretty: false,
        is_custom: false,
    };
    let rows = [
        (
            Facts {
                has_identity: true,
                is_upgrade: true,
                ..facts
            },
            Err(Reason::CallerIdentity),
        ),
        (
            Facts {
                is_upgrade: true,
                info: &watch,
                ..facts
            },
            Err(Reason::Upgrade),
        ),
        // A watch is never indented.
        (
            Facts {
                is_pretty: true,
                info: &watch,
                ..facts
            },
            watched,
        ),
        (
            Facts {
                is_upgrade: true,
                is_websocket: true,
                info: &watch,
                ..facts
            },
            watched,
        ),
        (
            Facts {
                is_upgrade: true,
                is_websocket: true,
                has_identity: true,
                info: &watch,
                ..facts
            },
            Err(Reason::CallerIdentity),
        ),
        // Only watches are given over WebSockets.
        (
            Facts {
                is_upgrade: true,
                is_websocket: true,
                ..facts
            },
            Err(Reason::Upgrade),
        ),
        (
            Facts {
                info: &deprecated,
                ..facts
            },
            watched,
        ),
    ];
    for (facts, expected) in rows {
        assert_eq!(read(&facts), expected, "{facts:?}");
    }
}

#[test]
fn representations_and_their_caches() {
    use WireFormat::Json;
    use WireFormat::Protobuf;
    let method = Method::GET;
    let info = |query| RequestInfo::parse(&method, "/api/v1/pods", query);
    let (list, watch) = (info(""), info("watch=1"));
    let whole = |format| Negotiated::Plain(format, false);
    let partial = |format| Negotiated::PartialObjectMetadata(format, MetaVersion::V1, false);
    // (asked for, by people?, of a custom resource?) -> (the cache's format, indented?)
    let rows = [
        (&list, whole(Json), false, false, (Json, false)),
        (&list, whole(Json), true, false, (Json, true)),
        (&list, whole(Json), true, true, (Json, true)),
        (&list, whole(Protobuf), true, false, (Protobuf, false)),
        (&list, partial(Json), false, false, (Json, false)),
        (&list, partial(Json), true, false, (Json, true)),
        (&list, partial(Json), false, true, (Json, false)),
        (&list, partial(Protobuf), true, false, (Protobuf, false)),
        (&list, partial(Protobuf), true, true, (Json, false)),
        (&watch, partial(Protobuf), false, true, (Json, false)),
        // A watch is never indented.
        (&watch, whole(Json), true, false, (Json, false)),
        (&watch, partial(Json), true, false, (Json, false)),
    ];
    for (info, negotiated, is_pretty, is_custom, (source, indent)) in rows {
        let facts = Facts {
            method: &method,
            info,
            negotiated,
            is_upgrade: false,
            is_websocket: false,
            has_identity: false,
            is_pretty,
            is_custom,
        };
        let expected = Read {
            verb: if info.verb == "watch" {
                Verb::Watch
            } else {
                Verb::List
            },
            source,
            representation: Representation {
                indent,
                ..negotiated.representation().expect("an answerable one")
            },
        };
        assert_eq!(read(&facts), Ok(expected), "{facts:?}");
    }
}

#[test]
fn list_plans() {
    let at = ResourceVersion(7);
    let limited = Page {
        after: None,
        limit: Some(2),
    };
    let token = |resource_version, start: &str| ContinueToken {
        resource_version,
        start: start.to_owned(),
    };
    let page_of = |token| ListRequest::Continue {
        token,
        limit: Some(2),
    };
    let after = |key: &str| Page {
        after: Some(key.to_owned()),
        limit: Some(2),
    };
    let rows = [
        (
            ListRequest::MostRecent { limit: Some(2) },
            None,
            ListPlan::MostRecent(Page {
                after: None,
                limit: Some(2),
            }),
        ),
        (
            ListRequest::Any,
            None,
            ListPlan::NotOlderThan(ResourceVersion::ZERO, Page::default()),
        ),
        (
            ListRequest::NotOlderThan {
                resource_version: at,
                limit: Some(2),
            },
            None,
            ListPlan::NotOlderThan(at, limited.clone()),
        ),
        (
            ListRequest::Exact {
                resource_version: at,
                limit: Some(2),
            },
            None,
            ListPlan::At(at, limited),
        ),
        (
            page_of(token(Some(at), "a/b\0")),
            None,
            ListPlan::At(at, after("a/b")),
        ),
        (
            page_of(token(Some(at), "b\0")),
            Some("a"),
            ListPlan::At(at, after("a/b")),
        ),
        (
            page_of(token(None, "b\0")),
            Some("a"),
            ListPlan::MostRecent(after("a/b")),
        ),
        (
            page_of(token(Some(at), "b")),
            Some("a"),
            ListPlan::Forward(Reason::PastState),
        ),
    ];
    for (request, namespace, expected) in rows {
        let text = format!("{request:?} in {namespace:?}");
        assert_eq!(plan_list(request, namespace), expected, "{text}");
    }
}

#[test]
fn watch_plans() {
    let seven = ResourceVersion(7);
    let any = ResourceVersion::ZERO;
    let stream = |from, not_older_than| WatchPlan::Stream {
        from,
        not_older_than,
    };
    let rows = [
        (
            WatchStart::InitialEvents(Consistency::MostRecent),
            WatchPlan::MostRecent {
                initial_events: true,
            },
        ),
        (
            WatchStart::InitialEvents(Consistency::Any),
            stream(WatchFrom::Snapshot, any),
        ),
        (
            WatchStart::InitialEvents(Consistency::NotOlderThan(seven)),
            stream(WatchFrom::Snapshot, seven),
        ),
        // One that lies in the future waits in the stream, as the API server's does.
        (
            WatchStart::After(seven),
            stream(WatchFrom::After(seven), any),
        ),
        (
            WatchStart::FromMostRecent,
            WatchPlan::MostRecent {
                initial_events: false,
            },
        ),
        (WatchStart::FromAny, stream(WatchFrom::Tip, any)),
    ];
    for (start, expected) in rows {
        assert_eq!(plan_watch(start), expected, "{start:?}");
    }
}

#[test]
fn get_plans_and_bounds() {
    assert_eq!(plan_get(Consistency::MostRecent), Err(Reason::Consistent));
    assert_eq!(plan_get(Consistency::Any), Ok(ResourceVersion::ZERO));
    let seven = ResourceVersion(7);
    assert_eq!(plan_get(Consistency::NotOlderThan(seven)), Ok(seven));
    assert_eq!(not_older_than(seven, seven), Ok(()));
    assert_eq!(
        not_older_than(ResourceVersion(8), seven),
        Err(Reason::AheadOfCache)
    );
}
