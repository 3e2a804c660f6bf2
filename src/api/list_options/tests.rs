//! Table tests of LIST and WATCH options, row by row as the API server behaves.

use std::time::Duration;

use proptest::prelude::*;

use super::ListOptions;
use super::ListRequest;
use super::WatchRequest;
use super::WatchStart;
use crate::api::Consistency;
use crate::api::ContinueToken;
use crate::api::Field;
use crate::api::FieldSelector;
use crate::api::ResourceVersion;
use crate::api::SelectableFields;
use crate::api::Status;
use crate::api::StatusCause;

const N: ResourceVersion = ResourceVersion(7);

fn list(query: &str) -> Result<ListRequest, Status> {
    ListOptions::parse(query)?.validate_list()
}

fn watch(query: &str) -> Result<WatchRequest, Status> {
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
        (
            "limit=abc",
            r#"strconv.ParseInt: parsing "abc": invalid syntax"#,
        ),
        ("limit=", r#"strconv.ParseInt: parsing "": invalid syntax"#),
        (
            "timeoutSeconds=abc",
            r#"strconv.ParseInt: parsing "abc": invalid syntax"#,
        ),
        (
            "limit=a&timeoutSeconds=b",
            r#"strconv.ParseInt: parsing "b": invalid syntax"#,
        ),
        (
            "labelSelector=,&limit=a",
            r#"strconv.ParseInt: parsing "a": invalid syntax"#,
        ),
        (
            "labelSelector=,&fieldSelector=foo",
            "found ',', expected: !, identifier, or 'end of string'",
        ),
        (
            "fieldSelector=foo",
            "invalid selector: 'foo'; can't understand 'foo'",
        ),
    ] {
        let expected = Err(Status::bad_request(message));
        assert_eq!(ListOptions::parse(query), expected, "{query}");
    }
}

#[test]
fn tells_what_a_list_asks_for() {
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
        ("resourceVersion=0", ListRequest::Any),
        ("resourceVersion=0&limit=5", ListRequest::Any),
        ("resourceVersion=7", not_older(None)),
        ("resourceVersion=7&limit=-1", not_older(None)),
        ("resourceVersion=7&limit=5", exact(Some(5))),
        (
            "resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=5",
            ListRequest::Any,
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
fn refuses_what_a_list_cannot_be() {
    let (text, _) = continued();
    for (query, message) in [
        (
            "resourceVersion=abc".to_owned(),
            "invalid resource version: resourceVersion: Invalid value: \"abc\": \
             strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
        (
            "resourceVersion=-1&resourceVersionMatch=Exact".to_owned(),
            "invalid resource version: resourceVersion: Invalid value: \"-1\": \
             strconv.ParseUint: parsing \"-1\": invalid syntax",
        ),
        (
            format!("continue={text}&resourceVersion=5"),
            "specifying resource version is not allowed when using continue",
        ),
        (
            "continue=garbage&resourceVersion=5".to_owned(),
            "invalid continue token: continue key is not valid: invalid character '\\u0081' \
             looking for beginning of value",
        ),
    ] {
        assert_eq!(list(&query), Err(Status::bad_request(message)), "{query}");
    }
}

const UNLESS_RV: &str =
    "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
const WITH_CONTINUE: &str =
    "Forbidden: resourceVersionMatch is forbidden when continue is provided";
const UNLESS_INITIAL: &str =
    "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
const NOT_OLDER_NEEDED: &str =
    "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";

fn causes(status: Status) -> Vec<(String, String)> {
    assert_eq!(
        (status.code, status.reason.as_deref()),
        (422, Some("Invalid"))
    );
    let details = status.details.expect("422 has details");
    assert_eq!(
        (details.group.as_str(), details.kind.as_str()),
        ("meta.k8s.io", "ListOptions")
    );
    let check = |cause: StatusCause| {
        let reason = match cause.message.starts_with("Forbidden") {
            true => "FieldValueForbidden",
            false => "FieldValueNotSupported",
        };
        assert_eq!(cause.reason, reason);
        (cause.field, cause.message)
    };
    details.causes.into_iter().map(check).collect()
}

#[test]
fn refuses_contradictions() {
    let matched = "resourceVersionMatch";
    let bogus = r#"Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", """#;
    let exact_zero =
        r#"Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#;
    let for_list = (
        "sendInitialEvents",
        "Forbidden: sendInitialEvents is forbidden for list",
    );
    let watch_exact = r#"Unsupported value: "Exact": supported values: "NotOlderThan""#;
    for (is_watch, query, expected) in [
        (
            false,
            "resourceVersionMatch=Exact",
            vec![(matched, UNLESS_RV)],
        ),
        (
            false,
            "resourceVersion=0&resourceVersionMatch=NotOlderThan&continue=abc",
            vec![(matched, WITH_CONTINUE)],
        ),
        (
            false,
            "resourceVersion=7&resourceVersionMatch=Foo",
            vec![(matched, bogus)],
        ),
        (
            false,
            "resourceVersionMatch=Foo&continue=abc",
            vec![
                (matched, UNLESS_RV),
                (matched, WITH_CONTINUE),
                (matched, bogus),
            ],
        ),
        (
            false,
            "resourceVersion=7&resourceVersionMatch=%3Ca%26%22",
            vec![(
                matched,
                r#"Unsupported value: "\u003ca\u0026\"": supported values: "Exact", "NotOlderThan", """#,
            )],
        ),
        (
            false,
            "resourceVersion=0&resourceVersionMatch=Exact",
            vec![(matched, exact_zero)],
        ),
        (false, "sendInitialEvents=false", vec![for_list]),
        (
            false,
            "sendInitialEvents&resourceVersionMatch=NotOlderThan",
            vec![(matched, UNLESS_RV), for_list],
        ),
        (
            true,
            "sendInitialEvents=0",
            vec![(matched, NOT_OLDER_NEEDED)],
        ),
        (
            true,
            "sendInitialEvents=1&resourceVersionMatch=Exact&resourceVersion=abc",
            vec![(matched, NOT_OLDER_NEEDED), (matched, watch_exact)],
        ),
        (
            true,
            "resourceVersionMatch=NotOlderThan&resourceVersion=7",
            vec![(matched, UNLESS_INITIAL)],
        ),
        (
            true,
            "resourceVersionMatch=Exact&continue=x",
            vec![
                (matched, UNLESS_INITIAL),
                (matched, watch_exact),
                (matched, WITH_CONTINUE),
            ],
        ),
        (true, "continue=zzz", vec![(matched, WITH_CONTINUE)]),
        (
            true,
            "resourceVersion=0&continue=zzz",
            vec![(matched, WITH_CONTINUE)],
        ),
    ] {
        let refused = match is_watch {
            true => watch(query).map(|_| ()),
            false => list(query).map(|_| ()),
        };
        let expected = expected
            .into_iter()
            .map(|(field, message)| (field.to_owned(), message.to_owned()))
            .collect();
        assert_eq!(refused.map_err(causes), Err(expected), "{query}");
    }
}

/// Bodies that a kube-apiserver sent.
#[test]
fn prints_contradictions_as_the_api_server_does() {
    let one = list("resourceVersion=0&resourceVersionMatch=Exact").map_err(|s| s.to_json());
    let body = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"","field":"resourceVersionMatch"}]},"code":422}"#;
    assert_eq!(one, Err(format!("{body}\n")));
    let two = watch("sendInitialEvents=true&resourceVersionMatch=Exact").map_err(|s| s.to_json());
    let body = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan","field":"resourceVersionMatch"},{"reason":"FieldValueNotSupported","message":"Unsupported value: \"Exact\": supported values: \"NotOlderThan\"","field":"resourceVersionMatch"}]},"code":422}"#;
    assert_eq!(two, Err(format!("{body}\n")));
}

#[test]
fn tells_where_a_watch_starts() {
    use WatchStart::After;
    use WatchStart::FromAny;
    use WatchStart::FromMostRecent;
    use WatchStart::InitialEvents;
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
            let query = match allow_bookmarks {
                true => format!("{query}&allowWatchBookmarks=1"),
                false => query.to_owned(),
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
fn leaves_forced_watches_undefaulted() {
    let forced = |query| ListOptions::parse(query).and_then(|options| options.validate_watch());
    let start = |query| forced(query).map(|request| (request.start, request.initial_events_end));
    let any = WatchStart::InitialEvents(Consistency::Any);
    assert_eq!(start("allowWatchBookmarks=1"), Ok((any, false)));
    assert_eq!(start("continue=zzz"), Ok((any, false)));
    assert_eq!(
        start("resourceVersion=7"),
        Ok((WatchStart::After(N), false))
    );
    assert!(start("sendInitialEvents=1").is_err());
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
fn refuses_a_watch_from_no_number() {
    let message = r#"resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax"#;
    assert_eq!(
        watch("resourceVersion=abc"),
        Err(Status::unclassified(message))
    );
}

#[test]
fn finds_the_selection() {
    let fields = SelectableFields::default();
    let select = |query, name| {
        let options = ListOptions::parse(query).expect("is well-formed");
        options.selection(Some("x"), name, &fields)
    };
    let selection = select("labelSelector=a", None).expect("is supported");
    assert_eq!(selection.namespace.as_deref(), Some("x"));
    assert_eq!(selection.labels.to_string(), "a");
    assert!(selection.fields.terms.is_empty());
    for query in ["", "fieldSelector=metadata.name%3Dp"] {
        let selection = select(query, Some("p")).expect("is supported");
        assert_eq!(selection.fields, FieldSelector::named("p"), "{query}");
        assert_eq!(selection.fields.terms[0].field, Field::Name);
    }
    for (query, name, message) in [
        (
            "fieldSelector=metadata.name%3Dother",
            Some("p"),
            "fieldSelector metadata.name doesn't match requested name",
        ),
        (
            "fieldSelector=metadata.namespace%3Dx",
            Some("p"),
            "fieldSelector metadata.name doesn't match requested name",
        ),
        (
            "fieldSelector=foo%3Dbar",
            Some("p"),
            "\"foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
    ] {
        assert_eq!(
            select(query, name),
            Err(Status::bad_request(message)),
            "{query}"
        );
    }
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
                prop_assert_eq!(options.check_list().is_err(), options.validate_list().is_err_and(|s| s.code == 422));
                prop_assert_eq!(options.check_watch().is_err(), options.validate_watch().is_err_and(|s| s.code == 422));
            }
        }
    }
}
