//! Selectors: a printed selector parses to the same one, and matches as a reference does.

use std::borrow::Cow;

use bytes::Bytes;
use kubefan::api::{
    FieldSelector, LabelOperator, LabelSelector, Object, ObjectKey, ObjectValues, RawFieldSelector,
    ResourceVersion, ShardSelector,
};

use super::pod_fields;

/// Parses any text as a label selector, and compares its matching with the reference.
pub fn label_selector(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let parsed = LabelSelector::parse(&text);
    let padded = LabelSelector::parse(&format!(" \t\r\n{text}"));
    assert_eq!(
        parsed.as_ref().ok(),
        padded.as_ref().ok(),
        "white space in front of {text:?}"
    );
    let selector = match parsed {
        Ok(selector) => selector,
        Err(malformed) => return assert!(malformed.problem.contains("such as"), "{text:?}"),
    };
    let keys: Vec<&str> = selector
        .requirements
        .iter()
        .map(|r| r.key.as_str())
        .collect();
    assert!(keys.is_sorted(), "{text:?}: {keys:?}");
    let printed = selector.to_string();
    let again = LabelSelector::parse(&printed);
    assert_eq!(
        again.as_ref(),
        Ok(&selector),
        "{text:?} is printed as {printed:?}"
    );
    for object in candidates(&selector) {
        let expected = selector.requirements.iter().all(|requirement| {
            let value = object.label(&requirement.key);
            holds(&requirement.operator, value)
        });
        assert_eq!(
            selector.matches(&object),
            expected,
            "{text:?} of {object:?}"
        );
    }
}

/// Parses any text as a shard selector. A selector selects the same however it is printed.
pub fn shard_selector(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(shard) = ShardSelector::parse(&text) else {
        return;
    };
    let padded = ShardSelector::parse(&format!(" \t({text})\n"));
    assert_eq!(padded.as_ref(), Ok(&shard), "{text:?} in parentheses");
    let printed = shard.to_string();
    let again = ShardSelector::parse(&printed);
    assert_eq!(
        again.as_ref(),
        Ok(&shard),
        "{text:?} is printed as {printed:?}"
    );
}

/// A reference implementation of the label operators.
fn holds(operator: &LabelOperator, value: Option<&str>) -> bool {
    let number = || value?.parse::<i64>().ok();
    match (operator, value) {
        (LabelOperator::In(values), Some(value)) => values.iter().any(|one| one == value),
        (LabelOperator::NotIn(values), Some(value)) => values.iter().all(|one| one != value),
        (LabelOperator::In(_) | LabelOperator::Exists, None) => false,
        (LabelOperator::NotIn(_) | LabelOperator::DoesNotExist, None) => true,
        (LabelOperator::Exists, Some(_)) => true,
        (LabelOperator::DoesNotExist, Some(_)) => false,
        (LabelOperator::GreaterThan(bound), _) => number() > Some(*bound),
        (LabelOperator::LessThan(bound), _) => number().is_some_and(|number| number < *bound),
    }
}

/// Objects between which the selector may distinguish: without labels, with all labels that it
/// names, and with half of them.
fn candidates(selector: &LabelSelector) -> Vec<Object> {
    let mut labels: Vec<(Cow<'_, str>, Cow<'_, str>)> = Vec::new();
    for requirement in &selector.requirements {
        let value = match &requirement.operator {
            LabelOperator::In(values) | LabelOperator::NotIn(values) => values[0].clone(),
            LabelOperator::GreaterThan(bound) => bound.saturating_add(1).to_string(),
            LabelOperator::LessThan(bound) => bound.saturating_sub(1).to_string(),
            LabelOperator::Exists | LabelOperator::DoesNotExist => String::new(),
        };
        labels.push((requirement.key.as_str().into(), value.into()));
    }
    labels.dedup_by(|a, b| a.0 == b.0);
    let half = labels.iter().step_by(2).cloned().collect();
    [Vec::new(), labels, half].into_iter().map(object).collect()
}

fn object(labels: Vec<(Cow<'_, str>, Cow<'_, str>)>) -> Object {
    let values = ObjectValues {
        uid: "uid".into(),
        labels,
        fields: vec!["".into(); pod_fields().fields.len()],
    };
    let key = ObjectKey::new(Some("namespace"), "name");
    Object::new(key, ResourceVersion(1), &values, Bytes::new())
}

/// Parses any text as a field selector, and resolves its labels to the fields of pods.
pub fn field_selector(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let selector = match RawFieldSelector::parse(&text) {
        Ok(selector) => selector,
        Err(malformed) => return assert!(malformed.problem.contains("such as"), "{text:?}"),
    };
    let printed = selector.to_string();
    let again = RawFieldSelector::parse(&printed);
    assert_eq!(
        again.as_ref(),
        Ok(&selector),
        "{text:?} is printed as {printed:?}"
    );
    assert_eq!(selector.is_empty(), printed.is_empty(), "{text:?}");
    let fields = pod_fields();
    let resolved = selector.resolve(&fields);
    assert_eq!(resolved, FieldSelector::parse(&text, &fields), "{text:?}");
    if let Ok(resolved) = resolved {
        assert_eq!(resolved.terms.is_empty(), selector.is_empty());
        let object = object(Vec::new());
        let demands_another_name = selector.required_name().is_some_and(|name| name != "name");
        assert!(
            !(demands_another_name && resolved.matches(&object)),
            "{text:?}"
        );
    }
}
