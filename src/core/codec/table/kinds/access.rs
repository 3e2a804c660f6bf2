//! Computes cells of role bindings and of the kinds that limit what may run.

use std::collections::HashMap;

use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{name, or, slashed, text};
use crate::codec::table::part::Part;

/// Shows the subjects of the kind `kind`.
pub(super) fn subjects(subjects: Part<'_>, kind: &str) -> Cell {
    let subjects = subjects.items();
    let found = subjects.filter(|subject| subject.at("kind") == kind);
    let shown = found.map(|subject| match kind {
        "ServiceAccount" => slashed(subject, "namespace", "name"),
        _ => text(subject.at("name")).into_owned(),
    });
    shown.collect::<Vec<_>>().join(", ").into()
}

/// Shows a limit of a disruption budget: a number or a percentage.
pub(super) fn limit(value: Part<'_>, otherwise: &str) -> Cell {
    match value.number() {
        Some(count) => count.into(),
        None => value.as_str().unwrap_or(otherwise.into()).into(),
    }
}

/// Returns the cells of a ResourceQuota: the limits are apart from the other resources.
pub(super) fn quota(quota: Part<'_>) -> Vec<Cell> {
    let [used, hard] = quota.at("status").all(["used", "hard"]);
    let used: HashMap<_, _> = used.members().collect();
    let mut hard: Vec<_> = hard.members().collect();
    hard.sort_by(|(resource, _), (other, _)| resource.cmp(other));
    let shown = |is_limit: bool| {
        let hard = hard.iter();
        let chosen = hard.filter(|(resource, _)| resource.starts_with("limits.") == is_limit);
        let texts = chosen.map(|(resource, hard)| {
            let used = used.get(resource).map(|used| text(*used));
            let used = or(used.unwrap_or_default(), "0");
            format!("{resource}: {used}/{}", or(text(*hard), "0"))
        });
        Cell::from(texts.collect::<Vec<_>>().join(", "))
    };
    let age = Cell::age(quota.at("metadata").at("creationTimestamp"));
    vec![name(quota), shown(false), shown(true), age]
}
