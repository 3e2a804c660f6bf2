//! Negotiates Accept headers of real clients, and headers that exercise rare rules.

use crate::api::WireFormat;
use crate::api::WireFormat::{Json, Protobuf};
use crate::codec::Negotiated::{
    NotAcceptable, Other, OtherKind, PartialObjectMetadata, Plain, Table, Yaml, YamlTable,
};
use crate::codec::ReadVerb::{Get, List, Watch};
use crate::codec::{MetaVersion, Negotiated, ReadVerb, negotiate};

const JSON: Negotiated = Plain(Json, false);
const PROTOBUF: Negotiated = Plain(Protobuf, false);
const ALL: [ReadVerb; 3] = [Get, List, Watch];

fn partial(format: WireFormat) -> Negotiated {
    PartialObjectMetadata(format, MetaVersion::V1, false)
}

fn check(verbs: &[ReadVerb], is_custom_resource: bool, cases: &[(&str, Negotiated)]) {
    for (accept, expected) in cases {
        for verb in verbs {
            let decided = negotiate(Some(accept), *verb, is_custom_resource);
            assert_eq!(decided, *expected, "{verb:?} {accept}");
        }
    }
}

#[test]
fn clients() {
    let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    assert_eq!(negotiate(None, List, false), JSON);
    check(
        &ALL,
        false,
        &[
            (kubectl, Table(MetaVersion::V1, false)),
            ("application/json, */*", JSON),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                PROTOBUF,
            ),
            ("application/json", JSON),
            ("*/*", JSON),
            ("", JSON),
            ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", JSON),
        ],
    );
    check(
        &[Watch],
        false,
        &[
            ("application/json;stream=watch", JSON),
            ("application/vnd.kubernetes.protobuf;stream=watch", PROTOBUF),
            (
                "application/vnd.kubernetes.protobuf;stream=watch,application/json;stream=watch",
                PROTOBUF,
            ),
        ],
    );
}

#[test]
fn metadata_clients() {
    let single = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    for is_custom_resource in [false, true] {
        check(
            &[Get, Watch],
            is_custom_resource,
            &[(single, partial(Protobuf))],
        );
        check(
            &[List],
            is_custom_resource,
            &[(list, partial(Json)), (single, OtherKind)],
        );
        check(&[Get], is_custom_resource, &[(list, OtherKind)]);
    }
    let beta = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1";
    check(
        &[Get],
        false,
        &[
            (
                beta,
                PartialObjectMetadata(Json, MetaVersion::V1Beta1, false),
            ),
            (
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1;pretty=1",
                PartialObjectMetadata(Json, MetaVersion::V1, true),
            ),
            (
                "application/yaml;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                Other,
            ),
            (
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v2",
                NotAcceptable,
            ),
        ],
    );
}

#[test]
fn custom_resources_have_no_protobuf() {
    check(
        &ALL,
        true,
        &[
            ("application/vnd.kubernetes.protobuf", NotAcceptable),
            ("application/vnd.kubernetes.protobuf,application/json", JSON),
            ("application/vnd.kubernetes.protobuf, */*", JSON),
        ],
    );
}

#[test]
fn order_and_wildcards() {
    check(
        &[Get, List],
        false,
        &[
            (
                "application/json;q=0.1, application/yaml;q=0.2, */*;q=0.9",
                JSON,
            ),
            ("application/yaml;q=0.9, application/json;q=0.8", Yaml),
            ("*/*, application/vnd.kubernetes.protobuf", PROTOBUF),
            ("*/*;q=0.9, application/vnd.kubernetes.protobuf;q=0.8", JSON),
            (
                "application/*, application/vnd.kubernetes.protobuf",
                PROTOBUF,
            ),
            ("application/json;q=0", JSON),
            (
                "application/json;q=x, application/vnd.kubernetes.protobuf;q=0.1",
                PROTOBUF,
            ),
            ("application/xml, */*;q=0.1", JSON),
            ("application/cbor", Other),
            ("application/json, application/cbor", JSON),
        ],
    );
}

#[test]
fn refusals() {
    check(
        &ALL,
        false,
        &[
            ("application/xml", NotAcceptable),
            ("text/html", NotAcceptable),
            ("application/*", NotAcceptable),
            ("*", NotAcceptable),
            (",", NotAcceptable),
            ("application/json/x", NotAcceptable),
            (
                "application/json;as=Bogus;v=v1;g=meta.k8s.io",
                NotAcceptable,
            ),
            (
                "application/json;as=Table;v=v9;g=meta.k8s.io",
                NotAcceptable,
            ),
            (
                "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
                JSON,
            ),
            (
                "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
                NotAcceptable,
            ),
            ("application/json;stream=other", NotAcceptable),
            ("application/json;sv=v2", NotAcceptable),
        ],
    );
    let yaml_then_json = "application/yaml, application/json";
    check(
        &[Watch],
        false,
        &[
            ("application/yaml", NotAcceptable),
            (yaml_then_json, NotAcceptable),
        ],
    );
    check(
        &[List],
        false,
        &[("application/yaml;stream=watch,application/json", JSON)],
    );
}

#[test]
fn parameters() {
    check(
        &[Get, List],
        false,
        &[
            ("application/json;pretty=1", Plain(Json, true)),
            ("application/json;pretty=0", JSON),
            ("application/json; charset=utf-8", JSON),
            ("application/json;profile=a=b", JSON),
            ("application/json;sv=v1", JSON),
            ("application/yaml;as=Table;v=v1;g=meta.k8s.io", YamlTable),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io;pretty=1",
                Table(MetaVersion::V1Beta1, true),
            ),
        ],
    );
    check(&[Watch], false, &[("application/json;pretty=1", JSON)]);
}
