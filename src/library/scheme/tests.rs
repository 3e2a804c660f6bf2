//! Tests of registration and decoding.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::DynamicObject;
use kubefan_core::api::GroupVersionKind;

use super::*;

fn scheme() -> Scheme {
    let mut scheme = Scheme::new();
    scheme.register::<Pod>().expect("a new kind");
    scheme.register::<Deployment>().expect("a new kind");
    scheme
}

fn visitor(version: &str) -> GroupVersionKind {
    GroupVersionKind::new("ex.io", version, "Visitor")
}

#[test]
fn types_have_kinds_and_kinds_have_types() {
    let mut scheme = scheme();
    let deployment = GroupVersionKind::new("apps", "v1", "Deployment");
    assert_eq!(
        scheme.kind_of::<Deployment>().expect("its kind"),
        &deployment
    );
    assert!(scheme.recognizes(&deployment));
    assert!(!scheme.recognizes(&GroupVersionKind::new("apps", "v2", "Deployment")));
    let error = scheme
        .kind_of::<ConfigMap>()
        .expect_err("it is not registered");
    assert!(
        error.to_string().starts_with("no kind is registered for "),
        "{error}"
    );
    for version in ["v2", "v1"] {
        let registered = scheme.register_as::<DynamicObject>(visitor(version));
        registered.expect("a new kind");
    }
    let kinds = scheme.kinds_of::<DynamicObject>().expect("its kinds");
    assert_eq!(kinds, [visitor("v2"), visitor("v1")]);
    let error = scheme.kind_of::<DynamicObject>().expect_err("it has two");
    let text = error.to_string();
    assert!(
        text.ends_with("is of several kinds: Visitor.v2.ex.io, Visitor.v1.ex.io"),
        "{text}"
    );
    let all: Vec<_> = scheme.all_kinds().map(ToString::to_string).collect();
    assert_eq!(
        all,
        [
            "Pod.v1",
            "Deployment.v1.apps",
            "Visitor.v1.ex.io",
            "Visitor.v2.ex.io"
        ]
    );
}

#[test]
fn a_kind_has_one_type() {
    let mut scheme = scheme();
    scheme.register::<Pod>().expect("the same type again");
    assert_eq!(scheme.kinds_of::<Pod>().expect("its kinds").len(), 1);
    let pod = scheme.kind_of::<Pod>().expect("its kind").clone();
    let error = scheme
        .register_as::<ConfigMap>(pod)
        .expect_err("another type");
    assert!(matches!(error, Error::Registered { .. }), "{error}");
    assert!(scheme.kinds_of::<ConfigMap>().is_err());
}

#[test]
fn objects_are_decoded_as_the_type_of_their_kind() {
    let scheme = scheme();
    let json = br#"{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web"}}"#;
    let decoded = scheme.decode(json).expect("a deployment");
    assert_eq!(decoded.gvk.to_string(), "Deployment.v1.apps");
    assert!(decoded.get::<Pod>().is_none());
    let decoded = decoded.into::<Pod>().expect_err("it is no pod");
    let deployment = decoded.into::<Deployment>().expect("a deployment");
    assert_eq!(deployment.metadata.name.as_deref(), Some("web"));
    // An item of a list does not repeat its kind.
    let pod = scheme.kind_of::<Pod>().expect("its kind").clone();
    let item = scheme.decode_as(pod, br#"{"metadata":{"name":"web-0"}}"#);
    let item = item.expect("a pod");
    let name = item
        .get::<Pod>()
        .and_then(|pod| pod.metadata.name.as_deref());
    assert_eq!(name, Some("web-0"));
}

#[test]
fn what_cannot_be_decoded_is_an_error() {
    let scheme = scheme();
    for (json, expected) in [
        (r#"{"kind":"Pod"}"#, "the object has no apiVersion and kind"),
        (
            r#"{"apiVersion":"v1"}"#,
            "the object has no apiVersion and kind",
        ),
        ("[]", "the object has no apiVersion and kind"),
        ("", "the object has no apiVersion and kind"),
        (
            r#"{"apiVersion":"v1","kind":"Service"}"#,
            "no type is registered for Service.v1",
        ),
        (
            r#"{"apiVersion":"apps/v1","kind":"Pod"}"#,
            "no type is registered for Pod.v1.apps",
        ),
        (
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":1}}"#,
            "a Pod.v1 cannot be decoded as k8s_openapi::",
        ),
    ] {
        let error = scheme.decode(json.as_bytes()).expect_err(json);
        assert!(error.to_string().starts_with(expected), "{json}: {error}");
    }
}
