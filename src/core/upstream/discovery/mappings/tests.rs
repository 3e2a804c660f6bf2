//! Tables of mappings, after the tests of client-go's RESTMappers.

use std::collections::HashSet;

use super::*;

/// A mapper of resources given as `(group, version, plural, kind)`.
fn mapper(resources: &[(&str, &str, &str, &str)]) -> RestMapper {
    let resource = |&(group, version, plural, kind): &(&str, &str, &str, &str)| Resource {
        gvr: GroupVersionResource::new(group, version, plural),
        kind: kind.to_owned(),
        singular: String::new(),
        short_names: Vec::new(),
        namespaced: true,
        verbs: Vec::new(),
    };
    let resources = resources.iter().map(resource).collect();
    RestMapper::new(resources, Some(HashSet::new()), None)
}

/// A partial resource, written as `group/version/resource`.
fn partial(text: &str) -> PartialResource {
    let parts: Vec<_> = text.split('/').collect();
    GroupVersionResource::new(parts[0], parts[1], parts[2]).into()
}

fn text<T: ToString>(found: Result<T, MappingError>) -> String {
    match found {
        Ok(found) => found.to_string(),
        Err(error) => error.to_string(),
    }
}

fn texts<T: ToString>(found: Result<Vec<T>, MappingError>) -> String {
    let joined = |found: Vec<T>| {
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        found.join(" ")
    };
    text(found.map(joined))
}

#[test]
fn the_preferred_group_and_version_come_first() {
    let mapper = mapper(&[
        ("", "v1", "pods", "Pod"),
        ("", "v2", "pods", "Pod"),
        ("extensions", "v1beta", "jobs", "Job"),
        ("extensions", "v1beta", "pods", "Pod"),
        ("unpreferred", "v1", "broccoli", "Broccoli"),
        ("unpreferred", "v2beta1", "broccoli", "Broccoli"),
        ("unpreferred", "v2beta1", "peas", "Pea"),
        ("unpreferred", "v2alpha1", "broccoli", "Broccoli"),
        ("unpreferred", "v2alpha1", "peas", "Pea"),
    ]);
    for (asked, resource, kind) in [
        ("//pods", "pods.v1", "Pod.v1"),
        ("//pod", "pods.v1", "Pod.v1"),
        ("//PODS", "pods.v1", "Pod.v1"),
        ("/v1/pods", "pods.v1", "Pod.v1"),
        ("/v2/pods", "pods.v2", "Pod.v2"),
        ("//jobs", "jobs.v1beta.extensions", "Job.v1beta.extensions"),
        (
            "/v1beta/pods",
            "pods.v1beta.extensions",
            "Pod.v1beta.extensions",
        ),
        (
            "extensions//pods",
            "pods.v1beta.extensions",
            "Pod.v1beta.extensions",
        ),
        (
            "extensions/v1beta/pod",
            "pods.v1beta.extensions",
            "Pod.v1beta.extensions",
        ),
        (
            "//peas",
            "peas.v2beta1.unpreferred",
            "Pea.v2beta1.unpreferred",
        ),
        (
            "//broccoli",
            "broccoli.v1.unpreferred",
            "Broccoli.v1.unpreferred",
        ),
    ] {
        assert_eq!(
            text(mapper.resource_for(&partial(asked))),
            resource,
            "{asked}"
        );
        assert_eq!(text(mapper.kind_for(&partial(asked))), kind, "{asked}");
    }
    assert_eq!(
        texts(mapper.resources_for(&PartialResource::named("pod"))),
        "pods.v1 pods.v2 pods.v1beta.extensions"
    );
    assert_eq!(
        texts(mapper.kinds_for(&PartialResource::named("peas"))),
        "Pea.v2beta1.unpreferred Pea.v2alpha1.unpreferred"
    );
}

#[test]
fn a_groups_name_or_its_beginning_selects_the_group() {
    let mapper = mapper(&[
        ("first-group-1", "v1", "mykinds", "MyKind"),
        ("first-group-1", "v1", "yourkinds", "YourKind"),
        ("first-group", "v1", "mykinds", "MyKind"),
        ("second-group", "v1", "mykinds", "MyKind"),
        ("second-group", "v1", "theirkinds", "TheirKind"),
    ]);
    for (asked, found) in [
        // The exact name counts, although another group's name begins with it.
        ("first-group//mykinds", "mykinds.v1.first-group"),
        ("first-group//mykind", "mykinds.v1.first-group"),
        ("second//mykinds", "mykinds.v1.second-group"),
        (
            "first//mykinds",
            "mykinds.v1.first-group-1 mykinds.v1.first-group",
        ),
        ("first-group//yourkinds", "yourkinds.v1.first-group-1"),
        ("second-group/v1/mykinds", "mykinds.v1.second-group"),
        // With a version, the group's name must be complete.
        (
            "second/v1/mykinds",
            "the API server has no resource mykinds.v1.second",
        ),
        (
            "third//mykinds",
            "the API server has no resource mykinds.third",
        ),
        ("/v2/mykinds", "the API server has no resource mykinds.v2"),
        ("//unknown", "the API server has no resource unknown"),
        ("//", "the API server has no resource "),
    ] {
        assert_eq!(
            texts(mapper.resources_for(&partial(asked))),
            found,
            "{asked}"
        );
    }
    assert_eq!(
        text(mapper.kind_for(&partial("//theirkinds"))),
        "TheirKind.v1.second-group"
    );
}

#[test]
fn two_resources_of_one_version_are_ambiguous() {
    // The singular of one is the plural of the other, and two have one kind.
    let mapper = mapper(&[
        ("ex.io", "v1", "oxen", "Ox"),
        ("ex.io", "v1", "ox", "Herd"),
        ("ex.io", "v1", "bulls", "Ox"),
        ("ex.io", "v2", "oxen", "Ox"),
    ]);
    let ambiguous = "ox may be one of oxen.v1.ex.io, ox.v1.ex.io, bulls.v1.ex.io, oxen.v2.ex.io";
    let ox = PartialResource::named("ox");
    assert_eq!(text(mapper.resource_for(&ox)), ambiguous);
    assert_eq!(text(mapper.kind_for(&ox)), ambiguous);
    assert_eq!(
        texts(mapper.kinds_for(&ox)),
        "Ox.v1.ex.io Herd.v1.ex.io Ox.v2.ex.io"
    );
    assert_eq!(
        text(mapper.resource_for(&partial("/v2/ox"))),
        "oxen.v2.ex.io"
    );
    let mapping = |versions| mapper.rest_mapping("ex.io", "Ox", versions);
    let mapping = |versions| text(mapping(versions).map(|found| found.gvr.clone()));
    assert_eq!(
        mapping(&[]),
        "Ox.ex.io may be one of oxen.v1.ex.io, bulls.v1.ex.io, oxen.v2.ex.io"
    );
    assert_eq!(mapping(&["v2", "v1"]), "oxen.v2.ex.io");
}

#[test]
fn kinds_map_to_resources() {
    let mapper = mapper(&[
        ("apps", "v1", "sets", "Set"),
        ("apps", "v2", "sets", "Set"),
        ("apps", "v2", "parts", "Part"),
        ("other", "v1", "sets", "Set"),
    ]);
    for (group, kind, versions, found) in [
        ("apps", "Set", &[][..], "sets.v1.apps sets.v2.apps"),
        ("apps", "set", &[], "sets.v1.apps sets.v2.apps"),
        ("apps", "Set", &[""], "sets.v1.apps sets.v2.apps"),
        ("apps", "Set", &["v2"], "sets.v2.apps"),
        ("apps", "Set", &["v2", "v1"], "sets.v2.apps sets.v1.apps"),
        ("apps", "Part", &[], "parts.v2.apps"),
        ("apps", "Part", &["v3", "v2"], "parts.v2.apps"),
        ("other", "Set", &[], "sets.v1.other"),
        (
            "apps",
            "Part",
            &["v1"],
            "the API server has no kind Part in group apps in version v1",
        ),
        (
            "apps",
            "Set",
            &["v3", "v4"],
            "the API server has no kind Set in group apps in version v3 or v4",
        ),
        ("", "Set", &[], "the API server has no kind Set"),
        (
            "apps",
            "Unknown",
            &[],
            "the API server has no kind Unknown in group apps",
        ),
    ] {
        let mappings = mapper.rest_mappings(group, kind, versions);
        let first = mapper.rest_mapping(group, kind, versions);
        if let (Ok(mappings), Ok(first)) = (&mappings, &first) {
            assert_eq!(first, &mappings[0]);
        }
        let names =
            |found: Vec<Arc<Resource>>| found.iter().map(|found| found.gvr.clone()).collect();
        assert_eq!(
            texts(mappings.map(names)),
            found,
            "{group} {kind} {versions:?}"
        );
    }
}
