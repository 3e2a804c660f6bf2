//! Table and property tests of field selectors and of the selectable fields of kinds.

use proptest::prelude::*;

use super::{RawFieldSelector, RawTerm, escape_field_value};
use crate::api::{
    Field, FieldSelector, FieldValue, GroupVersionResource, Object, ObjectKey, ObjectValues,
    Resource, ResourceVersion, SelectableFields,
};

fn fields_of(group: &str, version: &str, resource: &str) -> SelectableFields {
    fields_at(None, group, version, resource)
}

fn fields_at(
    server_minor: Option<u32>,
    group: &str,
    version: &str,
    resource: &str,
) -> SelectableFields {
    let resource = Resource {
        gvr: GroupVersionResource::new(group, version, resource),
        kind: String::new(),
        singular: String::new(),
        short_names: Vec::new(),
        namespaced: true,
        verbs: Vec::new(),
    };
    SelectableFields::for_resource(&resource, server_minor)
}

fn pods() -> SelectableFields {
    fields_of("", "v1", "pods")
}

fn terms(text: &str) -> Vec<(Field, bool, String)> {
    let selector = FieldSelector::parse(text, &pods()).expect("is a selector");
    let term = |term: super::FieldTerm| (term.field, term.equal, term.value);
    selector.terms.into_iter().map(term).collect()
}

#[test]
fn reads_terms() {
    for (text, expected) in [
        ("", vec![]),
        (",,", vec![]),
        ("=", vec![]),
        (",,metadata.name=b,", vec![(Field::Name, true, "b")]),
        ("metadata.name==b", vec![(Field::Name, true, "b")]),
        (
            "metadata.namespace!=b",
            vec![(Field::Namespace, false, "b")],
        ),
        ("spec.nodeName=", vec![(Field::Value(0), true, "")]),
        ("spec.host=n", vec![(Field::Value(0), true, "n")]),
        ("status.podIPs=", vec![(Field::Empty, true, "")]),
        (
            r"metadata.name=a\,b\=c\\d",
            vec![(Field::Name, true, r"a,b=c\d")],
        ),
        ("metadata.name= b ", vec![(Field::Name, true, " b ")]),
        (
            "status.phase!=x,metadata.name=q,metadata.name=p",
            vec![
                (Field::Name, true, "p"),
                (Field::Name, true, "q"),
                (Field::Value(5), false, "x"),
            ],
        ),
    ] {
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(field, equal, value)| (field, equal, value.to_owned()))
            .collect();
        assert_eq!(terms(text), expected, "{text}");
    }
}

#[test]
fn refuses_what_the_api_server_refuses() {
    for (text, message) in [
        (
            "metadata.name=a,foo",
            r#"fieldSelector: "metadata.name=a,foo" is not a field selector such as metadata.name=a,type!=b"#,
        ),
        (
            "foo=bar",
            r#"fieldSelector: objects of this kind have no selectable field "foo""#,
        ),
    ] {
        let malformed = FieldSelector::parse(text, &pods()).expect_err(text);
        assert_eq!(malformed.to_string(), message);
    }
    for text in [
        "foo",
        "metadata.name=a=b",
        r"metadata.name=\x",
        r"metadata.name=a\",
        " metadata.name=a",
        "=a",
    ] {
        assert!(FieldSelector::parse(text, &pods()).is_err(), "{text}");
    }
}

#[test]
fn refuses_fields_that_a_kind_lacks() {
    for (group, version, resource, label) in [
        ("", "v1", "pods", "a\"b"),
        ("", "v1", "nodes", "metadata.namespace"),
        ("", "v1", "namespaces", "metadata.namespace"),
        ("", "v1", "secrets", "spec.host"),
        ("batch", "v1", "jobs", "foo"),
        ("resource.k8s.io", "v1", "resourceslices", "foo"),
        ("apps", "v1", "replicasets", "status.replicas"),
        (
            "certificates.k8s.io",
            "v1",
            "certificatesigningrequests",
            "metadata.namespace",
        ),
        (
            "certificates.k8s.io",
            "v1beta1",
            "podcertificaterequests",
            "spec.serviceAccountName",
        ),
        (
            "certificates.k8s.io",
            "v1alpha1",
            "podcertificaterequests",
            "spec.serviceAccountName",
        ),
    ] {
        let fields = fields_of(group, version, resource);
        assert!(fields.resolve(label).is_err(), "{resource} {label}");
    }
}

#[test]
fn accepts_each_kinds_labels() {
    for (group, version, resource, labels) in [
        (
            "",
            "v1",
            "pods",
            vec![
                "metadata.name",
                "metadata.namespace",
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.phase",
                "status.podIP",
                "status.podIPs",
                "status.nominatedNodeName",
                "spec.host",
            ],
        ),
        (
            "",
            "v1",
            "nodes",
            vec!["metadata.name", "spec.unschedulable"],
        ),
        (
            "",
            "v1",
            "namespaces",
            vec!["metadata.name", "status.phase"],
        ),
        (
            "",
            "v1",
            "secrets",
            vec!["metadata.name", "metadata.namespace", "type"],
        ),
        (
            "",
            "v1",
            "services",
            vec!["metadata.namespace", "spec.clusterIP", "spec.type"],
        ),
        (
            "",
            "v1",
            "replicationcontrollers",
            vec!["metadata.namespace", "status.replicas"],
        ),
        (
            "batch",
            "v1",
            "jobs",
            vec!["metadata.namespace", "status.successful"],
        ),
        (
            "certificates.k8s.io",
            "v1",
            "certificatesigningrequests",
            vec!["spec.signerName"],
        ),
        (
            "certificates.k8s.io",
            "v1beta1",
            "clustertrustbundles",
            vec!["spec.signerName"],
        ),
        (
            "certificates.k8s.io",
            "v1alpha1",
            "podcertificaterequests",
            vec!["spec.signerName", "spec.podName", "spec.nodeName"],
        ),
        (
            "resource.k8s.io",
            "v1beta2",
            "resourceslices",
            vec!["spec.nodeName", "spec.driver"],
        ),
        (
            "apps",
            "v1",
            "deployments",
            vec!["metadata.name", "metadata.namespace"],
        ),
        (
            "",
            "v1",
            "persistentvolumes",
            vec!["metadata.name", "metadata.namespace"],
        ),
    ] {
        let fields = fields_of(group, version, resource);
        for label in labels {
            assert!(fields.resolve(label).is_ok(), "{resource} {label}");
        }
    }
}

#[test]
fn a_field_is_refused_before_the_version_in_which_it_was_added() {
    for (server_minor, is_selectable) in [
        (None, false),
        (Some(34), false),
        (Some(36), false),
        (Some(37), true),
        (Some(38), true),
    ] {
        let slices = fields_at(server_minor, "resource.k8s.io", "v1", "resourceslices");
        let resolved = slices.resolve("spec.pool.name");
        assert_eq!(resolved.is_ok(), is_selectable, "{server_minor:?}");
        // The values of an object have the same positions at all versions.
        assert_eq!(slices.position("spec.pool.name"), Some(2));
        assert_eq!(slices.resolve("spec.driver"), Ok(Field::Value(1)));
        assert!(slices.resolve("spec.pool").is_err());
    }
}

#[test]
fn finds_the_paths_of_values() {
    let pods = pods();
    let field = |label| pods.position(label).map(|at| &pods.fields[at]);
    let ip = field("status.podIP").expect("pods have it");
    assert_eq!(ip.json_path, ["status", "podIPs", "0", "ip"]);
    assert_eq!(ip.protobuf_path, [3, 12, 1]);
    assert_eq!(
        field("spec.hostNetwork").map(|field| field.value),
        Some(FieldValue::Boolean)
    );
    assert_eq!(pods.position("spec.host"), None);
    assert_eq!(pods.resolve("spec.host"), pods.resolve("spec.nodeName"));
}

#[test]
fn accepts_custom_fields() {
    let fields = SelectableFields::custom(true, &[".spec.color".to_owned(), ".spec.n".to_owned()]);
    assert_eq!(fields.resolve("spec.n"), Ok(Field::Value(1)));
    assert_eq!(fields.fields[0].json_path, ["spec", "color"]);
    assert_eq!(fields.resolve("metadata.namespace"), Ok(Field::Namespace));
    assert!(fields.resolve("spec.zz").is_err());
    let cluster = SelectableFields::custom(false, &[]);
    assert!(cluster.resolve("metadata.namespace").is_err());
}

#[test]
fn matches_the_empty_field_only_with_nothing() {
    let values = ObjectValues {
        fields: vec!["n1".into()],
        ..ObjectValues::default()
    };
    let key = ObjectKey::new(Some("x"), "p");
    let object = Object::new(key, ResourceVersion(1), &values, bytes::Bytes::new());
    for (text, is_match) in [
        ("status.podIPs=", true),
        ("status.podIPs=1.2.3.4", false),
        ("status.podIPs!=1.2.3.4", true),
        ("spec.host=n1", true),
        ("spec.nodeName!=n1", false),
        ("metadata.name=p,metadata.name=q", false),
    ] {
        let selector = FieldSelector::parse(text, &pods()).expect("is a selector");
        assert_eq!(selector.matches(&object), is_match, "{text}");
    }
}

#[test]
fn contradicting_terms_keep_their_order_when_printed() {
    let text = "metadata.name=c,metadata.name==z";
    let selector = RawFieldSelector::parse(text).expect("is a selector");
    assert_eq!(selector.required_name(), Some("z"));
    assert_eq!(
        selector.to_string(),
        "metadata.name==z,metadata.name=c",
        "`=` comes before `c`"
    );
    assert_eq!(RawFieldSelector::parse(&selector.to_string()), Ok(selector));
}

proptest! {
    #[test]
    fn reads_back_what_it_prints(
        terms in prop::collection::vec(("[a-z.]{1,6}", operator(), ".{0,8}"), 0..5),
    ) {
        let mut terms: Vec<RawTerm> = terms
            .into_iter()
            .map(|(label, operator, value)| RawTerm { label, operator, value })
            .collect();
        let printed = RawFieldSelector { terms: terms.clone() }.to_string();
        let mut parsed = RawFieldSelector::parse(&printed).expect("is a selector").terms;
        let by_all = |term: &RawTerm| {
            (term.label.clone(), term.operator, term.value.clone())
        };
        terms.sort_by_key(by_all);
        parsed.sort_by_key(by_all);
        prop_assert_eq!(parsed, terms);
    }

    #[test]
    fn never_panics(text in ".*", near in "([ab,=!\\\\]|\\PC){0,12}") {
        for text in [text, near] {
            if let Ok(selector) = RawFieldSelector::parse(&text) {
                prop_assert_eq!(RawFieldSelector::parse(&selector.to_string()), Ok(selector));
            }
        }
    }
}

fn operator() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&["=", "==", "!="])
}

#[test]
fn values_are_escaped_as_they_are_read() {
    for (value, expected) in [("web-1", "web-1"), ("a,b", "a\\,b"), ("a=\\b", "a\\=\\\\b")] {
        assert_eq!(escape_field_value(value), expected);
    }
}
