//! What a request means to the API server's authorizers.

use http::StatusCode;

use crate::identity::Attributes;

use super::request::RequestInfo;

/// The attributes of the read that `info` describes.
pub(super) fn attributes(info: &RequestInfo) -> Attributes {
    let attributes = Attributes {
        verb: info.verb.clone(),
        group: info.group.clone(),
        version: info.version.clone(),
        resource: info.resource.clone(),
        namespace: info.namespace.clone(),
        name: info.name.clone(),
        ..Attributes::default()
    };
    let (fields, labels) = (&info.field_selector, &info.label_selector);
    attributes.with_selectors(fields.as_deref(), labels.as_deref())
}

/// True if the API server's answer with `status` shows that it has authorized the GET that `info`
/// describes.
pub(super) fn is_proof(info: &RequestInfo, status: StatusCode) -> bool {
    let is_get = info.verb == "get" && !info.name.is_empty() && info.subresource.is_empty();
    is_get && status == StatusCode::OK
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn attributes_are_those_of_the_request_info() {
        let url = "/apis/apps/v1/namespaces/n/deployments";
        let query = "watch=1&labelSelector=a%3Db&fieldSelector=metadata.name%3Dx";
        let info = RequestInfo::parse(&Method::GET, url, query);
        let found = attributes(&info);
        let expected = Attributes {
            verb: "watch".to_owned(),
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            resource: "deployments".to_owned(),
            namespace: "n".to_owned(),
            name: "x".to_owned(),
            ..Attributes::default()
        };
        assert_eq!(found.without_selectors(), expected);
        assert!(found.has_selectors());
    }

    #[test]
    fn only_a_successful_get_of_an_object_is_a_proof() {
        for (path, query, status, expected) in [
            ("/api/v1/namespaces/n/pods/p", "", 200, true),
            ("/api/v1/namespaces/n", "", 200, true),
            ("/api/v1/namespaces/n/pods/p", "", 404, false),
            ("/api/v1/namespaces/n/pods/p", "", 403, false),
            ("/api/v1/namespaces/n/pods/p/status", "", 200, false),
            ("/api/v1/namespaces/n/pods", "", 200, false),
            ("/api/v1/namespaces/n/pods", "watch=1", 200, false),
        ] {
            let info = RequestInfo::parse(&Method::GET, path, query);
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(is_proof(&info, status), expected, "{path}?{query} {status}");
        }
    }
}
