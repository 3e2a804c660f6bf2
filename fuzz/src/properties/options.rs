//! Options of LIST, WATCH and GET: different spellings of a query give the same options, and the
//! parts of a parsed request are consistent.

use form_urlencoded::Serializer;
use kubefan::api::{
    Consistency, GetOptions, ListOptions, ListRequest, Query, ResourceVersion, WatchStart,
    request_timeout,
};

use super::pod_fields;

/// Parses any query string as the options of each verb.
pub fn list_options(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let query = Query::parse(&text);
    if let Err(malformed) = request_timeout(&query) {
        assert_eq!(malformed.parameter, "timeout", "{text:?}");
    }
    if let Err(malformed) = GetOptions::parse(&text) {
        let is_known = matches!(malformed.parameter, "resourceVersion" | "export");
        assert!(is_known, "{text:?}: {malformed}");
    }
    let parsed = ListOptions::parse(&text);
    assert_eq!(parsed, ListOptions::from_query(&query), "{text:?}");
    let ignored = format!("unknown=1&limit;=x&%zz=1&{text}");
    assert_eq!(parsed, ListOptions::parse(&ignored), "{text:?}");
    let Ok(options) = parsed else {
        return;
    };
    let printed = print(&options);
    assert_eq!(
        ListOptions::parse(&printed).as_ref(),
        Ok(&options),
        "{text:?} as {printed:?}"
    );
    list(&options);
    watch(&options);
    if let Err(malformed) = options.selection(Some("space"), &pod_fields()) {
        assert_eq!(malformed.parameter, "fieldSelector", "{text:?}");
    }
}

/// A query string that parses to the given options.
fn print(options: &ListOptions) -> String {
    let mut printed = Serializer::new(String::new());
    printed
        .append_pair("labelSelector", &options.labels.to_string())
        .append_pair("fieldSelector", &options.fields.to_string())
        .append_pair("resourceVersion", &options.resource_version)
        .append_pair("resourceVersionMatch", &options.resource_version_match)
        .append_pair("continue", &options.continue_token)
        .append_pair("limit", &options.limit.to_string())
        .append_pair("watch", &options.watch.to_string())
        .append_pair(
            "allowWatchBookmarks",
            &options.allow_watch_bookmarks.to_string(),
        );
    for (name, value) in [
        ("sendInitialEvents", options.send_initial_events),
        ("pretty", options.pretty),
    ] {
        if let Some(value) = value {
            printed.append_pair(name, &value.to_string());
        }
    }
    if let Some(seconds) = options.timeout_seconds {
        printed.append_pair("timeoutSeconds", &seconds.to_string());
    }
    printed.finish()
}

fn list(options: &ListOptions) {
    let Ok(request) = options.validate_list() else {
        return;
    };
    let version_parameter = options.resource_version.parse::<u64>();
    let (limit, version) = match &request {
        ListRequest::MostRecent { limit } => (*limit, None),
        ListRequest::Any { limit } => (*limit, Some(0)),
        ListRequest::Continue { limit, token } => {
            assert_eq!(token.encode().is_empty(), options.continue_token.is_empty());
            (*limit, version_parameter.clone().ok())
        }
        ListRequest::NotOlderThan {
            resource_version,
            limit,
        }
        | ListRequest::Exact {
            resource_version,
            limit,
        } => {
            assert_ne!(*resource_version, ResourceVersion::ZERO, "{options:?}");
            (*limit, Some(resource_version.0))
        }
    };
    assert_eq!(version, version_parameter.ok(), "{options:?}: {request:?}");
    if version > Some(0) {
        let is_exact = match options.resource_version_match.as_str() {
            "" => options.limit > 0,
            version_parameter => version_parameter == "Exact",
        };
        assert_eq!(
            matches!(request, ListRequest::Exact { .. }),
            is_exact,
            "{options:?}"
        );
    }
    let expected = usize::try_from(options.limit)
        .ok()
        .filter(|limit| *limit > 0);
    assert_eq!(limit, expected, "{options:?}: {request:?}");
}

fn watch(options: &ListOptions) {
    let Ok(request) = options.validate_watch() else {
        return;
    };
    let version_parameter = options.resource_version.parse::<u64>().ok();
    match request.start {
        WatchStart::After(version) => assert_eq!(Some(version.0), version_parameter, "{options:?}"),
        WatchStart::InitialEvents(Consistency::NotOlderThan(version)) => {
            assert_eq!(Some(version.0), version_parameter, "{options:?}");
        }
        WatchStart::InitialEvents(_) | WatchStart::FromMostRecent | WatchStart::FromAny => {
            assert!(
                version_parameter.is_none_or(|version| version == 0),
                "{options:?}"
            );
        }
    }
    let begins_with_state = matches!(request.start, WatchStart::InitialEvents(_));
    let may_end = request.allow_bookmarks && begins_with_state;
    assert!(
        may_end || !request.initial_events_end,
        "{options:?}: {request:?}"
    );
}
