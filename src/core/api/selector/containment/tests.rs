//! A table of containments, and the property that what is contained is selected.

use bytes::Bytes;
use proptest::prelude::*;

use crate::api::{
    FieldSelector, LabelSelector, Object, ObjectKey, ObjectValues, ResourceVersion,
    SelectableFields, Selection, ShardSelector,
};

/// The fields `spec.a` and `spec.b`, and an alias that is always empty.
fn fields() -> SelectableFields {
    let paths = [".spec.a", ".spec.b"].map(str::to_owned);
    let mut fields = SelectableFields::custom(true, &paths);
    fields
        .aliases
        .push(("empty".to_owned(), crate::api::Field::Empty));
    fields
}

/// A selection, written as `namespace|labels|fields|shard`; missing parts are empty.
fn selection(text: &str) -> Selection {
    let mut parts = text.split('|').map(str::trim);
    let mut part = || parts.next().unwrap_or_default();
    Selection {
        namespace: Some(part())
            .filter(|name| !name.is_empty())
            .map(str::to_owned),
        labels: LabelSelector::parse(part()).expect("a label selector"),
        fields: FieldSelector::parse(part(), &fields()).expect("a field selector"),
        shard: Some(part()).filter(|shard| !shard.is_empty()).map(shard),
    }
}

/// The shard of a range of hashes, written as `start-end` in sixteenths of all.
fn shard(range: &str) -> ShardSelector {
    let ranges = range.split('+').map(|range| {
        let (start, end) = range.split_once('-').expect("a range");
        let digit = |text: &str| u128::from_str_radix(text, 16).expect("a digit") << 60;
        let (start, end) = (digit(start), digit(end));
        format!("shardRange(object.metadata.uid, '{start:#018x}', '{end:#018x}')")
    });
    let text: Vec<_> = ranges.collect();
    ShardSelector::parse(&text.join(" || ")).expect("a shard selector")
}

#[test]
fn conditions_that_imply_others_are_contained() {
    for (wider, narrower) in [
        ("", ""),
        ("", "a|x=1|spec.a=1|0-4"),
        ("a", "a"),
        ("a", "a|x"),
        ("a", "||metadata.namespace=a"),
        ("||metadata.namespace=a", "a"),
        ("||metadata.namespace!=b", "a"),
        ("|x", "|x"),
        ("|x", "|x=1"),
        ("|x", "|x,y"),
        ("|x", "|x>1"),
        ("|x=1", "|x=1,y=2"),
        ("|x in (1,2)", "|x=1"),
        ("|x in (1,2)", "|x in (1,2,3),x!=3"),
        ("|x in (1,2)", "|x in (1,2,3),x<3"),
        ("|x!=1", "|x=2"),
        ("|x!=1", "|!x"),
        ("|x!=1", "|x!=1"),
        ("|x!=1", "|x notin (1,2)"),
        ("|x notin (1,2)", "|x!=1,x!=2"),
        ("|x notin (1,2)", "|x>2"),
        ("|!x", "|!x"),
        ("|x>1", "|x>2"),
        ("|x>1", "|x=2"),
        ("|x<3", "|x in (1,2)"),
        // Nothing is selected, so it is in every selection.
        ("|x=2", "|x,!x"),
        ("||empty=1", "||empty=1"),
        ("|x=2", "|x=1,x=3"),
        ("||spec.a=1", "||spec.a=1,spec.b=2"),
        ("||spec.a!=1", "||spec.a=2"),
        ("||spec.a!=1", "||spec.a!=1,spec.a!=2"),
        ("||metadata.name!=a", "||metadata.name=b"),
        ("||empty=", ""),
        ("||empty!=1", ""),
        ("||spec.a=1", "||spec.a=2,spec.a=3"),
        ("|||0-8", "|||0-4"),
        ("|||0-4+4-8", "|||2-6"),
    ] {
        assert!(
            selection(wider).contains(&selection(narrower)),
            "{wider} {narrower}"
        );
    }
}

#[test]
fn other_conditions_are_not_contained() {
    for (wider, narrower) in [
        ("a", ""),
        ("a", "b"),
        ("a", "||metadata.namespace!=b"),
        ("||metadata.namespace=a", "b"),
        ("|x", ""),
        ("|x", "|y"),
        ("|x", "|x!=1"),
        ("|x=1", "|x"),
        ("|x=1", "|x in (1,2)"),
        ("|x!=1", "|x"),
        ("|x!=1", "|x in (1,2)"),
        ("|!x", "|x!=1"),
        ("|!x", ""),
        ("|x>2", "|x>1"),
        ("|x>2", "|x"),
        ("|x>2", "|x in (2,3)"),
        ("|x<2", "|x>1"),
        ("||spec.a=1", ""),
        ("||spec.a=1", "||spec.b=1"),
        ("||spec.a=1", "||spec.a!=2"),
        ("||spec.a!=1", "||spec.a!=2"),
        ("||empty=1", "||spec.a=1"),
        ("|||0-8", ""),
        ("|||0-8", "|||4-9"),
        ("|||0-4+8-9", "|||2-9"),
    ] {
        assert!(
            !selection(wider).contains(&selection(narrower)),
            "{wider} {narrower}"
        );
    }
}

fn label_terms() -> impl Strategy<Value = String> {
    let term = prop_oneof![
        Just("x".to_owned()),
        Just("!x".to_owned()),
        "x(=|!=|>|<)[1-4]",
        "x (in|notin) \\([1-4](,[1-4])?\\)",
        "y(=|!=)[12]",
    ];
    prop::collection::vec(term, 0..3).prop_map(|terms| terms.join(","))
}

fn field_terms() -> impl Strategy<Value = String> {
    let term = prop_oneof![
        "spec\\.(a|b)(=|!=)[12]?",
        "metadata\\.(name|namespace)(=|!=)[ab]",
        "empty(=|!=)1?",
    ];
    prop::collection::vec(term, 0..3).prop_map(|terms| terms.join(","))
}

fn selections() -> impl Strategy<Value = Selection> {
    let shards = prop_oneof![
        Just(String::new()),
        "[0-7]-[89a-f]",
        "[0-3]-[4-7]\\+8-[9a-f]"
    ];
    ("[ab]?", label_terms(), field_terms(), shards).prop_map(
        |(namespace, labels, fields, shard)| {
            selection(&format!("{namespace}|{labels}|{fields}|{shard}"))
        },
    )
}

/// An object with any of the values that the selections above name, and with others.
fn objects() -> impl Strategy<Value = Object> {
    let label = || prop::option::of("[1-5]|z");
    (
        "[abc]?",
        "[abc]",
        "[0-9]",
        label(),
        label(),
        "[123]?",
        "[123]?",
    )
        .prop_map(|(namespace, name, uid, x, y, a, b)| {
            let namespace = Some(namespace.as_str()).filter(|name| !name.is_empty());
            let labels = [("x", x), ("y", y)].map(|(key, value)| Some((key, value?)));
            let labels = labels
                .iter()
                .flatten()
                .map(|(key, value)| (*key, value.as_str()));
            let values = ObjectValues {
                uid: uid.as_str().into(),
                labels: labels
                    .map(|(key, value)| (key.into(), value.into()))
                    .collect(),
                fields: vec![a.as_str().into(), b.as_str().into()],
            };
            let key = ObjectKey::new(namespace, &name);
            Object::new(key, ResourceVersion(1), &values, Bytes::new())
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn what_is_contained_is_selected(
        wider in selections(),
        narrower in selections(),
        objects in prop::collection::vec(objects(), 8),
    ) {
        if wider.contains(&narrower) {
            for object in objects.iter().filter(|object| narrower.matches(object)) {
                prop_assert!(wider.matches(object), "{wider:?} {narrower:?} {:?}", object.key);
            }
        }
    }

    /// A selection with more conditions is contained, however they are combined.
    #[test]
    fn more_conditions_are_contained(wider in selections(), more in selections()) {
        let mut narrower = wider.clone();
        narrower.labels.requirements.extend(more.labels.requirements);
        narrower.fields.terms.extend(more.fields.terms);
        prop_assert!(wider.contains(&narrower), "{wider:?} {narrower:?}");
        prop_assert!(Selection::default().contains(&narrower));
    }
}
