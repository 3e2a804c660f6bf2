//! Table and property tests of label selectors.

use proptest::prelude::*;

use crate::api::LabelOperator;
use crate::api::LabelRequirement;
use crate::api::LabelSelector;

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start \
    and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex \
    used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn requirement(key: &str, operator: LabelOperator) -> LabelRequirement {
    let key = key.to_owned();
    LabelRequirement { key, operator }
}

fn values(values: &[&str]) -> Vec<String> {
    values.iter().map(|&value| value.to_owned()).collect()
}

#[test]
fn reads_every_operator() {
    use LabelOperator::DoesNotExist;
    use LabelOperator::Exists;
    use LabelOperator::GreaterThan;
    use LabelOperator::In;
    use LabelOperator::LessThan;
    use LabelOperator::NotIn;
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
fn refuses_as_the_api_server_does() {
    let long = "x".repeat(64);
    for (text, message) in [
        (
            "a in",
            "unable to parse requirement: found '' expected: '('".to_owned(),
        ),
        (
            "a===b",
            "unable to parse requirement: found '=', expected: identifier".to_owned(),
        ),
        (
            "-a=b",
            format!(
                "unable to parse requirement: <nil>: Invalid value: \"-a\": name part {NAME_RULE}"
            ),
        ),
        (
            "a>b",
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' \
             operators, the value must be an integer"
                .to_owned(),
        ),
        (
            &format!("a={long}"),
            format!(
                "unable to parse requirement: values[0][a]: Invalid value: \"{long}\": must be no \
                 more than 63 bytes"
            ),
        ),
        (
            "app,",
            "found '', expected: identifier after ','".to_owned(),
        ),
        (
            // A NUL behind a blank ends the text.
            "app, \0b",
            "found '', expected: identifier after ','".to_owned(),
        ),
        (
            ",app",
            "found ',', expected: !, identifier, or 'end of string'".to_owned(),
        ),
        (
            "!a=b",
            "found '=', expected: ',' or 'end of string'".to_owned(),
        ),
        (
            "a==b==c",
            "found '==', expected: ',' or 'end of string'".to_owned(),
        ),
        (
            "app in (a",
            "unable to parse requirement: found '', expected: ',' or ')'".to_owned(),
        ),
        (
            "a in (",
            "unable to parse requirement: found '', expected: ',', ')' or identifier".to_owned(),
        ),
        (
            "a in (b,(",
            "unable to parse requirement: found '(', expected: ',', or identifier".to_owned(),
        ),
        (
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"
                .to_owned(),
        ),
        (
            "!",
            "unable to parse requirement: found '', expected: identifier".to_owned(),
        ),
        (
            "a>-b",
            format!(
                "unable to parse requirement: [values[0]: Invalid value: \"-b\": for 'Gt', 'Lt' \
                 operators, the value must be an integer, values[0][a]: Invalid value: \"-b\": \
                 {VALUE_RULE}]"
            ),
        ),
        (
            "/a",
            "unable to parse requirement: <nil>: Invalid value: \"/a\": prefix part must be \
             non-empty"
                .to_owned(),
        ),
        (
            "a/",
            format!(
                "unable to parse requirement: <nil>: Invalid value: \"a/\": name part must be \
                 non-empty; name part {NAME_RULE}"
            ),
        ),
        (
            "a/b/c",
            format!(
                "unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key \
                 {NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            ),
        ),
        (
            "X/a",
            "unable to parse requirement: <nil>: Invalid value: \"X/a\": prefix part a lowercase \
             RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character (e.g. 'example.com', regex \
             used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        ),
    ] {
        assert_eq!(LabelSelector::parse(text), Err(message), "{text}");
    }
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
