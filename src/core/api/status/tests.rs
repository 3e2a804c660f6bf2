//! Tests that a `Status` is printed byte for byte as a kube-apiserver prints it.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::Status;
use crate::api::{ContinueToken, GroupVersionResource, ResourceVersion};

/// A `Status` in JSON; `middle` contains all members from `message` on.
fn body(middle: &str) -> String {
    format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",{middle}}}\n"
    )
}

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

fn widgets() -> GroupVersionResource {
    GroupVersionResource::new("example.com", "v1", "widgets")
}

#[test]
fn prints_failures_of_reads() {
    for (status, middle) in [
        (
            Status::not_found(&pods(), "zz"),
            r#""message":"pods \"zz\" not found","reason":"NotFound","details":{"name":"zz","kind":"pods"},"code":404"#,
        ),
        (
            Status::not_found(&widgets(), "zz"),
            r#""message":"widgets.example.com \"zz\" not found","reason":"NotFound","details":{"name":"zz","group":"example.com","kind":"widgets"},"code":404"#,
        ),
        (
            Status::path_not_found(),
            r#""message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404"#,
        ),
        (
            Status::method_not_allowed(),
            r#""message":"the server does not allow this method on the requested resource","reason":"MethodNotAllowed","details":{},"code":405"#,
        ),
        (
            Status::verb_not_supported(&widgets(), "watch"),
            r#""message":"watch is not supported on resources of kind \"widgets.example.com\"","reason":"MethodNotAllowed","details":{"group":"example.com","kind":"widgets"},"code":405"#,
        ),
        (
            Status::bad_request("field label not supported: <foo>"),
            r#""message":"field label not supported: \u003cfoo\u003e","reason":"BadRequest","code":400"#,
        ),
        (
            Status::expired_list(),
            r#""message":"The resourceVersion for the provided list is too old.","reason":"Expired","code":410"#,
        ),
        (
            Status::expired_watch(ResourceVersion(1), ResourceVersion(224)),
            r#""message":"too old resource version: 1 (224)","reason":"Expired","code":410"#,
        ),
        (
            Status::too_large_resource_version(ResourceVersion(99_999_999), ResourceVersion(212)),
            r#""message":"Timeout: Too large resource version: 99999999, current: 212","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504"#,
        ),
        (
            Status::timeout(),
            r#""message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","details":{},"code":504"#,
        ),
        (
            Status::storage_reinitializing(3),
            r#""message":"storage is (re)initializing","reason":"TooManyRequests","details":{"retryAfterSeconds":3},"code":429"#,
        ),
        (
            Status::internal_error("broken"),
            r#""message":"broken","reason":"InternalError","code":500"#,
        ),
    ] {
        assert_eq!(status.to_json(), body(middle));
        assert_eq!(Status::from_json(status.to_json().as_bytes()), Some(status));
    }
}

#[test]
fn returns_a_token_for_the_rest_of_an_expired_list() {
    let token = ContinueToken {
        resource_version: Some(ResourceVersion(213)),
        start: "b\0".to_owned(),
    };
    let status = Status::expired_continue(&token);
    let rest = ContinueToken::decode(&status.metadata.continue_token).expect("is a token");
    assert_eq!((rest.resource_version, rest.start.as_str()), (None, "b\0"));
    assert!(status.is_expired());
    assert!(
        status
            .to_json()
            .starts_with(r#"{"kind":"Status","apiVersion":"v1","metadata":{"continue":""#)
    );
    assert!(status.message.starts_with(
        "The provided continue parameter is too old to display a consistent list result. You can \
         start a new list without the continue parameter, or use the continue token in this \
         response to retrieve the remainder of the results."
    ));
}

#[test]
fn reads_only_statuses() {
    for body in [
        "",
        "{}",
        "[]",
        r#"{"kind":"Pod","apiVersion":"v1"}"#,
        "404 page not found\n",
    ] {
        assert_eq!(Status::from_json(body.as_bytes()), None, "{body}");
    }
    let bare = r#"{"kind":"Status","apiVersion":"v1","code":410,"reason":"Gone","x":1}"#;
    let status = Status::from_json(bare.as_bytes()).expect("is a status");
    assert!(status.is_expired());
    assert_eq!(status.retry_after(), None);
}

proptest! {
    #[test]
    fn reads_back_what_it_prints(message in "(.|\n|[<>&\u{2028}\u{2029}\u{0}\u{7f}])*", name in ".*") {
        let status = Status::not_found(&pods(), &name);
        prop_assert_eq!(Status::from_json(status.to_json().as_bytes()), Some(status));
        let status = Status::bad_request(message);
        let json = status.to_json();
        let is_escaped = !json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']);
        prop_assert!(is_escaped);
        prop_assert_eq!(Status::from_json(json.as_bytes()), Some(status));
    }

    #[test]
    fn never_panics(body in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert_eq!(Status::from_json(&body), None);
    }
}

#[test]
fn clients_that_were_refused_together_do_not_return_together() {
    let refusals: [fn() -> Status; 2] = [
        || Status::too_many_requests("busy"),
        || Status::unserved_shard("not_cached", None),
    ];
    for refusal in refusals {
        let seconds = (0..200).filter_map(|_| refusal().retry_after());
        let seconds: BTreeSet<_> = seconds.collect();
        assert_eq!(seconds, BTreeSet::from([1, 2, 3, 4, 5]), "{}", refusal());
    }
}
