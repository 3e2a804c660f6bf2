//! Table and property tests of label selectors.

use proptest::prelude::*;

use crate::api::{LabelOperator, LabelRequirement, LabelSelector};

fn requirement(key: &str, operator: LabelOperator) -> LabelRequirement {
    let key = key.to_owned();
    LabelRequirement { key, operator }
}

fn values(values: &[&str]) -> Vec<String> {
    values.iter().map(|&value| value.to_owned()).collect()
}

#[test]
fn reads_every_operator() {
    use LabelOperator::{DoesNotExist, Exists, GreaterThan, In, LessThan, NotIn};
    for (text, key, operator) in [
        ("a", "a", Exists),
        ("!a", "a", DoesNotExist),
        (" ! a ", "a", DoesNotExist),
        ("a=b", "a", In(values(&["b"]))),
        ("a\t==\r\nb", "a", In(values(&["b"]))),
        ("a=", "a", In(values(&[""]))),
        ("a!=b", "a", NotIn(values(&["b"]))),
        ("a!=", "a", NotIn(values(&[""]))),
        ("a>5", "a", GreaterThan(5)),
        ("a<007", "a", LessThan(7)),
        ("a in (y,x,y)", "a", In(values(&["x", "y"]))),
        ("a in()", "a", In(values(&[""]))),
        ("a in (,x)", "a", In(values(&["", "x"]))),
        ("a in (x,,y)", "a", In(values(&["", "x", "y"]))),
        ("a in (x,,)", "a", In(values(&["", "x"]))),
        ("a notin (b)", "a", NotIn(values(&["b"]))),
        ("in in (in,notin)", "in", In(values(&["in", "notin"]))),
        ("notin=in", "notin", In(values(&["in"]))),
        ("x.io/y", "x.io/y", Exists),
        ("a\0", "a", Exists),
    ] {
        let requirements = vec![requirement(key, operator)];
        assert_eq!(
            LabelSelector::parse(text),
            Ok(LabelSelector { requirements }),
            "{text:?}"
        );
    }
}

#[test]
fn sorts_requirements_by_key() {
    let selector = LabelSelector::parse("app in (a0,),!foo,app!=zz,app").expect("is a selector");
    assert_eq!(selector.to_string(), "app in (,a0),app!=zz,app,!foo");
    assert_eq!(LabelSelector::parse(""), Ok(LabelSelector::default()));
    assert_eq!(LabelSelector::parse(" \t"), Ok(LabelSelector::default()));
}

#[test]
fn equal_requirements_are_kept_once() {
    let selector =
        LabelSelector::parse("b,a!=x,a in (y,x),a!=x,a,b,a in (x,y)").expect("is a selector");
    assert_eq!(selector.to_string(), "a!=x,a in (x,y),a,b");
    let many = LabelSelector::parse(&["a"; 15_000].join(",")).expect("is a selector");
    assert_eq!(many.to_string(), "a");
}

#[test]
fn refuses_what_the_api_server_refuses() {
    let long = "x".repeat(64);
    let long_value = format!("a={long}");
    for text in [
        "a in",
        "a===b",
        "-a=b",
        "a>b",
        &long_value,
        &long,
        "app,",
        // A NUL after a space ends the text, so this selector ends with a comma.
        "app, \0b",
        ",app",
        "!a=b",
        "a==b==c",
        "app in (a",
        "a in (",
        "a in (b,(",
        "a b",
        "!",
        "a>-b",
        "a>-1",
        "/a",
        "a/",
        "a/b/c",
        "X/a",
        "a=b c",
        "(",
        "a in (b,-c)",
    ] {
        let malformed = LabelSelector::parse(text).expect_err(text);
        assert_eq!(malformed.parameter, "labelSelector");
    }
    let malformed = LabelSelector::parse("a in").expect_err("not a selector");
    assert_eq!(
        malformed.to_string(),
        r#"labelSelector: "a in" is not a label selector such as app=a,tier in (x,y),!old"#
    );
}

fn operator() -> impl Strategy<Value = LabelOperator> {
    let value = "([A-Za-z0-9]([-A-Za-z0-9_.]{0,9}[A-Za-z0-9])?)?";
    let set = prop::collection::btree_set(value, 1..4);
    let set = set.prop_map(|values| values.into_iter().collect::<Vec<_>>());
    prop_oneof![
        set.clone().prop_map(LabelOperator::In),
        set.prop_map(LabelOperator::NotIn),
        Just(LabelOperator::Exists),
        Just(LabelOperator::DoesNotExist),
        (0..=i64::MAX).prop_map(LabelOperator::GreaterThan),
        (0..=i64::MAX).prop_map(LabelOperator::LessThan),
    ]
}

proptest! {
    #[test]
    fn reads_back_what_it_prints(
        mut requirements in prop::collection::vec(
            (
                "([a-z0-9]([-a-z0-9]{0,5}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,5}[A-Za-z0-9])?|in|notin",
                operator(),
            ).prop_map(|(key, operator)| LabelRequirement { key, operator }),
            0..5,
        ),
    ) {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        let mut distinct = Vec::new();
        for requirement in requirements {
            if !distinct.contains(&requirement) {
                distinct.push(requirement);
            }
        }
        let requirements = distinct;
        let selector = LabelSelector { requirements };
        prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
    }

    #[test]
    fn never_panics(text in ".*", near in "([ab,=!()<> ]|in|\\PC|\0){0,12}") {
        for text in [text, near] {
            if let Ok(selector) = LabelSelector::parse(&text) {
                prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
            }
        }
    }
}
