//! Tests of the differences between two discoveries.

use std::collections::{HashMap, HashSet};

use super::{CustomResource, DiscoveryChanges, NotCacheable, RestMapper};
use crate::api::{GroupVersionResource, Resource};

impl CustomResource {
    pub(crate) fn for_tests(uid: &str, generation: i64) -> Self {
        Self {
            definition: (uid.to_owned(), generation),
            ..Self::default()
        }
    }
}

impl RestMapper {
    pub(crate) fn for_tests(resources: Vec<Resource>) -> Self {
        Self::new(resources, Some(HashSet::new()), None)
    }
}

fn resource(group: &str, plural: &str, verbs: &[&str]) -> Resource {
    Resource {
        gvr: GroupVersionResource::new(group, "v1", plural),
        kind: plural.to_owned(),
        singular: String::new(),
        short_names: Vec::new(),
        namespaced: true,
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
    }
}

fn definition(plural: &str, uid: &str, generation: i64) -> (GroupVersionResource, CustomResource) {
    let custom = CustomResource::for_tests(uid, generation);
    (GroupVersionResource::new("ex.io", "v1", plural), custom)
}

fn mapper<const N: usize>(
    resources: Vec<Resource>,
    definitions: [(GroupVersionResource, CustomResource); N],
) -> RestMapper {
    RestMapper::new(
        resources,
        Some(HashSet::new()),
        Some(HashMap::from(definitions)),
    )
}

#[test]
fn a_discovery_like_the_one_before_changes_nothing() {
    let same = || {
        mapper(
            vec![resource("", "pods", &["list"])],
            [definition("a", "u", 1)],
        )
    };
    assert!(RestMapper::changes(&same(), &same()).is_empty());
}

#[test]
fn added_removed_and_changed() {
    let of = |plural| resource("ex.io", plural, &["list"]);
    let old = mapper(
        vec![
            of("kept"),
            of("gone"),
            of("redefined"),
            of("recreated"),
            of("verbs"),
        ],
        [
            definition("kept", "u1", 1),
            definition("redefined", "u2", 1),
            definition("recreated", "u3", 1),
        ],
    );
    let new = mapper(
        vec![
            of("new"),
            of("recreated"),
            of("redefined"),
            of("kept"),
            resource("ex.io", "verbs", &["list", "watch"]),
        ],
        [
            definition("kept", "u1", 1),
            definition("redefined", "u2", 2),
            definition("recreated", "u4", 1),
        ],
    );
    let names = |names: &[&str]| {
        let names = names.iter();
        names
            .map(|name| GroupVersionResource::new("ex.io", "v1", *name))
            .collect::<Vec<_>>()
    };
    let expected = DiscoveryChanges {
        added: names(&["new"]),
        removed: names(&["gone"]),
        changed: names(&["recreated", "redefined", "verbs"]),
    };
    assert_eq!(RestMapper::changes(&old, &new), expected);
}

/// The definition may be deleted and created again while the documents still have the resource.
#[test]
fn a_definition_that_goes_or_comes_changes_its_resource() {
    let with = |definition| mapper(vec![resource("ex.io", "foos", &["list"])], definition);
    let foos = vec![GroupVersionResource::new("ex.io", "v1", "foos")];
    let none = mapper(vec![resource("ex.io", "foos", &["list"])], []);
    let one = with([definition("foos", "u", 1)]);
    for (old, new) in [(&one, &none), (&none, &one)] {
        assert_eq!(RestMapper::changes(old, new).changed, foos);
    }
    assert!(RestMapper::changes(&none, &none).is_empty());
}

/// The API server reads `/apis/ex.io/v1/watch` as the prefix of deprecated watches.
#[test]
fn resources_named_like_a_deprecated_prefix_are_never_cached() {
    let of = |plural| resource("ex.io", plural, &["list", "watch"]);
    let mapper = mapper(vec![of("watch"), of("proxy"), of("watches")], []);
    for (plural, expected) in [
        ("watch", Err(NotCacheable::DeprecatedPath)),
        ("proxy", Err(NotCacheable::DeprecatedPath)),
        ("watches", Ok(())),
    ] {
        let gvr = GroupVersionResource::new("ex.io", "v1", plural);
        assert_eq!(mapper.cacheable(&gvr), expected, "{plural}");
    }
}

#[test]
fn unreadable_definitions_change_nothing() {
    let resources = || vec![resource("ex.io", "foos", &["list"])];
    let old = mapper(resources(), [definition("foos", "u", 1)]);
    let new = RestMapper::new(resources(), Some(HashSet::new()), None);
    assert!(RestMapper::changes(&old, &new).is_empty());
    assert!(RestMapper::changes(&new, &old).is_empty());
}

#[test]
fn an_unreachable_group_version_changes_nothing() {
    let known = |verbs| mapper(vec![resource("ex.io", "foos", verbs)], []);
    let unknown = |group: &str| {
        let group_version = (group.to_owned(), "v1".to_owned());
        let mut mapper = mapper(Vec::new(), []);
        mapper.unknown = HashSet::from([group_version]);
        mapper
    };
    let foos = vec![GroupVersionResource::new("ex.io", "v1", "foos")];
    let first = known(&["list"]);

    let away = unknown("ex.io");
    assert!(RestMapper::changes(&first, &away).is_empty());
    assert!(RestMapper::changes(&away, &first).is_empty());
    let others = RestMapper::changes(&first, &unknown("ex.org"));
    assert_eq!(others.removed, foos, "only another group is unknown");

    // Resources that are kept from an earlier discovery are compared when the group is back.
    let remembered = || unknown("ex.io").with_unknown_from(&first);
    let twice = unknown("ex.io").with_unknown_from(&remembered());
    assert!(RestMapper::changes(&remembered(), &twice).is_empty());
    assert_eq!(twice.find("foos"), first.find("foos"));
    for (back, removed, changed) in [
        (known(&["list"]), vec![], vec![]),
        (known(&["watch"]), vec![], foos.clone()),
        (mapper(Vec::new(), []), foos.clone(), vec![]),
    ] {
        let expected = DiscoveryChanges {
            added: vec![],
            removed,
            changed,
        };
        let back = back.with_unknown_from(&twice);
        assert_eq!(RestMapper::changes(&twice, &back), expected);
    }
}
