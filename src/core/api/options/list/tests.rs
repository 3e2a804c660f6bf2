//! Table tests of the options of LIST and WATCH; each row is the API server's behaviour.

use std::time::Duration;

use proptest::prelude::*;

use super::{ListOptions, ListRequest, WatchRequest, WatchStart};
use crate::api::{Consistency, ContinueToken, Malformed, ResourceVersion, SelectableFields};

const N: ResourceVersion = ResourceVersion(7);

fn list(query: &str) -> Result<ListRequest, Malformed> {
    ListOptions::parse(query)?.validate_list()
}

fn watch(query: &str) -> Result<WatchRequest, Malformed> {
    ListOptions::parse(&format!("watch=1&{query}"))?.validate_watch()
}

fn continued() -> (String, ContinueToken) {
    let token = ContinueToken {
        resource_version: Some(N),
        start: "b\0".to_owned(),
    };
    (token.encode(), token)
}

#[test]
fn decodes_parameters() {
    let options = ListOptions::parse(
        "labelSelector=a%3Db&fieldSelector=metadata.name%3Dp&watch&allowWatchBookmarks=TRUE&\
         sendInitialEvents=0&resourceVersion=7&resourceVersionMatch=Exact&continue=T&limit=5&\
         timeoutSeconds=-1&pretty=1&limit=6&unknown=x&Limit=7",
    )
    .expect("is well-formed");
    assert_eq!(options.labels.to_string(), "a=b");
    assert_eq!(options.fields.to_string(), "metadata.name=p");
    assert!(options.watch && options.allow_watch_bookmarks);
    assert_eq!(options.send_initial_events, Some(false));
    assert_eq!(options.resource_version, "7");
    assert_eq!(options.resource_version_match, "Exact");
    assert_eq!(options.continue_token, "T");
    assert_eq!((options.limit, options.timeout_seconds), (5, Some(-1)));
    assert_eq!(options.pretty, Some(true));
    assert_eq!(ListOptions::parse(""), Ok(ListOptions::default()));
}

#[test]
fn refuses_malformed_parameters() {
    for (query, message) in [
        ("limit=abc", r#"limit: "abc" is not a whole number"#),
        ("limit=", r#"limit: "" is not a whole number"#),
        (
            "timeoutSeconds=1.5",
            r#"timeoutSeconds: "1.5" is not a whole number"#,
        ),
    ] {
        let malformed = ListOptions::parse(query).expect_err(query);
        assert_eq!(malformed.to_string(), message);
    }
    for (query, parameter) in [
        ("labelSelector=,", "labelSelector"),
        ("fieldSelector=foo", "fieldSelector"),
    ] {
        let malformed = ListOptions::parse(query).expect_err(query);
        assert_eq!(malformed.parameter, parameter, "{query}");
    }
}

#[test]
fn reads_list_requests() {
    let (text, token) = continued();
    let not_older = |limit| ListRequest::NotOlderThan {
        resource_version: N,
        limit,
    };
    let exact = |limit| ListRequest::Exact {
        resource_version: N,
        limit,
    };
    let next = |limit| ListRequest::Continue {
        token: token.clone(),
        limit,
    };
    for (query, expected) in [
        ("", ListRequest::MostRecent { limit: None }),
        ("limit=5", ListRequest::MostRecent { limit: Some(5) }),
        ("limit=-1", ListRequest::MostRecent { limit: None }),
        ("limit=0", ListRequest::MostRecent { limit: None }),
        ("resourceVersion=0", ListRequest::Any { limit: None }),
        (
            "resourceVersion=0&limit=5",
            ListRequest::Any { limit: Some(5) },
        ),
        ("resourceVersion=7", not_older(None)),
        ("resourceVersion=7&limit=-1", not_older(None)),
        ("resourceVersion=7&limit=5", exact(Some(5))),
        (
            "resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=5",
            ListRequest::Any { limit: Some(5) },
        ),
        (
            "resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=5",
            not_older(Some(5)),
        ),
        ("resourceVersion=7&resourceVersionMatch=Exact", exact(None)),
        (
            "resourceVersion=7&resourceVersionMatch=Exact&limit=5",
            exact(Some(5)),
        ),
        (&format!("continue={text}"), next(None)),
        (
            &format!("continue={text}&resourceVersion=0&limit=5"),
            next(Some(5)),
        ),
    ] {
        assert_eq!(list(query), Ok(expected), "{query}");
    }
}

#[test]
fn refuses_invalid_list_options() {
    let (text, _) = continued();
    for (query, parameter) in [
        ("resourceVersion=abc", "resourceVersion"),
        (
            "resourceVersion=-1&resourceVersionMatch=Exact",
            "resourceVersion",
        ),
        ("resourceVersion=%2B1", "resourceVersion"),
        (
            &format!("continue={text}&resourceVersion=5"),
            "resourceVersion",
        ),
        ("continue=garbage", "continue"),
        ("resourceVersionMatch=Exact", "resourceVersionMatch"),
        (
            "resourceVersion=0&resourceVersionMatch=NotOlderThan&continue=abc",
            "resourceVersionMatch",
        ),
        (
            "resourceVersion=7&resourceVersionMatch=Foo",
            "resourceVersionMatch",
        ),
        (
            "resourceVersionMatch=Foo&continue=abc",
            "resourceVersionMatch",
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersionMatch",
        ),
        (
            "resourceVersion=1&resourceVersionMatch=exact",
            "resourceVersionMatch",
        ),
        ("sendInitialEvents=false", "sendInitialEvents"),
        (
            "sendInitialEvents&resourceVersionMatch=NotOlderThan",
            "sendInitialEvents",
        ),
    ] {
        let malformed = list(query).expect_err(query);
        assert_eq!(malformed.parameter, parameter, "{query}: {malformed}");
    }
}

#[test]
fn refuses_invalid_watch_options() {
    for query in [
        "sendInitialEvents=0",
        "sendInitialEvents=1&resourceVersionMatch=Exact&resourceVersion=abc",
        "sendInitialEvents=1&resourceVersionMatch=NotOlderThan&continue=x",
        "resourceVersionMatch=NotOlderThan&resourceVersion=7",
        "resourceVersionMatch=Exact&continue=x",
        "continue=zzz",
        "resourceVersion=0&continue=zzz",
    ] {
        let malformed = watch(query).expect_err(query);
        assert_eq!(malformed.parameter, "resourceVersionMatch", "{query}");
    }
    let malformed = watch("resourceVersion=abc").expect_err("not a number");
    assert_eq!(malformed.parameter, "resourceVersion");
}

#[test]
fn reads_watch_starts() {
    use WatchStart::{After, FromAny, FromMostRecent, InitialEvents};
    let (any, recent) = (Consistency::Any, Consistency::MostRecent);
    for (query, start, has_end) in [
        ("", InitialEvents(recent), true),
        ("resourceVersion=0", InitialEvents(any), true),
        ("resourceVersion=7", After(N), false),
        ("resourceVersion=7&continue=zzz&limit=3", After(N), false),
        ("resourceVersion=00", InitialEvents(any), false),
        (
            "sendInitialEvents=1&resourceVersionMatch=NotOlderThan",
            InitialEvents(recent),
            true,
        ),
        (
            "sendInitialEvents=1&resourceVersionMatch=NotOlderThan&resourceVersion=0",
            InitialEvents(any),
            true,
        ),
        (
            "sendInitialEvents=1&resourceVersionMatch=NotOlderThan&resourceVersion=7",
            InitialEvents(Consistency::NotOlderThan(N)),
            true,
        ),
        (
            "sendInitialEvents=0&resourceVersionMatch=NotOlderThan",
            FromMostRecent,
            false,
        ),
        (
            "sendInitialEvents=0&resourceVersionMatch=NotOlderThan&resourceVersion=0",
            FromAny,
            false,
        ),
        (
            "sendInitialEvents=0&resourceVersionMatch=NotOlderThan&resourceVersion=7",
            After(N),
            false,
        ),
    ] {
        for allow_bookmarks in [false, true] {
            let query = if allow_bookmarks {
                format!("{query}&allowWatchBookmarks=1")
            } else {
                query.to_owned()
            };
            let expected = WatchRequest {
                start,
                allow_bookmarks,
                initial_events_end: has_end && allow_bookmarks,
                timeout: None,
            };
            assert_eq!(watch(&query), Ok(expected), "{query}");
        }
    }
}

#[test]
fn reads_the_timeout_of_a_watch() {
    for (query, timeout) in [
        ("", None),
        ("timeoutSeconds=0", None),
        ("timeoutSeconds=4", Some(Duration::from_secs(4))),
        ("timeoutSeconds=-1", Some(Duration::ZERO)),
        ("timeoutSeconds=9223372036854775807", Some(Duration::ZERO)),
        ("timeoutSeconds=-9223372036854775808", None),
    ] {
        assert_eq!(
            watch(query).map(|request| request.timeout),
            Ok(timeout),
            "{query}"
        );
    }
}

#[test]
fn finds_the_selection() {
    let fields = SelectableFields::default();
    let select = |query| {
        let options = ListOptions::parse(query).expect("is well-formed");
        options.selection(Some("x"), &fields)
    };
    let selection = select("labelSelector=a").expect("is supported");
    assert_eq!(selection.namespace.as_deref(), Some("x"));
    assert_eq!(selection.labels.to_string(), "a");
    assert!(selection.fields.terms.is_empty());
    let selection = select("fieldSelector=metadata.name%3Dp").expect("is supported");
    assert_eq!(selection.name(), Some("p"));
    let unknown = select("fieldSelector=foo%3Dbar").expect_err("is not supported");
    assert_eq!(unknown.parameter, "fieldSelector");
}

proptest! {
    #[test]
    fn never_panics(
        text in ".*",
        near in "((limit|continue|resourceVersion|resourceVersionMatch|sendInitialEvents|timeoutSeconds|watch|timeout|pretty|labelSelector|fieldSelector)=(Exact|NotOlderThan|0|7|-9|\\PC{0,4}|99999999999999999999|%3D|9223372036854775807)&){0,6}",
    ) {
        for query in [text, near] {
            let split = super::Query::parse(&query);
            let timeout = crate::api::request_timeout(&split);
            prop_assert!(timeout.is_ok() || split.first("timeout").is_some());
            let get = crate::api::GetOptions::parse(&query);
            prop_assert!(get.is_ok() || split.first("resourceVersion").is_some() || split.first("export").is_some());
            if let Ok(options) = ListOptions::parse(&query) {
                let _ = (options.validate_list(), options.validate_watch());
            }
        }
    }
}
